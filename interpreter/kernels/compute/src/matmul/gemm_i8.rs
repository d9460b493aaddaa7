//! Micro-kernels of 8-bit products.

use crate::base::isa::{Bytes, Isa};
use crate::base::requant::{ByteQuant, FloatPart, Records, RequantPart};
#[cfg(target_arch = "x86_64")]
use crate::matmul::gemm_f32::MIN_NARROW;
use crate::matmul::gemm_f32::{MAX_CHAINS, chains};
#[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
use crate::simd::int8::RelaxedDot;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use crate::simd::int8::Simd128Pairs;
#[cfg(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128")))]
use crate::simd::int8::Widen;
#[cfg(target_arch = "x86_64")]
use crate::simd::int8::{Avx2Pairs, AvxVnni, Dot8, Sse41Pairs, Vnni, VnniVl};
#[cfg(target_arch = "aarch64")]
use crate::simd::int8::{NeonDot, NeonMatrix, NeonWiden};
use crate::simd::int8::{Portable8, Product8, first_bytes};

/// A panel as an operand of a micro-kernel, which computes the sums `bias[j] + Σ a[i, k] · w[k, j]`, requantized or
/// unchanged.
pub(crate) struct PanelI8 {
    /// Segments per row.
    pub(crate) segments: usize,
    /// Elements per segment that are read.
    pub(crate) len: usize,
    /// Elements per segment that have weights.
    pub(crate) counted: usize,
    /// Whether to flip the top bits of activations, which converts them to the domain of the kernel.
    pub(crate) flip: bool,
    /// For each segment, for each group of elements (missing ones are zero): `[column][depth]`.
    pub(crate) packed: *const i8,
    /// One element per column of the panel, with the contribution of the activations' zero point.
    pub(crate) bias: *const i32,
    /// Zero point of the weights, for the correction of each row.
    pub(crate) weight_zero: i32,
    /// Zero point of the activations, for the correction of each row.
    pub(crate) input_zero: i32,
    pub(crate) out: Out,
    /// Elements between output rows.
    pub(crate) out_stride: usize,
    /// Columns to write.
    pub(crate) columns: usize,
}

/// Destination of the sums: the panel's columns of the first output row.
#[derive(Clone, Copy)]
pub(crate) enum Out {
    /// Requantized bytes.
    Bytes(*mut u8, RequantPart),
    /// The 32-bit sums themselves.
    Sums(*mut i32),
    /// Sums scaled to floats.
    Floats(*mut f32, FloatPart),
}

/// A micro-kernel for a fixed number of rows and vectors. Its operands are a panel, the addresses of segments,
/// segment-major (see `Rows::fill`), or of converted rows, whose provenance is exposed, and the first output row. The
/// processor must have its instructions, pointers must be valid, and no other thread may access the tile's output.
pub(crate) type TileFn = unsafe fn(&PanelI8, *const usize, usize);

/// The micro-kernels of one instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    /// Columns per vector.
    pub(crate) lanes: usize,
    /// Whether activations must be unsigned.
    unsigned: bool,
    /// The kind of records of requantization.
    pub(crate) records: Records,
    /// Elements of a group.
    pub(crate) depth: usize,
    /// Elements that are loaded at a time.
    pub(crate) step: usize,
    /// Converts rows that are widened with their own sign, rather than to a domain.
    convert: Option<ConvertFn>,
    by_width: &'static [&'static [TileFn]],
}

