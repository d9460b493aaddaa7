//! DEPTHWISE_CONV_2D.

use delegraph_core::TensorType::{Float32, Int8, Int16, UInt8};
use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::{Epilogue, depthwise_conv_2d};

use super::computed::{Layout, push_weighted};
use super::integers::{
    FloatRows, I16Accumulator, Operands, Rounding, ScaleProduct, WeightZeros, are_weights, product,
};
use super::{GpuOp, activation, pad_front, positive};
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] =
    &[GpuOp::new(BuiltinOp::DEPTHWISE_CONV_2D, 7, &[Float32, UInt8, Int16, Int8], lower)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &DepthwiseConv2DParams = cx.params()?;
    let (shape, kernel, result) = (cx.input_shape4(0)?, cx.input_shape4(1)?, cx.output_shape4(0)?);
    let stride = [positive(p.stride_h, "stride")?, positive(p.stride_w, "stride")?];
    let dilation = [positive(p.dilation_h_factor, "dilation")?, positive(p.dilation_w_factor, "dilation")?];
    let pad =
        |d: usize| pad_front(p.padding, shape[d + 1], result[d + 1], kernel[d + 1], stride[d], dilation[d]);
    let spec = depthwise_conv_2d::Spec {
        input: shape,
        output: result,
        window: [kernel[1], kernel[2]],
        stride,
        dilation,
        padding: [pad(0)?, pad(1)?],
        epilogue: Epilogue::default(),
    };
    if !are_weights(cx, 1) {
        let epilogue = Epilogue::activation(activation(p.fused_activation_function)?);
        let (input, output) = (cx.input(0)?, cx.real_output(0)?);
        let spec = depthwise_conv_2d::Spec { epilogue, ..spec };
        return push_weighted(cx, spec, input, [1, 2], Layout::Plain, output);
    }
    let unsigned = cx.ty(0) == Some(TensorType::UInt8);
    let product = product(
        cx,
        &Operands {
            input: 0,
            filter: 1,
            bias: Some(2),
            dimension: 3,
            activation: p.fused_activation_function,
            // CPU kernels of INT8 process eight channels at once, and round only the halves of these upwards.
            rounding: match unsigned {
                true => Rounding::Away,
                false => Rounding::UpInLeadingChannels(result[3] / 8 * 8),
            },
            scale_product: if unsigned { ScaleProduct::Single } else { ScaleProduct::Double },
            weight_zeros: WeightZeros::Unsigned,
            i16_accumulator: I16Accumulator::I64,
            float_rows: FloatRows {
                count: shape[0],
                pixels: result[1].saturating_mul(result[2]),
                asymmetric: true,
            },
        },
    )?;
    cx.push_product(depthwise_conv_2d::Spec { epilogue: product.epilogue, ..spec }, product)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;
    use delegraph_core::ops::{Activation, Padding};

    #[test]
    fn every_channel_has_filters_of_its_own() {
        let params = |depth_multiplier| {
            Params::DepthwiseConv2D(
                DepthwiseConv2DParams::default()
                    .padding(Padding::Valid)
                    .stride_w(1)
                    .stride_h(1)
                    .depth_multiplier(depth_multiplier)
                    .fused_activation_function(Activation::Relu6)
                    .dilation_w_factor(1)
                    .dilation_h_factor(1),
            )
        };
        let input = T::new(&[1, 1, 2, 2], &[1.0_f32, 2.0, 3.0, 4.0]);
        let filter = T::new(&[1, 1, 2, 2], &[1.0_f32, 1.0, 1.0, -1.0]).constant();
        let bias = T::new(&[2], &[0.5_f32, 3.0]).constant();
        let inputs = [Some(input), Some(filter), Some(bias)];
        let expected = T::new(&[1, 1, 1, 2], &[4.5_f32, 1.0]);
        check(BuiltinOp::DEPTHWISE_CONV_2D, 1, params(1), &inputs, &[expected]);
        let input = T::new(&[1, 1, 1, 1], &[2.0_f32]);
        let filter = T::new(&[1, 1, 1, 3], &[1.0_f32, 2.0, 4.0]).constant();
        let expected = T::new(&[1, 1, 1, 3], &[2.0_f32, 4.0, 6.0]);
        check(BuiltinOp::DEPTHWISE_CONV_2D, 1, params(3), &[Some(input), Some(filter), None], &[expected]);
    }

    #[test]
    fn floats_would_lose_the_last_one_of_16_bits() {
        let params = |depth_multiplier| {
            Params::DepthwiseConv2D(
                DepthwiseConv2DParams::default()
                    .padding(Padding::Valid)
                    .stride_w(1)
                    .stride_h(1)
                    .depth_multiplier(depth_multiplier)
                    .fused_activation_function(Activation::None)
                    .dilation_w_factor(1)
                    .dilation_h_factor(1),
            )
        };
        // Four channels at once, and one by one.
        for (channels, multiplier) in [(4, 1), (1, 3)] {
            let outputs = channels * multiplier;
            let input = T::new(&[1, 8, 8, channels], &vec![i16::MAX; 64 * channels]).quantized(1.0, 0);
            let filter = T::new(&[1, 8, 8, outputs], &vec![127_i8; 64 * outputs]).constant();
            let sum = 64 * 32_767 * 127_i64;
            let half = (2 * 16_255 + 1) << 13;
            let bias: Vec<i64> = (0..outputs as i64).map(|o| half - o - sum).collect();
            let bias = T::new(&[outputs], &bias).constant();
            // 16255.5 steps are rounded up, less is rounded down.
            let expected: Vec<i16> = (0..outputs).map(|o| if o == 0 { 16_256 } else { 16_255 }).collect();
            let expected = T::new(&[1, 1, 1, outputs], &expected).quantized(16_384.0, 0);
            let inputs = [Some(input), Some(filter.quantized(1.0, 0)), Some(bias)];
            check(BuiltinOp::DEPTHWISE_CONV_2D, 5, params(multiplier as i32), &inputs, &[expected]);
        }
    }
}
