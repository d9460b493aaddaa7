//! Sums and extrema.

use crate::base::error::{ComputeError, Result};
use crate::base::isa::Isa;
use crate::simd::{Simd, SimdTask, dispatch};

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
        /// Four accumulators, since each operation waits for the previous one.
        macro_rules! fold {
            ($f:expr, $neutral:expr, $tail:expr) => {{
                let mut acc = [S::splat($neutral); 4];
                while i + 4 * S::LANES <= len {
                    for (u, acc) in acc.iter_mut().enumerate() {
                        *acc = $f(S::load(from.add(i + u * S::LANES)), *acc);
                    }
                    i += 4 * S::LANES;
                }
                for acc in &mut acc[..3] {
                    if i + S::LANES <= len {
                        *acc = $f(S::load(from.add(i)), *acc);
                        i += S::LANES;
                    }
                }
                if i < len {
                    acc[3] = $f($tail(i), acc[3]);
                }
                let all = $f($f(acc[0], acc[1]), $f(acc[2], acc[3]));
                S::store(lanes.as_mut_ptr(), all);
                let mut width = S::LANES;
                while width > 1 {
                    width /= 2;
                    for lane in 0..width {
                        lanes[lane] = self.kind.two(lanes[lane], lanes[lane + width]);
                    }
                }
            }};
        }
        // SAFETY: loads are inside the run, and stores inside an array as long as the longest vector. The instructions
        // exist by the caller's contract.
        unsafe {
            match self.kind {
                Reduce::Sum => fold!(S::add, 0.0, |i| S::load_n(from.add(i), len - i)),
                // An extremum may include elements twice, but not the zeros that fill an incomplete vector.
                _ if len < S::LANES => {
                    return self.run.iter().fold(self.init, |all, x| self.kind.two(all, *x));
                }
                Reduce::Max => fold!(S::max, f32::NEG_INFINITY, |_| S::load(from.add(len - S::LANES))),
                Reduce::Min => fold!(S::min, f32::INFINITY, |_| S::load(from.add(len - S::LANES))),
            }
        }
        self.kind.two(self.init, lanes[0])
    }
}

/// How elements of type `T` are combined. The order does not matter.
pub trait Fold<T>: Copy + Sync {
    /// Result of a few elements.
    type Part: Copy;
    /// Result of all elements.
    type Total: Copy;
    /// Maximum number of elements of a part.
    const MAX: usize;

    /// Result of no elements.
    fn nothing(self) -> Self::Part;
    /// Adds an element to a part.
    fn add(self, part: Self::Part, x: T) -> Self::Part;
    /// Adds a part to the total.
    fn total(self, total: Self::Total, part: Self::Part) -> Self::Total;
}

/// Sums of integers, modulo 2^32.
#[derive(Clone, Copy, Debug)]
pub struct Sums;

macro_rules! sums {
    ($($ty:ty: $part:ty, $max:expr;)*) => { $(impl Fold<$ty> for Sums {
        type Part = $part;
        type Total = i32;
        const MAX: usize = $max;

        #[inline(always)]
        fn nothing(self) -> $part {
            0
        }
        #[inline(always)]
        fn add(self, part: $part, x: $ty) -> $part {
            part.wrapping_add(<$part>::from(x))
        }
        #[inline(always)]
        fn total(self, total: i32, part: $part) -> i32 {
            total.wrapping_add(i32::from(part))
        }
    })* };
}
sums! { i8: i16, 128; u8: i16, 128; i16: i32, usize::MAX; }

/// A neutral element of a function of two elements, and the function.
#[derive(Clone, Copy, Debug)]
pub struct Each<T, F>(pub T, pub F);

impl<T: Copy + Sync, F: Fn(T, T) -> T + Copy + Sync> Fold<T> for Each<T, F> {
    type Part = T;
    type Total = T;
    const MAX: usize = usize::MAX;

    #[inline(always)]
    fn nothing(self) -> T {
        self.0
    }
    #[inline(always)]
    fn add(self, part: T, x: T) -> T {
        (self.1)(part, x)
    }
    #[inline(always)]
    fn total(self, total: T, part: T) -> T {
        (self.1)(total, part)
    }
}

