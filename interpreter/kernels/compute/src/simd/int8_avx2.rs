//! [`Dot8`] and [`Product8`] with AVX2.

use std::arch::x86_64::*;

use super::{Dot8, Dot8Task, OwnFunction, Product8, TwoRows, Widen, first_bytes, store_first_bytes};
use crate::base::requant::{FloatPart, Records, RequantPart, record};
use crate::simd::{intrinsics, store_first8};

/// # Safety
/// The processor must have AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2<T: Dot8Task>(task: T) {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<Avx2Pairs>() }
}

/// Masks that flip no top bits, or all. They are loaded from memory: if the compiler saw that all lanes are equal, it
/// would flip in general-purpose registers, from where moves to vector registers are slow.
pub(super) static FLIP: [[u8; 64]; 2] = [[0; 64], [0x80; 64]];

/// Eight columns; products are summed in pairs of 16-bit values, which cannot overflow.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Pairs;

/// The lower and the upper half of a vector.
///
/// # Safety
/// None: SSE2 is part of the target.
#[inline(always)]
pub(super) unsafe fn halves(x: __m128i) -> [u64; 2] {
    // SAFETY: see above.
    unsafe { [_mm_cvtsi128_si64(x) as u64, _mm_cvtsi128_si64(_mm_unpackhi_epi64(x, x)) as u64] }
}

/// Loads the first `n` bytes, at most 16.
///
/// # Safety
/// `p` is valid for them.
#[inline(always)]
unsafe fn first_sixteen(p: *const u8, n: usize) -> __m128i {
    // SAFETY: valid by the caller's contract; SSE2 is part of the target.
    unsafe {
        if n >= 16 {
            return _mm_loadu_si128(p.cast());
        }
        let [low, high] = first_bytes(p, n);
        _mm_set_epi64x(high.cast_signed(), low.cast_signed())
    }
}

impl Dot8 for Avx2Pairs {
    type Flip = __m128i;
    /// Four columns in each half.
    type B = (__m256i, __m256i);
    type Q = (__m256i, __m256i);
    /// Two partial sums per column, for four columns in each half.
    type Acc = (__m256i, __m256i);
    type I = __m256i;
    const LANES: usize = 8;
    const UNSIGNED: bool = false;
    const RECORDS: Records = Records::Biased;

