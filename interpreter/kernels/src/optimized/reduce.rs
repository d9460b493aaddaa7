//! MEAN, SUM, REDUCE_MAX and REDUCE_MIN of floats and of quantized integers.

use delegraph_core::kernel::{Parallel, PrepareContext};
use delegraph_core::quantized::reduce::Mean;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result, TensorType};

use super::{compute_multiplier, optimize};
use crate::common::index::Nest;
use crate::common::pace::{PIECE, Polls};
use crate::common::prepared::{Invoke, check_same_quantization};
use crate::common::quantized::QuantizedElement;
use crate::reference::{Reduction, mean_of, sum_of};
use delegraph_compute::{
    Each, Factor, Fold, Isa, Reduce, SharedMut, Sums, Ties, chunk_len, fold, map, stack, threads_for,
};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::MEAN, 1..=3, |cx| prepare(cx, Reduce::Sum, true));
    optimize(resolver, BuiltinOp::SUM, 1..=2, |cx| prepare(cx, Reduce::Sum, false));
    optimize(resolver, BuiltinOp::REDUCE_MAX, 1..=3, |cx| prepare(cx, Reduce::Max, false));
    optimize(resolver, BuiltinOp::REDUCE_MIN, 1..=3, |cx| prepare(cx, Reduce::Min, false));
}

fn prepare(cx: &mut PrepareContext<'_>, kind: Reduce, mean: bool) -> Result<Option<Invoke>> {
    let ty = cx.input(0)?.ty();
    match (ty, kind) {
        _ if cx.output(0)?.ty() != ty => Ok(None),
        (TensorType::Float32, _) => floats(cx, kind, mean),
        (TensorType::Int8, Reduce::Sum) => sums::<i8>(cx, mean),
        (TensorType::UInt8, Reduce::Sum) => sums::<u8>(cx, mean),
        (TensorType::Int16, Reduce::Sum) => sums::<i16>(cx, mean),
        (TensorType::Int8, _) => extrema(cx, kind, i8::MIN, i8::MAX),
        (TensorType::UInt8, _) => extrema(cx, kind, u8::MIN, u8::MAX),
        (TensorType::Int16, _) => extrema(cx, kind, i16::MIN, i16::MAX),
        _ => Ok(None),
    }
}

fn floats(cx: &mut PrepareContext<'_>, kind: Reduce, mean: bool) -> Result<Option<Invoke>> {
    let r = Reduction::new(cx)?;
    let (folding, isa) = (Folding::new(&r), Isa::best());
    let init = match kind {
        Reduce::Sum => r.zero(),
        Reduce::Max => f32::MIN,
        Reduce::Min => f32::MAX,
    };
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, SharedMut::new(cx.output::<f32>(0)?));
        let par = cx.parallel();
        folding.each_part(par, |part| {
            // SAFETY: outputs of parts are disjoint (`Folding::each_part`), and each part is one task, which
            // `Parallel::run` calls at most once.
            let out = unsafe { output.slice(part.first, part.outputs) };
            out.fill(init);
            let run = |run: &[f32], init: f32| kind.run(isa, init, run);
            match kind {
                Reduce::Sum => part.fold(isa, par, input, out, run, Each(0.0, |a, b| a + b)),
                Reduce::Max => part.fold(isa, par, input, out, run, Each(f32::NEG_INFINITY, larger)),
                Reduce::Min => part.fold(isa, par, input, out, run, Each(f32::INFINITY, smaller)),
            }
            if mean {
                out.iter_mut().for_each(|sum| *sum /= r.count as f32);
            }
        });
        Ok(())
    })))
}

fn larger<T: PartialOrd>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

fn smaller<T: PartialOrd>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

