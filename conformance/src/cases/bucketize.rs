//! BUCKETIZE.

use delegraph_core::ops::bucketize::BucketizeParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::EXACT, &[Op::BUCKETIZE])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Float64, Int32, Int64] {
        for boundaries in [vec![0.0], vec![-2.0, 0.0, 1.5], vec![-3.0, -1.0, 0.0, 0.0, 2.0, 3.5]] {
            let params = BucketizeParams::default().boundaries(boundaries);
            out.push(Case::new(Op::BUCKETIZE, params, [x(ty, &[2, 3, 4])]).outputs([Output::of(Int32)]));
        }
    }
}
