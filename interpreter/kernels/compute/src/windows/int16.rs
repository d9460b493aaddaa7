//! Products of 16-bit activations and 8-bit weights.
//!
//! A product is computed as two 8-bit products: an activation is `256 · high + low + 128`, where `high` and `low` are
//! signed bytes, so the sum of products with weights `w` is `256 · Σ high · w + Σ low · w + 128 · Σ w`.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::{AlignedVec, SharedMut};
use crate::base::error::{ComputeError, Result, check_len, check_multiple, product};
use crate::base::isa::Isa;
use crate::base::requant::{Multiplier, Ties};
use crate::matmul::geometry::ConvGeometry;
use crate::simd::{Simd, SimdTask, dispatch};
use crate::threads::share::{chunk_len, threads_for};

/// Maximum number of products of bytes whose sum fits 32 bits.
const MAX_PRODUCTS: usize = 1 << 16;

/// Maximum number of taps of a depthwise window whose sum fits 32 bits.
const MAX_TAPS: usize = 1 << 8;

/// Requantization of sums to 16 bits, per column.
#[derive(Clone, Debug)]
pub struct WideSums {
    /// Constant part of each column's sum: the bias and `128 · Σ w`.
    base: Vec<i64>,
    scale: Scale,
    low: i32,
    high: i32,
    /// The same for vectors of 32 bits, if it is possible.
    short: Option<ShortSums>,
}

/// Requantization of sums that fit 32 bits: `(upper half of sum · factor + half) >> shift`.
#[derive(Clone, Debug)]
struct ShortSums {
    /// Constant part of each column's sum. The list repeats after the last column, up to the length of a row of
    /// weights.
    base: Vec<i32>,
    /// Factors, likewise; not negative.
    factors: Vec<i32>,
    /// Half a unit of the shift.
    half: i32,
    shift: u32,
    /// Bounds of results.
    low: i32,
    high: i32,
}

/// Minimum shift of a product: what is rounded off includes the lower half.
const MIN_SHIFT: i64 = 33;

/// Minimum shift of a product of any 32-bit sum and a factor of 16 bits that is always rounded to 0.
const ZERO_SHIFT: i64 = 47;

impl ShortSums {
    /// For columns with these constant parts and factors, and sums of the absolute values of their weights. `None` if
    /// a sum may not fit 32 bits, or the shifts of columns differ too much for one shift. A list has `len` elements.
    fn new(base: &[i64], scale: &Scale, bounds: [i32; 2], weights: &[i64], len: usize) -> Option<Self> {
        let Scale::Fixed(factors) = scale else { return None };
        let [low, high] = bounds.map(|bound| i16::try_from(bound).ok());
        // The constant part of a sum of bytes may include 128 times the weights.
        let fits = |(base, weights): (&i64, &i64)| {
            let room = i64::from(i32::MAX) - weights * ((1 << 15) + 128);
            (-room..=room).contains(base)
        };
        if !base.iter().zip(weights).all(fits) {
            return None;
        }
        let zero = |[factor, _, shift]: [i64; 3]| factor == 0 || shift >= ZERO_SHIFT;
        let shifts = factors.iter().filter(|f| !zero(**f)).map(|[.., shift]| *shift);
        let shift = shifts.max().unwrap_or(0).max(MIN_SHIFT);
        let scaled = |f: &[i64; 3]| match *f {
            f if zero(f) => Some(0),
            [factor, _, right] if factor > 0 && shift - right <= 16 => {
                i32::try_from(factor << (shift - right)).ok()
            }
            _ => None,
        };
        let factors = factors.iter().map(scaled).collect::<Option<Vec<i32>>>()?;
        let shift = (shift - 32) as u32;
        Some(ShortSums {
            base: base.iter().map(|base| *base as i32).cycle().take(len).collect(),
            factors: factors.into_iter().cycle().take(len).collect(),
            half: 1 << (shift - 1),
            shift,
            low: low?.into(),
            high: high?.into(),
        })
    }

    /// Scales a sum, which includes the constant part, to a result.
    #[inline(always)]
    fn scale(&self, sum: i32, factor: i32) -> i32 {
        let high = ((i64::from(sum) * i64::from(factor)) >> 32) as i32;
        (high.wrapping_add(self.half) >> self.shift).max(self.low).min(self.high)
    }
}

/// Scaling of a sum.
#[derive(Clone, Debug)]
pub enum Scale {
    /// Wide sums: `(x · factor + round) >> shift`, per column.
    Fixed(Vec<[i64; 3]>),
    /// 32-bit sums by a [`Multiplier`] per column.
    Narrow(Vec<Multiplier>, Ties),
    /// A real factor per column; ties round away from zero.
    Real(Vec<f64>),
}

impl Scale {
    /// Sums of up to 48 bits times factors that are rounded to 16 bits; ties round up. `None` unless all products are
    /// shifted to the right, by 1 to 62 bits.
    pub fn fixed(multipliers: &[Multiplier]) -> Option<Self> {
        let one = |m: &Multiplier| {
            let kept = if m.multiplier < 0x7fff_0000 { (m.multiplier + (1 << 15)) >> 16 } else { 0x7fff };
            let right = 15 - m.shift;
            (1..=62).contains(&right).then(|| [kept.into(), 1 << (right - 1), right.into()])
        };
        multipliers.iter().map(one).collect::<Option<_>>().map(Scale::Fixed)
    }

    fn columns(&self) -> usize {
        match self {
            Scale::Fixed(list) => list.len(),
            Scale::Narrow(list, _) => list.len(),
            Scale::Real(list) => list.len(),
        }
    }
}

