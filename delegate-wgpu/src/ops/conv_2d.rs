//! CONV_2D.

use delegraph_core::TensorType::{Float32, Int8, Int16, UInt8};
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::{Epilogue, conv_2d};

use super::computed::{Layout, push_weighted};
use super::integers::{
    FloatRows, I16Accumulator, Operands, Rounding, ScaleProduct, WeightZeros, are_weights, product,
};
use super::{GpuOp, activation, pad_front, positive};
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(BuiltinOp::CONV_2D, 8, &[Float32, UInt8, Int16, Int8], lower)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &Conv2DParams = cx.params()?;
    let shapes = (cx.input_shape4(0)?, cx.input_shape4(1)?, cx.output_shape4(0)?);
    let ([_, in_h, in_w, _], [_, kernel_h, kernel_w, _], [_, out_h, out_w, _]) = shapes;
    let stride = [positive(p.stride_h, "stride")?, positive(p.stride_w, "stride")?];
    let dilation = [positive(p.dilation_h_factor, "dilation")?, positive(p.dilation_w_factor, "dilation")?];
    let padding = [
        pad_front(p.padding, in_h, out_h, kernel_h, stride[0], dilation[0])?,
        pad_front(p.padding, in_w, out_w, kernel_w, stride[1], dilation[1])?,
    ];
    let spec = conv_2d::Spec {
        input: shapes.0,
        output: shapes.2,
        filter: shapes.1,
        stride,
        dilation,
        padding,
        epilogue: Epilogue::default(),
    };
    if !are_weights(cx, 1) {
        let epilogue = Epilogue::activation(activation(p.fused_activation_function)?);
        let (input, output) = (cx.input(0)?, cx.real_output(0)?);
        let spec = conv_2d::Spec { epilogue, ..spec };
        return push_weighted(cx, spec, input, [1, 2], Layout::ByTaps, output);
    }
    // CPU kernels do not compute grouped convolutions as matrix products.
    let grouped = shapes.0[3] != shapes.1[3];
    let unsigned = cx.ty(0) == Some(TensorType::UInt8);
    let product = product(
        cx,
        &Operands {
            input: 0,
            filter: 1,
            bias: Some(2),
            dimension: 0,
            activation: p.fused_activation_function,
            rounding: if grouped { Rounding::Away } else { Rounding::Up },
            scale_product: if unsigned { ScaleProduct::Single } else { ScaleProduct::Double },
            weight_zeros: WeightZeros::Unsigned,
            i16_accumulator: match cx.ty(2) {
                Some(TensorType::Int64) => I16Accumulator::I64,
                _ => I16Accumulator::I32,
            },
            float_rows: FloatRows {
                count: shapes.0[0],
                pixels: out_h.saturating_mul(out_w),
                asymmetric: grouped || cx.has_scales_per_channel(1),
            },
        },
    )?;
    cx.push_product(conv_2d::Spec { epilogue: product.epilogue, ..spec }, product)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check, support};
    use delegraph_core::Params;
    use delegraph_core::ops::{Activation, Padding, TensorType};

    fn params(padding: Padding, stride: i32, activation: Activation) -> Params {
        Params::Conv2D(
            Conv2DParams::default()
                .padding(padding)
                .stride_w(stride)
                .stride_h(stride)
                .fused_activation_function(activation)
                .dilation_w_factor(1)
                .dilation_h_factor(1)
                .quantized_bias_type(TensorType::Float32),
        )
    }

    #[test]
    fn same_padding_puts_the_odd_zero_behind() {
        let input = T::new(&[1, 2, 2, 1], &[1.0_f32, 2.0, 3.0, 4.0]);
        let filter = T::new(&[1, 2, 2, 1], &[1.0_f32, 10.0, 100.0, 1000.0]).constant();
        let expected = T::new(&[1, 2, 2, 1], &[4321.0_f32, 402.0, 43.0, 4.0]);
        let params = params(Padding::Same, 1, Activation::None);
        check(BuiltinOp::CONV_2D, 1, params, &[Some(input), Some(filter), None], &[expected]);
    }

    #[test]
    fn strides_bias_and_activation() {
        let input = T::new(&[1, 3, 3, 1], &[1.0_f32, 0.0, 2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 4.0]);
        let filter = T::new(&[2, 1, 1, 1], &[1.0_f32, -1.0]).constant();
        let bias = T::new(&[2], &[0.5_f32, 2.5]).constant();
        let expected = T::new(&[1, 2, 2, 2], &[1.5_f32, 1.5, 2.5, 0.5, 3.5, 0.0, 4.5, 0.0]);
        let params = params(Padding::Valid, 2, Activation::Relu);
        check(BuiltinOp::CONV_2D, 1, params, &[Some(input), Some(filter), Some(bias)], &[expected]);
    }

    #[test]
    fn a_filter_of_bytes_that_is_not_constant_is_rejected() {
        let bytes = |elements: usize| T::new(&[1, elements, 1, 1], &vec![1_i8; elements]).quantized(0.5, 0);
        let inputs = [Some(bytes(3)), Some(bytes(1))];
        let answer =
            support(BuiltinOp::CONV_2D, 1, params(Padding::Valid, 1, Activation::None), &inputs, &[bytes(3)]);
        assert!(answer.is_none_or(|s| s
            == Err(Rejection::UnsupportedParam("input 1 is computed; only constants are supported".into()))));
    }

    #[test]
    fn bytes_with_a_scale_per_channel() {
        // Zero points are -1 and 2: the real inputs are 1, 2, 3 and 4, and the padding is 0.
        let input = T::new(&[1, 2, 2, 1], &[1_i8, 3, 5, 7]).quantized(0.5, -1);
        let filter = T::new(&[2, 1, 2, 1], &[1_i8, 2, -3, 0]).constant().quantized_along(&[1.0, 0.25], 0);
        let bias = T::new(&[2], &[4_i32, -2]).constant();
        // Sums: 1·1 + 2·2 + 2, 2·1 + 0 + 2, …; 1·-0.75 - 0.25, … -2.5 is a tie, and rounded upwards.
        let expected = [9_i8, 1, 6, 0, 15, 0, 8, -1];
        let expected = T::new(&[1, 2, 2, 2], &expected).quantized(1.0, 2);
        let inputs = [Some(input), Some(filter), Some(bias)];
        check(BuiltinOp::CONV_2D, 3, params(Padding::Same, 1, Activation::None), &inputs, &[expected]);
    }

    #[test]
    fn unsigned_bytes_have_two_zero_points() {
        let input = T::new(&[1, 1, 2, 1], &[130_u8, 120]).quantized(1.0, 125);
        let filter = T::new(&[1, 1, 1, 1], &[13_u8]).constant().quantized(0.5, 10);
        let expected = T::new(&[1, 1, 2, 1], &[8_u8, 0]).quantized(1.0, 0);
        let inputs = [Some(input), Some(filter), None];
        check(BuiltinOp::CONV_2D, 1, params(Padding::Valid, 1, Activation::None), &inputs, &[expected]);
    }

    #[test]
    fn floats_become_integers_for_integer_weights() {
        let input = T::new(&[1, 1, 2, 1], &[127.0_f32, -10.0]);
        let filter = T::new(&[1, 1, 1, 1], &[4_i8]).constant().quantized(0.25, 0);
        let expected = T::new(&[1, 1, 2, 1], &[128.0_f32, 0.0]);
        let inputs = [Some(input), Some(filter), Some(T::new(&[1], &[1.0_f32]).constant())];
        check(BuiltinOp::CONV_2D, 1, params(Padding::Valid, 1, Activation::Relu), &inputs, &[expected]);
    }

    /// A point of 2066 channels.
    fn deep(input: T, filter: &[i8], bias: T, expected: T) {
        let filter = T::new(&[2, 1, 1, 2066], filter).constant().quantized(1.0, 0);
        let inputs = [Some(input), Some(filter), Some(bias.constant())];
        check(BuiltinOp::CONV_2D, 4, params(Padding::Valid, 1, Activation::None), &inputs, &[expected]);
    }

    #[test]
    fn floats_would_lose_the_last_two() {
        // After subtracting the zero point: 2065 times 255 and a 1, on weights whose sums are 255 * 2^18 and two less.
        let input = T::new(&[1, 1, 1, 2066], &[vec![127_i8; 2065], vec![-127]].concat()).quantized(1.0, -128);
        let row = |last: [i8; 2]| [vec![127_i8; 2064], last.to_vec()].concat();
        let filter = [row([16, 0]), row([16, -2])].concat();
        // 127.5 steps are rounded up, slightly less is rounded down.
        let expected = T::new(&[1, 1, 1, 2], &[0_i8, -1]).quantized(524_288.0, -128);
        deep(input, &filter, T::new(&[2], &[0_i32; 2]), expected);
    }

    #[test]
    fn sums_of_16_bits_need_more_than_32() {
        let input = T::new(&[1, 1, 1, 2066], &[i16::MIN; 2066]).quantized(1.0, 0);
        let filter = vec![127_i8; 2 * 2066];
        let sum = -32_768 * 127 * 2066_i64;
        let half = -(2 * 16_390 + 1) << 18;
        // -16390.5 steps are rounded up, slightly less is rounded down.
        let expected = T::new(&[1, 1, 1, 2], &[-16_390_i16, -16_391]).quantized(524_288.0, 0);
        deep(input.clone(), &filter, T::new(&[2], &[half - sum, half - 1 - sum]), expected);
        // With a 32-bit bias, sums have 32 bits and wrap around; the bias makes them -15.5 steps.
        let expected = T::new(&[1, 1, 1, 2], &[-15_i16, -16]).quantized(524_288.0, 0);
        let bias = (-31 << 18) - sum as i32;
        deep(input, &filter, T::new(&[2], &[bias, bias - 2]), expected);
    }
}
