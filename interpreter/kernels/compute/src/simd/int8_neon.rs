//! [`Dot8`] and [`Product8`] with NEON: products of 16 bits, `sdot`, and `smmla`.
//!
//! `sdot` and `smmla` have no stable intrinsics.

use std::arch::aarch64::*;
use std::arch::asm;
use std::marker::PhantomData;

use super::{Dot8, Dot8Task, Product8, first_bytes, store_first_bytes};
use crate::base::requant::{RequantPart, record};

/// # Safety
/// The processor must have NEON.
#[target_feature(enable = "neon")]
pub(super) unsafe fn plain<T: Dot8Task>(task: T) {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<NeonWiden<2>>() }
}

/// # Safety
/// The processor must have NEON and the dot product instructions (FEAT_DotProd).
#[target_feature(enable = "neon,dotprod")]
pub(super) unsafe fn dotprod<T: Dot8Task>(task: T) {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<NeonDot<4>>() }
}

/// `V` vectors of four columns, with products that are widened to 16 and then to 32 bits.
pub(crate) type NeonWiden<const V: usize> = Neon8<Widen, V>;
/// `V` vectors of four columns, with `sdot`.
pub(crate) type NeonDot<const V: usize> = Neon8<Dot, V>;
/// Four columns, with `smmla`.
pub(crate) type NeonMatrix = Neon8<Matrix, 1>;

/// `V` vectors of four columns.
#[derive(Clone, Copy)]
pub(crate) struct Neon8<P, const V: usize>(PhantomData<P>);

/// The products that a processor has.
///
/// # Safety
/// As for [`Dot8`].
pub(crate) trait Products: Copy + 'static {
    /// Sums of four columns.
    type Acc: Copy;

    unsafe fn zero() -> Self::Acc;
    /// Adds the products of `[column][4]` values.
    unsafe fn dot(acc: Self::Acc, q: int8x16_t, b: int8x16_t) -> Self::Acc;
    unsafe fn finish(acc: Self::Acc) -> int32x4_t;
}

/// `smull` and `sadalp`.
#[derive(Clone, Copy)]
pub(crate) struct Widen;

/// `sdot`.
#[derive(Clone, Copy)]
pub(crate) struct Dot;

/// `smmla` for matrices, `sdot` for the rest.
#[derive(Clone, Copy)]
pub(crate) struct Matrix;

