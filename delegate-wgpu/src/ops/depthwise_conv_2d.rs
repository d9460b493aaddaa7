//! DEPTHWISE_CONV_2D.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::{Epilogue, depthwise_conv_2d};

use super::{GpuOp, activation, pad_front, positive};
use crate::lower::Lowering;

pub(super) const OPS: &[GpuOp] =
    &[GpuOp { op: BuiltinOp::DEPTHWISE_CONV_2D, max_version: 7, types: GpuOp::FLOATS, lower }];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &DepthwiseConv2DParams = cx.params()?;
    let (input, filter, bias) = (cx.input(0)?, cx.constant(1)?, cx.optional_constant(2)?);
    let output = cx.output(0)?;
    let (shape, kernel, result) = (cx.shape4(input)?, cx.input_shape4(1)?, cx.shape4(output)?);
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
        epilogue: Epilogue::activation(activation(p.fused_activation_function)?),
    };
    cx.push_weighted(spec, input, filter, bias, output)
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
            Params::DepthwiseConv2D(DepthwiseConv2DParams {
                padding: Padding::Valid,
                stride_w: 1,
                stride_h: 1,
                depth_multiplier,
                fused_activation_function: Activation::Relu6,
                dilation_w_factor: 1,
                dilation_h_factor: 1,
            })
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
}
