//! The product of one row with a matrix that stays in its place.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::SharedMut;
use crate::base::clamp::Clamp;
use crate::base::error::{ComputeError, Result, check_len, product};
use crate::base::isa::Isa;
use crate::simd::{Simd, SimdTask, dispatch, lanes};
use crate::threads::share::{chunk_len, threads_for};

/// Columns that are multiplied at a time, each with a sum of its own: a vector of the row is loaded once for all.
const COLUMNS: usize = 8;

/// Sums of a column that is multiplied alone.
const CHAINS: usize = COLUMNS;

/// Products that take about as long as an element of a cheap function.
const PRODUCTS: usize = 8;

/// Maximum number of lanes of a vector.
const MAX_LANES: usize = 16;

/// Minimum length of a column, whose products are added across the lanes at its end.
const MIN_DEPTH: usize = 256;

/// Minimum number of weights of columns that begin at different places of a vector: more than the caches between the memory and a core
/// have, as vectors that cross cache lines take twice the loads.
const MIN_UNALIGNED_WEIGHTS: usize = 1 << 20;

/// Minimum number of weights. Packed copies of fewer take little memory, and are read from a cache up to a tenth faster.
const MIN_WEIGHTS: usize = 32 << 10;

/// Returns whether [`row_product`] takes no more time than a product with packed weights. Each weight is read once, so
/// the memory bandwidth limits both, and a packed copy would take as much memory again.
pub fn row_product_pays(isa: Isa, rows: usize, depth: usize, columns: usize) -> bool {
    let aligned = lanes(isa) <= 4 || depth.is_multiple_of(lanes(isa));
    let least = if aligned { MIN_WEIGHTS } else { MIN_UNALIGNED_WEIGHTS };
    rows == 1 && depth >= MIN_DEPTH && depth.saturating_mul(columns) >= least
}

/// Returns the elements of scratch that [`row_product`] needs.
pub fn row_product_scratch(depth: usize) -> usize {
    depth.saturating_add(MAX_LANES)
}

/// `out[n] = clamp(bias[n] + Σ_k a[k] · weights[n][k])`: FULLY_CONNECTED of one row.
///
/// # Errors
/// Fails if lengths do not match.
pub fn row_product(
    isa: Isa,
    (a, weights, bias): (&[f32], &[f32], Option<&[f32]>),
    out: &mut [f32],
    clamp: Clamp,
    scratch: &mut [f32],
    par: &dyn Parallel,
) -> Result<()> {
    let (depth, columns) = (a.len(), out.len());
    check_len("weights", weights.len(), product("weights", &[columns, depth])?)?;
    if let Some(bias) = bias {
        check_len("bias", bias.len(), columns)?;
    }
    // A vector that crosses a cache line takes two loads. If all columns begin at the same offset in a vector, aligned
    // vectors are loaded after the first elements, also of `a`, which is copied to such an offset.
    let lanes = lanes(isa);
    let place = |floats: &[f32]| floats.as_ptr().addr() / size_of::<f32>() % lanes;
    let (a, head) = if depth.is_multiple_of(lanes) {
        let at = (place(weights) + lanes - place(scratch)) % lanes;
        let needed = row_product_scratch(depth);
        let short = ComputeError::Length { what: "scratch", needed, got: scratch.len() };
        let copy = scratch.get_mut(at..at + depth).ok_or(short)?;
        copy.copy_from_slice(a);
        (&*copy, (lanes - place(weights)) % lanes)
    } else {
        (a, 0)
    };
    let par = threads_for(par, weights.len() / PRODUCTS);
    let chunk = match weights.len() < MIN_UNALIGNED_WEIGHTS {
        // Each thread finds the weights of one task in its cache.
        true => columns.div_ceil(par.threads()),
        false => chunk_len(par, columns, depth / PRODUCTS),
    };
    let chunk = chunk.next_multiple_of(COLUMNS).max(COLUMNS);
    let out = SharedMut::new(out);
    par.run(columns.div_ceil(chunk), &|task| {
        let columns = task * chunk..((task + 1) * chunk).min(columns);
        dispatch(isa, Columns { a, weights, bias, out, clamp, head, columns });
    });
    Ok(())
}

