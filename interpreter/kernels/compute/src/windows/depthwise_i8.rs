//! DEPTHWISE_CONV_2D of 8-bit integers.
//!
//! Taps of one column of the window are multiplied four at a time: the bytes of up to four input rows are interleaved
//! into vectors of `[channel][row]`. Neighbouring output pixels share most of these.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::{AlignedVec, SharedMut};
use crate::base::error::{ComputeError, Result, check_len, product};
#[cfg(target_arch = "x86_64")]
use crate::base::isa::Bytes;
use crate::base::isa::Isa;
use crate::base::requant::{ANY_SUM, ByteQuant, OutputQuant, Requant, RequantPart};
use crate::matmul::geometry::{Checked, ConvGeometry, DepthwiseFilter};
use crate::simd::int8::{Dot8, Dot8Task, Layout, dispatch};
use crate::threads::share::{min_tasks, threads_for};
use crate::windows::depthwise_i8_pairs::Pairs;
#[cfg(target_arch = "x86_64")]
use crate::windows::strip::BLOCK;
#[cfg(target_arch = "x86_64")]
use crate::windows::{depthwise_i8_row as row, depthwise_i8_wide as packed, depthwise_i8_x86 as x86};

/// DEPTHWISE_CONV_2D of bytes with a packed filter and fused requantization and clamp.
pub struct DepthwiseI8 {
    isa: Isa,
    filter: DepthwiseFilter,
    /// Number of input channels.
    inputs: usize,
    lanes: usize,
    /// Number of leading vectors, whose weights, bias and factors are in `wide` or `pairs` instead.
    skip: usize,
    /// For each other vector of channels, for each four rows of the window, for each column: `[channel][4]`.
    packed: AlignedVec<i8>,
    /// For each four rows of the window, ones where rows exist, `[channel][4]`: multiplying by them sums the
    /// activations.
    ones: AlignedVec<i8>,
    bias: AlignedVec<i32>,
    input: ByteQuant,
    unsigned: bool,
    weight_zero: i32,
    requant: Requant,
    /// At least a pixel of padding, whose real value is 0.
    blank: AlignedVec<u8>,
    /// Blocks of 64 bytes of the output.
    #[cfg(target_arch = "x86_64")]
    wide: Option<packed::Wide>,
    pairs: Option<Pairs>,
}

