//! Elementwise functions of 16-bit integers, and the ways from and to floats.
//!
//! The loops are plain ones that the compiler turns into vectors for each instruction set.

use std::ops::Range;

use super::Parallel;
use super::broadcast::Broadcast;
use super::buffer::SharedMut;
use super::error::{Result, check_len};
use super::isa::Isa;
use super::share::{bundle, crew};
use super::simd::{Simd, SimdTask, dispatch};

/// `out = f(a, b)` for operands that broadcast.
///
/// # Errors
/// Where an operand's length isn't its shape's.
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
        let (len, f) = (self.columns.len(), self.f);
        for [at_a, at_b, at] in self.shape.rows(self.rows.clone(), self.columns.start) {
            // SAFETY: each task writes rows and columns of its own.
            let out = unsafe { self.out.slice(at, len) };
            match self.shape.steps() {
                [0, _] => {
                    let a = self.a[at_a];
                    out.iter_mut().zip(&self.b[at_b..][..len]).for_each(|(o, b)| *o = f(a, *b));
                }
                [_, 0] => {
                    let b = self.b[at_b];
                    out.iter_mut().zip(&self.a[at_a..][..len]).for_each(|(o, a)| *o = f(*a, b));
                }
                _ => {
                    let pairs = self.a[at_a..][..len].iter().zip(&self.b[at_b..][..len]);
                    out.iter_mut().zip(pairs).for_each(|(o, (a, b))| *o = f(*a, *b));
                }
            }
        }
    }
}

/// `out[i] = f(input[i])`, where `f` also gets whether `i` lies in a whole group of eight, counted from the first.
///
/// # Errors
/// Where the lengths differ.
pub fn map_groups<I: Copy + Sync, O: Send>(
    isa: Isa,
    input: &[I],
    out: &mut [O],
    par: &dyn Parallel,
    f: impl Fn(I, bool) -> O + Copy + Sync,
) -> Result<()> {
    const GROUP: usize = 8;
    check_len("input", input.len(), out.len())?;
    let (len, par) = (input.len(), crew(par, input.len()));
    let (piece, whole) = (bundle(par, len, 1).next_multiple_of(GROUP), len / GROUP * GROUP);
    let out = SharedMut::new(out);
    par.run(len.div_ceil(piece), &|task| {
        let (from, to) = (task * piece, (task * piece + piece).min(len));
        let middle = to.min(whole);
        for (range, in_group) in [(from..middle, true), (middle..to, false)] {
            // SAFETY: each task has a part of its own.
            let out = unsafe { out.slice(range.start, range.len()) };
            dispatch(isa, MapTask { input: &input[range], out, f: |x| f(x, in_group) });
        }
    });
    Ok(())
}

struct MapTask<'a, I, O, F> {
    input: &'a [I],
    out: &'a mut [O],
    f: F,
}

impl<I: Copy, O, F: Fn(I) -> O> SimdTask for MapTask<'_, I, O, F> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        self.out.iter_mut().zip(self.input).for_each(|(o, x)| *o = (self.f)(*x));
    }
}
