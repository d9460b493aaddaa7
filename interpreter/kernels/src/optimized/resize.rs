//! RESIZE_BILINEAR of floats and integers, and RESIZE_NEAREST_NEIGHBOR.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::resize::ResizeBilinearParams;
use delegraph_core::quantized::resize as taps;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{compute_error, optimize};
use crate::common::prepared::Invoke;
use crate::reference::Nearest;
use delegraph_compute::{Bilinear, Isa, Parts, Tap, chunk_len, threads_for};

/// Maximum number of elements of a row of outputs.
const MAX_ROW: usize = 1 << 24;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::RESIZE_BILINEAR, 1..=4, bilinear);
    optimize(resolver, BuiltinOp::RESIZE_NEAREST_NEIGHBOR, 1..=4, nearest);
}

fn bilinear(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let p: &ResizeBilinearParams = cx.params()?;
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let (&[_, height, width, channels], &[_, out_height, out_width, _]) =
        (&input.shape()[..], &output.shape()[..])
    else {
        return Ok(None);
    };
    // The computation of a row of outputs is not interrupted; the reference kernel polls in between.
    if input.shape().elements() == 0 || out_width.saturating_mul(channels) > MAX_ROW {
        return Ok(None);
    }
    let budget = cx.budget().clone();
    let floats = |from, to| {
        let tap = |t: taps::Tap<f32>| Tap::new(t.low, t.high, t.fraction);
        budget.collect(taps::float_taps(p, from, to).map(tap))
    };
    let fixed = |from, to| {
        let tap = |t: taps::Tap<i64>| Tap::new(t.low, t.high, t.fraction as i32);
        budget.collect(taps::fixed_taps(p, from, to).map(tap))
    };
    let isa = Isa::best();
    macro_rules! resize {
        ($ty:ty, $taps:ident) => {{
            let (rows, columns) = ($taps(height, out_height)?, $taps(width, out_width)?);
            let resize =
                Bilinear::<$ty>::new([height, width], channels, rows, columns).map_err(compute_error)?;
            Ok(Some(Box::new(move |cx| {
                let (input, output) = (cx.input::<$ty>(0)?, cx.output::<$ty>(0)?);
                resize.run(isa, input, output, cx.parallel()).map_err(compute_error)
            })))
        }};
    }
    match input.ty() {
        TensorType::Float32 => resize!(f32, floats),
        TensorType::UInt8 => resize!(u8, floats),
        TensorType::Int8 => resize!(i8, fixed),
        TensorType::Int16 => resize!(i16, fixed),
        _ => Ok(None),
    }
}

fn nearest(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let n = Nearest::new(cx)?;
    let row = n.columns.len() * n.pixel;
    if row == 0 || cx.input(0)?.shape().elements() == 0 {
        return Ok(None);
    }
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(0)?, cx.output_bytes(0)?);
        let (rows, columns) = (n.rows.len(), &n.columns[..]);
        let par = threads_for(cx.parallel(), output.len() / 2);
        let piece = chunk_len(par, output.len() / row, row / 2);
        let parts = Parts::new(output, piece * row);
        let repeat = match n.pixel {
            1 => repeat::<1>,
            2 => repeat::<2>,
            3 => repeat::<3>,
            4 => repeat::<4>,
            8 => repeat::<8>,
            12 => repeat::<12>,
            16 => repeat::<16>,
            _ => repeat_any,
        };
        par.run(parts.count(), &|task| {
            // SAFETY: rows of tasks are disjoint, and `Parallel::run` calls each task at most once.
            let part = unsafe { parts.get(task) };
            for (i, out) in (task * piece..).zip(part.chunks_exact_mut(row)) {
                let (image, y) = (i / rows, n.rows[i % rows]);
                let width = n.from[1] * n.pixel;
                repeat(&input[(image * n.from[0] + y) * width..][..width], columns, n.pixel, out);
            }
        });
        Ok(())
    })))
}

/// Copies the pixels of `columns`, of `W` bytes each.
fn repeat<const W: usize>(row: &[u8], columns: &[usize], _: usize, out: &mut [u8]) {
    let (row, out) = (row.as_chunks::<W>().0, out.as_chunks_mut::<W>().0);
    out.iter_mut().zip(columns).for_each(|(out, x)| *out = row[*x]);
}

/// Copies the pixels of `columns`, of `pixel` bytes each.
fn repeat_any(row: &[u8], columns: &[usize], pixel: usize, out: &mut [u8]) {
    for (out, x) in out.chunks_exact_mut(pixel).zip(columns) {
        out.copy_from_slice(&row[x * pixel..][..pixel]);
    }
}
