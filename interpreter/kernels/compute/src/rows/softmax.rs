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

/// Rows that are computed together, which hides the latency of folds and shares their instructions.
const TOGETHER: usize = 4;

/// Maximum number of elements of a row that is computed with others: four rows and their results fit into the
/// first-level cache.
const TOGETHER_MAX: usize = 512;

impl SimdTask for RowsTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { kind, depth, input, out } = self;
        let (rows, to) = (out.len().checked_div(depth).unwrap_or(0), out.as_mut_ptr());
        let from = input.map_or(to.cast_const(), |input| input[..rows * depth].as_ptr());
        let mut row = 0;
        // SAFETY: both slices have `rows` rows, or are one; the instructions exist by the caller's contract.
        unsafe {
            while depth <= TOGETHER_MAX && row + TOGETHER <= rows {
                together::<S, TOGETHER>(kind, depth, from.add(row * depth), to.add(row * depth));
                row += TOGETHER;
            }
            while row < rows {
                together::<S, 1>(kind, depth, from.add(row * depth), to.add(row * depth));
                row += 1;
            }
        }
    }
}

/// The sum of the lanes of `R` vectors, or their maximum if `MAX`, as of [`Simd::fold4`]: in all lanes if `R` is 1, in
/// quarters if it is 4.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn fold<S: Simd, const R: usize, const MAX: bool>(v: [S::F; R]) -> S::F {
    // SAFETY: the caller meets the contract of this function.
    unsafe { S::fold4::<MAX>([v[0], v[1 % R], v[2 % R], v[3 % R]]) }
}

/// The results of [`fold`], each in all lanes of its vector.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn each<S: Simd, const R: usize>(folded: S::F) -> [S::F; R] {
    let mut rows = [folded; R];
    if R > 1 {
        // SAFETY: the caller meets the contract of this function.
        let quarters = unsafe { S::quarters(folded) };
        rows.iter_mut().zip(quarters).for_each(|(row, quarter)| *row = quarter);
    }
    rows
}

/// Applies the function to `R` rows, 1 or 4. Results of a row do not depend on the rows that are computed with it.
///
/// # Safety
/// The pointers must be valid for `R * depth` elements, and may be equal. The processor must have the instructions of
/// `S`.
#[inline(always)]
unsafe fn together<S: Simd, const R: usize>(kind: Softmax, depth: usize, from: *const f32, to: *mut f32) {
    let (beta, logarithms) = match kind {
        Softmax::Probabilities { beta } => (beta, false),
        Softmax::Logarithms => (1.0, true),
    };
    // The last, incomplete vectors stay in registers: reading back a store with a mask would have to wait for it.
    let (full, rest) = (depth - depth % S::LANES, depth % S::LANES);
    // SAFETY: valid by the caller's contract.
    unsafe {
        // With a negative factor, the lowest element has the highest exponent.
        let sign = S::splat(1f32.copysign(beta));
        let (lowest, zero) = (S::splat(f32::NEG_INFINITY), S::splat(0.0));
        // Lanes of `last` that are elements of a row.
        let mask = S::lt(S::load(LANE_NUMBERS.as_ptr()), S::splat(rest as f32));
        let mut last = [zero; R];
        let mut most = [lowest; R];
        for i in (0..full).step_by(S::LANES) {
            for (r, most) in most.iter_mut().enumerate() {
                *most = S::max(S::mul(S::load(from.add(r * depth + i)), sign), *most);
            }
        }
        if rest > 0 {
            for (r, (last, most)) in last.iter_mut().zip(&mut most).enumerate() {
                *last = S::load_n(from.add(r * depth + full), rest);
                *most = S::max(S::select(mask, S::mul(*last, sign), lowest), *most);
            }
        }
        let shift = each::<S, R>(S::mul(fold::<S, R, true>(most), sign));
        let factor = S::splat(beta);
        let mut sum = [zero; R];
        for i in (0..full).step_by(S::LANES) {
            for (r, (sum, shift)) in sum.iter_mut().zip(shift).enumerate() {
                let x = S::load(from.add(r * depth + i));
                let e = math::exp_negative::<S>(S::mul(S::sub(x, shift), factor));
                *sum = S::add(*sum, e);
                if !logarithms {
                    S::store(to.add(r * depth + i), e);
                }
            }
        }
        if rest > 0 {
            for ((last, sum), shift) in last.iter_mut().zip(&mut sum).zip(shift) {
                let e = math::exp_negative::<S>(S::mul(S::sub(*last, shift), factor));
                *sum = S::add(*sum, S::select(mask, e, zero));
                if !logarithms {
                    *last = e;
                }
            }
        }
        let total = fold::<S, R, false>(sum);
        if logarithms {
            let mut totals = [0f32; 16];
            S::store(totals.as_mut_ptr(), total);
            for (r, (last, shift)) in last.into_iter().zip(shift).enumerate() {
                let log = S::splat(totals[r * (S::LANES / 4)].ln());
                for i in (r * depth..r * depth + full).step_by(S::LANES) {
                    S::store(to.add(i), S::sub(S::sub(S::load(from.add(i)), shift), log));
                }
                if rest > 0 {
                    S::store_n(to.add(r * depth + full), S::sub(S::sub(last, shift), log), rest);
                }
            }
            return;
        }
        let scale = each::<S, R>(S::div(S::splat(1.0), total));
        for i in (0..full).step_by(S::LANES) {
            for (r, scale) in scale.into_iter().enumerate() {
                let to = to.add(r * depth + i);
                S::store(to, S::mul(S::load(to), scale));
            }
        }
        if rest > 0 {
            for (r, (last, scale)) in last.into_iter().zip(scale).enumerate() {
                S::store_n(to.add(r * depth + full), S::mul(last, scale), rest);
            }
        }
    }
}

