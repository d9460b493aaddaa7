//! Single-precision matrix products with constant right-hand sides, which are packed once, and with variable ones.

use delegraph_core::kernel::Parallel;

use crate::base::buffer::{AlignedVec, SharedMut, carve, scratch_bytes};
use crate::base::clamp::Clamp;
use crate::base::error::{ComputeError, Result, check_len, product};
use crate::base::isa::Isa;
use crate::matmul::gemm_f32::{Kernels, PanelF32, TileFn};
use crate::matmul::tiles::{self, Extent, Panels, Rows, TileKernel, Tiling};

/// Memory layout of a matrix `B[k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixLayout {
    /// `n` runs of `k` elements: weights of FULLY_CONNECTED and CONV_2D, `adj_y` of BATCH_MATMUL.
    ColumnsContiguous,
    /// `k` runs of `n` elements.
    RowsContiguous,
}

/// Packs one matrix into panels: each panel has `k` runs of its width, with zeros for missing columns.
fn pack_panel(
    panels: &Panels,
    index: usize,
    k: usize,
    n: usize,
    b: &[f32],
    layout: MatrixLayout,
    packed: &mut [f32],
) {
    let panel = panels.get(index);
    let width = panel.vectors * panels.lanes;
    if width == 0 || k == 0 {
        return;
    }
    match layout {
        MatrixLayout::RowsContiguous => {
            for (to, from) in packed.chunks_exact_mut(width).zip(b.chunks_exact(n)) {
                to[..panel.columns].copy_from_slice(&from[panel.first..panel.first + panel.columns]);
                to[panel.columns..].fill(0.0);
            }
        }
        MatrixLayout::ColumnsContiguous => {
            let columns = &b[panel.first * k..(panel.first + panel.columns) * k];
            // In steps, so that the written lines stay in the cache until they are complete.
            const STEP: usize = 16;
            for (step, to) in packed.chunks_mut(width * STEP).enumerate() {
                for (c, from) in columns.chunks_exact(k).enumerate() {
                    for (i, &x) in from[step * STEP..].iter().take(STEP).enumerate() {
                        to[i * width + c] = x;
                    }
                }
                for row in to.chunks_exact_mut(width) {
                    row[panel.columns..].fill(0.0);
                }
            }
        }
    }
}

/// Packed columns of one or more groups, with their bias.
pub(crate) struct PackedF32 {
    pub(crate) kernels: Kernels,
    pub(crate) panels: Panels,
    /// Rows of the matrix of each group.
    pub(crate) k: usize,
    pub(crate) groups: usize,
    data: AlignedVec<f32>,
    bias: AlignedVec<f32>,
}

impl PackedF32 {
    /// Packs `groups` consecutive matrices of `k` by `n`; `bias` has `groups * n` elements.
    pub(crate) fn pack(
        isa: Isa,
        (groups, k, n): (usize, usize, usize),
        weights: &[f32],
        layout: MatrixLayout,
        bias: Option<&[f32]>,
    ) -> Result<Self> {
        let size = product("weights", &[k, n])?;
        check_len("weights", weights.len(), product("weights", &[groups, size])?)?;
        if let Some(bias) = bias {
            check_len("bias", bias.len(), product("bias", &[groups, n])?)?;
        }
        let kernels = Kernels::of(isa, (k, n));
        let panels = Panels::new(n, kernels.lanes, kernels.max_vectors());
        let mut data = AlignedVec::zeroed(product("packed weights", &[groups, k, panels.padded()])?)?;
        let mut padded_bias = AlignedVec::zeroed(product("packed bias", &[groups, panels.padded()])?)?;
        for g in 0..groups {
            let packed = &mut data.as_mut_slice()[g * k * panels.padded()..(g + 1) * k * panels.padded()];
            let weights = &weights[g * size..(g + 1) * size];
            for index in 0..panels.count {
                let panel = panels.get(index);
                let range = panel.first * k..(panel.first + panel.vectors * panels.lanes) * k;
                pack_panel(&panels, index, k, n, weights, layout, &mut packed[range]);
            }
            if let Some(bias) = bias {
                padded_bias.as_mut_slice()[g * panels.padded()..][..n]
                    .copy_from_slice(&bias[g * n..(g + 1) * n]);
            }
        }
        Ok(Self { kernels, panels, k, groups, data, bias: padded_bias })
    }