/// Reduces rows: combines each element of `out` with the elements at its column in `rows` rows of `input`. Rows begin
/// `stride` elements apart.
///
/// # Errors
/// Fails if a row is not inside the input.
pub fn stack<T: Copy, F: Fold<T>>(
    isa: Isa,
    input: &[T],
    (rows, stride): (usize, usize),
    out: &mut [F::Total],
    f: F,
) -> Result<()> {
    if rows == 0 || out.is_empty() {
        return Ok(());
    }
    let end = (rows - 1).checked_mul(stride).and_then(|last| last.checked_add(out.len()));
    if end.is_none_or(|end| end > input.len()) {
        return Err(ComputeError::Range { what: "row: it ends beyond the input" });
    }
    dispatch(isa, StackTask { input, rows, stride, out, f });
    Ok(())
}

/// Combines all elements of `run` with `init`.
pub fn fold<T: Copy, F: Fold<T>>(isa: Isa, run: &[T], init: F::Total, f: F) -> F::Total {
    if run.len() < SHORT {
        return run.iter().fold(init, |all, x| f.total(all, f.add(f.nothing(), *x)));
    }
    let mut out = [init];
    dispatch(isa, StackTask { input: run, rows: run.len(), stride: 1, out: &mut out, f });
    out[0]
}

struct StackTask<'a, T, F: Fold<T>> {
    input: &'a [T],
    /// Rows are inside the input, and there is at least one.
    rows: usize,
    stride: usize,
    out: &'a mut [F::Total],
    f: F,
}

/// Columns whose parts fit the registers.
const WIDE: usize = 64;

impl<T: Copy, F: Fold<T>> SimdTask for StackTask<'_, T, F> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        let width = self.out.len();
        if width < WIDE {
            return self.narrow();
        }
        for done in (0..width).step_by(WIDE) {
            // The last columns overlap those before them, which are not combined twice.
            // SAFETY: there are at least `WIDE` columns.
            unsafe { self.columns(done.min(width - WIDE), done) };
        }
    }
}

impl<T: Copy, F: Fold<T>> StackTask<'_, T, F> {
    /// Combines `WIDE` columns from `first`, and adds those from `from` to the output.
    ///
    /// # Safety
    /// `first + WIDE` is at most the length of the output.
    #[inline(always)]
    unsafe fn columns(&mut self, first: usize, from: usize) {
        let mut row = 0;
        while row < self.rows {
            let count = (self.rows - row).min(F::MAX);
            let start = self.input.as_ptr().wrapping_add(row * self.stride + first);
            // SAFETY: these columns are inside the input in all rows (`stack`).
            let parts: [F::Part; WIDE] = unsafe { parts(start, count, self.stride, self.f) };
            let skip = from - first;
            for (total, part) in self.out[from..first + WIDE].iter_mut().zip(&parts[skip..]) {
                *total = self.f.total(*total, *part);
            }
            row += count;
        }
    }

    /// For fewer than `WIDE` columns. Contiguous rows are merged.
    #[inline(always)]
    fn narrow(self) {
        let (width, f) = (self.out.len(), self.f);
        let together = if self.stride == width { (WIDE / width).min(self.rows) } else { 1 };
        let (used, stride) = (together * width, together * self.stride);
        // Rows of which `WIDE` elements are inside the input; elements after `used` are not used.
        let inside = self
            .input
            .len()
            .checked_sub(WIDE)
            .map_or(0, |last| last.checked_div(stride).map_or(self.rows, |rows| rows + 1));
        let wide = (self.rows / together).min(inside);
        let mut row = 0;
        while row < wide {
            let count = (wide - row).min(F::MAX);
            // SAFETY: `WIDE` elements of each of these rows are inside the input, by the definition of `inside`.
            let parts: [F::Part; WIDE] =
                unsafe { parts(self.input.as_ptr().add(row * stride), count, stride, f) };
            for parts in parts[..used].chunks_exact(width) {
                for (total, part) in self.out.iter_mut().zip(parts) {
                    *total = f.total(*total, *part);
                }
            }
            row += count;
        }
        for row in wide * together..self.rows {
            for (total, x) in self.out.iter_mut().zip(&self.input[row * self.stride..]) {
                *total = f.total(*total, f.add(f.nothing(), *x));
            }
        }
    }
}

/// Combines `WIDE` columns of at most `F::MAX` rows.
///
/// # Safety
/// `WIDE` elements from the start of each row are valid.
#[inline(always)]
unsafe fn parts<T: Copy, F: Fold<T>>(start: *const T, rows: usize, stride: usize, f: F) -> [F::Part; WIDE] {
    let mut all = [f.nothing(); WIDE];
    for row in 0..rows {
        // SAFETY: valid by the caller's contract.
        let row = unsafe { &*start.add(row * stride).cast::<[T; WIDE]>() };
        for i in 0..WIDE {
            all[i] = f.add(all[i], row[i]);
        }
    }
    all
}