/// Adds the products of four bytes of `a` with those of `b` to each lane of `acc`.
///
/// # Safety
/// The processor must have the dot product instructions (FEAT_DotProd).
#[inline(always)]
unsafe fn sdot(mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the instruction exists by the caller's contract; it accesses no memory.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) acc, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

/// Adds the products of four bytes of `b` with group `G` of four bytes of `a` to each lane of `acc`.
///
/// # Safety
/// The processor must have the dot product instructions (FEAT_DotProd).
#[inline(always)]
unsafe fn sdot_group<const G: usize>(mut acc: int32x4_t, b: int8x16_t, a: int8x16_t) -> int32x4_t {
    // SAFETY: the instruction exists by the caller's contract; it accesses no memory.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[{3}]", inout(vreg) acc, in(vreg) b, in(vreg) a, const G,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

/// `acc[2 · i + j] += Σ a[8 · i + k] · b[8 · j + k]`.
///
/// # Safety
/// The processor must have the 8-bit matrix multiplication instructions (FEAT_I8MM).
#[inline(always)]
unsafe fn smmla(mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the instruction exists by the caller's contract; it accesses no memory.
    unsafe {
        asm!("smmla {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) acc, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

impl Products for Widen {
    /// Two partial sums of each column.
    type Acc = [int32x4_t; 2];

    #[inline(always)]
    unsafe fn zero() -> [int32x4_t; 2] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe { [vdupq_n_s32(0); 2] }
    }
    #[inline(always)]
    unsafe fn dot(acc: [int32x4_t; 2], q: int8x16_t, b: int8x16_t) -> [int32x4_t; 2] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe {
            let low = vmull_s8(vget_low_s8(q), vget_low_s8(b));
            [vpadalq_s16(acc[0], low), vpadalq_s16(acc[1], vmull_high_s8(q, b))]
        }
    }
    #[inline(always)]
    unsafe fn finish(acc: [int32x4_t; 2]) -> int32x4_t {
        // SAFETY: NEON exists by the trait's contract.
        unsafe { vpaddq_s32(acc[0], acc[1]) }
    }
}

/// [`Products`] by `sdot`.
macro_rules! by_sdot {
    ($name:ty) => {
        impl Products for $name {
            type Acc = int32x4_t;

            #[inline(always)]
            unsafe fn zero() -> int32x4_t {
                // SAFETY: NEON exists by the trait's contract.
                unsafe { vdupq_n_s32(0) }
            }
            #[inline(always)]
            unsafe fn dot(acc: int32x4_t, q: int8x16_t, b: int8x16_t) -> int32x4_t {
                // SAFETY: the instruction exists by the trait's contract.
                unsafe { sdot(acc, q, b) }
            }
            #[inline(always)]
            unsafe fn finish(acc: int32x4_t) -> int32x4_t {
                acc
            }
        }
    };
}

by_sdot!(Dot);
by_sdot!(Matrix);

impl<P: Products, const V: usize> Neon8<P, V> {
    /// Applies an operation to each vector.
    ///
    /// # Safety
    /// The processor must have NEON.
    #[inline(always)]
    unsafe fn each(mut a: [int32x4_t; V], f: impl Fn(int32x4_t) -> int32x4_t) -> [int32x4_t; V] {
        for a in &mut a {
            *a = f(*a);
        }
        a
    }

    /// Applies an operation to each pair of vectors.
    ///
    /// # Safety
    /// The processor must have NEON.
    #[inline(always)]
    unsafe fn both(
        mut a: [int32x4_t; V],
        b: [int32x4_t; V],
        f: impl Fn(int32x4_t, int32x4_t) -> int32x4_t,
    ) -> [int32x4_t; V] {
        for (a, b) in a.iter_mut().zip(b) {
            *a = f(*a, b);
        }
        a
    }
}

/// Loads the first `n` bytes of at most `most`, 8 or 16.
///
/// # Safety
/// `p` is valid for them.
#[inline(always)]
unsafe fn first(p: *const u8, n: usize, most: usize) -> uint8x16_t {
    // SAFETY: valid by the caller's contract.
    unsafe {
        if n >= most {
            return if most == 16 { vld1q_u8(p) } else { vcombine_u8(vld1_u8(p), vdup_n_u8(0)) };
        }
        let [low, high] = first_bytes(p, n);
        vcombine_u8(vcreate_u8(low), vcreate_u8(high))
    }
}

/// Stores the first `n` bytes of at most `most`, 4, 8, 16 or 32.
///
/// # Safety
/// `p` is valid for them.
#[inline(always)]
unsafe fn store_first(p: *mut u8, x: [uint8x16_t; 2], n: usize, most: usize) {
    // SAFETY: valid by the caller's contract.
    unsafe {
        if n >= most {
            match most {
                4 => p.cast::<u32>().write_unaligned(vgetq_lane_u32::<0>(vreinterpretq_u32_u8(x[0]))),
                8 => vst1_u8(p, vget_low_u8(x[0])),
                16 => vst1q_u8(p, x[0]),
                _ => {
                    vst1q_u8(p, x[0]);
                    vst1q_u8(p.add(16), x[1]);
                }
            }
            return;
        }
        let (mut p, mut n, mut rest) = (p, n, vreinterpretq_u64_u8(x[0]));
        if n >= 16 {
            vst1q_u8(p, x[0]);
            (p, n, rest) = (p.add(16), n - 16, vreinterpretq_u64_u8(x[1]));
        }
        store_first_bytes(p, [vgetq_lane_u64::<0>(rest), vgetq_lane_u64::<1>(rest)], n);
    }
}

impl<P: Products, const V: usize> Dot8 for Neon8<P, V> {
    type Flip = uint8x16_t;
    type B = [int8x16_t; V];
    type Q = [int8x16_t; V];
    type Acc = [P::Acc; V];
    type I = [int32x4_t; V];
    const LANES: usize = 4 * V;
    const UNSIGNED: bool = false;

    #[inline(always)]
    unsafe fn zero() -> [P::Acc; V] {
        // SAFETY: the caller meets the contract of this function.
        unsafe { [P::zero(); V] }
    }
    #[inline(always)]
    unsafe fn flip(flip: bool) -> uint8x16_t {
        // SAFETY: NEON exists by the trait's contract.
        unsafe { vdupq_n_u8(if flip { 0x80 } else { 0 }) }
    }
    #[inline(always)]
    unsafe fn b(p: *const i8) -> [int8x16_t; V] {
        // SAFETY: valid for 16 bytes per vector by the trait's contract.
        unsafe {
            let mut b = [vdupq_n_s8(0); V];
            for (v, b) in b.iter_mut().enumerate() {
                *b = vld1q_s8(p.add(16 * v));
            }
            b
        }
    }
    #[inline(always)]
    unsafe fn quads(rows: [*const u8; 4], n: usize, flip: uint8x16_t) -> [int8x16_t; V] {
        // SAFETY: valid for `n` bytes by the trait's contract.
        unsafe {
            let mut r = [flip; 4];
            for (r, p) in r.iter_mut().zip(rows) {
                *r = veorq_u8(first(p, n, if V == 4 { 16 } else { 8 }), flip);
            }
            let words = |a: uint8x16_t, b: uint8x16_t| {
                let (a, b) = (vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b));
                [vreinterpretq_s8_u16(vzip1q_u16(a, b)), vreinterpretq_s8_u16(vzip2q_u16(a, b))]
            };
            let low = words(vzip1q_u8(r[0], r[1]), vzip1q_u8(r[2], r[3]));
            let mut q = [low[0]; V];
            if V > 1 {
                q[1] = low[1];
            }
            if V == 4 {
                let high = words(vzip2q_u8(r[0], r[1]), vzip2q_u8(r[2], r[3]));
                q[V - 2] = high[0];
                q[V - 1] = high[1];
            }
            q
        }
    }
    #[inline(always)]
    unsafe fn dot_each(mut acc: [P::Acc; V], q: [int8x16_t; V], b: [int8x16_t; V]) -> [P::Acc; V] {
        for v in 0..V {
            // SAFETY: the caller meets the contract of this function.
            acc[v] = unsafe { P::dot(acc[v], q[v], b[v]) };
        }
        acc
    }
    #[inline(always)]
    unsafe fn finish(acc: [P::Acc; V]) -> [int32x4_t; V] {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let mut sums = [vdupq_n_s32(0); V];
            for (sum, acc) in sums.iter_mut().zip(acc) {
                *sum = P::finish(acc);
            }
            sums
        }
    }
    #[inline(always)]
    unsafe fn load(p: *const i32) -> [int32x4_t; V] {
        // SAFETY: valid for all lanes by the trait's contract.
        unsafe {
            let mut x = [vdupq_n_s32(0); V];
            for (v, x) in x.iter_mut().enumerate() {
                *x = vld1q_s32(p.add(4 * v));
            }
            x
        }
    }
    #[inline(always)]
    unsafe fn splat(x: i32) -> [int32x4_t; V] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe { [vdupq_n_s32(x); V] }
    }
    #[inline(always)]
    unsafe fn add(a: [int32x4_t; V], b: [int32x4_t; V]) -> [int32x4_t; V] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe { Self::both(a, b, |a, b| vaddq_s32(a, b)) }
    }
    #[inline(always)]
    unsafe fn mul(a: [int32x4_t; V], b: [int32x4_t; V]) -> [int32x4_t; V] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe { Self::both(a, b, |a, b| vmulq_s32(a, b)) }
    }
    #[inline(always)]
    unsafe fn and(a: [int32x4_t; V], b: [int32x4_t; V]) -> [int32x4_t; V] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe { Self::both(a, b, |a, b| vandq_s32(a, b)) }
    }
    #[inline(always)]
    unsafe fn shl(x: [int32x4_t; V], by: u32) -> [int32x4_t; V] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe { Self::each(x, |x| vshlq_s32(x, vdupq_n_s32(by as i32))) }
    }
    #[inline(always)]
    unsafe fn sar(x: [int32x4_t; V], by: u32) -> [int32x4_t; V] {
        // SAFETY: NEON exists by the trait's contract. Shifts by negative numbers are to the right.
        unsafe { Self::each(x, |x| vshlq_s32(x, vdupq_n_s32(-(by as i32)))) }
    }
    #[inline(always)]
    unsafe fn pairs(a: *const u8, b: *const u8, n: usize, flip: [int32x4_t; V]) -> [[int32x4_t; V]; 2] {
        // SAFETY: valid for `n` bytes, at most `8 * V`, by the trait's contract.
        unsafe {
            let mut values = [flip; 2];
            for v in 0..V {
                let there = n.saturating_sub(8 * v);
                let at = 8 * v.min(n / 8);
                let (a, b) = (first(a.add(at), there, 8), first(b.add(at), there, 8));
                let (a, b) = (vmovl_u8(vget_low_u8(a)), vmovl_u8(vget_low_u8(b)));
                for (i, x) in [vzip1q_u16(a, b), vzip2q_u16(a, b)].into_iter().enumerate() {
                    let value = &mut values[(2 * v + i) / V][(2 * v + i) % V];
                    *value = veorq_s32(*value, vreinterpretq_s32_u16(x));
                }
            }
            values
        }
    }
    #[inline(always)]
    unsafe fn dot_pairs(x: [int32x4_t; V], y: [int32x4_t; V]) -> [int32x4_t; V] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe {
            Self::both(x, y, |x, y| {
                let (x, y) = (vreinterpretq_s16_s32(x), vreinterpretq_s16_s32(y));
                vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y))
            })
        }
    }
    #[inline(always)]
    unsafe fn store_pairs(p: *mut u8, x: [[int32x4_t; V]; 2], zero_point: i16, bounds: [i16; 2], n: usize) {
        // SAFETY: valid for `n` bytes by the trait's contract.
        unsafe {
            let of = |i: usize| x[i / V][i % V];
            let mut eights = [vdup_n_u8(0); 4];
            for (v, eight) in eights.iter_mut().enumerate().take(V) {
                let y = vqmovn_high_s32(vqmovn_s32(of(2 * v)), of(2 * v + 1));
                let y = vqaddq_s16(y, vdupq_n_s16(zero_point));
                let y = vminq_s16(vmaxq_s16(y, vdupq_n_s16(bounds[0])), vdupq_n_s16(bounds[1]));
                *eight = vmovn_u16(vreinterpretq_u16_s16(y));
            }
            let all = [vcombine_u8(eights[0], eights[1]), vcombine_u8(eights[2], eights[3])];
            store_first(p, all, n, 8 * V);
        }
    }
    #[inline(always)]
    unsafe fn requant(x: [int32x4_t; V], q: &RequantPart, at: usize) -> [int32x4_t; V] {
        // SAFETY: `q` covers the columns from `at` on; NEON exists by the trait's contract.
        unsafe {
            let values = q.records.add(at * record(Self::RECORDS));
            let mut y = x;
            for (v, y) in y.iter_mut().enumerate() {
                let value = |field: usize| vld1q_s32(values.add(field * Self::LANES + 4 * v));
                // Twice the upper half of the product, rounded: bits 31 to 62 with ties up.
                let high = vqrdmulhq_s32(vshlq_s32(*y, value(1)), value(0));
                let right = value(2);
                let away = vandq_s32(vandq_s32(vshrq_n_s32::<31>(high), value(3)), {
                    // All ones where there is a shift.
                    vreinterpretq_s32_u32(vtstq_s32(right, right))
                });
                // A shift by a negative number is to the right, with ties up.
                let shifted = vrshlq_s32(vaddq_s32(high, away), vnegq_s32(right));
                let moved = vaddq_s32(shifted, vdupq_n_s32(q.zero_point));
                *y = vminq_s32(vmaxq_s32(moved, vdupq_n_s32(q.low)), vdupq_n_s32(q.high));
            }
            y
        }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, x: [int32x4_t; V], n: usize) {
        // SAFETY: valid for `n` bytes by the trait's contract.
        unsafe {
            let narrow = |i: usize| vmovn_s32(if i < V { x[i] } else { x[0] });
            let low = vmovn_s16(vcombine_s16(narrow(0), narrow(1)));
            let high = vmovn_s16(vcombine_s16(narrow(2), narrow(3)));
            let all = vreinterpretq_u8_s8(vcombine_s8(low, high));
            store_first(p, [all; 2], n, 4 * V);
        }
    }
    #[inline(always)]
    unsafe fn store(p: *mut i32, x: [int32x4_t; V], n: usize) {
        // SAFETY: valid for `n` values by the trait's contract.
        unsafe {
            for (v, x) in x.iter().enumerate() {
                if n >= 4 * (v + 1) {
                    vst1q_s32(p.add(4 * v), *x);
                } else if n > 4 * v {
                    let mut lanes = [0i32; 4];
                    vst1q_s32(lanes.as_mut_ptr(), *x);
                    std::ptr::copy_nonoverlapping(lanes.as_ptr(), p.add(4 * v), n - 4 * v);
                }
            }
        }
    }
}

