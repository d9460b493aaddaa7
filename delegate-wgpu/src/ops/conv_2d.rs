//! CONV_2D.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::{Epilogue, conv_2d};

use super::{GpuOp, activation, pad_front, positive};
use crate::lower::Lowering;

pub(super) const OPS: &[GpuOp] = &[GpuOp { op: BuiltinOp::CONV_2D, max_version: 8, lower }];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &Conv2DParams = cx.params()?;
    let (input, filter, bias) = (cx.input(0)?, cx.constant(1)?, cx.optional_constant(2)?);
    let output = cx.output(0)?;
    let shapes = (cx.shape4(input)?, cx.constant_shape4(1)?, cx.shape4(output)?);
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
        epilogue: Epilogue::activation(activation(p.fused_activation_function)?),
    };
    cx.push_weighted(spec, input, filter, bias, output)
}