impl DepthwiseI8 {
    /// Packs a filter `[1, height, width, channels]` for windows like `geo`'s; input and output sizes may change.
    /// `bias` is `[channels]`. If `geo` has less input channels, the result may need an input with each of them repeated for
    /// its output channels: see [`DepthwiseI8::inputs`].
    ///
    /// # Errors
    /// Fails if lengths do not match, a zero point or multiplier is out of range, or memory cannot be allocated.
    #[allow(clippy::too_many_arguments, reason = "one argument per operand")]
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(unused_variables, reason = "other kernels do not depend on the window")
    )]
    pub fn pack(
        isa: Isa,
        filter: DepthwiseFilter,
        geo: &ConvGeometry,
        weights: &[u8],
        weight_quant: ByteQuant,
        bias: Option<&[i32]>,
        input: ByteQuant,
        output: OutputQuant<'_>,
    ) -> Result<Self> {
        let channels = filter.channels;
        let [height, width] = filter.window;
        let taps = product("window", &[height, width])?;
        check_len("weights", weights.len(), product("weights", &[taps, channels])?)?;
        if let Some(bias) = bias {
            check_len("bias", bias.len(), channels)?;
        }
        weight_quant.zero_byte()?;
        let Layout { lanes, records, unsigned } = Layout::new(isa);
        let vectors = channels.div_ceil(lanes);
        let padded = product("channels", &[vectors, lanes])?;
        let quads = height.div_ceil(4);
        let flip = if weight_quant.flip(false) { 0x80 } else { 0 };
        let mut own = AlignedVec::<i32>::zeroed(padded)?;
        for weights in weights.chunks_exact(channels.max(1)) {
            for (sum, &w) in own.as_mut_slice().iter_mut().zip(weights) {
                *sum = sum.wrapping_add(i32::from((w ^ flip) as i8));
            }
        }
        let mut ones = AlignedVec::<i8>::zeroed(product("weights", &[quads, lanes, 4])?)?;
        for (i, one) in ones.as_mut_slice().iter_mut().enumerate() {
            *one = i8::from(i / (lanes * 4) * 4 + i % 4 < height);
        }
        // Σ (w - w0)(a - a0) = Σ w·a - a0·Σ w - w0·Σ a + taps·a0·w0
        // Pairs have signed activations, whatever other products of the set have.
        let paired = Pairs::are_for(isa);
        let a0 = input.zero_in(unsigned && !paired);
        let w0 = weight_quant.zero_in(false);
        let both = a0.wrapping_mul(w0).wrapping_mul(taps as i32);
        for (c, own) in own.as_mut_slice().iter_mut().enumerate().take(channels) {
            let sum = own.wrapping_mul(a0);
            *own = bias.map_or(0, |b| b[c]).wrapping_sub(sum).wrapping_add(both);
        }
        #[cfg(target_arch = "x86_64")]
        let padding = channels.max(packed::REACH);
        #[cfg(not(target_arch = "x86_64"))]
        let padding = channels.max(lanes);
        let mut blank = AlignedVec::zeroed(padding)?;
        blank.as_mut_slice().fill(input.zero_byte()?);
        // Σ (w - w0)(a - a0) = Σ (w - w0)·a - a0·Σ (w - w0), and `own` has the last term.
        let weight = |row: usize, column: usize, c: usize| {
            let byte = weights[(row * width + column) * channels + c];
            i32::from((byte ^ flip).cast_signed()).wrapping_sub(w0)
        };
        #[cfg(target_arch = "x86_64")]
        let (wide, inputs) = wide(isa, geo, &filter, (weights, flip, w0), own.as_slice(), &output)?;
        #[cfg(not(target_arch = "x86_64"))]
        let inputs = channels;
        let pairs = Pairs::pack(isa, &filter, weight, own.as_slice(), input.flip(false), &output)?;
        #[cfg(target_arch = "x86_64")]
        let skip = wide.as_ref().map_or(0, |wide| (wide.blocks * BLOCK / lanes).min(vectors));
        #[cfg(not(target_arch = "x86_64"))]
        let skip = 0;
        let skip = if paired { vectors } else { skip };
        let first = skip * lanes;
        let per_vector = product("weights", &[quads, width, lanes, 4])?;
        let mut packed = AlignedVec::<i8>::zeroed(product("weights", &[vectors - skip, per_vector])?)?;
        for (tap, weights) in weights.chunks_exact(channels.max(1)).enumerate() {
            let (ky, kx) = (tap / width, tap % width);
            for (c, &w) in weights.iter().skip(first).enumerate() {
                let at = c / lanes * per_vector + ((ky / 4 * width + kx) * lanes + c % lanes) * 4 + ky % 4;
                packed.as_mut_slice()[at] = (w ^ flip) as i8;
            }
        }
        let mut bias = AlignedVec::<i32>::zeroed(padded - first)?;
        bias.as_mut_slice().copy_from_slice(&own.as_slice()[first..]);
        let sizes = (channels, padded - first);
        let requant = Requant::ordered(&output, sizes, (lanes, records), |i| Some(first + i), |_| ANY_SUM)?;
        Ok(Self {
            #[cfg(target_arch = "x86_64")]
            wide,
            pairs,
            isa,
            filter,
            inputs,
            lanes,
            skip,
            packed,
            ones,
            bias,
            input,
            unsigned,
            weight_zero: w0,
            requant,
            blank,
        })
    }

    /// The number of channels of the input.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Convolves `input` `[batch, height, width, inputs]` into `out` `[batch, height, width, channels]`. Needs no
    /// scratch.
    ///
    /// # Errors
    /// Fails if the geometry is out of range or does not match the filter, if its stride or dilation needs other packed
    /// weights than [`DepthwiseI8::pack`] made, or if an operand has the wrong length.
    pub fn run(&self, geo: &ConvGeometry, input: &[u8], out: &mut [u8], par: &dyn Parallel) -> Result<()> {
        self.run_checked(&geo.checked()?, input, out, par)
    }

    /// As [`DepthwiseI8::run`], for a geometry that is checked.
    ///
    /// # Errors
    /// As [`DepthwiseI8::run`].
    pub fn run_checked(&self, geo: &Checked, input: &[u8], out: &mut [u8], par: &dyn Parallel) -> Result<()> {
        if geo.window != self.filter.window {
            return Err(ComputeError::Range { what: "window" });
        }
        if geo.in_channels != self.inputs {
            return Err(ComputeError::Range { what: "input channels" });
        }
        #[cfg(target_arch = "x86_64")]
        if self.wide.as_ref().is_some_and(|wide| !wide.order.takes(geo, self.filter.channels)) {
            return Err(ComputeError::Range { what: "stride or dilation" });
        }
        let channels = self.filter.channels;
        let pixels = geo.pixels;
        check_len("input", input.len(), geo.input_len)?;
        check_len("output", out.len(), product("output", &[pixels, channels])?)?;
        if pixels == 0 || channels == 0 {
            return Ok(());
        }
        let taps = geo.window[0] * geo.window[1];
        let par = threads_for(par, out.len().saturating_mul(taps + REQUANTIZATION) / 6);
        let vectors = channels.div_ceil(self.lanes);
        let rows = geo.batch * geo.output[0];
        // With few rows, the threads also divide the channels.
        let threads = par.threads();
        let parts = if threads > 1 { (4 * threads).div_ceil(rows).min(vectors) } else { 1 };
        let work = out.len().saturating_mul(taps);
        let least = if threads > 1 { 8 * threads } else { 1 };
        let per_task = rows.div_ceil(min_tasks(work).max(least));
        // Multiples of four vectors, as blocks have four.
        let step = vectors.div_ceil(parts).next_multiple_of(4);
        let shared = SharedMut::new(out);
        par.run(rows.div_ceil(per_task) * parts, &|task| {
            let (block, part) = (task / parts, task % parts);
            let rows = block * per_task..((block + 1) * per_task).min(rows);
            if let Some(pairs) = &self.pairs {
                let (blank, vectors) = (self.blank.as_slice(), pairs.part(part, parts));
                // SAFETY: `pairs` exists only if the processor has the instructions (`pack`). Lengths and geometry are
                // checked. Rows and channels of tasks are disjoint.
                return unsafe { pairs.run(geo, input, blank, shared, rows, vectors) };
            }
            let vectors = (part * step).min(vectors)..((part + 1) * step).min(vectors);
            #[cfg(target_arch = "x86_64")]
            let vectors = self.run_blocks(geo, input, shared, rows.clone(), vectors);
            dispatch(self.isa, RowsTask { layer: self, geo, input, out: shared, rows, vectors });
        });
        Ok(())
    }
}

