//! Vectors of 32-bit floats.
//!
//! A loop is an `#[inline(always)]` function over `S: Simd`, compiled once per instruction set by [`dispatch`]. The
//! methods are intrinsics, which must be inlined into a function with the target features. So `dispatch`, and tables of
//! functions with target features, are the only entry points.

use crate::base::isa::{Floats, Isa};

pub(super) mod int16;
pub(super) mod int8;
pub(super) mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) use wasm::Simd128;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512, Sse41};

/// A vector type and its operations.
///
/// # Safety
/// All methods require that the processor has their instructions. Pointers must be valid for the lanes that are
/// accessed; alignment is not required.
pub(crate) trait Simd: Copy + 'static {
    /// `LANES` floats.
    type F: Copy;
    /// One boolean per lane.
    type M: Copy;
    /// Number of lanes.
    const LANES: usize;
    /// Number of vector registers.
    const REGISTERS: usize = 16;
    /// Whether `fma_lane` is one instruction.
    const BY_LANE: bool = false;

    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, v: Self::F);
    /// Loads the first `n` lanes (`n <= LANES`); the others are zero.
    unsafe fn load_n(p: *const f32, n: usize) -> Self::F;
    /// Stores the first `n` lanes (`n <= LANES`).
    unsafe fn store_n(p: *mut f32, v: Self::F, n: usize);
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`; rounded once if the processor can.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `fma` with lane `I` of `a` in all lanes.
    #[inline(always)]
    unsafe fn fma_lane<const I: usize>(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        let mut lanes = [0.0; 16];
        // SAFETY: no vector has more than 16 lanes; the instructions exist by the caller's contract.
        unsafe {
            Self::store(lanes.as_mut_ptr(), a);
            Self::fma(Self::splat(lanes[I]), b, c)
        }
    }
    /// `a > b ? a : b`: the second operand if one is NaN.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`: the second operand if one is NaN.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sqrt(a: Self::F) -> Self::F;
    /// Nearest integer, ties to even.
    unsafe fn round(a: Self::F) -> Self::F;
    /// `2^n` for integral `n` in -126..=127; 0 for -127.
    unsafe fn exp2_int(n: Self::F) -> Self::F;
    /// `a < b` (false for NaN).
    unsafe fn lt(a: Self::F, b: Self::F) -> Self::M;
    /// `m ? a : b`.
    unsafe fn select(m: Self::M, a: Self::F, b: Self::F) -> Self::F;
    /// Absolute value of `a` with the sign of `b`.
    unsafe fn copysign(a: Self::F, b: Self::F) -> Self::F;
    /// Transposes `LANES` rows of `LANES` floats. Rows are `step` floats apart, those of the result `to_step`.
    unsafe fn transpose(from: *const f32, step: usize, to: *mut f32, to_step: usize);

    /// The sum of the lanes of each vector.
    #[inline(always)]
    unsafe fn sums(vectors: [Self::F; 8]) -> [f32; 8] {
        let mut sums = [0.0; 8];
        for (sum, v) in sums.iter_mut().zip(vectors) {
            let mut lanes = [0.0; 16];
            // SAFETY: no vector has more than 16 lanes; the instructions exist by the caller's contract.
            unsafe { Self::store(lanes.as_mut_ptr(), v) };
            let mut count = Self::LANES;
            while count > 1 {
                count /= 2;
                for lane in 0..count {
                    lanes[lane] += lanes[lane + count];
                }
            }
            *sum = lanes[0];
        }
        sums
    }

    /// The sum of the lanes of each of four vectors, or their maximum if `MAX`; that of vector `i` is in all lanes of
    /// quarter `i` of the result. The lanes of each vector are folded in the same order.
    #[inline(always)]
    unsafe fn fold4<const MAX: bool>(vectors: [Self::F; 4]) -> Self::F {
        let mut folded = [0.0; 16];
        for (v, to) in vectors.into_iter().zip(folded.chunks_exact_mut(Self::LANES / 4)) {
            let mut lanes = [0.0; 16];
            // SAFETY: no vector has more than 16 lanes; the instructions exist by the caller's contract.
            unsafe { Self::store(lanes.as_mut_ptr(), v) };
            // In halves: one after the other, lanes would wait for each other.
            let mut count = Self::LANES;
            while count > 1 {
                count /= 2;
                for lane in 0..count {
                    let (a, b) = (lanes[lane], lanes[lane + count]);
                    lanes[lane] = match MAX {
                        true if a > b => a,
                        true => b,
                        false => a + b,
                    };
                }
            }
            to.fill(lanes[0]);
        }
        // SAFETY: see above.
        unsafe { Self::load(folded.as_ptr()) }
    }

    /// For each quarter of a vector, its first lane in all lanes.
    #[inline(always)]
    unsafe fn quarters(v: Self::F) -> [Self::F; 4] {
        let mut lanes = [0.0; 16];
        // SAFETY: no vector has more than 16 lanes; the instructions exist by the caller's contract.
        unsafe {
            Self::store(lanes.as_mut_ptr(), v);
            let step = Self::LANES / 4;
            [
                Self::splat(lanes[0]),
                Self::splat(lanes[step]),
                Self::splat(lanes[2 * step]),
                Self::splat(lanes[3 * step]),
            ]
        }
    }

    /// The sum of two vectors, or their maximum if `MAX`.
    #[cfg_attr(
        not(any(
            target_arch = "x86_64",
            target_arch = "aarch64",
            all(target_arch = "wasm32", target_feature = "simd128")
        )),
        allow(dead_code, reason = "the default of `fold4` has no vectors to fold")
    )]
    #[inline(always)]
    unsafe fn fold2<const MAX: bool>(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller meets the contract of this function.
        unsafe { if MAX { Self::max(a, b) } else { Self::add(a, b) } }
    }

    /// Absolute value.
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::copysign(a, Self::splat(1.0)) }
    }

    /// `min(max(a, low), high)`; NaN stays NaN.
    #[inline(always)]
    unsafe fn clamp(a: Self::F, low: Self::F, high: Self::F) -> Self::F {
        // SAFETY: the caller meets the contract of this function.
        unsafe { Self::min(high, Self::max(low, a)) }
    }
}