    /// Bytes of the packed columns of each group.
    fn packed_bytes(&self) -> usize {
        self.k.saturating_mul(self.panels.padded()).saturating_mul(4)
    }

    /// Columns of each group.
    pub(crate) fn columns(&self) -> usize {
        self.panels.columns
    }

    /// Tiling of `rows` output rows per group.
    pub(crate) fn extent(&self, rows: usize, segments: usize, patch_len: usize) -> Extent {
        extent(&self.kernels, &self.panels, (self.groups, rows, self.k), segments, patch_len)
    }

    pub(crate) fn view<'a>(
        &'a self,
        segments: usize,
        clamp: Clamp,
        out: &'a mut [f32],
        out_stride: usize,
    ) -> ViewF32<'a> {
        ViewF32 {
            kernels: self.kernels,
            panels: self.panels,
            segments,
            len: self.k.checked_div(segments).unwrap_or(0),
            data: self.data.as_slice(),
            bias: self.bias.as_slice(),
            clamp,
            out: SharedMut::new(out),
            out_stride,
            group_stride: self.columns(),
        }
    }
}

fn extent(
    kernels: &Kernels,
    panels: &Panels,
    (groups, rows, k): (usize, usize, usize),
    segments: usize,
    patch_len: usize,
) -> Extent {
    let packed_bytes = k.saturating_mul(panels.padded()).saturating_mul(4);
    Extent {
        groups,
        rows,
        tile_rows: kernels.max_rows(panels.widest),
        panels: panels.count,
        segments,
        patch_len,
        words: 0,
        row_bytes: k.saturating_mul(4),
        packed_bytes,
        row_work: packed_bytes,
    }
}

/// Packed columns and an output, as the kernel of [`tiles::drive`].
pub(crate) struct ViewF32<'a> {
    kernels: Kernels,
    panels: Panels,
    segments: usize,
    /// Elements per segment.
    len: usize,
    data: &'a [f32],
    bias: &'a [f32],
    clamp: Clamp,
    out: SharedMut<'a, f32>,
    out_stride: usize,
    /// Output elements from one group to the next.
    group_stride: usize,
}

impl TileKernel<f32> for ViewF32<'_> {
    type Panel = (&'static [TileFn], PanelF32);

    #[inline]
    fn panel(&self, group: usize, panel: usize) -> Self::Panel {
        let k = self.segments * self.len;
        let panel = self.panels.get(panel);
        let columns = group * self.panels.padded() + panel.first;
        let width = panel.vectors * self.panels.lanes;
        let packed = &self.data[columns * k..(columns + width) * k];
        let bias = &self.bias[columns..columns + width];
        let operands = PanelF32 {
            segments: self.segments,
            len: self.len,
            packed: packed.as_ptr(),
            bias: bias.as_ptr(),
            out: self.out.ptr(group * self.group_stride + panel.first),
            out_stride: self.out_stride,
            columns: panel.columns,
            clamp: self.clamp,
        };
        (self.kernels.by_rows(panel.vectors), operands)
    }

    #[inline]
    fn tile(&self, (kernels, panel): &Self::Panel, row: usize, count: usize, table: &[usize]) {
        debug_assert_eq!(table.len(), self.segments * count);
        let Some(kernel) = count.checked_sub(1).and_then(|i| kernels.get(i)) else { return };
        // SAFETY: `kernels` is from an `Isa`, so its instructions exist. `table` holds `segments * count` addresses of
        // `len` elements each (`Rows::fill`). Packed columns and bias were sliced to what the kernel reads. Tiles write
        // disjoint parts of the output (`tiles::drive`), which are inside it because all callers check its length.
        unsafe { kernel(panel, table.as_ptr(), row) }
    }
}

/// Rows of a dense row-major matrix.
pub(crate) struct DenseRows<'a, T> {
    /// Whole rows of `len` elements.
    pub(crate) data: &'a [T],
    pub(crate) len: usize,
}

impl<T: bytemuck::Pod + Sync> Rows for DenseRows<'_, T> {
    type In = T;
    type Position = usize;

    #[inline]
    fn position(&self, row: usize) -> usize {
        row
    }

    #[inline]
    fn fill(&self, _: usize, at: &mut usize, count: usize, table: &mut [usize], _: &mut [T]) {
        let rows = &self.data[*at * self.len..(*at + count) * self.len];
        let mut address = rows.as_ptr().expose_provenance();
        for entry in table {
            *entry = address;
            address += self.len * size_of::<T>();
        }
        *at += count;
    }
}