    intrinsics! {
        zero() -> (__m256i, __m256i) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        flip(flip: bool) -> __m128i = _mm_loadu_si128(FLIP[usize::from(flip)].as_ptr().cast());
        b(p: *const i8) -> (__m256i, __m256i) = (
            _mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast())),
            _mm256_cvtepi8_epi16(_mm_loadu_si128(p.add(16).cast())),
        );
        dot_each(acc: (__m256i, __m256i), q: (__m256i, __m256i), b: (__m256i, __m256i)) -> (__m256i, __m256i) = (
            _mm256_add_epi32(acc.0, _mm256_madd_epi16(q.0, b.0)),
            _mm256_add_epi32(acc.1, _mm256_madd_epi16(q.1, b.1)),
        );
        finish(acc: (__m256i, __m256i)) -> __m256i =
            // Horizontal addition leaves columns 0 1 4 5 2 3 6 7.
            _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(acc.0, acc.1));
        load(p: *const i32) -> __m256i = _mm256_loadu_si256(p.cast());
        splat(x: i32) -> __m256i = _mm256_set1_epi32(x);
        add(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
        mul(a: __m256i, b: __m256i) -> __m256i = _mm256_mullo_epi32(a, b);
        and(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
        shl(x: __m256i, by: u32) -> __m256i = _mm256_sll_epi32(x, _mm_cvtsi32_si128(by as i32));
        sar(x: __m256i, by: u32) -> __m256i = _mm256_sra_epi32(x, _mm_cvtsi32_si128(by as i32));
        dot_pairs(x: __m256i, y: __m256i) -> __m256i = _mm256_madd_epi16(x, y);
        pairs(a: *const u8, b: *const u8, n: usize, flip: __m256i) -> [__m256i; 2] = {
            let (a, b) = (_mm256_cvtepu8_epi16(first_sixteen(a, n)), _mm256_cvtepu8_epi16(first_sixteen(b, n)));
            let (low, high) = (_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b));
            [_mm256_xor_si256(low, flip), _mm256_xor_si256(high, flip)]
        };
        store_pairs(p: *mut u8, x: [__m256i; 2], zero_point: i16, bounds: [i16; 2], n: usize) = {
            let y = _mm256_adds_epi16(_mm256_packs_epi32(x[0], x[1]), _mm256_set1_epi16(zero_point));
            let y = _mm256_min_epi16(_mm256_max_epi16(y, _mm256_set1_epi16(bounds[0])), _mm256_set1_epi16(bounds[1]));
            let y = _mm256_and_si256(y, _mm256_set1_epi16(0xFF));
            let y = _mm256_permute4x64_epi64::<0b10_00>(_mm256_packus_epi16(y, y));
            let y = _mm256_castsi256_si128(y);
            if n >= 16 {
                _mm_storeu_si128(p.cast(), y);
            } else {
                store_first_bytes(p, halves(y), n);
            }
        };
        requant(x: __m256i, q: &RequantPart, at: usize) -> __m256i = {
            let record = q.records.add(at * record(Self::RECORDS));
            let y = if *q.special.add(at / Self::LANES) {
                Biased::new(record).apply(x)
            } else {
                _mm256_add_epi32(scaled(x, record), Self::splat(q.zero_point))
            };
            _mm256_min_epi32(_mm256_max_epi32(y, Self::splat(q.low)), Self::splat(q.high))
        };
    }

    #[inline(always)]
    unsafe fn quads(rows: [*const u8; 4], n: usize, flip: __m128i) -> (__m256i, __m256i) {
        // SAFETY: AVX2 exists and the pointers are valid for `n` bytes by the trait's contract.
        unsafe {
            let mut r = [_mm_setzero_si128(); 4];
            for (r, p) in r.iter_mut().zip(rows) {
                *r = if n >= 8 {
                    _mm_loadl_epi64(p.cast())
                } else {
                    _mm_cvtsi64_si128(first_bytes(p, n)[0].cast_signed())
                };
            }
            let (a, b) = (_mm_unpacklo_epi8(r[0], r[1]), _mm_unpacklo_epi8(r[2], r[3]));
            let (low, high) = (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
            (_mm256_cvtepi8_epi16(_mm_xor_si128(low, flip)), _mm256_cvtepi8_epi16(_mm_xor_si128(high, flip)))
        }
    }

    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, x: __m256i, n: usize) {
        // SAFETY: AVX2 exists and `p` is valid for `n` bytes by the trait's contract.
        unsafe {
            let low = _mm256_set1_epi32(0xFF);
            let x = _mm256_and_si256(x, low);
            let x = _mm256_packus_epi16(_mm256_packus_epi32(x, x), _mm256_setzero_si256());
            let x = _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0));
            let bytes = _mm_cvtsi128_si64(_mm256_castsi256_si128(x)).cast_unsigned();
            if n >= 8 {
                p.cast::<u64>().write_unaligned(bytes);
            } else {
                store_first_bytes(p, [bytes, 0], n);
            }
        }
    }

    #[inline(always)]
    unsafe fn store(p: *mut i32, x: __m256i, n: usize) {
        // SAFETY: AVX2 exists and `p` is valid for `n` values by the trait's contract.
        unsafe {
            if n >= 8 {
                _mm256_storeu_si256(p.cast(), x);
            } else {
                store_first8(p.cast(), _mm256_castsi256_ps(x), n);
            }
        }
    }
}

/// Loads vector `$i` of a record.
macro_rules! vector {
    ($record:ident, $i:literal) => {
        _mm256_loadu_si256($record.add($i * 8).cast())
    };
}

