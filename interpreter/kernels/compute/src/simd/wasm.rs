//! [`Simd`] with WebAssembly's `simd128`, and with its relaxed instructions where they are compiled in.

use std::arch::wasm32::*;

use super::{Simd, SimdTask, first_floats, intrinsics, store_first_floats};

/// Four lanes.
#[derive(Clone, Copy)]
pub(crate) struct Simd128;

/// # Safety
/// The module must be compiled with `simd128`.
#[target_feature(enable = "simd128")]
pub(super) unsafe fn simd128<T: SimdTask>(task: T) -> T::Out {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<Simd128>() }
}

/// `a * b + c`; with relaxed instructions it is rounded once where the processor can.
#[inline(always)]
fn multiply_add(a: v128, b: v128, c: v128) -> v128 {
    #[cfg(target_feature = "relaxed-simd")]
    return f32x4_relaxed_madd(a, b, c);
    #[cfg(not(target_feature = "relaxed-simd"))]
    f32x4_add(f32x4_mul(a, b), c)
}

impl Simd for Simd128 {
    type F = v128;
    type M = v128;
    const LANES: usize = 4;

    intrinsics! {
        splat(x: f32) -> v128 = f32x4_splat(x);
        load(p: *const f32) -> v128 = v128_load(p.cast());
        store(p: *mut f32, v: v128) = v128_store(p.cast(), v);
        load_n(p: *const f32, n: usize) -> v128 = {
            if n >= 4 { v128_load(p.cast()) } else { v128_load(first_floats(p, n).as_ptr().cast()) }
        };
        store_n(p: *mut f32, v: v128, n: usize) = {
            if n >= 4 {
                v128_store(p.cast(), v);
            } else {
                let mut lanes = [0f32; 4];
                v128_store(lanes.as_mut_ptr().cast(), v);
                store_first_floats(p, lanes, n);
            }
        };
        add(a: v128, b: v128) -> v128 = f32x4_add(a, b);
        sub(a: v128, b: v128) -> v128 = f32x4_sub(a, b);
        mul(a: v128, b: v128) -> v128 = f32x4_mul(a, b);
        div(a: v128, b: v128) -> v128 = f32x4_div(a, b);
        fma(a: v128, b: v128, c: v128) -> v128 = multiply_add(a, b, c);
        // `pmax(x, y)` is `x < y ? y : x`.
        max(a: v128, b: v128) -> v128 = f32x4_pmax(b, a);
        min(a: v128, b: v128) -> v128 = f32x4_pmin(b, a);
        sqrt(a: v128) -> v128 = f32x4_sqrt(a);
        round(a: v128) -> v128 = f32x4_nearest(a);
        exp2_int(n: v128) -> v128 = {
            let e = i32x4_add(i32x4_trunc_sat_f32x4(n), i32x4_splat(127));
            i32x4_shl(e, 23)
        };
        lt(a: v128, b: v128) -> v128 = f32x4_lt(a, b);
        select(m: v128, a: v128, b: v128) -> v128 = v128_bitselect(a, b, m);
        copysign(a: v128, b: v128) -> v128 = v128_bitselect(b, a, i32x4_splat(i32::MIN));
        abs(a: v128) -> v128 = f32x4_abs(a);
        transpose(from: *const f32, step: usize, to: *mut f32, to_step: usize) = {
            let (a, b) = (v128_load(from.cast()), v128_load(from.add(step).cast()));
            let (c, d) = (v128_load(from.add(2 * step).cast()), v128_load(from.add(3 * step).cast()));
            let (ab, cd) = (i32x4_shuffle::<0, 4, 1, 5>(a, b), i32x4_shuffle::<0, 4, 1, 5>(c, d));
            let (ab_high, cd_high) = (i32x4_shuffle::<2, 6, 3, 7>(a, b), i32x4_shuffle::<2, 6, 3, 7>(c, d));
            let columns = [
                i64x2_shuffle::<0, 2>(ab, cd),
                i64x2_shuffle::<1, 3>(ab, cd),
                i64x2_shuffle::<0, 2>(ab_high, cd_high),
                i64x2_shuffle::<1, 3>(ab_high, cd_high),
            ];
            for (i, column) in columns.into_iter().enumerate() {
                v128_store(to.add(i * to_step).cast(), column);
            }
        };
    }

    #[inline(always)]
    unsafe fn fold4<const MAX: bool>([a, b, c, d]: [v128; 4]) -> v128 {
        let (ab, ab_high) = (i32x4_shuffle::<0, 4, 1, 5>(a, b), i32x4_shuffle::<2, 6, 3, 7>(a, b));
        let (cd, cd_high) = (i32x4_shuffle::<0, 4, 1, 5>(c, d), i32x4_shuffle::<2, 6, 3, 7>(c, d));
        // SAFETY: the instructions exist by the trait's contract.
        unsafe {
            let (ab, cd) = (Self::fold2::<MAX>(ab, ab_high), Self::fold2::<MAX>(cd, cd_high));
            Self::fold2::<MAX>(i64x2_shuffle::<0, 2>(ab, cd), i64x2_shuffle::<1, 3>(ab, cd))
        }
    }

    #[inline(always)]
    unsafe fn quarters(v: v128) -> [v128; 4] {
        [
            i32x4_shuffle::<0, 0, 0, 0>(v, v),
            i32x4_shuffle::<1, 1, 1, 1>(v, v),
            i32x4_shuffle::<2, 2, 2, 2>(v, v),
            i32x4_shuffle::<3, 3, 3, 3>(v, v),
        ]
    }
}
