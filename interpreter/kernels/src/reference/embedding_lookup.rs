//! EMBEDDING_LOOKUP, EMBEDDING_LOOKUP_SPARSE.

use delegraph_core::error::InvalidData;
use delegraph_core::kernel::{Charged, InvokeContext, PrepareContext};
use delegraph_core::ops::embedding_lookup::EmbeddingLookupSparseParams;
use delegraph_core::ops::{CombinerType, TensorType};
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Result};
use half::f16;

use crate::common::index::packed;
use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::{Invoke, moved_bits, prepared, unsupported_type};
use crate::common::weights::{block_scales, signed, weight_scales};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::EMBEDDING_LOOKUP, prepared(prepare), 1..=5).add_builtin(
        BuiltinOp::EMBEDDING_LOOKUP_SPARSE,
        prepared(sparse),
        1,
    );
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (ids, table, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    if ids.ty() != TensorType::Int32 {
        return Err(unsupported_type("ids", ids));
    }
    match (table.ty(), output.ty()) {
        (of, to) if of == to => rows(cx),
        (TensorType::UInt8, TensorType::Int8) => rows(cx),
        (_, TensorType::Float32) => dequantized(cx, |x| x),
        (_, TensorType::Float16) => dequantized(cx, f16::from_f32),
        _ => Err(unsupported_type("output", output)),
    }
}

/// The row of each id.
fn indices<'a>(
    cx: &mut InvokeContext<'a>,
    rows: usize,
) -> Result<impl Iterator<Item = Result<usize>> + use<'a>> {
    let ids = cx.input::<i32>(0)?;
    Ok(ids.iter().map(move |&id| {
        let row = usize::try_from(id).ok().filter(|&row| row < rows);
        Ok(row.ok_or(InvalidData::Row { id: id.into(), rows })?)
    }))
}

/// Copies whole rows.
fn rows(cx: &PrepareContext<'_>) -> Result<Invoke> {
    let table = cx.input(1)?;
    let bits = moved_bits("table", table)?;
    let rows = table.shape()[0];
    let row_bits = table.shape().elements() / rows.max(1) * bits;
    if !row_bits.is_multiple_of(8) {
        return Err(Error::Unsupported(format!(
            "rows of {row_bits} bits; only multiples of 8 are supported"
        )));
    }
    let width = row_bits / 8;
    Ok(Box::new(move |cx| {
        let (table, output) = (cx.input_bytes(1)?, cx.output_bytes(0)?);
        let mut pace = Pace::new(cx);
        for (row, out) in indices(cx, rows)?.zip(output.chunks_exact_mut(width.max(1))) {
            pace.spend(width.saturating_mul(2))?;
            out.copy_from_slice(&table[row? * width..][..width]);
        }
        Ok(())
    }))
}

/// Rows of integers times the scale of the table, of the row or of the block.
fn dequantized<T: Element>(cx: &PrepareContext<'_>, store: fn(f32) -> T) -> Result<Invoke> {
    let table = cx.input(1)?;
    let bits = match table.ty() {
        TensorType::Int8 | TensorType::UInt8 => 8,
        TensorType::Int4 => 4,
        TensorType::Int2 => 2,
        _ => return Err(unsupported_type("table", table)),
    };
    let rows = table.shape()[0];
    let width = table.shape().elements() / rows.max(1);
    let (scales, block) = scales(cx, rows, width)?;
    Ok(Box::new(move |cx| {
        let (table, output) = (cx.input_bytes(1)?, cx.output::<T>(0)?);
        let mut pace = Pace::new(cx);
        for (row, out) in indices(cx, rows)?.zip(output.chunks_exact_mut(width.max(1))) {
            for (first, out) in (row? * width..).step_by(PIECE).zip(out.chunks_mut(PIECE)) {
                pace.spend(out.len().saturating_mul(16))?;
                for (i, o) in (first..).zip(out) {
                    let value =
                        if bits == 8 { table[i].cast_signed() } else { signed(packed(table, bits, i), bits) };
                    *o = store(f32::from(value) * scales[i / block]);
                }
            }
        }
        Ok(())
    }))
}

/// Scales of a table, and the number of consecutive elements that share one.
fn scales(cx: &PrepareContext<'_>, rows: usize, width: usize) -> Result<(Charged<f32>, usize)> {
    let table = cx.input(1)?;
    if let Some(blocks) = block_scales(cx, 1, (rows, width))? {
        return Ok(blocks);
    }
    let scales = cx.budget().collect(weight_scales(table, 0)?.iter().copied())?;
    let elements = table.shape().elements();
    Ok(if scales.len() == 1 { (scales, elements.max(1)) } else { (scales, width.max(1)) })
}

