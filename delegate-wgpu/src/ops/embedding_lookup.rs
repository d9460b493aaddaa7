//! EMBEDDING_LOOKUP.

use delegraph_core::TensorType::{
    BFloat16, Bool, Float16, Float32, Int2, Int4, Int8, Int16, Int32, UInt8, UInt16, UInt32,
};
use delegraph_core::error::counted;
use delegraph_core::{BuiltinOp, Quantization, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::check::Condition;
use delegraph_shaders::embedding_lookup::Spec as Packed;
use delegraph_shaders::gather::Spec;

use super::{GpuOp, count_of, mixed_types};
use crate::graph::lowering::{Lowering, unsupported};
use crate::graph::{Element, Fault, ValueId};

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(
    BuiltinOp::EMBEDDING_LOOKUP,
    5,
    &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, UInt32, UInt16, Int4, BFloat16, Int2],
    lower,
)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    use TensorType::{Float16, Float32, Int2, Int4, Int8, UInt8};
    cx.expect(0, TensorType::Int32)?;
    let to = cx.node().output(0).map(|tensor| tensor.ty());
    if cx.ty(1) != to {
        return match (cx.ty(1), to) {
            (Some(Int8 | UInt8), Some(Float32 | Float16)) => packed(cx, 8),
            (Some(Int4), Some(Float32 | Float16)) => packed(cx, 4),
            (Some(Int2), Some(Float32 | Float16)) => packed(cx, 2),
            (Some(Int4 | Int2), _) => Err(cx.wrong_type(1)),
            _ => Err(mixed_types(cx)),
        };
    }
    let (ids, table, output) = (cx.any_input(0)?, cx.any_input(1)?, cx.output(0)?);
    let (input, indices) = (cx.shape(table), cx.shape(ids));
    check_ids(cx, ids, input.first().copied().unwrap_or(0))?;
    cx.push(Spec { input, indices, axis: 0, batch_dims: 0 }, &[table, ids], output)
}

/// Checks that ids are within a table: constants here, others in each run.
fn check_ids(cx: &mut Lowering<'_, '_, '_>, ids: ValueId, rows: u32) -> Result<(), Rejection> {
    if !cx.is_constant(0) {
        let last = i32::try_from(rows.saturating_sub(1)).unwrap_or(i32::MAX);
        return cx.check(ids, Condition::Within(vec![[0, last]]), Fault::Row { rows });
    }
    match cx.integers(0)?.iter().find(|id| !(0..i64::from(rows)).contains(*id)) {
        None => Ok(()),
        Some(id) => Err(unsupported(format!(
            "constant id {id} of a table of {}; only ids within it are supported",
            counted(rows, "row")
        ))),
    }
}

/// Floats from a table of integers, which stays packed on the device.
fn packed(cx: &mut Lowering<'_, '_, '_>, bits: u32) -> Result<(), Rejection> {
    let shape = cx.input_shape(1)?;
    let rows = shape.first().copied().unwrap_or(0);
    let columns = shape.iter().skip(1).product();
    if cx.node().input(1).is_some_and(|table| table.tensor().sparsity.is_some()) {
        return Err(unsupported("a sparse table; only dense tables are supported"));
    }
    let affine = match cx.quantization(1) {
        Some(Quantization::Affine(affine)) if !affine.scales.is_empty() => affine,
        _ => {
            return Err(unsupported(
                "a table with neither a scale per tensor nor one per row; \
                only tables with one of these are supported",
            ));
        }
    };
    let scale_per_row = affine.scales.len() > 1;
    if scale_per_row && (affine.dimension != 0 || affine.scales.len() != rows as usize) {
        return Err(unsupported(format!(
            "{} scales along dimension {} of a table of {}; \
            only one per tensor or per row is supported",
            affine.scales.len(),
            affine.dimension,
            counted(rows, "row")
        )));
    }
    if !affine.zero_points.are_zero() {
        return Err(unsupported("a table with nonzero zero points; only zero points of 0 are supported"));
    }
    let mut bytes = cx.dense_bytes(1)?.into_owned();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let words = count_of("words of a table", bytes.len() / 4)?;
    cx.check_size(&[words])?;
    let (ids, output) = (cx.any_input(0)?, cx.output(0)?);
    check_ids(cx, ids, rows)?;
    let table = cx.new_constant(&[words], Element::U32, &bytes);
    let scales = cx.new_constant(&[if scale_per_row { rows } else { 1 }], Element::F32, &affine.scales);
    let ids_count = cx.shape(ids).iter().product();
    let spec = Packed { bits, rows, columns, ids: ids_count, scale_per_row };
    cx.push(spec, &[table, ids, scales], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn rows_of_a_table() {
        let inputs = [
            Some(T::new(&[3], &[2_i32, 0, 2])),
            Some(T::new(&[3, 2], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).constant()),
        ];
        let expected = T::new(&[3, 2], &[5.0_f32, 6.0, 1.0, 2.0, 5.0, 6.0]);
        check(BuiltinOp::EMBEDDING_LOOKUP, 1, Params::None, &inputs, &[expected]);
    }

    #[test]
    fn rows_of_packed_integers() {
        let ids = || Some(T::new(&[3], &[2_i32, 0, 2]));
        let run = |table: T, expected: &[f32]| {
            let inputs = [ids(), Some(table.constant())];
            check(BuiltinOp::EMBEDDING_LOOKUP, 4, Params::None, &inputs, &[T::new(&[3, 3], expected)]);
        };
        // 1, -2, 3; 7, -8, 0; -1, 5, -4.
        let nibbles = || T::packed(TensorType::Int4, &[3, 3], &[0xe1, 0x73, 0x08, 0x5f, 0x0c]);
        run(nibbles().quantized(0.5, 0), &[-0.5, 2.5, -2.0, 0.5, -1.0, 1.5, -0.5, 2.5, -2.0]);
        let rows = nibbles().quantized_along(&[1.0, 10.0, 100.0], 0);
        run(rows, &[-100.0, 500.0, -400.0, 1.0, -2.0, 3.0, -100.0, 500.0, -400.0]);
        // 1, -2, 0; -1, 1, 0; -2, -1, 1.
        let pairs = T::packed(TensorType::Int2, &[3, 3], &[0b1100_1001, 0b1110_0001, 0b01]);
        run(pairs.quantized(2.0, 0), &[-4.0, -2.0, 2.0, 2.0, -4.0, 0.0, -4.0, -2.0, 2.0]);
        let bytes = T::new(&[3, 3], &[1_i8, -2, 3, 7, -8, 0, -128, 127, -4]);
        run(bytes.quantized(0.5, 0), &[-64.0, 63.5, -2.0, 0.5, -1.0, 1.5, -64.0, 63.5, -2.0]);
    }
}
