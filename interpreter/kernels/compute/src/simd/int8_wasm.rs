//! [`Words`] with WebAssembly's `simd128`.

use std::arch::wasm32::*;

use super::pairs::{Pairs, Words};
use super::{Dot8Task, OwnFunction};
use crate::simd::intrinsics;

/// # Safety
/// The module must be compiled with `simd128`.
#[target_feature(enable = "simd128")]
pub(super) unsafe fn simd128<T: Dot8Task>(task: T) {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<Simd128Pairs<2>>() }
}

/// `V` vectors of four columns.
pub(crate) type Simd128Pairs<const V: usize> = Pairs<Simd128Words, V>;

/// Vectors of 128 bits.
#[derive(Clone, Copy)]
pub(crate) struct Simd128Words;

impl Words for Simd128Words {
    type V = v128;

    intrinsics! {
        load(p: *const u8) -> v128 = v128_load(p.cast());
        store(p: *mut u8, v: v128) = v128_store(p.cast(), v);
        store_half(p: *mut u8, v: v128) = v128_store64_lane::<0>(v, p.cast());
        store_high_half(p: *mut u8, v: v128) = v128_store64_lane::<1>(v, p.cast());
        widen(p: *const u8) -> v128 = i16x8_load_extend_i8x8(p.cast());
        widen_unsigned(p: *const u8) -> v128 = i16x8_load_extend_u8x8(p);
        splat_16(x: i16) -> v128 = i16x8_splat(x);
        splat_32(x: i32) -> v128 = i32x4_splat(x);
        add_32(a: v128, b: v128) -> v128 = i32x4_add(a, b);
        mul_32(a: v128, b: v128) -> v128 = i32x4_mul(a, b);
        min_32(a: v128, b: v128) -> v128 = i32x4_min(a, b);
        max_32(a: v128, b: v128) -> v128 = i32x4_max(a, b);
        shl_32(a: v128, by: u32) -> v128 = i32x4_shl(a, by);
        sar_32(a: v128, by: u32) -> v128 = i32x4_shr(a, by);
        add_saturating_16(a: v128, b: v128) -> v128 = i16x8_add_sat(a, b);
        min_16(a: v128, b: v128) -> v128 = i16x8_min(a, b);
        max_16(a: v128, b: v128) -> v128 = i16x8_max(a, b);
        and(a: v128, b: v128) -> v128 = v128_and(a, b);
        xor(a: v128, b: v128) -> v128 = v128_xor(a, b);
        dot_16(a: v128, b: v128) -> v128 = i32x4_dot_i16x8(a, b);
        interleave_low_16(a: v128, b: v128) -> v128 = i16x8_shuffle::<0, 8, 1, 9, 2, 10, 3, 11>(a, b);
        interleave_high_16(a: v128, b: v128) -> v128 = i16x8_shuffle::<4, 12, 5, 13, 6, 14, 7, 15>(a, b);
        even_32(a: v128, b: v128) -> v128 = i32x4_shuffle::<0, 2, 4, 6>(a, b);
        odd_32(a: v128, b: v128) -> v128 = i32x4_shuffle::<1, 3, 5, 7>(a, b);
        odd_16(a: v128, b: v128) -> v128 = i16x8_shuffle::<1, 3, 5, 7, 9, 11, 13, 15>(a, b);
        odd_8(a: v128, b: v128) -> v128 =
            i8x16_shuffle::<1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31>(a, b);
        repeat_32(p: *const u8) -> v128 = v128_load32_splat(p.cast());
        narrow_16(a: v128, b: v128) -> v128 = i16x8_narrow_i32x4(a, b);
        narrow_8(a: v128, b: v128) -> v128 = u8x16_narrow_i16x8(a, b);
    }

    #[inline(always)]
    unsafe fn shl_16<const S: u32>(a: v128) -> v128 {
        i16x8_shl(a, S)
    }

    #[inline(always)]
    unsafe fn mul_add_shift<const S: u32>(a: v128, b: v128, c: v128) -> v128 {
        let low = i64x2_add(i64x2_extmul_low_i32x4(a, b), u64x2_extend_low_u32x4(c));
        let high = i64x2_add(i64x2_extmul_high_i32x4(a, b), u64x2_extend_high_u32x4(c));
        i32x4_shuffle::<0, 2, 4, 6>(u64x2_shr(low, S), u64x2_shr(high, S))
    }

    #[inline(always)]
    unsafe fn mul_high_32(a: v128, b: v128) -> v128 {
        i32x4_shuffle::<1, 3, 5, 7>(i64x2_extmul_low_i32x4(a, b), i64x2_extmul_high_i32x4(a, b))
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
#[target_feature(enable = "simd128")]
unsafe fn alone<T: OwnFunction>(task: T) {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run() }
}
