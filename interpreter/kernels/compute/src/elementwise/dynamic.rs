//! Float activations with integer weights: quantization of the input, and scaling of the sums.

use delegraph_core::kernel::Parallel;

use crate::base::buffer::SharedMut;
use crate::base::clamp::Clamp;
use crate::base::error::{ComputeError, Result, check_len, check_multiple, product};
use crate::base::isa::Isa;
use crate::simd::{Simd, SimdTask, dispatch};
use crate::threads::share::{chunk_len, is_one_task, threads_for};

/// Minimum and maximum of the values and 0. NaN is ignored.
pub fn extent(isa: Isa, values: &[f32]) -> [f32; 2] {
    dispatch(isa, ExtentTask(values))
}

struct ExtentTask<'a>(&'a [f32]);

impl SimdTask for ExtentTask<'_> {
    type Out = [f32; 2];

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> [f32; 2] {
        // SAFETY: the instructions exist by the caller's contract.
        all_lanes(&unsafe { extents_of_lanes::<S>(self.0) })
    }
}

/// Minima and maxima of 0 and the values at the positions of each lane.
///
/// # Safety
/// The processor must have the instructions of `S`.
#[inline(always)]
unsafe fn extents_of_lanes<S: Simd>(values: &[f32]) -> [[f32; 16]; 2] {
    let (from, len) = (values.as_ptr(), values.len());
    let mut lanes = [[0f32; 16]; 2];
    // SAFETY: loads are inside the slice, and stores inside an array as long as the longest vector. The instructions
    // exist by the caller's contract.
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
    lanes
}

/// Minimum and maximum of all lanes: in halves, quarters, and so on, which are vectors, too.
#[inline(always)]
fn all_lanes([low, high]: &[[f32; 16]; 2]) -> [f32; 2] {
    // No lane is NaN.
    let less = |a: f32, b: f32| if b < a { b } else { a };
    let more = |a: f32, b: f32| if b > a { b } else { a };
    let low8: [f32; 8] = std::array::from_fn(|i| less(low[i], low[i + 8]));
    let high8: [f32; 8] = std::array::from_fn(|i| more(high[i], high[i + 8]));
    let low4: [f32; 4] = std::array::from_fn(|i| less(low8[i], low8[i + 4]));
    let high4: [f32; 4] = std::array::from_fn(|i| more(high8[i], high8[i + 4]));
    [
        less(less(low4[0], low4[2]), less(low4[1], low4[3])),
        more(more(high4[0], high4[2]), more(high4[1], high4[3])),
    ]
}

/// Quantization of rows at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantizing {
    /// With zero point 0; the largest magnitude becomes 127.
    Symmetric,
    /// The range, extended to include 0, takes all 256 values.
    Asymmetric,
}

/// Scale, its inverse and zero point of a row.
#[derive(Clone, Copy)]
struct RowParams {
    scale: f32,
    inverse: f32,
    zero_point: i32,
}

impl Quantizing {
    /// With zero points if `asymmetric`.
    pub fn new(asymmetric: bool) -> Self {
        if asymmetric { Quantizing::Asymmetric } else { Quantizing::Symmetric }
    }

    /// The minimum of quantized values; the maximum is always 127.
    fn low(self) -> i8 {
        match self {
            Quantizing::Symmetric => -127,
            Quantizing::Asymmetric => -128,
        }
    }

    /// The params of a row with this extent, which includes 0. Without branches, the params of several rows are computed
    /// in vectors.
    #[inline(always)]
    fn params(self, [low, high]: [f32; 2]) -> RowParams {
        match self {
            Quantizing::Symmetric => {
                let range = if high > -low { high } else { -low };
                let zero = range == 0.0;
                let (scale, inverse) = (range / 127.0, 127.0 / range);
                let (scale, inverse) = (if zero { 1.0 } else { scale }, if zero { 1.0 } else { inverse });
                RowParams { scale, inverse, zero_point: 0 }
            }
            Quantizing::Asymmetric => {
                let zero = low == high;
                // TFLite computes the range in single precision, and the rest in double precision.
                let exact = f64::from(high - low) / 255.0;
                let exact = if zero { 1.0 } else { exact };
                let (low, high) = (f64::from(low) / exact, f64::from(high) / exact);
                // The end of the range nearer to 0 determines the zero point, which loses less precision.
                let from_low = 128.0 + low.abs() < 127.0 + high.abs();
                let zero_point = if from_low { -128.0 - low } else { 127.0 - high };
                let zero_point = if zero { 0.0 } else { zero_point };
                let scale = exact as f32;
                RowParams { scale, inverse: 1.0 / scale, zero_point: round_small(zero_point) }
            }
        }
    }
}