impl Kernels {
    /// Returns the micro-kernels of an instruction set for products of `columns` columns with sums of `segments` times
    /// `len` terms, chosen as in single precision. AVX-512 VNNI includes VL.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(unused_variables, reason = "other targets have vectors of one length")
    )]
    pub(crate) fn of(isa: Isa, (segments, len): (usize, usize), columns: usize) -> Self {
        let k = segments.saturating_mul(len);
        fn new<D: Product8<DEEP>, const DEEP: bool>(by_width: &'static [&'static [TileFn]]) -> Kernels {
            let (lanes, depth) = (D::LANES, D::DEPTH);
            // Activations are widened in vectors of 16.
            let step = if D::WIDENED { 16 } else { depth * D::GROUPS };
            let (unsigned, records) = (D::UNSIGNED, D::RECORDS);
            Kernels { lanes, unsigned, records, depth, step, convert: None, by_width }
        }
        #[cfg(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128")))]
        fn widened<D: Widen>(by_width: &'static [&'static [TileFn]]) -> Kernels {
            Kernels { convert: Some(convert::<D>), ..new::<D, false>(by_width) }
        }
        match isa.bytes() {
            Bytes::Portable => new::<Portable8, false>(PORTABLE),
            #[cfg(target_arch = "x86_64")]
            Bytes::Sse41 => widened::<Sse41Pairs<1>>(SSE41),
            #[cfg(target_arch = "x86_64")]
            Bytes::Avx2 => widened::<Avx2Pairs>(AVX2),
            #[cfg(target_arch = "x86_64")]
            Bytes::AvxVnni => new::<AvxVnni, false>(AVX_VNNI),
            #[cfg(target_arch = "x86_64")]
            Bytes::Vnni
                if columns <= <Vnni as Dot8>::LANES
                    && len % <Vnni as Product8<true>>::DEPTH == 0
                    && k >= MIN_DEEP =>
            {
                if columns > <VnniVl as Dot8>::LANES {
                    new::<Vnni, true>(VNNI_DEEP)
                } else {
                    new::<VnniVl, true>(VNNI_VL_DEEP)
                }
            }
            #[cfg(target_arch = "x86_64")]
            Bytes::Vnni if columns > <VnniVl as Dot8>::LANES || k < MIN_NARROW => new::<Vnni, false>(VNNI),
            #[cfg(target_arch = "x86_64")]
            Bytes::VnniVl | Bytes::Vnni => new::<VnniVl, false>(VNNI_VL),
            #[cfg(target_arch = "aarch64")]
            Bytes::Neon => new::<NeonWiden<1>, false>(NEON),
            #[cfg(target_arch = "aarch64")]
            Bytes::NeonDot => new::<NeonDot<1>, false>(NEON_DOT),
            #[cfg(target_arch = "aarch64")]
            Bytes::NeonI8mm => new::<NeonMatrix, false>(NEON_I8MM),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Bytes::Simd128 => widened::<Simd128Pairs<1>>(SIMD128),
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Bytes::RelaxedDot => new::<RelaxedDot<1>, false>(RELAXED_DOT),
        }
    }

    /// Whether the activations of products are unsigned.
    pub(crate) fn is_unsigned(&self, input: ByteQuant) -> bool {
        if self.converts() { !input.signed } else { self.unsigned }
    }

    /// Whether the kernels read converted rows.
    #[inline]
    pub(crate) fn converts(&self) -> bool {
        self.convert.is_some()
    }

    /// Converts rows of segments, whose addresses are those of `Rows::fill`, to rows of [`converted_len`] words.
    ///
    /// # Safety
    /// The processor must have the instructions of the kernels, the segments be valid, and the rows have room for the words.
    #[inline]
    pub(crate) unsafe fn convert(
        &self,
        segments: &Segments,
        (table, rows): (*const usize, usize),
        (to, stride): (*mut i32, usize),
    ) {
        if let Some(convert) = self.convert {
            // SAFETY: the caller meets the contract of this function.
            unsafe { convert(segments, (table, rows), (to, stride)) }
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

    /// Returns the kernels for tiles of 1, 2, … rows.
    #[inline]
    pub(crate) fn by_rows(&self, vectors: usize) -> &'static [TileFn] {
        vectors.checked_sub(1).and_then(|v| self.by_width.get(v)).copied().unwrap_or_default()
    }
}

/// Minimum number of terms of a sum for groups of eight, whose sums take longer to add.
#[cfg(target_arch = "x86_64")]
const MIN_DEEP: usize = 32;

