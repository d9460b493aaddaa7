//! SOFTMAX and LOG_SOFTMAX in single precision, SOFTMAX of bytes.

use delegraph_core::kernel::Parallel;

use crate::base::buffer::SharedMut;
use crate::base::error::{Result, check_len, check_multiple};
use crate::base::isa::Isa;
use crate::simd::{Simd, SimdTask, dispatch, math};
use crate::threads::share::{chunk_len, threads_for};

/// The function of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Softmax {
    /// `e^(beta · x)`, normalized to sum up to 1.
    Probabilities {
        /// Factor of the exponents.
        beta: f32,
    },
    /// Logarithms of the probabilities with a `beta` of 1.
    Logarithms,
}

/// Cost of an element, in elements of a cheap function.
const COST: usize = 8;

/// Applies the function to each row of `depth` elements.
///
/// # Errors
/// Fails if the lengths differ, or are not multiples of `depth`.
pub fn softmax(
    isa: Isa,
    kind: Softmax,
    depth: usize,
    input: &[f32],
    out: &mut [f32],
    par: &dyn Parallel,
) -> Result<()> {
    check_len("output", out.len(), input.len())?;
    rows(isa, kind, depth, Some(input), out, par)
}

/// [`softmax`] in place.
///
/// # Errors
/// Fails if the length is not a multiple of `depth`.
pub fn softmax_in_place(
    isa: Isa,
    kind: Softmax,
    depth: usize,
    out: &mut [f32],
    par: &dyn Parallel,
) -> Result<()> {
    rows(isa, kind, depth, None, out, par)
}

fn rows(
    isa: Isa,
    kind: Softmax,
    depth: usize,
    input: Option<&[f32]>,
    out: &mut [f32],
    par: &dyn Parallel,
) -> Result<()> {
    check_multiple("elements of input", out.len(), depth)?;
    let rows = out.len().checked_div(depth).unwrap_or(0);
    let par = threads_for(par, out.len().saturating_mul(COST));
    let chunk = chunk_len(par, rows, depth * COST);
    let shared = SharedMut::new(out);
    par.run(rows.div_ceil(chunk), &|task| {
        let rows = task * chunk..((task + 1) * chunk).min(rows);
        let input = input.map(|input| &input[rows.start * depth..rows.end * depth]);
        // SAFETY: rows of tasks are disjoint, and `Parallel::run` calls each task at most once.
        let out = unsafe { shared.slice(rows.start * depth, rows.len() * depth) };
        dispatch(isa, RowsTask { kind, depth, input, out });
    });
    Ok(())
}

struct RowsTask<'a> {
    kind: Softmax,
    depth: usize,
    /// Elements with the output's length; `None` computes in place.
    input: Option<&'a [f32]>,
    out: &'a mut [f32],
}

/// Evaluates an expression per vector of a row, with another one for the last, incomplete vector.
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

