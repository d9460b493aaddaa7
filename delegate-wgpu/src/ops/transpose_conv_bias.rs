//! The custom op `Convolution2DTransposeBias`.

use delegraph_core::ops::transpose_conv_bias::{NAME, TransposeConvBiasParams};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Epilogue;
use delegraph_shaders::transpose_conv::Spec;

use super::{CustomOp, invalid};
use crate::device::time;
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const CUSTOM: CustomOp = CustomOp { name: NAME, max_version: 1, lower };

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let params = TransposeConvBiasParams::read(cx.node().custom_options()).map_err(invalid)?;
    let (input, filter, bias) = (cx.input(0)?, cx.constant(1)?, cx.constant(2)?);
    let output = cx.real_output(0)?;
    let (shape, kernel) = (cx.shape4(input)?, cx.input_shape4(1)?);
    let result = cx.shape4(output)?;
    let sizes = |shape: &[u32]| shape.iter().map(|&d| d as usize).collect::<Vec<_>>();
    let inferred = params.output(&sizes(&shape), &sizes(&kernel), &sizes(&cx.input_shape(2)?));
    let (inferred, cut) = inferred.map_err(invalid)?;
    if sizes(&result) != inferred {
        return Err(unsupported(format!("an output of shape {result:?}; only {inferred:?} is supported")));
    }
    let size = |n: usize| {
        u32::try_from(n)
            .map_err(|_| unsupported(format!("stride or padding {n}; at most {} is supported", u32::MAX)))
    };
    let [outputs, rows, columns, _] = kernel;
    let factors = shape.into_iter().chain([outputs, rows, columns]).map(u64::from);
    time::check_arithmetic(cx.caps(), factors.fold(1, u64::saturating_mul), true)?;
    let spec = Spec {
        input: shape,
        output: result,
        filter: kernel,
        stride: [size(params.stride_h)?, size(params.stride_w)?],
        padding: [size(cut[0])?, size(cut[1])?],
        epilogue: Epilogue::default(),
    };
    cx.push_weighted(spec, input, filter, Some(bias), output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check_custom};
    use delegraph_core::{Op, Params};

    #[test]
    fn pixels_become_blocks() {
        let options: Vec<u8> = [1_i32, 2, 2].iter().flat_map(|n| n.to_le_bytes()).collect();
        let input = T::new(&[1, 2, 2, 1], &[1.0_f32, 10.0, 0.0, 100.0]);
        let filter = T::new(&[1, 2, 2, 1], &[1.0_f32, 2.0, 3.0, 4.0]).constant();
        let bias = T::new(&[1], &[0.5_f32]).constant();
        let rows = [
            [1.5_f32, 2.5, 10.5, 20.5],
            [3.5, 4.5, 30.5, 40.5],
            [0.5, 0.5, 100.5, 200.5],
            [0.5, 0.5, 300.5, 400.5],
        ];
        let expected = T::new(&[1, 4, 4, 1], rows.as_flattened());
        let inputs = [Some(input), Some(filter), Some(bias)];
        check_custom(Op::custom(NAME), 1, Params::Custom, &options, &inputs, &[expected]);
    }
}
