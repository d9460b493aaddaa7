//! Sums and extrema of runs in single precision.

use super::isa::Isa;
use super::simd::{Simd, SimdTask, dispatch};

/// How elements are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Added up.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl Reduce {
    /// Puts all elements of `run` together, with `init`.
    pub fn run(self, isa: Isa, init: f32, run: &[f32]) -> f32 {
        dispatch(isa, RunTask { kind: self, init, run })
    }

    /// Puts each element of `run` together with one of `out`. The longer one is cut.
    pub fn each(self, isa: Isa, run: &[f32], out: &mut [f32]) {
        dispatch(isa, EachTask { kind: self, run, out });
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
        /// Four vectors at a time: each addition waits for the one before.
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
        // SAFETY: loads stay inside the run, stores inside an array that no vector is longer than. The instructions
        // exist by the caller's promise.
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

struct EachTask<'a> {
    kind: Reduce,
    run: &'a [f32],
    out: &'a mut [f32],
}

impl SimdTask for EachTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let pairs = self.out.iter_mut().zip(self.run);
        match self.kind {
            Reduce::Sum => pairs.for_each(|(o, x)| *o += x),
            Reduce::Max => pairs.for_each(|(o, &x)| *o = if x > *o { x } else { *o }),
            Reduce::Min => pairs.for_each(|(o, &x)| *o = if x < *o { x } else { *o }),
        }
    }
}