/// Computes `MR` rows by `NV` vectors.
///
/// # Safety
/// As for [`TileFn`].
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "loops over constants are unrolled")]
unsafe fn tile<D: Product8<DEEP>, const DEEP: bool, const MR: usize, const NV: usize>(
    t: &PanelI8,
    rows: *const usize,
    first: usize,
) {
    // SAFETY: the caller provides the instructions and valid pointers (see `PanelI8` and `TileFn`).
    unsafe {
        // With two rows per accumulator, only the first half is used.
        let mut acc = [[[D::start(); NV]; MR]; MAX_CHAINS];
        acc[0] = start::<D, DEEP, MR, NV>(t);
        // As in single precision; if several groups are loaded at a time, the products of all are added to one sum.
        let chains = const { if D::GROUPS == 1 { chains(MR.div_ceil(D::ROWS) * NV) } else { 1 } };
        let mut packed = t.packed;
        let flip = D::flip(t.flip);
        let whole = t.len / (D::DEPTH * D::GROUPS) * (D::DEPTH * D::GROUPS);
        for s in 0..t.segments {
            let mut row = [std::ptr::null::<u8>(); MR];
            for (i, p) in row.iter_mut().enumerate() {
                *p = std::ptr::with_exposed_provenance(*rows.add(s * MR + i));
            }
            let mut k = 0;
            // Constant indices keep the accumulators in registers.
            while chains > 1 && k + chains * D::DEPTH <= whole {
                packed = step::<D, DEEP, MR, NV>(&mut acc[0], row, k, flip, packed, 1);
                packed = step::<D, DEEP, MR, NV>(&mut acc[1], row, k + D::DEPTH, flip, packed, 1);
                if chains > 2 {
                    packed = step::<D, DEEP, MR, NV>(&mut acc[2], row, k + 2 * D::DEPTH, flip, packed, 1);
                    packed = step::<D, DEEP, MR, NV>(&mut acc[3], row, k + 3 * D::DEPTH, flip, packed, 1);
                }
                k += chains * D::DEPTH;
            }
            while k < whole {
                packed = step::<D, DEEP, MR, NV>(&mut acc[0], row, k, flip, packed, D::GROUPS);
                k += D::DEPTH * D::GROUPS;
            }
            let rest = t.len - whole;
            if rest > 0 {
                // The bytes of incomplete last groups; missing bytes have weights of zero.
                let mut bytes = [[0u64; 2]; MR];
                for i in 0..MR {
                    let p = row[i].add(whole);
                    bytes[i] = if D::DEPTH * D::GROUPS == 4 {
                        [tail(p, rest).into(), 0]
                    } else {
                        first_bytes(p, rest)
                    };
                    row[i] = bytes.as_ptr().add(i).cast();
                }
                packed = step::<D, DEEP, MR, NV>(&mut acc[0], row, 0, flip, packed, rest.div_ceil(D::DEPTH));
            }
        }
        let mut own = [0i32; MR];
        if t.weight_zero != 0 {
            for i in 0..MR {
                own[i] = row_part::<D, DEEP, MR>(t, rows, i);
            }
        }
        let sums = &acc[0];
        let more = if chains > 1 { Some([&acc[1], &acc[2], &acc[3]]) } else { None };
        finish::<D, DEEP, MR, NV>(t, first, sums, more, &own);
    }
}

/// The segments of rows that are converted.
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128"))),
    allow(dead_code, reason = "only `words` converts rows")
)]
pub(crate) struct Segments {
    /// Segments per row.
    pub(crate) count: usize,
    /// Elements per segment.
    pub(crate) len: usize,
    /// Elements per segment that have weights.
    pub(crate) counted: usize,
    /// Whether elements are signed.
    pub(crate) signed: bool,
    /// Whether the sums of rows are needed.
    pub(crate) summed: bool,
}

/// Words of a converted row: the sum of the elements that have weights; the elements, widened to 16 bits, where an odd segment
/// is followed by 0; and room for those that [`Widen::widen`] writes after them.
pub(crate) fn converted_len(segments: usize, len: usize) -> usize {
    segments.saturating_mul(len.div_ceil(2)).saturating_add(1 + SLACK / 2)
}

/// The maximum number of elements that [`Widen::widen`] writes after the last one.
const SLACK: usize = 16;

type ConvertFn = unsafe fn(&Segments, (*const usize, usize), (*mut i32, usize));

/// Tiles of instruction sets whose widest products are those of pairs of 16 bits.
#[cfg(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128")))]
mod words {
    use super::{PanelI8, Segments, columns, correction, finish, segment, start};
    use crate::simd::int8::Widen;

    /// Rows that are converted at a time.
    const ROWS: usize = 16;