/// Sums or means of quantized integers.
fn sums<T: QuantizedElement>(cx: &mut PrepareContext<'_>, mean: bool) -> Result<Option<Invoke>>
where
    Sums: Fold<T, Total = i32>,
{
    let r = Reduction::new(cx)?;
    if r.count == 0 {
        return Ok(None);
    }
    let (folding, isa) = (Folding::new(&r), Isa::best());
    let (of_mean, of_sum) = match mean {
        true => (Some(mean_of(cx, &r)?), None),
        false => (None, Some(sum_of(cx, &r)?)),
    };
    let sums = cx.temporary_of::<i32>(r.outputs)?;
    Ok(Some(Box::new(move |cx| {
        let sums = SharedMut::new(&mut cx.temporary::<i32>(sums)?[..r.outputs]);
        let (input, output) = (cx.input::<T>(0)?, SharedMut::new(cx.output::<T>(0)?));
        let par = cx.parallel();
        folding.each_part(par, |part| {
            // SAFETY: outputs of parts are disjoint (`Folding::each_part`), and each part is one task, which
            // `Parallel::run` calls at most once.
            let (sums, out) =
                unsafe { (sums.slice(part.first, part.outputs), output.slice(part.first, part.outputs)) };
            sums.fill(0);
            part.fold(isa, par, input, sums, |run, init| fold(isa, run, init, Sums), Sums);
            if let Some(mean) = &of_mean {
                write_means(isa, mean, part.first, sums, out);
            }
            if let Some(sum) = &of_sum {
                map(isa, sums, out, |sums| T::clamped(sum.of(sums), T::MIN, T::MAX));
            }
        });
        Ok(())
    })))
}

/// Means, beginning with output `first`.
fn write_means<T: QuantizedElement>(isa: Isa, mean: &Mean, first: usize, sums: &[i32], out: &mut [T]) {
    let multiplier = compute_multiplier(mean.multiplier);
    let [group, up] = mean.up;
    let mut done = 0;
    while done < sums.len() {
        // Consecutive sums whose ties are rounded alike.
        let at = (first + done).checked_rem(group).unwrap_or(0);
        let (end, ties) = match at < up {
            true => (up, Ties::Up),
            false if up == 0 => (usize::MAX, Ties::Away),
            false => (group, Ties::Away),
        };
        let count = (end - at).min(sums.len() - done);
        let factor = Factor::new(multiplier, ties);
        map(isa, &sums[done..][..count], &mut out[done..][..count], |sum| {
            let scaled = factor.apply(sum.wrapping_sub(mean.before)).wrapping_add(mean.after);
            T::clamped(scaled, T::MIN, T::MAX)
        });
        done += count;
    }
}

/// Maxima or minima of integers.
fn extrema<T: Element + PartialOrd + Sync>(
    cx: &mut PrepareContext<'_>,
    kind: Reduce,
    lowest: T,
    highest: T,
) -> Result<Option<Invoke>> {
    check_same_quantization(cx.input(0)?, cx.output(0)?)?;
    let r = Reduction::new(cx)?;
    let (folding, isa) = (Folding::new(&r), Isa::best());
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<T>(0)?, SharedMut::new(cx.output::<T>(0)?));
        let par = cx.parallel();
        folding.each_part(par, |part| {
            // SAFETY: outputs of parts are disjoint (`Folding::each_part`), and each part is one task, which
            // `Parallel::run` calls at most once.
            let out = unsafe { output.slice(part.first, part.outputs) };
            let (max, min) = (Each(lowest, larger), Each(highest, smaller));
            out.fill(if kind == Reduce::Max { lowest } else { highest });
            match kind {
                Reduce::Max => part.fold(isa, par, input, out, |run, init| fold(isa, run, init, max), max),
                _ => part.fold(isa, par, input, out, |run, init| fold(isa, run, init, min), min),
            }
        });
        Ok(())
    })))
}

/// Steps of a poll per run, beside its elements.
const RUN_STEPS: usize = 8;

/// The work is interrupted.
struct Ended;

/// Loops over the elements.
struct Folding {
    /// Loops without the one over stacked rows.
    nest: Nest<2>,
    /// Number of stacked rows, and the distance between their starts.
    rows: (usize, usize),
    outputs: usize,
    elements: usize,
}

/// A part of the outputs, and the input elements that reduce to it.
struct Part {
    nest: Nest<2>,
    rows: (usize, usize),
    /// Offset in the input.
    start: usize,
    first: usize,
    outputs: usize,
}

impl Folding {
    fn new(r: &Reduction) -> Self {
        let (nest, rows) = match r.nest.stacked() {
            Some((nest, count, stride)) => (nest, (count, stride)),
            None => (r.nest.clone(), (1, 0)),
        };
        Folding { nest, rows, outputs: r.outputs, elements: r.outputs.saturating_mul(r.count) }
    }

    /// Runs `f` on parts of the outputs, on several threads where the work is large enough. Large work may be
    /// interrupted between parts.
    fn each_part(&self, par: &dyn Parallel, f: impl Fn(&Part) + Sync) {
        let par = threads_for(par, self.elements);
        let divided = par.threads() > 1 || self.elements > PIECE;
        let Some(cut) = divided.then(|| self.nest.cut()).flatten() else {
            let whole =
                Part { nest: self.nest.clone(), rows: self.rows, start: 0, first: 0, outputs: self.outputs };
            return f(&whole);
        };
        // Outputs are dense, so the number of outputs of an iteration of the cut is its step.
        let [from, to] = cut.step.map(isize::cast_unsigned);
        let mut piece = chunk_len(par, cut.count, self.elements / cut.count);
        if to == 1 {
            // Parts are whole cache lines and vectors.
            piece = piece.next_multiple_of(64);
        }
        par.run(cut.count.div_ceil(piece), &|task| {
            let (at, count) = (task * piece, piece.min(cut.count - task * piece));
            let nest = self.nest.part(cut, count);
            f(&Part { nest, rows: self.rows, start: at * from, first: at * to, outputs: count * to });
        });
    }
}

impl Part {
    /// Folds the input into `out`: `run` folds runs of elements that reduce to one, `f` folds single elements.
    fn fold<T: Copy, F: Fold<T>>(
        &self,
        isa: Isa,
        par: &dyn Parallel,
        input: &[T],
        out: &mut [F::Total],
        run: impl Fn(&[T], F::Total) -> F::Total,
        f: F,
    ) {
        let (size, [_, step]) = self.nest.inner();
        let (mut polls, steps) =
            (Polls::new(par), size.saturating_mul(self.rows.0).saturating_add(RUN_STEPS));
        let each = |[i, o]: [usize; 2]| {
            if polls.interrupted_after(steps) {
                return Err(Ended);
            }
            match step {
                0 => out[o] = run(&input[i..][..size], out[o]),
                // Cannot fail: all rows are inside the input.
                _ => {
                    let _ = stack(isa, &input[i..], self.rows, &mut out[o..][..size], f);
                }
            }
            Ok(())
        };
        // Results of work that has ended early are not used.
        let _ = self.nest.try_for_each_run([self.start, 0], each);
    }
}
