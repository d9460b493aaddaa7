//! DEPTHWISE_CONV_2D of bytes with products of pairs of 16 bits.
//!
//! The bytes of two rows of the window are interleaved and widened: each lane of a vector has two taps of a channel, whose
//! products are added by one instruction. Neighbouring output pixels share these vectors. The last row of a window of odd height
//! is alone, or its neighbouring columns are paired instead.

use std::marker::PhantomData;
use std::ops::Range;

use crate::base::buffer::{AlignedVec, SharedMut};
use crate::base::error::{Result, product};
#[allow(unused_imports, reason = "other targets have products of bytes")]
use crate::base::isa::Bytes;
use crate::base::isa::Isa;
use crate::base::requant::{ByteQuant, OutputQuant, Requant, RequantPart};
use crate::matmul::geometry::{ConvGeometry, DepthwiseFilter, covers};
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use crate::simd::int8::Simd128Pairs;
#[cfg(target_arch = "x86_64")]
use crate::simd::int8::{Avx2Pairs, Sse41Pairs};
use crate::simd::int8::{Layout, OwnFunction, TwoRows};

/// Number of neighbouring pixels that are computed at a time; twice this number in the interior if [`TwoRows::RUN`] is
/// 8.
const RUN: usize = 4;

/// Packed operands.
pub(super) struct Pairs {
    rows: RowsFn,
    channels: usize,
    window: [usize; 2],
    /// Whether activations are converted from unsigned bytes.
    flip: bool,
    lanes: usize,
    /// Vectors of channels. With at least `lanes` channels, the last one overlaps the one before it if lanes would be empty.
    vectors: usize,
    /// For each vector, for each two rows of the window, for each column: `[channel][2]`. For a last row whose columns are
    /// paired, for each two columns; the rest is unused.
    weights: AlignedVec<i16>,
    bias: AlignedVec<i32>,
    requant: Requant,
}