/// `out[m, n] = clamp(a[m, k] · B + bias)` with a constant `B`: FULLY_CONNECTED.
pub struct GemmF32(PackedF32);

impl GemmF32 {
    /// Packs `B[k, n]`; `bias` has `n` elements.
    ///
    /// # Errors
    /// Fails if lengths do not match or memory cannot be allocated.
    pub fn pack(
        isa: Isa,
        (k, n): (usize, usize),
        b: &[f32],
        layout: MatrixLayout,
        bias: Option<&[f32]>,
    ) -> Result<Self> {
        Ok(Self(PackedF32::pack(isa, (1, k, n), b, layout, bias)?))
    }

    /// Returns the bytes of scratch that [`GemmF32::run`] needs for `m` rows.
    ///
    /// # Errors
    /// Fails if the size overflows.
    pub fn scratch_len(&self, m: usize, threads: usize) -> Result<usize> {
        Ok(self.plan(m, threads)?.0.scratch_len())
    }

    /// Plans the product of `m` rows.
    ///
    /// # Errors
    /// Fails if the size overflows.
    pub fn plan(&self, m: usize, threads: usize) -> Result<GemmPlan> {
        Tiling::new::<f32>(self.0.extent(m, 1, 0), threads).map(GemmPlan)
    }

    /// Computes `m` rows.
    ///
    /// # Errors
    /// Fails if an operand has the wrong length.
    pub fn run(
        &self,
        m: usize,
        a: &[f32],
        out: &mut [f32],
        clamp: Clamp,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        if m == 1 && tiles::is_single(par.threads(), self.0.packed_bytes(), 0) {
            return self.run_row(a, out, clamp);
        }
        self.run_planned(&self.plan(m, par.threads())?, a, out, clamp, scratch, par)
    }

    /// Computes the rows of a plan.
    ///
    /// # Errors
    /// Fails if an operand has the wrong length, or the plan is that of another product.
    pub fn run_planned(
        &self,
        plan: &GemmPlan,
        a: &[f32],
        out: &mut [f32],
        clamp: Clamp,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let p = &self.0;
        let m = plan.rows();
        p.extent(m, 1, 0).check(plan.0.extent())?;
        check_len("left-hand side", a.len(), product("left-hand side", &[m, p.k])?)?;
        check_len("output", out.len(), product("output", &[m, p.columns()])?)?;
        let rows = DenseRows { data: a, len: p.k };
        tiles::drive(&plan.0, &rows, &p.view(1, clamp, out, p.columns()), None, scratch, par)
    }
}

impl GemmF32 {
    /// Computes one row on the calling thread: see [`GemmPlan::is_single_row`].
    ///
    /// # Errors
    /// Fails if an operand has the wrong length.
    pub fn run_row(&self, a: &[f32], out: &mut [f32], clamp: Clamp) -> Result<()> {
        let p = &self.0;
        check_len("left-hand side", a.len(), p.k)?;
        check_len("output", out.len(), p.columns())?;
        tiles::single_row(a, p.panels.count, 0, &p.view(1, clamp, out, p.columns()))
    }
}

/// The division of a product of some number of rows into tiles.
#[derive(Clone, Copy, Debug)]
pub struct GemmPlan(pub(crate) Tiling);

impl GemmPlan {
    /// Returns whether the product is one row that one thread computes: `run_row` computes it without a plan and
    /// without scratch.
    pub fn is_single_row(&self) -> bool {
        self.0.is_single_row()
    }

    /// Rows of the product.
    pub fn rows(&self) -> usize {
        self.0.extent().rows
    }

    /// Returns the bytes of scratch that the product needs.
    pub fn scratch_len(&self) -> usize {
        self.0.scratch_len()
    }
}

/// `out[m, n] = a · b` with two variable operands: one matrix pair of BATCH_MATMUL.
#[derive(Clone, Copy)]
pub struct BatchMatMulF32 {
    kernels: Kernels,
    panels: Panels,
    m: usize,
    k: usize,
    layout: MatrixLayout,
    transposed: bool,
}

