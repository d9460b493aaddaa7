//! Geometry of convolutions, and CONV_2D in single precision.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::compute::base::buffer::AlignedVec;
use crate::compute::base::clamp::Clamp;
use crate::compute::base::error::{ComputeError, Result, check_len, product};
use crate::compute::base::isa::Isa;
use crate::compute::matmul::gemm::{DenseRows, MatrixLayout, PackedF32};
use crate::compute::matmul::tiles::{self, Extent, Rows};

/// Shape of a filter, `[out_channels, height, width, in_channels / groups]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Output channels, of all groups.
    pub out_channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Input channels of each output channel.
    pub in_channels: usize,
    /// Number of groups; divides the output channels.
    pub groups: usize,
}

impl Filter {
    /// Checks that the filter is well formed, and that the geometry is in range and matches it.
    pub(crate) fn check(&self, geo: &ConvGeometry) -> Result<()> {
        if self.groups == 0 || !self.out_channels.is_multiple_of(self.groups) {
            return Err(ComputeError::Range { what: "groups" });
        }
        geo.check()?;
        if geo.window != [self.height, self.width] {
            return Err(ComputeError::Range { what: "window" });
        }
        if Some(geo.in_channels) != self.in_channels.checked_mul(self.groups) {
            return Err(ComputeError::Range { what: "input channels" });
        }
        Ok(())
    }
}

/// Shape of a depthwise filter, `[1, height, width, channels]`. Output channel `c` reads input channel `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthwiseFilter {
    /// Channels of input and output.
    pub channels: usize,
    /// Height and width.
    pub window: [usize; 2],
}

/// Position of a filter's window for each output pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvGeometry {
    /// Images.
    pub batch: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Channels of the input.
    pub in_channels: usize,
    /// Height and width of the output.
    pub output: [usize; 2],
    /// Height and width of the window.
    pub window: [usize; 2],
    /// Distance of neighbouring output pixels in the input, `[down, across]`.
    pub stride: [usize; 2],
    /// Distance of neighbouring taps in the input, `[down, across]`; at least 1.
    pub dilation: [usize; 2],
    /// Padding above and to the left. Padding below and to the right follows from the output size.
    pub padding: [usize; 2],
}

/// Exclusive bound of dimensions: sums and products of two of them fit an `isize`.
const MAX_DIM: usize = 1 << 30;

impl ConvGeometry {
    /// Elements of the input.
    pub(crate) fn input_len(&self) -> Result<usize> {
        product("input", &[self.batch, self.input[0], self.input[1], self.in_channels])
    }

    /// Output pixels of all images.
    pub(crate) fn pixels(&self) -> Result<usize> {
        product("output", &[self.batch, self.output[0], self.output[1]])
    }

    /// Checks that all dimensions are in range.
    pub(crate) fn check(&self) -> Result<()> {
        let fields = [
            ("batch", [self.batch, 1]),
            ("input size", self.input),
            ("input channels", [self.in_channels, 1]),
            ("output size", self.output),
            ("window", self.window),
            ("stride", self.stride),
            ("dilation", self.dilation),
            ("padding", self.padding),
        ];
        for (what, values) in fields {
            let zero_is_wrong = matches!(what, "window" | "stride" | "dilation");
            if values.iter().any(|&v| v > MAX_DIM || (v == 0 && zero_is_wrong)) {
                return Err(ComputeError::Range { what });
            }
        }
        // Offset of the last tap of the last output pixel.
        for axis in 0..2 {
            let reach = |a: usize, b: usize| a.checked_mul(b).filter(|&r| r <= isize::MAX as usize / 4);
            reach(self.output[axis], self.stride[axis])
                .and_then(|_| reach(self.window[axis], self.dilation[axis]))
                .ok_or(ComputeError::Range { what: "window" })?;
        }
        self.input_len()?;
        self.pixels()?;
        Ok(())
    }

    /// First input row or column (by `axis`) of an output pixel's window; negative in the padding.
    #[inline]
    pub(crate) fn origin(&self, axis: usize, out: usize) -> isize {
        (out * self.stride[axis]) as isize - self.padding[axis] as isize
    }

