//! Products and CONV_2D of 8-bit integers with 32-bit sums.
//!
//! Activations and weights are bytes with a [`ByteQuant`], so that signed and unsigned models share one code path.
//! Results are those of exact integer arithmetic followed by `Multiplier::apply`.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::{AlignedVec, SharedMut};
use crate::base::clamp::Clamp;
use crate::base::error::{ComputeError, Result, check_len, product};
use crate::base::isa::Isa;
use crate::base::requant::{ByteQuant, FloatPart, OutputQuant, Requant};
use crate::matmul::conv::ConvPlan;
use crate::matmul::gemm::{DenseRows, GemmPlan};
use crate::matmul::gemm_i8::{Kernels, Out, PanelI8, Segments, TileFn, converted_len};
use crate::matmul::geometry::{ConvGeometry, Filter, Reading};
use crate::matmul::tiles::{self, Extent, Panels, TileKernel, Tiling};
use crate::simd::int8::{Dot8, Dot8Task, dispatch};

/// Destination of an 8-bit product.
enum Target<'a> {
    /// Requantized bytes.
    Bytes(SharedMut<'a, u8>, &'a Requant),
    /// The 32-bit sums themselves.
    Sums(SharedMut<'a, i32>),
    /// Sums scaled to floats.
    Floats(SharedMut<'a, f32>, &'a FloatOutput, RowScales<'a>),
}

/// Scales and zero points of the activations of a product.
#[derive(Clone, Copy, Debug)]
pub enum RowScales<'a> {
    /// The same for all rows.
    Single(f32, i32),
    /// One of each per row.
    Each(&'a [f32], &'a [i32]),
}

/// Scaling of sums to floats, per column: `clamp((sum - zero_point · total) · (row_scale · scale) + bias)`.
pub struct FloatOutput {
    /// Columns of all groups, without and with padding to whole vectors.
    sizes: [usize; 2],
    scales: AlignedVec<f32>,
    totals: AlignedVec<i32>,
    bias: AlignedVec<f32>,
    clamp: Clamp,
}

impl FloatOutput {
    fn new(p: &PackedI8, scales: &[f32], totals: &[i32], bias: Option<&[f32]>, clamp: Clamp) -> Result<Self> {
        let (columns, padded) = (p.panels.columns, p.panels.padded());
        let sizes = [product("scales", &[p.groups, columns])?, product("scales", &[p.groups, padded])?];
        if scales.len() != 1 {
            check_len("scales", scales.len(), sizes[0])?;
        }
        check_len("sums of weights", totals.len(), sizes[0])?;
        if let Some(bias) = bias {
            check_len("bias", bias.len(), sizes[0])?;
        }
        let mut new = Self {
            sizes,
            scales: AlignedVec::zeroed(sizes[1])?,
            totals: AlignedVec::zeroed(sizes[1])?,
            bias: AlignedVec::zeroed(sizes[1])?,
            clamp,
        };
        for (c, total) in totals.iter().enumerate() {
            let at = c / columns * padded + c % columns;
            new.scales.as_mut_slice()[at] = if let [one] = scales { *one } else { scales[c] };
            new.totals.as_mut_slice()[at] = *total;
            // The addition of -0 changes nothing, not even the sign of a zero.
            new.bias.as_mut_slice()[at] = bias.map_or(-0.0, |bias| bias[c]);
        }
        Ok(new)
    }
}

/// Packed columns of one or more groups.
struct PackedI8 {
    kernels: Kernels,
    panels: Panels,
    groups: usize,
    segments: usize,
    /// Elements per segment.
    len: usize,
    /// Elements per segment that kernels read: those beyond `len` have weights of zero.
    read: usize,
    /// Packed elements of a column.
    padded_k: usize,
    data: AlignedVec<i8>,
    bias: AlignedVec<i32>,
    input: ByteQuant,
    weight_zero: i32,
    requant: Option<Requant>,
}

/// Operands to pack.
struct Parts<'a> {
    groups: usize,
    /// Columns of each group.
    columns: usize,
    segments: usize,
    len: usize,
    read: usize,
    /// For each column of each group, its elements.
    weights: &'a [u8],
    weight_quant: ByteQuant,
    bias: Option<&'a [i32]>,
    input: ByteQuant,
    output: Option<OutputQuant<'a>>,
}

