//! EMBEDDING_LOOKUP, EMBEDDING_LOOKUP_SPARSE.

use delegraph_core::ops::CombinerType;
use delegraph_core::ops::embedding_lookup::EmbeddingLookupSparseParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::ROUNDED, &[Op::EMBEDDING_LOOKUP])];

pub(super) fn cases(out: &mut Vec<Case>) {
    // In LiteRT, rows of 2-bit elements begin at whole bytes, as these rows do in any case.
    for shape in [&[4, 8][..], &[3, 2, 4]] {
        let ids = || list(&[2, 0, 1, 2]);
        out.push(
            Case::new(Op::EMBEDDING_LOOKUP, Params::None, [ids(), x(Float32, shape).constant()])
                .outputs_of(Float32),
        );
        for ty in [Int8, UInt8, Int4, Int2] {
            let table = x(ty, shape).constant().q(0.05, 0);
            let case = Case::new(Op::EMBEDDING_LOOKUP, Params::None, [ids(), table.clone()]);
            out.push(case.outputs_of(Float32).detail("to_float32"));
            if matches!(ty, Int8 | UInt8) {
                let case = Case::new(Op::EMBEDDING_LOOKUP, Params::None, [ids(), table]);
                out.push(case.outputs_of(ty).q(0.05, 0).outputs_of(ty));
            }
            if matches!(ty, Int8 | Int4 | Int2) {
                let table = x(ty, shape).constant().channels(0.05, 0);
                let case = Case::new(Op::EMBEDDING_LOOKUP, Params::None, [ids(), table]);
                out.push(case.outputs_of(Float32).detail("channels"));
            }
        }
    }
    for ty in [Float16, Int16, Int32, Int64, Bool, Float64, Complex64, UInt16, UInt32, UInt64, BFloat16] {
        let case =
            Case::new(Op::EMBEDDING_LOOKUP, Params::None, [list(&[2, 0, 1]), x(ty, &[3, 4]).constant()]);
        out.push(case.outputs_of(ty));
    }
    for combiner in [CombinerType::Sum, CombinerType::Mean, CombinerType::SqrtN] {
        let inputs = [
            list(&[1, 3, 0]),
            known(&[3, 2], &[0i32, 0, 2, 0, 2, 1]),
            list(&[3, 2]),
            known(&[3], &[1.0f32, 2.0, 4.0]),
            x(Float32, &[4, 3, 2]),
        ];
        let case = Case::new(
            Op::EMBEDDING_LOOKUP_SPARSE,
            EmbeddingLookupSparseParams::default().combiner(combiner),
            inputs,
        );
        out.push(
            case.outputs([Output::new(Float32, &[3, 3, 2])]).detail(format!("{combiner:?}").to_lowercase()),
        );
    }
}