/// Packs blocks of 64 bytes, if the instruction set and the windows have them. Also returns the number of input channels: the
/// other kernels need them repeated.
#[cfg(target_arch = "x86_64")]
fn wide(
    isa: Isa,
    geo: &ConvGeometry,
    filter: &DepthwiseFilter,
    weights: (&[u8], u8, i32),
    bias: &[i32],
    output: &OutputQuant<'_>,
) -> Result<(Option<packed::Wide>, usize)> {
    let channels = filter.channels;
    let repeated = ConvGeometry { in_channels: channels, ..*geo };
    let order = |geo| packed::Order::best(geo, channels).map(|order| (order, geo.in_channels));
    let best = order(geo).or_else(|| order(&repeated)).filter(|_| isa.bytes() == Bytes::Vnni);
    let Some((order, inputs)) = best else { return Ok((None, channels)) };
    let wide = packed::Wide::pack(order, filter, weights, bias, output)?;
    let inputs = if wide.is_some() { inputs } else { channels };
    Ok((wide, inputs))
}

#[cfg(target_arch = "x86_64")]
impl DepthwiseI8 {
    /// Computes the blocks of channels at the front of `vectors`; returns the remaining vectors.
    fn run_blocks(
        &self,
        geo: &ConvGeometry,
        input: &[u8],
        out: SharedMut<'_, u8>,
        rows: Range<usize>,
        vectors: Range<usize>,
    ) -> Range<usize> {
        let Some(wide) = &self.wide else { return vectors };
        let (blank, flip) = (self.blank.as_slice(), self.input.flip(self.unsigned));
        if wide.order == packed::Order::Row {
            let end = vectors.end;
            // With parts of rows, the task of the first vectors computes all.
            if vectors.start == 0 {
                let work = row::Rows { wide, geo, input, blank, flip, out, rows };
                // SAFETY: see below.
                unsafe {
                    match wide.has_strips(geo) {
                        true => work.run_strips(),
                        false => work.run(),
                    }
                }
            }
            return end..end;
        }
        let per_block = BLOCK / self.lanes;
        let blocks = vectors.start / per_block..vectors.end.div_ceil(per_block).min(wide.blocks);
        if blocks.is_empty() {
            return vectors;
        }
        let left = (blocks.end * per_block).min(vectors.end)..vectors.end;
        let work = x86::Rows { wide, geo, input, blank, flip, out, rows, blocks };
        // SAFETY: `wide` exists only if the processor has the instructions (`pack`). `run` checked lengths and
        // geometry. Rows and channels of tasks are disjoint, and these blocks begin at the task's first vector.
        unsafe { work.run() };
        left
    }
}

