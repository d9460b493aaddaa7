//! [`Simd`] with SSE4.1, with AVX2 and with AVX-512.

use std::arch::x86_64::*;

use super::{Simd, SimdTask, first_floats, intrinsics, store_first_floats, store_first8};

/// Four lanes.
#[derive(Clone, Copy)]
pub(crate) struct Sse41;

/// Eight lanes.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// Sixteen lanes.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// # Safety
/// The processor must have SSE4.1.
#[target_feature(enable = "sse4.1")]
pub(super) unsafe fn sse41<T: SimdTask>(task: T) -> T::Out {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<Sse41>() }
}

/// # Safety
/// The processor must have AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn avx2<T: SimdTask>(task: T) -> T::Out {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<Avx2>() }
}

/// # Safety
/// The processor must have AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn avx512<T: SimdTask>(task: T) -> T::Out {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<Avx512>() }
}

/// Eight set lanes followed by eight clear ones; a window into the array is the mask of the first `n` lanes.
static FIRST: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// The mask of the first `n` of eight lanes.
///
/// # Safety
/// The processor must have AVX.
#[inline(always)]
unsafe fn first8(n: usize) -> __m256i {
    // SAFETY: AVX exists by the caller's contract; the window is inside the array, as `n` is limited to 8.
    unsafe { _mm256_loadu_si256(FIRST.as_ptr().add(8 - n.min(8)).cast()) }
}

#[inline(always)]
fn first16(n: usize) -> __mmask16 {
    (0xFFFFu32 >> (16 - n.min(16)) as u32) as __mmask16
}

/// The sum of the lanes of each vector.
///
/// # Safety
/// The processor must have SSE3.
#[inline(always)]
unsafe fn sums_of_four([a, b, c, d]: [__m128; 4]) -> __m128 {
    // SAFETY: the caller meets the contract of this function.
    unsafe { _mm_hadd_ps(_mm_hadd_ps(a, b), _mm_hadd_ps(c, d)) }
}

/// The sum of the lanes of each vector.
///
/// # Safety
/// The processor must have AVX.
#[inline(always)]
unsafe fn sums_of_eight([a, b, c, d, e, f, g, h]: [__m256; 8]) -> [f32; 8] {
    // SAFETY: the caller meets the contract of this function; the array has eight floats.
    unsafe {
        let first = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
        let last = _mm256_hadd_ps(_mm256_hadd_ps(e, f), _mm256_hadd_ps(g, h));
        let halves =
            [_mm256_permute2f128_ps::<0x20>(first, last), _mm256_permute2f128_ps::<0x31>(first, last)];
        let mut sums = [0.0; 8];
        _mm256_storeu_ps(sums.as_mut_ptr(), _mm256_add_ps(halves[0], halves[1]));
        sums
    }
}

impl Simd for Sse41 {
    type F = __m128;
    type M = __m128;
    const LANES: usize = 4;

    intrinsics! {
        splat(x: f32) -> __m128 = _mm_set1_ps(x);
        load(p: *const f32) -> __m128 = _mm_loadu_ps(p);
        store(p: *mut f32, v: __m128) = _mm_storeu_ps(p, v);
        load_n(p: *const f32, n: usize) -> __m128 = {
            if n >= 4 { _mm_loadu_ps(p) } else { _mm_loadu_ps(first_floats(p, n).as_ptr()) }
        };
        store_n(p: *mut f32, v: __m128, n: usize) = {
            if n >= 4 {
                _mm_storeu_ps(p, v);
            } else {
                let mut lanes = [0f32; 4];
                _mm_storeu_ps(lanes.as_mut_ptr(), v);
                store_first_floats(p, lanes, n);
            }
        };
        add(a: __m128, b: __m128) -> __m128 = _mm_add_ps(a, b);
        sub(a: __m128, b: __m128) -> __m128 = _mm_sub_ps(a, b);
        mul(a: __m128, b: __m128) -> __m128 = _mm_mul_ps(a, b);
        div(a: __m128, b: __m128) -> __m128 = _mm_div_ps(a, b);
        fma(a: __m128, b: __m128, c: __m128) -> __m128 = _mm_add_ps(_mm_mul_ps(a, b), c);
        max(a: __m128, b: __m128) -> __m128 = _mm_max_ps(a, b);
        min(a: __m128, b: __m128) -> __m128 = _mm_min_ps(a, b);
        sqrt(a: __m128) -> __m128 = _mm_sqrt_ps(a);
        round(a: __m128) -> __m128 = _mm_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        exp2_int(n: __m128) -> __m128 = {
            let e = _mm_add_epi32(_mm_cvtps_epi32(n), _mm_set1_epi32(127));
            _mm_castsi128_ps(_mm_slli_epi32::<23>(e))
        };
        lt(a: __m128, b: __m128) -> __m128 = _mm_cmplt_ps(a, b);
        select(m: __m128, a: __m128, b: __m128) -> __m128 = _mm_blendv_ps(b, a, m);
        copysign(a: __m128, b: __m128) -> __m128 = {
            let sign = _mm_set1_ps(-0.0);
            _mm_or_ps(_mm_andnot_ps(sign, a), _mm_and_ps(sign, b))
        };
        transpose(from: *const f32, step: usize, to: *mut f32, to_step: usize) = {
            let (mut a, mut b) = (_mm_loadu_ps(from), _mm_loadu_ps(from.add(step)));
            let (mut c, mut d) = (_mm_loadu_ps(from.add(2 * step)), _mm_loadu_ps(from.add(3 * step)));
            _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
            for (i, column) in [a, b, c, d].into_iter().enumerate() {
                _mm_storeu_ps(to.add(i * to_step), column);
            }
        };
        sums(vectors: [__m128; 8]) -> [f32; 8] = {
            let [a, b, c, d, e, f, g, h] = vectors;
            let mut sums = [0.0; 8];
            _mm_storeu_ps(sums.as_mut_ptr(), sums_of_four([a, b, c, d]));
            _mm_storeu_ps(sums.as_mut_ptr().add(4), sums_of_four([e, f, g, h]));
            sums
        };
    }