/// A function that computes rows. The processor must have its instructions; otherwise as for [`Pairs::run`].
type RowsFn = unsafe fn(RowsTask<'_>);

/// Returns the function of an instruction set that computes windows with products of pairs, and whether it pairs the columns of a
/// last row.
fn rows_fn(isa: Isa) -> Option<(RowsFn, bool)> {
    match isa.bytes() {
        #[cfg(target_arch = "x86_64")]
        Bytes::Avx2 => Some((avx2, Avx2Pairs::PAIRS_COLUMNS)),
        #[cfg(target_arch = "x86_64")]
        Bytes::Sse41 => Some((sse41, Sse41Pairs::<2>::PAIRS_COLUMNS)),
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        Bytes::Simd128 => Some((simd128, Simd128Pairs::<2>::PAIRS_COLUMNS)),
        // The shuffles that products of four bytes need take longer than the instructions that they save.
        #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
        Bytes::RelaxedDot => Some((simd128, Simd128Pairs::<2>::PAIRS_COLUMNS)),
        _ => None,
    }
}

impl Pairs {
    /// Whether an instruction set computes windows with products of pairs.
    pub(super) fn are_for(isa: Isa) -> bool {
        rows_fn(isa).is_some()
    }

    /// Packs `weight(row, column, channel)`, from -255 to 255, and `bias[channel]` for signed activations, or with
    /// `flip` for unsigned ones, from which 128 is subtracted. `None` if the instruction set has other products.
    ///
    /// # Errors
    /// Fails if a multiplier is out of range, or memory cannot be allocated.
    pub(super) fn pack(
        isa: Isa,
        filter: &DepthwiseFilter,
        weight: impl Fn(usize, usize, usize) -> i32,
        bias: &[i32],
        flip: bool,
        output: &OutputQuant<'_>,
    ) -> Result<Option<Self>> {
        let Some((rows, pairs_columns)) = rows_fn(isa) else { return Ok(None) };
        let (channels, [height, width]) = (filter.channels, filter.window);
        let Layout { lanes, records, .. } = Layout::new(isa);
        let vectors = channels.div_ceil(lanes);
        let channel = |i: usize| first_channel(i / lanes, lanes, channels) + i % lanes;
        let pairs = height.div_ceil(2);
        let padded = product("channels", &[vectors, lanes])?;
        let mut weights = AlignedVec::<i16>::zeroed(product("weights", &[padded, pairs, width, 2])?)?;
        for (i, to) in weights.as_mut_slice().iter_mut().enumerate() {
            let (rest, row, lane) = (i / 2 / lanes, i % 2, i / 2 % lanes);
            let (column, rest) = (rest % width, rest / width);
            let (first, c) = (rest % pairs * 2, channel(rest / pairs * lanes + lane));
            let (row, column) = match pairs_columns && first + 1 == height {
                true => (first, 2 * column + row),
                false => (first + row, column),
            };
            if row < height && column < width && c < channels {
                *to = weight(row, column, c) as i16;
            }
        }
        let mut ordered = AlignedVec::zeroed(padded)?;
        for (i, to) in ordered.as_mut_slice().iter_mut().enumerate() {
            *to = bias.get(channel(i)).copied().unwrap_or(0);
        }
        let taps = || (0..height).flat_map(|row| (0..width).map(move |column| (row, column)));
        // The products of zero points are in the bias.
        let bytes = ByteQuant { signed: true, zero_point: 0 };
        let sums = |c: usize| {
            bytes.sums(
                bias.get(c).copied().unwrap_or(0).into(),
                taps().map(|(row, column)| weight(row, column, c)),
            )
        };
        let requant =
            Requant::ordered(output, (channels, padded), (lanes, records), |i| Some(channel(i)), sums)?;
        Ok(Some(Self {
            rows,
            channels,
            window: filter.window,
            flip,
            lanes,
            vectors,
            weights,
            bias: ordered,
            requant,
        }))
    }

    /// Convolves rows of the output, for some of the vectors.
    ///
    /// # Safety
    /// Lengths and geometry must be checked: the input has all images, `blank` all channels, and at least those of a vector,
    /// and the output all pixels. No other thread may access these rows and channels of the output.
    pub(super) unsafe fn run(
        &self,
        geo: &ConvGeometry,
        input: &[u8],
        blank: &[u8],
        out: SharedMut<'_, u8>,
        rows: Range<usize>,
        vectors: Range<usize>,
    ) {
        let task = RowsTask { layer: self, geo, input, blank, out, rows, vectors };
        // SAFETY: the caller meets the contract of this function, and a value of `Isa` proved that the processor has the
        // instructions.
        unsafe { (self.rows)(task) }
    }

    /// The vectors of part `part` of `parts`. Vectors that overlap are in the same part.
    pub(super) fn part(&self, part: usize, parts: usize) -> Range<usize> {
        let whole = (self.channels / self.lanes).max(1);
        let step = whole.div_ceil(parts);
        let (start, end) = ((part * step).min(whole), ((part + 1) * step).min(whole));
        start..if end == whole && start < end { self.vectors } else { end }
    }
}

/// The first channel of a vector.
fn first_channel(vector: usize, lanes: usize, channels: usize) -> usize {
    (vector * lanes).min(channels.saturating_sub(lanes))
}

/// Defines [`RowsTask::run`] for an instruction set.
#[allow(unused_macros, reason = "other targets have products of bytes")]
macro_rules! set {
    ($name:ident, $pairs:ty, $features:literal) => {
        #[target_feature(enable = $features)]
        unsafe fn $name(task: RowsTask<'_>) {
            // SAFETY: the caller meets the contract of `RowsFn`.
            unsafe { task.run::<$pairs>() }
        }
    };
}
#[cfg(target_arch = "x86_64")]
set!(avx2, Avx2Pairs, "avx2");
#[cfg(target_arch = "x86_64")]
set!(sse41, Sse41Pairs<2>, "sse4.1");
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
set!(simd128, Simd128Pairs<2>, "simd128");

/// A range of output rows, for a range of vectors of channels.
struct RowsTask<'a> {
    layer: &'a Pairs,
    geo: &'a ConvGeometry,
    input: &'a [u8],
    blank: &'a [u8],
    out: SharedMut<'a, u8>,
    rows: Range<usize>,
    vectors: Range<usize>,
}

