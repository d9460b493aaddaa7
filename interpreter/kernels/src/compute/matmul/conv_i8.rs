//! Products and CONV_2D of 8-bit integers with 32-bit sums.
//!
//! Activations and weights are bytes with a [`ByteQuant`], so that signed and unsigned models share one code path.
//! Results are those of exact integer arithmetic followed by `Multiplier::apply`.

use delegraph_core::kernel::Parallel;

use crate::compute::base::buffer::{AlignedVec, SharedMut};
use crate::compute::base::error::{ComputeError, Result, check_len, product};
use crate::compute::base::isa::Isa;
use crate::compute::base::requant::{ByteQuant, OutputQuant, Requant};
use crate::compute::matmul::conv::{ConvGeometry, Filter, WindowRows, segments};
use crate::compute::matmul::gemm::DenseRows;
use crate::compute::matmul::gemm_i8::{Kernels, Out, TileI8};
use crate::compute::matmul::tiles::{self, Extent, Panels, Rows, TileKernel};

/// Destination of an 8-bit product.
enum Target<'a> {
    /// Requantized bytes.
    Bytes(SharedMut<'a, u8>, &'a Requant),
    /// Sums.
    Sums(SharedMut<'a, i32>),
}

/// Packed columns of one or more groups.
struct PackedI8 {
    kernels: Kernels,
    panels: Panels,
    groups: usize,
    segments: usize,
    /// Elements per segment.
    len: usize,
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
    /// For each column of each group, its elements.
    weights: &'a [u8],
    weight_quant: ByteQuant,
    bias: Option<&'a [i32]>,
    input: ByteQuant,
    output: Option<OutputQuant<'a>>,
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
        let kernels = Kernels::of(isa);
        let panels = Panels::new(p.columns, kernels.lanes, kernels.max_vectors());
        let padded_k =
            product("packed weights", &[p.segments, p.len.div_ceil(kernels.depth), kernels.depth])?;
        let mut data =
            AlignedVec::<i8>::zeroed(product("packed weights", &[p.groups, padded_k, panels.padded()])?)?;
        let mut bias = AlignedVec::<i32>::zeroed(product("packed bias", &[p.groups, panels.padded()])?)?;
        let flip = if p.weight_quant.flip(false) { 0x80 } else { 0 };
        let weight_zero = p.weight_quant.zero_in(false);
        let input_zero = p.input.zero_in(kernels.unsigned);
        for c in 0..count {
            let (group, column) = (c / p.columns, c % p.columns);
            let weights = &p.weights[c * k..(c + 1) * k];
            let sum = weights.iter().fold(0i32, |s, &w| s.wrapping_add(i32::from((w ^ flip) as i8)));
            let own = p.bias.map_or(0, |b| b[c]);
            bias.as_mut_slice()[group * panels.padded() + column] =
                own.wrapping_sub(sum.wrapping_mul(input_zero));
            let panel = panels.of_column(column);
            let depth = kernels.depth;
            let width = panel.vectors * panels.lanes * depth;
            let to = &mut data.as_mut_slice()[(group * panels.padded() + panel.first) * padded_k..]
                [..width / depth * padded_k];
            let at = (column - panel.first) * depth;
            for (s, segment) in weights.chunks_exact(p.len.max(1)).enumerate() {
                for (g, elements) in segment.chunks(depth).enumerate() {
                    let to = &mut to[(s * p.len.div_ceil(depth) + g) * width + at..][..elements.len()];
                    for (to, &w) in to.iter_mut().zip(elements) {
                        *to = (w ^ flip) as i8;
                    }
                }
            }
        }
        let shape = (p.groups, p.columns, panels.padded());
        let requant =
            p.output.map(|o| Requant::new(&o, shape, (panels.lanes, kernels.records))).transpose()?;
        Ok(Self {
            kernels,
            panels,
            groups: p.groups,
            segments: p.segments,
            len: p.len,
            data,
            bias,
            input: p.input,
            weight_zero,
            requant,
        })
    }

    fn extent(&self, rows: usize, patch_len: usize) -> Extent {
        let k = self.segments.saturating_mul(self.len);
        Extent {
            groups: self.groups,
            rows,
            tile_rows: self.kernels.max_rows(self.panels.widest),
            panels: self.panels.count,
            segments: self.segments,
            patch_len,
            row_bytes: k,
            packed_bytes: k.saturating_mul(self.panels.padded()),
        }
    }

    fn drive<R: Rows<In = u8>>(
        &self,
        extent: &Extent,
        rows: &R,
        target: Target<'_>,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let view = View { packed: self, target, out_stride: self.groups * self.panels.columns };
        tiles::drive(extent, rows, &view, scratch, par)
    }
}