    /// [`super::Kernels::convert`].
    ///
    /// # Safety
    /// As for that function.
    pub(super) unsafe fn convert<D: Widen>(
        s: &Segments,
        (table, rows): (*const usize, usize),
        (to, stride): (*mut i32, usize),
    ) {
        // Elements that have no weights do not count.
        let summed = s.summed && s.counted == s.len;
        let words = s.len.div_ceil(2);
        let mut first = 0;
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            while first < rows {
                let n = (rows - first).min(ROWS);
                let mut sums = [0i32; ROWS];
                let to = to.add(first * stride);
                for i in 0..s.count {
                    let to = to.add(1 + i * words).cast();
                    let sums = summed.then_some(&mut sums[..]);
                    D::widen((table.add(i * rows + first), n), s.len, s.signed, (to, 2 * stride), sums);
                }
                for (row, sum) in sums.iter_mut().enumerate().take(n) {
                    if s.summed && !summed {
                        for i in 0..s.count {
                            let bytes = segment(*table.add(i * rows + first + row), s.counted).iter();
                            let value =
                                |x: u8| if s.signed { i32::from(x.cast_signed()) } else { i32::from(x) };
                            *sum = bytes.fold(*sum, |sum, x| sum.wrapping_add(value(*x)));
                        }
                    }
                    to.add(row * stride).write(*sum);
                }
                first += n;
            }
        }
    }

    /// Pairs that are multiplied per iteration. V8 has no registers for the operands of two.
    const STEPS: usize = if cfg!(target_arch = "wasm32") { 1 } else { 2 };

    /// As [`super::tile`], for rows that [`convert`] wrote.
    ///
    /// # Safety
    /// As for [`super::TileFn`].
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "loops over constants are unrolled")]
    pub(super) unsafe fn tile_of_words<D: Widen, const MR: usize, const NV: usize>(
        t: &PanelI8,
        rows: *const usize,
        first: usize,
    ) {
        // SAFETY: the caller provides the instructions and valid pointers (see `PanelI8` and `TileFn`).
        unsafe {
            let mut row = [std::ptr::null::<i16>(); MR];
            let mut own = [0i32; MR];
            for i in 0..MR {
                let from = std::ptr::with_exposed_provenance::<i32>(*rows.add(i));
                row[i] = from.add(1).cast();
                if t.weight_zero != 0 {
                    own[i] = correction(t, *from);
                }
            }
            let mut acc = start::<D, false, MR, NV>(t);
            let mut packed = t.packed;
            let flip = D::flip(t.flip);
            let mut left = t.segments * t.len.div_ceil(D::DEPTH);
            while left >= STEPS {
                for _ in 0..STEPS {
                    pairs::<D, MR, NV>(&mut acc, &mut row, flip, packed);
                    packed = packed.add(NV * D::LANES * D::DEPTH);
                }
                left -= STEPS;
            }
            if left > 0 {
                pairs::<D, MR, NV>(&mut acc, &mut row, flip, packed);
            }
            finish::<D, false, MR, NV>(t, first, &acc, None, &own);
        }
    }

    /// Multiplies the next elements of each row by weights of each column.
    ///
    /// # Safety
    /// The processor must have the instructions of `D`. Rows must be valid for the next elements, and `packed` for
    /// their weights.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "loops over constants are unrolled")]
    unsafe fn pairs<D: Widen, const MR: usize, const NV: usize>(
        acc: &mut [[D::Sums; NV]; MR],
        row: &mut [*const i16; MR],
        flip: D::Flip,
        packed: *const i8,
    ) {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let b = columns::<D, false, NV>(packed);
            for i in 0..MR {
                let a = D::a([row[i].cast(); 2], flip);
                for j in 0..NV {
                    acc[i][j] = D::product::<0>(acc[i][j], a, b[j]);
                }
                row[i] = row[i].add(D::DEPTH);
            }
        }
    }
}
#[cfg(any(target_arch = "x86_64", all(target_arch = "wasm32", target_feature = "simd128")))]
use words::{convert, tile_of_words};

/// The sums of a tile before the first product.
///
/// # Safety
/// The processor must have the instructions of `D`, and the panel a bias for each column.
#[inline(always)]
unsafe fn start<D: Product8<DEEP>, const DEEP: bool, const MR: usize, const NV: usize>(
    t: &PanelI8,
) -> [[D::Sums; NV]; MR] {
    // SAFETY: the caller meets the contract of this function: the panel has a bias for each column.
    unsafe {
        let mut row = [D::start(); NV];
        for (j, sums) in row.iter_mut().enumerate() {
            *sums = D::start_at(t.bias.add(j * D::LANES));
        }
        [row; MR]
    }
}

