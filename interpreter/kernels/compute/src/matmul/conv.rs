//! Windows of convolutions as rows of a product, and CONV_2D in single precision.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::{AlignedVec, carve, scratch_bytes};
use crate::base::clamp::Clamp;
use crate::base::error::{ComputeError, Result, check_len, product};
use crate::base::isa::Isa;
use crate::matmul::copies::{STEP, copy_rows, copy_short};
use crate::matmul::gemm::{DenseRows, MatrixLayout, PackedF32};
use crate::matmul::geometry::{ConvGeometry, Filter, Reading};
use crate::matmul::tiles::{self, Extent, Rows, TileKernel, Tiling};

/// Maximum number of bytes of an input that is copied with its padding because of its edges. In a small image many
/// windows cross an edge, and their segments would be copied one by one.
const MAX_PADDED: usize = 64 << 10;

/// A copy of the input with padding to the left and right.
#[derive(Clone, Copy, Debug)]
struct Padded {
    /// Rows of all images.
    rows: usize,
    /// Elements of padding to the left, of the row, and of padding to the right.
    row: [usize; 3],
    /// Elements after the copy that windows may read.
    beyond: usize,
    /// Bytes of scratch.
    scratch: usize,
}

impl Padded {
    /// Returns the copy for a reading, and the geometry of windows over it. `None` for inputs that are read in place:
    /// tap by tap, or because windows do not cross the left or right edge, or because the input is large. Also `None`
    /// if a size overflows.
    fn new<T>(geo: &ConvGeometry, reading: Reading) -> Option<(Self, ConvGeometry)> {
        let beyond = match reading {
            Reading::Taps => return None,
            Reading::Rows | Reading::Copies(_) => 0,
            Reading::Padded(read) => read.checked_sub(geo.window[1] * geo.in_channels)?,
        };
        let last =
            geo.output[1].saturating_sub(1) * geo.stride[1] + (geo.window[1] - 1) * geo.dilation[1] + 1;
        let (left, width) = (geo.padding[1], geo.input[1]);
        let right = last.saturating_sub(left + width);
        let padded = left + width + right;
        let rows = geo.batch.checked_mul(geo.input[0])?;
        let len = rows.checked_mul(padded.checked_mul(geo.in_channels)?)?;
        let optional = !matches!(reading, Reading::Padded(_));
        if optional && ((left, right) == (0, 0) || len.checked_mul(size_of::<T>())? > MAX_PADDED) {
            return None;
        }
        let row = [left, width, right].map(|pixels| pixels * geo.in_channels);
        let copy = ConvGeometry { input: [geo.input[0], padded], padding: [geo.padding[0], 0], ..*geo };
        Some((Padded { rows, row, beyond, scratch: scratch_bytes::<T>(len.checked_add(beyond)?)? }, copy))
    }

    /// Copies `input` to the front of `scratch`, with padding that holds `blank`. Returns the copy and the rest.
    fn fill<'s, T: bytemuck::Pod>(
        &self,
        input: &[T],
        blank: &[T],
        mut scratch: &'s mut [u8],
    ) -> Result<(&'s [T], &'s mut [u8])> {
        let [left, width, right] = self.row;
        let (needed, got) = (self.scratch, scratch.len());
        let short = ComputeError::Length { what: "scratch", needed, got };
        let len = self.rows * (left + width + right) + self.beyond;
        let copy = carve::<T>(&mut scratch, len).ok_or(short)?;
        let Some(&zero) = blank.first().filter(|_| width > 0) else { return Ok((copy, scratch)) };
        for (to, from) in copy.chunks_exact_mut(left + width + right).zip(input.chunks_exact(width)) {
            to[..left].fill(zero);
            to[left..left + width].copy_from_slice(from);
            to[left + width..].fill(zero);
        }
        Ok((copy, scratch))
    }
}

/// Maximum number of bytes of addresses that are kept between runs.
const MAX_KEPT: usize = 64 << 10;
/// Maximum number of bytes of packed weights of a group for which addresses are kept: with more, the products take much
/// longer than the addresses.
const MAX_KEPT_PACKED: usize = 64 << 10;

