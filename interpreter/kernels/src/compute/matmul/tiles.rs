//! Division of matrix products into tiles, and of tiles over threads.
//!
//! Every product, convolutions included, is `out[row, column] = Σ rows(row) · columns(column)`. An output row (for a
//! convolution, an output pixel) reads one or more *segments*, runs of contiguous input elements, by their addresses.
//! The input is not copied into a matrix; padding is the address of a segment of zeros. Columns are packed in *panels*,
//! as wide as a micro-kernel. A *tile*, several rows by one panel, is the result of one call of a micro-kernel.

use std::sync::atomic::AtomicU64;

use bytemuck::Pod;
use delegraph_core::kernel::Parallel;

use crate::compute::base::buffer::{carve, scratch_bytes};
use crate::compute::base::error::{ComputeError, Result};
use crate::compute::threads::share::Shares;

/// The inputs of output rows.
pub(crate) trait Rows: Sync {
    /// Element of the input.
    type In: Pod + Sync;

    /// Writes the addresses of the segments of `count` rows from `first` on, segment-major: that of segment `s` of row
    /// `first + i` goes to `table[s * count + i]`. Their provenance is exposed. `patch` is memory for inputs that are
    /// not contiguous, [`Extent::patch_len`] elements per row.
    fn fill(&self, group: usize, first: usize, count: usize, table: &mut [usize], patch: &mut [Self::In]);
}

/// A family of micro-kernels with its packed columns and its output.
pub(crate) trait TileKernel<T>: Sync {
    /// Computes rows `row .. row + count` of one panel. `table` is as [`Rows::fill`] left it.
    fn tile(&self, group: usize, panel: usize, row: usize, count: usize, table: &[usize]);
}

/// Sizes that determine the division into tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Independent products.
    pub(crate) groups: usize,
    /// Output rows per group.
    pub(crate) rows: usize,
    /// Maximum number of rows of a tile.
    pub(crate) tile_rows: usize,
    /// Panels per group.
    pub(crate) panels: usize,
    /// Segments per row.
    pub(crate) segments: usize,
    /// Elements of patch per row.
    pub(crate) patch_len: usize,
    /// Bytes of input per row.
    pub(crate) row_bytes: usize,
    /// Bytes of packed columns per group.
    pub(crate) packed_bytes: usize,
}

/// Size of the input rows of a chunk of tiles, in bytes: they stay in the L1 cache while all panels are processed.
const L1_ROWS: usize = 24 << 10;
/// Packed columns that are larger do not stay in the L2 cache, and are read once per chunk of `L2_ROWS` bytes.
const L2_PACKED: usize = 768 << 10;
const L2_ROWS: usize = 512 << 10;

/// The division into tiles, chunks and units.
#[derive(Clone, Copy, Debug)]
struct Plan {
    tiles: usize,
    chunk_tiles: usize,
    chunks: usize,
    panels_per_unit: usize,
    panel_units: usize,
    units: usize,
    slots: usize,
    chunk_rows: usize,
}

/// Minimum of bytes of packed columns that all rows read, for several threads: below it, a product ends before another
/// thread has started.
const SMALL: usize = 1 << 20;

/// Maximum number of threads that share a product.
const MAX_SLOTS: usize = 64;

impl Plan {
    #[inline]
    fn new(e: &Extent, threads: usize) -> Self {
        let work = e.rows.saturating_mul(e.packed_bytes).saturating_mul(e.groups);
        let threads = if work < SMALL { 1 } else { threads.min(MAX_SLOTS) };
        let tiles = e.rows.div_ceil(e.tile_rows.max(1)).max(1);
        let budget = if e.packed_bytes > L2_PACKED { L2_ROWS } else { L1_ROWS };
        let tile_bytes = e.row_bytes.saturating_mul(e.tile_rows).max(1);
        let mut chunk_tiles = (budget / tile_bytes).clamp(1, tiles);
        if threads > 1 {
            chunk_tiles = chunk_tiles.min(tiles.div_ceil(threads.saturating_mul(4)));
        }
        let chunks = tiles.div_ceil(chunk_tiles);
        // With few rows, the threads divide the panels instead.
        let wanted = if threads > 1 {
            threads.saturating_mul(3).div_ceil(chunks.saturating_mul(e.groups).max(1))
        } else {
            1
        };
        let panels_per_unit = e.panels.div_ceil(wanted).max(1);
        let panel_units = e.panels.div_ceil(panels_per_unit);
        let units = chunks.saturating_mul(panel_units).saturating_mul(e.groups);
        let chunk_rows = chunk_tiles.saturating_mul(e.tile_rows).min(e.rows);
        Self {
            tiles,
            chunk_tiles,
            chunks,
            panels_per_unit,
            panel_units,
            units,
            slots: threads.clamp(1, units.max(1)),
            chunk_rows,
        }
    }