impl Product8 for NeonWiden<1> {
    type A = int8x8_t;
    /// Eight weights of each column.
    type Cols = [int8x8_t; 4];
    /// Four partial sums of each column.
    type Sums = [int32x4_t; 4];
    const DEPTH: usize = 8;

    #[inline(always)]
    unsafe fn start() -> [int32x4_t; 4] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe { [vdupq_n_s32(0); 4] }
    }
    #[inline(always)]
    unsafe fn a(rows: [*const u8; 2], flip: uint8x16_t) -> int8x8_t {
        // SAFETY: valid for eight bytes by the trait's contract.
        unsafe { vreinterpret_s8_u8(veor_u8(vld1_u8(rows[0]), vget_low_u8(flip))) }
    }
    #[inline(always)]
    unsafe fn columns(p: *const i8) -> [int8x8_t; 4] {
        // SAFETY: valid for 32 bytes by the trait's contract.
        unsafe { [vld1_s8(p), vld1_s8(p.add(8)), vld1_s8(p.add(16)), vld1_s8(p.add(24))] }
    }
    #[inline(always)]
    unsafe fn product<const G: usize>(
        mut sums: [int32x4_t; 4],
        a: int8x8_t,
        columns: [int8x8_t; 4],
    ) -> [int32x4_t; 4] {
        for (sum, column) in sums.iter_mut().zip(columns) {
            // SAFETY: NEON exists by the trait's contract.
            *sum = unsafe { vpadalq_s16(*sum, vmull_s8(a, column)) };
        }
        sums
    }
    #[inline(always)]
    unsafe fn row([a, b, c, d]: [int32x4_t; 4], _row: usize) -> [int32x4_t; 1] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe { [vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d))] }
    }
}

