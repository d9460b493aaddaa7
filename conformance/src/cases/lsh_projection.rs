//! LSH_PROJECTION.

use delegraph_core::ops::LshProjectionType;
use delegraph_core::ops::lsh_projection::LshProjectionParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::EXACT, &[Op::LSH_PROJECTION])];

pub(super) fn cases(out: &mut Vec<Case>) {
    let hashes = known(&[3, 2], &[0.123f32, 0.456, -0.321, 1.234, 5.678, -4.321]);
    for type_ in [LshProjectionType::Sparse, LshProjectionType::Dense] {
        for (ty, shape) in [
            (Int32, &[5][..]),
            (Int64, &[5]),
            (Int32, &[3, 2]),
            (Float32, &[4, 3]),
            (Int8, &[5]),
            (UInt8, &[3, 3]),
            (Int16, &[4]),
            (Bool, &[6]),
            (Float64, &[3]),
        ] {
            let items = match ty {
                Int32 | Int64 | Float32 | Float64 => x(ty, shape).range(-99_999.0, 99_999.0),
                _ => x(ty, shape),
            };
            let weights = x(Float32, &shape[..1]).range(0.1, 2.0);
            let detail = format!("{type_:?}").to_lowercase();
            let weighted = [hashes.clone(), items.clone(), weights];
            let params = LshProjectionParams::default().type_(type_);
            let case = Case::new(Op::LSH_PROJECTION, params.clone(), weighted).outputs_of(Int32);
            out.push(case.of(ty).detail(format!("{detail}_weighted")));
            let case = Case::new(Op::LSH_PROJECTION, params, [hashes.clone(), items]).outputs_of(Int32);
            out.push(case.of(ty).detail(detail));
        }
    }
}