impl WideSums {
    /// For columns of consecutive weights, one column per factor of `scale`, with one `bias` each. Results are clamped
    /// to `bounds`.
    ///
    /// # Errors
    /// Fails if lengths do not match, or a sum could overflow.
    pub fn of_bytes(weights: &[u8], bias: Option<&[i64]>, scale: Scale, bounds: [i32; 2]) -> Result<Self> {
        let columns = scale.columns();
        let depth = weights.len().checked_div(columns).unwrap_or(0);
        if depth > MAX_PRODUCTS {
            return Err(ComputeError::Range { what: "depth: sums of more than 65536 products may overflow" });
        }
        let total = |column: &[u8]| column.iter().map(|w| 128 * i64::from(w.cast_signed())).sum();
        let totals = weights.chunks_exact(depth.max(1)).map(total).collect();
        let magnitude = |column: &[u8]| column.iter().map(|w| magnitude(*w)).sum();
        let magnitudes: Vec<i64> = weights.chunks_exact(depth.max(1)).map(magnitude).collect();
        Self::new(totals, bias, scale, bounds, (&magnitudes, columns))
    }

    /// `weights` has the sum of the absolute values of each column's weights, and the length of the lists for vectors.
    fn new(
        mut base: Vec<i64>,
        bias: Option<&[i64]>,
        scale: Scale,
        [low, high]: [i32; 2],
        (weights, len): (&[i64], usize),
    ) -> Result<Self> {
        check_len("factors", scale.columns(), base.len())?;
        if let Some(bias) = bias {
            check_len("bias", bias.len(), base.len())?;
            base.iter_mut().zip(bias).for_each(|(base, bias)| *base = base.wrapping_add(*bias));
        }
        let short = ShortSums::new(&base, &scale, [low, high], weights, len);
        Ok(WideSums { base, scale, low, high, short })
    }

    /// Computes outputs `[rows, columns]` from the sums of the upper and of the lower halves of the activations.
    ///
    /// # Errors
    /// Fails if lengths do not match.
    pub fn run(&self, isa: Isa, sums: [&[i32]; 2], out: &mut [i16], par: &dyn Parallel) -> Result<()> {
        let columns = self.base.len();
        for sums in sums {
            check_len("sums", sums.len(), out.len())?;
        }
        check_multiple("elements of output", out.len(), columns)?;
        let rows = out.len().checked_div(columns).unwrap_or(0);
        let par = threads_for(par, out.len().saturating_mul(4));
        let chunk = chunk_len(par, rows, columns.saturating_mul(4));
        let shared = SharedMut::new(out);
        par.run(rows.div_ceil(chunk), &|task| {
            let (from, count) = (task * chunk * columns, chunk.min(rows - task * chunk) * columns);
            // SAFETY: rows of tasks are disjoint, and `Parallel::run` calls each task at most once.
            let out = unsafe { shared.slice(from, count) };
            dispatch(isa, HalvesTask { to: self, sums: sums.map(|sums| &sums[from..][..count]), out });
        });
        Ok(())
    }

    /// Adds the constant part to sums, beginning with column `first`, and scales them.
    #[inline(always)]
    fn finish(&self, first: usize, sums: impl Iterator<Item = i64>, out: &mut [i16]) {
        let (low, high) = (self.low, self.high);
        let sums = sums.zip(&self.base[first..]).map(|(sum, base)| sum.wrapping_add(*base));
        macro_rules! each {
            ($factors:expr, $sum:ident, $factor:ident => $scaled:expr) => {
                for ((o, $sum), $factor) in out.iter_mut().zip(sums).zip(&$factors[first..]) {
                    let scaled: i32 = $scaled;
                    *o = scaled.max(low).min(high) as i16;
                }
            };
        }
        match &self.scale {
            Scale::Fixed(factors) => each!(factors, sum, factor => {
                let [factor, round, shift] = *factor;
                (sum.wrapping_mul(factor).wrapping_add(round) >> shift) as i32
            }),
            Scale::Narrow(factors, ties) => each!(factors, sum, factor => factor.apply(sum as i32, *ties)),
            Scale::Real(factors) => each!(factors, sum, factor => (sum as f64 * factor).round() as i32),
        }
    }
}

struct HalvesTask<'a> {
    to: &'a WideSums,
    sums: [&'a [i32]; 2],
    out: &'a mut [i16],
}

impl SimdTask for HalvesTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let columns = self.to.base.len().max(1);
        let [high, low] = self.sums.map(|sums| sums.chunks_exact(columns));
        for (out, (high, low)) in self.out.chunks_exact_mut(columns).zip(high.zip(low)) {
            let Some(short) = &self.to.short else {
                let sums = high.iter().zip(low).map(|(high, low)| 256 * i64::from(*high) + i64::from(*low));
                self.to.finish(0, sums, out);
                continue;
            };
            let columns = short.base.iter().zip(&short.factors);
            for ((o, (high, low)), (base, factor)) in out.iter_mut().zip(high.iter().zip(low)).zip(columns) {
                // Only the whole sum is known to fit 32 bits.
                let sum = high.wrapping_mul(256).wrapping_add(*low).wrapping_add(*base);
                *o = short.scale(sum, *factor) as i16;
            }
        }
    }
}

/// Absolute value of a weight.
fn magnitude(weight: u8) -> i64 {
    weight.cast_signed().unsigned_abs().into()
}

/// The lower half of an activation of 0.
pub const LOW_OF_ZERO: u8 = 0x80;

/// Splits activations into their halves, which are signed bytes.
///
/// # Errors
/// Fails if lengths do not match.
pub fn halves(isa: Isa, input: &[i16], high: &mut [u8], low: &mut [u8], par: &dyn Parallel) -> Result<()> {
    check_len("upper halves", high.len(), input.len())?;
    check_len("lower halves", low.len(), input.len())?;
    let par = threads_for(par, input.len());
    let piece = chunk_len(par, input.len(), 1);
    let (high, low) = (SharedMut::new(high), SharedMut::new(low));
    par.run(input.len().div_ceil(piece), &|task| {
        let input = &input[task * piece..((task + 1) * piece).min(input.len())];
        // SAFETY: parts of tasks are disjoint, and `Parallel::run` calls each task at most once.
        let (high, low) =
            unsafe { (high.slice(task * piece, input.len()), low.slice(task * piece, input.len())) };
        dispatch(isa, SplitTask { input, high, low });
    });
    Ok(())
}

struct SplitTask<'a> {
    input: &'a [i16],
    high: &'a mut [u8],
    low: &'a mut [u8],
}