struct View<'a> {
    packed: &'a PackedI8,
    target: Target<'a>,
    out_stride: usize,
}

impl TileKernel<u8> for View<'_> {
    fn tile(&self, group: usize, panel: usize, row: usize, count: usize, table: &[usize]) {
        let p = self.packed;
        let k = p.segments * p.len.div_ceil(p.kernels.depth) * p.kernels.depth;
        let panel = p.panels.get(panel);
        let first = group * p.panels.padded() + panel.first;
        let width = panel.vectors * p.panels.lanes;
        let Some(kernel) = p.kernels.get(count, panel.vectors) else { return };
        let at = row * self.out_stride + group * p.panels.columns + panel.first;
        let out = match &self.target {
            Target::Bytes(out, requant) => Out::Bytes(out.ptr(at), requant.part(first, width)),
            Target::Sums(out) => Out::Sums(out.ptr(at)),
        };
        debug_assert_eq!(table.len(), p.segments * count);
        let tile = TileI8 {
            rows: table.as_ptr(),
            segments: p.segments,
            len: p.len,
            flip: p.input.flip(p.kernels.unsigned),
            packed: p.data.as_slice()[first * k..(first + width) * k].as_ptr(),
            bias: p.bias.as_slice()[first..first + width].as_ptr(),
            weight_zero: p.weight_zero,
            input_zero: p.input.zero_in(p.kernels.unsigned),
            out,
            out_stride: self.out_stride,
            columns: panel.columns,
        };
        // SAFETY: `kernels` is from an `Isa`, so its instructions exist. `table` holds `segments * count` addresses of
        // `len` bytes each (`Rows::fill`). Packed weights, bias and scales were sliced to what the kernel reads. Tiles
        // write disjoint parts of the output (`tiles::drive`), which are inside it because all callers check its
        // length.
        unsafe { kernel(&tile) }
    }
}

/// `out[m, n] = requantize(a[m, k] · B + bias)` with a constant `B` of `n` runs of `k` bytes: FULLY_CONNECTED.
pub struct GemmI8(PackedI8);

impl GemmI8 {
    /// Packs `B`; `bias` has `n` elements. Without `output` only sums can be computed.
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
        let parts =
            Parts { groups: 1, columns: n, segments: 1, len: k, weights, weight_quant, bias, input, output };
        Ok(Self(PackedI8::pack(isa, &parts)?))
    }

    /// Returns the bytes of scratch that the product of `m` rows needs.
    ///
    /// # Errors
    /// Fails if the size overflows.
    pub fn scratch_len(&self, m: usize, threads: usize) -> Result<usize> {
        tiles::scratch_len::<u8>(&self.0.extent(m, 0), threads)
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
        check_len("output", out.len(), product("output", &[m, self.0.panels.columns])?)?;
        let requant =
            self.0.requant.as_ref().ok_or(ComputeError::Range { what: "quantization of the output" })?;
        self.drive(m, a, Target::Bytes(SharedMut::new(out), requant), scratch, par)
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
        check_len("output", out.len(), product("output", &[m, self.0.panels.columns])?)?;
        self.drive(m, a, Target::Sums(SharedMut::new(out)), scratch, par)
    }

    fn drive(
        &self,
        m: usize,
        a: &[u8],
        target: Target<'_>,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        check_len("left-hand side", a.len(), product("left-hand side", &[m, self.0.len])?)?;
        let rows = DenseRows { data: a, len: self.0.len };
        self.0.drive(&self.0.extent(m, 0), &rows, target, scratch, par)
    }
}

