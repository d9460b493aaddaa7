//! RESIZE_BILINEAR.

use delegraph_core::kernel::{Charged, Parallel};

use crate::compute::base::buffer::SharedMut;
use crate::compute::base::error::{ComputeError, Result, check_len, product};
use crate::compute::base::isa::Isa;
use crate::compute::simd::{Simd, SimdTask, dispatch};
use crate::compute::threads::share::threads_for;

/// Position of an output row or column between two rows or columns of the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tap<F> {
    /// The row above, or the column to the left.
    pub low: usize,
    /// The row below, or the column to the right.
    pub high: usize,
    /// Distance from `low`, in pixels.
    pub fraction: F,
}

/// An element type that can be interpolated.
pub trait Interpolate: Copy + Send + Sync {
    /// Number type of fractions.
    type Fraction: Copy + Send + Sync;
    /// Number type of weights.
    type Weights: Copy;

    /// Weights of top left, top right, bottom left and bottom right.
    fn weights(y: Self::Fraction, x: Self::Fraction) -> [Self::Weights; 4];
    /// Returns the weighted sum of the corners.
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

    /// Rounds by adding a half and truncating. NaN becomes 0; fractions that are not finite lead to NaN.
    #[inline(always)]
    fn mix(corners: [u8; 4], weights: [f32; 4]) -> u8 {
        let sum = f32::mix(corners.map(f32::from), weights) + 0.5;
        // Unlike `clamp`, these comparisons replace NaN.
        let sum = if sum > 0.0 { sum } else { 0.0 };
        let sum = if sum < 255.0 { sum } else { 255.0 };
        // SAFETY: 0.0 <= sum <= 255.0 by the two comparisons above.
        let sum: i32 = unsafe { sum.to_int_unchecked() };
        sum as u8
    }
}

impl Interpolate for i8 {
    /// With ten fractional bits.
    type Fraction = i32;
    type Weights = i32;

    #[inline(always)]
    fn weights(y: i32, x: i32) -> [i32; 4] {
        const ONE: i32 = 1 << 10;
        [(ONE - y) * (ONE - x), (ONE - y) * x, y * (ONE - x), y * x]
    }

    /// Rounded, ties away from zero.
    #[inline(always)]
    fn mix([a, b, c, d]: [i8; 4], [wa, wb, wc, wd]: [i32; 4]) -> i8 {
        let sum = i32::from(a) * wa + i32::from(b) * wb + i32::from(c) * wc + i32::from(d) * wd;
        let half = if sum > 0 { 1 << 19 } else { -(1 << 19) };
        ((sum + half) / (1 << 20)) as i8
    }
}

/// A resize of images of one size.
#[derive(Debug)]
pub struct Bilinear<T: Interpolate> {
    from: [usize; 2],
    channels: usize,
    rows: Charged<Tap<T::Fraction>>,
    columns: Charged<Tap<T::Fraction>>,
}

impl<T: Interpolate> Bilinear<T> {
    /// For images of size `from` (height, width), with one tap per output row and column.
    ///
    /// # Errors
    /// Fails if a tap is not inside the input.
    pub fn new(
        from: [usize; 2],
        channels: usize,
        rows: impl Into<Charged<Tap<T::Fraction>>>,
        columns: impl Into<Charged<Tap<T::Fraction>>>,
    ) -> Result<Self> {
        let (rows, columns) = (rows.into(), columns.into());
        let inside = |taps: &[Tap<T::Fraction>], size| taps.iter().all(|t| t.low < size && t.high < size);
        if inside(&rows, from[0]) && inside(&columns, from[1]) {
            return Ok(Self { from, channels, rows, columns });
        }
        Err(ComputeError::Range { what: "tap" })
    }

    /// Resizes all images of `input` `[batch, height, width, channels]`.
    ///
    /// # Errors
    /// Fails if lengths do not match.
    pub fn run(&self, isa: Isa, input: &[T], out: &mut [T], par: &dyn Parallel) -> Result<()> {
        let image = product("image", &[self.from[0], self.from[1], self.channels])?;
        let row = product("row", &[self.columns.len(), self.channels])?;
        let Some(batch) = input.len().checked_div(image) else { return check_len("output", out.len(), 0) };
        let rows = product("rows", &[batch, self.rows.len()])?;
        check_len("input", input.len(), batch * image)?;
        check_len("output", out.len(), product("output", &[rows, row])?)?;
        let par = threads_for(par, out.len().saturating_mul(4));
        let shared = SharedMut::new(out);
        par.run(rows, &|index| {
            let input = &input[index / self.rows.len() * image..][..image];
            // SAFETY: each task has another row, and `Parallel::run` calls each task at most once.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::Serial;

    #[test]
    fn fractions_that_are_not_finite_give_bytes() {
        for fraction in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN] {
            for &isa in Isa::available() {
                let taps = || vec![Tap { low: 0, high: 1, fraction }; 20];
                let resize = Bilinear::<u8>::new([2, 2], 1, taps(), taps()).unwrap();
                let mut out = [7; 400];
                resize.run(isa, &[1, 2, 3, 4], &mut out, &Serial).unwrap();
                // Weights of +inf and -inf add up to NaN.
                assert!(
                    out.iter().all(|&byte| byte == out[0] && [0, 255].contains(&byte)),
                    "{fraction}: {out:?}"
                );
                assert!(!fraction.is_nan() || out[0] == 0);
            }
        }
    }
}
