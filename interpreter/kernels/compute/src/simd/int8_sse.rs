//! [`Words`] with SSE4.1.

use std::arch::x86_64::*;

use super::pairs::{Pairs, Words};
use super::{Dot8Task, OwnFunction};
use crate::simd::intrinsics;

/// # Safety
/// The processor must have SSE4.1.
#[target_feature(enable = "sse4.1")]
pub(super) unsafe fn sse41<T: Dot8Task>(task: T) {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<Sse41Pairs<2>>() }
}

/// `V` vectors of four columns.
pub(crate) type Sse41Pairs<const V: usize> = Pairs<Sse41Words, V>;

/// Vectors of 128 bits.
#[derive(Clone, Copy)]
pub(crate) struct Sse41Words;

impl Words for Sse41Words {
    type V = __m128i;

    intrinsics! {
        load(p: *const u8) -> __m128i = _mm_loadu_si128(p.cast());
        store(p: *mut u8, v: __m128i) = _mm_storeu_si128(p.cast(), v);
        store_half(p: *mut u8, v: __m128i) = _mm_storel_epi64(p.cast(), v);
        store_high_half(p: *mut u8, v: __m128i) = _mm_storeh_pd(p.cast(), _mm_castsi128_pd(v));
        widen(p: *const u8) -> __m128i = _mm_cvtepi8_epi16(_mm_loadl_epi64(p.cast()));
        widen_unsigned(p: *const u8) -> __m128i = _mm_cvtepu8_epi16(_mm_loadl_epi64(p.cast()));
        splat_16(x: i16) -> __m128i = _mm_set1_epi16(x);
        splat_32(x: i32) -> __m128i = _mm_set1_epi32(x);
        add_32(a: __m128i, b: __m128i) -> __m128i = _mm_add_epi32(a, b);
        mul_32(a: __m128i, b: __m128i) -> __m128i = _mm_mullo_epi32(a, b);
        min_32(a: __m128i, b: __m128i) -> __m128i = _mm_min_epi32(a, b);
        max_32(a: __m128i, b: __m128i) -> __m128i = _mm_max_epi32(a, b);
        shl_32(a: __m128i, by: u32) -> __m128i = _mm_sll_epi32(a, _mm_cvtsi32_si128(by as i32));
        sar_32(a: __m128i, by: u32) -> __m128i = _mm_sra_epi32(a, _mm_cvtsi32_si128(by as i32));
        add_saturating_16(a: __m128i, b: __m128i) -> __m128i = _mm_adds_epi16(a, b);
        min_16(a: __m128i, b: __m128i) -> __m128i = _mm_min_epi16(a, b);
        max_16(a: __m128i, b: __m128i) -> __m128i = _mm_max_epi16(a, b);
        and(a: __m128i, b: __m128i) -> __m128i = _mm_and_si128(a, b);
        xor(a: __m128i, b: __m128i) -> __m128i = _mm_xor_si128(a, b);
        dot_16(a: __m128i, b: __m128i) -> __m128i = _mm_madd_epi16(a, b);
        interleave_low_16(a: __m128i, b: __m128i) -> __m128i = _mm_unpacklo_epi16(a, b);
        interleave_high_16(a: __m128i, b: __m128i) -> __m128i = _mm_unpackhi_epi16(a, b);
        even_32(a: __m128i, b: __m128i) -> __m128i =
            _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(_mm_castsi128_ps(a), _mm_castsi128_ps(b)));
        odd_32(a: __m128i, b: __m128i) -> __m128i =
            _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(_mm_castsi128_ps(a), _mm_castsi128_ps(b)));
        odd_16(a: __m128i, b: __m128i) -> __m128i =
            _mm_packs_epi32(_mm_srai_epi32::<16>(a), _mm_srai_epi32::<16>(b));
        odd_8(a: __m128i, b: __m128i) -> __m128i =
            _mm_packus_epi16(_mm_srli_epi16::<8>(a), _mm_srli_epi16::<8>(b));
        repeat_32(p: *const u8) -> __m128i = _mm_set1_epi32(p.cast::<i32>().read_unaligned());
        narrow_16(a: __m128i, b: __m128i) -> __m128i = _mm_packs_epi32(a, b);
        narrow_8(a: __m128i, b: __m128i) -> __m128i = _mm_packus_epi16(a, b);
    }

    #[inline(always)]
    unsafe fn shl_16<const S: u32>(a: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of the target.
        unsafe { _mm_sll_epi16(a, _mm_cvtsi32_si128(S as i32)) }
    }

    #[inline(always)]
    unsafe fn mul_add_shift<const S: u32>(a: __m128i, b: __m128i, c: __m128i) -> __m128i {
        // SAFETY: SSE4.1 exists by the trait's contract.
        unsafe {
            let low = _mm_set1_epi64x(0xFFFF_FFFF);
            let even = _mm_add_epi64(_mm_mul_epi32(a, b), _mm_and_si128(c, low));
            let odd = _mm_mul_epi32(_mm_srli_epi64::<32>(a), _mm_srli_epi64::<32>(b));
            let odd = _mm_add_epi64(odd, _mm_srli_epi64::<32>(c));
            let by = _mm_cvtsi32_si128(S as i32);
            let (even, odd) = (_mm_srl_epi64(even, by), _mm_slli_epi64::<32>(_mm_srl_epi64(odd, by)));
            _mm_blend_epi16::<0b1100_1100>(even, odd)
        }
    }

    #[inline(always)]
    unsafe fn mul_high_32(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: SSE4.1 exists by the trait's contract.
        unsafe {
            let even = _mm_srli_epi64::<32>(_mm_mul_epi32(a, b));
            let odd = _mm_mul_epi32(_mm_srli_epi64::<32>(a), _mm_srli_epi64::<32>(b));
            _mm_blend_epi16::<0b1100_1100>(even, odd)
        }
    }

    #[inline(always)]
    unsafe fn call<T: OwnFunction>(task: T) {
        // SAFETY: the caller meets the contract of this function.
        unsafe { alone(task) }
    }
}

/// # Safety
/// As for [`OwnFunction::run`].
#[inline(never)]
#[target_feature(enable = "sse4.1")]
unsafe fn alone<T: OwnFunction>(task: T) {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run() }
}