    fn table_len(&self, e: &Extent) -> Option<usize> {
        self.chunk_rows.checked_mul(e.segments)
    }

    fn patch_len(&self, e: &Extent) -> Option<usize> {
        self.chunk_rows.checked_mul(e.patch_len)
    }
}

/// Returns the bytes of scratch for [`drive`] with input elements of type `T`.
pub(crate) fn scratch_len<T>(e: &Extent, threads: usize) -> Result<usize> {
    let plan = Plan::new(e, threads);
    let bytes = || {
        let table = scratch_bytes::<usize>(plan.table_len(e)?)?;
        let patch = scratch_bytes::<T>(plan.patch_len(e)?)?;
        table.checked_add(patch)?.checked_mul(plan.slots)
    };
    bytes().ok_or(ComputeError::TooLarge { what: "scratch of a product" })
}

/// Computes all tiles.
pub(crate) fn drive<R: Rows>(
    e: &Extent,
    rows: &R,
    kernel: &impl TileKernel<R::In>,
    scratch: &mut [u8],
    par: &dyn Parallel,
) -> Result<()> {
    if e.rows == 0 || e.panels == 0 || e.groups == 0 {
        return Ok(());
    }
    let needed = scratch_len::<R::In>(e, par.threads())?;
    if scratch.len() < needed {
        return Err(ComputeError::Length { what: "scratch", needed, got: scratch.len() });
    }
    let plan = Plan::new(e, par.threads());
    if u32::try_from(plan.units).is_err() {
        return Err(ComputeError::TooLarge { what: "product" });
    }
    let per_slot = needed / plan.slots;
    let scratch = crate::compute::base::buffer::SharedMut::new(scratch);
    let work = |slot: usize, next: &mut dyn FnMut() -> Option<usize>| {
        // SAFETY: slots have disjoint parts, and `Parallel::run` calls each slot's task at most once.
        let mut mine = unsafe { scratch.slice(slot * per_slot, per_slot) };
        let table = carve::<usize>(&mut mine, plan.chunk_rows * e.segments).unwrap_or_default();
        let patch = carve::<R::In>(&mut mine, plan.chunk_rows * e.patch_len).unwrap_or_default();
        while let Some(unit) = next().filter(|_| !par.is_interrupted()) {
            let (unit, part) = (unit / plan.panel_units, unit % plan.panel_units);
            let (group, chunk) = (unit / plan.chunks, unit % plan.chunks);
            chunk_of_tiles(e, &plan, rows, kernel, (group, chunk, part), table, patch);
        }
    };
    if plan.slots == 1 {
        let mut units = 0..plan.units;
        work(0, &mut || units.next());
        return Ok(());
    }
    let shares = [const { AtomicU64::new(0) }; MAX_SLOTS];
    let shares = Shares(&shares[..plan.slots]);
    shares.deal(plan.units);
    par.run(plan.slots, &|slot| work(slot, &mut || shares.take(slot)));
    Ok(())
}

fn chunk_of_tiles<R: Rows>(
    e: &Extent,
    plan: &Plan,
    rows: &R,
    kernel: &impl TileKernel<R::In>,
    (group, chunk, part): (usize, usize, usize),
    table: &mut [usize],
    patch: &mut [R::In],
) {
    // Rows are spread evenly: seven tiles of seven rather than six of eight and one of one.
    let (base, extra) = (e.rows / plan.tiles, e.rows % plan.tiles);
    let start = |tile: usize| tile * base + tile.min(extra);
    let tiles = chunk * plan.chunk_tiles..((chunk + 1) * plan.chunk_tiles).min(plan.tiles);
    let first = start(tiles.start);
    for tile in tiles.clone() {
        let (from, to) = (start(tile), start(tile + 1));
        let t = (from - first) * e.segments..(to - first) * e.segments;
        let p = (from - first) * e.patch_len..(to - first) * e.patch_len;
        rows.fill(group, from, to - from, &mut table[t], &mut patch[p]);
    }
    let panels = part * plan.panels_per_unit..((part + 1) * plan.panels_per_unit).min(e.panels);
    for panel in panels {
        for tile in tiles.clone() {
            let (from, to) = (start(tile), start(tile + 1));
            kernel.tile(
                group,
                panel,
                from,
                to - from,
                &table[(from - first) * e.segments..(to - first) * e.segments],
            );
        }
    }
}