/// Packs `range` of each row of `from`, which has `k` weights per row: groups of `depth` weights, each group for all
/// `columns` rows.
fn pack_segment(
    from: &[u8],
    k: usize,
    range: Range<usize>,
    (columns, depth): (usize, usize),
    flip: u8,
    to: &mut [i8],
) {
    for (to, start) in to.chunks_exact_mut(columns * depth).zip(range.clone().step_by(depth)) {
        let end = (start + depth).min(range.end);
        for (to, row) in to.chunks_exact_mut(depth).zip(from.chunks_exact(k)) {
            let elements = &row[start..end];
            // Whole groups of four, the usual ones, are one word.
            if let (Ok(to), Ok(from)) = (<&mut [i8; 4]>::try_from(&mut *to), <[u8; 4]>::try_from(elements)) {
                *to = (u32::from_ne_bytes(from) ^ u32::from_ne_bytes([flip; 4]))
                    .to_ne_bytes()
                    .map(u8::cast_signed);
                continue;
            }
            for (to, &w) in to.iter_mut().zip(elements) {
                *to = (w ^ flip) as i8;
            }
        }
    }
}

/// Sums of the weights of each column, which has `k`.
struct Sums<'a> {
    weights: &'a [u8],
    k: usize,
    flip: u8,
    sums: &'a mut [i32],
}

impl Dot8Task for Sums<'_> {
    #[inline(always)]
    unsafe fn run<D: Dot8>(self) {
        for (sum, weights) in self.sums.iter_mut().zip(self.weights.chunks_exact(self.k.max(1))) {
            let signed = weights.iter().map(|&w| i32::from((w ^ self.flip).cast_signed()));
            *sum = signed.fold(0, i32::wrapping_add);
        }
    }
}

impl PackedI8 {
    fn pack(isa: Isa, p: &Parts<'_>) -> Result<Self> {
        let k = product("weights", &[p.segments, p.len])?;
        let count = product("bias", &[p.groups, p.columns])?;
        check_len("weights", p.weights.len(), product("weights", &[count, k])?)?;
        if let Some(bias) = p.bias {
            check_len("bias", bias.len(), count)?;
        }
        p.input.zero_byte()?;
        p.weight_quant.zero_byte()?;
        let kernels = Kernels::of(isa, (p.segments, p.len), p.columns);
        let panels = Panels::new(p.columns, kernels.lanes, kernels.max_vectors());
        let read_groups = p.read.div_ceil(kernels.depth);
        let padded_k = product("packed weights", &[p.segments, read_groups, kernels.depth])?;
        let mut data =
            AlignedVec::<i8>::zeroed(product("packed weights", &[p.groups, padded_k, panels.padded()])?)?;
        let mut bias = AlignedVec::<i32>::zeroed(product("packed bias", &[p.groups, panels.padded()])?)?;
        let flip = if p.weight_quant.flip(false) { 0x80 } else { 0 };
        let weight_zero = p.weight_quant.zero_in(false);
        let input_zero = p.input.zero_in(kernels.is_unsigned(p.input));
        for group in 0..p.groups {
            let weights = &p.weights[group * p.columns * k..][..p.columns * k];
            let sums = &mut bias.as_mut_slice()[group * panels.padded()..][..p.columns];
            dispatch(isa, Sums { weights, k, flip, sums });
            for (column, sum) in sums.iter_mut().enumerate() {
                let own = p.bias.map_or(0, |b| b[group * p.columns + column]);
                *sum = own.wrapping_sub(sum.wrapping_mul(input_zero));
            }
        }
        for group in 0..p.groups {
            let mut column = 0;
            while column < p.columns {
                let panel = panels.of_column(column);
                let columns = panel.vectors * panels.lanes;
                let to = &mut data.as_mut_slice()[(group * panels.padded() + panel.first) * padded_k..]
                    [..columns * padded_k];
                let used = columns.min(p.columns - panel.first);
                let from = &p.weights[(group * p.columns + panel.first) * k..][..used * k];
                let segments = to.chunks_exact_mut((read_groups * columns * kernels.depth).max(1));
                for (s, to) in segments.enumerate() {
                    pack_segment(from, k, s * p.len..(s + 1) * p.len, (columns, kernels.depth), flip, to);
                }
                column = panel.first + columns;
            }
        }
        let shape = (p.groups, p.columns, panels.padded());
        let sums = |c: usize| {
            let weights = p.weights[c * k..(c + 1) * k].iter();
            let weights = weights.map(|&w| i32::from((w ^ flip).cast_signed()) - weight_zero);
            p.input.sums(p.bias.map_or(0, |b| b[c]).into(), weights)
        };
        let requant =
            p.output.map(|o| Requant::new(&o, shape, (panels.lanes, kernels.records), sums)).transpose()?;
        Ok(Self {
            kernels,
            panels,
            groups: p.groups,
            segments: p.segments,
            len: p.len,
            read: p.read,
            padded_k,
            data,
            bias,
            input: p.input,
            weight_zero,
            requant,
        })
    }