/// The addresses of all windows, kept between runs.
#[derive(Debug)]
struct Kept {
    table: AlignedVec<usize>,
    /// The addresses of the input and of the padding that they are computed from.
    of: Option<[usize; 2]>,
}

/// The windows of a convolution, checked and divided into tiles.
#[derive(Debug)]
pub struct ConvPlan {
    /// The geometry of windows over the padded copy, if there is one.
    geo: ConvGeometry,
    padded: Option<Padded>,
    filter: Filter,
    reading: Reading,
    tiling: Tiling,
    input_len: usize,
    output_len: usize,
    /// Output columns whose windows are inside the input.
    interior: Range<usize>,
    kept: Option<Kept>,
}

impl ConvPlan {
    /// Plans windows over input elements of type `T`. `extent` receives the number of rows, of segments, and of elements
    /// of a patch.
    ///
    /// # Errors
    /// Fails if the geometry does not match the filter or the reading, or is out of range, or a size overflows.
    pub(crate) fn new<T>(
        (filter, geo): (Filter, &ConvGeometry),
        reading: Reading,
        threads: usize,
        extent: impl FnOnce(usize, usize, usize) -> Extent,
    ) -> Result<Self> {
        filter.check(geo)?;
        let in_place = Reading::in_place(geo, filter.groups);
        let copies = matches!(reading, Reading::Copies(_) | Reading::Padded(_)) && in_place == Reading::Rows;
        if reading != in_place && !copies {
            return Err(ComputeError::Range { what: "dilation" });
        }
        let input_len = geo.input_len()?;
        let copied = Padded::new::<T>(geo, reading);
        if copied.is_none() && matches!(reading, Reading::Padded(_)) {
            return Err(ComputeError::TooLarge { what: "copy of the input" });
        }
        let (padded, geo) = copied.map_or((None, *geo), |(padded, geo)| (Some(padded), geo));
        let (segments, _) = reading.segments(&geo, filter.groups);
        let extent = extent(geo.pixels()?, segments, reading.patch_len(&geo));
        Ok(Self {
            geo,
            padded,
            filter,
            reading,
            tiling: Tiling::new::<T>(extent, threads)?,
            input_len,
            output_len: product("output", &[geo.pixels()?, filter.out_channels])?,
            interior: geo.interior(1),
            kept: None,
        })
    }

    /// Keeps the addresses of windows between runs on the same memory, if computing them takes a noticeable part of a run.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn keep_addresses(mut self) -> Result<Self> {
        let e = self.tiling.extent();
        let entries = e.rows.saturating_mul(e.segments);
        let small = entries <= MAX_KEPT / size_of::<usize>() && e.packed_bytes <= MAX_KEPT_PACKED;
        if small && e.groups == 1 && e.patch_len == 0 && !self.geo.is_dense() {
            self.kept = Some(Kept { table: AlignedVec::zeroed(entries)?, of: None });
        }
        Ok(self)
    }

    /// Returns the bytes of scratch that the convolution needs.
    pub fn scratch_len(&self) -> usize {
        self.tiling.scratch_len() + self.padded.map_or(0, |padded| padded.scratch)
    }

    /// Output pixels of all images.
    pub(crate) fn pixels(&self) -> usize {
        self.tiling.extent().rows
    }

    /// Checks that the plan is that of a filter that is read in this way.
    ///
    /// # Errors
    /// Fails if the filter, the reading or a size differs.
    #[inline]
    pub(crate) fn check(
        &self,
        filter: &Filter,
        reading: Reading,
        extent: impl FnOnce(usize, usize, usize) -> Extent,
    ) -> Result<()> {
        let planned = self.tiling.extent();
        if (*filter, reading) != (self.filter, self.reading) {
            return Err(ComputeError::Range { what: "plan: it is that of another product" });
        }
        extent(planned.rows, planned.segments, planned.patch_len).check(planned)
    }

    /// Computes all tiles of windows over `input`, whose padding reads `blank`: at least a row of the window.
    ///
    /// # Errors
    /// Fails if an operand has the wrong length.
    pub(crate) fn drive<T: bytemuck::Pod + Sync>(
        &mut self,
        input: &[T],
        blank: &[T],
        kernel: &impl TileKernel<T>,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        check_len("input", input.len(), self.input_len)?;
        let (input, scratch) = match &self.padded {
            Some(padded) => padded.fill(input, blank, scratch)?,
            None => (input, scratch),
        };
        if self.geo.is_dense() && self.filter.groups == 1 {
            let rows = DenseRows { data: input, len: self.geo.in_channels };
            return tiles::drive(&self.tiling, &rows, kernel, None, scratch, par);
        }
        let mut kept = self.kept.take();
        let rows = WindowRows { plan: self, data: input, channels: self.filter.in_channels, blank };
        if let Some(kept) = &mut kept {
            // Exposed in each run: the memory may be another allocation at the same address.
            let of = [input.as_ptr().expose_provenance(), blank.as_ptr().expose_provenance()];
            if kept.of != Some(of) {
                self.tiling.fill(&rows, kept.table.as_mut_slice());
                kept.of = Some(of);
            }
        }
        let table = kept.as_ref().map(|kept| kept.table.as_slice());
        let done = tiles::drive(&self.tiling, &rows, kernel, table, scratch, par);
        self.kept = kept;
        done
    }
}