    #[inline(always)]
    unsafe fn fold4<const MAX: bool>([a, b, c, d]: [__m128; 4]) -> __m128 {
        // SAFETY: the instructions exist by the trait's contract.
        unsafe {
            let ab = Self::fold2::<MAX>(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
            let cd = Self::fold2::<MAX>(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
            Self::fold2::<MAX>(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab))
        }
    }

    #[inline(always)]
    unsafe fn quarters(v: __m128) -> [__m128; 4] {
        // SAFETY: the instructions exist by the trait's contract.
        unsafe {
            [
                _mm_shuffle_ps::<0x00>(v, v),
                _mm_shuffle_ps::<0x55>(v, v),
                _mm_shuffle_ps::<0xaa>(v, v),
                _mm_shuffle_ps::<0xff>(v, v),
            ]
        }
    }
}

impl Simd for Avx2 {
    type F = __m256;
    type M = __m256;
    const LANES: usize = 8;

    intrinsics! {
        splat(x: f32) -> __m256 = _mm256_set1_ps(x);
        load(p: *const f32) -> __m256 = _mm256_loadu_ps(p);
        store(p: *mut f32, v: __m256) = _mm256_storeu_ps(p, v);
        load_n(p: *const f32, n: usize) -> __m256 = _mm256_maskload_ps(p, first8(n));
        store_n(p: *mut f32, v: __m256, n: usize) = {
            if n >= 8 { _mm256_storeu_ps(p, v) } else { store_first8(p, v, n) }
        };
        add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
        fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
        sqrt(a: __m256) -> __m256 = _mm256_sqrt_ps(a);
        round(a: __m256) -> __m256 = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        exp2_int(n: __m256) -> __m256 = {
            let e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(e))
        };
        lt(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_LT_OQ>(a, b);
        select(m: __m256, a: __m256, b: __m256) -> __m256 = _mm256_blendv_ps(b, a, m);
        copysign(a: __m256, b: __m256) -> __m256 = {
            let sign = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, b))
        };
        transpose(from: *const f32, step: usize, to: *mut f32, to_step: usize) = {
            for half in 0..2 {
                // Rows `i` and `i + 4` are the halves of a vector, so that no operation crosses these.
                macro_rules! rows {
                    ($i:literal) => {
                        _mm256_insertf128_ps::<1>(
                            _mm256_castps128_ps256(_mm_loadu_ps(from.add($i * step + 4 * half))),
                            _mm_loadu_ps(from.add(($i + 4) * step + 4 * half)),
                        )
                    };
                }
                let [a, b, c, d] = [rows!(0), rows!(1), rows!(2), rows!(3)];
                let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
                let (ab_high, cd_high) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
                let columns = [
                    _mm256_shuffle_ps::<0x44>(ab, cd),
                    _mm256_shuffle_ps::<0xee>(ab, cd),
                    _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
                    _mm256_shuffle_ps::<0xee>(ab_high, cd_high),
                ];
                for (i, column) in columns.iter().enumerate() {
                    _mm256_storeu_ps(to.add((4 * half + i) * to_step), *column);
                }
            }
        };
        sums(vectors: [__m256; 8]) -> [f32; 8] = sums_of_eight(vectors);
    }

    #[inline(always)]
    unsafe fn fold4<const MAX: bool>([a, b, c, d]: [__m256; 4]) -> __m256 {
        // SAFETY: the instructions exist by the trait's contract.
        unsafe {
            // Halves, then pairs: two lanes of each vector remain.
            let low = _mm256_permute2f128_ps::<0x20>(a, c);
            let ac = Self::fold2::<MAX>(low, _mm256_permute2f128_ps::<0x31>(a, c));
            let low = _mm256_permute2f128_ps::<0x20>(b, d);
            let bd = Self::fold2::<MAX>(low, _mm256_permute2f128_ps::<0x31>(b, d));
            let low = _mm256_shuffle_ps::<0x44>(ac, bd);
            let all = Self::fold2::<MAX>(low, _mm256_shuffle_ps::<0xee>(ac, bd));
            Self::fold2::<MAX>(all, _mm256_permute_ps::<0xb1>(all))
        }
    }

    #[inline(always)]
    unsafe fn quarters(v: __m256) -> [__m256; 4] {
        // SAFETY: the instructions exist by the trait's contract.
        unsafe {
            [
                _mm256_permutevar8x32_ps(v, _mm256_set1_epi32(0)),
                _mm256_permutevar8x32_ps(v, _mm256_set1_epi32(2)),
                _mm256_permutevar8x32_ps(v, _mm256_set1_epi32(4)),
                _mm256_permutevar8x32_ps(v, _mm256_set1_epi32(6)),
            ]
        }
    }
}