impl SimdTask for SplitTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (x, (high, low)) in self.input.iter().zip(self.high.iter_mut().zip(self.low)) {
            *high = (x >> 8) as u8;
            *low = *x as u8 ^ LOW_OF_ZERO;
        }
    }
}

/// DEPTHWISE_CONV_2D of 16-bit activations with 8-bit weights.
pub struct DepthwiseI16 {
    isa: Isa,
    channels: usize,
    window: [usize; 2],
    /// `[height, width, pitch]`: a tap's weights for all channels, which are repeated up to the length of `pitch`.
    weights: AlignedVec<i16>,
    pitch: usize,
    to: WideSums,
}

/// Minimum cost of a pixel, in elements of a cheap function.
const PIXEL_COST: usize = 32;

/// Maximum number of vectors of sums that are accumulated at a time.
const VECTORS: usize = 4;

/// Maximum number of elements whose sums are accumulated at a time. With fewer channels, they belong to several pixels.
const MAX_BLOCK: usize = VECTORS * 16;

/// Elements of an input row that are copied at a time, with padding. At least a block.
const COPIED: usize = 512;

impl DepthwiseI16 {
    /// For a filter `[1, height, width, channels]` with a `bias` and factor per channel. Results are
    /// clamped to `bounds`.
    ///
    /// # Errors
    /// Fails if lengths do not match, a sum could overflow, or memory cannot be allocated.
    #[allow(clippy::too_many_arguments, reason = "one argument per operand")]
    pub fn new(
        isa: Isa,
        channels: usize,
        window: [usize; 2],
        weights: &[u8],
        bias: Option<&[i64]>,
        scale: Scale,
        bounds: [i32; 2],
    ) -> Result<Self> {
        let taps = product("window", &window)?;
        check_len("weights", weights.len(), product("weights", &[taps, channels])?)?;
        if taps > MAX_TAPS {
            return Err(ComputeError::Range { what: "window: sums of more than 256 products may overflow" });
        }
        // A block begins at any of few channels.
        let pitch = if channels < MAX_BLOCK { channels + MAX_BLOCK } else { channels };
        let mut magnitudes = vec![0; channels];
        let mut wide = AlignedVec::<i16>::zeroed(product("weights", &[taps, pitch])?)?;
        let rows = wide.as_mut_slice().chunks_exact_mut(pitch);
        for (to, tap) in rows.zip(weights.chunks_exact(channels.max(1))) {
            to.iter_mut().zip(tap.iter().cycle()).for_each(|(to, w)| *to = w.cast_signed().into());
            magnitudes.iter_mut().zip(tap).for_each(|(sum, w)| *sum += magnitude(*w));
        }
        let to = WideSums::new(vec![0; channels], bias, scale, bounds, (&magnitudes, pitch))?;
        Ok(Self { isa, channels, window, weights: wide, pitch, to })
    }

    /// Convolves `input` `[batch, height, width, channels]` into `out` `[batch, height, width, channels]`. Needs no
    /// scratch.
    ///
    /// # Errors
    /// Fails if the geometry does not match the filter, or an operand has the wrong length.
    pub fn run(&self, geo: &ConvGeometry, input: &[i16], out: &mut [i16], par: &dyn Parallel) -> Result<()> {
        geo.check()?;
        if geo.window != self.window {
            return Err(ComputeError::Range { what: "window" });
        }
        if geo.in_channels != self.channels {
            return Err(ComputeError::Range { what: "input channels" });
        }
        check_len("input", input.len(), geo.input_len()?)?;
        let row = geo.output[1] * self.channels;
        check_len("output", out.len(), product("output", &[geo.batch, geo.output[0], row])?)?;
        if out.is_empty() {
            return Ok(());
        }
        let work =
            row.saturating_mul(self.window[0] * self.window[1]).max(geo.output[1].saturating_mul(PIXEL_COST));
        let rows = geo.batch * geo.output[0];
        let par = threads_for(par, rows.saturating_mul(work));
        let piece = chunk_len(par, rows, work);
        let shared = SharedMut::new(out);
        par.run(rows.div_ceil(piece), &|task| {
            let rows = task * piece..((task + 1) * piece).min(rows);
            // SAFETY: rows of tasks are disjoint, and `Parallel::run` calls each task at most once.
            let out = unsafe { shared.slice(rows.start * row, rows.len() * row) };
            dispatch(self.isa, DepthwiseRows { layer: self, geo, input, first: rows.start, out });
        });
        Ok(())
    }
}

/// Output rows from row `first` on.
struct DepthwiseRows<'a> {
    layer: &'a DepthwiseI16,
    geo: &'a ConvGeometry,
    input: &'a [i16],
    first: usize,
    out: &'a mut [i16],
}

impl SimdTask for DepthwiseRows<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: of the sets for x86, those of 16 lanes have AVX-512 F and BW, and those of 8 lanes AVX2. All
        // processors of a target have the other instructions.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            match S::LANES {
                16 => self.rows::<x86::Avx512>(),
                8 => self.rows::<x86::Avx2>(),
                _ => self.rows::<x86::Sse2>(),
            }
            #[cfg(not(target_arch = "x86_64"))]
            self.rows::<baseline::Baseline>();
        }
    }
}

/// Vectors of sums of products of 16-bit elements.
///
/// # Safety
/// All methods require that the processor has their instructions. Pointers must be valid for `LANES` elements;
/// alignment is not required.
trait Words {
    type V: Copy;
    const LANES: usize;

    unsafe fn splat(x: i32) -> Self::V;
    unsafe fn load(p: *const i32) -> Self::V;
    unsafe fn store(p: *mut i32, v: Self::V);
    /// Adds products. Weights are those of bytes.
    unsafe fn add(sums: Self::V, x: *const i16, weights: *const i16) -> Self::V;
    /// Scales sums and stores the results.
    unsafe fn scale(sums: Self::V, short: &ShortSums, factors: *const i32, to: *mut i16);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! By hand: the compiler does not keep the sums of a block in vector registers.

    use std::arch::x86_64::*;

    use super::{ShortSums, Words};
    use crate::simd::intrinsics;

    pub(super) struct Sse2;
    pub(super) struct Avx2;
    pub(super) struct Avx512;

    impl Words for Sse2 {
        type V = __m128i;
        const LANES: usize = 4;