/// A task that is compiled for every instruction set.
pub(crate) trait SimdTask {
    /// Result of the task.
    type Out;

    /// Runs the task. Implementations must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`.
    unsafe fn run<S: Simd>(self) -> Self::Out;
}

/// Returns the number of lanes of an instruction set.
pub(crate) fn lanes(isa: Isa) -> usize {
    match isa.floats() {
        Floats::Portable => Portable::LANES,
        #[cfg(target_arch = "x86_64")]
        Floats::Sse41 => Sse41::LANES,
        #[cfg(target_arch = "x86_64")]
        Floats::Avx2 => Avx2::LANES,
        #[cfg(target_arch = "x86_64")]
        Floats::Avx512 => Avx512::LANES,
        #[cfg(target_arch = "aarch64")]
        Floats::Neon => Neon::LANES,
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        Floats::Simd128 => Simd128::LANES,
    }
}

/// Runs a task with the given instruction set.
#[inline]
pub(crate) fn dispatch<T: SimdTask>(isa: Isa, task: T) -> T::Out {
    match isa.floats() {
        Floats::Portable => portable(task),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a value of `Isa` proves that the processor has these instructions.
        Floats::Sse41 => unsafe { x86::sse41(task) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        Floats::Avx2 => unsafe { x86::avx2(task) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        Floats::Avx512 => unsafe { x86::avx512(task) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: see above.
        Floats::Neon => unsafe { neon::neon(task) },
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        // SAFETY: the module is compiled with these instructions.
        Floats::Simd128 => unsafe { wasm::simd128(task) },
    }
}

/// Not inlined, which keeps `dispatch` short for the other instruction sets.
#[inline(never)]
fn portable<T: SimdTask>(task: T) -> T::Out {
    // SAFETY: the portable set needs no particular instructions.
    unsafe { task.run::<Portable>() }
}

/// Defines methods whose bodies are one expression of intrinsics each.
#[allow(unused_macros, reason = "some targets have only the portable set")]
macro_rules! intrinsics {
    ($($name:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)? = $body:expr;)*) => {
        $(
            #[inline(always)]
            #[allow(unused_unsafe, reason = "some expressions are only values")]
            unsafe fn $name($($arg: $ty),*) $(-> $out)? {
                // SAFETY: instructions and pointers are valid by the trait's contract.
                unsafe { $body }
            }
        )*
    };
}
#[allow(unused_imports, reason = "some targets have only the portable set")]
pub(crate) use intrinsics;

/// Reads the first `n` of four floats; the others are zero.
///
/// # Safety
/// `p` is valid for them.
#[inline(always)]
#[allow(dead_code, reason = "some targets have only the portable set")]
unsafe fn first_floats(p: *const f32, n: usize) -> [f32; 4] {
    // SAFETY: valid by the caller's contract.
    let at = |i: usize| if i < n { unsafe { *p.add(i) } } else { 0.0 };
    [at(0), at(1), at(2), at(3)]
}

/// Writes the first `n` of four floats.
///
/// # Safety
/// `p` is valid for them.
#[inline(always)]
#[allow(dead_code, reason = "some targets have only the portable set")]
unsafe fn store_first_floats(p: *mut f32, lanes: [f32; 4], n: usize) {
    for (i, x) in lanes.into_iter().enumerate().take(n) {
        // SAFETY: valid by the caller's contract.
        unsafe { p.add(i).write(x) };
    }
}

/// Stores the first `n` lanes, fewer than 8. A store with a mask takes tens of cycles on processors of the Zen family
/// without AVX-512.
///
/// # Safety
/// `p` is valid for them, and the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn store_first8(p: *mut f32, v: std::arch::x86_64::__m256, n: usize) {
    use std::arch::x86_64::*;

    // SAFETY: valid by the caller's contract.
    unsafe {
        let (mut p, mut rest) = (p, _mm256_castps256_ps128(v));
        if n & 4 != 0 {
            _mm_storeu_ps(p, rest);
            (p, rest) = (p.add(4), _mm256_extractf128_ps::<1>(v));
        }
        if n & 2 != 0 {
            _mm_storel_pd(p.cast(), _mm_castps_pd(rest));
            (p, rest) = (p.add(2), _mm_movehl_ps(rest, rest));
        }
        if n & 1 != 0 {
            _mm_store_ss(p, rest);
        }
    }
}

/// Four lanes in plain Rust, which the compiler maps to the target's baseline vectors.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// Evaluates an expression per lane. `array::from_fn` and `map` are calls that only a whole-program optimization
/// reliably inlines.
macro_rules! each_lane {
    ($i:ident => $x:expr) => {
        [
            {
                const $i: usize = 0;
                $x
            },
            {
                const $i: usize = 1;
                $x
            },
            {
                const $i: usize = 2;
                $x
            },
            {
                const $i: usize = 3;
                $x
            },
        ]
    };
}

impl Simd for Portable {
    type F = [f32; 4];
    type M = [bool; 4];
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; 4] {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> [f32; 4] {
        // SAFETY: valid for four lanes by the trait's contract.
        unsafe { p.cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: [f32; 4]) {
        // SAFETY: valid for four lanes by the trait's contract.
        unsafe { p.cast::<[f32; 4]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_n(p: *const f32, n: usize) -> [f32; 4] {
        let mut v = [0.0; 4];
        for (i, x) in v.iter_mut().enumerate().take(n) {
            // SAFETY: valid for `n` lanes by the trait's contract.
            *x = unsafe { p.add(i).read() };
        }
        v
    }
    #[inline(always)]
    unsafe fn store_n(p: *mut f32, v: [f32; 4], n: usize) {
        for (i, x) in v.iter().enumerate().take(n) {
            // SAFETY: valid for `n` lanes by the trait's contract.
            unsafe { p.add(i).write(*x) };
        }
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each_lane!(I => a[I] + b[I])
    }
    #[inline(always)]
    unsafe fn sub(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each_lane!(I => a[I] - b[I])
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each_lane!(I => a[I] * b[I])
    }
    #[inline(always)]
    unsafe fn div(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each_lane!(I => a[I] / b[I])
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        each_lane!(I => a[I] * b[I] + c[I])
    }
    #[inline(always)]
    unsafe fn max(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each_lane!(I => if a[I] > b[I] { a[I] } else { b[I] })
    }
    #[inline(always)]
    unsafe fn min(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each_lane!(I => if a[I] < b[I] { a[I] } else { b[I] })
    }
    #[inline(always)]
    unsafe fn sqrt(a: [f32; 4]) -> [f32; 4] {
        each_lane!(I => a[I].sqrt())
    }
    #[inline(always)]
    unsafe fn round(a: [f32; 4]) -> [f32; 4] {
        each_lane!(I => a[I].round_ties_even())
    }
    #[inline(always)]
    unsafe fn exp2_int(n: [f32; 4]) -> [f32; 4] {
        each_lane!(I => f32::from_bits(((n[I] as i32 + 127) << 23) as u32))
    }
    #[inline(always)]
    unsafe fn lt(a: [f32; 4], b: [f32; 4]) -> [bool; 4] {
        each_lane!(I => a[I] < b[I])
    }
    #[inline(always)]
    unsafe fn select(m: [bool; 4], a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each_lane!(I => if m[I] { a[I] } else { b[I] })
    }
    #[inline(always)]
    unsafe fn copysign(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each_lane!(I => a[I].copysign(b[I]))
    }
    #[inline(always)]
    unsafe fn transpose(from: *const f32, step: usize, to: *mut f32, to_step: usize) {
        for (row, column) in (0..4).flat_map(|row| (0..4).map(move |column| (row, column))) {
            // SAFETY: valid by the trait's contract.
            unsafe { to.add(column * to_step + row).write(from.add(row * step + column).read()) };
        }
    }
}