/// Scales and rounds by a plain record.
///
/// # Safety
/// The processor must have AVX2, and the record eight columns.
#[inline(always)]
unsafe fn scaled(x: __m256i, record: *const i32) -> __m256i {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let (m, left, right, ties) =
            (vector!(record, 0), vector!(record, 1), vector!(record, 2), vector!(record, 3));
        let x = _mm256_sllv_epi32(x, left);
        let half = _mm256_set1_epi64x(1 << 30);
        let even = _mm256_add_epi64(_mm256_mul_epi32(x, m), half);
        let odd = _mm256_mul_epi32(_mm256_srli_epi64::<32>(x), _mm256_srli_epi64::<32>(m));
        let odd = _mm256_add_epi64(odd, half);
        // Bits 31 to 62 of each product.
        let high =
            _mm256_blend_epi32::<0b1010_1010>(_mm256_srli_epi64::<31>(even), _mm256_slli_epi64::<1>(odd));
        // 2^(right - 1), and 0 for no shift: a shift by -1 gives 0.
        let one = _mm256_set1_epi32(1);
        let half = _mm256_sllv_epi32(one, _mm256_sub_epi32(right, one));
        let shifted = _mm256_cmpgt_epi32(right, _mm256_setzero_si256());
        let away = _mm256_and_si256(_mm256_srai_epi32::<31>(high), ties);
        let half = _mm256_add_epi32(half, _mm256_and_si256(away, shifted));
        _mm256_srav_epi32(_mm256_add_epi32(high, half), right)
    }
}

/// A record of the kind [`Records::Biased`].
#[derive(Clone, Copy)]
struct Biased {
    /// Of the even columns, and of the odd columns.
    multipliers: [__m256i; 2],
    addends: [__m256i; 2],
    shifts: [__m256i; 2],
    own: __m256i,
    away: __m256i,
    has_away: bool,
}

impl Biased {
    /// # Safety
    /// The processor must have AVX2, and the record eight columns.
    #[inline(always)]
    unsafe fn new(record: *const i32) -> Self {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let away = vector!(record, 7);
            Self {
                multipliers: [vector!(record, 0), vector!(record, 1)],
                addends: [vector!(record, 2), vector!(record, 3)],
                shifts: [vector!(record, 4), vector!(record, 5)],
                own: vector!(record, 6),
                away,
                has_away: _mm256_testz_si256(away, away) == 0,
            }
        }
    }

    /// Scales, rounds and adds the zero point.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[inline(always)]
    unsafe fn apply(&self, x: __m256i) -> __m256i {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let next = _mm256_shuffle_epi32::<0b11_11_01_01>(x);
            let mut even = _mm256_add_epi64(_mm256_mul_epi32(x, self.multipliers[0]), self.addends[0]);
            let mut odd = _mm256_add_epi64(_mm256_mul_epi32(next, self.multipliers[1]), self.addends[1]);
            if self.has_away {
                // The unit of the first rounding, for negative sums.
                let zero = _mm256_setzero_si256();
                let masks =
                    (_mm256_blend_epi32::<0b1010_1010>(self.away, zero), _mm256_srli_epi64::<32>(self.away));
                even = _mm256_sub_epi64(even, _mm256_and_si256(x, masks.0));
                odd = _mm256_sub_epi64(odd, _mm256_and_si256(next, masks.1));
            }
            let even = _mm256_srlv_epi64(even, self.shifts[0]);
            let odd = _mm256_srlv_epi64(odd, self.shifts[1]);
            _mm256_add_epi32(_mm256_blend_epi32::<0b1010_1010>(even, odd), self.own)
        }
    }
}

