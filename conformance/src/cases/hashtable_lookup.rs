//! HASHTABLE_LOOKUP.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::HASHTABLE_LOOKUP])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for (ty, shape) in [
        (Float32, &[3, 2][..]),
        (Float32, &[3]),
        (Int32, &[3, 2]),
        (Int8, &[3, 4]),
        (UInt8, &[3, 4]),
        (Int16, &[3]),
        (Int64, &[3]),
    ] {
        let inputs = [list(&[1234, -292, -11, 0]), list(&[-11, 0, 1234]), x(ty, shape)];
        let outputs = [Output::of(ty), Output::of(UInt8)];
        out.push(Case::new(Op::HASHTABLE_LOOKUP, Params::None, inputs).outputs(outputs));
    }
    let inputs = [list(&[5, 7]), list(&[3, 7]), strings(&[2], &["three", "seven"])];
    let outputs = [Output::new(String, &[2]), Output::of(UInt8)];
    out.push(Case::new(Op::HASHTABLE_LOOKUP, Params::None, inputs).outputs(outputs));
    for ty in [Bool, Float16, Float64, Complex64, UInt16, UInt32, UInt64, BFloat16] {
        let inputs = [list(&[5, 7, 6]), list(&[3, 7]), x(ty, &[2, 3])];
        let outputs = [Output::of(ty), Output::of(UInt8)];
        out.push(Case::new(Op::HASHTABLE_LOOKUP, Params::None, inputs).outputs(outputs));
    }
}