impl Simd for Avx512 {
    type F = __m512;
    type M = __mmask16;
    const LANES: usize = 16;
    const REGISTERS: usize = 32;

    intrinsics! {
        splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        load(p: *const f32) -> __m512 = _mm512_loadu_ps(p);
        store(p: *mut f32, v: __m512) = _mm512_storeu_ps(p, v);
        load_n(p: *const f32, n: usize) -> __m512 = _mm512_maskz_loadu_ps(first16(n), p);
        store_n(p: *mut f32, v: __m512, n: usize) = _mm512_mask_storeu_ps(p, first16(n), v);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        sqrt(a: __m512) -> __m512 = _mm512_sqrt_ps(a);
        round(a: __m512) -> __m512 = _mm512_roundscale_ps::<_MM_FROUND_TO_NEAREST_INT>(a);
        exp2_int(n: __m512) -> __m512 = {
            let e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(e))
        };
        lt(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b);
        select(m: __mmask16, a: __m512, b: __m512) -> __m512 = _mm512_mask_blend_ps(m, b, a);
        copysign(a: __m512, b: __m512) -> __m512 = {
            let sign = _mm512_set1_ps(-0.0);
            _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, b))
        };
        transpose(from: *const f32, step: usize, to: *mut f32, to_step: usize) = {
            for part in 0..4 {
                // Rows `i`, `i + 4`, `i + 8` and `i + 12` are the quarters of a vector.
                macro_rules! row {
                    ($i:expr) => {
                        _mm_loadu_ps(from.add($i * step + 4 * part))
                    };
                }
                macro_rules! rows {
                    ($i:literal) => {{
                        let all = _mm512_castps128_ps512(row!($i));
                        let all = _mm512_insertf32x4::<1>(all, row!($i + 4));
                        let all = _mm512_insertf32x4::<2>(all, row!($i + 8));
                        _mm512_insertf32x4::<3>(all, row!($i + 12))
                    }};
                }
                let [a, b, c, d] = [rows!(0), rows!(1), rows!(2), rows!(3)];
                let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
                let (ab_high, cd_high) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
                let columns = [
                    _mm512_shuffle_ps::<0x44>(ab, cd),
                    _mm512_shuffle_ps::<0xee>(ab, cd),
                    _mm512_shuffle_ps::<0x44>(ab_high, cd_high),
                    _mm512_shuffle_ps::<0xee>(ab_high, cd_high),
                ];
                for (i, column) in columns.iter().enumerate() {
                    _mm512_storeu_ps(to.add((4 * part + i) * to_step), *column);
                }
            }
        };
        sums(vectors: [__m512; 8]) -> [f32; 8] = {
            // Halves are added first.
            let mut halves = [_mm256_setzero_ps(); 8];
            for (half, v) in halves.iter_mut().zip(vectors) {
                *half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            }
            sums_of_eight(halves)
        };
    }

    #[inline(always)]
    unsafe fn fold4<const MAX: bool>([a, b, c, d]: [__m512; 4]) -> __m512 {
        // SAFETY: the instructions exist by the trait's contract.
        unsafe {
            // Halves, then quarters: one quarter of each vector remains.
            let low = _mm512_shuffle_f32x4::<0x44>(a, b);
            let ab = Self::fold2::<MAX>(low, _mm512_shuffle_f32x4::<0xee>(a, b));
            let low = _mm512_shuffle_f32x4::<0x44>(c, d);
            let cd = Self::fold2::<MAX>(low, _mm512_shuffle_f32x4::<0xee>(c, d));
            let even = _mm512_shuffle_f32x4::<0x88>(ab, cd);
            let all = Self::fold2::<MAX>(even, _mm512_shuffle_f32x4::<0xdd>(ab, cd));
            let all = Self::fold2::<MAX>(all, _mm512_permute_ps::<0x4e>(all));
            Self::fold2::<MAX>(all, _mm512_permute_ps::<0xb1>(all))
        }
    }

    #[inline(always)]
    unsafe fn quarters(v: __m512) -> [__m512; 4] {
        // SAFETY: the instructions exist by the trait's contract.
        unsafe {
            [
                _mm512_shuffle_f32x4::<0x00>(v, v),
                _mm512_shuffle_f32x4::<0x55>(v, v),
                _mm512_shuffle_f32x4::<0xaa>(v, v),
                _mm512_shuffle_f32x4::<0xff>(v, v),
            ]
        }
    }
}
