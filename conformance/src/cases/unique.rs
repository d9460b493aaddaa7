//! UNIQUE.

use delegraph_core::ops::unique::UniqueParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::EXACT, &[Op::UNIQUE])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for idx_out_type in [Int32, Int64] {
        for ty in [Float32, Int8, UInt8, Int16, Int32, Int64] {
            let data = match ty {
                Float32 => given(&[9], &[1f32, 2.5, 1.0, -3.0, 2.5, 0.0, 1.0, 7.0, -3.0]),
                _ => x(ty, &[9]).range(0.0, 4.0),
            };
            let outputs = [Output::new(ty, &[1]), Output::of(idx_out_type)];
            let case = Case::new(Op::UNIQUE, UniqueParams::default().idx_out_type(idx_out_type), [data])
                .outputs(outputs);
            out.push(case.detail(idx_out_type.name().to_lowercase()));
        }
    }
}
