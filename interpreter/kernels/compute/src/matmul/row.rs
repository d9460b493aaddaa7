//! The product of one row with a matrix that stays in its place.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::SharedMut;
use crate::base::clamp::Clamp;
use crate::base::error::{ComputeError, Result, check_len, product};
use crate::base::isa::Isa;
use crate::simd::{Simd, SimdTask, dispatch, lanes};
use crate::threads::share::{chunk_len, threads_for};

/// Sums of each column.
const CHAINS: usize = 4;

/// Maximum number of lanes of a vector.
const MAX_LANES: usize = 16;

/// Minimum length of a column, whose products are added across the lanes at its end.
const MIN_DEPTH: usize = 256;

/// Minimum number of weights. Packed copies of fewer take little memory.
const MIN_WEIGHTS: usize = 16 << 10;

/// Returns whether [`row_product`] takes no more time than a product with packed weights. Each weight is read once, so its
/// bandwidth is what counts, and a copy would take its memory again.
pub fn row_product_pays(rows: usize, depth: usize, columns: usize) -> bool {
    rows == 1 && depth >= MIN_DEPTH && depth.saturating_mul(columns) >= MIN_WEIGHTS
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
    // A vector that crosses a cache line takes two loads. If all columns begin at the same place of a vector, whole
    // vectors are loaded from there on, also of `a`, which is copied for that.
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
    let par = threads_for(par, weights.len());
    let chunk = chunk_len(par, columns, depth);
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
        let Clamp { low, high } = self.clamp;
        let depth = self.a.len();
        for n in self.columns {
            // SAFETY: `row_product` checked that there are `depth` weights for each column, and an output element, which
            // no other task writes. The instructions exist by the caller's contract.
            unsafe {
                let sum = sum::<S>(self.a.as_ptr(), self.weights.as_ptr().add(n * depth), depth, self.head);
                let x = sum + self.bias.and_then(|bias| bias.get(n)).copied().unwrap_or(0.0);
                // NaN stays NaN.
                let x = if x < low { low } else { x };
                self.out.ptr(n).write(if x > high { high } else { x });
            }
        }
    }
}

/// The sum of the products of `depth` elements.
///
/// # Safety
/// The processor must have the instructions of `S`, and the pointers must be valid for these elements.
#[inline(always)]
unsafe fn sum<S: Simd>(a: *const f32, b: *const f32, depth: usize, head: usize) -> f32 {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let mut acc = [S::splat(0.0); CHAINS];
        let head = head.min(depth);
        if head > 0 {
            acc[0] = S::mul(S::load_n(a, head), S::load_n(b, head));
        }
        let mut k = head;
        while k + CHAINS * S::LANES <= depth {
            for acc in &mut acc {
                *acc = S::fma(S::load(a.add(k)), S::load(b.add(k)), *acc);
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
        let mut sums = [0.0; MAX_LANES];
        S::store(sums.as_mut_ptr(), S::add(S::add(acc[0], acc[1]), S::add(acc[2], acc[3])));
        let mut count = S::LANES;
        while count > 1 {
            count /= 2;
            for lane in 0..count {
                sums[lane] += sums[lane + count];
            }
        }
        sums[0]
    }
}