/// Rounds to nearest, ties away from zero, and clamps to the range of a byte. [`f64::round`] is a call of a library
/// function on some targets.
#[inline(always)]
fn round_small(x: f64) -> i32 {
    let x = if x > -128.0 { x } else { -128.0 };
    let x = if x < 127.0 { x } else { 127.0 };
    // SAFETY: within the range of an i32; NaN was replaced.
    let whole: i32 = unsafe { x.to_int_unchecked() };
    let rest = x - f64::from(whole);
    whole + i32::from(rest >= 0.5) - i32::from(rest <= -0.5)
}

/// Quantizes each row of `row` values to `steps`, with a scale and a zero point of its own. NaN becomes the zero point.
///
/// # Errors
/// Fails if lengths do not match.
#[allow(clippy::too_many_arguments, reason = "one argument per operand")]
pub fn quantize_rows(
    isa: Isa,
    quantizing: Quantizing,
    row: usize,
    values: &[f32],
    steps: &mut [i8],
    scales: &mut [f32],
    zero_points: &mut [i32],
    par: &dyn Parallel,
) -> Result<()> {
    let rows = scales.len();
    check_len("zero points", zero_points.len(), rows)?;
    check_len("values", values.len(), product("values", &[rows, row])?)?;
    check_len("steps", steps.len(), values.len())?;
    if let ([scale], [zero_point]) = (&mut *scales, &mut *zero_points) {
        let params = quantizing.params(extent(isa, values));
        (*scale, *zero_point) = (params.scale, params.zero_point);
        return to_steps(isa, values, params.inverse, params.zero_point, quantizing.low(), steps);
    }
    // The extent and the steps take some instructions per vector each.
    const COST: usize = 4;
    let work = values.len().saturating_mul(COST);
    if is_one_task(work) {
        dispatch(isa, RowsTask { quantizing, row, values, steps, scales, zero_points });
        return Ok(());
    }
    let par = threads_for(par, work);
    let chunk = chunk_len(par, rows, row.saturating_mul(COST));
    let (steps, scales, zero_points) =
        (SharedMut::new(steps), SharedMut::new(scales), SharedMut::new(zero_points));
    par.run(rows.div_ceil(chunk), &|task| {
        let (first, count) = (task * chunk, chunk.min(rows - task * chunk));
        let values = &values[first * row..][..count * row];
        // SAFETY: rows of tasks are disjoint, and `Parallel::run` calls each task at most once.
        let (steps, scales, zero_points) = unsafe {
            (
                steps.slice(first * row, count * row),
                scales.slice(first, count),
                zero_points.slice(first, count),
            )
        };
        dispatch(isa, RowsTask { quantizing, row, values, steps, scales, zero_points });
    });
    Ok(())
}

/// The pixels of an image that are in steps of a stride, beginning with the first one.
#[derive(Clone, Copy, Debug)]
pub struct Pixels {
    /// Pixels of a row of the image.
    pub width: usize,
    /// Values of a pixel.
    pub channels: usize,
    /// Vertical and horizontal steps.
    pub stride: [usize; 2],
    /// Numbers of rows and columns of pixels.
    pub count: [usize; 2],
}