    fn extent(&self, rows: usize, patch_len: usize) -> Extent {
        let k = self.segments.saturating_mul(self.read);
        Extent {
            groups: self.groups,
            rows,
            tile_rows: self.kernels.max_rows(self.panels.widest),
            panels: self.panels.count,
            segments: self.segments,
            patch_len,
            words: self.words(),
            row_bytes: k,
            packed_bytes: k.saturating_mul(self.panels.padded()),
            row_work: self.row_work(),
        }
    }

    /// Words of a converted row: see [`Extent::words`].
    fn words(&self) -> usize {
        if self.kernels.converts() { converted_len(self.segments, self.read) } else { 0 }
    }

    /// Work of a row per group: see [`Extent::row_work`].
    fn row_work(&self) -> usize {
        let work = self.padded_k.saturating_mul(self.panels.padded());
        // Products of pairs are half as many at a time as those of groups of four.
        if self.kernels.depth == 2 { work.saturating_mul(2) } else { work }
    }

    /// Checks the length of the output of `rows` rows.
    fn check_output(&self, len: usize, rows: usize) -> Result<()> {
        check_len("output", len, product("output", &[rows, self.groups, self.panels.columns])?)
    }

    fn bytes<'a>(&'a self, out: &'a mut [u8], rows: usize) -> Result<View<'a>> {
        self.check_output(out.len(), rows)?;
        let missing = ComputeError::Range { what: "output: its quantization is missing" };
        let requant = self.requant.as_ref().ok_or(missing)?;
        Ok(self.view(Target::Bytes(SharedMut::new(out), requant)))
    }

    fn sums<'a>(&'a self, out: &'a mut [i32], rows: usize) -> Result<View<'a>> {
        self.check_output(out.len(), rows)?;
        Ok(self.view(Target::Sums(SharedMut::new(out))))
    }

    fn floats<'a>(
        &'a self,
        output: &'a FloatOutput,
        scales: RowScales<'a>,
        out: &'a mut [f32],
        rows: usize,
    ) -> Result<View<'a>> {
        self.check_output(out.len(), rows)?;
        let columns = [self.groups * self.panels.columns, self.groups * self.panels.padded()];
        if output.sizes != columns {
            return Err(ComputeError::Length { what: "scales", needed: columns[0], got: output.sizes[0] });
        }
        if let RowScales::Each(scales, zero_points) = scales {
            check_len("scales of rows", scales.len(), rows)?;
            check_len("zero points of rows", zero_points.len(), rows)?;
        }
        Ok(self.view(Target::Floats(SharedMut::new(out), output, scales)))
    }

    fn view<'a>(&'a self, target: Target<'a>) -> View<'a> {
        View { packed: self, target, out_stride: self.groups * self.panels.columns }
    }
}

struct View<'a> {
    packed: &'a PackedI8,
    target: Target<'a>,
    out_stride: usize,
}