/// Stores the sums of each row, each of which gets `own` added.
///
/// # Safety
/// As for [`TileFn`].
#[inline(always)]
unsafe fn finish<D: Product8<DEEP>, const DEEP: bool, const MR: usize, const NV: usize>(
    t: &PanelI8,
    first: usize,
    acc: &[[D::Sums; NV]; MR],
    more: Option<[&[[D::Sums; NV]; MR]; MAX_CHAINS - 1]>,
    own: &[i32; MR],
) {
    // Each kind of output computes its own sums: the compiler would keep sums that several kinds share in memory.
    macro_rules! each_vector {
        (|$sums:ident, $at:ident, $n:ident, $to:ident| $store:expr) => {
            each_vector!([0 1 2 3] |$sums, $at, $n, $to| $store)
        };
        ([$($j:literal)*] |$sums:ident, $at:ident, $n:ident, $to:ident| $store:expr) => {{ $(
            if NV > $j {
                let $sums = sums::<D, DEEP, MR, NV, $j>(t, acc, more, own);
                let $at = $j * D::LANES;
                let ($n, $to) = ((t.columns - $at).min(D::LANES), first * t.out_stride + $at);
                $store
            }
        )* }};
    }
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        match &t.out {
            Out::Bytes(p, q) => {
                each_vector!(|sums, at, n, to| D::requant_rows(&sums, q, at, p.add(to), t.out_stride, n));
            }
            Out::Sums(p) => each_vector!(|sums, at, n, to| {
                for (i, sums) in sums.iter().enumerate() {
                    D::store(p.add(i * t.out_stride + to), *sums, n);
                }
            }),
            Out::Floats(p, f) => {
                let scales = f.row_scales.add(first * f.row_step);
                let zero_points = f.row_zero_points.add(first * f.row_step);
                let f = FloatPart { row_scales: scales, row_zero_points: zero_points, ..*f };
                each_vector!(|sums, at, n, to| D::float_rows(&sums, &f, at, p.add(to), t.out_stride, n));
            }
        }
    }
}

/// Vector `J` of the sums of each row.
///
/// # Safety
/// The processor must have the instructions of `D`, and the panel a bias for each column.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "loops over constants are unrolled")]
unsafe fn sums<D: Product8<DEEP>, const DEEP: bool, const MR: usize, const NV: usize, const J: usize>(
    t: &PanelI8,
    acc: &[[D::Sums; NV]; MR],
    more: Option<[&[[D::Sums; NV]; MR]; MAX_CHAINS - 1]>,
    own: &[i32; MR],
) -> [D::I; MR] {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let bias = if D::BIASED { D::splat(0) } else { D::load(t.bias.add(J * D::LANES)) };
        let mut sums = [bias; MR];
        for i in 0..MR {
            sums[i] = D::row(acc[i / D::ROWS][J], i % D::ROWS);
            if !D::BIASED {
                sums[i] = D::add(sums[i], bias);
            }
        }
        if t.weight_zero != 0 {
            for i in 0..MR {
                sums[i] = D::add(sums[i], D::splat(own[i]));
            }
        }
        if let Some([one, two, three]) = more {
            for i in 0..MR {
                let (at, row) = (i / D::ROWS, i % D::ROWS);
                sums[i] = D::add(sums[i], D::row(one[at][J], row));
                if const { chains(MR.div_ceil(D::ROWS) * NV) } > 2 {
                    let rest = D::add(D::row(two[at][J], row), D::row(three[at][J], row));
                    sums[i] = D::add(sums[i], rest);
                }
            }
        }
        sums
    }
}

/// Reads one to three bytes.
///
/// # Safety
/// `p` is valid for them.
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

/// Multiplies the first `groups` groups of activations of each row, at an offset, by weights of each column.
///
/// # Safety
/// The processor must have the instructions of `D`. Rows must be valid for a load at the offset, and `packed` for the
/// weights of the groups.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "loops over constants are unrolled")]
unsafe fn step<D: Product8<DEEP>, const DEEP: bool, const MR: usize, const NV: usize>(
    acc: &mut [[D::Sums; NV]; MR],
    row: [*const u8; MR],
    at: usize,
    flip: D::Flip,
    packed: *const i8,
    groups: usize,
) -> *const i8 {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        if D::GROUPS == 1 {
            let b = columns::<D, DEEP, NV>(packed);
            for i in 0..MR.div_ceil(D::ROWS) {
                let a = activations::<D, DEEP, MR>(&row, i, at, flip);
                for j in 0..NV {
                    acc[i][j] = D::product::<0>(acc[i][j], a, b[j]);
                }
            }
            return packed.add(NV * D::LANES * D::DEPTH);
        }
        let mut a = [activations::<D, DEEP, MR>(&row, 0, at, flip); MR];
        for (i, a) in a.iter_mut().enumerate().take(MR.div_ceil(D::ROWS)).skip(1) {
            *a = activations::<D, DEEP, MR>(&row, i, at, flip);
        }
        let mut packed = group::<D, DEEP, MR, NV, 0>(acc, &a, packed);
        if groups > 1 {
            packed = group::<D, DEEP, MR, NV, 1>(acc, &a, packed);
        }
        if groups > 2 {
            packed = group::<D, DEEP, MR, NV, 2>(acc, &a, packed);
        }
        if groups > 3 {
            packed = group::<D, DEEP, MR, NV, 3>(acc, &a, packed);
        }
        packed
    }
}

