//! RESIZE_BILINEAR.

use std::mem::MaybeUninit;

use delegraph_core::kernel::{Charged, Parallel};

use crate::base::buffer::SharedMut;
use crate::base::error::{ComputeError, Result, check_len, product};
use crate::base::isa::Isa;
use crate::simd::{Simd, SimdTask, dispatch};
use crate::threads::share::{chunk_len, threads_for};

/// Position of an output row or column between two rows or columns of the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tap<F> {
    /// The row above, or the column to the left.
    low: usize,
    /// The row below, or the column to the right.
    high: usize,
    /// Distance from `low`, in pixels.
    fraction: F,
    /// The distance in sixteenths, if it has no other bits. Enlargements by powers of two have such distances, and their
    /// sums are exact with few bits.
    sixteenths: Option<i16>,
}

impl<F: Fraction> Tap<F> {
    /// A tap between two rows or columns, at a distance from the first.
    pub fn new(low: usize, high: usize, fraction: F) -> Self {
        Tap { low, high, fraction, sixteenths: fraction.sixteenths() }
    }
}

/// Number type of distances.
pub trait Fraction: Copy + Send + Sync {
    /// Returns the distance in sixteenths, from -1 to 1, if it has no other bits.
    fn sixteenths(self) -> Option<i16>;
}

impl Fraction for f32 {
    fn sixteenths(self) -> Option<i16> {
        let sixteenths = self * 16.0;
        (sixteenths.abs() <= 16.0 && sixteenths.fract() == 0.0).then_some(sixteenths as i16)
    }
}

/// The fixed-point number 1: fractions have 10 bits.
const ONE: i32 = 1 << 10;

impl Fraction for i32 {
    fn sixteenths(self) -> Option<i16> {
        (self % (ONE / 16) == 0 && (-ONE..=ONE).contains(&self)).then_some((self / (ONE / 16)) as i16)
    }
}

/// An element type that can be interpolated.
pub trait Interpolate: Copy + Default + Send + Sync {
    /// Number type of fractions.
    type Fraction: Fraction;
    /// Number type of sums of two rows, weighted in sixteenths.
    type Sum: Copy + Default;
    /// Weights of top left, top right, bottom left and bottom right, or the values from which they are computed.
    type Weights: Copy;

    /// Weights for a fraction of a row and one of a column.
    fn weights(y: Self::Fraction, x: Self::Fraction) -> Self::Weights;
    /// Returns the weighted sums of the corners.
    fn mix<const N: usize>(corners: [[Self; N]; 4], weights: Self::Weights) -> [Self; N];
    /// Whether there is arithmetic for distances in sixteenths, with the results of the general one. For unsigned bytes, the
    /// sums in single precision are then exact.
    const SIXTEENTHS: bool = true;
    /// Whether the sums of rows and of columns take any distance, not only sixteenths.
    const ANY_DISTANCE: bool = false;
    /// The sum of top and bottom, weighted by the [`Interpolate::weight`] of the row. Products may wrap, but no sum is outside
    /// of its type.
    fn between_rows(top: Self, bottom: Self, y: Self::Sum) -> Self::Sum;
    /// The sum of two sums, weighted by the weight of the column and rounded.
    fn between_columns(left: Self::Sum, right: Self::Sum, x: Self::Sum) -> Self;
    /// Returns the distance as a weight: the number of sixteenths, or the fraction if the type takes any distance.
    fn weight(tap: &Tap<Self::Fraction>) -> Self::Sum;
}

impl Interpolate for f32 {
    type Fraction = f32;
    type Sum = f32;
    type Weights = [f32; 4];

    const SIXTEENTHS: bool = false;
    const ANY_DISTANCE: bool = true;

    #[inline(always)]
    fn weights(y: f32, x: f32) -> [f32; 4] {
        [(1.0 - y) * (1.0 - x), (1.0 - y) * x, y * (1.0 - x), y * x]
    }

    #[inline(always)]
    fn mix<const N: usize>([a, b, c, d]: [[f32; N]; 4], [wa, wb, wc, wd]: [f32; 4]) -> [f32; N] {
        let mut out = [0.0; N];
        for i in 0..N {
            out[i] = a[i] * wa + b[i] * wb + c[i] * wc + d[i] * wd;
        }
        out
    }

    #[inline(always)]
    fn between_rows(top: f32, bottom: f32, y: f32) -> f32 {
        top * (1.0 - y) + bottom * y
    }