/// One output row, for one vector of channels.
struct Row<'a> {
    layer: &'a Pairs,
    geo: &'a ConvGeometry,
    /// First input row of the window.
    y0: isize,
    /// The image, beginning at the vector's first channel.
    input: *const u8,
    blank: *const u8,
    weights: *const i16,
    bias: *const i32,
    requant: RequantPart,
    out: *mut u8,
    /// Number of existing channels of the vector.
    channels: usize,
}

impl RowsTask<'_> {
    /// Computes the rows.
    ///
    /// # Safety
    /// The processor must have the instructions of `D`; otherwise as for [`Pairs::run`].
    #[inline(always)]
    unsafe fn run<D: TwoRows>(self) {
        let (layer, geo) = (self.layer, self.geo);
        let [height, width] = layer.window;
        let per_vector = height.div_ceil(2) * width * D::LANES * 2;
        let inner = geo.interior(1);
        for row in self.rows {
            let (image, y) = (row / geo.output[0], row % geo.output[0]);
            // A vector of few channels may end after the input: if it begins at the last pixel that the window reads.
            let end = geo.origin(0, y) + ((height - 1) * geo.dilation[0] + 1).cast_signed();
            let end = image * geo.input[0] + end.clamp(0, geo.input[0].cast_signed()).cast_unsigned();
            let last = (end * geo.input[1]).saturating_sub(1) * layer.channels;
            let is_cut = layer.channels < D::LANES && last + D::LANES > self.input.len();
            for v in self.vectors.clone() {
                let first = first_channel(v, D::LANES, layer.channels);
                let pixels = image * geo.input[0] * geo.input[1];
                let r = Row {
                    layer,
                    geo,
                    y0: geo.origin(0, y),
                    input: self.input.as_ptr().wrapping_add(pixels * layer.channels + first),
                    blank: self.blank.as_ptr().wrapping_add(first),
                    weights: layer.weights.as_slice()[v * per_vector..(v + 1) * per_vector].as_ptr(),
                    bias: layer.bias.as_slice()[v * D::LANES..(v + 1) * D::LANES].as_ptr(),
                    requant: layer.requant.part(v * D::LANES, D::LANES),
                    out: self.out.ptr(row * geo.output[1] * layer.channels + first),
                    channels: (layer.channels - first).min(D::LANES),
                };
                macro_rules! pixels {
                    ($width:literal, $stride:literal) => {
                        D::call(Pixels::<D, $width, $stride, true>(&r, &inner, PhantomData))
                    };
                }
                // SAFETY: the caller meets the contract of `Pairs::run`.
                unsafe {
                    match (width, geo.stride[1], geo.dilation[1]) {
                        _ if is_cut => {
                            D::call(Pixels::<D, 0, 1, false>(&r, &inner, PhantomData));
                        }
                        (1, 1, _) => pixels!(1, 1),
                        (1, 2, _) => pixels!(1, 2),
                        (2, 1, 1) => pixels!(2, 1),
                        (2, 2, 1) => pixels!(2, 2),
                        (3, 1, 1) => pixels!(3, 1),
                        (3, 2, 1) => pixels!(3, 2),
                        (4, 1, 1) => pixels!(4, 1),
                        (4, 2, 1) => pixels!(4, 2),
                        (5, 1, 1) => pixels!(5, 1),
                        (5, 2, 1) => pixels!(5, 2),
                        (7, 1, 1) => pixels!(7, 1),
                        (7, 2, 1) => pixels!(7, 2),
                        _ => pixels!(0, 1),
                    }
                }
            }
        }
    }
}

/// All pixels of a row, with `WIDTH` adjacent taps across and pixels `STRIDE` apart, or with any geometry if `WIDTH` is 0. With
/// `FULL`, the input has bytes for all lanes. The last run may overlap the run before it.
struct Pixels<'a, D, const WIDTH: usize, const STRIDE: usize, const FULL: bool>(
    &'a Row<'a>,
    &'a Range<usize>,
    PhantomData<D>,
);