/// Input windows of a convolution as rows of a product.
struct WindowRows<'a, T> {
    plan: &'a ConvPlan,
    data: &'a [T],
    /// Channels of a group.
    channels: usize,
    /// The content of padding: at least a row of the window.
    blank: &'a [T],
}

/// An output pixel.
struct Pixel {
    x: usize,
    y: usize,
    image: usize,
}

impl<T: bytemuck::Pod + Sync> Rows for WindowRows<'_, T> {
    type In = T;
    type Position = Pixel;

    fn position(&self, row: usize) -> Pixel {
        let [out_h, out_w] = self.plan.geo.output;
        if row < out_w {
            return Pixel { x: row, y: 0, image: 0 };
        }
        Pixel { x: row % out_w, y: row / out_w % out_h, image: row / out_w / out_h }
    }

    fn fill(&self, group: usize, at: &mut Pixel, count: usize, table: &mut [usize], patch: &mut [T]) {
        let [out_h, out_w] = self.plan.geo.output;
        let patch_len = self.plan.tiling.extent().patch_len;
        // Runs of pixels in one output row.
        let mut done = 0;
        while done < count {
            let run = (out_w - at.x).min(count - done);
            let pixels = at.x..at.x + run;
            match self.plan.reading {
                Reading::Rows | Reading::Padded(_) if self.inner(&pixels) == pixels => {
                    self.fill_inner((at.image, at.y), pixels, (done, count), table);
                }
                Reading::Rows | Reading::Padded(_) => {
                    let patch = &mut patch[done * patch_len..][..run * patch_len];
                    self.fill_rows((at.image, at.y), pixels, (done, count), table, patch);
                }
                Reading::Taps => {
                    for (i, x) in pixels.enumerate() {
                        let table = table[done + i..].iter_mut().step_by(count);
                        self.fill_taps(at.image, at.y, x, group, table);
                    }
                }
                Reading::Copies(_) => {
                    let patch = &mut patch[done * patch_len..];
                    let mut address = patch.as_ptr().expose_provenance();
                    for entry in &mut table[done..][..run] {
                        *entry = address;
                        address += patch_len * size_of::<T>();
                    }
                    self.copy_windows((at.image, at.y), pixels, patch_len, patch);
                }
            }
            done += run;
            at.x += run;
            if at.x == out_w {
                (at.x, at.y) = (0, at.y + 1);
                if at.y == out_h {
                    (at.y, at.image) = (0, at.image + 1);
                }
            }
        }
    }
}