    #[inline(always)]
    fn between_columns(left: f32, right: f32, x: f32) -> f32 {
        left * (1.0 - x) + right * x
    }

    #[inline(always)]
    fn weight(tap: &Tap<f32>) -> f32 {
        tap.fraction
    }
}

impl Interpolate for u8 {
    type Fraction = f32;
    type Sum = u16;
    type Weights = [f32; 4];

    #[inline(always)]
    fn weights(y: f32, x: f32) -> [f32; 4] {
        f32::weights(y, x)
    }

    /// Rounds by adding a half and truncating. NaN becomes 0; fractions that are not finite lead to NaN.
    #[inline(always)]
    fn mix<const N: usize>([a, b, c, d]: [[u8; N]; 4], [wa, wb, wc, wd]: [f32; 4]) -> [u8; N] {
        let mut out = [0; N];
        for i in 0..N {
            let sum =
                f32::from(a[i]) * wa + f32::from(b[i]) * wb + f32::from(c[i]) * wc + f32::from(d[i]) * wd;
            // Unlike `clamp`, these comparisons replace NaN.
            let sum = sum + 0.5;
            let sum = if sum > 0.0 { sum } else { 0.0 };
            let sum = if sum < 255.0 { sum } else { 255.0 };
            // SAFETY: 0.0 <= sum <= 255.0 by the two comparisons above.
            let sum: i32 = unsafe { sum.to_int_unchecked() };
            out[i] = sum as u8;
        }
        out
    }

    #[inline(always)]
    fn between_rows(top: Self, bottom: Self, y: u16) -> u16 {
        let (top, bottom) = (u16::from(top), u16::from(bottom));
        (top << 4).wrapping_add(bottom.wrapping_sub(top).wrapping_mul(y))
    }

    #[inline(always)]
    fn between_columns(left: u16, right: u16, x: u16) -> Self {
        let sum = (left << 4).wrapping_add(right.wrapping_sub(left).wrapping_mul(x));
        (sum.wrapping_add(128) >> 8) as u8
    }

    #[inline(always)]
    fn weight(tap: &Tap<f32>) -> u16 {
        tap.sixteenths.unwrap_or_default().cast_unsigned()
    }
}

impl Interpolate for i8 {
    /// With ten fractional bits.
    type Fraction = i32;
    type Sum = i16;
    /// The two fractions.
    type Weights = [i32; 2];

    #[inline(always)]
    fn weights(y: i32, x: i32) -> [i32; 2] {
        [y, x]
    }

    /// Rounded, ties away from zero.
    #[inline(always)]
    fn mix<const N: usize>([a, b, c, d]: [[i8; N]; 4], [y, x]: [i32; 2]) -> [i8; N] {
        let mut out = [0; N];
        for i in 0..N {
            let [a, b, c, d] = [i32::from(a[i]), i32::from(b[i]), i32::from(c[i]), i32::from(d[i])];
            let (top, low) = (a * ONE + (b - a) * x, c * ONE + (d - c) * x);
            let sum = top * ONE + (low - top) * y;
            // The sign is 0 or -1.
            out[i] = ((sum + (1 << 19) + (sum >> 31)) >> 20) as i8;
        }
        out
    }

    #[inline(always)]
    fn between_rows(top: Self, bottom: Self, y: i16) -> i16 {
        let (top, bottom) = (i16::from(top), i16::from(bottom));
        (top << 4).wrapping_add(bottom.wrapping_sub(top).wrapping_mul(y))
    }

    #[inline(always)]
    fn between_columns(left: i16, right: i16, x: i16) -> Self {
        let sum = (left << 4).wrapping_add(right.wrapping_sub(left).wrapping_mul(x));
        (sum.wrapping_add(128).wrapping_add(sum >> 15) >> 8) as i8
    }

    #[inline(always)]
    fn weight(tap: &Tap<i32>) -> i16 {
        tap.sixteenths.unwrap_or_default()
    }
}

impl Interpolate for i16 {
    /// With ten fractional bits.
    type Fraction = i32;
    type Sum = i32;
    /// The two fractions.
    type Weights = [i32; 2];

    #[inline(always)]
    fn weights(y: i32, x: i32) -> [i32; 2] {
        [y, x]
    }

