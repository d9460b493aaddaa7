//! Micro-kernels of 8-bit products.

use crate::compute::base::isa::{Isa, Level};
use crate::compute::base::requant::RequantPart;
#[cfg(target_arch = "x86_64")]
use crate::compute::simd::int8::{Avx2Pairs, Vnni};
use crate::compute::simd::int8::{Dot8, Portable8};

/// Operands of a micro-kernel, which computes the sums `bias[j] + Σ a[i, k] · w[k, j]`, requantized or as they are.
pub(crate) struct TileI8 {
    /// Addresses of segments, segment-major, whose provenance is exposed (see `Rows::fill`).
    pub(crate) rows: *const usize,
    /// Segments.
    pub(crate) segments: usize,
    /// Elements per segment.
    pub(crate) len: usize,
    /// Whether to flip the top bits of activations, which converts them to the domain of the kernel.
    pub(crate) flip: bool,
    /// For each segment, for each four elements (missing ones are zero): `[column][4]`.
    pub(crate) packed: *const i8,
    /// As many elements as the panel is wide, with the contribution of the activations' zero point.
    pub(crate) bias: *const i32,
    /// Zero point of the weights, and zero point of the activations, for the correction of each row.
    pub(crate) weight_zero: i32,
    pub(crate) input_zero: i32,
    pub(crate) out: Out,
    /// Elements between output rows.
    pub(crate) out_stride: usize,
    /// Columns to write.
    pub(crate) columns: usize,
}

/// Destination of the sums.
#[derive(Clone, Copy)]
pub(crate) enum Out {
    /// Requantized bytes.
    Bytes(*mut u8, RequantPart),
    /// Sums.
    Sums(*mut i32),
}

/// A micro-kernel for a fixed number of rows and vectors.
pub(crate) type TileFn = unsafe fn(&TileI8);

/// The micro-kernels of one instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    /// Columns per vector.
    pub(crate) lanes: usize,
    /// Whether activations must be unsigned.
    pub(crate) unsigned: bool,
    /// Whether records of requantization may be wide.
    pub(crate) wide: bool,
    by_width: &'static [&'static [TileFn]],
}

impl Kernels {
    /// Returns the micro-kernels of an instruction set.
    pub(crate) fn of(isa: Isa) -> Self {
        fn new<D: Dot8>(by_width: &'static [&'static [TileFn]]) -> Kernels {
            Kernels { lanes: D::LANES, unsigned: D::UNSIGNED, wide: D::WIDE, by_width }
        }
        match isa.level() {
            Level::Portable => new::<Portable8>(PORTABLE),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 => new::<Avx2Pairs>(AVX2),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => new::<Vnni>(VNNI),
        }
    }

    /// Maximum number of vectors of a panel.
    pub(crate) fn max_vectors(&self) -> usize {
        self.by_width.len()
    }

    /// Maximum number of rows of a tile, for panels of at most this number of vectors.
    #[inline]
    pub(crate) fn max_rows(&self, vectors: usize) -> usize {
        vectors.checked_sub(1).and_then(|v| self.by_width.get(v)).map_or(1, |k| k.len())
    }

    /// Returns the kernel for a tile.
    #[inline]
    pub(crate) fn get(&self, rows: usize, vectors: usize) -> Option<TileFn> {
        self.by_width.get(vectors.checked_sub(1)?)?.get(rows.checked_sub(1)?).copied()
    }
}

#[inline(always)]
unsafe fn tile<D: Dot8, const MR: usize, const NV: usize>(t: &TileI8) {
    // SAFETY: the caller provides the instructions and valid pointers in `t` (see `TileI8`).
    unsafe {
        let mut acc = [[D::zero(); NV]; MR];
        let mut packed = t.packed;
        let flip = D::flip(t.flip);
        for s in 0..t.segments {
            let mut row = [std::ptr::null::<u8>(); MR];
            for (i, p) in row.iter_mut().enumerate() {
                *p = std::ptr::with_exposed_provenance(*t.rows.add(s * MR + i));
            }
            for k in 0..t.len / 4 {
                packed = step::<D, MR, NV>(&mut acc, row, 4 * k, flip, packed);
            }
            let rest = t.len % 4;
            if rest > 0 {
                // The bytes of an incomplete last group of four; missing bytes have weights of zero.
                let mut quads = [0u32; MR];
                for i in 0..MR {
                    quads[i] = tail(row[i].add(t.len - rest), rest);
                    row[i] = quads.as_ptr().add(i).cast();
                }
                packed = step::<D, MR, NV>(&mut acc, row, 0, flip, packed);
            }
        }
        for (i, acc) in acc.iter().enumerate() {
            let own = if t.weight_zero == 0 { 0 } else { row_part::<D, MR>(t, i) };
            for (j, acc) in acc.iter().enumerate() {
                let at = j * D::LANES;
                let sum = D::add(D::finish(*acc), D::add(D::load(t.bias.add(at)), D::splat(own)));
                let n = (t.columns - at).min(D::LANES);
                match &t.out {
                    Out::Bytes(p, q) => {
                        D::store_bytes(p.add(i * t.out_stride + at), D::requant(sum, q, at), n)
                    }
                    Out::Sums(p) => D::store(p.add(i * t.out_stride + at), sum, n),
                }
            }
        }
    }
}