impl<D: TwoRows, const WIDTH: usize, const STRIDE: usize, const FULL: bool> OwnFunction
    for Pixels<'_, D, WIDTH, STRIDE, FULL>
{
    #[inline(always)]
    unsafe fn run(self) {
        let Self(r, inner, _) = self;
        let width = r.geo.output[1];
        // SAFETY: the caller meets the contract of this function. Runs without checks of columns are in the interior.
        unsafe {
            if width < RUN {
                let is_column = WIDTH == 1 && FULL && r.rows_are_inside();
                for x in 0..width {
                    if is_column && inner.contains(&x) {
                        column::<D>(r, x);
                    } else {
                        run::<D, 0, 1, FULL, 1, true>(r, x);
                    }
                }
                return;
            }
            let mut x = 0;
            while x < width {
                if D::RUN > RUN && WIDTH != 0 && inner.start <= x && x + 2 * RUN <= inner.end {
                    run::<D, WIDTH, STRIDE, FULL, { 2 * RUN }, false>(r, x);
                    x += 2 * RUN;
                    continue;
                }
                let from = x.min(width - RUN);
                if inner.start <= from && from + RUN <= inner.end {
                    run::<D, WIDTH, STRIDE, FULL, RUN, false>(r, from);
                } else {
                    run::<D, WIDTH, STRIDE, FULL, RUN, true>(r, from);
                }
                x += RUN;
            }
        }
    }
}

impl Row<'_> {
    /// Whether all rows of the window are inside of the input.
    fn rows_are_inside(&self) -> bool {
        let below = (self.layer.window[0] - 1) * self.geo.dilation[0];
        self.y0 >= 0 && self.y0.cast_unsigned() + below < self.geo.input[0]
    }
}

/// Computes a pixel of a window of one column that is inside of the input, as in convolutions over time.
///
/// # Safety
/// The processor must have the instructions of `D`. The row must be that of a checked geometry, with all rows of the
/// window inside of the input.
#[inline(always)]
unsafe fn column<D: TwoRows>(r: &Row<'_>, x: usize) {
    let (geo, pixel, height) = (r.geo, r.layer.channels, r.layer.window[0]);
    let first = r.y0.cast_unsigned() * geo.input[1] + geo.origin(1, x).cast_unsigned();
    let (mut p, step) = (r.input.wrapping_add(first * pixel), geo.dilation[0] * geo.input[1] * pixel);
    // SAFETY: the caller meets the contract of these functions; weights and bias are those of the vector.
    unsafe {
        let flip = D::flip(r.layer.flip);
        let mut sums = [D::load(r.bias), D::splat(0)];
        let mut weights = r.weights;
        macro_rules! two_rows {
            ($sums:expr) => {
                let taps = D::two_rows(p, p.wrapping_add(step), D::LANES, flip);
                $sums = D::add($sums, D::dot_pairs(taps, D::load(weights.cast())));
                (p, weights) = (p.wrapping_add(2 * step), weights.add(2 * D::LANES));
            };
        }
        // Two sums, each of which depends on every other product.
        for _ in 0..height / 4 {
            two_rows!(sums[0]);
            two_rows!(sums[1]);
        }
        if height % 4 >= 2 {
            two_rows!(sums[0]);
        }
        if height % 2 == 1 {
            let taps = D::one_row(p, D::LANES, flip);
            sums[1] = D::add(sums[1], D::dot_pairs(taps, D::load(weights.cast())));
        }
        let sum = [D::add(sums[0], sums[1])];
        D::requant_pixels(&sum, &r.requant, r.out.add(x * pixel), pixel, r.channels);
    }
}

/// Computes `N` neighbouring pixels, beginning at `x`. With `EDGE`, columns may be outside of the input.
///
/// # Safety
/// The processor must have the instructions of `D`. The row must be that of a checked geometry, and without `EDGE` all
/// columns inside of the input.
#[inline(always)]
unsafe fn run<
    D: TwoRows,
    const WIDTH: usize,
    const STRIDE: usize,
    const FULL: bool,
    const N: usize,
    const EDGE: bool,
