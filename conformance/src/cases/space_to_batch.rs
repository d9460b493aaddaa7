//! SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::SPACE_TO_BATCH_ND, Op::BATCH_TO_SPACE_ND])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [
        Bool, Float32, Int8, UInt8, Int16, Int32, Int64, Float16, BFloat16, Float64, Complex64, UInt16,
        UInt32, UInt64,
    ] {
        for (shape, block, pads) in [
            (&[1, 4, 4, 2][..], &[2, 2][..], &[0, 0, 0, 0][..]),
            (&[2, 3, 5, 1], &[2, 3], &[1, 0, 0, 1]),
            (&[2, 5, 3], &[3], &[1, 0]),
        ] {
            let inputs = [x(ty, shape).auto(), list(block), known(&[block.len(), 2], pads)];
            let case = Case::new(Op::SPACE_TO_BATCH_ND, Params::None, inputs).auto(ty);
            out.push(case.detail(format!("rank{}", shape.len())));
        }
        for (shape, block, crops) in [
            (&[4, 2, 2, 3][..], &[2, 2][..], &[0, 0, 0, 0][..]),
            (&[12, 2, 3, 1], &[2, 3], &[1, 0, 1, 2]),
            (&[6, 3, 2], &[3], &[0, 1]),
        ] {
            let inputs = [x(ty, shape).auto(), list(block), known(&[block.len(), 2], crops)];
            let case = Case::new(Op::BATCH_TO_SPACE_ND, Params::None, inputs).auto(ty);
            out.push(case.detail(format!("rank{}", shape.len())));
        }
    }
}