    /// Rounded, ties away from zero.
    #[inline(always)]
    fn mix<const N: usize>([a, b, c, d]: [[i16; N]; 4], [y, x]: [i32; 2]) -> [i16; N] {
        let mut out = [0; N];
        for i in 0..N {
            let [a, b, c, d] = [i32::from(a[i]), i32::from(b[i]), i32::from(c[i]), i32::from(d[i])];
            let (top, low) = (a * (ONE - x) + b * x, c * (ONE - x) + d * x);
            let sum = i64::from(top) * i64::from(ONE - y) + i64::from(low) * i64::from(y);
            out[i] = ((sum + (1 << 19) + (sum >> 63)) >> 20) as i16;
        }
        out
    }

    #[inline(always)]
    fn between_rows(top: Self, bottom: Self, y: i32) -> i32 {
        let (top, bottom) = (i32::from(top), i32::from(bottom));
        (top << 4).wrapping_add(bottom.wrapping_sub(top).wrapping_mul(y))
    }

    #[inline(always)]
    fn between_columns(left: i32, right: i32, x: i32) -> Self {
        let sum = (left << 4).wrapping_add(right.wrapping_sub(left).wrapping_mul(x));
        (sum.wrapping_add(128).wrapping_add(sum >> 31) >> 8) as i16
    }

    #[inline(always)]
    fn weight(tap: &Tap<i32>) -> i32 {
        tap.sixteenths.unwrap_or_default().into()
    }
}

/// A resize of images of one size.
#[derive(Debug)]
pub struct Bilinear<T: Interpolate> {
    from: [usize; 2],
    channels: usize,
    rows: Charged<Tap<T::Fraction>>,
    columns: Charged<Tap<T::Fraction>>,
    /// Whether all fractions are in sixteenths.
    sixteenths: bool,
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
            let sixteenths =
                T::SIXTEENTHS && rows.iter().chain(columns.iter()).all(|t| t.sixteenths.is_some());
            return Ok(Self { from, channels, rows, columns, sixteenths });
        }
        Err(ComputeError::Range { what: "tap: it is outside the input" })
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
        // Very short rows take as long as a few elements.
        let per_task = chunk_len(par, rows, row.saturating_mul(4).max(ROW_COST));
        par.run(rows.div_ceil(per_task), &|task| {
            for index in task * per_task..((task + 1) * per_task).min(rows) {
                let input = &input[index / self.rows.len() * image..][..image];
                // SAFETY: each task has other rows, and `Parallel::run` calls each task at most once.
                let out = unsafe { shared.slice(index * row, row) };
                dispatch(isa, RowTask { shape: self, input, tap: self.rows[index % self.rows.len()], out });
            }
        });
        Ok(())
    }
}

#[inline(always)]
fn mix_sixteenths<T: Interpolate, const N: usize>([a, b, c, d]: [[T; N]; 4], y: T::Sum, x: T::Sum) -> [T; N] {
    let mut out = [T::default(); N];
    for i in 0..N {
        out[i] = T::between_columns(T::between_rows(a[i], c[i], y), T::between_rows(b[i], d[i], y), x);
    }
    out
}

/// Minimum cost of a row, in elements of a cheap function.
const ROW_COST: usize = 32;

/// Elements of an output row that are computed at a time.
const BLOCK: usize = 256;

/// Pixels with fewer channels are gathered.
const MAX_GATHERED: usize = 16;

/// Maximum number of elements of an input row whose pixels are gathered.
const ROW: usize = 4096;

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
        match self.shape.sixteenths {
            true => self.blocks::<true>(),
            false => self.blocks::<false>(),
        }
    }
}

