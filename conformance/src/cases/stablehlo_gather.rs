//! STABLEHLO_GATHER, STABLEHLO_SCATTER.

use delegraph_core::ops::stablehlo_gather::{StablehloGatherParams, StablehloScatterParams};

use super::prelude::*;
use super::reduce_window::body;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::STABLEHLO_GATHER])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [
        Float32, Int8, UInt8, Int16, Int32, Int64, Bool, Float16, BFloat16, Float64, Complex64, UInt16,
        UInt32, UInt64,
    ] {
        for index in [Int32, Int64] {
            let params = StablehloGatherParams::default()
                .offset_dims(vec![2, 3])
                .collapsed_slice_dims(vec![0])
                .start_index_map(vec![1, 0])
                .index_vector_dim(2)
                .slice_sizes(vec![1, 2, 2])
                .indices_are_sorted(false);
            let inputs = [x(ty, &[3, 4, 2]), x(index, &[2, 3, 2]).range(0.0, 2.0)];
            out.push(Case::new(Op::STABLEHLO_GATHER, params, inputs).detail(index.name().to_lowercase()));
        }
    }
    for op in [Op::STABLEHLO_ADD, Op::STABLEHLO_MULTIPLY, Op::STABLEHLO_MAXIMUM, Op::STABLEHLO_MINIMUM] {
        for ty in [Float32, Int32, Int64, Int8, Int16, Float16, Float64, UInt8, UInt16, UInt32, UInt64] {
            let params = StablehloScatterParams::default()
                .indices_are_sorted(false)
                .update_window_dims(vec![2, 3])
                .inserted_window_dims(vec![0])
                .scatter_dims_to_operand_dims(vec![1, 0])
                .index_vector_dim(2)
                .unique_indices(false)
                .update_computation_subgraph_index(1);
            let indices = known(&[2, 3, 2], &[0i64, 2, 1, 0, 2, 1, 0, 1, 1, 0, 0, 9]);
            let inputs = [x(ty, &[3, 4, 2]).range(-4.0, 4.0), indices, x(ty, &[2, 3, 2, 2]).range(-4.0, 4.0)];
            let case = Case::new(Op::STABLEHLO_SCATTER, params, inputs).calls([body(op, ty)]);
            out.push(case.detail(op.variant_name().unwrap_or_default().to_lowercase()));
        }
    }
}