>(
    r: &Row<'_>,
    x: usize,
) {
    let [height, width] = r.layer.window;
    let per_pair = width * 2 * D::LANES;
    // SAFETY: the caller meets the contract of these functions; weights and bias are those of the vector.
    unsafe {
        let mut acc = [D::load(r.bias); N];
        let mut weights = r.weights;
        for pair in 0..height / 2 {
            taps::<D, WIDTH, STRIDE, FULL, N, EDGE, false>(r, x, pair * 2, weights, &mut acc);
            weights = weights.add(per_pair);
        }
        if height % 2 == 1 {
            taps::<D, WIDTH, STRIDE, FULL, N, EDGE, true>(r, x, height - 1, weights, &mut acc);
        }
        let pixel = r.layer.channels;
        D::requant_pixels(&acc, &r.requant, r.out.add(x * pixel), pixel, r.channels);
    }
}

/// Adds the taps of two rows of the window, or, `ALONE`, of one.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
unsafe fn taps<
    D: TwoRows,
    const WIDTH: usize,
    const STRIDE: usize,
    const FULL: bool,
    const N: usize,
    const EDGE: bool,
    const ALONE: bool,
>(
    r: &Row<'_>,
    x: usize,
    first: usize,
    weights: *const i16,
    acc: &mut [D::I; N],
) {
    let (geo, pixel) = (r.geo, r.layer.channels);
    let (x0, line) = (geo.origin(1, x), geo.input[1]);
    let channels = if FULL { D::LANES } else { r.channels };
    // SAFETY: the caller meets the contract of this function.
    let flip = unsafe { D::flip(r.layer.flip) };
    let (mut base, mut mask) = ([r.blank; 2], [0; 2]);
    for i in 0..if ALONE { 1 } else { 2 } {
        let y = r.y0 + ((first + i) * geo.dilation[0]).cast_signed();
        if y >= 0 && y.cast_unsigned() < geo.input[0] {
            base[i] = r.input.wrapping_add(y.cast_unsigned() * line * pixel);
            mask[i] = usize::MAX;
        }
    }
    macro_rules! load {
        ($a:expr, $b:expr) => {
            if ALONE { D::one_row($a, channels, flip) } else { D::two_rows($a, $b, channels, flip) }
        };
    }
    // SAFETY: the caller meets the contract of this function: addresses are inside of the input, or of padding.
    unsafe {
        if const { ALONE && D::PAIRS_COLUMNS } {
            let start = base[0].wrapping_add(x0.cast_unsigned().wrapping_mul(pixel) & mask[0]);
            return columns::<D, WIDTH, STRIDE, N, EDGE>(r, (x0, channels), (start, mask[0]), weights, acc);
        }
        let offset = x0.cast_unsigned().wrapping_mul(pixel);
        let mut p = [base[0].wrapping_add(offset & mask[0]), base[1].wrapping_add(offset & mask[1])];
        let padding = load!(r.blank, r.blank);
        if const { WIDTH == 0 } {
            let (next, step) = (geo.stride[1] * pixel, geo.dilation[1] * pixel);
            let next = [next & mask[0], next & mask[1]];
            for tap in 0..r.layer.window[1] {
                let w = D::load(weights.add(tap * 2 * D::LANES).cast());
                let column = x0 + (tap * geo.dilation[1]).cast_signed();
                for t in 0..N {
                    let inside = !EDGE || (column + (t * geo.stride[1]).cast_signed()).cast_unsigned() < line;
                    let q = match inside {
                        true => load!(p[0].wrapping_add(t * next[0]), p[1].wrapping_add(t * next[1])),
                        false => padding,
                    };
                    acc[t] = D::add(acc[t], D::dot_pairs(q, w));
                }
                p = [p[0].wrapping_add(step & mask[0]), p[1].wrapping_add(step & mask[1])];
            }
            return;
        }
        macro_rules! tap {
            ($c:literal, $q:ident, $($k:literal)*) => { $(
                let ahead = ($c as usize).wrapping_sub($k);
                if const { covers::<WIDTH, STRIDE, N>($c, $k) } {
                    let w = D::load(weights.add($k * 2 * D::LANES).cast());
                    acc[ahead / STRIDE] = D::add(acc[ahead / STRIDE], D::dot_pairs($q, w));
                }
            )* };
        }
        // Not loops, whose indices could keep the sums in memory.
        macro_rules! columns {
            ($($c:literal)*) => { $(
                if const { $c < (N - 1) * STRIDE + WIDTH } {
                    if $c > 0 {
                        p = [p[0].wrapping_add(pixel & mask[0]), p[1].wrapping_add(pixel & mask[1])];
                    }
                    let inside = !EDGE || (x0 + $c).cast_unsigned() < line;
                    let q = if inside { load!(p[0], p[1]) } else { padding };
                    tap!($c, q, 0 1 2 3 4 5 6);
                }
            )* };
        }
        columns!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20);
    }
}

