//! [`Dot8`] and [`Product8`] with AVX-512 VNNI.

use std::arch::x86_64::*;

use super::avx2::{FLIP, halves};
use super::{Dot8, Dot8Task, Product8, store_first_bytes};
use crate::base::requant::{FloatPart, Records, RequantPart, record};
use crate::simd::intrinsics;

/// # Safety
/// The processor must have AVX-512 F, BW, DQ, VL and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2")]
pub(super) unsafe fn vnni<T: Dot8Task>(task: T) {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<Vnni>() }
}

/// Sixteen columns.
#[derive(Clone, Copy)]
pub(crate) struct Vnni;

/// Loads the first `n` bytes, at most 32.
///
/// # Safety
/// `p` is valid for them, and the processor has AVX-512 BW and VL.
#[inline(always)]
unsafe fn thirty_two(p: *const u8, n: usize) -> __m256i {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        if n >= 32 { _mm256_loadu_si256(p.cast()) } else { _mm256_maskz_loadu_epi8((1 << n) - 1, p.cast()) }
    }
}

#[inline(always)]
fn first(n: usize) -> __mmask16 {
    (0xFFFFu32 >> (16 - n.min(16)) as u32) as __mmask16
}

/// [`Dot8::requant`] without its clamp.
///
/// # Safety
/// As for [`Dot8`].
#[inline(always)]
pub(crate) unsafe fn scaled(x: __m512i, q: &RequantPart, at: usize) -> __m512i {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let record = q.records.add(at * record(Vnni::RECORDS));
        let value = |i: usize| Vnni::load(record.add(i * Vnni::LANES));
        if *q.special.add(at / Vnni::LANES) {
            return match q.away {
                true => scaled_wide::<true>(x, record),
                false => scaled_wide::<false>(x, record),
            };
        }
        let x = _mm512_sllv_epi32(x, value(1));
        let m = value(0);
        let half = _mm512_set1_epi64(1 << 30);
        let even = _mm512_add_epi64(_mm512_mul_epi32(x, m), half);
        let odd = _mm512_mul_epi32(_mm512_srli_epi64::<32>(x), _mm512_srli_epi64::<32>(m));
        let odd = _mm512_add_epi64(odd, half);
        // Bits 31 to 62 of each product.
        let high = _mm512_mask_blend_epi32(
            0b1010_1010_1010_1010,
            _mm512_srli_epi64::<31>(even),
            _mm512_slli_epi64::<1>(odd),
        );
        let right = value(2);
        let shifted = _mm512_test_epi32_mask(right, right);
        // 2^(right - 1), and 0 for no shift: a shift by -1 gives 0.
        let half = _mm512_sllv_epi32(Vnni::splat(1), _mm512_sub_epi32(right, Vnni::splat(1)));
        let away = _mm512_and_si512(_mm512_srai_epi32::<31>(high), value(3));
        let half = _mm512_mask_add_epi32(half, shifted, half, away);
        let y = _mm512_srav_epi32(_mm512_add_epi32(high, half), right);
        _mm512_add_epi32(y, Vnni::splat(q.zero_point))
    }
}

/// As [`scaled`], for a wide record. `AWAY`: ties of some columns round away from zero.
///
/// # Safety
/// As for [`Dot8`].
#[inline(always)]
pub(crate) unsafe fn scaled_wide<const AWAY: bool>(x: __m512i, record: *const i32) -> __m512i {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let value = |i: usize| Vnni::load(record.add(i * Vnni::LANES));
        let (m_even, m_odd) = (value(0), value(1));
        let x_odd = _mm512_shuffle_epi32::<0b11_11_01_01>(x);
        let (mut even, mut odd) = (_mm512_mul_epi32(x, m_even), _mm512_mul_epi32(x_odd, m_odd));
        if AWAY {
            let unit = _mm512_and_si512(x, _mm512_srli_epi64::<32>(m_even));
            let unit_odd = _mm512_and_si512(x_odd, _mm512_srli_epi64::<32>(m_odd));
            (even, odd) = (_mm512_sub_epi64(even, unit), _mm512_sub_epi64(odd, unit_odd));
        }
        let (even, odd) = (_mm512_add_epi64(even, value(2)), _mm512_add_epi64(odd, value(3)));
        let (even, odd) = (_mm512_srav_epi64(even, value(4)), _mm512_srav_epi64(odd, value(5)));
        _mm512_mask_blend_epi32(0b1010_1010_1010_1010, even, odd)
    }
}

