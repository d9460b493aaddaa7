//! SHAPE, RANK.

use delegraph_core::ops::shape::ShapeParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::SHAPE, Op::RANK])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [
        Float32, Int8, UInt8, Int16, Int32, Int64, Bool, Float16, BFloat16, Float64, Complex64, UInt16,
        UInt32, UInt64,
    ] {
        for shape in [&[][..], &[3], &[2, 1, 5]] {
            for out_type in [Int32, Int64] {
                out.push(Case::new(Op::SHAPE, ShapeParams::default().out_type(out_type), [x(ty, shape)]));
            }
            out.push(Case::new(Op::RANK, Params::None, [x(ty, shape)]));
        }
    }
    let words = || strings(&[2, 1], &["a", "bc"]);
    out.push(Case::new(Op::SHAPE, ShapeParams::default().out_type(Int32), [words()]));
    out.push(Case::new(Op::RANK, Params::None, [words()]));
}