    /// Returns whether each output pixel is a product of the one input pixel at the same position.
    pub(crate) fn is_dense(&self) -> bool {
        self.window == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0] && self.input == self.output
    }

    /// Output columns whose windows are inside the input horizontally.
    #[inline]
    pub(crate) fn interior(&self) -> Range<usize> {
        let start = self.padding[1].div_ceil(self.stride[1]).min(self.output[1]);
        let reach = (self.window[1] - 1) * self.dilation[1] + 1;
        let room = (self.input[1] + self.padding[1]).checked_sub(reach);
        let end = room.map_or(0, |r| r / self.stride[1] + 1).min(self.output[1]);
        start..end.max(start)
    }

    /// Returns whether a window is entirely padding.
    pub(crate) fn has_empty_window(&self) -> bool {
        let empty =
            |axis: usize| (0..self.output[axis]).any(|o| self.taps(axis, self.origin(axis, o)).is_empty());
        self.output.iter().all(|&o| o > 0) && (empty(0) || empty(1))
    }

    /// Taps along an axis that are inside the input, for a window that begins at `origin`.
    #[inline]
    pub(crate) fn taps(&self, axis: usize, origin: isize) -> Range<usize> {
        let step = self.dilation[axis];
        let from = if origin < 0 { origin.unsigned_abs().div_ceil(step) } else { 0 };
        let room = (self.input[axis] as isize - origin).max(0) as usize;
        let to = room.div_ceil(step).min(self.window[axis]);
        from.min(to)..to
    }
}

/// Input windows of a convolution as rows of a product.
pub(crate) struct WindowRows<'a, T> {
    geo: ConvGeometry,
    data: &'a [T],
    /// Channels of a group.
    channels: usize,
    /// The content of padding: at least one segment.
    blank: &'a [T],
    merged: bool,
    /// Output columns whose windows are inside the input.
    interior: Range<usize>,
}

impl<'a, T: Copy> WindowRows<'a, T> {
    pub(crate) fn new(geo: ConvGeometry, data: &'a [T], groups: usize, blank: &'a [T]) -> Self {
        let channels = geo.in_channels.checked_div(groups).unwrap_or(0);
        Self { geo, data, channels, blank, merged: merged(&geo, groups), interior: geo.interior() }
    }
}

/// Whether a row of a window's taps is contiguous in memory, except at the left and right edge.
fn merged(geo: &ConvGeometry, groups: usize) -> bool {
    groups == 1 && (geo.dilation[1] == 1 || geo.window[1] == 1)
}

/// Returns the number of segments of a window, elements per segment, and elements of a window's patch.
pub(crate) fn segments(geo: &ConvGeometry, groups: usize) -> (usize, usize, usize) {
    let channels = geo.in_channels.checked_div(groups).unwrap_or(0);
    let [height, width] = geo.window;
    if !merged(geo, groups) {
        return (height * width, channels, 0);
    }
    let last = geo.output[1].saturating_sub(1) * geo.stride[1];
    let edges = geo.padding[1] > 0 || last + width > geo.input[1] + geo.padding[1];
    let len = width * channels;
    (height, len, if edges && width > 1 { height * len } else { 0 })
}

impl<T: bytemuck::Pod + Sync> Rows for WindowRows<'_, T> {
    type In = T;

    fn fill(&self, group: usize, first: usize, count: usize, table: &mut [usize], patch: &mut [T]) {
        let [out_h, out_w] = self.geo.output;
        let (mut x, mut y, mut image) = (first % out_w, first / out_w % out_h, first / out_w / out_h);
        let patch_len = patch.len() / count.max(1);
        // Runs of pixels in one output row.
        let mut done = 0;
        while done < count {
            let run = (out_w - x).min(count - done);
            if self.merged {
                let patch = &mut patch[done * patch_len..(done + run) * patch_len];
                self.fill_merged(image, y, x..x + run, (done, count), table, patch);
            } else {
                for i in 0..run {
                    self.fill_taps(image, y, x + i, group, table[done + i..].iter_mut().step_by(count));
                }
            }
            done += run;
            (x, y) = (0, y + 1);
            if y == out_h {
                (y, image) = (0, image + 1);
            }
        }
    }
}

