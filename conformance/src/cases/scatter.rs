//! SCATTER_ND.

use super::prelude::*;

fn some(ty: TensorType, shape: &[usize]) -> Operand {
    x(ty, shape).range(0.0, if ty == Bool { 1.0 } else { 9.0 })
}

pub(super) const OP_KINDS: OpKinds = &[];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, UInt8, Int32, Int64, Bool] {
        let one = [known(&[4, 1], &[4i32, 3, 1, 7]), some(ty, &[4]), list(&[8])];
        out.push(Case::new(Op::SCATTER_ND, Params::None, one).outputs([Output::of(ty)]));
        let slices = [known(&[2, 1], &[0i32, 2]), some(ty, &[2, 3, 2]), list(&[4, 3, 2])];
        out.push(Case::new(Op::SCATTER_ND, Params::None, slices).outputs([Output::of(ty)]));
        // Values with the same index are added.
        let again = [known(&[3, 2], &[1i32, 1, 0, 2, 1, 1]), some(ty, &[3]), list(&[2, 3])];
        out.push(Case::new(Op::SCATTER_ND, Params::None, again).outputs([Output::of(ty)]).detail("again"));
    }
}
