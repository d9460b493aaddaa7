//! SELECT, SELECT_V2.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::SELECT, Op::SELECT_V2])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [
        Float32, Int8, UInt8, Int16, Int32, Int64, UInt32, Bool, Float16, BFloat16, Float64, Complex64,
        UInt16, UInt64,
    ] {
        for condition in [&[3, 2, 2][..], &[3], &[]] {
            let inputs = [x(Bool, condition), x(ty, &[3, 2, 2]).auto(), x(ty, &[3, 2, 2]).auto()];
            let case = Case::new(Op::SELECT, Params::None, inputs).auto(ty).outputs_of(ty);
            out.push(case.detail(format!("rank{}", condition.len())));
        }
        for (c, a, b) in [
            (&[3, 4][..], &[3, 4][..], &[3, 4][..]),
            (&[4], &[3, 1], &[]),
            (&[2, 1, 1], &[1, 3, 1], &[4]),
            (&[2, 1, 1, 2, 1], &[1, 2, 1, 1, 2], &[1, 1, 3, 1, 1]),
        ] {
            let inputs = [x(Bool, c), x(ty, a).auto(), x(ty, b).auto()];
            let case = Case::new(Op::SELECT_V2, Params::None, inputs).auto(ty).outputs_of(ty);
            out.push(case.detail(format!("rank{}", c.len())));
        }
    }
    let shape = [1, 2, 1, 2, 2];
    out.push(
        Case::new(Op::SELECT, Params::None, [x(Bool, &shape), x(Float32, &shape), x(Float32, &shape)])
            .detail("rank5"),
    );
}
