//! DYNAMIC_UPDATE_SLICE.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::DYNAMIC_UPDATE_SLICE])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [
        UInt8, Float32, Float16, BFloat16, Int8, Int16, Int32, Int64, Bool, Float64, Complex64, UInt16,
        UInt32, UInt64,
    ] {
        for at in [[0, 0], [1, 2], [9, -3]] {
            let inputs = [x(ty, &[4, 5]), x(ty, &[2, 3]), list(&at)];
            out.push(Case::new(Op::DYNAMIC_UPDATE_SLICE, Params::None, inputs).detail("at"));
        }
    }
    let inputs = [x(Float32, &[2, 4, 5]), x(Float32, &[1, 2, 3]), known(&[3], &[1i64, 1, 2])];
    out.push(Case::new(Op::DYNAMIC_UPDATE_SLICE, Params::None, inputs).detail("int64_indices"));
}