impl Dot8 for Vnni {
    type Flip = __m512i;
    type B = __m512i;
    type Q = __m512i;
    type Acc = __m512i;
    type I = __m512i;
    const LANES: usize = 16;
    const UNSIGNED: bool = true;
    const RECORDS: Records = Records::Wide;
    const PIXELS: usize = 8;

    intrinsics! {
        zero() -> __m512i = _mm512_setzero_si512();
        flip(flip: bool) -> __m512i = _mm512_loadu_si512(FLIP[usize::from(flip)].as_ptr().cast());
        b(p: *const i8) -> __m512i = _mm512_loadu_si512(p.cast());
        load(p: *const i32) -> __m512i = _mm512_loadu_si512(p.cast());
        splat(x: i32) -> __m512i = _mm512_set1_epi32(x);
        add(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        mul(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        shl(x: __m512i, by: u32) -> __m512i = _mm512_sll_epi32(x, _mm_cvtsi32_si128(by as i32));
        sar(x: __m512i, by: u32) -> __m512i = _mm512_sra_epi32(x, _mm_cvtsi32_si128(by as i32));
        dot_pairs(x: __m512i, y: __m512i) -> __m512i = _mm512_madd_epi16(x, y);
        pairs(a: *const u8, b: *const u8, n: usize, flip: __m512i) -> [__m512i; 2] = {
            let (a, b) = (_mm512_cvtepu8_epi16(thirty_two(a, n)), _mm512_cvtepu8_epi16(thirty_two(b, n)));
            let (low, high) = (_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b));
            [_mm512_xor_si512(low, flip), _mm512_xor_si512(high, flip)]
        };
        store_pairs(p: *mut u8, x: [__m512i; 2], zero_point: i16, bounds: [i16; 2], n: usize) = {
            let y = _mm512_adds_epi16(_mm512_packs_epi32(x[0], x[1]), _mm512_set1_epi16(zero_point));
            let y = _mm512_min_epi16(_mm512_max_epi16(y, _mm512_set1_epi16(bounds[0])), _mm512_set1_epi16(bounds[1]));
            let y = _mm512_cvtepi16_epi8(y);
            if n >= 32 {
                _mm256_storeu_si256(p.cast(), y);
            } else {
                _mm256_mask_storeu_epi8(p.cast(), (1 << n) - 1, y);
            }
        };
        requant(x: __m512i, q: &RequantPart, at: usize) -> __m512i = {
            let y = scaled(x, q, at);
            _mm512_min_epi32(_mm512_max_epi32(y, Self::splat(q.low)), Self::splat(q.high))
        };
        dot_each(acc: __m512i, q: __m512i, b: __m512i) -> __m512i = _mm512_dpbusd_epi32(acc, q, b);
        quads(rows: [*const u8; 4], n: usize, flip: __m512i) -> __m512i = {
            let m = first(n);
            let x = if n >= 16 {
                let x = _mm512_castsi128_si512(_mm_loadu_si128(rows[0].cast()));
                let x = _mm512_inserti32x4::<1>(x, _mm_loadu_si128(rows[1].cast()));
                let x = _mm512_inserti32x4::<2>(x, _mm_loadu_si128(rows[2].cast()));
                _mm512_inserti32x4::<3>(x, _mm_loadu_si128(rows[3].cast()))
            } else {
                let x = _mm512_castsi128_si512(_mm_maskz_loadu_epi8(m, rows[0].cast()));
                let x = _mm512_inserti32x4::<1>(x, _mm_maskz_loadu_epi8(m, rows[1].cast()));
                let x = _mm512_inserti32x4::<2>(x, _mm_maskz_loadu_epi8(m, rows[2].cast()));
                _mm512_inserti32x4::<3>(x, _mm_maskz_loadu_epi8(m, rows[3].cast()))
            };
            // Four columns of each row to each quarter, then the bytes of each column together.
            let quarters = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            let columns = _mm512_set4_epi32(0x0F0B_0703, 0x0E0A_0602, 0x0D09_0501, 0x0C08_0400);
            let x = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(quarters, x), columns);
            _mm512_xor_si512(x, flip)
        };
        store_bytes(p: *mut u8, x: __m512i, n: usize) = {
            // Masked stores of bytes take many cycles on some processors.
            let bytes = _mm512_cvtepi32_epi8(x);
            if n >= 16 { _mm_storeu_si128(p.cast(), bytes) } else { store_first_bytes(p, halves(bytes), n) }
        };
        store(p: *mut i32, x: __m512i, n: usize) = _mm512_mask_storeu_epi32(p, first(n), x);
    }