impl Product8 for NeonDot<1> {
    type A = int8x16_t;
    type Cols = int8x16_t;
    type Sums = int32x4_t;
    const DEPTH: usize = 4;
    const GROUPS: usize = 4;

    #[inline(always)]
    unsafe fn start() -> int32x4_t {
        // SAFETY: NEON exists by the trait's contract.
        unsafe { vdupq_n_s32(0) }
    }
    #[inline(always)]
    unsafe fn a(rows: [*const u8; 2], flip: uint8x16_t) -> int8x16_t {
        // SAFETY: valid for 16 bytes by the trait's contract.
        unsafe { vreinterpretq_s8_u8(veorq_u8(vld1q_u8(rows[0]), flip)) }
    }
    #[inline(always)]
    unsafe fn columns(p: *const i8) -> int8x16_t {
        // SAFETY: valid for 16 bytes by the trait's contract.
        unsafe { vld1q_s8(p) }
    }
    #[inline(always)]
    unsafe fn product<const G: usize>(sums: int32x4_t, a: int8x16_t, columns: int8x16_t) -> int32x4_t {
        // SAFETY: the instruction exists by the trait's contract.
        unsafe { sdot_group::<G>(sums, columns, a) }
    }
    #[inline(always)]
    unsafe fn row(sums: int32x4_t, _row: usize) -> [int32x4_t; 1] {
        [sums]
    }
}

