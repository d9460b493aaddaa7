//! Float activations with integer weights: quantization of the input, and scaling of the sums.

use delegraph_core::kernel::Parallel;

use crate::compute::base::buffer::SharedMut;
use crate::compute::base::clamp::Clamp;
use crate::compute::base::error::{Result, check_len, product};
use crate::compute::base::isa::Isa;
use crate::compute::simd::{Simd, SimdTask, dispatch};
use crate::compute::threads::share::{chunk_len, threads_for};

/// Minimum and maximum of the values and 0. NaN is ignored.
pub fn extent(isa: Isa, values: &[f32]) -> [f32; 2] {
    dispatch(isa, ExtentTask(values))
}

struct ExtentTask<'a>(&'a [f32]);

impl SimdTask for ExtentTask<'_> {
    type Out = [f32; 2];

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> [f32; 2] {
        let (from, len) = (self.0.as_ptr(), self.0.len());
        let mut lanes = [[0f32; 16]; 2];
        // SAFETY: loads are inside the slice, and stores inside an array as long as the longest vector. The
        // instructions exist by the caller's contract.
        unsafe {
            let mut low = [S::splat(0.0); 4];
            let mut high = low;
            let mut i = 0;
            while i + 4 * S::LANES <= len {
                for u in 0..4 {
                    let x = S::load(from.add(i + u * S::LANES));
                    // These return the second operand if one is NaN.
                    low[u] = S::min(x, low[u]);
                    high[u] = S::max(x, high[u]);
                }
                i += 4 * S::LANES;
            }
            while i + S::LANES <= len {
                let x = S::load(from.add(i));
                low[0] = S::min(x, low[0]);
                high[0] = S::max(x, high[0]);
                i += S::LANES;
            }
            if i < len {
                // Missing lanes are 0, which is part of the extent.
                let x = S::load_n(from.add(i), len - i);
                low[0] = S::min(x, low[0]);
                high[0] = S::max(x, high[0]);
            }
            for u in 1..4 {
                low[0] = S::min(low[u], low[0]);
                high[0] = S::max(high[u], high[0]);
            }
            S::store(lanes[0].as_mut_ptr(), low[0]);
            S::store(lanes[1].as_mut_ptr(), high[0]);
        }
        // Halves, quarters, and so on, which are vectors, too. No lane is NaN.
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                let (a, b) = (lanes[0][i], lanes[0][i + half]);
                lanes[0][i] = if b < a { b } else { a };
                let (a, b) = (lanes[1][i], lanes[1][i + half]);
                lanes[1][i] = if b > a { b } else { a };
            }
        }
        [lanes[0][0], lanes[1][0]]
    }
}

/// `value · inverse`, rounded to nearest with ties away from zero, plus `zero_point`, clamped to `low..=127`. NaN
/// becomes the zero point.
///
/// # Errors
/// Fails if the lengths differ.
pub fn to_steps(
    isa: Isa,
    values: &[f32],
    inverse: f32,
    zero_point: i32,
    low: i8,
    out: &mut [i8],
) -> Result<()> {
    check_len("steps", out.len(), values.len())?;
    let steps = Steps { inverse, zero_point: zero_point as f32, low: low.into() };
    dispatch(isa, StepsTask { values, steps, out });
    Ok(())
}

struct StepsTask<'a> {
    values: &'a [f32],
    steps: Steps,
    out: &'a mut [i8],
}

impl SimdTask for StepsTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (values, rest) = self.values.as_chunks::<CHUNK>();
        let (out, rest_out) = self.out.as_chunks_mut::<CHUNK>();
        for i in 0..values.len().min(out.len()) {
            self.steps.chunk(&values[i], &mut out[i]);
        }
        let (values, rest) = rest.as_chunks::<SHORT>();
        let (out, rest_out) = rest_out.as_chunks_mut::<SHORT>();
        for i in 0..values.len().min(out.len()) {
            self.steps.chunk(&values[i], &mut out[i]);
        }
        if !rest.is_empty() {
            let (mut values, mut out) = ([0f32; SHORT], [0i8; SHORT]);
            values[..rest.len()].copy_from_slice(rest);
            self.steps.chunk(&values, &mut out);
            rest_out.copy_from_slice(&out[..rest_out.len()]);
        }
    }
}

/// Number of values converted at a time. For this constant the compiler generates a loop over whole vectors, and adds a
/// remainder loop if the number is unknown.
const CHUNK: usize = 64;
/// Number of the last values converted at a time: short rows are converted without a copy.
const SHORT: usize = 16;

struct Steps {
    inverse: f32,
    zero_point: f32,
    low: f32,
}

