//! PACK, UNPACK.

use delegraph_core::ops::pack::{PackParams, UnpackParams};

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::PACK, Op::UNPACK])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, UInt8, Int16, Int32, Int64, UInt32] {
        for (axis, count) in [(0, 2usize), (1, 3), (-1, 1)] {
            let inputs = vec![x(ty, &[2, 4]).auto(); count];
            let params = PackParams::default().axis(axis).values_count(count as i32);
            out.push(Case::new(Op::PACK, params, inputs).auto(ty).detail(format!("axis{axis}")));
        }
    }
    for ty in [Float32, Int8, UInt8, Int16, Int32, Float16, BFloat16, Bool] {
        for (axis, count) in [(0, 2usize), (1, 3), (-1, 4)] {
            let params = UnpackParams::default().axis(axis).num(count as i32);
            let case = Case::new(Op::UNPACK, params, [x(ty, &[2, 3, 4]).auto()]);
            out.push(case.outputs(vec![Output::default(); count]).auto(ty).detail(format!("axis{axis}")));
        }
    }
}