/// As [`quantize_rows`], where each row is an image of `image` values of which only some `pixels` are used: these alone
/// are quantized, one after another, with the params of the whole image.
///
/// # Errors
/// Fails if lengths do not match, or a pixel is outside of the image.
#[allow(clippy::too_many_arguments, reason = "one argument per operand")]
pub fn quantize_pixels(
    isa: Isa,
    quantizing: Quantizing,
    image: usize,
    pixels: Pixels,
    values: &[f32],
    steps: &mut [i8],
    scales: &mut [f32],
    zero_points: &mut [i32],
    par: &dyn Parallel,
) -> Result<()> {
    let Pixels { width, channels, stride, count } = pixels;
    let images = scales.len();
    check_len("zero points", zero_points.len(), images)?;
    check_len("values", values.len(), product("values", &[images, image])?)?;
    let kept = product("steps", &[count[0], count[1], channels])?;
    check_len("steps", steps.len(), product("steps", &[images, kept])?)?;
    if kept == 0 {
        return Ok(());
    }
    let last = |axis: usize| product("pixels", &[count[axis] - 1, stride[axis]]);
    let end =
        product("pixels", &[last(0)?, width])?.checked_add(last(1)?).and_then(|last| last.checked_add(1));
    if end.and_then(|end| end.checked_mul(channels)).is_none_or(|end| end > image) {
        return Err(ComputeError::Range { what: "pixel: it is outside the image" });
    }
    let images = values.chunks_exact(image).zip(steps.chunks_exact_mut(kept));
    for ((values, steps), (scale, zero_point)) in images.zip(scales.iter_mut().zip(zero_points)) {
        if par.is_interrupted() {
            break;
        }
        let params = quantizing.params(extent(isa, values));
        (*scale, *zero_point) = (params.scale, params.zero_point);
        dispatch(isa, PixelsTask { quantizing, pixels, values, params, steps });
    }
    Ok(())
}

struct PixelsTask<'a> {
    quantizing: Quantizing,
    /// Inside of the image.
    pixels: Pixels,
    values: &'a [f32],
    params: RowParams,
    steps: &'a mut [i8],
}

impl SimdTask for PixelsTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Pixels { width, channels, stride, count } = self.pixels;
        let steps = Steps {
            inverse: self.params.inverse,
            zero_point: self.params.zero_point as f32,
            low: self.quantizing.low().into(),
        };
        for (i, out) in self.steps.chunks_exact_mut(channels).enumerate() {
            let pixel = i / count[1] * stride[0] * width + i % count[1] * stride[1];
            let values = &self.values[pixel * channels..][..channels];
            // SAFETY: the caller meets the contract of this function.
            unsafe { StepsTask { values, steps, out }.run::<S>() };
        }
    }
}

struct RowsTask<'a> {
    quantizing: Quantizing,
    row: usize,
    values: &'a [f32],
    steps: &'a mut [i8],
    scales: &'a mut [f32],
    zero_points: &'a mut [i32],
}

/// Rows whose params are computed at a time.
const ROWS: usize = 8;

impl SimdTask for RowsTask<'_> {
    type Out = ();

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "closures may be left without the instructions")]
    unsafe fn run<S: Simd>(self) {
        let mut task = self;
        let rows = task.scales.len();
        let mut first = 0;
        while first < rows {
            let count = ROWS.min(rows - first);
            // Arrays of each kind, whose loops the compiler turns into vectors.
            let (mut low, mut high) = ([0f32; ROWS], [0f32; ROWS]);
            for i in 0..count {
                let values = &task.values[(first + i) * task.row..][..task.row];
                // SAFETY: the instructions exist by the caller's contract.
                [low[i], high[i]] = all_lanes(&unsafe { extents_of_lanes::<S>(values) });
            }
            let (mut scale, mut inverse, mut zero_point) = ([0f32; ROWS], [0f32; ROWS], [0; ROWS]);
            macro_rules! params {
                ($quantizing:expr) => {
                    for i in 0..ROWS {
                        let params = $quantizing.params([low[i], high[i]]);
                        scale[i] = params.scale;
                        inverse[i] = params.inverse;
                        zero_point[i] = params.zero_point;
                    }
                };
            }
            match task.quantizing {
                Quantizing::Symmetric => params!(Quantizing::Symmetric),
                Quantizing::Asymmetric => params!(Quantizing::Asymmetric),
            }
            for i in 0..count {
                let (scale, inverse, zero_point) = (scale[i], inverse[i], zero_point[i]);
                // SAFETY: see above.
                unsafe { task.row::<S>(first + i, RowParams { scale, inverse, zero_point }) };
            }
            first += count;
        }
    }
}

