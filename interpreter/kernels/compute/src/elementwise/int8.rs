//! Elementwise functions of bytes: tables, requantization, and conversions to and from floats.
//!
//! The loops are scalar code that the compiler vectorizes for each instruction set.

use delegraph_core::kernel::Parallel;

use crate::base::buffer::{Parts, SharedMut};
use crate::base::error::{ComputeError, Result, check_len};
use crate::base::isa::Isa;
use crate::base::requant::{ByteQuant, Factor, Multiplier, Ties};
use crate::elementwise::int16::MapTask;
use crate::simd::{Simd, SimdTask, dispatch};
use crate::threads::share::{chunk_len, threads_for};

/// Requantizes `sums`, integers stored as floats, to bytes: multiplies by `factor` with ties away from zero, adds
/// `zero_point`, and clamps to `low..=high`.
///
/// # Errors
/// Fails if the lengths differ or the factor is out of range.
#[allow(clippy::too_many_arguments, reason = "one argument per operand")]
pub fn requantize(
    isa: Isa,
    factor: Multiplier,
    zero_point: i32,
    [low, high]: [i32; 2],
    sums: &[f32],
    out: &mut [u8],
    par: &dyn Parallel,
) -> Result<()> {
    if factor.multiplier < 0 || !(-31..=30).contains(&factor.shift) {
        return Err(ComputeError::Range { what: "multiplier" });
    }
    let factor = Factor::new(factor, Ties::Away);
    let byte = move |sum: f32| factor.apply(sum as i32).wrapping_add(zero_point).max(low).min(high) as u8;
    split(isa, sums, out, par, |sums, out| MapTask { f: byte, input: sums, out })
}

/// `out[i] = table[input[i]]`; in place if `input` is `None`.
///
/// # Errors
/// Fails if the lengths differ.
pub fn lookup(
    isa: Isa,
    table: &[u8; 256],
    input: Option<&[u8]>,
    out: &mut [u8],
    par: &dyn Parallel,
) -> Result<()> {
    match input {
        Some(input) => split(isa, input, out, par, |input, out| LookupTask { table, input, out }),
        None => {
            let par = threads_for(par, out.len());
            let parts = Parts::new(out, chunk_len(par, out.len(), 1));
            par.run(parts.count(), &|index| {
                // SAFETY: parts of tasks are disjoint, and `Parallel::run` calls each task at most once.
                let part = unsafe { parts.get(index) };
                part.iter_mut().for_each(|x| *x = table[usize::from(*x)]);
            });
            Ok(())
        }
    }
}

/// Quantizes floats as TFLite does: complete groups of eight are multiplied by the inverse scale with ties to even, and
/// the rest is divided in double precision with ties away from zero. Values beyond the type's range are clamped, and
/// NaN becomes the zero point.
///
/// # Errors
/// Fails if the lengths differ or the zero point is out of range.
pub fn quantize(
    isa: Isa,
    scale: f32,
    quant: ByteQuant,
    input: &[f32],
    out: &mut [u8],
    par: &dyn Parallel,
) -> Result<()> {
    quant.zero_byte()?;
    split(isa, input, out, par, |input, out| QuantizeTask { scale, quant, input, out })
}

/// `out[i] = scale · (input[i] - zero_point)`.
///
/// # Errors
/// Fails if the lengths differ or the zero point is out of range.
pub fn dequantize(
    isa: Isa,
    scale: f32,
    quant: ByteQuant,
    input: &[u8],
    out: &mut [f32],
    par: &dyn Parallel,
) -> Result<()> {
    quant.zero_byte()?;
    split(isa, input, out, par, |input, out| DequantizeTask { scale, quant, input, out })
}

/// Runs a task on each of several parts.
fn split<'a, I: Sync, O: Send, T: SimdTask<Out = ()>>(
    isa: Isa,
    input: &'a [I],
    out: &'a mut [O],
    par: &dyn Parallel,
    task: impl Fn(&'a [I], &'a mut [O]) -> T + Sync,
) -> Result<()> {
    check_len("input", input.len(), out.len())?;
    let (len, par) = (input.len(), threads_for(par, input.len()));
    // Only the last part may have an incomplete group.
    let piece = chunk_len(par, len, 1).next_multiple_of(GROUP);
    let shared = SharedMut::new(out);
    par.run(len.div_ceil(piece), &|index| {
        let start = index * piece;
        let input = &input[start..(start + piece).min(len)];
        // SAFETY: parts of tasks are disjoint, and `Parallel::run` calls each task at most once.
        let out = unsafe { shared.slice(start, input.len()) };
        dispatch(isa, task(input, out));
    });
    Ok(())
}

struct LookupTask<'a> {
    table: &'a [u8; 256],
    input: &'a [u8],
    out: &'a mut [u8],
}

impl SimdTask for LookupTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (o, &x) in self.out.iter_mut().zip(self.input) {
            *o = self.table[usize::from(x)];
        }
    }
}

/// Elements that TFLite's kernel quantizes at once.
const GROUP: usize = 8;

struct QuantizeTask<'a> {
    scale: f32,
    quant: ByteQuant,
    input: &'a [f32],
    out: &'a mut [u8],
}

impl SimdTask for QuantizeTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (zero, flip) = (self.quant.zero_in(true), if self.quant.signed { 0x80 } else { 0 });
        let finish = |steps: f32| {
            let steps = if steps.is_nan() { 0.0 } else { steps };
            // SAFETY: finite and within the range of an i32: NaN was replaced and the value is clamped, to bounds that
            // are beyond every result.
            let steps: i32 = unsafe { steps.clamp(-512.0, 512.0).to_int_unchecked() };
            (steps + zero).clamp(0, 255) as u8 ^ flip
        };
        let whole = self.input.len() / GROUP * GROUP;
        let ((out, out_rest), (input, input_rest)) =
            (self.out.split_at_mut(whole), self.input.split_at(whole));
        let inverse = (1.0 / f64::from(self.scale)) as f32;
        for (o, &x) in out.iter_mut().zip(input) {
            *o = finish((x * inverse).round_ties_even());
        }
        for (o, &x) in out_rest.iter_mut().zip(input_rest) {
            *o = finish((f64::from(x) / f64::from(self.scale)).round() as f32);
        }
    }
}

struct DequantizeTask<'a> {
    scale: f32,
    quant: ByteQuant,
    input: &'a [u8],
    out: &'a mut [f32],
}

impl SimdTask for DequantizeTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (zero, flip) = (self.quant.zero_in(true), if self.quant.signed { 0x80 } else { 0 });
        for (o, &x) in self.out.iter_mut().zip(self.input) {
            *o = self.scale * (i32::from(x ^ flip) - zero) as f32;
        }
    }
}