impl Product8 for NeonMatrix {
    /// Eight activations of each of two rows.
    type A = int8x16_t;
    /// Eight weights of each of four columns, two columns per vector.
    type Cols = [int8x16_t; 2];
    /// The sums of two rows and four columns, two columns per vector.
    type Sums = [int32x4_t; 2];
    const DEPTH: usize = 8;
    const ROWS: usize = 2;

    #[inline(always)]
    unsafe fn start() -> [int32x4_t; 2] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe { [vdupq_n_s32(0); 2] }
    }
    #[inline(always)]
    unsafe fn a(rows: [*const u8; 2], flip: uint8x16_t) -> int8x16_t {
        // SAFETY: valid for eight bytes each by the trait's contract.
        unsafe {
            let both = vcombine_u8(vld1_u8(rows[0]), vld1_u8(rows[1]));
            vreinterpretq_s8_u8(veorq_u8(both, flip))
        }
    }
    #[inline(always)]
    unsafe fn columns(p: *const i8) -> [int8x16_t; 2] {
        // SAFETY: valid for 32 bytes by the trait's contract.
        unsafe { [vld1q_s8(p), vld1q_s8(p.add(16))] }
    }
    #[inline(always)]
    unsafe fn product<const G: usize>(
        sums: [int32x4_t; 2],
        a: int8x16_t,
        columns: [int8x16_t; 2],
    ) -> [int32x4_t; 2] {
        // SAFETY: the instruction exists by the trait's contract.
        unsafe { [smmla(sums[0], a, columns[0]), smmla(sums[1], a, columns[1])] }
    }
    #[inline(always)]
    unsafe fn row(sums: [int32x4_t; 2], row: usize) -> [int32x4_t; 1] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe {
            let (a, b) = (vreinterpretq_s64_s32(sums[0]), vreinterpretq_s64_s32(sums[1]));
            [vreinterpretq_s32_s64(if row == 0 { vzip1q_s64(a, b) } else { vzip2q_s64(a, b) })]
        }
    }
}