/// Reads up to three bytes.
#[inline(always)]
unsafe fn tail(p: *const u8, count: usize) -> u32 {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        match count {
            1 => u32::from(*p),
            2 => u32::from(p.cast::<u16>().read_unaligned()),
            _ => u32::from(p.cast::<u16>().read_unaligned()) | u32::from(*p.add(2)) << 16,
        }
    }
}

/// Multiplies four activations of each row, at an offset, by four weights of each column.
#[inline(always)]
unsafe fn step<D: Dot8, const MR: usize, const NV: usize>(
    acc: &mut [[D::Acc; NV]; MR],
    row: [*const u8; MR],
    at: usize,
    flip: D::Flip,
    packed: *const i8,
) -> *const i8 {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let mut b = [D::b(packed); NV];
        for (j, b) in b.iter_mut().enumerate() {
            *b = D::b(packed.add(j * D::LANES * 4));
        }
        for i in 0..MR {
            let a = D::a(row[i].add(at), flip);
            for j in 0..NV {
                acc[i][j] = D::dot(acc[i][j], a, b[j]);
            }
        }
        packed.add(NV * D::LANES * 4)
    }
}

/// The bytes of a segment.
#[inline(always)]
unsafe fn segment<'a>(address: usize, len: usize) -> &'a [u8] {
    // SAFETY: the caller passes the address of a segment of `len` bytes whose provenance is exposed.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), len) }
}

/// The correction of the sums of row `i` for the zero point of the weights.
#[inline(always)]
unsafe fn row_part<D: Dot8, const MR: usize>(t: &TileI8, i: usize) -> i32 {
    // SAFETY: the row's segments have `len` elements each (see `TileI8`).
    unsafe {
        let flip = if t.flip { 0x80 } else { 0 };
        let mut sum = 0i32;
        for s in 0..t.segments {
            for &x in segment(*t.rows.add(s * MR + i), t.len) {
                let x = x ^ flip;
                sum = sum.wrapping_add(if D::UNSIGNED { i32::from(x) } else { i32::from(x as i8) });
            }
        }
        let elements = (t.segments * t.len) as i32;
        t.weight_zero.wrapping_mul(t.input_zero.wrapping_mul(elements).wrapping_sub(sum))
    }
}

/// Defines the micro-kernels of one instruction set: for each number of vectors, the numbers of rows.
macro_rules! kernels {
    ($table:ident, $name:ident, $dot:ty, $(#[$attr:meta])? { $($nv:literal: [$($mr:literal)*],)* }) => {
        $(#[$attr])?
        unsafe fn $name<const MR: usize, const NV: usize>(t: &TileI8) {
            // SAFETY: the caller meets the contract of this function.
            unsafe { tile::<$dot, MR, NV>(t) }
        }

        static $table: &[&[TileFn]] = &[$(&[$($name::<$mr, $nv>),*]),*];
    };
}

// As in single precision; with AVX2 each sum takes two registers.
kernels!(PORTABLE, portable, Portable8, { 1: [1 2 3 4], 2: [1 2 3 4], });
#[cfg(target_arch = "x86_64")]
kernels!(AVX2, avx2, Avx2Pairs, #[target_feature(enable = "avx2")] { 1: [1 2 3 4 5], 2: [1 2 3], });
#[cfg(target_arch = "x86_64")]
kernels!(VNNI, vnni, Vnni, #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2")] {
    1: [1 2 3 4 5 6 7 8 9 10],
    2: [1 2 3 4 5 6 7 8 9 10],
    3: [1 2 3 4 5 6 7 8],
    4: [1 2 3 4 5 6],
});
