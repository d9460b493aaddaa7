//! L2_NORMALIZATION.

use delegraph_core::ops::l2_normalization::L2NormParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::ACCUMULATING_FUNCTION, &[Op::L2_NORMALIZATION])];

pub(super) fn cases(out: &mut Vec<Case>) {
    let params = || L2NormParams::default().fused_activation_function(Activation::None);
    for shape in [&[9][..], &[3, 7], &[2, 3, 4, 5]] {
        out.push(Case::new(Op::L2_NORMALIZATION, params(), [x(Float32, shape)]));
        let int8 = Case::new(Op::L2_NORMALIZATION, params(), [x(Int8, shape).q(0.05, -7)]);
        out.push(int8.q(1.0 / 128.0, 0));
        let uint8 = Case::new(Op::L2_NORMALIZATION, params(), [x(UInt8, shape).q(0.05, 121)]);
        out.push(uint8.q(1.0 / 128.0, 128));
    }
    out.push(Case::new(Op::L2_NORMALIZATION, params(), [given(&[2, 3], &[0f32; 6])]).detail("zero"));
}
