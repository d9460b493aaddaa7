//! Elementwise functions of 16-bit integers, and conversions to and from floats.
//!
//! The loops are scalar code that the compiler vectorizes for each instruction set.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::SharedMut;
use crate::base::error::{Result, check_len};
use crate::base::isa::Isa;
use crate::elementwise::broadcast::{Blocks, Broadcast};
use crate::simd::{Simd, SimdTask, dispatch};
use crate::threads::share::{chunk_len, threads_for};

/// `out = f(a, b)` for operands that broadcast.
///
/// # Errors
/// Fails if an operand's length does not match its shape.
pub fn zip_i16(
    isa: Isa,
    shape: &Broadcast,
    a: &[i16],
    b: &[i16],
    out: &mut [i16],
    par: &dyn Parallel,
    f: impl Fn(i16, i16) -> i16 + Copy + Sync,
) -> Result<()> {
    shape.check([Some(a.len()), Some(b.len())], out.len())?;
    let out = SharedMut::new(out);
    shape.pieces(par, |rows, columns| dispatch(isa, ZipTask { shape, a, b, out, rows, columns, f }));
    Ok(())
}

struct ZipTask<'a, F> {
    shape: &'a Broadcast,
    a: &'a [i16],
    b: &'a [i16],
    out: SharedMut<'a, i16>,
    rows: Range<usize>,
    columns: Range<usize>,
    f: F,
}

impl<F: Fn(i16, i16) -> i16 + Copy> SimdTask for ZipTask<'_, F> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (part, operands) = ((self.rows, self.columns), [Some(self.a), Some(self.b)]);
        // SAFETY: `Zip` requires no particular instructions. `Broadcast::pieces` gives each task a piece of the output
        // of its own.
        unsafe { self.shape.blocks(part, operands, self.out, Zip(self.f)) };
    }
}

struct Zip<F>(F);

impl<F: Fn(i16, i16) -> i16> Blocks<i16> for Zip<F> {
    #[inline(always)]
    unsafe fn run(&self, a: &[i16], b: &[i16], out: &mut [i16]) {
        let f = &self.0;
        out.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (a, b))| *o = f(*a, *b));
    }
}

/// `out[i] = f(input[i])`, up to the end of the shorter one.
pub fn map<I: Copy, O>(isa: Isa, input: &[I], out: &mut [O], f: impl Fn(I) -> O) {
    dispatch(isa, MapTask { input, out, f });
}

/// `out[i] = f(input[i], whole)`; `whole` is true for elements of complete groups of eight, counted from the first.
///
/// # Errors
/// Fails if the lengths differ.
pub fn map_groups<I: Copy + Sync, O: Send>(
    isa: Isa,
    input: &[I],
    out: &mut [O],
    par: &dyn Parallel,
    f: impl Fn(I, bool) -> O + Copy + Sync,
) -> Result<()> {
    const GROUP: usize = 8;
    check_len("input", input.len(), out.len())?;
    let (len, par) = (input.len(), threads_for(par, input.len()));
    let (piece, whole) = (chunk_len(par, len, 1).next_multiple_of(GROUP), len / GROUP * GROUP);
    let out = SharedMut::new(out);
    par.run(len.div_ceil(piece), &|task| {
        let (from, to) = (task * piece, (task * piece + piece).min(len));
        let middle = to.min(whole);
        for (range, in_group) in [(from..middle, true), (middle..to, false)] {
            // SAFETY: parts of tasks are disjoint, and `Parallel::run` calls each task at most once.
            let out = unsafe { out.slice(range.start, range.len()) };
            dispatch(isa, MapTask { input: &input[range], out, f: |x| f(x, in_group) });
        }
    });
    Ok(())
}

pub(super) struct MapTask<'a, I, O, F> {
    pub(super) input: &'a [I],
    pub(super) out: &'a mut [O],
    pub(super) f: F,
}

impl<I: Copy, O, F: Fn(I) -> O> SimdTask for MapTask<'_, I, O, F> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        self.out.iter_mut().zip(self.input).for_each(|(o, x)| *o = (self.f)(*x));
    }
}
