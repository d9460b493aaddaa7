//! TRANSPOSE_CONV.

use delegraph_core::TensorType::{Float32, Int8, Int16, UInt8};
use delegraph_core::ops::transpose_conv::TransposeConvParams;
use delegraph_core::ops::{Padding, Window, pad_amount};
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Epilogue;
use delegraph_shaders::transpose_conv::Spec;

use super::computed::{Layout, push_weighted};
use super::integers::{
    FloatRows, I16Accumulator, Operands, Rounding, ScaleProduct, WeightZeros, are_weights, product,
};
use super::{GpuOp, activation, positive};
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] =
    &[GpuOp::new(BuiltinOp::TRANSPOSE_CONV, 5, &[Float32, UInt8, Int16, Int8], lower)];

/// Inputs: the output's shape, weights `[out, height, width, in]`, activations, bias.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &TransposeConvParams = cx.params()?;
    let (shape, kernel, result) = (cx.input_shape4(2)?, cx.input_shape4(1)?, cx.output_shape4(0)?);
    let stride = [positive(p.stride_h, "stride")?, positive(p.stride_w, "stride")?];
    // The padding of a convolution from the output to the input is cropped.
    let cut = |d: usize| {
        let [output, kernel, stride] = [result[d + 1], kernel[d + 1], stride[d]].map(|n| n as usize);
        let cut = match p.padding {
            Padding::Same => {
                pad_amount(output, output.div_ceil(stride), Window { size: kernel, stride, dilation: 1 })
            }
            Padding::Valid => 0,
        };
        u32::try_from(cut)
            .map_err(|_| unsupported(format!("padding {cut}; at most {} is supported", u32::MAX)))
    };
    let spec = Spec {
        input: shape,
        output: result,
        filter: kernel,
        stride,
        padding: [cut(0)?, cut(1)?],
        epilogue: Epilogue::default(),
    };
    if !are_weights(cx, 1) {
        let epilogue = Epilogue::activation(activation(p.fused_activation_function)?);
        let (input, output) = (cx.input(2)?, cx.real_output(0)?);
        return push_weighted(cx, Spec { epilogue, ..spec }, input, [1, 3], Layout::ByTaps, output);
    }
    let unsigned = cx.ty(2) == Some(TensorType::UInt8);
    let narrow = p.quantized_bias_type == TensorType::Int32;
    let elements = result.iter().map(|&n| n as usize).product::<usize>();
    let product = product(
        cx,
        &Operands {
            input: 2,
            filter: 1,
            bias: Some(3),
            dimension: 0,
            activation: p.fused_activation_function,
            // CPU kernels process eight channels at once, those of UINT8 sixteen elements.
            rounding: match unsigned {
                true => Rounding::UpInLeadingElements(elements / 16 * 16),
                false => Rounding::UpInLeadingChannels(result[3] / 8 * 8),
            },
            scale_product: if unsigned { ScaleProduct::Single } else { ScaleProduct::Double },
            weight_zeros: WeightZeros::Unsigned,
            i16_accumulator: if narrow { I16Accumulator::I32 } else { I16Accumulator::I64 },
            float_rows: FloatRows {
                count: shape[0],
                pixels: result[1].saturating_mul(result[2]),
                asymmetric: true,
            },
        },
    )?;
    cx.push_product(Spec { epilogue: product.epilogue, ..spec }, product)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;
    use delegraph_core::ops::{Activation, TensorType};

    #[test]
    fn overlapping_taps_add_up() {
        let params = |padding| {
            Params::TransposeConv(
                TransposeConvParams::default()
                    .padding(padding)
                    .stride_w(2)
                    .stride_h(2)
                    .fused_activation_function(Activation::None)
                    .quantized_bias_type(TensorType::Float32),
            )
        };
        let run = |padding, expected: &[f32]| {
            let shape = T::new(&[4], &[1_i32, 1, expected.len() as i32, 1]).constant();
            let filter = T::new(&[1, 1, 3, 1], &[1.0_f32, 2.0, 3.0]).constant();
            let input = T::new(&[1, 1, 2, 1], &[1.0_f32, 10.0]);
            let inputs = [Some(shape), Some(filter), Some(input)];
            let expected = T::new(&[1, 1, expected.len(), 1], expected);
            check(BuiltinOp::TRANSPOSE_CONV, 1, params(padding), &inputs, &[expected]);
        };
        run(Padding::Valid, &[1.0, 2.0, 13.0, 20.0, 30.0]);
        run(Padding::Same, &[1.0, 2.0, 13.0, 20.0]);
        // An output smaller than the filter.
        run(Padding::Valid, &[1.0]);
    }

    #[test]
    fn the_last_elements_of_bytes_without_a_sign_are_rounded_otherwise() {
        let params = TransposeConvParams::default()
            .padding(Padding::Valid)
            .stride_w(1)
            .stride_h(1)
            .fused_activation_function(Activation::None)
            .quantized_bias_type(TensorType::Int32);
        let shape = T::new(&[4], &[1_i32, 1, 1, 17]).constant();
        let filter = T::new(&[17, 1, 1, 1], &[4_u8; 17]).constant().quantized(0.25, 3);
        let input = T::new(&[1, 1, 1, 1], &[5_u8]).quantized(1.0, 7);
        // -0.5 steps; the first 16 elements are rounded up.
        let mut expected = [10_u8; 17];
        expected[16] = 9;
        let expected = T::new(&[1, 1, 1, 17], &expected).quantized(1.0, 10);
        let inputs = [Some(shape), Some(filter), Some(input)];
        check(BuiltinOp::TRANSPOSE_CONV, 1, Params::TransposeConv(params), &inputs, &[expected]);
    }

    #[test]
    fn sums_of_16_bits_need_more_than_32() {
        let params = TransposeConvParams::default()
            .padding(Padding::Valid)
            .stride_w(1)
            .stride_h(1)
            .fused_activation_function(Activation::None)
            .quantized_bias_type(TensorType::Int64);
        let shape = T::new(&[4], &[1_i32, 1, 1, 2]).constant();
        let filter = T::new(&[2, 1, 1, 2066], &[127_i8; 2 * 2066]).constant().quantized(1.0, 0);
        let input = T::new(&[1, 1, 1, 2066], &[i16::MIN; 2066]).quantized(1.0, 0);
        let (sum, half) = (-32_768 * 127 * 2066_i64, -(2 * 16_390 + 1) << 18);
        let bias = T::new(&[2], &[half - sum, half - 1 - sum]).constant();
        // -16390.5 steps are rounded up, slightly less is rounded down.
        let expected = T::new(&[1, 1, 1, 2], &[-16_390_i16, -16_391]).quantized(524_288.0, 0);
        let inputs = [Some(shape), Some(filter), Some(input), Some(bias)];
        check(BuiltinOp::TRANSPOSE_CONV, 3, Params::TransposeConv(params), &inputs, &[expected]);
    }
}