impl BatchMatMulF32 {
    /// For matrices `a[m, k]`, or `a[k, m]` if `transposed` (`adj_x`), and `b[k, n]` in the given layout.
    ///
    /// # Errors
    /// Fails if the size of a matrix overflows.
    pub fn new(
        isa: Isa,
        (m, k, n): (usize, usize, usize),
        transposed: bool,
        layout: MatrixLayout,
    ) -> Result<Self> {
        let kernels = Kernels::of(isa, (k, n));
        let panels = Panels::new(n, kernels.lanes, kernels.max_vectors());
        product("matrix", &[m, k, 8])?;
        product("matrix", &[m, n, 8])?;
        product(
            "matrix",
            &[k.max(1), n.checked_add(kernels.lanes).ok_or(ComputeError::Range { what: "columns" })?, 8],
        )?;
        Ok(Self { kernels, panels, m, k, layout, transposed })
    }

    fn extent(&self) -> Extent {
        extent(&self.kernels, &self.panels, (1, self.m, self.k), 1, 0)
    }

    /// Returns the bytes of scratch that [`BatchMatMulF32::run`] needs.
    ///
    /// # Errors
    /// Fails if the size overflows.
    pub fn scratch_len(&self, threads: usize) -> Result<usize> {
        let own = || {
            let b = scratch_bytes::<f32>(self.k.checked_mul(self.panels.padded())?)?;
            let a = scratch_bytes::<f32>(if self.transposed { self.m.checked_mul(self.k)? } else { 0 })?;
            b.checked_add(a)?.checked_add(scratch_bytes::<f32>(self.panels.padded())?)
        };
        let tiles = Tiling::new::<f32>(self.extent(), threads)?.scratch_len();
        own()
            .and_then(|o| o.checked_add(tiles))
            .ok_or(ComputeError::TooLarge { what: "scratch of a product" })
    }

    /// Multiplies one pair of matrices.
    ///
    /// # Errors
    /// Fails if an operand has the wrong length.
    pub fn run(
        &self,
        a: &[f32],
        b: &[f32],
        out: &mut [f32],
        clamp: Clamp,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<()> {
        let (m, k, n) = (self.m, self.k, self.panels.columns);
        check_len("left-hand side", a.len(), m * k)?;
        check_len("right-hand side", b.len(), k * n)?;
        check_len("output", out.len(), m * n)?;
        let needed = self.scratch_len(par.threads())?;
        let short = ComputeError::Length { what: "scratch", needed, got: scratch.len() };
        if scratch.len() < needed {
            return Err(short);
        }
        let mut rest = scratch;
        let packed = carve::<f32>(&mut rest, k * self.panels.padded()).ok_or_else(|| short.clone())?;
        let bias = carve::<f32>(&mut rest, self.panels.padded()).ok_or_else(|| short.clone())?;
        bias.fill(0.0);
        let a = if self.transposed {
            let rows = carve::<f32>(&mut rest, m * k).ok_or(short)?;
            transpose(a, (k, m), rows);
            rows
        } else {
            a
        };
        let shared = SharedMut::new(packed);
        par.run(self.panels.count, &|index| {
            let panel = self.panels.get(index);
            // SAFETY: panels are consecutive, disjoint parts of the packed matrix, and `Parallel::run` calls each task
            // at most once.
            let part = unsafe { shared.slice(panel.first * k, panel.vectors * self.panels.lanes * k) };
            pack_panel(&self.panels, index, k, n, b, self.layout, part);
        });
        let view = ViewF32 {
            kernels: self.kernels,
            panels: self.panels,
            segments: 1,
            len: k,
            data: packed,
            bias,
            clamp,
            out: SharedMut::new(out),
            out_stride: n,
            group_stride: 0,
        };
        let tiling = Tiling::new::<f32>(self.extent(), par.threads())?;
        tiles::drive(&tiling, &DenseRows { data: a, len: k }, &view, None, rest, par)
    }
}

/// `to[c, r] = from[r, c]`, in blocks that stay in the cache.
fn transpose(from: &[f32], (rows, columns): (usize, usize), to: &mut [f32]) {
    const BLOCK: usize = 16;
    for r0 in (0..rows).step_by(BLOCK) {
        for c0 in (0..columns).step_by(BLOCK) {
            for c in c0..(c0 + BLOCK).min(columns) {
                for r in r0..(r0 + BLOCK).min(rows) {
                    to[c * rows + r] = from[r * columns + c];
                }
            }
        }
    }
}
