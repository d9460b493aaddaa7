//! SEGMENT_SUM, UNSORTED_SEGMENT_PROD, UNSORTED_SEGMENT_MAX, UNSORTED_SEGMENT_SUM, UNSORTED_SEGMENT_MIN.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds =
    &[(OpKind::EXACT, &[Op::UNSORTED_SEGMENT_MAX, Op::UNSORTED_SEGMENT_MIN])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int32] {
        for shape in [&[5][..], &[5, 3]] {
            let inputs = [x(ty, shape), list(&[0, 0, 1, 2, 2])];
            out.push(Case::new(Op::SEGMENT_SUM, Params::None, inputs));
        }
        for op in [
            Op::UNSORTED_SEGMENT_PROD,
            Op::UNSORTED_SEGMENT_MAX,
            Op::UNSORTED_SEGMENT_SUM,
            Op::UNSORTED_SEGMENT_MIN,
        ] {
            for (shape, ids, count) in [
                (&[5][..], list(&[2, 0, -1, 0, 2]), 4),
                (&[5, 3], list(&[1, 1, 0, 1, 0]), 2),
                (&[2, 2, 2], known(&[2, 2], &[0i32, 1, 1, 1]), 3),
            ] {
                let inputs = [x(ty, shape), ids, list(&[count])];
                out.push(Case::new(op, Params::None, inputs));
            }
        }
    }
}