/// Requantizing an output takes about as long as this number of taps.
const REQUANTIZATION: usize = 12;

/// A range of output rows, for a range of vectors of channels.
struct RowsTask<'a> {
    layer: &'a DepthwiseI8,
    geo: &'a ConvGeometry,
    input: &'a [u8],
    out: SharedMut<'a, u8>,
    rows: Range<usize>,
    vectors: Range<usize>,
}

/// One output row, for one vector of channels.
struct Row<'a> {
    layer: &'a DepthwiseI8,
    geo: &'a ConvGeometry,
    /// First input row of the window.
    y0: isize,
    /// The image, beginning at the vector's first channel.
    input: *const u8,
    blank: *const u8,
    weights: *const i8,
    bias: *const i32,
    requant: RequantPart,
    out: *mut u8,
    /// Number of existing channels of the vector.
    channels: usize,
    flip: bool,
}

/// Addresses of the bytes of four rows of a window: `base + (offset & mask)`; the mask is 0 for padding.
#[derive(Clone, Copy)]
struct FourRows {
    base: [*const u8; 4],
    mask: [usize; 4],
}

impl Dot8Task for RowsTask<'_> {
    #[inline(always)]
    unsafe fn run<D: Dot8>(self) {
        let (layer, geo) = (self.layer, self.geo);
        let f = &layer.filter;
        let channels = f.channels;
        let per_vector = f.window[0].div_ceil(4) * f.window[1] * D::LANES * 4;
        let inner = geo.interior(1);
        for row in self.rows {
            let (image, y) = (row / geo.output[0], row % geo.output[0]);
            for v in self.vectors.clone() {
                let first = v * D::LANES;
                let held = v - layer.skip;
                let r = Row {
                    layer,
                    geo,
                    y0: geo.origin(0, y),
                    input: self
                        .input
                        .as_ptr()
                        .wrapping_add(image * geo.input[0] * geo.input[1] * channels + first),
                    blank: layer.blank.as_slice().as_ptr().wrapping_add(first),
                    weights: layer.packed.as_slice()[held * per_vector..(held + 1) * per_vector].as_ptr(),
                    bias: layer.bias.as_slice()[held * D::LANES..(held + 1) * D::LANES].as_ptr(),
                    requant: layer.requant.part(held * D::LANES, D::LANES),
                    out: self.out.ptr(row * geo.output[1] * channels + first),
                    channels: (channels - first).min(D::LANES),
                    flip: layer.input.flip(layer.unsigned),
                };
                // SAFETY: `run` checked lengths and geometry. Interior pixels have all their columns inside the input;
                // others are computed one by one with a check of each column. Output pixels of tasks are disjoint. The
                // instructions exist by the caller's contract.
                unsafe {
                    for x in (0..inner.start).chain(inner.end..geo.output[1]) {
                        any::<D, 0, 1>(&r, x..x + 1, false);
                    }
                    match (f.window[1], geo.stride[1], geo.dilation[1]) {
                        (3, 1, 1) => any::<D, 3, 1>(&r, inner.clone(), true),
                        (3, 2, 1) => any::<D, 3, 2>(&r, inner.clone(), true),
                        (5, 1, 1) => any::<D, 5, 1>(&r, inner.clone(), true),
                        (5, 2, 1) => any::<D, 5, 2>(&r, inner.clone(), true),
                        _ => any::<D, 0, 1>(&r, inner.clone(), true),
                    }
                }
            }
        }
    }
}

