//! The custom op Convolution2DTransposeBias.

use delegraph_core::ops::pad_amount;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Epilogue;
use delegraph_shaders::transpose_conv::Spec;

use super::{GpuOp, positive};
use crate::lower::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[];

/// A transposed convolution with a bias: activations, weights `[out, height, width, in]`, bias. Its options are three
/// 32-bit integers: padding (1: SAME, 2: VALID), horizontal stride, vertical stride.
pub(super) fn with_bias(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let options = cx.node().custom_options();
    let words: Vec<i32> = options.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
    let &[1 | 2, stride_w, stride_h, ..] = words.as_slice() else {
        return Err(unsupported(format!("options {options:?}")));
    };
    let stride = [positive(stride_h, "stride")?, positive(stride_w, "stride")?];
    let (input, filter, bias) = (cx.input(0)?, cx.constant(1)?, cx.optional_constant(2)?);
    let output = cx.output(0)?;
    let (shape, kernel, result) = (cx.shape4(input)?, cx.input_shape4(1)?, cx.shape4(output)?);
    let pad = |d: usize| cut(shape[d + 1], result[d + 1], kernel[d + 1], stride[d]);
    let (padding, epilogue) = ([pad(0)?, pad(1)?], Epilogue::default());
    let spec = Spec { input: shape, output: result, filter: kernel, stride, padding, epilogue };
    cx.push_weighted(spec, input, filter, bias, output)
}

/// What is cut off in front of the output: the padding of the convolution that goes the other way.
fn cut(input: u32, output: u32, window: u32, stride: u32) -> Result<u32, Rejection> {
    let [input, output, window, stride] = [input, output, window, stride].map(|n| n as usize);
    u32::try_from(pad_amount(output, input, window, stride, 1)).map_err(|_| unsupported("padding"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check_custom};
    use delegraph_core::{Op, Params};

    #[test]
    fn pixels_become_blocks() {
        let options: Vec<u8> = [1_i32, 2, 2].iter().flat_map(|n| n.to_le_bytes()).collect();
        let input = T::new(&[1, 1, 2, 1], &[1.0_f32, 10.0]);
        let filter = T::new(&[1, 2, 2, 1], &[1.0_f32, 2.0, 3.0, 4.0]).constant();
        let bias = T::new(&[1], &[0.5_f32]).constant();
        let expected = T::new(&[1, 2, 4, 1], &[1.5_f32, 2.5, 10.5, 20.5, 3.5, 4.5, 30.5, 40.5]);
        let inputs = [Some(input), Some(filter), Some(bias)];
        let op = Op::custom("Convolution2DTransposeBias");
        check_custom(op, 1, Params::Custom, &options, &inputs, &[expected]);
    }
}
