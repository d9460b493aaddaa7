//! Sums and extrema.

use crate::compute::base::error::{ComputeError, Result};
use crate::compute::base::isa::Isa;
use crate::compute::simd::{Simd, SimdTask, dispatch};

/// Shorter runs do not benefit from vectors.
const SHORT: usize = 8;

/// A function that combines elements in single precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Sum.
    Sum,
    /// Maximum.
    Max,
    /// Minimum.
    Min,
}

impl Reduce {
    /// Combines all elements of `run`, starting with `init`.
    pub fn run(self, isa: Isa, init: f32, run: &[f32]) -> f32 {
        if run.len() < SHORT {
            return run.iter().fold(init, |all, x| self.two(all, *x));
        }
        dispatch(isa, RunTask { kind: self, init, run })
    }

    fn two(self, a: f32, b: f32) -> f32 {
        match self {
            Reduce::Sum => a + b,
            Reduce::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
            Reduce::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
        }
    }
}

struct RunTask<'a> {
    kind: Reduce,
    init: f32,
    run: &'a [f32],
}

impl SimdTask for RunTask<'_> {
    type Out = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> f32 {
        let (from, len) = (self.run.as_ptr(), self.run.len());
        let mut lanes = [0f32; 16];
        let mut i = 0;
        let mut result = self.init;
        /// Four accumulators, as each operation has to wait for the one before.
        macro_rules! fold {
            ($f:expr, $neutral:expr) => {{
                let mut acc = [S::splat($neutral); 4];
                while i + 4 * S::LANES <= len {
                    for (u, acc) in acc.iter_mut().enumerate() {
                        *acc = $f(S::load(from.add(i + u * S::LANES)), *acc);
                    }
                    i += 4 * S::LANES;
                }
                while i + S::LANES <= len {
                    acc[0] = $f(S::load(from.add(i)), acc[0]);
                    i += S::LANES;
                }
                let all = $f($f(acc[0], acc[1]), $f(acc[2], acc[3]));
                S::store(lanes.as_mut_ptr(), all);
            }};
        }
        // SAFETY: loads are inside the run, and stores inside an array as long as the longest vector. The instructions
        // exist by the caller's contract.
        unsafe {
            match self.kind {
                Reduce::Sum => fold!(S::add, 0.0),
                Reduce::Max => fold!(S::max, f32::NEG_INFINITY),
                Reduce::Min => fold!(S::min, f32::INFINITY),
            }
        }
        for x in lanes[..S::LANES].iter().chain(&self.run[i..]) {
            result = self.kind.two(result, *x);
        }
        result
    }
}

/// Reduces rows: combines each element of `out` by `f` with the elements at its column in `rows` rows of `input`, in
/// order. Rows begin `stride` elements apart.
///
/// # Errors
/// Fails if a row is not inside the input.
pub fn stack<T: Copy, A: Copy>(
    isa: Isa,
    input: &[T],
    (rows, stride): (usize, usize),
    out: &mut [A],
    f: impl Fn(A, T) -> A + Copy,
) -> Result<()> {
    let end = rows.saturating_sub(1).checked_mul(stride).and_then(|last| last.checked_add(out.len()));
    if rows > 0 && end.is_none_or(|end| end > input.len()) {
        return Err(ComputeError::Range { what: "row" });
    }
    dispatch(isa, StackTask { input, rows, stride, out, f });
    Ok(())
}

/// Combines all elements of `run`, starting with `init`. `f` must be associative and commutative.
pub fn fold<T: Copy, A: Copy>(isa: Isa, run: &[T], init: A, f: impl Fn(A, T) -> A + Copy) -> A {
    if run.len() < SHORT {
        return run.iter().fold(init, |all, x| f(all, *x));
    }
    dispatch(isa, FoldTask { run, init, f })
}

struct FoldTask<'a, T, A, F> {
    run: &'a [T],
    init: A,
    f: F,
}

impl<T: Copy, A: Copy, F: Fn(A, T) -> A + Copy> SimdTask for FoldTask<'_, T, A, F> {
    type Out = A;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> A {
        self.run.iter().fold(self.init, |all, x| (self.f)(all, *x))
    }
}

struct StackTask<'a, T, A, F> {
    input: &'a [T],
    rows: usize,
    stride: usize,
    out: &'a mut [A],
    f: F,
}

impl<T: Copy, A: Copy, F: Fn(A, T) -> A + Copy> SimdTask for StackTask<'_, T, A, F> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // Columns whose accumulators fit the registers.
        const WIDE: usize = 64;
        let rows = |from: usize| (0..self.rows).map(move |row| &self.input[row * self.stride + from..]);
        let (wide, rest) = self.out.as_chunks_mut::<WIDE>();
        let done = wide.len() * WIDE;
        for (i, out) in wide.iter_mut().enumerate() {
            let mut all = *out;
            for row in rows(i * WIDE) {
                let Some(row) = row.first_chunk::<WIDE>() else { return };
                all.iter_mut().zip(row).for_each(|(all, x)| *all = (self.f)(*all, *x));
            }
            *out = all;
        }
        let (half, rest) = rest.as_chunks_mut::<{ WIDE / 4 }>();
        for (i, out) in half.iter_mut().enumerate() {
            let mut all = *out;
            for row in rows(done + i * WIDE / 4) {
                let Some(row) = row.first_chunk::<{ WIDE / 4 }>() else { return };
                all.iter_mut().zip(row).for_each(|(all, x)| *all = (self.f)(*all, *x));
            }
            *out = all;
        }
        let done = done + half.len() * WIDE / 4;
        for row in rows(done).take(if rest.is_empty() { 0 } else { self.rows }) {
            rest.iter_mut().zip(row).for_each(|(all, x)| *all = (self.f)(*all, *x));
        }
    }
}