        intrinsics! {
            splat(x: i32) -> __m128i = _mm_set1_epi32(x);
            load(p: *const i32) -> __m128i = _mm_loadu_si128(p.cast());
            store(p: *mut i32, v: __m128i) = _mm_storeu_si128(p.cast(), v);
            add(sums: __m128i, x: *const i16, weights: *const i16) -> __m128i = {
                // Upper halves of 0, so that a sum of two products is one product.
                let zero = _mm_setzero_si128();
                let x = _mm_unpacklo_epi16(_mm_loadl_epi64(x.cast()), zero);
                let weights = _mm_unpacklo_epi16(_mm_loadl_epi64(weights.cast()), zero);
                _mm_add_epi32(sums, _mm_madd_epi16(x, weights))
            };
            scale(sums: __m128i, short: &ShortSums, factors: *const i32, to: *mut i16) = {
                let factors = _mm_loadu_si128(factors.cast());
                // Products of unsigned numbers: as such, negative sums are greater by 2^32.
                let even = _mm_srli_epi64::<32>(_mm_mul_epu32(sums, factors));
                let odd = _mm_mul_epu32(_mm_srli_epi64::<32>(sums), _mm_srli_epi64::<32>(factors));
                let odd = _mm_slli_epi64::<32>(_mm_srli_epi64::<32>(odd));
                let excess = _mm_and_si128(_mm_srai_epi32::<31>(sums), factors);
                let high = _mm_sub_epi32(_mm_or_si128(even, odd), excess);
                let high = _mm_add_epi32(high, _mm_set1_epi32(short.half));
                let scaled = _mm_sra_epi32(high, _mm_cvtsi32_si128(short.shift.cast_signed()));
                let words = _mm_packs_epi32(scaled, scaled);
                let words = _mm_max_epi16(words, _mm_set1_epi16(short.low as i16));
                let words = _mm_min_epi16(words, _mm_set1_epi16(short.high as i16));
                _mm_storel_epi64(to.cast(), words);
            };
        }
    }

    impl Words for Avx2 {
        type V = __m256i;
        const LANES: usize = 8;

        intrinsics! {
            splat(x: i32) -> __m256i = _mm256_set1_epi32(x);
            load(p: *const i32) -> __m256i = _mm256_loadu_si256(p.cast());
            store(p: *mut i32, v: __m256i) = _mm256_storeu_si256(p.cast(), v);
            add(sums: __m256i, x: *const i16, weights: *const i16) -> __m256i = {
                let x = _mm256_cvtepi16_epi32(_mm_loadu_si128(x.cast()));
                // Upper halves of 0, so that a sum of two products is one product.
                let weights = _mm256_cvtepu16_epi32(_mm_loadu_si128(weights.cast()));
                _mm256_add_epi32(sums, _mm256_madd_epi16(x, weights))
            };
            scale(sums: __m256i, short: &ShortSums, factors: *const i32, to: *mut i16) = {
                let factors = _mm256_loadu_si256(factors.cast());
                let even = _mm256_mul_epi32(sums, factors);
                let odd = _mm256_mul_epi32(_mm256_srli_epi64::<32>(sums), _mm256_srli_epi64::<32>(factors));
                let high = _mm256_blend_epi32::<0b1010_1010>(_mm256_srli_epi64::<32>(even), odd);
                let high = _mm256_add_epi32(high, _mm256_set1_epi32(short.half));
                let scaled = _mm256_sra_epi32(high, _mm_cvtsi32_si128(short.shift.cast_signed()));
                let scaled = _mm256_max_epi32(scaled, _mm256_set1_epi32(short.low));
                let scaled = _mm256_min_epi32(scaled, _mm256_set1_epi32(short.high));
                let words = _mm256_permute4x64_epi64::<0b1000>(_mm256_packs_epi32(scaled, scaled));
                _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(words));
            };
        }
    }

    impl Words for Avx512 {
        type V = __m512i;
        const LANES: usize = 16;

        intrinsics! {
            splat(x: i32) -> __m512i = _mm512_set1_epi32(x);
            load(p: *const i32) -> __m512i = _mm512_loadu_si512(p.cast());
            store(p: *mut i32, v: __m512i) = _mm512_storeu_si512(p.cast(), v);
            add(sums: __m512i, x: *const i16, weights: *const i16) -> __m512i = {
                let x = _mm512_cvtepi16_epi32(_mm256_loadu_si256(x.cast()));
                // Upper halves of 0, so that a sum of two products is one product.
                let weights = _mm512_cvtepu16_epi32(_mm256_loadu_si256(weights.cast()));
                _mm512_add_epi32(sums, _mm512_madd_epi16(x, weights))
            };
            scale(sums: __m512i, short: &ShortSums, factors: *const i32, to: *mut i16) = {
                let factors = _mm512_loadu_si512(factors.cast());
                let even = _mm512_mul_epi32(sums, factors);
                let odd = _mm512_mul_epi32(_mm512_srli_epi64::<32>(sums), _mm512_srli_epi64::<32>(factors));
                let high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64::<32>(even), odd);
                let high = _mm512_add_epi32(high, _mm512_set1_epi32(short.half));
                let scaled = _mm512_sra_epi32(high, _mm_cvtsi32_si128(short.shift.cast_signed()));
                let scaled = _mm512_max_epi32(scaled, _mm512_set1_epi32(short.low));
                let scaled = _mm512_min_epi32(scaled, _mm512_set1_epi32(short.high));
                _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(scaled));
            };
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod baseline {
    //! By hand: the compiler does not keep the sums of a block in vector registers.

    use std::arch::aarch64::*;

    use super::{ShortSums, Words};
    use crate::simd::intrinsics;

    /// NEON.
    pub(super) struct Baseline;

    impl Words for Baseline {
        type V = int32x4_t;
        const LANES: usize = 4;

        intrinsics! {
            splat(x: i32) -> int32x4_t = vdupq_n_s32(x);
            load(p: *const i32) -> int32x4_t = vld1q_s32(p);
            store(p: *mut i32, v: int32x4_t) = vst1q_s32(p, v);
            add(sums: int32x4_t, x: *const i16, weights: *const i16) -> int32x4_t =
                vmlal_s16(sums, vld1_s16(x), vld1_s16(weights));
            scale(sums: int32x4_t, short: &ShortSums, factors: *const i32, to: *mut i16) = {
                let factors = vld1q_s32(factors);
                let first = vmull_s32(vget_low_s32(sums), vget_low_s32(factors));
                let last = vmull_high_s32(sums, factors);
                let high = vuzp2q_s32(vreinterpretq_s32_s64(first), vreinterpretq_s32_s64(last));
                let high = vaddq_s32(high, vdupq_n_s32(short.half));
                let scaled = vshlq_s32(high, vdupq_n_s32(-short.shift.cast_signed()));
                let scaled = vmaxq_s32(scaled, vdupq_n_s32(short.low));
                let scaled = vminq_s32(scaled, vdupq_n_s32(short.high));
                vst1_s16(to, vmovn_s32(scaled));
            };
        }
    }
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod baseline {
    //! By hand: the compiler does not keep the sums of a block in vector registers.

    use std::arch::wasm32::*;

    use super::{ShortSums, Words};
    use crate::simd::intrinsics;

    /// Vectors of 128 bits.
    pub(super) struct Baseline;

    impl Words for Baseline {
        type V = v128;
        const LANES: usize = 4;

        intrinsics! {
            splat(x: i32) -> v128 = i32x4_splat(x);
            load(p: *const i32) -> v128 = v128_load(p.cast());
            store(p: *mut i32, v: v128) = v128_store(p.cast(), v);
            add(sums: v128, x: *const i16, weights: *const i16) -> v128 = {
                let (x, weights) = (v128_load64_zero(x.cast()), v128_load64_zero(weights.cast()));
                i32x4_add(sums, i32x4_extmul_low_i16x8(x, weights))
            };
            scale(sums: v128, short: &ShortSums, factors: *const i32, to: *mut i16) = {
                let factors = v128_load(factors.cast());
                let first = i64x2_extmul_low_i32x4(sums, factors);
                let last = i64x2_extmul_high_i32x4(sums, factors);
                let high = i32x4_add(i32x4_shuffle::<1, 3, 5, 7>(first, last), i32x4_splat(short.half));
                let scaled = i32x4_max(i32x4_shr(high, short.shift), i32x4_splat(short.low));
                let scaled = i32x4_min(scaled, i32x4_splat(short.high));
                v128_store64_lane::<0>(i16x8_narrow_i32x4(scaled, scaled), to.cast());
            };
        }
    }
}

#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    all(target_arch = "wasm32", target_feature = "simd128")
)))]
mod baseline {
    use super::{ShortSums, Words};

