//! [`Product8`] with groups of eight elements, for products of few columns.
//!
//! A vector of sums has two of each column: of the first and of the last four elements of each group. They are added at
//! the end. Sixteen columns take two vectors per row, so that a load of activations serves two products; with groups of
//! four, each product needs a load, and loads limit the speed.

use std::arch::x86_64::*;

use super::{Dot8, Product8, Vnni, VnniVl};
use crate::base::requant::{FloatPart, RequantPart};
use crate::simd::intrinsics;

/// Loads eight activations, and repeats them for each column.
///
/// # Safety
/// As for [`Product8::a`].
#[inline(always)]
unsafe fn eight(row: *const u8, flip: __m512i) -> __m512i {
    // SAFETY: valid for eight bytes by the caller's contract, as are the instructions.
    unsafe { _mm512_xor_si512(_mm512_set1_epi64(row.cast::<i64>().read_unaligned()), flip) }
}

/// Adds the products of four elements in each lane.
///
/// # Safety
/// The processor must have AVX-512 VNNI.
#[inline(always)]
unsafe fn dot(sums: __m512i, a: __m512i, columns: __m512i) -> __m512i {
    // SAFETY: the instruction exists by the caller's contract.
    unsafe { _mm512_dpbusd_epi32(sums, a, columns) }
}

impl Product8<true> for Vnni {
    type A = __m512i;
    type Cols = [__m512i; 2];
    type Sums = [__m512i; 2];
    const DEPTH: usize = 8;

    intrinsics! {
        start() -> [__m512i; 2] = [_mm512_setzero_si512(); 2];
        a(rows: [*const u8; 2], flip: __m512i) -> __m512i = eight(rows[0], flip);
        columns(p: *const i8) -> [__m512i; 2] = [Self::b(p), Self::b(p.add(64))];
        row(sums: [__m512i; 2], _row: usize) -> __m512i = {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
            _mm512_add_epi32(
                _mm512_permutex2var_epi32(sums[0], even, sums[1]),
                _mm512_permutex2var_epi32(sums[0], odd, sums[1]),
            )
        };
        requant_rows(sums: &[__m512i], q: &RequantPart, at: usize, out: *mut u8, stride: usize, n: usize) =
            <Self as Product8>::requant_rows(sums, q, at, out, stride, n);
        float_rows(sums: &[__m512i], f: &FloatPart, at: usize, out: *mut f32, stride: usize, n: usize) =
            <Self as Product8>::float_rows(sums, f, at, out, stride, n);
    }

    #[inline(always)]
    unsafe fn product<const G: usize>(sums: [__m512i; 2], a: __m512i, columns: [__m512i; 2]) -> [__m512i; 2] {
        // SAFETY: AVX-512 VNNI exists by the trait's contract.
        unsafe { [dot(sums[0], a, columns[0]), dot(sums[1], a, columns[1])] }
    }
}

/// Also needs AVX-512 F, whose vectors hold two sums of eight columns.
impl Product8<true> for VnniVl {
    type A = __m512i;
    type Cols = __m512i;
    type Sums = __m512i;
    const DEPTH: usize = 8;

    intrinsics! {
        start() -> __m512i = _mm512_setzero_si512();
        a(rows: [*const u8; 2], flip: __m256i) -> __m512i = eight(rows[0], _mm512_broadcast_i64x4(flip));
        columns(p: *const i8) -> __m512i = _mm512_loadu_si512(p.cast());
        row(sums: __m512i, _row: usize) -> __m256i =
            _mm512_cvtepi64_epi32(_mm512_add_epi32(sums, _mm512_srli_epi64::<32>(sums)));
        requant_rows(sums: &[__m256i], q: &RequantPart, at: usize, out: *mut u8, stride: usize, n: usize) =
            <Self as Product8>::requant_rows(sums, q, at, out, stride, n);
        float_rows(sums: &[__m256i], f: &FloatPart, at: usize, out: *mut f32, stride: usize, n: usize) =
            <Self as Product8>::float_rows(sums, f, at, out, stride, n);
    }

    #[inline(always)]
    unsafe fn product<const G: usize>(sums: __m512i, a: __m512i, columns: __m512i) -> __m512i {
        // SAFETY: AVX-512 VNNI exists by the trait's contract.
        unsafe { dot(sums, a, columns) }
    }
}