/// Sum or maximum of lanes, in halves: one after the other, they would wait for each other. Missing lanes are neutral.
#[inline(always)]
fn fold<const MAX: bool>(mut lanes: [f32; 16]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            let (a, b) = (lanes[i], lanes[i + half]);
            lanes[i] = if !MAX {
                a + b
            } else if b > a {
                b
            } else {
                a
            };
        }
    }
    lanes[0]
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
        let (mut lanes, mut highest) = ([0f32; 16], [f32::NEG_INFINITY; 16]);
        for (i, out) in self.out.chunks_exact_mut(depth).enumerate() {
            let to = out.as_mut_ptr();
            let from = self.input.map_or(to.cast_const(), |input| input[i * depth..][..depth].as_ptr());
            // SAFETY: both rows have `depth` elements, and may be one. `lanes` is as long as the longest vector. The
            // instructions exist by the caller's contract.
            unsafe {
                let lowest = S::splat(f32::NEG_INFINITY);
                let mut most = lowest;
                vectors!(S, depth, i, n => most = S::max(S::load(from.add(i)), most), {
                    if depth >= S::LANES {
                        // Some elements are read twice, which does not change the maximum.
                        most = S::max(S::load(from.add(depth - S::LANES)), most);
                    } else {
                        for k in 0..n {
                            most = S::max(S::splat(*from.add(i + k)), most);
                        }
                    }
                });
                S::store(highest.as_mut_ptr(), most);
                let max = fold::<true>(highest);
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
                let mut sums = [0f32; 16];
                S::store(sums.as_mut_ptr(), sum);
                let total = fold::<false>(sums) + rest;
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

/// SOFTMAX of bytes by a table.
#[derive(Clone, Debug)]
pub struct SoftmaxBytes {
    /// For each difference `x` of two bytes: `e^(-beta · s · x)`, where `s` is the scale of the input.
    pub exp: Vec<f32>,
    /// Scale of the output.
    pub scale: f32,
    /// Added to signed results; not used for unsigned ones.
    pub zero_point: i32,
    /// Whether bytes are signed. Signed results round ties away from zero; unsigned results are rounded by adding a
    /// half and truncating.
    pub signed: bool,
}

impl SoftmaxBytes {
    /// Computes the probabilities of each row of `depth` elements.
    ///
    /// # Errors
    /// Fails if the table does not have 256 entries, the lengths differ, or they are not multiples of `depth`.
    pub fn run(
        &self,
        isa: Isa,
        depth: usize,
        input: &[u8],
        out: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        check_len("table", self.exp.len(), 256)?;
        check_len("output", out.len(), input.len())?;
        check_multiple("elements of input", input.len(), depth)?;
        let Ok(exp) = <&[f32; 256]>::try_from(&self.exp[..]) else { return Ok(()) };
        let rows = input.len().checked_div(depth).unwrap_or(0);
        let par = threads_for(par, input.len().saturating_mul(COST));
        let chunk = chunk_len(par, rows, depth * COST);
        let shared = SharedMut::new(out);
        par.run(rows.div_ceil(chunk), &|task| {
            let rows = task * chunk..((task + 1) * chunk).min(rows);
            let input = &input[rows.start * depth..rows.end * depth];
            // SAFETY: rows of tasks are disjoint, and `Parallel::run` calls each task at most once.
            let out = unsafe { shared.slice(rows.start * depth, input.len()) };
            dispatch(isa, BytesTask { shape: self, exp, depth, input, out });
        });
        Ok(())
    }
}

/// Rounds a probability in units of the output's scale to a byte.
#[inline(always)]
fn steps(probability: f32, signed: bool, zero_point: i32) -> u8 {
    let steps = if signed { probability.round() } else { probability + 0.5 };
    let steps = if steps.is_nan() { 0.0 } else { steps };
    // SAFETY: finite and within the range of an i32: NaN was replaced and the value is clamped.
    let steps: i32 = unsafe { steps.clamp(-512.0, 512.0).to_int_unchecked() };
    match signed {
        true => (steps + zero_point).clamp(-128, 127) as u8,
        false => steps.clamp(0, 255) as u8,
    }
}

/// Maximum number of elements of a short row.
const SHORT: usize = 128;

struct BytesTask<'a> {
    shape: &'a SoftmaxBytes,
    exp: &'a [f32; 256],
    depth: usize,
    input: &'a [u8],
    out: &'a mut [u8],
}

impl SimdTask for BytesTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let SoftmaxBytes { scale, zero_point, signed, .. } = *self.shape;
        let flip = if signed { 0x80 } else { 0 };
        // For short rows the result of each element is computed, for longer ones the result of each difference.
        let (mut results, mut exps) = ([0u8; 256], [0f32; SHORT]);
        for (row, out) in self.input.chunks_exact(self.depth).zip(self.out.chunks_exact_mut(self.depth)) {
            let max = row.iter().fold(0, |max: u8, x| max.max(x ^ flip));
            // TFLite sums up in this order, which affects the last bits.
            let mut sum = 0f32;
            if let Some(exps) = exps.get_mut(..row.len()) {
                for (exp, x) in exps.iter_mut().zip(row) {
                    *exp = self.exp[usize::from(max.wrapping_sub(x ^ flip))];
                    sum += *exp;
                }
                let factor = 1.0 / (sum * scale);
                out.iter_mut().zip(exps).for_each(|(o, exp)| *o = steps(*exp * factor, signed, zero_point));
                continue;
            }
            for x in row {
                sum += self.exp[usize::from(max.wrapping_sub(x ^ flip))];
            }
            let factor = 1.0 / (sum * scale);
            results
                .iter_mut()
                .zip(self.exp)
                .for_each(|(r, exp)| *r = steps(*exp * factor, signed, zero_point));
            for (o, x) in out.iter_mut().zip(row) {
                *o = results[usize::from(max.wrapping_sub(x ^ flip))];
            }
        }
    }
}
