//! SPLIT, SPLIT_V.

use delegraph_core::ops::split::{SplitParams, SplitVParams};

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::SPLIT, Op::SPLIT_V])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, UInt8, Int16, Int32, Int64] {
        for (axis, count) in [(0, 2usize), (1, 3), (-1, 4), (2, 2)] {
            let data = x(ty, &[2, 3, 4]).auto();
            let params = SplitParams::default().num_splits(count as i32);
            let case = Case::new(Op::SPLIT, params, [list(&[axis]).reshaped(&[]), data]);
            out.push(case.outputs(vec![Output::of(ty); count]).auto(ty).detail(format!("axis{axis}")));
        }
        for (axis, sizes) in [(0, &[1, 1][..]), (1, &[-1, 1]), (2, &[1, 2, 1])] {
            let inputs = [x(ty, &[2, 3, 4]).auto(), list(sizes), list(&[axis]).reshaped(&[])];
            let case = Case::new(Op::SPLIT_V, SplitVParams::default().num_splits(sizes.len() as i32), inputs);
            out.push(case.outputs(vec![Output::of(ty); sizes.len()]).auto(ty).detail(format!("axis{axis}")));
        }
    }
}
