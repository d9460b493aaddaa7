//! CAST, BITCAST.

use delegraph_core::ops::cast::CastParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::EXACT, &[Op::CAST]), (OpKind::MOVED, &[Op::BITCAST])];

pub(super) fn cases(out: &mut Vec<Case>) {
    let types = [
        Float32, Float64, Float16, BFloat16, Int64, Int32, Int16, Int8, UInt32, UInt16, UInt8, Bool,
        Complex64,
    ];
    for from in types {
        for to in types {
            let params = CastParams::default().in_data_type(from).out_data_type(to);
            let data = match (from, to) {
                // Casts of values that are out of range are not defined.
                (Float32 | Float64 | Float16 | BFloat16 | Complex64, UInt8 | UInt16 | UInt32) => {
                    x(from, &[3, 7]).range(0.0, 200.0)
                }
                (Float32 | Float64 | Float16 | BFloat16 | Complex64, _) => {
                    x(from, &[3, 7]).range(-100.0, 100.0)
                }
                (Int64 | Int32, _) => x(from, &[3, 7]).range(-100_000.0, 100_000.0),
                (UInt32 | UInt16, _) => x(from, &[3, 7]).range(0.0, 65_535.0),
                _ => x(from, &[3, 7]),
            };
            let case = Case::new(Op::CAST, params, [data]).outputs([Output::of(to)]);
            out.push(case.detail(format!("to_{}", to.name().to_lowercase())));
        }
    }
    for from in [Int4, Int2, UInt4] {
        let params = CastParams::default().in_data_type(from).out_data_type(Float32);
        let case =
            Case::new(Op::CAST, params.clone(), [x(from, &[3, 7]).constant()]).outputs([Output::of(Float32)]);
        out.push(case.detail("to_float32"));
        let given = Case::new(Op::CAST, params, [x(from, &[3, 7])]).outputs([Output::of(Float32)]);
        out.push(given.detail("to_float32_given"));
        let params = CastParams::default().in_data_type(Float32).out_data_type(from);
        let data = x(Float32, &[3, 7]).range(-2.0, 2.0);
        let case = Case::new(Op::CAST, params, [data]).outputs([Output::of(from)]);
        out.push(case.detail(format!("to_{}", from.name().to_lowercase())));
    }
    for (from, to, shape) in [
        (Float32, Int32, &[2, 5][..]),
        (Int32, Float32, &[2, 5]),
        (UInt8, Int8, &[7]),
        (Float32, UInt8, &[2, 3]),
        (Int16, Int8, &[3, 2]),
        (UInt8, Int32, &[3, 4]),
        (Int64, Float32, &[3]),
        (Int8, Int16, &[5, 2]),
        (Float64, Int64, &[4]),
        (UInt32, UInt16, &[2]),
        (UInt64, Float64, &[3]),
        (Complex64, Int64, &[2, 2]),
        (UInt16, Int16, &[5]),
    ] {
        let case = Case::new(Op::BITCAST, Params::None, [x(from, shape)]).outputs([Output::of(to)]);
        out.push(case.detail(format!("to_{}", to.name().to_lowercase())));
    }
}