impl Steps {
    #[inline(always)]
    fn chunk<const N: usize>(&self, values: &[f32; N], out: &mut [i8; N]) {
        for i in 0..N {
            let steps = values[i] * self.inverse;
            let steps = if steps.is_nan() { 0.0 } else { steps };
            let steps = self.zero_point + steps.round();
            let steps = if steps > self.low { steps } else { self.low };
            let steps = if steps < 127.0 { steps } else { 127.0 };
            // SAFETY: within the range of an i32: NaN was replaced, the zero point is finite, and the sum is clamped.
            let steps: i32 = unsafe { steps.to_int_unchecked() };
            out[i] = steps as i8;
        }
    }
}

/// Scales sums of products of quantized values to floats, per column (unit, output channel).
#[derive(Clone, Debug)]
pub struct SumScales {
    columns: usize,
    /// Scales of the weights. If there are few columns, they are repeated (also below), so that loops are long.
    scales: Vec<f32>,
    /// Sums of the weights, by which zero points are multiplied.
    totals: Vec<i32>,
    bias: Option<Vec<f32>>,
}

/// Minimum length of the loops over rows of the same scale.
const LONG: usize = 64;

impl SumScales {
    /// For weights of `totals.len()` columns with `scales`, one for all or one each.
    ///
    /// # Errors
    /// Fails if lengths do not match.
    pub fn new(scales: &[f32], totals: Vec<i32>, bias: Option<&[f32]>) -> Result<Self> {
        let columns = totals.len();
        let scales = if let [one] = scales { vec![*one; columns] } else { scales.to_vec() };
        check_len("scales", scales.len(), columns)?;
        if let Some(bias) = bias {
            check_len("bias", bias.len(), columns)?;
        }
        let times = LONG.div_ceil(columns.max(1));
        let bias = bias.map(|bias| bias.repeat(times));
        Ok(Self { columns, scales: scales.repeat(times), totals: totals.repeat(times), bias })
    }

    /// Scales `sums` `[rows, columns]`. Each input has `per_input` rows, a scale and a zero point.
    ///
    /// # Errors
    /// Fails if lengths do not match.
    #[allow(clippy::too_many_arguments, reason = "one argument per operand")]
    pub fn run(
        &self,
        isa: Isa,
        per_input: usize,
        inputs: (&[f32], &[i32]),
        sums: &[i32],
        out: &mut [f32],
        clamp: Clamp,
        par: &dyn Parallel,
    ) -> Result<()> {
        let columns = self.columns;
        let rows = product("rows", &[per_input, inputs.0.len()])?;
        check_len("zero points", inputs.1.len(), inputs.0.len())?;
        check_len("sums", sums.len(), product("sums", &[rows, columns])?)?;
        check_len("output", out.len(), sums.len())?;
        if sums.is_empty() {
            return Ok(());
        }
        let par = threads_for(par, sums.len());
        let chunk = chunk_len(par, rows, columns);
        let shared = SharedMut::new(out);
        par.run(rows.div_ceil(chunk), &|task| {
            let mut row = task * chunk;
            let end = (row + chunk).min(rows);
            while row < end {
                // Rows of one input.
                let input = row / per_input;
                let count = ((input + 1) * per_input).min(end) - row;
                // SAFETY: rows of tasks are disjoint, and `Parallel::run` calls each task at most once.
                let out = unsafe { shared.slice(row * columns, count * columns) };
                let sums = &sums[row * columns..][..count * columns];
                let (scale, zero_point) = (inputs.0[input], inputs.1[input]);
                dispatch(isa, ScaleTask { columns: self, scale, sums, zero_point, out, clamp });
                row += count;
            }
        });
        Ok(())
    }
}

impl SumScales {
    /// Scales integers `[rows, columns]` in place, for an input with one scale and zero point 0: the sums of
    /// DEPTHWISE_CONV_2D. TFLite handles groups of four columns, which it multiplies by their own scale first, and the
    /// rest, which it multiplies by the input's scale first.
    ///
    /// # Errors
    /// Fails if lengths do not match.
    pub fn scale(
        &self,
        isa: Isa,
        scale: f32,
        out: &mut [f32],
        clamp: Clamp,
        par: &dyn Parallel,
    ) -> Result<()> {
        let (columns, len) = (self.columns, out.len());
        check_len("output", len % columns.max(1), 0)?;
        let rows = len.checked_div(columns).unwrap_or(0);
        let par = threads_for(par, len);
        let chunk = chunk_len(par, rows, columns);
        let shared = SharedMut::new(out);
        par.run(rows.div_ceil(chunk), &|task| {
            let (row, end) = (task * chunk, ((task + 1) * chunk).min(rows));
            // SAFETY: rows of tasks are disjoint, and `Parallel::run` calls each task at most once.
            let out = unsafe { shared.slice(row * columns, (end - row) * columns) };
            dispatch(isa, ScaleOnceEach { columns: self, scale, out, clamp });
        });
        Ok(())
    }
}