impl TileKernel<u8> for View<'_> {
    type Panel = (&'static [TileFn], PanelI8);

    #[inline]
    fn panel(&self, group: usize, panel: usize) -> Self::Panel {
        let p = self.packed;
        let k = p.padded_k;
        let panel = p.panels.get(panel);
        let first = group * p.panels.padded() + panel.first;
        let width = panel.vectors * p.panels.lanes;
        let at = group * p.panels.columns + panel.first;
        let out = match &self.target {
            Target::Bytes(out, requant) => Out::Bytes(out.ptr(at), requant.part(first, width)),
            Target::Sums(out) => Out::Sums(out.ptr(at)),
            Target::Floats(out, output, rows) => {
                let columns = first..first + width;
                let (row_scales, row_zero_points, row_step) = match rows {
                    RowScales::Single(scale, zero) => (&raw const *scale, &raw const *zero, 0),
                    RowScales::Each(scales, zeros) => (scales.as_ptr(), zeros.as_ptr(), 1),
                };
                let part = FloatPart {
                    row_scales,
                    row_zero_points,
                    row_step,
                    scales: output.scales.as_slice()[columns.clone()].as_ptr(),
                    totals: output.totals.as_slice()[columns.clone()].as_ptr(),
                    bias: output.bias.as_slice()[columns].as_ptr(),
                    clamp: output.clamp,
                };
                Out::Floats(out.ptr(at), part)
            }
        };
        let operands = PanelI8 {
            segments: p.segments,
            len: p.read,
            counted: p.len,
            flip: p.input.flip(p.kernels.is_unsigned(p.input)),
            packed: p.data.as_slice()[first * k..(first + width) * k].as_ptr(),
            bias: p.bias.as_slice()[first..first + width].as_ptr(),
            weight_zero: p.weight_zero,
            input_zero: p.input.zero_in(p.kernels.is_unsigned(p.input)),
            out,
            out_stride: self.out_stride,
            columns: panel.columns,
        };
        (p.kernels.by_rows(panel.vectors), operands)
    }

    #[inline]
    fn convert(&self, count: usize, table: &[usize], words: &mut [i32]) {
        let p = self.packed;
        debug_assert_eq!((table.len(), words.len()), (p.segments * count, p.words() * count));
        let segments = Segments {
            count: p.segments,
            len: p.read,
            counted: p.len,
            signed: p.input.signed,
            summed: p.weight_zero != 0,
        };
        // SAFETY: `kernels` is from an `Isa`, so its instructions exist. `table` holds `segments * count` addresses of `read`
        // bytes each (`Rows::fill`), and `words` has room for the rows.
        unsafe { p.kernels.convert(&segments, (table.as_ptr(), count), (words.as_mut_ptr(), p.words())) }
    }

    #[inline]
    fn tile(&self, (kernels, panel): &Self::Panel, row: usize, count: usize, table: &[usize]) {
        debug_assert_eq!(
            table.len(),
            count * if self.packed.kernels.converts() { 1 } else { self.packed.segments }
        );
        let Some(kernel) = count.checked_sub(1).and_then(|i| kernels.get(i)) else { return };
        // SAFETY: `kernels` is from an `Isa`, so its instructions exist. `table` holds `segments * count` addresses of
        // `read` bytes each (`Rows::fill`), or `count` addresses of converted rows. Packed weights, bias and scales of columns
        // were sliced to what the kernel reads, and scales of rows have one for each row (`PackedI8::floats`). Tiles write
        // disjoint parts of the output (`tiles::drive`), which are inside it because all callers check its length.
        unsafe { kernel(panel, table.as_ptr(), row) }
    }
}

/// `out[m, n] = requantize(a[m, k] · B + bias)` with a constant `B` of `n` runs of `k` bytes: FULLY_CONNECTED.
pub struct GemmI8(PackedI8);