impl<T: Interpolate> RowTask<'_, T> {
    /// Computes the row. Pixels of few channels are gathered where possible; others are computed in blocks of channels,
    /// the largest that are not larger than a pixel.
    #[inline(always)]
    fn blocks<const SIXTEENTHS: bool>(self) {
        let channels = self.shape.channels;
        if (SIXTEENTHS || T::ANY_DISTANCE) && channels < MAX_GATHERED && self.shape.from[1] * channels <= ROW
        {
            return match channels {
                0 => {}
                1 => self.gathered::<1>(),
                2 => self.gathered::<2>(),
                3 | 4 => self.gathered::<4>(),
                5..=8 => self.gathered::<8>(),
                _ => self.gathered::<MAX_GATHERED>(),
            };
        }
        match channels {
            0 => {}
            1 => self.pixels::<1, SIXTEENTHS>(),
            2 => self.pixels::<2, SIXTEENTHS>(),
            3 => self.pixels::<3, SIXTEENTHS>(),
            4..8 => self.pixels::<4, SIXTEENTHS>(),
            8..16 => self.pixels::<8, SIXTEENTHS>(),
            16..32 => self.pixels::<16, SIXTEENTHS>(),
            32..64 => self.pixels::<32, SIXTEENTHS>(),
            _ => self.pixels::<64, SIXTEENTHS>(),
        }
    }

    /// For at most `N` channels, and input rows of at most `ROW` elements: sums up both rows, then gathers the pixels on
    /// either side of each output pixel, then computes all elements of a block alike.
    #[inline(always)]
    fn gathered<const N: usize>(self) {
        let channels = self.shape.channels;
        let width = self.shape.from[1] * channels;
        let (top, bottom) =
            (&self.input[self.tap.low * width..][..width], &self.input[self.tap.high * width..][..width]);
        let y = T::weight(&self.tap);
        let mut sums = MaybeUninit::<[T::Sum; ROW + MAX_GATHERED]>::uninit();
        let mut sides = MaybeUninit::<[[T::Sum; BLOCK + MAX_GATHERED]; 3]>::uninit();
        // SAFETY: `width <= ROW`; pixels of the input are inside a row (`Bilinear::new`), from where `N <= MAX_GATHERED`
        // sums are initialized; at most `BLOCK / channels` pixels are written, each of `channels <= N` elements before
        // the next one and of `N` elements in total.
        unsafe {
            let sums = sums.as_mut_ptr().cast::<T::Sum>();
            let [left, right, weights] = [0, 1, 2]
                .map(|i| sides.as_mut_ptr().cast::<[T::Sum; BLOCK + MAX_GATHERED]>().add(i).cast::<T::Sum>());
            for (i, (&top, &bottom)) in top.iter().zip(bottom).enumerate() {
                sums.add(i).write(T::between_rows(top, bottom, y));
            }
            sums.add(width).cast::<[T::Sum; N]>().write([T::Sum::default(); N]);
            let pixels = BLOCK / channels;
            for (out, columns) in
                self.out.chunks_mut(pixels * channels).zip(self.shape.columns.chunks(pixels))
            {
                for (i, column) in columns.iter().enumerate() {
                    let to = i * channels;
                    let from = |at: usize| sums.add(at * channels).cast::<[T::Sum; N]>().read();
                    left.add(to).cast::<[T::Sum; N]>().write(from(column.low));
                    right.add(to).cast::<[T::Sum; N]>().write(from(column.high));
                    let weight = T::weight(column);
                    weights.add(to).cast::<[T::Sum; N]>().write([weight; N]);
                }
                let side = |p: *mut T::Sum| std::slice::from_raw_parts(p, columns.len() * channels);
                let (left, right, weights) = (side(left), side(right), side(weights));
                for (((out, &left), &right), &x) in out.iter_mut().zip(left).zip(right).zip(weights) {
                    *out = T::between_columns(left, right, x);
                }
            }
        }
    }

    /// For at least `N` channels.
    #[inline(always)]
    fn pixels<const N: usize, const SIXTEENTHS: bool>(self) {
        let channels = self.shape.channels;
        let width = self.shape.from[1] * channels;
        let (top, bottom) =
            (&self.input[self.tap.low * width..][..width], &self.input[self.tap.high * width..][..width]);
        let (y, y16) = (self.tap.fraction, T::weight(&self.tap));
        for (pixel, column) in self.out.chunks_exact_mut(channels).zip(&self.shape.columns) {
            let weights = T::weights(y, column.fraction);
            let x16 = T::weight(column);
            let (low, high) = (column.low * channels, column.high * channels);
            let mut first = 0;
            while first < channels {
                // The last block overlaps the one before it.
                let at = first.min(channels - N);
                // SAFETY: columns are inside the input (`Bilinear::new`), so that all `channels` elements from `low` and
                // from `high` are inside the rows, as are `channels` elements of the pixel; `at + N <= channels`.
                unsafe {
                    let load = |row: &[T], from: usize| {
                        row.as_ptr().add(from + at).cast::<[T; N]>().read_unaligned()
                    };
                    let corners = [load(top, low), load(top, high), load(bottom, low), load(bottom, high)];
                    let out = match SIXTEENTHS {
                        true => mix_sixteenths(corners, y16, x16),
                        false => T::mix(corners, weights),
                    };
                    pixel.as_mut_ptr().add(at).cast::<[T; N]>().write_unaligned(out);
                }
                first += N;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;

    #[test]
    fn fractions_that_are_not_finite_give_bytes() {
        for fraction in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN] {
            for &isa in Isa::available() {
                let taps = || vec![Tap::new(0, 1, fraction); 20];
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