/// Computes pixels of a row, with `KW` adjacent taps across and pixels `STRIDE` apart, or with any geometry if `KW` is
/// 0.
///
/// # Safety
/// The processor must have the instructions of `D`. The row must be that of a checked geometry. With `inside`, all
/// columns of the windows must be inside the input.
#[inline(always)]
unsafe fn any<D: Dot8, const KW: usize, const STRIDE: usize>(
    r: &Row<'_>,
    pixels: Range<usize>,
    inside: bool,
) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let mut x = pixels.start;
        macro_rules! step {
            ($zero:literal, $n:literal) => {
                while pixels.end - x >= $n {
                    run_of::<D, KW, STRIDE, $zero, $n>(r, x, inside);
                    x += $n;
                }
            };
        }
        if r.layer.weight_zero != 0 {
            if D::PIXELS >= 4 {
                step!(true, 4);
            }
            step!(true, 1);
            return;
        }
        if KW != 0 && D::PIXELS == 8 {
            step!(false, 8);
        }
        if D::PIXELS >= 4 {
            step!(false, 4);
        } else if KW != 0 && inside && r.layer.filter.window[0] <= 4 && r.channels == D::LANES {
            let rows = four_rows(r, 0);
            while pixels.end - x >= 2 {
                two_pixels::<D, KW, STRIDE>(r, &rows, x);
                x += 2;
            }
        }
        step!(false, 1);
    }
}

/// Computes `N` neighbouring pixels, beginning at `x`. `ZERO`: the weights have a zero point.
///
/// # Safety
/// As for [`any`].
#[inline(always)]
unsafe fn run_of<D: Dot8, const KW: usize, const STRIDE: usize, const ZERO: bool, const N: usize>(
    r: &Row<'_>,
    x: usize,
    inside: bool,
) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let (geo, filter) = (r.geo, &r.layer.filter);
        let width = if KW == 0 { filter.window[1] } else { KW };
        let pixel = filter.channels;
        let (across, next) = if KW == 0 { (geo.dilation[1], geo.stride[1]) } else { (1, STRIDE) };
        let x0 = geo.origin(1, x);
        let mut acc = [D::zero(); N];
        let mut sums = [D::zero(); N];
        let mut weights = r.weights;
        let flip = D::flip(r.flip);
        for quad in 0..filter.window[0].div_ceil(4) {
            let rows = four_rows(r, quad * 4);
            for kx in 0..width {
                let w = D::b(weights);
                weights = weights.add(D::LANES * 4);
                for t in 0..N {
                    let column = x0 + (kx * across + t * next) as isize;
                    let outside = !inside && (column < 0 || column >= geo.input[1] as isize);
                    let q = fetch::<D>(r, &rows, (column as usize).wrapping_mul(pixel), outside, flip);
                    acc[t] = D::dot_each(acc[t], q, w);
                    if ZERO {
                        let ones = D::b(r.layer.ones.as_slice().as_ptr().add(quad * D::LANES * 4));
                        sums[t] = D::dot_each(sums[t], q, ones);
                    }
                }
            }
        }
        for t in 0..N {
            let mut sum = D::add(D::finish(acc[t]), D::load(r.bias));
            if ZERO {
                let minus = D::splat(r.layer.weight_zero.wrapping_neg());
                sum = D::add(sum, D::mul(minus, D::finish(sums[t])));
            }
            D::store_bytes(r.out.add((x + t) * pixel), D::requant(sum, &r.requant, 0), r.channels);
        }
    }
}

/// Computes two neighbouring pixels of a window of at most four rows, whose columns are inside the input. Each column that they
/// read is interleaved once.
///
/// # Safety
/// As for [`any`].
#[inline(always)]
unsafe fn two_pixels<D: Dot8, const KW: usize, const STRIDE: usize>(r: &Row<'_>, rows: &FourRows, x: usize) {
    let pixel = r.layer.filter.channels;
    let offset = (r.geo.origin(1, x) as usize).wrapping_mul(pixel);
    let mut p = [r.blank; 4];
    for (p, (base, mask)) in p.iter_mut().zip(rows.base.iter().zip(rows.mask)) {
        *p = base.wrapping_add(offset & mask);
    }
    // SAFETY: the caller meets the contract of `run_of`; the vector has all its channels.
    unsafe {
        let flip = D::flip(r.flip);
        let mut acc = [D::zero(); 2];
        // Not a loop, whose indices could keep the sums in memory.
        macro_rules! column {
            ($($c:literal)*) => {
                $(if const { $c < KW + STRIDE } {
                    let q = D::quads(p, D::LANES, flip);
                    if const { $c < KW } {
                        acc[0] = D::dot_each(acc[0], q, D::b(r.weights.add($c * D::LANES * 4)));
                    }
                    if const { $c >= STRIDE } {
                        acc[1] = D::dot_each(acc[1], q, D::b(r.weights.add(($c - STRIDE) * D::LANES * 4)));
                    }
                    for (p, mask) in p.iter_mut().zip(rows.mask) {
                        *p = p.wrapping_add(pixel & mask);
                    }
                })*
            };
        }
        column!(0 1 2 3 4 5 6);
        for (t, acc) in acc.into_iter().enumerate() {
            let sum = D::add(D::finish(acc), D::load(r.bias));
            D::store_bytes(r.out.add((x + t) * pixel), D::requant(sum, &r.requant, 0), D::LANES);
        }
    }
}