/// Adds the taps of the last row of the window, each two columns of which are a pair. The row begins at `start`; `mask` is 0 for
/// rows of padding.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
unsafe fn columns<D: TwoRows, const WIDTH: usize, const STRIDE: usize, const N: usize, const EDGE: bool>(
    r: &Row<'_>,
    (x0, channels): (isize, usize),
    (start, mask): (*const u8, usize),
    weights: *const i16,
    acc: &mut [D::I; N],
) {
    let (geo, pixel) = (r.geo, r.layer.channels);
    let line = geo.input[1];
    // The pixel at a distance from the first one, or padding.
    let at = |ahead: usize, p: *const u8| {
        let is_inside = !EDGE || x0.wrapping_add_unsigned(ahead).cast_unsigned() < line;
        if is_inside { p } else { r.blank }
    };
    // SAFETY: the caller meets the contract of this function: addresses are inside of the input, or of padding.
    unsafe {
        let flip = D::flip(r.layer.flip);
        if const { WIDTH == 0 } {
            let (stride, dilation) = (geo.stride[1], geo.dilation[1]);
            let address = |ahead: usize| at(ahead, start.wrapping_add((ahead * pixel) & mask));
            for tap in (0..r.layer.window[1]).step_by(2) {
                let w = D::load(weights.add(tap * D::LANES).cast());
                // Beside the weight of an unpaired last column is a weight of zero.
                let second = if tap + 1 < r.layer.window[1] { dilation } else { 0 };
                for t in 0..N {
                    let ahead = t * stride + tap * dilation;
                    let q = D::two_rows(address(ahead), address(ahead + second), channels, flip);
                    acc[t] = D::add(acc[t], D::dot_pairs(q, w));
                }
            }
            return;
        }
        let step = pixel & mask;
        let mut p = start;
        macro_rules! tap {
            ($c:literal, $q:ident, $($k:literal)*) => { $(
                let ahead = ($c as usize).wrapping_sub($k);
                if const { covers::<WIDTH, STRIDE, N>($c, $k) } {
                    let w = D::load(weights.add($k * D::LANES).cast());
                    acc[ahead / STRIDE] = D::add(acc[ahead / STRIDE], D::dot_pairs($q, w));
                }
            )* };
        }
        // Not loops, whose indices could keep the sums in memory.
        macro_rules! columns {
            ($($c:literal)*) => { $(
                if const { $c < (N - 1) * STRIDE + WIDTH } {
                    let first = at($c, p);
                    p = p.wrapping_add(step);
                    if const { starts_pair::<WIDTH, STRIDE, N>($c) } {
                        let second = if const { $c + 1 < (N - 1) * STRIDE + WIDTH } { at($c + 1, p) } else { first };
                        let q = D::two_rows(first, second, channels, flip);
                        tap!($c, q, 0 2 4 6);
                    }
                }
            )* };
        }
        columns!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20);
    }
}

/// Whether a column is the first one of a pair of some pixel.
const fn starts_pair<const WIDTH: usize, const STRIDE: usize, const N: usize>(column: usize) -> bool {
    let mut tap = 0;
    while tap < WIDTH {
        if covers::<WIDTH, STRIDE, N>(column, tap) {
            return true;
        }
        tap += 2;
    }
    false
}
