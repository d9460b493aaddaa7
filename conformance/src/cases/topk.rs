//! TOPK_V2.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::EXACT, &[Op::TOPK_V2])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, UInt8, Int16, Int32, Int64] {
        for (shape, k) in [(&[9][..], 3), (&[2, 7], 7), (&[2, 2, 5], 1)] {
            for index in [Int32, Int16] {
                let inputs = [x(ty, shape), known(&[], &[k])];
                let outputs = [Output::of(ty), Output::of(index)];
                out.push(
                    Case::new(Op::TOPK_V2, Params::None, inputs)
                        .outputs(outputs)
                        .detail(index.name().to_lowercase()),
                );
            }
        }
    }
    let outputs = [Output::of(Float32), Output::of(Int32)];
    let inputs = [given(&[6], &[1f32, 3.0, 3.0, 2.0, 3.0, 1.0]), known(&[], &[4i16])];
    out.push(Case::new(Op::TOPK_V2, Params::None, inputs).outputs(outputs).detail("ties_int16"));
}
