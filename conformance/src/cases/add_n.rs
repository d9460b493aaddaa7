//! ADD_N.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int32] {
        for count in [2, 3, 5] {
            for shape in [&[7][..], &[2, 3, 4]] {
                let inputs = vec![x(ty, shape); count];
                out.push(Case::new(Op::ADD_N, Params::None, inputs).detail(format!("of{count}")));
            }
        }
    }
}
