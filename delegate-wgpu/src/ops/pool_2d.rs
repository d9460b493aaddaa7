//! AVERAGE_POOL_2D, MAX_POOL_2D.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::pool_2d::{Pool, Spec};

use super::{GpuOp, activation, pad_front, positive};
use crate::lower::Lowering;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp { op: BuiltinOp::AVERAGE_POOL_2D, max_version: 3, lower },
    GpuOp { op: BuiltinOp::MAX_POOL_2D, max_version: 3, lower },
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &Pool2DParams = cx.params()?;
    let op = match cx.node().op().builtin() {
        Some(BuiltinOp::AVERAGE_POOL_2D) => Pool::Average,
        _ => Pool::Max,
    };
    let (input, output) = (cx.input(0)?, cx.real_output(0)?);
    let shapes = [cx.shape4(input)?, cx.shape4(output)?];
    let window = [positive(p.filter_height, "window")?, positive(p.filter_width, "window")?];
    let stride = [positive(p.stride_h, "stride")?, positive(p.stride_w, "stride")?];
    let pad = |d: usize| pad_front(p.padding, shapes[0][d + 1], shapes[1][d + 1], window[d], stride[d], 1);
    let spec = Spec {
        op,
        input: shapes[0],
        output: shapes[1],
        window,
        stride,
        padding: [pad(0)?, pad(1)?],
        activation: activation(p.fused_activation_function)?,
    };
    cx.push(spec, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;
    use delegraph_core::ops::{Activation, Padding};

    #[test]
    fn windows_count_what_lies_inside() {
        let input = T::new(&[1, 2, 3, 1], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let params = |padding| {
            Params::Pool2D(Pool2DParams {
                padding,
                stride_w: 2,
                stride_h: 2,
                filter_width: 2,
                filter_height: 2,
                fused_activation_function: Activation::None,
            })
        };
        let row = |values: &[f32]| T::new(&[1, 1, values.len(), 1], values);
        let inputs = [Some(input)];
        check(BuiltinOp::AVERAGE_POOL_2D, 1, params(Padding::Same), &inputs, &[row(&[3.0, 4.5])]);
        check(BuiltinOp::MAX_POOL_2D, 1, params(Padding::Same), &inputs, &[row(&[5.0, 6.0])]);
        check(BuiltinOp::MAX_POOL_2D, 1, params(Padding::Valid), &inputs, &[row(&[5.0])]);
    }
}
