//! RFFT2D, IMAG, REAL, COMPLEX_ABS.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[
    (OpKind::ACCUMULATING_FUNCTION, &[Op::RFFT2D]),
    (OpKind::MOVED, &[Op::IMAG, Op::REAL]),
    (OpKind::FUNCTION, &[Op::COMPLEX_ABS]),
];

pub(super) fn cases(out: &mut Vec<Case>) {
    for op in [Op::IMAG, Op::REAL, Op::COMPLEX_ABS] {
        for ty in [Complex64, Complex128] {
            for shape in [&[][..], &[5], &[2, 3, 4]] {
                out.push(Case::new(op, Params::None, [x(ty, shape)]));
            }
        }
    }
    for (shape, lengths) in [
        (&[4, 4][..], [4, 4]),
        (&[1, 8], [1, 8]),
        (&[2, 4, 8], [4, 8]),
        (&[3, 5], [4, 8]),
        (&[6, 10], [4, 8]),
        (&[2, 2, 2, 2], [2, 2]),
    ] {
        out.push(Case::new(Op::RFFT2D, Params::None, [x(Float32, shape), list(&lengths)]));
    }
}
