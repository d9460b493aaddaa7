//! MATRIX_DIAG, MATRIX_SET_DIAG.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::MATRIX_DIAG, Op::MATRIX_SET_DIAG])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, UInt8, Int16, Int32, Int64, UInt32] {
        for shape in [&[3][..], &[2, 4], &[2, 1, 3]] {
            out.push(Case::new(Op::MATRIX_DIAG, Params::None, [x(ty, shape).auto()]).auto(ty));
        }
        for (shape, diagonal) in [(&[3, 3][..], &[3][..]), (&[2, 3, 4], &[2, 3]), (&[2, 4, 3], &[2, 3])] {
            let inputs = [x(ty, shape).auto(), x(ty, diagonal).auto()];
            out.push(Case::new(Op::MATRIX_SET_DIAG, Params::None, inputs).auto(ty));
        }
    }
}