struct ScaleTask<'a> {
    columns: &'a SumScales,
    scale: f32,
    sums: &'a [i32],
    zero_point: i32,
    out: &'a mut [f32],
    clamp: Clamp,
}

impl SimdTask for ScaleTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let SumScales { scales, totals, bias, .. } = self.columns;
        let Clamp { low, high } = self.clamp;
        for (out, sums) in self.out.chunks_mut(totals.len()).zip(self.sums.chunks(totals.len())) {
            let len = out.len();
            let (sums, scales, totals) = (&sums[..len], &scales[..len], &totals[..len]);
            let value = |i: usize| {
                let sum = sums[i].wrapping_sub(self.zero_point.wrapping_mul(totals[i])) as f32;
                sum * (self.scale * scales[i])
            };
            let clamped = |x: f32| {
                let x = if x < low { low } else { x };
                if x > high { high } else { x }
            };
            match bias {
                Some(bias) => {
                    for (i, (out, bias)) in out.iter_mut().zip(&bias[..len]).enumerate() {
                        *out = clamped(value(i) + bias);
                    }
                }
                None => {
                    for (i, out) in out.iter_mut().enumerate() {
                        *out = clamped(value(i));
                    }
                }
            }
        }
    }
}

struct ScaleOnceEach<'a> {
    columns: &'a SumScales,
    scale: f32,
    out: &'a mut [f32],
    clamp: Clamp,
}

impl SimdTask for ScaleOnceEach<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let SumScales { columns, scales, bias, .. } = self.columns;
        let (scale, together) = (self.scale, columns / 4 * 4);
        // Columns with equal treatment in all rows can be repeated.
        let piece = if together == *columns { scales.len() } else { *columns };
        for out in self.out.chunks_mut(piece) {
            let len = out.len();
            let fours = if together == *columns { len } else { together };
            let (first, rest) = out.split_at_mut(fours);
            let (scales, rest_scales) = scales[..len].split_at(fours);
            for i in 0..first.len() {
                first[i] = first[i] * scales[i] * scale;
            }
            rest.iter_mut().zip(rest_scales).for_each(|(o, of_column)| *o = *o * scale * of_column);
            if let Some(bias) = bias {
                let bias = &bias[..len];
                for i in 0..len {
                    out[i] += bias[i];
                }
            }
            for o in out {
                let x = if *o < self.clamp.low { self.clamp.low } else { *o };
                *o = if x > self.clamp.high { self.clamp.high } else { x };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::Serial;
    use crate::compute::testing::Rng;

    #[test]
    fn extents_and_steps() {
        let mut rng = Rng::new(51);
        for &isa in Isa::available() {
            for len in 0..200 {
                let mut values = rng.floats(len);
                if len % 7 == 3 {
                    values[len / 2] = f32::NAN;
                }
                let fold = |f: fn(f32, f32) -> f32| values.iter().fold(0.0, |a, &b| f(a, b));
                assert_eq!(extent(isa, &values), [fold(f32::min), fold(f32::max)], "{} {len}", isa.name());
                let (zero, inverse) = (rng.range(0, 255) as i32 - 128, rng.float() * 300.0);
                let expected: Vec<i8> = values
                    .iter()
                    .map(|v| if v.is_nan() { 0.0 } else { (v * inverse).round() })
                    .map(|steps| (zero as f32 + steps).clamp(-127.0, 127.0) as i8)
                    .collect();
                let mut got = vec![0; len];
                to_steps(isa, &values, inverse, zero, -127, &mut got).unwrap();
                assert_eq!(got, expected, "{} {len}", isa.name());
            }
        }
    }

    #[test]
    fn sums_are_scaled() {
        let scales = SumScales::new(&[0.5, 2.0], vec![1, -3], Some(&[0.25, 0.5])).unwrap();
        let mut out = [0.0; 4];
        let inputs = (&[1.0, 0.5][..], &[0, 2][..]);
        scales
            .run(Isa::best(), 1, inputs, &[4, 5, 6, 7], &mut out, Clamp { low: 0.0, high: 12.0 }, &Serial)
            .unwrap();
        assert_eq!(out, [2.25, 10.5, 1.25, 12.0]);
        assert!(SumScales::new(&[0.5, 2.0], vec![1], None).is_err());
        // Four columns by their own scale first, the fifth by the input's: 3 times 0.1 times 0.7 rounds either way.
        let scales = SumScales::new(&[0.1; 5], vec![0; 5], None).unwrap();
        let mut row = [3.0; 5];
        scales.scale(Isa::best(), 0.7, &mut row, Clamp::NONE, &Serial).unwrap();
        let (own_first, input_first) = (3.0 * 0.1 * 0.7, 3.0 * 0.7 * 0.1);
        assert_ne!(own_first, input_first);
        assert_eq!(row, [own_first, own_first, own_first, own_first, input_first]);
    }
}