impl GemmI8 {
    /// Packs `B`; `bias` has `n` elements. Without `output`, only sums and floats can be computed.
    ///
    /// # Errors
    /// Fails if lengths do not match, a zero point or multiplier is out of range, or memory cannot be allocated.
    pub fn pack(
        isa: Isa,
        (k, n): (usize, usize),
        weights: &[u8],
        weight_quant: ByteQuant,
        bias: Option<&[i32]>,
        input: ByteQuant,
        output: Option<OutputQuant<'_>>,
    ) -> Result<Self> {
        let parts = Parts {
            groups: 1,
            columns: n,
            segments: 1,
            len: k,
            read: k,
            weights,
            weight_quant,
            bias,
            input,
            output,
        };
        Ok(Self(PackedI8::pack(isa, &parts)?))
    }

    /// Plans the product of `m` rows.
    ///
    /// # Errors
    /// Fails if the size overflows.
    pub fn plan(&self, m: usize, threads: usize) -> Result<GemmPlan> {
        Tiling::new::<u8>(self.0.extent(m, 0), threads).map(GemmPlan)
    }

    /// Returns the bytes of scratch that the product of `m` rows needs.
    ///
    /// # Errors
    /// Fails if the size overflows.
    pub fn scratch_len(&self, m: usize, threads: usize) -> Result<usize> {
        Ok(self.plan(m, threads)?.scratch_len())
    }

    /// Returns the scaling of sums to floats: `scales` has one element or one per column, `totals` the sums of the
    /// weights of each column.
    ///
    /// # Errors
    /// Fails if lengths do not match or memory cannot be allocated.
    pub fn float_output(
        &self,
        scales: &[f32],
        totals: &[i32],
        bias: Option<&[f32]>,
        clamp: Clamp,
    ) -> Result<FloatOutput> {
        FloatOutput::new(&self.0, scales, totals, bias, clamp)
    }

    /// Computes `m` rows and requantizes them to bytes.
    ///
    /// # Errors
    /// Fails if an operand has the wrong length, or the output has no quantization.
    pub fn run(
        &self,
        m: usize,
        a: &[u8],
        out: &mut [u8],
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        self.run_planned(&self.plan(m, par.threads())?, a, out, scratch, par)
    }

    /// As [`GemmI8::run`], for the rows of a plan.
    ///
    /// # Errors
    /// As [`GemmI8::run`], and if the plan is that of another product.
    pub fn run_planned(
        &self,
        plan: &GemmPlan,
        a: &[u8],
        out: &mut [u8],
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        self.drive(plan, a, &self.0.bytes(out, plan.rows())?, scratch, par)
    }

    /// Computes one row on the calling thread, and requantizes it to bytes: see [`GemmPlan::is_single_row`].
    ///
    /// # Errors
    /// As [`GemmI8::run`].
    pub fn run_row(&self, a: &[u8], out: &mut [u8]) -> Result<()> {
        check_len("left-hand side", a.len(), self.0.len)?;
        tiles::single_row(a, self.0.panels.count, self.0.words(), &self.0.bytes(out, 1)?)
    }