    /// Four lanes that the compiler maps to vectors.
    pub(super) struct Baseline;

    impl Words for Baseline {
        type V = [i32; 4];
        const LANES: usize = 4;

        #[inline(always)]
        unsafe fn splat(x: i32) -> [i32; 4] {
            [x; 4]
        }
        #[inline(always)]
        unsafe fn load(p: *const i32) -> [i32; 4] {
            // SAFETY: valid for four lanes by the caller's contract.
            unsafe { p.cast::<[i32; 4]>().read_unaligned() }
        }
        #[inline(always)]
        unsafe fn store(p: *mut i32, v: [i32; 4]) {
            // SAFETY: valid for four lanes by the caller's contract.
            unsafe { p.cast::<[i32; 4]>().write_unaligned(v) }
        }
        #[inline(always)]
        unsafe fn add([a, b, c, d]: [i32; 4], x: *const i16, weights: *const i16) -> [i32; 4] {
            // SAFETY: valid for four lanes by the caller's contract.
            let (x, w) = unsafe {
                (x.cast::<[i16; 4]>().read_unaligned(), weights.cast::<[i16; 4]>().read_unaligned())
            };
            let product = |i: usize| i32::from(x[i]) * i32::from(w[i]);
            [a + product(0), b + product(1), c + product(2), d + product(3)]
        }
        #[inline(always)]
        unsafe fn scale([a, b, c, d]: [i32; 4], short: &ShortSums, factors: *const i32, to: *mut i16) {
            // SAFETY: valid for four lanes by the caller's contract.
            let f = unsafe { Self::load(factors) };
            let scaled =
                [short.scale(a, f[0]), short.scale(b, f[1]), short.scale(c, f[2]), short.scale(d, f[3])];
            let [a, b, c, d] = scaled;
            // SAFETY: as above.
            unsafe { to.cast::<[i16; 4]>().write_unaligned([a as i16, b as i16, c as i16, d as i16]) };
        }
    }
}

impl DepthwiseRows<'_> {
    /// # Safety
    /// The processor must have the instructions of `W`.
    #[inline(always)]
    unsafe fn rows<W: Words>(self) {
        let DepthwiseRows { layer, geo, input, first, out } = self;
        let (channels, stride) = (layer.channels, geo.stride[1]);
        let mut copy = [0; COPIED];
        for (row, out) in (first..).zip(out.chunks_exact_mut(geo.output[1] * channels)) {
            let y0 = geo.origin(0, row % geo.output[0]);
            let row = Row { layer, geo, input, image: row / geo.output[0], y0, ky: geo.taps(0, y0) };
            // SAFETY: the caller meets the contract of these functions.
            unsafe {
                if channels >= MAX_BLOCK || (channels >= W::LANES && stride > 1) {
                    row.by_pixels::<W>(out);
                } else if stride == 1 {
                    row.by_elements::<W>(out, &mut copy);
                } else {
                    row.with_gaps::<W>(out, &mut copy);
                }
            }
        }
    }
}

/// An output row.
///
/// # Safety
/// Unsafe methods require that the processor has the instructions of `W`.
struct Row<'a> {
    layer: &'a DepthwiseI16,
    geo: &'a ConvGeometry,
    input: &'a [i16],
    image: usize,
    /// First row of the windows.
    y0: isize,
    /// Rows of the windows that are inside of the input.
    ky: Range<usize>,
}

