//! [`Dot8`] and [`Product8`] with WebAssembly's `i32x4.relaxed_dot_i8x16_i7x16_add_s`, where it multiplies signed by
//! unsigned bytes. All other operations are those of `simd128`.

use std::arch::wasm32::*;

use super::{Dot8, Dot8Task, Product8, Simd128Pairs, first_bytes};
use crate::base::requant::{Records, RequantPart};
use crate::simd::intrinsics;

/// # Safety
/// The module must be compiled with `relaxed-simd`, and `has_unsigned_dot` must return true.
#[target_feature(enable = "simd128,relaxed-simd")]
pub(super) unsafe fn relaxed_dot<T: Dot8Task>(task: T) {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<RelaxedDot<2>>() }
}

/// `V` vectors of four columns.
#[derive(Clone, Copy)]
pub(crate) struct RelaxedDot<const V: usize>;

/// The operations of sums.
type Words<const V: usize> = Simd128Pairs<V>;

/// Adds four products of unsigned activations and signed weights to each sum.
#[inline(always)]
fn dot(sums: v128, activations: v128, weights: v128) -> v128 {
    i32x4_relaxed_dot_i8x16_i7x16_add(weights, activations, sums)
}

/// Loads the first `n` bytes, at most 8.
///
/// # Safety
/// `p` is valid for them.
#[inline(always)]
unsafe fn eight(p: *const u8, n: usize) -> v128 {
    // SAFETY: the pointer is valid for `n` bytes by the caller's contract.
    unsafe { if n >= 8 { v128_load64_zero(p.cast()) } else { u64x2(first_bytes(p, n)[0], 0) } }
}

impl<const V: usize> Dot8 for RelaxedDot<V> {
    type Flip = v128;
    type B = [v128; V];
    type Q = [v128; V];
    type Acc = [v128; V];
    type I = [v128; V];
    const LANES: usize = 4 * V;
    const UNSIGNED: bool = true;
    const RECORDS: Records = Words::<V>::RECORDS;
    /// Each pixel has two accumulators.
    const PIXELS: usize = 2;

    intrinsics! {
        zero() -> [v128; V] = Words::zero();
        flip(flip: bool) -> v128 = u8x16_splat(if flip { 0x80 } else { 0 });
        b(p: *const i8) -> [v128; V] = Words::load(p.cast());
        finish(acc: [v128; V]) -> [v128; V] = acc;
        load(p: *const i32) -> [v128; V] = Words::load(p);
        splat(x: i32) -> [v128; V] = Words::splat(x);
        add(a: [v128; V], b: [v128; V]) -> [v128; V] = Words::add(a, b);
        mul(a: [v128; V], b: [v128; V]) -> [v128; V] = Words::mul(a, b);
        and(a: [v128; V], b: [v128; V]) -> [v128; V] = Words::and(a, b);
        shl(x: [v128; V], by: u32) -> [v128; V] = Words::shl(x, by);
        sar(x: [v128; V], by: u32) -> [v128; V] = Words::sar(x, by);
        pairs(a: *const u8, b: *const u8, n: usize, flip: [v128; V]) -> [[v128; V]; 2] = Words::pairs(a, b, n, flip);
        dot_pairs(x: [v128; V], y: [v128; V]) -> [v128; V] = Words::dot_pairs(x, y);
        store_pairs(p: *mut u8, x: [[v128; V]; 2], zero_point: i16, bounds: [i16; 2], n: usize) =
            Words::store_pairs(p, x, zero_point, bounds, n);
        requant(x: [v128; V], q: &RequantPart, at: usize) -> [v128; V] = Words::requant(x, q, at);
        store_bytes(p: *mut u8, x: [v128; V], n: usize) = Words::store_bytes(p, x, n);
        store(p: *mut i32, x: [v128; V], n: usize) = Words::store(p, x, n);
    }

    #[inline(always)]
    unsafe fn quads(rows: [*const u8; 4], n: usize, flip: v128) -> [v128; V] {
        // SAFETY: the pointers are valid for `n` bytes, at most `4 * V`, by the trait's contract.
        unsafe {
            let [a, b, c, d] = rows.map(|p| eight(p, n));
            let low = i8x16_shuffle::<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(a, b);
            let high = i8x16_shuffle::<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(c, d);
            let mut q = [v128_xor(i16x8_shuffle::<0, 8, 1, 9, 2, 10, 3, 11>(low, high), flip); V];
            if V == 2 {
                q[V - 1] = v128_xor(i16x8_shuffle::<4, 12, 5, 13, 6, 14, 7, 15>(low, high), flip);
            }
            q
        }
    }

    #[inline(always)]
    unsafe fn dot_each(mut acc: [v128; V], q: [v128; V], b: [v128; V]) -> [v128; V] {
        for (acc, (q, b)) in acc.iter_mut().zip(q.into_iter().zip(b)) {
            *acc = dot(*acc, q, b);
        }
        acc
    }
}

impl Product8 for RelaxedDot<1> {
    type A = v128;
    type Cols = v128;
    type Sums = v128;
    const DEPTH: usize = 4;
    const BIASED: bool = true;

    intrinsics! {
        start() -> v128 = i32x4_splat(0);
        start_at(bias: *const i32) -> v128 = v128_load(bias.cast());
        a(rows: [*const u8; 2], flip: v128) -> v128 = v128_xor(v128_load32_splat(rows[0].cast()), flip);
        columns(p: *const i8) -> v128 = v128_load(p.cast());
        row(sums: v128, _row: usize) -> [v128; 1] = [sums];
    }

    #[inline(always)]
    unsafe fn requant_rows(
        sums: &[[v128; 1]],
        q: &RequantPart,
        at: usize,
        out: *mut u8,
        stride: usize,
        n: usize,
    ) {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Words::requant_rows_at_once(sums, q, at, out, stride, n) }
    }

    #[inline(always)]
    unsafe fn product<const G: usize>(sums: v128, a: v128, columns: v128) -> v128 {
        dot(sums, a, columns)
    }
}