    /// As [`GemmI8::run_row`], scaled to floats.
    ///
    /// # Errors
    /// As [`GemmI8::run_floats`].
    pub fn run_row_floats(
        &self,
        a: &[u8],
        (output, scales): (&FloatOutput, RowScales<'_>),
        out: &mut [f32],
    ) -> Result<()> {
        check_len("left-hand side", a.len(), self.0.len)?;
        tiles::single_row(a, self.0.panels.count, self.0.words(), &self.0.floats(output, scales, out, 1)?)
    }

    /// Computes the sums of `m` rows.
    ///
    /// # Errors
    /// Fails if an operand has the wrong length.
    pub fn run_sums(
        &self,
        m: usize,
        a: &[u8],
        out: &mut [i32],
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let words = self.0.words();
        if m == 1 && tiles::is_single(par.threads(), self.0.row_work(), words) {
            check_len("left-hand side", a.len(), self.0.len)?;
            return tiles::single_row(a, self.0.panels.count, words, &self.0.sums(out, 1)?);
        }
        let plan = self.plan(m, par.threads())?;
        self.drive(&plan, a, &self.0.sums(out, m)?, scratch, par)
    }

    /// Computes the rows of a plan and scales them to floats.
    ///
    /// # Errors
    /// Fails if an operand has the wrong length, or the plan or the scaling is that of another product.
    #[allow(clippy::too_many_arguments, reason = "one argument per operand")]
    pub fn run_floats(
        &self,
        plan: &GemmPlan,
        a: &[u8],
        (output, scales): (&FloatOutput, RowScales<'_>),
        out: &mut [f32],
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let view = self.0.floats(output, scales, out, plan.rows())?;
        self.drive(plan, a, &view, scratch, par)
    }

    fn drive(
        &self,
        plan: &GemmPlan,
        a: &[u8],
        view: &View<'_>,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let m = plan.rows();
        self.0.extent(m, 0).check(plan.0.extent())?;
        check_len("left-hand side", a.len(), product("left-hand side", &[m, self.0.len])?)?;
        let rows = DenseRows { data: a, len: self.0.len };
        tiles::drive(&plan.0, &rows, view, None, scratch, par)
    }
}

/// CONV_2D of bytes with a packed filter and fused requantization and clamp.
pub struct ConvI8 {
    filter: Filter,
    reading: Reading,
    packed: PackedI8,
    blank: AlignedVec<u8>,
}

impl ConvI8 {
    /// Packs a filter `[out_channels, height, width, in_channels / groups]` for windows like `geo`'s; input and output
    /// sizes may change. `bias` is `[out_channels]`. Without `output`, only sums and floats can be computed.
    ///
    /// # Errors
    /// Fails if the geometry does not match the filter, lengths do not match, a zero point or multiplier is out of
    /// range, or memory cannot be allocated.
    #[allow(clippy::too_many_arguments, reason = "one argument per operand")]
    pub fn pack(
        isa: Isa,
        filter: Filter,
        geo: &ConvGeometry,
        weights: &[u8],
        weight_quant: ByteQuant,
        bias: Option<&[i32]>,
        input: ByteQuant,
        output: Option<OutputQuant<'_>>,
    ) -> Result<Self> {
        filter.check(geo)?;
        let reading = reading(isa, &filter, geo);
        let (segments, len) = reading.segments(geo, filter.groups);
        let read = if let Reading::Copies(read) | Reading::Padded(read) = reading { read } else { len };
        let columns = filter.out_channels / filter.groups;
        let groups = filter.groups;
        let parts =
            Parts { groups, columns, segments, len, read, weights, weight_quant, bias, input, output };
        let packed = PackedI8::pack(isa, &parts)?;
        let row = product("filter", &[filter.width, filter.in_channels])?;
        let mut blank = AlignedVec::zeroed(if let Reading::Padded(read) = reading { read } else { row })?;
        blank.as_mut_slice().fill(input.zero_byte()?);
        Ok(Self { filter, reading, packed, blank })
    }

    /// Plans the convolution of inputs and outputs of these sizes.
    ///
    /// # Errors
    /// Fails if the geometry does not match the filter or that of [`ConvI8::pack`], or is out of range.
    pub fn plan(&self, geo: &ConvGeometry, threads: usize) -> Result<ConvPlan> {
        let extent = |rows, _, patch_len| self.packed.extent(rows, patch_len);
        ConvPlan::new::<u8>((self.filter, geo), self.reading, threads, extent)
    }

    /// Returns the bytes of scratch that a convolution needs.
    ///
    /// # Errors
    /// As [`ConvI8::plan`].
    pub fn scratch_len(&self, geo: &ConvGeometry, threads: usize) -> Result<usize> {
        Ok(self.plan(geo, threads)?.scratch_len())
    }

    /// Returns the scaling of sums to floats: see [`GemmI8::float_output`].
    ///
    /// # Errors
    /// Fails if lengths do not match or memory cannot be allocated.
    pub fn float_output(
        &self,
        scales: &[f32],
        totals: &[i32],
        bias: Option<&[f32]>,
        clamp: Clamp,
    ) -> Result<FloatOutput> {
        FloatOutput::new(&self.packed, scales, totals, bias, clamp)
    }

    /// Convolves `input` `[batch, height, width, in_channels]` into `out` `[batch, height, width, out_channels]`.
    ///
    /// # Errors
    /// Fails if the geometry does not match the filter, an operand has the wrong length, or the output has no
    /// quantization.
    pub fn run(
        &self,
        geo: &ConvGeometry,
        input: &[u8],
        out: &mut [u8],
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        self.run_planned(&mut self.plan(geo, par.threads())?, input, out, scratch, par)
    }

    /// As [`ConvI8::run`], for the geometry of a plan.
    ///
    /// # Errors
    /// As [`ConvI8::run`], and if the plan is that of another convolution.
    pub fn run_planned(
        &self,
        plan: &mut ConvPlan,
        input: &[u8],
        out: &mut [u8],
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let view = self.packed.bytes(out, plan.pixels())?;
        self.drive(plan, input, self.blank.as_slice(), &view, scratch, par)
    }

    /// Computes the sums of the convolution.
    ///
    /// # Errors
    /// Fails if the geometry does not match the filter or an operand has the wrong length.
    pub fn run_sums(
        &self,
        geo: &ConvGeometry,
        input: &[u8],
        out: &mut [i32],
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let mut plan = self.plan(geo, par.threads())?;
        self.run_sums_padded(&mut plan, input, self.blank.as_slice(), out, scratch, par)
    }

    /// Returns the length of the `padding` of [`ConvI8::run_sums_padded`].
    pub fn padding_len(&self) -> usize {
        self.blank.as_slice().len()
    }

    /// Computes the sums of the convolution of a plan, with padding that reads `padding`: [`ConvI8::padding_len`] equal
    /// bytes.
    ///
    /// # Errors
    /// Fails if an operand has the wrong length, or the plan is that of another convolution.
    pub fn run_sums_padded(
        &self,
        plan: &mut ConvPlan,
        input: &[u8],
        padding: &[u8],
        out: &mut [i32],
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        self.drive(plan, input, padding, &self.packed.sums(out, plan.pixels())?, scratch, par)
    }

    /// Like [`ConvI8::run_sums_padded`], with sums scaled to floats.
    ///
    /// # Errors
    /// As [`ConvI8::run_sums_padded`], and if the scaling is that of another convolution.
    #[allow(clippy::too_many_arguments, reason = "one argument per operand")]
    pub fn run_floats_padded(
        &self,
        plan: &mut ConvPlan,
        input: &[u8],
        padding: &[u8],
        (output, scales): (&FloatOutput, RowScales<'_>),
        out: &mut [f32],
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let view = self.packed.floats(output, scales, out, plan.pixels())?;
        self.drive(plan, input, padding, &view, scratch, par)
    }

    fn drive(
        &self,
        plan: &mut ConvPlan,
        input: &[u8],
        padding: &[u8],
        view: &View<'_>,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let extent = |rows, _, patch_len| self.packed.extent(rows, patch_len);
        plan.check(&self.filter, self.reading, extent)?;
        check_len("padding", padding.len(), self.padding_len())?;
        plan.drive(input, padding, view, scratch, par)
    }
}

/// Maximum number of bytes of a row of a window that is copied.
const MAX_COPIED: usize = 64;

/// Maximum number of bytes of an input that is copied for short rows of windows.
const MAX_INPUT: usize = 512 << 10;

/// Returns how windows are read. Segments that end within a group are slow. Short rows of this kind are read with the
/// bytes after them, which a copied input always has; or windows are copied, as single segments of whole groups.
fn reading(isa: Isa, filter: &Filter, geo: &ConvGeometry) -> Reading {
    let in_place = Reading::in_place(geo, filter.groups);
    let (rows, len) = in_place.segments(geo, filter.groups);
    let kernels = Kernels::of(isa, (rows, len), filter.out_channels / filter.groups);
    let short = len % kernels.depth != 0 && len <= MAX_COPIED;
    if in_place == Reading::Rows && rows > 1 && short {
        let (window, read) =
            ((rows * len).next_multiple_of(kernels.step), len.next_multiple_of(kernels.step));
        // Bytes after rows are also multiplied.
        let few = rows * read * 2 <= window * 3;
        return match geo.input_len() {
            Ok(input) if input <= MAX_INPUT && few => Reading::Padded(read),
            _ => Reading::Copies(window),
        };
    }
    in_place
}
