//! [`Dot8`] and [`Product8`] with `vpdpbusd` of 256 bits, in the encodings of AVX-VNNI and of AVX-512 VL. All other
//! operations are those of AVX2.

use std::arch::x86_64::*;

use super::avx2::{float_rows, requant_rows};
use super::{Avx2Pairs, Dot8, Dot8Task, Product8};
use crate::base::requant::{FloatPart, Records, RequantPart};
use crate::simd::intrinsics;

/// # Safety
/// The processor must have AVX2 and AVX-VNNI.
#[target_feature(enable = "avx2,avxvnni")]
pub(super) unsafe fn avxvnni<T: Dot8Task>(task: T) {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<AvxVnni>() }
}

/// # Safety
/// The processor must have AVX2 and AVX-512 F, VL and VNNI.
#[target_feature(enable = "avx2,avx512f,avx512vl,avx512vnni")]
pub(super) unsafe fn vl<T: Dot8Task>(task: T) {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<VnniVl>() }
}

/// Bytes that flip all top bits of a vector, or none; loaded from memory for the reason given in `int8_avx2.rs`.
static FLIP: [[u8; 32]; 2] = [[0; 32], [0x80; 32]];

/// Interleaves the first `n` bytes, at most eight, of four rows; missing bytes are 0.
///
/// # Safety
/// The processor must have AVX2; pointers are valid for `n` bytes.
#[inline(always)]
unsafe fn interleaved(rows: [*const u8; 4], n: usize) -> __m256i {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let mut r = [_mm_setzero_si128(); 4];
        for (r, p) in r.iter_mut().zip(rows) {
            *r = if n >= 8 {
                _mm_loadl_epi64(p.cast())
            } else {
                let mut bytes = [0u8; 8];
                std::ptr::copy_nonoverlapping(p, bytes.as_mut_ptr(), n);
                _mm_loadl_epi64(bytes.as_ptr().cast())
            };
        }
        let (a, b) = (_mm_unpacklo_epi8(r[0], r[1]), _mm_unpacklo_epi8(r[2], r[3]));
        _mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b))
    }
}

/// Defines a vector type of eight columns.
macro_rules! vnni {
    ($name:ident, $dot:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        impl Dot8 for $name {
            type Flip = __m256i;
            type B = __m256i;
            type Q = __m256i;
            type Acc = __m256i;
            type I = __m256i;
            const LANES: usize = 8;
            const UNSIGNED: bool = true;
            const RECORDS: Records = Avx2Pairs::RECORDS;

            intrinsics! {
                zero() -> __m256i = _mm256_setzero_si256();
                flip(flip: bool) -> __m256i = _mm256_loadu_si256(FLIP[usize::from(flip)].as_ptr().cast());
                b(p: *const i8) -> __m256i = _mm256_loadu_si256(p.cast());
                quads(rows: [*const u8; 4], n: usize, flip: __m256i) -> __m256i =
                    _mm256_xor_si256(interleaved(rows, n), flip);
                dot_each(acc: __m256i, q: __m256i, b: __m256i) -> __m256i = $dot(acc, q, b);
                finish(acc: __m256i) -> __m256i = acc;
                load(p: *const i32) -> __m256i = Avx2Pairs::load(p);
                splat(x: i32) -> __m256i = Avx2Pairs::splat(x);
                add(a: __m256i, b: __m256i) -> __m256i = Avx2Pairs::add(a, b);
                mul(a: __m256i, b: __m256i) -> __m256i = Avx2Pairs::mul(a, b);
                and(a: __m256i, b: __m256i) -> __m256i = Avx2Pairs::and(a, b);
                shl(x: __m256i, by: u32) -> __m256i = Avx2Pairs::shl(x, by);
                sar(x: __m256i, by: u32) -> __m256i = Avx2Pairs::sar(x, by);
                pairs(a: *const u8, b: *const u8, n: usize, flip: __m256i) -> [__m256i; 2] =
                    Avx2Pairs::pairs(a, b, n, flip);
                dot_pairs(x: __m256i, y: __m256i) -> __m256i = Avx2Pairs::dot_pairs(x, y);
                store_pairs(p: *mut u8, x: [__m256i; 2], zero_point: i16, bounds: [i16; 2], n: usize) =
                    Avx2Pairs::store_pairs(p, x, zero_point, bounds, n);
                requant(x: __m256i, q: &RequantPart, at: usize) -> __m256i = Avx2Pairs::requant(x, q, at);
                store_bytes(p: *mut u8, x: __m256i, n: usize) = Avx2Pairs::store_bytes(p, x, n);
                store(p: *mut i32, x: __m256i, n: usize) = Avx2Pairs::store(p, x, n);
            }
        }

        impl Product8 for $name {
            type A = __m256i;
            type Cols = __m256i;
            type Sums = __m256i;
            const DEPTH: usize = 4;

            intrinsics! {
                start() -> __m256i = Self::zero();
                a(rows: [*const u8; 2], flip: __m256i) -> __m256i =
                    _mm256_xor_si256(_mm256_set1_epi32(rows[0].cast::<i32>().read_unaligned()), flip);
                columns(p: *const i8) -> __m256i = Self::b(p);
                row(sums: __m256i, _row: usize) -> __m256i = sums;
                requant_rows(sums: &[__m256i], q: &RequantPart, at: usize, out: *mut u8, stride: usize, n: usize) =
                    requant_rows(sums, q, at, out, stride, n);
                float_rows(sums: &[__m256i], f: &FloatPart, at: usize, out: *mut f32, stride: usize, n: usize) =
                    float_rows(sums, f, at, out, stride, n);
            }

            #[inline(always)]
            unsafe fn product<const G: usize>(sums: __m256i, a: __m256i, columns: __m256i) -> __m256i {
                // SAFETY: the instructions exist by the trait's contract.
                unsafe { $dot(sums, a, columns) }
            }
        }
    };
}

vnni!(AvxVnni, _mm256_dpbusd_avx_epi32, "Eight columns, in the encoding of AVX-VNNI.");
vnni!(VnniVl, _mm256_dpbusd_epi32, "Eight columns, in the encoding of AVX-512 VL.");