/// CONV_2D of bytes with a packed filter and fused requantization and clamp.
pub struct ConvI8 {
    filter: Filter,
    packed: PackedI8,
    blank: AlignedVec<u8>,
}

impl ConvI8 {
    /// Packs a filter `[out_channels, height, width, in_channels / groups]` for windows like `geo`'s; input and output
    /// sizes may change. `bias` is `[out_channels]`. Without `output` only sums can be computed.
    ///
    /// # Errors
    /// Fails if lengths do not match, a zero point or multiplier is out of range, or memory cannot be allocated.
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
        let (segments, len, _) = segments(geo, filter.groups);
        let columns = filter.out_channels / filter.groups;
        let groups = filter.groups;
        let parts = Parts { groups, columns, segments, len, weights, weight_quant, bias, input, output };
        let packed = PackedI8::pack(isa, &parts)?;
        let mut blank = AlignedVec::zeroed(product("filter", &[filter.width, filter.in_channels])?)?;
        blank.as_mut_slice().fill(input.zero_byte()?);
        Ok(Self { filter, packed, blank })
    }

    fn extent(&self, geo: &ConvGeometry) -> Result<Extent> {
        self.filter.check(geo)?;
        let (segments, len, patch_len) = segments(geo, self.filter.groups);
        if (segments, len) != (self.packed.segments, self.packed.len) {
            return Err(ComputeError::Range { what: "dilation" });
        }
        Ok(self.packed.extent(geo.pixels()?, patch_len))
    }

    /// Returns the bytes of scratch that a convolution needs.
    ///
    /// # Errors
    /// Fails if the geometry does not match the filter or is out of range.
    pub fn scratch_len(&self, geo: &ConvGeometry, threads: usize) -> Result<usize> {
        tiles::scratch_len::<u8>(&self.extent(geo)?, threads)
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
        check_len("output", out.len(), product("output", &[geo.pixels()?, self.filter.out_channels])?)?;
        let requant =
            self.packed.requant.as_ref().ok_or(ComputeError::Range { what: "quantization of the output" })?;
        self.drive(geo, input, Target::Bytes(SharedMut::new(out), requant), scratch, par)
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
        check_len("output", out.len(), product("output", &[geo.pixels()?, self.filter.out_channels])?)?;
        self.drive(geo, input, Target::Sums(SharedMut::new(out)), scratch, par)
    }

    fn drive(
        &self,
        geo: &ConvGeometry,
        input: &[u8],
        target: Target<'_>,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        self.drive_padded(geo, input, self.blank.as_slice(), target, scratch, par)
    }

    /// Returns the length of the `padding` of [`ConvI8::run_sums_padded`].
    pub fn padding_len(&self) -> usize {
        self.blank.as_slice().len()
    }

    /// Like [`ConvI8::run_sums`], with padding that reads `padding`: [`ConvI8::padding_len`] equal bytes.
    ///
    /// # Errors
    /// Fails if the geometry does not match the filter or an operand has the wrong length.
    #[allow(clippy::too_many_arguments, reason = "one argument per operand")]
    pub fn run_sums_padded(
        &self,
        geo: &ConvGeometry,
        input: &[u8],
        padding: &[u8],
        out: &mut [i32],
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        check_len("output", out.len(), product("output", &[geo.pixels()?, self.filter.out_channels])?)?;
        check_len("padding", padding.len(), self.padding_len())?;
        self.drive_padded(geo, input, padding, Target::Sums(SharedMut::new(out)), scratch, par)
    }

    fn drive_padded(
        &self,
        geo: &ConvGeometry,
        input: &[u8],
        padding: &[u8],
        target: Target<'_>,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let extent = self.extent(geo)?;
        check_len("input", input.len(), geo.input_len()?)?;
        if geo.is_dense() && self.filter.groups == 1 {
            let rows = DenseRows { data: input, len: geo.in_channels };
            return self.packed.drive(&extent, &rows, target, scratch, par);
        }
        let rows = WindowRows::new(*geo, input, self.filter.groups, padding);
        self.packed.drive(&extent, &rows, target, scratch, par)
    }
}
