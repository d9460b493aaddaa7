//! MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL.

use delegraph_core::ops::reduce::ReducerParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds =
    &[(OpKind::EXACT, &[Op::REDUCE_MAX, Op::REDUCE_MIN, Op::REDUCE_ANY, Op::REDUCE_ALL])];

pub(super) fn cases(out: &mut Vec<Case>) {
    let axes: &[(&[usize], &[i32])] = &[
        (&[11], &[0]),
        (&[3, 5], &[1]),
        (&[2, 3, 4], &[0, 2]),
        (&[2, 3, 4], &[-2]),
        (&[2, 3, 4, 5], &[1, 2]),
        (&[2, 3], &[0, 1]),
    ];
    let table: &[(Op, &[TensorType])] = &[
        (Op::MEAN, &[Float32, Int8, UInt8, Int16, Int32, Int64]),
        (Op::SUM, &[Float32, Int8, UInt8, Int16, Int32, Int64]),
        (Op::REDUCE_MAX, &[Float32, Int8, UInt8, Int16, Int32, Int64]),
        (Op::REDUCE_MIN, &[Float32, Int8, UInt8, Int16, Int32, Int64]),
        (Op::REDUCE_PROD, &[Float32, Int8, Int16, Int32, Int64]),
        (Op::REDUCE_ANY, &[Bool]),
        (Op::REDUCE_ALL, &[Bool]),
    ];
    for &(op, types) in table {
        for &ty in types {
            for (i, &(shape, axes)) in axes.iter().enumerate() {
                let keep_dims = i % 2 == 1;
                let data = match (op, quantum(ty)) {
                    (Op::REDUCE_PROD, Some(_)) => x(ty, shape).range(-100.0, 100.0).q(0.02, 0),
                    _ => x(ty, shape).auto(),
                };
                let inputs = [data, known(&[axes.len()], axes)];
                let case = Case::new(op, ReducerParams::default().keep_dims(keep_dims), inputs)
                    .auto(ty)
                    .detail(format!("shapes{i}"));
                // Sums, means and products are rescaled.
                let other = matches!(op, Op::MEAN | Op::SUM | Op::REDUCE_PROD);
                let rescaled = match (quantum(ty), other) {
                    (Some((scale, zero)), true) => Some(
                        case.clone()
                            .q(scale * 1.7, if ty == Int16 { 0 } else { zero + 5 })
                            .detail(format!("rescaled{i}")),
                    ),
                    _ => None,
                };
                if op != Op::REDUCE_PROD || quantum(ty).is_none() {
                    out.push(case);
                }
                out.extend(rescaled);
            }
        }
    }
    // Unsigned 8-bit data is supported only without a scale.
    let plain = [x(UInt8, &[3, 5]).range(0.0, 4.0), list(&[1])];
    out.push(Case::new(Op::REDUCE_PROD, ReducerParams::default().keep_dims(false), plain));
}
