//! LOCAL_RESPONSE_NORMALIZATION.

use delegraph_core::ops::local_response_normalization::LocalResponseNormalizationParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::ACCUMULATING_FUNCTION, &[Op::LOCAL_RESPONSE_NORMALIZATION])];

pub(super) fn cases(out: &mut Vec<Case>) {
    // The last forms compute powers of negative sums.
    let forms = [
        (20, 0.0, 1.0, 0.5),
        (2, 1.0, 0.25, 0.75),
        (0, 9.0, 4.0, 1.0),
        (2, -1.0, -0.5, 2.0),
        (1, -2.0, -1.0, 1.0),
    ];
    for (radius, bias, alpha, beta) in forms {
        let params =
            LocalResponseNormalizationParams::default().radius(radius).bias(bias).alpha(alpha).beta(beta);
        out.push(Case::new(Op::LOCAL_RESPONSE_NORMALIZATION, params, [x(Float32, &[2, 3, 2, 7])]));
    }
}
