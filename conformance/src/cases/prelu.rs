//! PRELU.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::ROUNDED, &[Op::PRELU])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for (shape, alpha) in
        [(&[1, 2, 2, 3][..], &[1, 1, 3][..]), (&[2, 3], &[3]), (&[2, 3], &[2, 3]), (&[4, 1, 5], &[1])]
    {
        for constant in [false, true] {
            let weights = |ty: TensorType| {
                let alpha = x(ty, alpha);
                if constant { alpha.constant() } else { alpha }
            };
            let float = Case::new(Op::PRELU, Params::None, [x(Float32, shape), weights(Float32)]);
            let int8 = [x(Int8, shape).q(0.05, -3), weights(Int8).q(0.01, 4)];
            let uint8 = [x(UInt8, shape).q(0.05, 125), weights(UInt8).q(0.01, 132)];
            out.push(float);
            out.push(Case::new(Op::PRELU, Params::None, int8).q(0.06, 5));
            out.push(Case::new(Op::PRELU, Params::None, uint8).q(0.06, 133));
            let int16 = [x(Int16, shape).q(0.0005, 0), weights(Int8).q(0.01, 0)];
            out.push(Case::new(Op::PRELU, Params::None, int16).q(0.0006, 0));
        }
    }
}