/// Division of columns into panels: as even as possible, in whole vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panels {
    /// Columns.
    pub(crate) columns: usize,
    /// Columns per vector.
    pub(crate) lanes: usize,
    /// Number of panels.
    pub(crate) count: usize,
    /// Vectors of the widest panel.
    pub(crate) widest: usize,
    wide: usize,
}

/// One panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panel {
    /// First column.
    pub(crate) first: usize,
    /// Vectors.
    pub(crate) vectors: usize,
    /// Existing columns; the last vector may exceed them.
    pub(crate) columns: usize,
}

impl Panels {
    /// Panels of at most `max_vectors` vectors of `lanes` columns.
    pub(crate) fn new(columns: usize, lanes: usize, most: usize) -> Self {
        let vectors = columns.div_ceil(lanes);
        let count = vectors.div_ceil(most);
        let widest = if count == 0 { 0 } else { vectors.div_ceil(count) };
        let wide = if count == 0 { 0 } else { vectors - count * (vectors / count) };
        Self { columns, lanes, count, widest, wide: if wide == 0 { count } else { wide } }
    }

    /// Columns rounded up to whole vectors.
    #[inline]
    pub(crate) fn padded(&self) -> usize {
        self.columns.div_ceil(self.lanes) * self.lanes
    }

    /// Returns the panel that contains a column.
    pub(crate) fn of_column(&self, column: usize) -> Panel {
        let (vector, wide) = (column / self.lanes, self.wide * self.widest);
        let beyond = vector.saturating_sub(wide).checked_div(self.widest.saturating_sub(1)).unwrap_or(0);
        self.get(if vector < wide { vector / self.widest.max(1) } else { self.wide + beyond })
    }

    /// Returns panel `index`: `wide` panels of the full width come first, then narrower ones.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Panel {
        let narrow = self.widest.saturating_sub(1);
        let before = if index <= self.wide {
            index * self.widest
        } else {
            self.wide * self.widest + (index - self.wide) * narrow
        };
        let vectors = if index < self.wide { self.widest } else { narrow };
        let first = before * self.lanes;
        Panel { first, vectors, columns: (vectors * self.lanes).min(self.columns - first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_cover_every_column_once() {
        for lanes in [4, 8, 16] {
            for most in 1..=4 {
                for columns in 0..300 {
                    let panels = Panels::new(columns, lanes, most);
                    let mut at = 0;
                    for i in 0..panels.count {
                        let p = panels.get(i);
                        assert_eq!(p.first, at);
                        assert!((1..=most).contains(&p.vectors) && p.vectors <= panels.widest);
                        assert!(p.columns > (p.vectors - 1) * lanes && p.columns <= p.vectors * lanes);
                        assert!((at..at + p.columns).all(|c| panels.of_column(c) == p));
                        at += p.columns;
                    }
                    assert_eq!(at, columns);
                }
            }
        }
    }

    #[test]
    fn plans_cover_every_tile_and_fit_their_chunks() {
        for threads in [1, 2, 3, 8] {
            for rows in [1usize, 2, 7, 8, 9, 49, 1089, 4225] {
                for (row_bytes, packed_bytes, panels) in
                    [(12, 100, 1), (4608, 900_000, 3), (400_000, 4 << 20, 16)]
                {
                    let e = Extent {
                        groups: 2,
                        rows,
                        tile_rows: 8,
                        panels,
                        segments: 3,
                        patch_len: 9,
                        row_bytes,
                        packed_bytes,
                    };
                    let p = Plan::new(&e, threads);
                    assert!(p.chunks * p.chunk_tiles >= p.tiles && (p.chunks - 1) * p.chunk_tiles < p.tiles);
                    assert!(p.panel_units * p.panels_per_unit >= panels);
                    assert_eq!(p.units, 2 * p.chunks * p.panel_units);
                    assert!(p.slots <= threads && p.chunk_rows <= rows);
                }
            }
        }
    }
}