/// Loads the activations of accumulator `i`. An odd last row is paired with itself.
///
/// # Safety
/// The processor must have the instructions of `D`, and rows must be valid for a load at the offset.
#[inline(always)]
unsafe fn activations<D: Product8<DEEP>, const DEEP: bool, const MR: usize>(
    row: &[*const u8; MR],
    i: usize,
    at: usize,
    flip: D::Flip,
) -> D::A {
    let first = i * D::ROWS;
    let second = (first + D::ROWS - 1).min(MR - 1);
    // SAFETY: the caller meets the contract of this function.
    unsafe { D::a([row[first].add(at), row[second].add(at)], flip) }
}

/// Loads a group of weights of each column.
///
/// # Safety
/// The processor must have the instructions of `D`, and `packed` must be valid for the group.
#[inline(always)]
unsafe fn columns<D: Product8<DEEP>, const DEEP: bool, const NV: usize>(packed: *const i8) -> [D::Cols; NV] {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let mut b = [D::columns(packed); NV];
        for (j, b) in b.iter_mut().enumerate() {
            *b = D::columns(packed.add(j * D::LANES * D::DEPTH));
        }
        b
    }
}

/// Multiplies group `G` of the activations of each row by weights of each column.
///
/// # Safety
/// The processor must have the instructions of `D`, and `packed` must be valid for the weights of the group.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "loops over constants are unrolled")]
unsafe fn group<D: Product8<DEEP>, const DEEP: bool, const MR: usize, const NV: usize, const G: usize>(
    acc: &mut [[D::Sums; NV]; MR],
    a: &[D::A; MR],
    packed: *const i8,
) -> *const i8 {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let b = columns::<D, DEEP, NV>(packed);
        for i in 0..MR.div_ceil(D::ROWS) {
            for j in 0..NV {
                acc[i][j] = D::product::<G>(acc[i][j], a[i], b[j]);
            }
        }
        packed.add(NV * D::LANES * D::DEPTH)
    }
}

/// The bytes of a segment.
///
/// # Safety
/// `address` is that of a segment of `len` bytes, whose provenance is exposed.
#[inline(always)]
unsafe fn segment<'a>(address: usize, len: usize) -> &'a [u8] {
    // SAFETY: the caller passes the address of a segment of `len` bytes whose provenance is exposed.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), len) }
}

/// The correction of the sums of row `i` for the zero point of the weights. In WebAssembly it is a call, as V8 allocates registers
/// for a whole function.
///
/// # Safety
/// `rows` are the addresses of [`TileFn`].
#[cfg_attr(not(target_arch = "wasm32"), inline(always))]
#[cfg_attr(target_arch = "wasm32", inline(never))]
unsafe fn row_part<D: Product8<DEEP>, const DEEP: bool, const MR: usize>(
    t: &PanelI8,
    rows: *const usize,
    i: usize,
) -> i32 {
    // SAFETY: the row's segments have `len` elements each (see `PanelI8`).
    unsafe {
        let flip = if t.flip { 0x80 } else { 0 };
        let unsigned = D::UNSIGNED;
        let mut sum = 0i32;
        for s in 0..t.segments {
            for &x in segment(*rows.add(s * MR + i), t.counted) {
                let x = x ^ flip;
                sum = sum.wrapping_add(if unsigned { i32::from(x) } else { i32::from(x as i8) });
            }
        }
        correction(t, sum)
    }
}

/// The correction of the sums of a row whose activations have this sum.
#[inline(always)]
fn correction(t: &PanelI8, sum: i32) -> i32 {
    let elements = (t.segments * t.counted) as i32;
    t.weight_zero.wrapping_mul(t.input_zero.wrapping_mul(elements).wrapping_sub(sum))
}