/// The numbers of the lanes of the longest vector.
static LANE_NUMBERS: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

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

#[cfg(test)]
mod tests {
    use delegraph_core::kernel::Serial;

    use super::*;
    use crate::random::Rng;
    use crate::threads::pool::ThreadPool;

    /// The function of rows in double precision.
    fn expected(kind: Softmax, depth: usize, input: &[f32]) -> Vec<f64> {
        let beta = match kind {
            Softmax::Probabilities { beta } => beta.into(),
            Softmax::Logarithms => 1.0,
        };
        let of_row = |row: &[f32]| {
            let exponents: Vec<f64> = row.iter().map(|x| f64::from(*x) * beta).collect();
            let max = exponents.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let log = max + exponents.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
            exponents.into_iter().map(move |x| match kind {
                Softmax::Probabilities { .. } => (x - log).exp(),
                Softmax::Logarithms => x - log,
            })
        };
        input.chunks(depth).flat_map(of_row).collect()
    }

    #[test]
    fn rows_of_any_length() {
        let mut rng = Rng::new(53);
        let pool = ThreadPool::new(3);
        for &isa in Isa::available() {
            for round in 0..200 {
                let depth = if round % 10 == 0 { rng.range(1, 1200) } else { rng.range(1, 70) };
                let rows = if round % 20 == 5 { rng.range(300, 900) } else { rng.range(0, 9) };
                let range = [1.0, 10.0, 60.0][round % 3];
                let input: Vec<f32> = rng.floats(rows * depth).iter().map(|x| 3.0 + x * range).collect();
                let beta = [1.0, 1.0 + rng.float(), -1.0 - rng.float().abs(), 0.0][round / 2 % 4];
                let kind = [Softmax::Probabilities { beta }, Softmax::Logarithms][round % 2];
                let what = format!("{} {kind:?} {rows}x{depth}", isa.name());
                let mut out = vec![f32::NAN; input.len()];
                softmax(isa, kind, depth, &input, &mut out, &Serial).unwrap();
                for (i, (got, e)) in out.iter().zip(expected(kind, depth, &input)).enumerate() {
                    let tolerance =
                        if kind == Softmax::Logarithms { 1e-6 * (1.0 + e.abs()) } else { 5e-5 * e + 1e-37 };
                    assert!(
                        (f64::from(*got) - e).abs() <= tolerance,
                        "{what}: element {i} is {got}, expected {e}"
                    );
                }
                // Neither the rows that are computed with a row nor the threads change its results.
                let mut each = vec![f32::NAN; input.len()];
                for (row, to) in input.chunks(depth).zip(each.chunks_mut(depth)) {
                    softmax(isa, kind, depth, row, to, &Serial).unwrap();
                }
                assert_eq!(each, out, "{what}, row by row");
                let mut in_place = input.clone();
                softmax_in_place(isa, kind, depth, &mut in_place, &pool).unwrap();
                assert_eq!(in_place, out, "{what}, in place");
            }
        }
    }

    #[test]
    fn special_values() {
        let one = Softmax::Probabilities { beta: 1.0 };
        for (&isa, depth) in Isa::available().iter().flat_map(|isa| (2..70).map(move |depth| (isa, depth))) {
            // Five rows: all but two elements of the first and the last one are masked, the others have no result.
            let mut input = vec![f32::NEG_INFINITY; 5 * depth];
            for row in [0, 4] {
                (input[row * depth], input[row * depth + depth - 1]) = (-1e30, -1e30);
            }
            input[depth..3 * depth].fill(1.0);
            (input[2 * depth - 1], input[2 * depth]) = (f32::NAN, f32::INFINITY);
            let mut out = vec![0.0; input.len()];
            softmax(isa, one, depth, &input, &mut out, &Serial).unwrap();
            for (row, out) in out.chunks(depth).enumerate() {
                let right = |i: usize, x: f32| match row {
                    0 | 4 if i == 0 || i == depth - 1 => x == 0.5,
                    0 | 4 => x == 0.0,
                    _ => x.is_nan(),
                };
                assert!(
                    out.iter().enumerate().all(|(i, x)| right(i, *x)),
                    "{} row {row}: {out:?}",
                    isa.name()
                );
            }
        }
    }
}