/// [`Product8::requant_rows`] of eight columns.
///
/// # Safety
/// As for that function; the processor must have AVX2.
#[inline(always)]
pub(super) unsafe fn requant_rows(
    sums: &[__m256i],
    q: &RequantPart,
    at: usize,
    out: *mut u8,
    stride: usize,
    n: usize,
) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        if !*q.special.add(at / 8) {
            for (i, sums) in sums.iter().enumerate() {
                Avx2Pairs::store_bytes(out.add(i * stride), Avx2Pairs::requant(*sums, q, at), n);
            }
            return;
        }
        let record = Biased::new(q.records.add(at * record(Records::Biased)));
        // The bounds of special records are those of bytes, which fit 16 bits.
        let (low, high) = (_mm256_set1_epi16(q.low as i16), _mm256_set1_epi16(q.high as i16));
        let mut i = 0;
        while i < sums.len() {
            let left = sums.len() - i;
            let first = record.apply(sums[i]);
            let second = if left > 1 { record.apply(sums[i + 1]) } else { first };
            let third = if left > 2 { record.apply(sums[i + 2]) } else { first };
            let fourth = if left > 3 { record.apply(sums[i + 3]) } else { second };
            let (a, b) = (_mm256_packs_epi32(first, second), _mm256_packs_epi32(third, fourth));
            let a = _mm256_min_epi16(_mm256_max_epi16(a, low), high);
            let b = _mm256_min_epi16(_mm256_max_epi16(b, low), high);
            let byte = _mm256_set1_epi16(0xFF);
            let bytes = _mm256_packus_epi16(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte));
            let bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
            let out = out.add(i * stride);
            store_two(_mm256_castsi256_si128(bytes), out, stride, left, n);
            if left > 2 {
                let bytes = _mm256_extracti128_si256::<1>(bytes);
                store_two(bytes, out.add(2 * stride), stride, left - 2, n);
            }
            i += 4;
        }
    }
}

/// Stores the first `n` of eight bytes of one row, and of a second one if `rows` is more than 1.
///
/// # Safety
/// `out` is valid for them.
#[inline(always)]
unsafe fn store_two(bytes: __m128i, out: *mut u8, stride: usize, rows: usize, n: usize) {
    // SAFETY: the caller meets the contract of this function; SSE2 is part of the target.
    unsafe {
        if n >= 8 {
            _mm_storel_epi64(out.cast(), bytes);
            if rows > 1 {
                _mm_storeh_pd(out.add(stride).cast(), _mm_castsi128_pd(bytes));
            }
            return;
        }
        let [first, second] = halves(bytes);
        store_first_bytes(out, [first, 0], n);
        if rows > 1 {
            store_first_bytes(out.add(stride), [second, 0], n);
        }
    }
}

/// [`Product8::float_rows`] of eight columns.
///
/// # Safety
/// As for that function; the processor must have AVX2.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
pub(super) unsafe fn float_rows(
    sums: &[__m256i],
    f: &FloatPart,
    at: usize,
    out: *mut f32,
    stride: usize,
    n: usize,
) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let (totals, scales) = (Avx2Pairs::load(f.totals.add(at)), _mm256_loadu_ps(f.scales.add(at)));
        let bias = _mm256_loadu_ps(f.bias.add(at));
        let (low, high) = (_mm256_set1_ps(f.clamp.low), _mm256_set1_ps(f.clamp.high));
        for i in 0..sums.len() {
            let zero_point = *f.row_zero_points.add(i * f.row_step);
            let mut sum = sums[i];
            if zero_point != 0 {
                sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(Avx2Pairs::splat(zero_point), totals));
            }
            let scale = _mm256_mul_ps(_mm256_set1_ps(*f.row_scales.add(i * f.row_step)), scales);
            let x = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale), bias);
            // The second operand if one is NaN.
            let x = _mm256_min_ps(high, _mm256_max_ps(low, x));
            let out = out.add(i * stride);
            if n >= 8 { _mm256_storeu_ps(out, x) } else { store_first8(out, x, n) }
        }
    }
}