impl<T: bytemuck::Pod + Sync> WindowRows<'_, T> {
    /// One segment per row of the window, for neighbouring pixels.
    fn fill_merged(
        &self,
        image: usize,
        y: usize,
        pixels: Range<usize>,
        (done, count): (usize, usize),
        table: &mut [usize],
        patch: &mut [T],
    ) {
        let g = &self.geo;
        let y0 = g.origin(0, y);
        let len = g.window[1] * g.in_channels;
        let patch_len = patch.len() / pixels.len().max(1);
        for (ky, table) in table.chunks_exact_mut(count).enumerate() {
            let table = &mut table[done..done + pixels.len()];
            let row = y0 + (ky * g.dilation[0]) as isize;
            if row < 0 || row >= g.input[0] as isize {
                table.fill(self.blank.as_ptr().expose_provenance());
                continue;
            }
            let row_len = g.input[1] * g.in_channels;
            let at = (image * g.input[0] + row as usize) * row_len;
            let row = &self.data[at..at + row_len];
            for (i, entry) in table.iter_mut().enumerate() {
                let x = pixels.start + i;
                *entry = if self.interior.contains(&x) {
                    let column = x * g.stride[1] - g.padding[1];
                    row[column * g.in_channels..][..len].as_ptr().expose_provenance()
                } else {
                    self.edge(row, g.origin(1, x), &mut patch[i * patch_len..], ky * len)
                };
            }
        }
    }

    /// A segment that crosses the left or right edge: a copy with padding.
    fn edge(&self, row: &[T], x0: isize, patch: &mut [T], at: usize) -> usize {
        let g = &self.geo;
        let taps = g.taps(1, x0);
        if taps.is_empty() {
            return self.blank.as_ptr().expose_provenance();
        }
        let column = (x0 + taps.start as isize) as usize;
        let present = &row[column * g.in_channels..(column + taps.len()) * g.in_channels];
        let patch = &mut patch[at..at + g.window[1] * g.in_channels];
        let (left, rest) = patch.split_at_mut(taps.start * g.in_channels);
        let (middle, right) = rest.split_at_mut(present.len());
        left.copy_from_slice(&self.blank[..left.len()]);
        middle.copy_from_slice(present);
        right.copy_from_slice(&self.blank[..right.len()]);
        patch.as_ptr().expose_provenance()
    }

    /// One segment per tap.
    fn fill_taps<'t>(
        &self,
        image: usize,
        y: usize,
        x: usize,
        group: usize,
        mut table: impl Iterator<Item = &'t mut usize>,
    ) {
        let g = &self.geo;
        let (y0, x0) = (g.origin(0, y), g.origin(1, x));
        for ky in 0..g.window[0] {
            let row = y0 + (ky * g.dilation[0]) as isize;
            for kx in 0..g.window[1] {
                let Some(entry) = table.next() else { return };
                let column = x0 + (kx * g.dilation[1]) as isize;
                let outside =
                    row < 0 || row >= g.input[0] as isize || column < 0 || column >= g.input[1] as isize;
                *entry = if outside {
                    self.blank.as_ptr().expose_provenance()
                } else {
                    let pixel = (image * g.input[0] + row as usize) * g.input[1] + column as usize;
                    let at = pixel * g.in_channels + group * self.channels;
                    self.data[at..at + self.channels].as_ptr().expose_provenance()
                };
            }
        }
    }
}

/// CONV_2D with a packed filter and fused bias and clamp.
pub struct ConvF32 {
    filter: Filter,
    packed: PackedF32,
    zeros: AlignedVec<f32>,
}

impl ConvF32 {
    /// Packs a filter `[out_channels, height, width, in_channels / groups]`; `bias` is `[out_channels]`.
    ///
    /// # Errors
    /// Fails if lengths do not match, a dimension is zero or memory cannot be allocated.
    pub fn pack(isa: Isa, filter: Filter, weights: &[f32], bias: Option<&[f32]>) -> Result<Self> {
        let Filter { out_channels, height, width, in_channels, groups } = filter;
        if groups == 0 || !out_channels.is_multiple_of(groups) {
            return Err(ComputeError::Range { what: "groups" });
        }
        let k = product("filter", &[height, width, in_channels])?;
        let shape = (groups, k, out_channels / groups);
        let packed = PackedF32::pack(isa, shape, weights, MatrixLayout::ColumnsContiguous, bias)?;
        let zeros = AlignedVec::zeroed(product("filter", &[width, in_channels])?)?;
        Ok(Self { filter, packed, zeros })
    }

    fn extent(&self, geo: &ConvGeometry) -> Result<Extent> {
        self.filter.check(geo)?;
        let (segments, _, patch_len) = segments(geo, self.filter.groups);
        Ok(self.packed.extent(geo.pixels()?, segments, patch_len))
    }

    /// Returns the bytes of scratch that [`ConvF32::run`] needs.
    ///
    /// # Errors
    /// Fails if the geometry does not match the filter or is out of range.
    pub fn scratch_len(&self, geo: &ConvGeometry, threads: usize) -> Result<usize> {
        tiles::scratch_len::<f32>(&self.extent(geo)?, threads)
    }

    /// Convolves `input` `[batch, height, width, in_channels]` into `out` `[batch, height, width, out_channels]`.
    ///
    /// # Errors
    /// Fails if the geometry does not match the filter, or an operand has the wrong length.
    pub fn run(
        &self,
        geo: &ConvGeometry,
        input: &[f32],
        out: &mut [f32],
        clamp: Clamp,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let extent = self.extent(geo)?;
        check_len("input", input.len(), geo.input_len()?)?;
        check_len("output", out.len(), product("output", &[geo.pixels()?, self.filter.out_channels])?)?;
        let view = self.packed.view(extent.segments, clamp, out, self.filter.out_channels);
        if geo.is_dense() && self.filter.groups == 1 {
            let rows = DenseRows { data: input, len: geo.in_channels };
            return tiles::drive(&extent, &rows, &view, scratch, par);
        }
        let rows = WindowRows::new(*geo, input, self.filter.groups, self.zeros.as_slice());
        tiles::drive(&extent, &rows, &view, scratch, par)
    }
}
