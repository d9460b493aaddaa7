//! DEPTH_TO_SPACE, SPACE_TO_DEPTH.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{Float32, Int8, Int32, UInt8};
use delegraph_core::ops::depth_to_space::{DepthToSpaceParams, SpaceToDepthParams};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::depth_to_space::{Direction, Spec};

use super::{GpuOp, positive};
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::DEPTH_TO_SPACE, 2, &[Float32, Int32, UInt8, Int8], depth_to_space),
    GpuOp::new(BuiltinOp::SPACE_TO_DEPTH, 2, &[Float32, Int32, UInt8, Int8], space_to_depth),
];

fn depth_to_space(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    push(cx, Direction::DepthToSpace, cx.params::<DepthToSpaceParams>()?.block_size)
}

fn space_to_depth(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    push(cx, Direction::SpaceToDepth, cx.params::<SpaceToDepthParams>()?.block_size)
}

fn push(cx: &mut Lowering<'_, '_, '_>, direction: Direction, block: i32) -> Result<(), Rejection> {
    let block = positive(block, "block size")?;
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    cx.push(Spec { direction, input: cx.shape4(input)?, block }, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn there_and_back() {
        let deep = T::new(&[1, 1, 1, 8], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let wide = T::new(&[1, 2, 2, 2], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let params = Params::DepthToSpace(DepthToSpaceParams::default().block_size(2));
        check(BuiltinOp::DEPTH_TO_SPACE, 1, params, &[Some(deep.clone())], std::slice::from_ref(&wide));
        let params = Params::SpaceToDepth(SpaceToDepthParams::default().block_size(2));
        check(BuiltinOp::SPACE_TO_DEPTH, 1, params, &[Some(wide)], &[deep]);
    }
}
