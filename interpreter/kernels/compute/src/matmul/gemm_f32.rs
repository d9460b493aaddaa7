//! Micro-kernels of single-precision products.

use crate::base::clamp::Clamp;
use crate::base::isa::{Floats, Isa};
#[cfg(target_arch = "aarch64")]
use crate::simd::Neon;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use crate::simd::Simd128;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512, Sse41};
use crate::simd::{Portable, Simd};

/// A panel as an operand of a micro-kernel, which computes `out[i, j] = clamp(bias[j] + Σ_s Σ_k rows[s][i][k] · packed[s *
/// len + k][j])`.
pub(crate) struct PanelF32 {
    /// Segments per row.
    pub(crate) segments: usize,
    /// Elements per segment.
    pub(crate) len: usize,
    /// `segments * len` groups of vectors, each of the panel's width.
    pub(crate) packed: *const f32,
    /// One element per column of the panel.
    pub(crate) bias: *const f32,
    /// The panel's columns of the first output row.
    pub(crate) out: *mut f32,
    /// Elements between output rows.
    pub(crate) out_stride: usize,
    /// Columns to write.
    pub(crate) columns: usize,
    pub(crate) clamp: Clamp,
}

/// Minimum number of terms of a sum for which shorter vectors than the longest are chosen.
#[cfg(target_arch = "x86_64")]
pub(crate) const MIN_NARROW: usize = 64;

/// Maximum number of sums of each element of the output.
pub(crate) const MAX_CHAINS: usize = 4;

/// Number of sums that the terms of each element are divided into, for a tile of `vectors` accumulators. A term waits
/// for the previous one of its sum, about four cycles, in which a processor starts eight multiplications.
pub(crate) const fn chains(vectors: usize) -> usize {
    match vectors {
        0..=2 => 4,
        3..=4 => 2,
        _ => 1,
    }
}

/// A micro-kernel for a fixed number of rows and vectors. Its operands are a panel, the addresses of segments,
/// segment-major, whose provenance is exposed (see `Rows::fill`), and the first output row. The processor must have its
/// instructions, pointers must be valid, and no other thread may access the tile's output.
pub(crate) type TileFn = unsafe fn(&PanelF32, *const usize, usize);

/// The micro-kernels of one instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    /// Columns per vector.
    pub(crate) lanes: usize,
    /// `by_width[v - 1][r - 1]` computes `r` rows by `v` vectors.
    by_width: &'static [&'static [TileFn]],
}

impl Kernels {
    /// Returns the micro-kernels of an instruction set for products of matrices with `k` rows and `columns` columns. Few columns
    /// leave lanes of a wide vector empty, and long sums of shorter vectors take less time on some processors. AVX-512
    /// includes the instructions of AVX2.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(unused_variables, reason = "other targets have vectors of one length")
    )]
    pub(crate) fn of(isa: Isa, (k, columns): (usize, usize)) -> Self {
        fn new<S: Simd>(by_width: &'static [&'static [TileFn]]) -> Kernels {
            Kernels { lanes: S::LANES, by_width }
        }
        match isa.floats() {
            Floats::Portable => new::<Portable>(PORTABLE),
            #[cfg(target_arch = "x86_64")]
            Floats::Sse41 => new::<Sse41>(SSE41),
            #[cfg(target_arch = "x86_64")]
            Floats::Avx512 if columns > Avx2::LANES || k < MIN_NARROW => new::<Avx512>(AVX512),
            #[cfg(target_arch = "x86_64")]
            Floats::Avx2 | Floats::Avx512 => new::<Avx2>(AVX2),
            #[cfg(target_arch = "aarch64")]
            Floats::Neon => new::<Neon>(NEON),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Floats::Simd128 => new::<Simd128>(SIMD128),
        }
    }

    /// Maximum number of vectors of a panel.
    pub(crate) fn max_vectors(&self) -> usize {
        self.by_width.len()
    }

    /// Maximum number of rows of a tile, for panels of at most this number of vectors.
    pub(crate) fn max_rows(&self, vectors: usize) -> usize {
        vectors.checked_sub(1).and_then(|v| self.by_width.get(v)).map_or(1, |k| k.len())
    }

    /// Returns the kernels for tiles of 1, 2, … rows.
    pub(crate) fn by_rows(&self, vectors: usize) -> &'static [TileFn] {
        vectors.checked_sub(1).and_then(|v| self.by_width.get(v)).copied().unwrap_or_default()
    }
}

