//! DILATE.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::DILATE])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [
        Bool, Float32, Float64, Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64, Float16, BFloat16,
        Complex64,
    ] {
        for (shape, steps) in [(&[4][..], &[2][..]), (&[2, 3], &[3, 1]), (&[2, 2, 2], &[1, 2, 3])] {
            let inputs = [x(ty, shape), list(steps), x(ty, &[]).range(1.0, 1.0)];
            out.push(Case::new(Op::DILATE, Params::None, inputs));
        }
    }
}