/// Calls a method for as many vectors as `n` elements need.
macro_rules! sized {
    ($self:ident, $n:expr, $method:ident($($arg:expr),*)) => {
        // SAFETY: the caller has the instructions of `W`.
        unsafe {
            match $n {
                n if n <= W::LANES => $self.$method::<W, 1>($($arg),*),
                n if n <= 2 * W::LANES => $self.$method::<W, 2>($($arg),*),
                _ => $self.$method::<W, VECTORS>($($arg),*),
            }
        }
    };
}

impl Row<'_> {
    /// For windows one pixel apart: each tap multiplies neighbouring elements of an input row for neighbouring elements
    /// of the output row.
    #[inline(always)]
    unsafe fn by_elements<W: Words>(&self, out: &mut [i16], copy: &mut [i16; COPIED]) {
        let channels = self.layer.channels;
        let first = (self.geo.origin(1, 0) as i64).saturating_mul(channels as i64);
        let mut at = 0;
        while at < out.len() {
            let n = (out.len() - at).min(VECTORS * W::LANES);
            let mut block = [0; MAX_BLOCK];
            let place = (first + at as i64, n, at % channels);
            sized!(self, n, block(place, &mut block, copy));
            out[at..at + n].copy_from_slice(&block[..n]);
            at += n;
        }
    }

    /// As [`Row::by_elements`], for windows that are further apart: the elements between them are dropped.
    #[inline(always)]
    unsafe fn with_gaps<W: Words>(&self, out: &mut [i16], copy: &mut [i16; COPIED]) {
        let channels = self.layer.channels;
        let step = self.geo.stride[1].saturating_mul(channels);
        let pixels = 1 + (VECTORS * W::LANES - channels) / step;
        for (i, out) in out.chunks_mut(pixels * channels).enumerate() {
            let n = (out.len() / channels - 1) * step + channels;
            let mut block = [0; MAX_BLOCK];
            let first = (self.geo.origin(1, i * pixels) as i64).saturating_mul(channels as i64);
            sized!(self, n, block((first, n, 0), &mut block, copy));
            for (to, from) in out.chunks_exact_mut(channels).zip(block.chunks(step)) {
                // Takes less time than a call of `memcpy`.
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        }
    }

    /// Computes `n` elements, at most `N` vectors: the first one is of channel `phase`, and its first tap reads element
    /// `first` of the input row.
    #[inline(always)]
    unsafe fn block<W: Words, const N: usize>(
        &self,
        (first, n, phase): (i64, usize, usize),
        out: &mut [i16; MAX_BLOCK],
        copy: &mut [i16; COPIED],
    ) {
        let (layer, geo) = (self.layer, self.geo);
        let (len, width) = (N * W::LANES, geo.window[1]);
        let line = geo.input[1].saturating_mul(layer.channels);
        // At most 2^30 times fewer than 64 channels, times at most 256 taps.
        let step = geo.dilation[1] as i64 * layer.channels as i64;
        // Taps that read an element of the row: the others read only padding.
        let from = ((-(n as i64)).saturating_sub(first).div_euclid(step) + 1).clamp(0, width as i64);
        let to = ((line as i64).saturating_sub(first).saturating_add(step - 1).div_euclid(step))
            .clamp(from, width as i64);
        let (count, start_at, taps) =
            ((to - from) as usize, first.saturating_add(from * step), from as usize);
        // SAFETY: the caller meets the contract of these functions.
        let mut sums = unsafe { layer.start::<W, N>(phase) };
        if count > 0 {
            // Neighbouring taps are less than a row apart, and a single one needs no step.
            let reach = (count as i64 - 1) * step;
            let step = if count > 1 { step as usize } else { 0 };
            let inside = start_at >= 0 && start_at + reach + n as i64 <= line as i64;
            let is_short = reach <= (COPIED - len) as i64;
            let reach = reach as usize;
            for ky in self.ky.clone() {
                let weights = &layer.weights.as_slice()[(ky * width + taps) * layer.pitch + phase..];
                let start = self.row_start(ky);
                // Elements after the last one, which are not stored, may be those of the next row.
                let direct = match inside {
                    true => self.input[start + start_at as usize..].get(..reach + len),
                    false => None,
                };
                if let Some(x) = direct {
                    for kx in 0..count {
                        // SAFETY: the caller meets the contract of this function.
                        sums = unsafe { add::<W, N>(sums, &x[kx * step..], &weights[kx * layer.pitch..]) };
                    }
                    continue;
                }
                let row = &self.input[start..start + line];
                if is_short {
                    copy_padded(row, start_at as isize, &mut copy[..reach + len]);
                    for kx in 0..count {
                        // SAFETY: the caller meets the contract of this function.
                        sums = unsafe { add::<W, N>(sums, &copy[kx * step..], &weights[kx * layer.pitch..]) };
                    }
                    continue;
                }
                for kx in 0..count {
                    let at = start_at as isize + (kx * step) as isize;
                    let weights = &weights[kx * layer.pitch..];
                    let x = if at >= 0 && at as usize + n <= line {
                        self.input[start + at as usize..].get(..len)
                    } else {
                        None
                    };
                    let x = match x {
                        Some(x) => x,
                        None => {
                            copy_padded(row, at, &mut copy[..len]);
                            &copy[..len]
                        }
                    };
                    // SAFETY: the caller meets the contract of this function.
                    sums = unsafe { add::<W, N>(sums, x, weights) };
                }
            }
        }
        // SAFETY: the caller meets the contract of this function.
        unsafe { layer.finish::<W, N>(sums, phase, &mut out[..len]) };
    }

    /// For at least as many channels as lanes: blocks of the channels of a pixel.
    #[inline(always)]
    unsafe fn by_pixels<W: Words>(&self, out: &mut [i16]) {
        let channels = self.layer.channels;
        let longest = match channels / W::LANES {
            1 => W::LANES,
            2 | 3 => 2 * W::LANES,
            _ => VECTORS * W::LANES,
        };
        for (x, out) in out.chunks_exact_mut(channels).enumerate() {
            let x0 = self.geo.origin(1, x);
            let kx = self.geo.taps(1, x0);
            let mut at = 0;
            while at < channels {
                let n = (channels - at).min(longest);
                sized!(self, n, channels(x0, kx.clone(), at, out));
                at += n;
            }
        }
    }

    /// Computes `N` vectors of channels of a pixel, from channel `at` or an earlier one on.
    #[inline(always)]
    unsafe fn channels<W: Words, const N: usize>(
        &self,
        x0: isize,
        kx: Range<usize>,
        at: usize,
        out: &mut [i16],
    ) {
        let (layer, geo) = (self.layer, self.geo);
        // Some channels are computed twice, which takes no longer than a part of a vector.
        let first = at.min(layer.channels - N * W::LANES);
        // SAFETY: the caller meets the contract of this function.
        let mut sums = unsafe { layer.start::<W, N>(first) };
        for ky in self.ky.clone() {
            let start = self.row_start(ky);
            for kx in kx.clone() {
                let pixel = (x0 + (kx * geo.dilation[1]) as isize) as usize;
                let x = &self.input[start + pixel * layer.channels + first..];
                let weights = &layer.weights.as_slice()[(ky * geo.window[1] + kx) * layer.pitch + first..];
                // SAFETY: the caller meets the contract of this function.
                sums = unsafe { add::<W, N>(sums, x, weights) };
            }
        }
        // SAFETY: the caller meets the contract of this function.
        unsafe { layer.finish::<W, N>(sums, first, &mut out[first..first + N * W::LANES]) };
    }

    /// Returns the position of the input row of a row of the windows.
    #[inline(always)]
    fn row_start(&self, ky: usize) -> usize {
        let y = (self.y0 + (ky * self.geo.dilation[0]) as isize) as usize;
        (self.image * self.geo.input[0] + y) * self.geo.input[1] * self.layer.channels
    }
}

