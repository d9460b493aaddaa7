//! DEPTH_TO_SPACE, SPACE_TO_DEPTH.

use delegraph_core::ops::depth_to_space::{DepthToSpaceParams, SpaceToDepthParams};

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::DEPTH_TO_SPACE, Op::SPACE_TO_DEPTH])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, UInt8, Int32, Int64] {
        for block_size in [2usize, 3] {
            let block = block_size as i32;
            let deep = [2, 2, 3, 2 * block_size * block_size];
            let wide = [2, 2 * block_size, 3 * block_size, 2];
            let to_space = DepthToSpaceParams::default().block_size(block);
            let to_depth = SpaceToDepthParams::default().block_size(block);
            out.push(Case::new(Op::DEPTH_TO_SPACE, to_space, [x(ty, &deep).auto()]).auto(ty));
            out.push(Case::new(Op::SPACE_TO_DEPTH, to_depth, [x(ty, &wide).auto()]).auto(ty));
        }
    }
}