/// Weighted sums of rows, one for each place of a sparse tensor of ids.
fn sparse(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    use TensorType::{Float32, Int32};
    for (i, what, ty) in [
        (0, "ids", Int32),
        (1, "places", Int32),
        (2, "dimensions", Int32),
        (3, "weights", Float32),
        (4, "table", Float32),
    ] {
        let tensor = cx.input(i)?;
        if tensor.ty() != ty {
            return Err(unsupported_type(what, tensor));
        }
    }
    let combiner = cx.params::<EmbeddingLookupSparseParams>()?.combiner;
    let rank = cx.input(2)?.shape().elements();
    let table = cx.input(4)?.shape();
    let rows = table.first().copied().unwrap_or(0);
    let width = table.elements() / rows.max(1);
    // Divisor of the sums of a place.
    let divisor = move |weights: f32, squares: f32| match combiner {
        CombinerType::Sum => None,
        CombinerType::Mean => Some(weights),
        CombinerType::SqrtN => Some(squares.sqrt()),
    };
    Ok(Box::new(move |cx| {
        let (places, dims) = (cx.input::<i32>(1)?, cx.input::<i32>(2)?);
        let (weights, table, output) = (cx.input::<f32>(3)?, cx.input::<f32>(4)?, cx.output::<f32>(0)?);
        output.fill(0.0);
        let (mut current, mut total, mut squares) = (0, 0f32, 0f32);
        let finish = |output: &mut [f32], place: usize, total: f32, squares: f32| {
            if let Some(divisor) = divisor(total, squares) {
                output[place * width..][..width].iter_mut().for_each(|o| *o /= divisor);
            }
        };
        let mut any = false;
        let mut pace = Pace::new(cx);
        for (i, row) in indices(cx, rows)?.enumerate() {
            pace.spend(width.saturating_add(16))?;
            let (row, place) = (row?, place(&places[i * rank..][..rank], dims)?);
            // Ids of one place are adjacent.
            if place != current {
                if any {
                    finish(output, current, total, squares);
                }
                (current, total, squares) = (place, 0.0, 0.0);
            }
            any = true;
            let weight = weights[i];
            total += weight;
            squares += weight * weight;
            let row = &table[row * width..][..width];
            let sums = &mut output[place * width..][..width];
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x * weight);
        }
        if any {
            finish(output, current, total, squares);
        }
        Ok(())
    }))
}

/// The place, in row-major order, that the indices of all dimensions but the last refer to.
fn place(indices: &[i32], dims: &[i32]) -> Result<usize> {
    let outer = indices.len().saturating_sub(1);
    indices.iter().zip(dims).take(outer).try_fold(0usize, |place, (&index, &dim)| {
        let at = usize::try_from(index).ok().filter(|_| index < dim);
        let at = at.ok_or_else(|| {
            Error::Kernel(format!("index {index} is out of range for a dimension of {dim}"))
        })?;
        Ok(place * dim.unsigned_abs() as usize + at)
    })
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn rows_by_id() {
        let ids = |ids: [i32; 2]| Some(T::new(&[2], &ids));
        let table = || Some(T::new(&[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let output = || T::new(&[2, 2], &[5f32, 6.0, 1.0, 2.0]);
        let op = BuiltinOp::EMBEDDING_LOOKUP;
        check(op, 1, Params::None, &[ids([2, 0]), table()], &[output()]);
        let per_row = T::new(&[3, 2], &[2i8, 4, 0, 0, 10, 12]).per_channel(&[0.5, 1.0, 0.5], 0);
        check(op, 4, Params::None, &[ids([2, 0]), Some(per_row)], &[output()]);
        let text = error(op, 1, Params::None, &[ids([3, 0]), table()], &[output()]);
        assert!(text.contains("id 3 is out of range"), "{text}");
    }

    #[test]
    fn rows_added_up() {
        let op = BuiltinOp::EMBEDDING_LOOKUP_SPARSE;
        let params = |combiner| Params::from(EmbeddingLookupSparseParams::default().combiner(combiner));
        let inputs = |places: [i32; 6]| {
            [
                Some(T::new(&[3], &[1i32, 0, 2])),
                Some(T::new(&[3, 2], &places)),
                Some(T::new(&[2], &[3i32, 2]).constant()),
                Some(T::new(&[3], &[1f32, 2.0, 4.0])),
                Some(T::new(&[3, 1], &[10f32, 20.0, 30.0])),
            ]
        };
        let places = [0, 0, 2, 0, 2, 1];
        let output = |last: f32| T::new(&[3, 1], &[20f32, 0.0, last]);
        check(op, 1, params(CombinerType::Sum), &inputs(places), &[output(140.0)]);
        check(op, 1, params(CombinerType::Mean), &inputs(places), &[output(140.0 / 6.0)]);
        check(op, 1, params(CombinerType::SqrtN), &inputs(places), &[output(140.0 / 20f32.sqrt())]);
        let outside = error(op, 1, params(CombinerType::Sum), &inputs([0, 0, 3, 0, 2, 1]), &[output(0.0)]);
        assert!(outside.contains("index 3 is out of range for a dimension of 3"), "{outside}");
    }
}