impl DepthwiseI16 {
    /// Returns sums without products, for elements of which the first one is of channel `phase`.
    ///
    /// # Safety
    /// The processor must have the instructions of `W`.
    #[inline(always)]
    unsafe fn start<W: Words, const N: usize>(&self, phase: usize) -> [W::V; N] {
        // SAFETY: the instructions exist by the caller's contract, and the list has elements for all vectors.
        unsafe {
            let mut sums = [W::splat(0); N];
            if let Some(short) = &self.to.short {
                let base = &short.base[phase..phase + N * W::LANES];
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = W::load(base.as_ptr().add(i * W::LANES));
                }
            }
            sums
        }
    }

    /// Scales sums of elements, of which the first one is of channel `phase`. `out` has an element for each.
    ///
    /// # Safety
    /// The processor must have the instructions of `W`.
    #[inline(always)]
    unsafe fn finish<W: Words, const N: usize>(&self, sums: [W::V; N], phase: usize, out: &mut [i16]) {
        let out = &mut out[..N * W::LANES];
        if let Some(short) = &self.to.short {
            let factors = &short.factors[phase..phase + N * W::LANES];
            for (i, sum) in sums.into_iter().enumerate() {
                let at = i * W::LANES;
                // SAFETY: the instructions exist by the caller's contract, and both slices have elements for all
                // vectors.
                unsafe { W::scale(sum, short, factors.as_ptr().add(at), out.as_mut_ptr().add(at)) };
            }
            return;
        }
        let mut list = [0; MAX_BLOCK];
        for (list, sum) in list.chunks_exact_mut(W::LANES).zip(sums) {
            // SAFETY: the instructions exist by the caller's contract, and the part has an element per lane.
            unsafe { W::store(list.as_mut_ptr(), sum) };
        }
        let (mut phase, mut at) = (phase, 0);
        while at < out.len() {
            let n = (self.channels - phase).min(out.len() - at);
            self.to.finish(phase, list[at..].iter().map(|s| i64::from(*s)), &mut out[at..at + n]);
            (phase, at) = (0, at + n);
        }
    }
}

/// Adds products to sums.
///
/// # Safety
/// The processor must have the instructions of `W`.
#[inline(always)]
unsafe fn add<W: Words, const N: usize>(mut sums: [W::V; N], x: &[i16], weights: &[i16]) -> [W::V; N] {
    let (x, weights) = (&x[..N * W::LANES], &weights[..N * W::LANES]);
    for (i, sum) in sums.iter_mut().enumerate() {
        let at = i * W::LANES;
        // SAFETY: the instructions exist by the caller's contract, and both slices have elements for all vectors.
        *sum = unsafe { W::add(*sum, x.as_ptr().add(at), weights.as_ptr().add(at)) };
    }
    sums
}