/// Computes `MR` rows by `NV` vectors.
///
/// # Safety
/// As for [`TileFn`].
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "loops over constants are unrolled")]
unsafe fn tile<S: Simd, const MR: usize, const NV: usize>(t: &PanelF32, rows: *const usize, first: usize) {
    // SAFETY: the caller provides the instructions and valid pointers (see `PanelF32` and `TileFn`).
    unsafe {
        // The sums of every fourth or second term, added at the end; only the first `chains` are used.
        let mut acc = [[[S::splat(0.0); NV]; MR]; MAX_CHAINS];
        let chains = const { chains(MR * NV) };
        for j in 0..NV {
            let b = S::load(t.bias.add(j * S::LANES));
            for row in &mut acc[0] {
                row[j] = b;
            }
        }
        let mut packed = t.packed;
        for s in 0..t.segments {
            let mut row = [std::ptr::null::<f32>(); MR];
            for (i, p) in row.iter_mut().enumerate() {
                *p = std::ptr::with_exposed_provenance(*rows.add(s * MR + i));
            }
            let mut k = 0;
            while S::BY_LANE && k + 4 <= t.len {
                let mut a = [S::splat(0.0); MR];
                for i in 0..MR {
                    a[i] = S::load(row[i].add(k));
                }
                packed = by_lane::<S, MR, NV, 0>(&mut acc[0], &a, packed);
                packed = by_lane::<S, MR, NV, 1>(&mut acc[1 % chains], &a, packed);
                packed = by_lane::<S, MR, NV, 2>(&mut acc[2 % chains], &a, packed);
                packed = by_lane::<S, MR, NV, 3>(&mut acc[3 % chains], &a, packed);
                k += 4;
            }
            while chains > 1 && k + chains <= t.len {
                for acc in acc.iter_mut().take(chains) {
                    packed = term::<S, MR, NV>(acc, &row, k, packed);
                    k += 1;
                }
            }
            for k in k..t.len {
                packed = term::<S, MR, NV>(&mut acc[0], &row, k, packed);
            }
        }
        if chains > 2 {
            for i in 0..MR {
                for j in 0..NV {
                    acc[0][i][j] = S::add(acc[0][i][j], acc[2][i][j]);
                    acc[1][i][j] = S::add(acc[1][i][j], acc[3][i][j]);
                }
            }
        }
        if chains > 1 {
            for i in 0..MR {
                for j in 0..NV {
                    acc[0][i][j] = S::add(acc[0][i][j], acc[1][i][j]);
                }
            }
        }
        let (low, high) = (S::splat(t.clamp.low), S::splat(t.clamp.high));
        let last = t.columns - (NV - 1) * S::LANES;
        for (i, acc) in acc[0].iter().enumerate() {
            let out = t.out.add((first + i) * t.out_stride);
            for (j, acc) in acc.iter().take(NV - 1).enumerate() {
                S::store(out.add(j * S::LANES), S::clamp(*acc, low, high));
            }
            S::store_n(out.add((NV - 1) * S::LANES), S::clamp(acc[NV - 1], low, high), last);
        }
    }
}

/// Multiplies element `k` of each row by a group of vectors.
///
/// # Safety
/// The processor must have the instructions of `S`. Rows must be valid at element `k`, and `packed` for a group of
/// vectors.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "loops over constants are unrolled")]
unsafe fn term<S: Simd, const MR: usize, const NV: usize>(
    acc: &mut [[S::F; NV]; MR],
    row: &[*const f32; MR],
    k: usize,
    packed: *const f32,
) -> *const f32 {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let mut b = [S::splat(0.0); NV];
        for (j, b) in b.iter_mut().enumerate() {
            *b = S::load(packed.add(j * S::LANES));
        }
        for i in 0..MR {
            let a = S::splat(*row[i].add(k));
            for j in 0..NV {
                acc[i][j] = S::fma(a, b[j], acc[i][j]);
            }
        }
        packed.add(NV * S::LANES)
    }
}

/// Multiplies one element of each row, which is lane `I` of `a`, by a group of vectors.
///
/// # Safety
/// The processor must have the instructions of `S`, and `packed` must be valid for a group of vectors.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "loops over constants are unrolled")]
unsafe fn by_lane<S: Simd, const MR: usize, const NV: usize, const I: usize>(
    acc: &mut [[S::F; NV]; MR],
    a: &[S::F; MR],
    packed: *const f32,
) -> *const f32 {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        for j in 0..NV {
            let b = S::load(packed.add(j * S::LANES));
            for i in 0..MR {
                acc[i][j] = S::fma_lane::<I>(a[i], b, acc[i][j]);
            }
        }
        packed.add(NV * S::LANES)
    }
}

/// Defines the micro-kernels of one instruction set: for each number of vectors, the numbers of rows.
macro_rules! kernels {
    ($table:ident, $name:ident, $simd:ty, $(#[$attr:meta])? { $($nv:literal: [$($mr:literal)*],)* }) => {
        $(#[$attr])?
        unsafe fn $name<const MR: usize, const NV: usize>(t: &PanelF32, rows: *const usize, first: usize) {
            // SAFETY: the caller meets the contract of `TileFn`.
            unsafe { tile::<$simd, MR, NV>(t, rows, first) }
        }

        static $table: &[&[TileFn]] = &[$(&[$($name::<$mr, $nv>),*]),*];
    };
}

// Accumulators, a group of vectors and a broadcast fit the vector registers, and at most ten row pointers fit the
// general-purpose registers.
kernels!(PORTABLE, portable, Portable, { 1: [1 2 3 4], 2: [1 2 3 4], });
#[cfg(target_arch = "x86_64")]
kernels!(SSE41, sse41, Sse41, #[target_feature(enable = "sse4.1")] { 1: [1 2 3 4 5 6], 2: [1 2 3 4 5], });
#[cfg(target_arch = "aarch64")]
kernels!(NEON, neon, Neon, #[target_feature(enable = "neon")] {
    1: [1 2 3 4 5 6 7 8], 2: [1 2 3 4 5 6 7 8], 3: [1 2 3 4 5 6], 4: [1 2 3 4 5],
});
// WebAssembly engines load the activations of all rows before the products, and keep a register for themselves:
// accumulators in memory, as with five rows of two vectors, double the time.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
kernels!(SIMD128, simd128, Simd128, #[target_feature(enable = "simd128")] {
    1: [1 2 3 4 5 6], 2: [1 2 3 4],
});
#[cfg(target_arch = "x86_64")]
kernels!(AVX2, avx2, Avx2, #[target_feature(enable = "avx2,fma")] {
    1: [1 2 3 4 5 6 7 8], 2: [1 2 3 4 5 6],
});
#[cfg(target_arch = "x86_64")]
kernels!(AVX512, avx512, Avx512, #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")] {
    1: [1 2 3 4 5 6 7 8 9 10],
    2: [1 2 3 4 5 6 7 8 9 10],
    3: [1 2 3 4 5 6 7 8],
    4: [1 2 3 4 5 6],
});
