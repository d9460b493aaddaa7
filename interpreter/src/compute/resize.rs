//! RESIZE_BILINEAR.

use super::Parallel;
use super::buffer::SharedMut;
use super::error::{ComputeError, Result, check_len, product};
use super::isa::Isa;
use super::share::crew;
use super::simd::{Simd, SimdTask, dispatch};

/// Where an output row or column lies between two of the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tap<F> {
    /// The one above or to the left.
    pub low: usize,
    /// The one below or to the right.
    pub high: usize,
    /// How far beyond `low`, in pixels.
    pub fraction: F,
}

/// An element type that can be interpolated.
pub trait Interpolate: Copy + Send + Sync {
    /// What fractions are counted in.
    type Fraction: Copy + Send + Sync;
    /// Weights of the corners.
    type Weights: Copy;

    /// Weights of top left, top right, bottom left and bottom right.
    fn weights(y: Self::Fraction, x: Self::Fraction) -> [Self::Weights; 4];
    /// The weighted sum of the corners.
    fn mix(corners: [Self; 4], weights: [Self::Weights; 4]) -> Self;
}

impl Interpolate for f32 {
    type Fraction = f32;
    type Weights = f32;

    #[inline(always)]
    fn weights(y: f32, x: f32) -> [f32; 4] {
        [(1.0 - y) * (1.0 - x), (1.0 - y) * x, y * (1.0 - x), y * x]
    }

    #[inline(always)]
    fn mix([a, b, c, d]: [f32; 4], [wa, wb, wc, wd]: [f32; 4]) -> f32 {
        a * wa + b * wb + c * wc + d * wd
    }
}

impl Interpolate for u8 {
    type Fraction = f32;
    type Weights = f32;

    #[inline(always)]
    fn weights(y: f32, x: f32) -> [f32; 4] {
        f32::weights(y, x)
    }

    /// Rounded by adding a half and cutting off.
    #[inline(always)]
    fn mix(corners: [u8; 4], weights: [f32; 4]) -> u8 {
        let sum = f32::mix(corners.map(f32::from), weights) + 0.5;
        // SAFETY: a number within bounds: corners and weights are finite.
        let sum: i32 = unsafe { sum.clamp(0.0, 255.0).to_int_unchecked() };
        sum as u8
    }
}

impl Interpolate for i8 {
    /// With ten bits after the point.
    type Fraction = i32;
    type Weights = i32;

    #[inline(always)]
    fn weights(y: i32, x: i32) -> [i32; 4] {
        const ONE: i32 = 1 << 10;
        [(ONE - y) * (ONE - x), (ONE - y) * x, y * (ONE - x), y * x]
    }

    /// Rounded, halves away from zero.
    #[inline(always)]
    fn mix([a, b, c, d]: [i8; 4], [wa, wb, wc, wd]: [i32; 4]) -> i8 {
        let sum = i32::from(a) * wa + i32::from(b) * wb + i32::from(c) * wc + i32::from(d) * wd;
        let half = if sum > 0 { 1 << 19 } else { -(1 << 19) };
        ((sum + half) / (1 << 20)) as i8
    }
}

/// A resizing of images of one size.
#[derive(Clone, Debug)]
pub struct Bilinear<T: Interpolate> {
    from: [usize; 2],
    channels: usize,
    rows: Vec<Tap<T::Fraction>>,
    columns: Vec<Tap<T::Fraction>>,
}

impl<T: Interpolate> Bilinear<T> {
    /// From images of height and width `from`; one tap for each output row and column.
    ///
    /// # Errors
    /// Where a tap lies outside.
    pub fn new(
        from: [usize; 2],
        channels: usize,
        rows: Vec<Tap<T::Fraction>>,
        columns: Vec<Tap<T::Fraction>>,
    ) -> Result<Self> {
        let inside = |taps: &[Tap<T::Fraction>], size| taps.iter().all(|t| t.low < size && t.high < size);
        if inside(&rows, from[0]) && inside(&columns, from[1]) {
            return Ok(Self { from, channels, rows, columns });
        }
        Err(ComputeError::Range { what: "tap" })
    }

    /// Resizes all images of `input` `[batch, height, width, channels]`.
    ///
    /// # Errors
    /// Where lengths don't agree.
    pub fn run(&self, isa: Isa, input: &[T], out: &mut [T], par: &dyn Parallel) -> Result<()> {
        let image = product("image", &[self.from[0], self.from[1], self.channels])?;
        let row = product("row", &[self.columns.len(), self.channels])?;
        let Some(batch) = input.len().checked_div(image) else { return check_len("output", out.len(), 0) };
        let rows = product("rows", &[batch, self.rows.len()])?;
        check_len("input", input.len(), batch * image)?;
        check_len("output", out.len(), product("output", &[rows, row])?)?;
        let par = crew(par, out.len().saturating_mul(4));
        let shared = SharedMut::new(out);
        par.run(rows, &|index| {
            let input = &input[index / self.rows.len() * image..][..image];
            // SAFETY: each task has a row of its own.
            let out = unsafe { shared.slice(index * row, row) };
            dispatch(isa, RowTask { shape: self, input, tap: self.rows[index % self.rows.len()], out });
        });
        Ok(())
    }
}

struct RowTask<'a, T: Interpolate> {
    shape: &'a Bilinear<T>,
    input: &'a [T],
    tap: Tap<T::Fraction>,
    out: &'a mut [T],
}

impl<T: Interpolate> SimdTask for RowTask<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let channels = self.shape.channels;
        let width = self.shape.from[1] * channels;
        let (top, bottom) =
            (&self.input[self.tap.low * width..][..width], &self.input[self.tap.high * width..][..width]);
        for (pixel, column) in self.out.chunks_exact_mut(channels).zip(&self.shape.columns) {
            let weights = T::weights(self.tap.fraction, column.fraction);
            let (low, high) = (column.low * channels, column.high * channels);
            let (a, b) = (&top[low..][..channels], &top[high..][..channels]);
            let (c, d) = (&bottom[low..][..channels], &bottom[high..][..channels]);
            for (i, out) in pixel.iter_mut().enumerate() {
                *out = T::mix([a[i], b[i], c[i], d[i]], weights);
            }
        }
    }
}