/// Copies the elements of a row from position `at` on; outside of the row they are 0.
#[inline(always)]
fn copy_padded(row: &[i16], at: isize, to: &mut [i16]) {
    let before = if at < 0 { at.unsigned_abs().min(to.len()) } else { 0 };
    let (blank, to) = to.split_at_mut(before);
    blank.fill(0);
    let row = &row[at.max(0).cast_unsigned().min(row.len())..];
    let (inner, blank) = to.split_at_mut(to.len().min(row.len()));
    inner.copy_from_slice(&row[..inner.len()]);
    blank.fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use crate::testing::random_geometry;
    use crate::{Serial, ThreadPool};

    const ANY: [i32; 2] = [i16::MIN as i32, i16::MAX as i32];

    fn words(rng: &mut Rng, len: usize) -> Vec<i16> {
        let extreme = |rng: &mut Rng| [i16::MIN, i16::MAX][rng.range(0, 1)];
        (0..len).map(|_| if rng.range(0, 7) == 0 { extreme(rng) } else { rng.next() as i16 }).collect()
    }

    fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
        (0..len).map(|_| if rng.range(0, 7) == 0 { 0x80 } else { rng.next() as u8 }).collect()
    }

    /// Factors whose shifts differ by up to `spread` bits, and some that are 0.
    fn multipliers(rng: &mut Rng, columns: usize, spread: usize) -> Vec<Multiplier> {
        let first = rng.range(0, 24) as i32;
        let one = |rng: &mut Rng| Multiplier {
            multiplier: if rng.range(0, 9) == 0 { 0 } else { (rng.next() >> 33) as i32 | 1 << 30 },
            shift: (-first - rng.range(0, spread) as i32).max(-31),
        };
        (0..columns).map(|_| one(rng)).collect()
    }

    /// Constants of each column: of up to 20, 32 or 40 bits.
    fn bias(rng: &mut Rng, columns: usize) -> Option<Vec<i64>> {
        let bits = [0, 20, 32, 40][rng.range(0, 3)];
        (bits > 0).then(|| (0..columns).map(|_| rng.next().cast_signed() >> (64 - bits)).collect())
    }

    fn scaled(sum: i64, m: Multiplier, [low, high]: [i32; 2]) -> i16 {
        let factor = if m.multiplier < 0x7fff_0000 { (m.multiplier + (1 << 15)) >> 16 } else { 0x7fff };
        let shift = 15 - m.shift;
        let scaled = (i128::from(sum) * i128::from(factor) + (1 << (shift - 1))) >> shift;
        (scaled as i32).clamp(low, high) as i16
    }

    #[test]
    fn depthwise_products_of_words_are_exact() {
        let (mut rng, pool) = (Rng::new(16), ThreadPool::new(3));
        let mut kinds = [0; 2];
        let count = if cfg!(miri) { 12 } else { 400 };
        for case in 0..count {
            let most = [3, 8, 34, 70, 140][rng.range(0, 4)];
            let channels = rng.range(1, most);
            let window = [rng.range(1, 5), rng.range(1, 9)];
            let mut geo = random_geometry(&mut rng, channels, window);
            if rng.range(0, 3) == 0 {
                // Rows that are longer than a block, windows far apart, and taps that do not fit one copy.
                (geo.input[1], geo.stride[1]) = (rng.range(60, 300), rng.range(1, 40));
                geo.dilation[1] = rng.range(1, 20);
                let reach = (window[1] - 1) * geo.dilation[1] + 1;
                geo.output[1] = (geo.input[1] + geo.padding[1]).saturating_sub(reach) / geo.stride[1] + 1;
            }
            let input = words(&mut rng, geo.input_len().unwrap());
            let weights = bytes(&mut rng, window[0] * window[1] * channels);
            let bias = bias(&mut rng, channels);
            let spread = [0, 6, 20][rng.range(0, 2)];
            let factors = multipliers(&mut rng, channels, spread);
            let bounds = if rng.range(0, 3) == 0 { [-100, 3000] } else { ANY };
            let mut expected = Vec::new();
            for pixel in 0..geo.pixels().unwrap() {
                let (row, x) = (pixel / geo.output[1], pixel % geo.output[1]);
                let (image, y) = (row / geo.output[0], row % geo.output[0]);
                for c in 0..channels {
                    let mut sum = bias.as_ref().map_or(0, |bias| bias[c]);
                    for (ky, kx) in crate::testing::pairs(window[0], window[1]) {
                        let iy = (y * geo.stride[0] + ky * geo.dilation[0]).wrapping_sub(geo.padding[0]);
                        let ix = (x * geo.stride[1] + kx * geo.dilation[1]).wrapping_sub(geo.padding[1]);
                        if iy < geo.input[0] && ix < geo.input[1] {
                            let at = ((image * geo.input[0] + iy) * geo.input[1] + ix) * channels + c;
                            let w = weights[(ky * window[1] + kx) * channels + c].cast_signed();
                            sum += i64::from(input[at]) * i64::from(w);
                        }
                    }
                    expected.push(scaled(sum, factors[c], bounds));
                }
            }
            for &isa in Isa::available() {
                let scale = Scale::fixed(&factors).unwrap();
                let layer =
                    DepthwiseI16::new(isa, channels, window, &weights, bias.as_deref(), scale, bounds)
                        .unwrap();
                kinds[usize::from(layer.to.short.is_some())] += 1;
                for par in [&pool as &dyn Parallel, &Serial] {
                    let mut out = vec![0x5a5a; expected.len()];
                    layer.run(&geo, &input, &mut out, par).unwrap();
                    assert!(out == expected, "case {case}: {isa:?} {geo:?} {factors:?} {bias:?}");
                }
            }
        }
        assert!(cfg!(miri) || kinds.iter().all(|n| *n > 100), "{kinds:?}");
    }

    #[test]
    fn sums_of_halves_are_scaled_exactly() {
        let mut rng = Rng::new(61);
        let mut kinds = [0; 2];
        let count = if cfg!(miri) { 5 } else { 200 };
        for _ in 0..count {
            let (rows, columns, depth) = (rng.range(1, 9), rng.range(1, 40), rng.range(1, 30));
            let (input, weights) = (words(&mut rng, rows * depth), bytes(&mut rng, columns * depth));
            let bias = bias(&mut rng, columns);
            let factors = multipliers(&mut rng, columns, 8);
            let scale = Scale::fixed(&factors).unwrap();
            let to = WideSums::of_bytes(&weights, bias.as_deref(), scale, ANY).unwrap();
            kinds[usize::from(to.short.is_some())] += 1;
            let (mut high, mut low, mut expected) = (Vec::new(), Vec::new(), Vec::new());
            for (row, column) in crate::testing::pairs(rows, columns) {
                let mut sums = [0; 2];
                for (x, w) in input[row * depth..][..depth].iter().zip(&weights[column * depth..][..depth]) {
                    let w = i32::from(w.cast_signed());
                    sums[0] += i32::from(*x >> 8) * w;
                    sums[1] += (i32::from(*x & 0xff) - 128) * w;
                }
                let total: i64 =
                    weights[column * depth..][..depth].iter().map(|w| i64::from(w.cast_signed())).sum();
                let sum = 256 * i64::from(sums[0]) + i64::from(sums[1]) + 128 * total;
                let sum = sum + bias.as_ref().map_or(0, |bias| bias[column]);
                expected.push(scaled(sum, factors[column], ANY));
                high.push(sums[0]);
                low.push(sums[1]);
            }
            for &isa in Isa::available() {
                let mut out = vec![0; rows * columns];
                to.run(isa, [&high, &low], &mut out, &Serial).unwrap();
                assert_eq!(out, expected, "{isa:?}");
            }
        }
        assert!(cfg!(miri) || kinds.iter().all(|n| *n > 20), "{kinds:?}");
    }
}