impl RowsTask<'_> {
    /// Quantizes row `i`.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`.
    #[inline(always)]
    unsafe fn row<S: Simd>(&mut self, i: usize, params: RowParams) {
        let steps = Steps {
            inverse: params.inverse,
            zero_point: params.zero_point as f32,
            low: self.quantizing.low().into(),
        };
        let values = &self.values[i * self.row..][..self.row];
        let out = &mut self.steps[i * self.row..][..self.row];
        // SAFETY: the caller meets the contract of this function.
        unsafe { StepsTask { values, steps, out }.run::<S>() };
        (self.scales[i], self.zero_points[i]) = (params.scale, params.zero_point);
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

/// Number of values converted at a time. With a constant, the compiler generates a loop over whole vectors; with an
/// unknown number, it would add a remainder loop.
const CHUNK: usize = 64;
/// Number of values converted at a time after the last whole chunk, so that fewer of them are copied.
const SHORT: usize = 16;

#[derive(Clone, Copy)]
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

    /// Scales `sums` `[rows, columns]` to `out`: `clamp((sum - zero_point · total) · (scale · weight_scale) + bias)`.
    /// `inputs` are the scale and the zero point of each input, which has `per_input` rows.
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
    /// Scales sums `[rows, columns]` of DEPTHWISE_CONV_2D, integers stored as floats, in place, for an input with one
    /// scale and zero point 0; then adds the bias and clamps. TFLite handles groups of four columns, which it
    /// multiplies by their own scale first, and the rest, which it multiplies by the input's scale first.
    ///
    /// # Errors
    /// Fails if the length is not a multiple of the number of columns.
    pub fn scale(
        &self,
        isa: Isa,
        scale: f32,
        out: &mut [f32],
        clamp: Clamp,
        par: &dyn Parallel,
    ) -> Result<()> {
        let (columns, len) = (self.columns, out.len());
        check_multiple("elements of output", len, columns)?;
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
    use crate::Serial;
    use crate::random::Rng;

    #[test]
    fn small_numbers_are_rounded_as_the_library_rounds() {
        for i in -130 * 64..=130 * 64 {
            let x = f64::from(i) / 64.0;
            for x in [x, x.next_up(), x.next_down()] {
                assert_eq!(round_small(x), x.clamp(-128.0, 127.0).round() as i32, "{x}");
            }
        }
    }

    #[test]
    fn pixels_that_are_left_out_count_for_the_extent() {
        let mut rng = Rng::new(5);
        let (height, width, channels) = (5, 4, 19);
        let image = height * width * channels;
        let values: Vec<f32> = (0..2 * image).map(|_| rng.range(0, 2000) as f32 / 100.0 - 7.0).collect();
        for &isa in Isa::available() {
            for quantizing in [Quantizing::Symmetric, Quantizing::Asymmetric] {
                let (mut all, mut scales, mut zeros) = (vec![0; values.len()], [0.0; 2], [0; 2]);
                quantize_rows(isa, quantizing, image, &values, &mut all, &mut scales, &mut zeros, &Serial)
                    .unwrap();
                for (stride, count) in
                    [([2, 1], [3, 4]), ([2, 2], [3, 2]), ([3, 3], [2, 2]), ([5, 4], [1, 1])]
                {
                    let pixels = Pixels { width, channels, stride, count };
                    let (mut kept, mut own, mut own_zeros) =
                        (vec![0; 2 * count[0] * count[1] * channels], [0.0; 2], [0; 2]);
                    let run = |values: &[f32], steps: &mut [i8], scales: &mut [f32], zeros: &mut [i32]| {
                        quantize_pixels(isa, quantizing, image, pixels, values, steps, scales, zeros, &Serial)
                    };
                    run(&values, &mut kept, &mut own, &mut own_zeros).unwrap();
                    assert_eq!((own, own_zeros), (scales, zeros));
                    let mut expected = Vec::new();
                    for (i, y, x) in (0..2 * count[0] * count[1])
                        .map(|n| (n / count[1] / count[0], n / count[1] % count[0], n % count[1]))
                    {
                        let pixel = (i * height + y * stride[0]) * width + x * stride[1];
                        expected.extend_from_slice(&all[pixel * channels..][..channels]);
                    }
                    assert_eq!(kept, expected, "{stride:?}");
                }
            }
        }
        let outside = Pixels { width, channels, stride: [2, 2], count: [4, 2] };
        let (steps, scale, zero) = (&mut vec![0; 8 * channels], &mut [0.0], &mut [0]);
        let one = &values[..image];
        let quantizing = Quantizing::Symmetric;
        assert!(
            quantize_pixels(Isa::best(), quantizing, image, outside, one, steps, scale, zero, &Serial)
                .is_err()
        );
    }

    #[test]
    fn activations_quantized_while_running() {
        let check = |quantizing, values: &[f32], (scale, zero): (f32, i32), expected: &[i8]| {
            let (mut steps, mut scales, mut zeros) = (vec![1; values.len()], [0.0], [1]);
            let (isa, row) = (Isa::best(), values.len());
            quantize_rows(isa, quantizing, row, values, &mut steps, &mut scales, &mut zeros, &Serial)
                .unwrap();
            assert_eq!((scales, zeros, &steps[..]), ([scale], [zero], expected));
        };
        check(Quantizing::Symmetric, &[-2.0, 1.0, 0.0, 0.5], (2.0 / 127.0, 0), &[-127, 64, 0, 32]);
        check(Quantizing::Asymmetric, &[0.0, 51.0, 102.0, 255.0], (1.0, -128), &[-128, -77, -26, 127]);
        check(Quantizing::Asymmetric, &[0.0; 4], (1.0, 0), &[0; 4]);
        // Ties round away from zero before the zero point is added.
        check(Quantizing::Asymmetric, &[-100.0, 0.5, -0.5, 155.0], (1.0, -28), &[-128, -27, -29, 127]);
    }

    /// Several rows have the results of single ones.
    #[test]
    fn rows_are_quantized_separately() {
        let mut rng = Rng::new(52);
        let pool = crate::ThreadPool::new(2);
        for &isa in Isa::available() {
            for (rows, row) in [(0, 5), (3, 7), (8, 16), (9, 33), (40, 64), (700, 130)] {
                let mut values = rng.floats(rows * row);
                if rows > 2 {
                    // NaN, a row of zeros, and one of positive values.
                    values[0] = f32::NAN;
                    values[row..2 * row].fill(0.0);
                    values[2 * row..3 * row].iter_mut().for_each(|x| *x = x.abs());
                }
                for quantizing in [Quantizing::Symmetric, Quantizing::Asymmetric] {
                    let (mut steps, mut scales, mut zeros) =
                        (vec![1; rows * row], vec![0.0; rows], vec![1; rows]);
                    quantize_rows(isa, quantizing, row, &values, &mut steps, &mut scales, &mut zeros, &pool)
                        .unwrap();
                    for i in 0..rows {
                        let (mut own, mut scale, mut zero) = (vec![1; row], [0.0], [1]);
                        let values = &values[i * row..][..row];
                        quantize_rows(isa, quantizing, row, values, &mut own, &mut scale, &mut zero, &Serial)
                            .unwrap();
                        assert_eq!((scales[i], zeros[i]), (scale[0], zero[0]), "{} {rows} {row}", isa.name());
                        assert_eq!(steps[i * row..][..row], own, "{} {rows} {row}", isa.name());
                    }
                }
            }
        }
    }

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
        // Four columns are multiplied by their own scale first, the fifth by the input's: 3 · 0.1 · 0.7 depends on the
        // order.
        let scales = SumScales::new(&[0.1; 5], vec![0; 5], None).unwrap();
        let mut row = [3.0; 5];
        scales.scale(Isa::best(), 0.7, &mut row, Clamp::NONE, &Serial).unwrap();
        let (own_first, input_first) = (3.0 * 0.1 * 0.7, 3.0 * 0.7 * 0.1);
        assert_ne!(own_first, input_first);
        assert_eq!(row, [own_first, own_first, own_first, own_first, input_first]);
    }
}
