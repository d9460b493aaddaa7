//! [`Simd`] with NEON, which every aarch64 processor has.

use std::arch::aarch64::*;

use super::{Simd, SimdTask, first_floats, intrinsics, store_first_floats};

/// Four lanes.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

/// # Safety
/// The processor must have NEON.
#[target_feature(enable = "neon")]
pub(super) unsafe fn neon<T: SimdTask>(task: T) -> T::Out {
    // SAFETY: the caller meets the contract of this function.
    unsafe { task.run::<Neon>() }
}

impl Simd for Neon {
    type F = float32x4_t;
    type M = uint32x4_t;
    const LANES: usize = 4;
    const REGISTERS: usize = 32;
    const BY_LANE: bool = true;

    intrinsics! {
        splat(x: f32) -> float32x4_t = vdupq_n_f32(x);
        load(p: *const f32) -> float32x4_t = vld1q_f32(p);
        store(p: *mut f32, v: float32x4_t) = vst1q_f32(p, v);
        load_n(p: *const f32, n: usize) -> float32x4_t = {
            if n >= 4 { vld1q_f32(p) } else { vld1q_f32(first_floats(p, n).as_ptr()) }
        };
        store_n(p: *mut f32, v: float32x4_t, n: usize) = {
            if n >= 4 {
                vst1q_f32(p, v);
            } else {
                let mut lanes = [0f32; 4];
                vst1q_f32(lanes.as_mut_ptr(), v);
                store_first_floats(p, lanes, n);
            }
        };
        add(a: float32x4_t, b: float32x4_t) -> float32x4_t = vaddq_f32(a, b);
        sub(a: float32x4_t, b: float32x4_t) -> float32x4_t = vsubq_f32(a, b);
        mul(a: float32x4_t, b: float32x4_t) -> float32x4_t = vmulq_f32(a, b);
        div(a: float32x4_t, b: float32x4_t) -> float32x4_t = vdivq_f32(a, b);
        fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
        // `fmax` and `fmin` would return NaN if either operand is NaN.
        max(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcgtq_f32(a, b), a, b);
        min(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcltq_f32(a, b), a, b);
        sqrt(a: float32x4_t) -> float32x4_t = vsqrtq_f32(a);
        round(a: float32x4_t) -> float32x4_t = vrndnq_f32(a);
        exp2_int(n: float32x4_t) -> float32x4_t = {
            let e = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(e))
        };
        lt(a: float32x4_t, b: float32x4_t) -> uint32x4_t = vcltq_f32(a, b);
        select(m: uint32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(m, a, b);
        copysign(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vdupq_n_u32(1 << 31), b, a);
        abs(a: float32x4_t) -> float32x4_t = vabsq_f32(a);
        // The bounds are numbers, so that `fmax` and `fmin` return NaN only for NaN.
        clamp(a: float32x4_t, low: float32x4_t, high: float32x4_t) -> float32x4_t =
            vminq_f32(vmaxq_f32(a, low), high);
        transpose(from: *const f32, step: usize, to: *mut f32, to_step: usize) = {
            let (a, b) = (vld1q_f32(from), vld1q_f32(from.add(step)));
            let (c, d) = (vld1q_f32(from.add(2 * step)), vld1q_f32(from.add(3 * step)));
            let (ab, cd) = (vzip1q_f32(a, b), vzip1q_f32(c, d));
            let (ab_high, cd_high) = (vzip2q_f32(a, b), vzip2q_f32(c, d));
            let columns = [
                vcombine_f32(vget_low_f32(ab), vget_low_f32(cd)),
                vcombine_f32(vget_high_f32(ab), vget_high_f32(cd)),
                vcombine_f32(vget_low_f32(ab_high), vget_low_f32(cd_high)),
                vcombine_f32(vget_high_f32(ab_high), vget_high_f32(cd_high)),
            ];
            for (i, column) in columns.into_iter().enumerate() {
                vst1q_f32(to.add(i * to_step), column);
            }
        };
    }

    #[inline(always)]
    unsafe fn fma_lane<const I: usize>(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: NEON exists by the trait's contract.
        unsafe {
            match I {
                0 => vfmaq_laneq_f32::<0>(c, b, a),
                1 => vfmaq_laneq_f32::<1>(c, b, a),
                2 => vfmaq_laneq_f32::<2>(c, b, a),
                _ => vfmaq_laneq_f32::<3>(c, b, a),
            }
        }
    }

    #[inline(always)]
    unsafe fn fold4<const MAX: bool>([a, b, c, d]: [float32x4_t; 4]) -> float32x4_t {
        // SAFETY: NEON exists by the trait's contract.
        unsafe {
            let ab = Self::fold2::<MAX>(vzip1q_f32(a, b), vzip2q_f32(a, b));
            let cd = Self::fold2::<MAX>(vzip1q_f32(c, d), vzip2q_f32(c, d));
            Self::fold2::<MAX>(
                vcombine_f32(vget_low_f32(ab), vget_low_f32(cd)),
                vcombine_f32(vget_high_f32(ab), vget_high_f32(cd)),
            )
        }
    }

    #[inline(always)]
    unsafe fn quarters(v: float32x4_t) -> [float32x4_t; 4] {
        // SAFETY: NEON exists by the trait's contract.
        unsafe {
            [
                vdupq_laneq_f32::<0>(v),
                vdupq_laneq_f32::<1>(v),
                vdupq_laneq_f32::<2>(v),
                vdupq_laneq_f32::<3>(v),
            ]
        }
    }
}
