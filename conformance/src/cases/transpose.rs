//! TRANSPOSE.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::TRANSPOSE])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [
        Float32, Float16, BFloat16, Int8, UInt8, Int16, Int32, Int64, Bool, Float64, Complex64, UInt16,
        UInt32, UInt64,
    ] {
        for (shape, order) in [
            (&[5][..], &[0][..]),
            (&[3, 4], &[1, 0]),
            (&[2, 3, 4], &[2, 0, 1]),
            (&[2, 3, 1, 4], &[0, 3, 1, 2]),
            (&[2, 1, 3, 2, 2], &[4, 1, 0, 3, 2]),
            (&[2, 1, 3, 1, 2, 2], &[5, 4, 1, 0, 3, 2]),
        ] {
            let case = Case::new(Op::TRANSPOSE, Params::None, [x(ty, shape).auto(), list(order)]).auto(ty);
            out.push(case.detail(format!("rank{}", shape.len())));
        }
    }
    let packed = x(Int4, &[3, 4]).constant().q(0.5, 0);
    out.push(Case::new(Op::TRANSPOSE, Params::None, [packed, list(&[1, 0])]).q(0.5, 0));
    let given = [x(Int4, &[3, 4]).q(0.5, 0), list(&[1, 0])];
    out.push(Case::new(Op::TRANSPOSE, Params::None, given).q(0.5, 0).detail("given"));
    let seven = [x(Float32, &[2, 1, 2, 1, 2, 1, 3]), list(&[6, 4, 5, 1, 0, 3, 2])];
    out.push(Case::new(Op::TRANSPOSE, Params::None, seven).detail("rank7"));
}
