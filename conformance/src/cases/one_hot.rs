//! ONE_HOT.

use delegraph_core::ops::one_hot::OneHotParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::ONE_HOT])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, UInt8, Int32, Int64, Bool] {
        for (axis, shape, index) in [(-1, &[5][..], Int32), (0, &[2, 3], Int32), (1, &[2, 3], Int64)] {
            let indices = x(index, shape).range(-1.0, 4.0);
            let inputs =
                [indices, known(&[], &[4i32]), x(ty, &[]).range(1.0, 1.0), x(ty, &[]).range(0.0, 0.0)];
            let case = Case::new(Op::ONE_HOT, OneHotParams::default().axis(axis), inputs)
                .outputs([Output::of(ty)])
                .of(ty);
            out.push(case.detail(format!("axis{axis}")));
        }
    }
}