impl<T: bytemuck::Pod + Sync> WindowRows<'_, T> {
    /// Row `y` of an image; `None` outside of it.
    #[inline]
    fn row(&self, image: usize, y: isize) -> Option<&[T]> {
        let g = &self.plan.geo;
        if y < 0 || y.cast_unsigned() >= g.input[0] {
            return None;
        }
        let len = g.input[1] * g.in_channels;
        let at = (image * g.input[0] + y.cast_unsigned()) * len;
        Some(&self.data[at..at + len])
    }

    /// The pixels whose windows are inside the input horizontally.
    #[inline]
    fn inner(&self, pixels: &Range<usize>) -> Range<usize> {
        let start = self.plan.interior.start.clamp(pixels.start, pixels.end);
        start..self.plan.interior.end.clamp(start, pixels.end)
    }

    /// One segment per row of the window, for neighbouring pixels whose windows do not cross an edge to the left or right.
    #[inline]
    fn fill_inner(
        &self,
        (image, y): (usize, usize),
        pixels: Range<usize>,
        (done, count): (usize, usize),
        table: &mut [usize],
    ) {
        let g = &self.plan.geo;
        let (line, step) = (g.input[1] * g.in_channels, g.stride[1] * g.in_channels);
        let first = (pixels.start * g.stride[1] - g.padding[1]) * g.in_channels;
        let end = first + (pixels.len() - 1) * step + g.window[1] * g.in_channels;
        // The copy ends with as many elements as segments may read beyond a window.
        let beyond = self.plan.padded.map_or(0, |padded| padded.beyond);
        let images = (image + 1) * g.input[0] * line;
        assert!(end <= line && images + beyond <= self.data.len(), "windows are inside rows");
        let (start, blank) =
            (self.data.as_ptr().expose_provenance(), self.blank.as_ptr().expose_provenance());
        let mut row = g.origin(0, y);
        for ky in 0..g.window[0] {
            let entries = &mut table[ky * count + done..][..pixels.len()];
            if row < 0 || row.cast_unsigned() >= g.input[0] {
                entries.fill(blank);
            } else {
                let at = (image * g.input[0] + row.cast_unsigned()) * line + first;
                let mut address = start + at * size_of::<T>();
                for entry in entries {
                    *entry = address;
                    address += step * size_of::<T>();
                }
            }
            row += g.dilation[0].cast_signed();
        }
    }

    /// One segment per row of the window, for neighbouring pixels.
    fn fill_rows(
        &self,
        (image, y): (usize, usize),
        pixels: Range<usize>,
        (done, count): (usize, usize),
        table: &mut [usize],
        patch: &mut [T],
    ) {
        let g = &self.plan.geo;
        let inner = self.inner(&pixels);
        let patch_len = self.plan.tiling.extent().patch_len;
        let (len, step) = (g.window[1] * g.in_channels, g.stride[1] * g.in_channels);
        let y0 = g.origin(0, y);
        for ky in 0..g.window[0] {
            let table = &mut table[ky * count + done..][..pixels.len()];
            let Some(row) = self.row(image, y0 + (ky * g.dilation[0]).cast_signed()) else {
                table.fill(self.blank.as_ptr().expose_provenance());
                continue;
            };
            if !inner.is_empty() {
                let first = (inner.start * g.stride[1] - g.padding[1]) * g.in_channels;
                let windows = &row[first..first + (inner.len() - 1) * step + len];
                let mut address = windows.as_ptr().expose_provenance();
                for entry in &mut table[inner.start - pixels.start..inner.end - pixels.start] {
                    *entry = address;
                    address += step * size_of::<T>();
                }
            }
        }
        // Segments that cross the left or right edge are copies with padding.
        let rows = g.taps(0, y0);
        for x in (pixels.start..inner.start).chain(inner.end..pixels.end) {
            let i = x - pixels.start;
            let at = i * patch_len;
            let x0 = g.origin(1, x);
            let taps = g.taps(1, x0);
            for ky in rows.clone() {
                let entry = &mut table[ky * count + done + i];
                if taps.is_empty() {
                    *entry = self.blank.as_ptr().expose_provenance();
                    continue;
                }
                let y = y0 + (ky * g.dilation[0]).cast_signed();
                let from = self.element(image, y, x0 + taps.start.cast_signed());
                self.copy_edge(from, &taps, patch, at + ky * len);
                *entry = patch[at + ky * len..].as_ptr().expose_provenance();
            }
        }
    }

    /// Position of the first channel of a pixel that is inside the input.
    #[inline]
    fn element(&self, image: usize, y: isize, x: isize) -> usize {
        let g = &self.plan.geo;
        ((image * g.input[0] + y.cast_unsigned()) * g.input[1] + x.cast_unsigned()) * g.in_channels
    }

    /// Copies the taps of a window's row, with padding on both sides. May leave other values after it.
    #[inline]
    fn copy_edge(&self, from: usize, taps: &Range<usize>, patch: &mut [T], to: usize) {
        let g = &self.plan.geo;
        let (left, present) = (taps.start * g.in_channels, taps.len() * g.in_channels);
        self.pad(patch, to, left);
        copy_short(self.data, from, patch, to + left, present);
        self.pad(patch, to + left + present, (g.window[1] - taps.end) * g.in_channels);
    }

    /// Copies of whole windows, for neighbouring pixels. Each may leave other values after it, in the memory of the next.
    fn copy_windows(
        &self,
        (image, y): (usize, usize),
        pixels: Range<usize>,
        patch_len: usize,
        patch: &mut [T],
    ) {
        let g = &self.plan.geo;
        let inner = self.inner(&pixels);
        let [height, width] = g.window;
        let (len, y0) = (width * g.in_channels, g.origin(0, y));
        let rows = g.taps(0, y0);
        let down = g.dilation[0] * g.input[1] * g.in_channels;
        let first_row = y0 + (rows.start * g.dilation[0]).cast_signed();
        for (i, x) in pixels.enumerate() {
            let x0 = g.origin(1, x);
            let whole = inner.contains(&x);
            let taps = if whole { 0..width } else { g.taps(1, x0) };
            let rows = if taps.is_empty() { 0..0 } else { rows.clone() };
            let to = i * patch_len;
            let mut from = if rows.is_empty() {
                0
            } else {
                self.element(image, first_row, x0 + taps.start.cast_signed())
            };
            if whole && rows.len() == height {
                copy_rows(self.data, (from, down), patch, (to, len), height);
                continue;
            }
            for ky in 0..height {
                if rows.contains(&ky) {
                    self.copy_edge(from, &taps, patch, to + ky * len);
                    from += down;
                } else {
                    self.pad(patch, to + ky * len, len);
                }
            }
        }
    }

    /// Writes `len` elements of padding, and more where there is room.
    #[inline]
    fn pad(&self, to: &mut [T], at: usize, len: usize) {
        let Some(&zero) = self.blank.first().filter(|_| len > 0) else { return };
        let to = &mut to[at..];
        if const { size_of::<T>() == 1 } && len <= STEP && to.len() >= STEP {
            // SAFETY: the slice has at least `STEP` elements.
            unsafe { to.as_mut_ptr().cast::<[T; STEP]>().write_unaligned([zero; STEP]) };
        } else {
            to[..len].fill(zero);
        }
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
        let g = &self.plan.geo;
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
    /// Fails if lengths do not match, the groups do not divide the output channels, or memory cannot be allocated.
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

    /// Plans the convolution of inputs and outputs of these sizes.
    ///
    /// # Errors
    /// Fails if the geometry does not match the filter or is out of range.
    pub fn plan(&self, geo: &ConvGeometry, threads: usize) -> Result<ConvPlan> {
        let reading = Reading::in_place(geo, self.filter.groups);
        let extent = |rows, segments, patch_len| self.packed.extent(rows, segments, patch_len);
        ConvPlan::new::<f32>((self.filter, geo), reading, threads, extent)
    }

    /// Returns the bytes of scratch that [`ConvF32::run`] needs.
    ///
    /// # Errors
    /// As [`ConvF32::plan`].
    pub fn scratch_len(&self, geo: &ConvGeometry, threads: usize) -> Result<usize> {
        Ok(self.plan(geo, threads)?.scratch_len())
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
        self.run_planned(&mut self.plan(geo, par.threads())?, input, out, clamp, scratch, par)
    }

    /// As [`ConvF32::run`], for the geometry of a plan.
    ///
    /// # Errors
    /// Fails if an operand has the wrong length, or the plan belongs to another convolution.
    pub fn run_planned(
        &self,
        plan: &mut ConvPlan,
        input: &[f32],
        out: &mut [f32],
        clamp: Clamp,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let extent = |rows, segments, patch_len| self.packed.extent(rows, segments, patch_len);
        plan.check(&self.filter, plan.reading, extent)?;
        check_len("output", out.len(), plan.output_len)?;
        let view = self.packed.view(plan.tiling.extent().segments, clamp, out, self.filter.out_channels);
        plan.drive(input, self.zeros.as_slice(), &view, scratch, par)
    }
}