impl Product8 for Avx2Pairs {
    /// A pair of widened activations, repeated for each column.
    type A = __m256i;
    /// A pair of weights of each column.
    type Cols = __m256i;
    type Sums = __m256i;
    const DEPTH: usize = 2;
    const WIDENED: bool = true;
    const BIASED: bool = true;

    intrinsics! {
        start() -> __m256i = _mm256_setzero_si256();
        start_at(bias: *const i32) -> __m256i = Self::load(bias);
        a(rows: [*const u8; 2], _flip: __m128i) -> __m256i =
            _mm256_set1_epi32(rows[0].cast::<i32>().read_unaligned());
        columns(p: *const i8) -> __m256i = _mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast()));
        row(sums: __m256i, _row: usize) -> __m256i = sums;
        requant_rows(sums: &[__m256i], q: &RequantPart, at: usize, out: *mut u8, stride: usize, n: usize) =
            requant_rows(sums, q, at, out, stride, n);
        float_rows(sums: &[__m256i], f: &FloatPart, at: usize, out: *mut f32, stride: usize, n: usize) =
            float_rows(sums, f, at, out, stride, n);
    }

    #[inline(always)]
    unsafe fn product<const G: usize>(sums: __m256i, a: __m256i, columns: __m256i) -> __m256i {
        // SAFETY: AVX2 exists by the trait's contract.
        unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(a, columns)) }
    }
}

impl Widen for Avx2Pairs {
    #[inline(always)]
    unsafe fn widen(
        rows: (*const usize, usize),
        n: usize,
        signed: bool,
        to: (*mut i16, usize),
        sums: Option<&mut [i32]>,
    ) {
        // SAFETY: the caller meets the contract of these functions.
        unsafe {
            match (signed, sums) {
                (true, None) => widen_rows::<true, false>(rows, n, to, &mut []),
                (true, Some(sums)) => widen_rows::<true, true>(rows, n, to, sums),
                (false, None) => widen_rows::<false, false>(rows, n, to, &mut []),
                (false, Some(sums)) => widen_rows::<false, true>(rows, n, to, sums),
            }
        }
    }
}

/// 16 clear bytes followed by 16 set ones; a window into the array is the mask of the last bytes.
static LAST: [[u8; 16]; 2] = [[0; 16], [0xFF; 16]];