struct Columns<'a> {
    a: &'a [f32],
    weights: &'a [f32],
    bias: Option<&'a [f32]>,
    out: SharedMut<'a, f32>,
    clamp: Clamp,
    /// Elements before the first whole vector, fewer than its lanes.
    head: usize,
    columns: Range<usize>,
}

impl SimdTask for Columns<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Range { start, end } = self.columns;
        // SAFETY: `row_product` checked that there are `depth` weights for each column, and an output element, which no other
        // task writes. The instructions exist by the caller's contract.
        unsafe {
            if end - start < COLUMNS {
                for n in start..end {
                    self.store(n, alone::<S>(self.a, self.column(n), self.head));
                }
                return;
            }
            for n in (start..end).step_by(COLUMNS) {
                // The last columns may be multiplied twice.
                let first = n.min(end - COLUMNS);
                let sums = together::<S>(self.a, self.column(first), self.head);
                for (i, sum) in sums.into_iter().enumerate() {
                    self.store(first + i, sum);
                }
            }
        }
    }
}

impl Columns<'_> {
    /// The weights of a column.
    #[inline(always)]
    fn column(&self, n: usize) -> *const f32 {
        self.weights[n * self.a.len()..].as_ptr()
    }

    /// Stores the output of a column.
    ///
    /// # Safety
    /// No other thread accesses it.
    #[inline(always)]
    unsafe fn store(&self, n: usize, sum: f32) {
        let Clamp { low, high } = self.clamp;
        let x = sum + self.bias.and_then(|bias| bias.get(n)).copied().unwrap_or(0.0);
        // NaN stays NaN.
        let x = if x < low { low } else { x };
        // SAFETY: the caller's contract; `row_product` checked the length.
        unsafe { self.out.ptr(n).write(if x > high { high } else { x }) }
    }
}

/// The sums of the products of a row with each of [`COLUMNS`] columns, which follow each other.
///
/// # Safety
/// The processor must have the instructions of `S`, and `b` must be valid for these columns.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
unsafe fn together<S: Simd>(a: &[f32], b: *const f32, head: usize) -> [f32; COLUMNS] {
    let (a, depth) = (a.as_ptr(), a.len());
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let mut acc = [S::splat(0.0); COLUMNS];
        let head = head.min(depth);
        if head > 0 {
            let x = S::load_n(a, head);
            for i in 0..COLUMNS {
                acc[i] = S::mul(x, S::load_n(b.add(i * depth), head));
            }
        }
        let mut k = head;
        while k + S::LANES <= depth {
            let x = S::load(a.add(k));
            for i in 0..COLUMNS {
                acc[i] = S::fma(x, S::load(b.add(i * depth + k)), acc[i]);
            }
            k += S::LANES;
        }
        if k < depth {
            let n = depth - k;
            let x = S::load_n(a.add(k), n);
            for i in 0..COLUMNS {
                acc[i] = S::fma(x, S::load_n(b.add(i * depth + k), n), acc[i]);
            }
        }
        S::sums(acc)
    }
}

/// The sum of the products of a row with one column.
///
/// # Safety
/// As for [`together`].
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
unsafe fn alone<S: Simd>(a: &[f32], b: *const f32, head: usize) -> f32 {
    let (a, depth) = (a.as_ptr(), a.len());
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let mut acc = [S::splat(0.0); CHAINS];
        let head = head.min(depth);
        if head > 0 {
            acc[0] = S::mul(S::load_n(a, head), S::load_n(b, head));
        }
        let mut k = head;
        while k + CHAINS * S::LANES <= depth {
            for i in 0..CHAINS {
                acc[i] = S::fma(S::load(a.add(k)), S::load(b.add(k)), acc[i]);
                k += S::LANES;
            }
        }
        while k + S::LANES <= depth {
            acc[1] = S::fma(S::load(a.add(k)), S::load(b.add(k)), acc[1]);
            k += S::LANES;
        }
        if k < depth {
            let n = depth - k;
            acc[2] = S::fma(S::load_n(a.add(k), n), S::load_n(b.add(k), n), acc[2]);
        }
        S::sums(acc).iter().sum()
    }
}
