//! Vectors of sums of products of 16-bit elements.

use crate::base::requant_i16::ShortSums;

pub(crate) use sets::*;

/// Vectors of sums of products of 16-bit elements.
///
/// # Safety
/// All methods require that the processor has their instructions. Pointers must be valid for `LANES` elements;
/// alignment is not required.
pub(crate) trait Words {
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
mod sets {
    //! By hand: the compiler does not keep the sums of a block in vector registers.

    use std::arch::x86_64::*;

    use super::{ShortSums, Words};
    use crate::simd::intrinsics;

    pub(crate) struct Sse2;
    pub(crate) struct Avx2;
    pub(crate) struct Avx512;

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
mod sets {
    //! By hand: the compiler does not keep the sums of a block in vector registers.

    use std::arch::aarch64::*;

    use super::{ShortSums, Words};
    use crate::simd::intrinsics;

    /// NEON.
    pub(crate) struct Baseline;

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
mod sets {
    //! By hand: the compiler does not keep the sums of a block in vector registers.

    use std::arch::wasm32::*;

    use super::{ShortSums, Words};
    use crate::simd::intrinsics;

    /// Vectors of 128 bits.
    pub(crate) struct Baseline;

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
mod sets {
    use super::{ShortSums, Words};

    /// Four lanes that the compiler maps to vectors.
    pub(crate) struct Baseline;

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
