//! [`Product8`] with groups of eight elements, for products of few columns.
//!
//! A vector of sums has two of each column: of the first and of the last four elements of each group. They are added at
//! the end. Sixteen columns take two vectors per row, so that a load of activations serves two products; with groups of
//! four, each product needs a load, and loads limit the speed.

use std::arch::x86_64::*;

use super::{Dot8, Product8, Vnni, VnniVl};
use crate::compute::base::requant::{FloatPart, Records, RequantPart};
use crate::compute::simd::intrinsics;

/// Defines a type whose columns and operations on sums are those of `$base`.
macro_rules! deep {
    ($name:ident, $base:ident, $vector:ty, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        impl Dot8 for $name {
            type Flip = __m512i;
            type B = $vector;
            type Q = $vector;
            type Acc = $vector;
            type I = $vector;
            const LANES: usize = $base::LANES;
            const UNSIGNED: bool = true;
            const RECORDS: Records = $base::RECORDS;

            intrinsics! {
                zero() -> $vector = $base::zero();
                flip(flip: bool) -> __m512i = Vnni::flip(flip);
                b(p: *const i8) -> $vector = $base::b(p);
                quads(rows: [*const u8; 4], n: usize, flip: __m512i) -> $vector =
                    $base::quads(rows, n, $base::flip(_mm_cvtsi128_si32(_mm512_castsi512_si128(flip)) != 0));
                dot_each(acc: $vector, q: $vector, b: $vector) -> $vector = $base::dot_each(acc, q, b);
                finish(acc: $vector) -> $vector = $base::finish(acc);
                load(p: *const i32) -> $vector = $base::load(p);
                splat(x: i32) -> $vector = $base::splat(x);
                add(a: $vector, b: $vector) -> $vector = $base::add(a, b);
                mul(a: $vector, b: $vector) -> $vector = $base::mul(a, b);
                and(a: $vector, b: $vector) -> $vector = $base::and(a, b);
                shl(x: $vector, by: u32) -> $vector = $base::shl(x, by);
                sar(x: $vector, by: u32) -> $vector = $base::sar(x, by);
                pairs(a: *const u8, b: *const u8, n: usize, flip: $vector) -> [$vector; 2] =
                    $base::pairs(a, b, n, flip);
                dot_pairs(x: $vector, y: $vector) -> $vector = $base::dot_pairs(x, y);
                store_pairs(p: *mut u8, x: [$vector; 2], zero_point: i16, bounds: [i16; 2], n: usize) =
                    $base::store_pairs(p, x, zero_point, bounds, n);
                requant(x: $vector, q: &RequantPart, at: usize) -> $vector = $base::requant(x, q, at);
                store_bytes(p: *mut u8, x: $vector, n: usize) = $base::store_bytes(p, x, n);
                store(p: *mut i32, x: $vector, n: usize) = $base::store(p, x, n);
            }
        }
    };
}

deep!(VnniDeep, Vnni, __m512i, "Sixteen columns.");
deep!(VnniVlDeep, VnniVl, __m256i, "Eight columns.");

/// Loads eight activations, and repeats them for each column.
///
/// # Safety
/// As for [`Product8::a`].
#[inline(always)]
unsafe fn eight(row: *const u8, flip: __m512i) -> __m512i {
    // SAFETY: valid for eight bytes by the caller's contract, as are the instructions.
    unsafe { _mm512_xor_si512(_mm512_set1_epi64(row.cast::<i64>().read_unaligned()), flip) }
}

impl Product8 for VnniDeep {
    type A = __m512i;
    type Cols = [__m512i; 2];
    type Sums = [__m512i; 2];
    const DEPTH: usize = 8;

    intrinsics! {
        start() -> [__m512i; 2] = [Vnni::zero(); 2];
        a(rows: [*const u8; 2], flip: __m512i) -> __m512i = eight(rows[0], flip);
        columns(p: *const i8) -> [__m512i; 2] = [Vnni::b(p), Vnni::b(p.add(64))];
        row(sums: [__m512i; 2], _row: usize) -> __m512i = {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
            _mm512_add_epi32(
                _mm512_permutex2var_epi32(sums[0], even, sums[1]),
                _mm512_permutex2var_epi32(sums[0], odd, sums[1]),
            )
        };
        requant_rows(sums: &[__m512i], q: &RequantPart, at: usize, out: *mut u8, stride: usize, n: usize) =
            Vnni::requant_rows(sums, q, at, out, stride, n);
        float_rows(sums: &[__m512i], f: &FloatPart, at: usize, out: *mut f32, stride: usize, n: usize) =
            Vnni::float_rows(sums, f, at, out, stride, n);
    }

    #[inline(always)]
    unsafe fn product<const G: usize>(sums: [__m512i; 2], a: __m512i, columns: [__m512i; 2]) -> [__m512i; 2] {
        // SAFETY: AVX-512 VNNI exists by the trait's contract.
        unsafe { [_mm512_dpbusd_epi32(sums[0], a, columns[0]), _mm512_dpbusd_epi32(sums[1], a, columns[1])] }
    }
}

impl Product8 for VnniVlDeep {
    type A = __m512i;
    type Cols = __m512i;
    type Sums = __m512i;
    const DEPTH: usize = 8;

    intrinsics! {
        start() -> __m512i = Vnni::zero();
        a(rows: [*const u8; 2], flip: __m512i) -> __m512i = eight(rows[0], flip);
        columns(p: *const i8) -> __m512i = Vnni::b(p);
        row(sums: __m512i, _row: usize) -> __m256i =
            _mm512_cvtepi64_epi32(_mm512_add_epi32(sums, _mm512_srli_epi64::<32>(sums)));
    }

    #[inline(always)]
    unsafe fn product<const G: usize>(sums: __m512i, a: __m512i, columns: __m512i) -> __m512i {
        // SAFETY: AVX-512 VNNI exists by the trait's contract.
        unsafe { _mm512_dpbusd_epi32(sums, a, columns) }
    }
}
