//! Types that the reference kernels support and no other case tests: a listed case of the op, in another type.

use std::collections::BTreeMap;

use super::super::prelude::*;

/// Op, index of its listed case, and the types. A test compares the table with the results of running all cases in all
/// types.
#[rustfmt::skip]
const TABLE: &[(Op, usize, &[TensorType])] = &[
    (Op::CONCATENATION, 0, &[Complex64, Float64, Complex128, UInt64, UInt16, Int2, UInt4, Float8E4M3FN,
        Float8E5M2]),
    (Op::DEPTH_TO_SPACE, 0, &[Float16, Bool, Int16, Complex64, Float64, Complex128, UInt64, UInt32, UInt16, Int4,
        BFloat16, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::DEQUANTIZE, 0, &[BFloat16, Float8E4M3FN, Float8E5M2]),
    (Op::EMBEDDING_LOOKUP, 0, &[Complex128, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::HASHTABLE_LOOKUP, 0, &[Complex128, Int4, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::LSH_PROJECTION, 0, &[Float16, Complex64, Complex128, UInt64, UInt32, UInt16, Int4, BFloat16, Int2, UInt4,
        Float8E4M3FN, Float8E5M2]),
    (Op::RESHAPE, 0, &[Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::SPACE_TO_DEPTH, 0, &[Float16, Bool, Int16, Complex64, Float64, Complex128, UInt64, UInt32, UInt16, Int4,
        BFloat16, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::PAD, 0, &[Complex64, Float64, Complex128, UInt64, UInt32, UInt16, Float8E4M3FN, Float8E5M2]),
    (Op::GATHER, 0, &[Complex64, Float64, Complex128, UInt64, UInt32, UInt16, Int2, UInt4, Float8E4M3FN,
        Float8E5M2]),
    (Op::BATCH_TO_SPACE_ND, 0, &[Complex128, Float8E4M3FN, Float8E5M2]),
    (Op::SPACE_TO_BATCH_ND, 0, &[Complex128, Float8E4M3FN, Float8E5M2]),
    (Op::TRANSPOSE, 0, &[Complex128, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::SQUEEZE, 0, &[Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::STRIDED_SLICE, 0, &[Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::SPLIT, 0, &[Float16, Bool, Complex64, Float64, Complex128, UInt64, UInt32, UInt16, Int4, BFloat16, Int2,
        UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::CAST, 0, &[Complex128, UInt64, Float8E4M3FN, Float8E5M2]),
    (Op::PADV2, 0, &[Complex64, Float64, Complex128, UInt64, UInt32, UInt16, Float8E4M3FN, Float8E5M2]),
    (Op::GREATER_EQUAL, 0, &[BFloat16]),
    (Op::LESS_EQUAL, 0, &[BFloat16]),
    (Op::SELECT, 0, &[Complex128, Float8E4M3FN, Float8E5M2]),
    (Op::SLICE, 0, &[Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::TILE, 0, &[Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::EXPAND_DIMS, 0, &[Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::SHAPE, 0, &[Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::PACK, 0, &[Bool, Complex64, Float64, Complex128, UInt64, UInt16, Int4, BFloat16, Int2, UInt4, Float8E4M3FN,
        Float8E5M2]),
    (Op::ONE_HOT, 0, &[Float16, Int16, Complex64, Float64, Complex128, UInt64, UInt32, UInt16, Int4, BFloat16, Int2,
        UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::UNPACK, 0, &[Int64, Complex64, Float64, Complex128, UInt64, UInt32, UInt16, Int4, Int2, UInt4,
        Float8E4M3FN, Float8E5M2]),
    (Op::FILL, 0, &[Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::RESIZE_NEAREST_NEIGHBOR, 0, &[Int64, Complex64, Float64, Complex128, UInt64, Float8E4M3FN, Float8E5M2]),
    (Op::MIRROR_PAD, 0, &[Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::SPLIT_V, 0, &[Float16, Bool, Complex64, Float64, Complex128, UInt64, UInt32, UInt16, Int4, BFloat16, Int2,
        UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::REVERSE_V2, 0, &[Complex64, Float64, Complex128, UInt64, UInt32, UInt16, Int4, Int2, UInt4, Float8E4M3FN,
        Float8E5M2]),
    (Op::GATHER_ND, 0, &[Complex64, Float64, Complex128, UInt64, UInt32, UInt16, Int4, Int2, UInt4, Float8E4M3FN,
        Float8E5M2]),
    (Op::RANK, 0, &[Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::REVERSE_SEQUENCE, 0, &[Float16, Bool, Complex64, Int8, Float64, Complex128, UInt64, UInt32, UInt16, Int4,
        BFloat16, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::MATRIX_DIAG, 0, &[Float16, Bool, Complex64, Float64, Complex128, UInt64, UInt16, Int4, BFloat16, Int2,
        UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::MATRIX_SET_DIAG, 0, &[Float16, Bool, Complex64, Float64, Complex128, UInt64, UInt16, Int4, BFloat16, Int2,
        UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::SELECT_V2, 0, &[Complex128, Float8E4M3FN, Float8E5M2]),
    (Op::BROADCAST_TO, 0, &[String, Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::RANDOM_STANDARD_NORMAL, 0, &[Float16, Int32, UInt8, Int64, String, Bool, Int16, Complex64, Int8, Float64,
        Complex128, UInt64, Resource, Variant, UInt32, UInt16, Int4, BFloat16, Int2, UInt4, Float8E4M3FN,
        Float8E5M2]),
    (Op::RANDOM_UNIFORM, 0, &[Float16, Int32, UInt8, Int64, String, Bool, Int16, Complex64, Int8, Float64,
        Complex128, UInt64, Resource, Variant, UInt32, UInt16, Int4, BFloat16, Int2, UInt4, Float8E4M3FN,
        Float8E5M2]),
    (Op::DYNAMIC_UPDATE_SLICE, 0, &[Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::BITCAST, 0, &[Complex128]),
    (Op::STABLEHLO_ADD, 0, &[BFloat16]),
    (Op::STABLEHLO_MULTIPLY, 0, &[BFloat16]),
    (Op::STABLEHLO_MAXIMUM, 0, &[BFloat16]),
    (Op::STABLEHLO_MINIMUM, 0, &[BFloat16]),
    (Op::STABLEHLO_SCATTER, 0, &[Bool, BFloat16]),
    (Op::STABLEHLO_PAD, 0, &[Complex128, Float8E4M3FN, Float8E5M2]),
    (Op::STABLEHLO_REDUCE_WINDOW, 0, &[Float16, UInt64, UInt32, UInt16, BFloat16]),
    (Op::STABLEHLO_GATHER, 0, &[Complex128, Int4, Int2, UInt4, Float8E4M3FN, Float8E5M2]),
    (Op::DILATE, 0, &[Complex128, Float8E4M3FN, Float8E5M2]),
    (Op::REDUCE_WINDOW, 0, &[Float16, UInt64, UInt32, UInt16, BFloat16]),
    (Op::STABLEHLO_SHIFT_LEFT, 0, &[UInt8, Int64, UInt64, UInt32, UInt16]),
];

pub(super) fn cases(listed: &[Case], out: &mut Vec<Case>) {
    let mut by_op = BTreeMap::<i32, Vec<&Case>>::new();
    for case in listed {
        by_op.entry(case.op.0).or_default().push(case);
    }
    for &(op, index, types) in TABLE {
        let Some(case) = by_op.get(&op.0).and_then(|cases| cases.get(index)) else { continue };
        for case in types.iter().filter_map(|&ty| case.retyped(ty)) {
            out.push(case.seeded(31));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use delegraph_interpreter::{BuiltinOpResolver, ReferenceOpResolver};

    use super::super::super::suite;
    use super::*;

    /// Every type in which the reference and the optimized kernels run a retyped listed case has a case.
    #[test]
    fn the_table_lists_the_missing_types() {
        let of = |case: &Case| case.data_type().map(|ty| (case.op.0, ty));
        let shown: BTreeSet<_> = suite(0).iter().filter_map(of).collect();
        let mut by_op = BTreeMap::<i32, Vec<Case>>::new();
        for case in super::super::super::all() {
            by_op.entry(case.op.0).or_default().push(case);
        }
        let mut missing = BTreeMap::<(i32, usize), Vec<TensorType>>::new();
        for (&op, cases) in &by_op {
            for ty in TensorType::ALL.iter().copied().filter(|&ty| !shown.contains(&(op, ty))) {
                let mut tried = BTreeSet::new();
                let runs = |case: &Case| {
                    let Some(case) = case.retyped(ty).filter(|c| tried.insert(c.operand_types())) else {
                        return false;
                    };
                    let run = |model| case.run(model, ReferenceOpResolver::new()).is_ok();
                    case.build().is_ok_and(run)
                        && case.build().is_ok_and(|m| case.run(m, BuiltinOpResolver::new()).is_ok())
                };
                if let Some(index) = cases.iter().position(runs) {
                    missing.entry((op, index)).or_default().push(ty);
                }
            }
        }
        let line = |((op, index), types): (&(i32, usize), &Vec<TensorType>)| {
            let name = Op(*op).variant_name().unwrap_or("?");
            format!("    (Op::{name}, {index}, &{types:?}),\n")
        };
        assert!(
            missing.is_empty(),
            "the table lacks\n{}",
            missing.iter().map(line).collect::<Vec<_>>().concat()
        );
    }
}