/// Defines the micro-kernels of one instruction set: for each number of vectors, the numbers of rows.
macro_rules! kernels {
    ($table:ident, $name:ident, $tile:ident[$($of:tt)*], $(#[$attr:meta])? { $($nv:literal: [$($mr:literal)*],)* }) => {
        $(#[$attr])?
        unsafe fn $name<const MR: usize, const NV: usize>(t: &PanelI8, rows: *const usize, first: usize) {
            // SAFETY: the caller meets the contract of `TileFn`.
            unsafe { $tile::<$($of)*, MR, NV>(t, rows, first) }
        }

        static $table: &[&[TileFn]] = &[$(&[$($name::<$mr, $nv>),*]),*];
    };
}

// As in single precision.
kernels!(PORTABLE, portable, tile[Portable8, false], { 1: [1 2 3 4], 2: [1 2 3 4], });
#[cfg(target_arch = "x86_64")]
kernels!(SSE41, sse41, tile_of_words[Sse41Pairs<1>], #[target_feature(enable = "sse4.1")] {
    1: [1 2 3 4 5 6], 2: [1 2 3 4 5],
});
#[cfg(target_arch = "x86_64")]
kernels!(AVX2, avx2, tile_of_words[Avx2Pairs], #[target_feature(enable = "avx2")] {
    1: [1 2 3 4 5 6 7 8], 2: [1 2 3 4 5],
});
// Sixteen registers: with five rows of two vectors or with three vectors, accumulators are in memory.
#[cfg(target_arch = "x86_64")]
kernels!(AVX_VNNI, avx_vnni, tile[AvxVnni, false], #[target_feature(enable = "avx2,avxvnni")] {
    1: [1 2 3 4 5 6], 2: [1 2 3 4],
});
#[cfg(target_arch = "x86_64")]
kernels!(VNNI_VL, vnni_vl, tile[VnniVl, false], #[target_feature(enable = "avx2,avx512f,avx512vl,avx512vnni")] {
    1: [1 2 3 4 5 6], 2: [1 2 3 4 5], 3: [1 2 3 4],
});
#[cfg(target_arch = "aarch64")]
kernels!(NEON, neon, tile[NeonWiden<1>, false], #[target_feature(enable = "neon")] { 1: [1 2 3 4 5], });
#[cfg(target_arch = "aarch64")]
kernels!(NEON_DOT, neon_dot, tile[NeonDot<1>, false], #[target_feature(enable = "neon,dotprod")] {
    1: [1 2 3 4 5 6 7 8], 2: [1 2 3 4 5 6 7 8], 3: [1 2 3 4 5 6], 4: [1 2 3 4 5],
});
#[cfg(target_arch = "aarch64")]
kernels!(NEON_I8MM, neon_i8mm, tile[NeonMatrix, false], #[target_feature(enable = "neon,dotprod,i8mm")] {
    1: [1 2 3 4 5 6 7 8], 2: [1 2 3 4 5 6 7 8], 3: [1 2 3 4 5 6], 4: [1 2 3 4],
});
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
kernels!(SIMD128, simd128, tile_of_words[Simd128Pairs<1>], #[target_feature(enable = "simd128")] {
    1: [1 2 3 4], 2: [1 2 3 4],
});
#[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
kernels!(RELAXED_DOT, relaxed_dot, tile[RelaxedDot<1>, false], #[target_feature(enable = "simd128,relaxed-simd")] {
    1: [1 2 3 4], 2: [1 2 3 4],
});
#[cfg(target_arch = "x86_64")]
kernels!(VNNI, vnni, tile[Vnni, false], #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2")] {
    1: [1 2 3 4 5 6 7 8 9 10],
    2: [1 2 3 4 5 6 7 8 9 10],
    3: [1 2 3 4 5 6 7 8],
    4: [1 2 3 4 5 6],
});
#[cfg(target_arch = "x86_64")]
kernels!(VNNI_DEEP, vnni_deep, tile[Vnni, true], #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2")] {
    1: [1 2 3 4 5 6 7 8 9 10],
});
#[cfg(target_arch = "x86_64")]
kernels!(VNNI_VL_DEEP, vnni_vl_deep, tile[VnniVl, true], #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2")] {
    1: [1 2 3 4 5 6 7 8 9 10],
});