    #[inline(always)]
    unsafe fn finish(acc: __m512i) -> __m512i {
        acc
    }
}

impl Product8 for Vnni {
    type A = __m512i;
    type Cols = __m512i;
    type Sums = __m512i;
    const DEPTH: usize = 4;

    intrinsics! {
        start() -> __m512i = Self::zero();
        a(rows: [*const u8; 2], flip: __m512i) -> __m512i =
            _mm512_xor_si512(_mm512_set1_epi32(rows[0].cast::<i32>().read_unaligned()), flip);
        columns(p: *const i8) -> __m512i = Self::b(p);
        row(sums: __m512i, _row: usize) -> __m512i = sums;
    }

    #[inline(always)]
    unsafe fn product<const G: usize>(sums: __m512i, a: __m512i, columns: __m512i) -> __m512i {
        // SAFETY: AVX-512 VNNI exists by the trait's contract.
        unsafe { _mm512_dpbusd_epi32(sums, a, columns) }
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
    unsafe fn requant_rows(
        sums: &[__m512i],
        q: &RequantPart,
        at: usize,
        out: *mut u8,
        stride: usize,
        n: usize,
    ) {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            if q.away || !*q.special.add(at / Self::LANES) {
                for i in 0..sums.len() {
                    Self::store_bytes(out.add(i * stride), Self::requant(sums[i], q, at), n);
                }
                return;
            }
            // As in `scaled`, with the record in registers.
            let record = q.records.add(at * record(Self::RECORDS));
            let (m_even, m_odd) = (Self::load(record), Self::load(record.add(16)));
            let (add_even, add_odd) = (Self::load(record.add(32)), Self::load(record.add(48)));
            let (by_even, by_odd) = (Self::load(record.add(64)), Self::load(record.add(80)));
            let (low, high) = (Self::splat(q.low), Self::splat(q.high));
            for i in 0..sums.len() {
                let x = sums[i];
                let even = _mm512_add_epi64(_mm512_mul_epi32(x, m_even), add_even);
                let odd = _mm512_mul_epi32(_mm512_shuffle_epi32::<0b11_11_01_01>(x), m_odd);
                let odd = _mm512_add_epi64(odd, add_odd);
                let (even, odd) = (_mm512_srav_epi64(even, by_even), _mm512_srav_epi64(odd, by_odd));
                let y = _mm512_mask_blend_epi32(0b1010_1010_1010_1010, even, odd);
                let y = _mm512_min_epi32(_mm512_max_epi32(y, low), high);
                Self::store_bytes(out.add(i * stride), y, n);
            }
        }
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
    unsafe fn float_rows(sums: &[__m512i], f: &FloatPart, at: usize, out: *mut f32, stride: usize, n: usize) {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let (totals, scales) = (Self::load(f.totals.add(at)), _mm512_loadu_ps(f.scales.add(at)));
            let bias = _mm512_loadu_ps(f.bias.add(at));
            let (low, high) = (_mm512_set1_ps(f.clamp.low), _mm512_set1_ps(f.clamp.high));
            for i in 0..sums.len() {
                let zero_point = *f.row_zero_points.add(i * f.row_step);
                let mut sum = sums[i];
                if zero_point != 0 {
                    sum = _mm512_sub_epi32(sum, _mm512_mullo_epi32(Self::splat(zero_point), totals));
                }
                let scale = _mm512_mul_ps(_mm512_set1_ps(*f.row_scales.add(i * f.row_step)), scales);
                let x = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale), bias);
                // The second operand if one is NaN.
                let x = _mm512_min_ps(high, _mm512_max_ps(low, x));
                let out = out.add(i * stride);
                if n >= 16 { _mm512_storeu_ps(out, x) } else { _mm512_mask_storeu_ps(out, first(n), x) }
            }
        }
    }
}