/// [`Widen::widen`].
///
/// # Safety
/// As for that function; the processor must have AVX2.
#[inline(never)] // In a micro-kernel, it would take registers from the sums.
#[target_feature(enable = "avx2")]
#[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
unsafe fn widen_rows<const SIGNED: bool, const SUMMED: bool>(
    (table, rows): (*const usize, usize),
    n: usize,
    (to, stride): (*mut i16, usize),
    sums: &mut [i32],
) {
    let flip = _mm_set1_epi8(if SIGNED { i8::MIN } else { 0 });
    macro_rules! sixteen {
        ($bytes:expr, $to:expr) => {{
            let words = if SIGNED { _mm256_cvtepi8_epi16($bytes) } else { _mm256_cvtepu8_epi16($bytes) };
            _mm256_storeu_si256($to.cast(), words)
        }};
    }
    macro_rules! eight {
        ($bytes:expr, $to:expr) => {{
            let words = if SIGNED { _mm_cvtepi8_epi16($bytes) } else { _mm_cvtepu8_epi16($bytes) };
            _mm_storeu_si128($to.cast(), words)
        }};
    }
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        for i in 0..rows {
            let from = std::ptr::with_exposed_provenance::<u8>(*table.add(i));
            let to = to.add(i * stride);
            let mut total = _mm_setzero_si128();
            /// Adds unsigned bytes, or with `SIGNED` 128 more for each, except those that `$mask` clears.
            macro_rules! sum {
                ($bytes:expr) => {
                    sum!($bytes, _mm_set1_epi8(-1))
                };
                ($bytes:expr, $mask:expr) => {
                    if SUMMED {
                        let bytes = _mm_and_si128(_mm_xor_si128($bytes, flip), $mask);
                        total = _mm_add_epi64(total, _mm_sad_epu8(bytes, _mm_setzero_si128()));
                    }
                };
            }
            let last = |n: usize| _mm_loadu_si128(LAST.as_ptr().cast::<u8>().add(n).cast());
            if n >= 16 {
                let mut k = 0;
                while k + 16 <= n {
                    let bytes = _mm_loadu_si128(from.add(k).cast());
                    sixteen!(bytes, to.add(k));
                    sum!(bytes);
                    k += 16;
                }
                if k < n {
                    // Overlaps the vector before it.
                    let bytes = _mm_loadu_si128(from.add(n - 16).cast());
                    sixteen!(bytes, to.add(n - 16));
                    sum!(bytes, last(n - k));
                }
            } else if n >= 8 {
                let bytes = _mm_loadl_epi64(from.cast());
                eight!(bytes, to);
                sum!(bytes, _mm_set_epi64x(0, -1));
                if n > 8 {
                    let bytes = _mm_loadl_epi64(from.add(n - 8).cast());
                    eight!(bytes, to.add(n - 8));
                    sum!(_mm_slli_si128::<8>(bytes), last(n - 8));
                }
            } else {
                let bytes = _mm_cvtsi64_si128(first_bytes(from, n)[0].cast_signed());
                eight!(bytes, to);
                sum!(
                    _mm_slli_si128::<8>(_mm_sll_epi64(bytes, _mm_cvtsi32_si128(8 * (8 - n as i32)))),
                    last(n)
                );
            }
            if n % 2 == 1 {
                to.add(n).write(0);
            }
            if SUMMED {
                let both = _mm_add_epi64(total, _mm_unpackhi_epi64(total, total));
                let offset = if SIGNED { 128 * n as i32 } else { 0 };
                sums[i] = sums[i].wrapping_add(_mm_cvtsi128_si32(both)).wrapping_sub(offset);
            }
        }
    }
}

/// Loads the first `n` bytes, at most eight.
///
/// # Safety
/// `p` is valid for them.
#[inline(always)]
unsafe fn first_eight(p: *const u8, n: usize) -> __m128i {
    // SAFETY: valid by the caller's contract; SSE2 is part of the target.
    unsafe {
        if n >= 8 { _mm_loadl_epi64(p.cast()) } else { _mm_cvtsi64_si128(first_bytes(p, n)[0].cast_signed()) }
    }
}

/// # Safety
/// The processor must have AVX2.
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn alone<T: OwnFunction>(task: T) {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run() }
}

impl TwoRows for Avx2Pairs {
    const RUN: usize = 8;
    /// Widening one row takes one instruction.
    const PAIRS_COLUMNS: bool = false;

    #[inline(always)]
    unsafe fn two_rows(a: *const u8, b: *const u8, n: usize, flip: __m128i) -> __m256i {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let both = _mm_unpacklo_epi8(first_eight(a, n), first_eight(b, n));
            _mm256_cvtepi8_epi16(_mm_xor_si128(both, flip))
        }
    }

    /// The upper half of each lane has copies of the sign.
    #[inline(always)]
    unsafe fn one_row(a: *const u8, n: usize, flip: __m128i) -> __m256i {
        // SAFETY: the caller meets the contract of this function.
        unsafe { _mm256_cvtepi8_epi32(_mm_xor_si128(first_eight(a, n), flip)) }
    }

    #[inline(always)]
    unsafe fn requant_pixels(sums: &[__m256i], q: &RequantPart, out: *mut u8, stride: usize, n: usize) {
        // SAFETY: the caller meets the contract of this function.
        unsafe { requant_rows(sums, q, 0, out, stride, n) }
    }

    #[inline(always)]
    unsafe fn call<T: OwnFunction>(task: T) {
        // SAFETY: the caller meets the contract of this function.
        unsafe { alone(task) }
    }
}