/// Rows of a window, beginning at `ky`. Missing rows have weights of zero and read padding.
///
/// # Safety
/// As for [`any`].
#[inline(always)]
unsafe fn four_rows(r: &Row<'_>, ky: usize) -> FourRows {
    let mut rows = FourRows { base: [r.blank; 4], mask: [0; 4] };
    for i in 0..4 {
        let y = r.y0 + ((ky + i) * r.geo.dilation[0]) as isize;
        if ky + i < r.layer.filter.window[0] && y >= 0 && y < r.geo.input[0] as isize {
            rows.base[i] = r.input.wrapping_add(y as usize * r.geo.input[1] * r.layer.filter.channels);
            rows.mask[i] = usize::MAX;
        }
    }
    rows
}

/// The bytes of four rows at an offset, or padding.
///
/// # Safety
/// As for [`any`]. Unless `outside`, the offset must be that of a column inside the input.
#[inline(always)]
unsafe fn fetch<D: Dot8>(r: &Row<'_>, rows: &FourRows, offset: usize, outside: bool, flip: D::Flip) -> D::Q {
    // SAFETY: the caller meets the contract of this function: addresses are inside of the input, or of padding, and
    // `channels` bytes follow.
    unsafe {
        let mut p = [r.blank; 4];
        if !outside {
            for (p, (base, mask)) in p.iter_mut().zip(rows.base.iter().zip(rows.mask)) {
                *p = base.wrapping_add(offset & mask);
            }
        }
        D::quads(p, r.channels, flip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::requant::ChannelTies;
    use crate::base::requant::Multiplier;
    use delegraph_core::kernel::Serial;

    #[test]
    fn channels_are_packed_for_one_way_only() {
        let quant = ByteQuant { signed: true, zero_point: 0 };
        for &isa in Isa::available() {
            for (channels, stride, blocked) in
                [(150, 1, 150), (96, 2, 96), (40, 1, 40), (150, 3, 0), (20, 1, 20)]
            {
                let geo = ConvGeometry {
                    batch: 1,
                    input: [5, 5],
                    in_channels: channels,
                    window: [3, 3],
                    stride: [stride; 2],
                    dilation: [1; 2],
                    padding: [0; 2],
                    output: [(5 - 3) / stride + 1; 2],
                };
                let filter = DepthwiseFilter { channels, window: [3, 3] };
                let multipliers = [Multiplier::from_real(0.01)];
                let output = OutputQuant {
                    multipliers: &multipliers,
                    zero_point: 0,
                    low: -128,
                    high: 127,
                    ties: ChannelTies::Up,
                };
                let weights = vec![3; 9 * channels];
                let conv =
                    DepthwiseI8::pack(isa, filter, &geo, &weights, quant, None, quant, output).unwrap();
                let blocked = if isa.name() == "avx512vnni" { blocked } else { 0 };
                // Without VNNI, AVX-512 has the kernels for bytes of AVX2.
                let paired = ["sse4.1", "avx2", "avx512", "simd128", "relaxed-simd", "relaxed-dot"]
                    .contains(&isa.name());
                let left = if paired { 0 } else { channels - blocked }.next_multiple_of(conv.lanes);
                assert_eq!(conv.packed.as_slice().len(), left * 3 * 4, "{} {channels}", isa.name());
                assert_eq!(conv.bias.as_slice().len(), left);
                let (input, mut out) = (vec![7; 25 * channels], vec![0; geo.pixels().unwrap() * channels]);
                conv.run(&geo, &input, &mut out, &Serial).unwrap();
                // 9 taps of 3 · 7, a hundredth of which is 1.89.
                assert!(out.iter().all(|&b| b == 2), "{} {channels}", isa.name());
                let other = ConvGeometry { stride: [4; 2], output: [1; 2], ..geo };
                out.truncate(channels);
                assert_eq!(conv.run(&other, &input, &mut out, &Serial).is_err(), blocked > 0);
            }
        }
    }
}
