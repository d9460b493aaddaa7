//! SOFTMAX and LOG_SOFTMAX in single precision.

use super::Parallel;
use super::buffer::SharedMut;
use super::error::{Result, check_len};
use super::isa::Isa;
use super::math;
use super::simd::{Simd, SimdTask, dispatch};

/// What a row becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Softmax {
    /// `e^(beta · x)`, so scaled that they sum to 1.
    Probabilities {
        /// The factor of the exponents.
        beta: f32,
    },
    /// The logarithms of those, with a `beta` of 1.
    Logarithms,
}

/// Elements that are worth a task of their own.
const PER_TASK: usize = 4 << 10;

/// Computes rows of `depth` elements.
///
/// # Errors
/// Where a length is no whole number of rows, or the lengths differ.
pub fn softmax(
    isa: Isa,
    kind: Softmax,
    depth: usize,
    input: &[f32],
    out: &mut [f32],
    par: &dyn Parallel,
) -> Result<()> {
    check_len("output", out.len(), input.len())?;
    check_len("input", input.len() % depth.max(1), 0)?;
    let rows = input.len().checked_div(depth).unwrap_or(0);
    let bundle = (PER_TASK / depth.max(1)).clamp(1, rows.max(1));
    let shared = SharedMut::new(out);
    par.run(rows.div_ceil(bundle), &|task| {
        let rows = task * bundle..((task + 1) * bundle).min(rows);
        let input = &input[rows.start * depth..rows.end * depth];
        // SAFETY: each task has rows of its own.
        let out = unsafe { shared.slice(rows.start * depth, input.len()) };
        dispatch(isa, RowsTask { kind, depth, input, out });
    });
    Ok(())
}

struct RowsTask<'a> {
    kind: Softmax,
    depth: usize,
    input: &'a [f32],
    out: &'a mut [f32],
}

/// Runs an expression on each vector of a row; missing lanes of the last one are those of `fill`.
macro_rules! vectors {
    ($S:ident, $len:expr, $i:ident, $n:ident => $full:expr, $rest:expr) => {{
        let mut $i = 0;
        while $i + $S::LANES <= $len {
            $full;
            $i += $S::LANES;
        }
        if $i < $len {
            let $n = $len - $i;
            $rest;
        }
    }};
}

impl SimdTask for RowsTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let depth = self.depth;
        let beta = match self.kind {
            Softmax::Probabilities { beta } => beta,
            Softmax::Logarithms => 1.0,
        };
        let mut lanes = [0f32; 16];
        for (row, out) in self.input.chunks_exact(depth).zip(self.out.chunks_exact_mut(depth)) {
            let (from, to) = (row.as_ptr(), out.as_mut_ptr());
            // SAFETY: both rows have `depth` elements, and no vector is longer than `lanes`. The instructions exist by
            // the caller's promise.
            unsafe {
                let lowest = S::splat(f32::NEG_INFINITY);
                let mut most = lowest;
                vectors!(S, depth, i, n => most = S::max(S::load(from.add(i)), most), {
                    for k in 0..n {
                        most = S::max(S::splat(*from.add(i + k)), most);
                    }
                });
                S::store(lanes.as_mut_ptr(), most);
                let max = lanes[..S::LANES].iter().fold(f32::NEG_INFINITY, |m, &x| m.max(x));
                let (shift, factor) = (S::splat(max), S::splat(beta));
                let mut sum = S::splat(0.0);
                let mut rest = 0.0;
                vectors!(S, depth, i, n => {
                    let e = math::exp::<S>(S::mul(S::sub(S::load(from.add(i)), shift), factor));
                    S::store(to.add(i), e);
                    sum = S::add(sum, e);
                }, {
                    let e = math::exp::<S>(S::mul(S::sub(S::load_n(from.add(i), n), shift), factor));
                    S::store_n(to.add(i), e, n);
                    S::store(lanes.as_mut_ptr(), e);
                    rest = lanes[..n].iter().sum();
                });
                S::store(lanes.as_mut_ptr(), sum);
                let total = lanes[..S::LANES].iter().sum::<f32>() + rest;
                match self.kind {
                    Softmax::Probabilities { .. } => {
                        let scale = S::splat(1.0 / total);
                        vectors!(S, depth, i, n => S::store(to.add(i), S::mul(S::load(to.add(i)), scale)),
                            S::store_n(to.add(i), S::mul(S::load_n(to.add(i), n), scale), n));
                    }
                    Softmax::Logarithms => {
                        let log = S::splat(total.ln());
                        vectors!(S, depth, i, n => S::store(to.add(i), S::sub(S::sub(S::load(from.add(i)), shift), log)),
                            S::store_n(to.add(i), S::sub(S::sub(S::load_n(from.add(i), n), shift), log), n));
                    }
                }
            }
        }
    }
}
