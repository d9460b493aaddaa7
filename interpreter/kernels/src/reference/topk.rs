//! TOPK_V2.

use std::cmp::Ordering;
use std::mem::take;

use delegraph_core::kernel::PrepareContext;
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Result, TensorType};

use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::{Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::TOPK_V2, prepared(prepare), 1..=3);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => on::<f32>(cx),
        TensorType::Int8 => on::<i8>(cx),
        TensorType::UInt8 => on::<u8>(cx),
        TensorType::Int16 => on::<i16>(cx),
        TensorType::Int32 => on::<i32>(cx),
        TensorType::Int64 => on::<i64>(cx),
        _ => Err(unsupported_type("input 0", cx.input(0)?)),
    }
}

/// Descending; the first of equal elements comes first, NaN comes last.
fn on<T: Element + PartialOrd>(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let row = cx.input(0)?.shape().last().copied().unwrap_or(0);
    let count = cx.output(0)?.shape().last().copied().unwrap_or(0);
    let narrow = cx.output(1)?.ty() == TensorType::Int16;
    if narrow && row > i16::MAX as usize || i32::try_from(row).is_err() {
        return Err(Error::Unsupported(format!(
            "rows of {row} elements, which exceed the range of the indices"
        )));
    }
    let order = cx.temporary_of::<i32>(row)?;
    Ok(Box::new(move |cx| {
        if count == 0 || row == 0 {
            return Ok(());
        }
        let order = &mut cx.temporary::<i32>(order)?[..row];
        let (input, values, indices) = (cx.input::<T>(0)?, cx.output::<T>(0)?, cx.output_bytes(1)?);
        let rows = input.chunks_exact(row).zip(values.chunks_exact_mut(count));
        let width = if narrow { 2 } else { 4 };
        let mut pace = Pace::new(cx);
        for ((row, values), indices) in rows.zip(indices.chunks_exact_mut(count * width)) {
            let before = |&a: &i32, &b: &i32| {
                let (x, y) = (row[a as usize], row[b as usize]);
                let numbers = y.partial_cmp(&x);
                let nans = || (x.partial_cmp(&x).is_none()).cmp(&y.partial_cmp(&y).is_none());
                numbers.unwrap_or_else(nans).then(a.cmp(&b))
            };
            select(order, count, &before, &mut pace)?;
            for (i, (value, index)) in values.iter_mut().zip(indices.chunks_exact_mut(width)).enumerate() {
                pace.spend(8)?;
                *value = row[order[i] as usize];
                index.copy_from_slice(&order[i].to_le_bytes()[..width]);
            }
        }
        Ok(())
    }))
}

/// The order of two positions. Sorting is compiled once, not for each type of element.
type Before<'b> = dyn Fn(&i32, &i32) -> Ordering + 'b;

/// Positions whose median divides an order in two.
const SAMPLE: usize = 63;

/// Fills the front of `order` with the first `count` of its positions, in the order of `before`.
fn select(order: &mut [i32], count: usize, before: &Before<'_>, pace: &mut Pace) -> Result<()> {
    let (mut kept, piece) = (0, count.max(PIECE));
    for start in (0..order.len()).step_by(piece) {
        let end = order.len().min(start + piece);
        pace.spend((end - start).saturating_mul(8))?;
        let found = kept + end - start;
        (start as i32..).zip(&mut order[kept..found]).for_each(|(i, o)| *o = i);
        choose(&mut order[..found], count, before, pace)?;
        kept = found.min(count);
    }
    sort(&mut order[..kept], before, pace)
}

/// Moves the first `count` positions to the front, in any order. At most twice [`PIECE`] positions are compared between
/// two polls.
fn choose(mut order: &mut [i32], mut count: usize, before: &Before<'_>, pace: &mut Pace) -> Result<()> {
    while order.len() > 2 * PIECE && (1..order.len()).contains(&count) {
        let middle = divide(order, before, pace)?;
        let (first, last) = take(&mut order).split_at_mut(middle);
        order = if count <= middle {
            first
        } else {
            count -= middle;
            last
        };
    }
    if (1..order.len()).contains(&count) {
        order.select_nth_unstable_by(count - 1, before);
    }
    Ok(())
}

/// Sorts distinct positions. At most [`PIECE`] positions are sorted between two polls.
pub(crate) fn sort(mut order: &mut [i32], before: &Before<'_>, pace: &mut Pace) -> Result<()> {
    while order.len() > PIECE {
        let middle = divide(order, before, pace)?;
        let (first, last) = take(&mut order).split_at_mut(middle);
        let (short, long) = if first.len() < last.len() { (first, last) } else { (last, first) };
        // The recursion is not deep: each call has at most half of the positions.
        sort(short, before, pace)?;
        order = long;
    }
    pace.spend(order.len().saturating_mul(32))?;
    order.sort_unstable_by(before);
    Ok(())
}

/// Moves the positions before one of them to the front, and returns their number. At least [`SAMPLE`] distinct positions
/// leave some on both sides.
fn divide(order: &mut [i32], before: &Before<'_>, pace: &mut Pace) -> Result<usize> {
    let apart = order.len() / SAMPLE;
    let mut sample: [i32; SAMPLE] = std::array::from_fn(|i| order[i * apart]);
    sample.sort_unstable_by(before);
    let (middle, mut front) = (sample[SAMPLE / 2], 0);
    for i in 0..order.len() {
        pace.spend(8)?;
        if before(&order[i], &middle).is_lt() {
            order.swap(front, i);
            front += 1;
        }
    }
    if front.min(order.len() - front) < order.len() / 16 {
        // Data may be made against the sample. This takes linear time for any data.
        front = order.len() / 2;
        order.select_nth_unstable_by(front, before);
    }
    Ok(front)
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn sorts() {
        let x = || Some(T::new(&[2, 4], &[3.0f32, 9.0, 9.0, f32::NAN, 1.0, 2.0, 3.0, 4.0]));
        let k = |k: i32| Some(T::new(&[], &[k]).constant());
        let want = [T::new(&[2, 2], &[9.0f32, 9.0, 4.0, 3.0]), T::new(&[2, 2], &[1i32, 2, 3, 2])];
        check(BuiltinOp::TOPK_V2, 1, Params::None, &[x(), k(2)], &want);
        let e = error(BuiltinOp::TOPK_V2, 1, Params::None, &[x(), k(5)], &want);
        assert!(e.contains("5 elements of each row of [2, 4]"), "{e}");
    }

    #[test]
    fn rows_longer_than_a_piece() {
        // Each value twice, in two runs that ascend.
        let half = PIECE as i32 + 5;
        let row: Vec<i32> = (0..half).chain(0..half).collect();
        let x = || Some(T::new(&[row.len()], &row));
        for count in [3, PIECE + 3, row.len()] {
            let k = Some(T::new(&[], &[count as i32]).constant());
            let value = |i: usize| half - 1 - i as i32 / 2;
            let values: Vec<i32> = (0..count).map(value).collect();
            let index = |i: usize| value(i) + if i % 2 == 1 { half } else { 0 };
            let indices: Vec<i32> = (0..count).map(index).collect();
            let wanted = [T::new(&[count], &values), T::new(&[count], &indices)];
            check(BuiltinOp::TOPK_V2, 1, Params::None, &[x(), k], &wanted);
        }
    }
}
