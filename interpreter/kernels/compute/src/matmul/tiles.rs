//! Division of matrix products into tiles, and of tiles over threads.
//!
//! Every product, convolutions included, is `out[row, column] = Σ rows(row) · columns(column)`. An output row (for a
//! convolution, an output pixel) reads one or more *segments*, runs of contiguous input elements, by their addresses.
//! The input is not copied into a matrix; padding is the address of a segment of zeros. Columns are packed in *panels*,
//! as wide as a micro-kernel. A *tile*, several rows by one panel, is the result of one call of a micro-kernel.

use std::sync::atomic::AtomicU64;

use bytemuck::Pod;
use delegraph_core::kernel::Parallel;

use crate::base::buffer::{SharedMut, carve, scratch_bytes};
use crate::base::error::{ComputeError, Result};
use crate::threads::share::Shares;

/// The inputs of output rows.
pub(crate) trait Rows: Sync {
    /// Element of the input.
    type In: Pod + Sync;

    /// A row's position, as [`Rows::fill`] advances it.
    type Position;

    /// Returns the position of a row.
    fn position(&self, row: usize) -> Self::Position;

    /// Writes the addresses of the segments of `count` rows from `at` on, segment-major: that of segment `s` of row `i`
    /// goes to `table[s * count + i]`. Their provenance is exposed. `patch` is memory for inputs that are not contiguous,
    /// [`Extent::patch_len`] elements per row. `at` is then the position of the next row.
    fn fill(
        &self,
        group: usize,
        at: &mut Self::Position,
        count: usize,
        table: &mut [usize],
        patch: &mut [Self::In],
    );
}

/// A family of micro-kernels with its packed columns and its output.
pub(crate) trait TileKernel<T>: Sync {
    /// Operands that all tiles of a panel share.
    type Panel;

    /// Returns a panel.
    fn panel(&self, group: usize, panel: usize) -> Self::Panel;

    /// Converts the inputs of `count` rows, for kernels that do not read them as they are: [`Extent::words`]
    /// per row. `table` was filled by [`Rows::fill`].
    fn convert(&self, _count: usize, _table: &[usize], _words: &mut [i32]) {}

    /// Computes rows `row .. row + count` of a panel. `table` was filled by [`Rows::fill`], or has the address of each
    /// converted row.
    fn tile(&self, panel: &Self::Panel, row: usize, count: usize, table: &[usize]);
}

/// Sizes that determine the division into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// 32-bit words per row of converted inputs; 0 for kernels that read inputs as they are.
    pub(crate) words: usize,
    /// Bytes of input per row.
    pub(crate) row_bytes: usize,
    /// Bytes of packed columns per group.
    pub(crate) packed_bytes: usize,
    /// Work of a row per group, in bytes of packed columns of the fastest kernels.
    pub(crate) row_work: usize,
}

impl Extent {
    /// Checks that a plan is that of this product.
    ///
    /// # Errors
    /// Fails if any size differs.
    #[inline]
    pub(crate) fn check(&self, planned: &Self) -> Result<()> {
        if self == planned {
            Ok(())
        } else {
            Err(ComputeError::Range { what: "plan: it is that of another product" })
        }
    }
}

/// Size of the input rows of a chunk of tiles, in bytes: they stay in the L1 cache while all panels are processed.
const L1_ROWS: usize = 24 << 10;
/// Maximum size of packed columns that stay in the L2 cache, in bytes. Larger ones are read once per chunk of `L2_ROWS`
/// bytes.
const L2_PACKED: usize = 768 << 10;
/// Size of the input rows of a chunk of tiles if the packed columns exceed `L2_PACKED`, in bytes.
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
    /// Rows of a tile, without the additional row of the first ones.
    base: usize,
    /// Number of leading tiles with one more row.
    extra: usize,
}

/// Minimum work of a product for several threads: smaller products end before another thread has started.
const SMALL: usize = 1 << 18;

/// Work of a chunk, for several threads.
const CHUNK: usize = 1 << 19;

/// Maximum work of a unit, unless it is one panel: some 10 ms, after which the product may be interrupted.
const MAX_UNIT: usize = 1 << 29;

/// Whether [`single_row`] computes a product of one row and one group with this work, and this number of words.
#[inline]
pub(crate) fn is_single(threads: usize, row_work: usize, words: usize) -> bool {
    (row_work < SMALL || threads < 2 && row_work <= MAX_UNIT) && words <= MAX_SINGLE
}

/// Maximum number of threads that share a product.
pub(crate) const MAX_SLOTS: usize = 64;

impl Plan {
    #[inline]
    fn new(e: &Extent, threads: usize) -> Self {
        let work = e.rows.saturating_mul(e.row_work).saturating_mul(e.groups);
        let threads = if work < SMALL { 1 } else { threads.min(MAX_SLOTS) };
        let tiles = e.rows.div_ceil(e.tile_rows.max(1)).max(1);
        let budget = if e.packed_bytes > L2_PACKED { L2_ROWS } else { L1_ROWS };
        let row_bytes = if e.words > 0 { e.words.saturating_mul(4) } else { e.row_bytes };
        let tile_bytes = row_bytes.saturating_mul(e.tile_rows).max(1);
        let mut chunk_tiles = (budget / tile_bytes).clamp(1, tiles);
        if threads > 1 {
            // Smaller chunks shorten the wait for the last one. Large packed columns are read once per chunk.
            let fine = if e.packed_bytes > L2_PACKED { 4 } else { (work / CHUNK / threads).clamp(4, 16) };
            chunk_tiles = chunk_tiles.min(tiles.div_ceil(threads.saturating_mul(fine)));
        }
        let chunks = tiles.div_ceil(chunk_tiles);
        // With few rows, the threads divide the panels instead.
        let wanted = if threads > 1 {
            threads.saturating_mul(3).div_ceil(chunks.saturating_mul(e.groups).max(1))
        } else {
            1
        };
        let chunk_rows = chunk_tiles.saturating_mul(e.tile_rows).min(e.rows);
        let least = chunk_rows.saturating_mul(e.row_work).div_ceil(MAX_UNIT);
        let panels_per_unit = e.panels.div_ceil(wanted.max(least)).max(1);
        let panel_units = e.panels.div_ceil(panels_per_unit);
        let units = chunks.saturating_mul(panel_units).saturating_mul(e.groups);
        Self {
            tiles,
            chunk_tiles,
            chunks,
            panels_per_unit,
            panel_units,
            units,
            slots: threads.clamp(1, units.max(1)),
            chunk_rows,
            base: e.rows / tiles,
            extra: e.rows % tiles,
        }
    }

    /// The first row and the number of rows of each of these tiles. Rows are spread evenly: seven tiles of seven rather
    /// than six of eight and one of one.
    fn tiles(&self, tiles: std::ops::Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        let (base, extra) = (self.base, self.extra);
        let mut next = tiles.start * base + tiles.start.min(extra);
        tiles.map(move |tile| {
            let count = base + usize::from(tile < extra);
            next += count;
            (next - count, count)
        })
    }

    fn table_len(&self, e: &Extent) -> Option<usize> {
        self.chunk_rows.checked_mul(e.segments)
    }

    fn patch_len(&self, e: &Extent) -> Option<usize> {
        self.chunk_rows.checked_mul(e.patch_len)
    }

    fn words_len(&self, e: &Extent) -> Option<usize> {
        self.chunk_rows.checked_mul(e.words)
    }

    /// The number of addresses of converted rows.
    fn converted_len(&self, e: &Extent) -> usize {
        if e.words > 0 { self.chunk_rows } else { 0 }
    }
}

/// The division of a product, which is the same in every run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiling {
    extent: Extent,
    plan: Plan,
    /// Bytes of scratch of each slot.
    per_slot: usize,
}

impl Tiling {
    /// Divides a product of input elements of type `T`.
    ///
    /// # Errors
    /// Fails if a size overflows.
    pub(crate) fn new<T>(extent: Extent, threads: usize) -> Result<Self> {
        let plan = Plan::new(&extent, threads);
        let bytes = || {
            let table = scratch_bytes::<usize>(plan.table_len(&extent)?)?;
            let patch = scratch_bytes::<T>(plan.patch_len(&extent)?)?;
            let words = scratch_bytes::<i32>(plan.words_len(&extent)?)?;
            let converted = scratch_bytes::<usize>(plan.converted_len(&extent))?;
            let per_slot = [patch, words, converted].into_iter().try_fold(table, usize::checked_add)?;
            per_slot.checked_mul(plan.slots).map(|_| per_slot)
        };
        let per_slot = bytes().ok_or(ComputeError::TooLarge { what: "scratch of a product" })?;
        if u32::try_from(plan.units).is_err() {
            return Err(ComputeError::TooLarge { what: "product" });
        }
        Ok(Self { extent, plan, per_slot })
    }

    /// The product that is divided.
    #[inline]
    pub(crate) fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Writes the addresses of all rows of a product of one group without patches, for [`drive`].
    pub(crate) fn fill<R: Rows>(&self, rows: &R, table: &mut [usize]) {
        let mut at = rows.position(0);
        for (first, count) in self.plan.tiles(0..self.plan.tiles) {
            let table = &mut table[first * self.extent.segments..][..count * self.extent.segments];
            rows.fill(0, &mut at, count, table, &mut []);
        }
    }

    /// Whether the product is one row that one thread computes, by [`single_row`].
    pub(crate) fn is_single_row(&self) -> bool {
        let e = &self.extent;
        e.rows == 1 && e.groups == 1 && self.plan.units == 1 && e.words <= MAX_SINGLE
    }

    /// Returns the bytes of scratch that [`drive`] needs.
    #[inline]
    pub(crate) fn scratch_len(&self) -> usize {
        self.per_slot * self.plan.slots
    }
}

/// Computes all tiles. `kept` has the addresses of all rows, if they are known ([`Tiling::fill`]).
pub(crate) fn drive<R: Rows>(
    tiling: &Tiling,
    rows: &R,
    kernel: &impl TileKernel<R::In>,
    kept: Option<&[usize]>,
    scratch: &mut [u8],
    par: &dyn Parallel,
) -> Result<()> {
    let Tiling { extent: e, plan, per_slot } = tiling;
    if e.rows == 0 || e.panels == 0 || e.groups == 0 {
        return Ok(());
    }
    let needed = tiling.scratch_len();
    if scratch.len() < needed {
        return Err(ComputeError::Length { what: "scratch", needed, got: scratch.len() });
    }
    if plan.slots == 1 {
        let mut slot = Slot::<R::In>::new(e, plan, scratch);
        if plan.tiles == 1 && plan.units == 1 {
            let len = e.rows * e.segments;
            let table = match kept {
                Some(kept) => &kept[..len],
                None => {
                    let (table, patch) = (&mut slot.table[..len], &mut slot.patch[..e.rows * e.patch_len]);
                    rows.fill(0, &mut rows.position(0), e.rows, table, patch);
                    table
                }
            };
            let table = if e.words > 0 {
                kernel.convert(e.rows, table, &mut slot.words[..e.rows * e.words]);
                addresses(e, e.rows, slot.words, slot.converted)
            } else {
                table
            };
            (0..e.panels).for_each(|panel| kernel.tile(&kernel.panel(0, panel), 0, e.rows, table));
            return Ok(());
        }
        for unit in 0..plan.units {
            if par.is_interrupted() {
                break;
            }
            unit_of_tiles((e, plan), rows, kernel, kept, unit, &mut slot);
        }
        return Ok(());
    }
    let scratch = SharedMut::new(scratch);
    let shares = [const { AtomicU64::new(0) }; MAX_SLOTS];
    let shares = Shares(&shares[..plan.slots]);
    shares.deal(plan.units);
    par.run(plan.slots, &|slot| {
        // SAFETY: slots have disjoint parts, and `Parallel::run` calls each slot's task at most once.
        let mine = unsafe { scratch.slice(slot * per_slot, *per_slot) };
        let mut parts = Slot::<R::In>::new(e, plan, mine);
        while let Some(unit) = shares.take(slot).filter(|_| !par.is_interrupted()) {
            unit_of_tiles((e, plan), rows, kernel, kept, unit, &mut parts);
        }
    });
    Ok(())
}

/// Maximum number of words of a converted row that is computed without scratch.
const MAX_SINGLE: usize = 1024;

/// Computes a single row of `a`, which is one segment, without a division into tiles and without scratch. `words` are
/// those of [`Extent::words`].
///
/// # Errors
/// Fails if there are more than [`MAX_SINGLE`] words: see [`Tiling::is_single_row`].
#[inline]
pub(crate) fn single_row<T: Pod + Sync>(
    a: &[T],
    panels: usize,
    words: usize,
    kernel: &impl TileKernel<T>,
) -> Result<()> {
    let table = [a.as_ptr().expose_provenance()];
    if words == 0 {
        (0..panels).for_each(|panel| kernel.tile(&kernel.panel(0, panel), 0, 1, &table));
        return Ok(());
    }
    // Clearing words takes longer than a short product.
    match words {
        ..=64 => converted_row::<T, 64>(table, panels, words, kernel),
        65..=256 => converted_row::<T, 256>(table, panels, words, kernel),
        _ => converted_row::<T, MAX_SINGLE>(table, panels, words, kernel),
    }
}

/// As [`single_row`], for kernels of converted rows of at most `N` words.
#[inline(never)] // Otherwise the words would be on the stack of all products.
fn converted_row<T, const N: usize>(
    table: [usize; 1],
    panels: usize,
    words: usize,
    kernel: &impl TileKernel<T>,
) -> Result<()> {
    let mut row = [0; N];
    let row = row.get_mut(..words).ok_or(ComputeError::TooLarge { what: "row" })?;
    kernel.convert(1, &table, row);
    let table = [row.as_ptr().expose_provenance()];
    (0..panels).for_each(|panel| kernel.tile(&kernel.panel(0, panel), 0, 1, &table));
    Ok(())
}

/// The scratch of a slot.
struct Slot<'a, T> {
    /// Addresses of segments.
    table: &'a mut [usize],
    patch: &'a mut [T],
    /// Converted rows.
    words: &'a mut [i32],
    /// Addresses of the converted rows.
    converted: &'a mut [usize],
}

impl<'a, T: Pod> Slot<'a, T> {
    fn new(e: &Extent, plan: &Plan, mut mine: &'a mut [u8]) -> Self {
        Slot {
            table: carve(&mut mine, plan.chunk_rows * e.segments).unwrap_or_default(),
            patch: carve(&mut mine, plan.chunk_rows * e.patch_len).unwrap_or_default(),
            words: carve(&mut mine, plan.chunk_rows * e.words).unwrap_or_default(),
            converted: carve(&mut mine, plan.converted_len(e)).unwrap_or_default(),
        }
    }
}

/// Returns the addresses of `count` converted rows. Words must not be written while they are used.
fn addresses<'a>(e: &Extent, count: usize, words: &[i32], converted: &'a mut [usize]) -> &'a [usize] {
    let (start, converted) = (words.as_ptr().expose_provenance(), &mut converted[..count]);
    converted.iter_mut().enumerate().for_each(|(i, to)| *to = start + i * e.words * size_of::<i32>());
    converted
}

fn unit_of_tiles<R: Rows>(
    (e, plan): (&Extent, &Plan),
    rows: &R,
    kernel: &impl TileKernel<R::In>,
    kept: Option<&[usize]>,
    unit: usize,
    slot: &mut Slot<'_, R::In>,
) {
    let (unit, part) = split(unit, plan.panel_units);
    let (group, chunk) = split(unit, plan.chunks);
    let tiles = chunk * plan.chunk_tiles..((chunk + 1) * plan.chunk_tiles).min(plan.tiles);
    let first = plan.tiles(tiles.clone()).next().map_or(0, |(first, _)| first);
    let table = match kept {
        Some(kept) => &kept[first * e.segments..],
        None => {
            fill_chunk((e, plan), rows, (group, first, tiles.clone()), slot.table, slot.patch);
            &*slot.table
        }
    };
    let mut segments = e.segments;
    let table = if e.words > 0 {
        let mut convert = |row: usize, count: usize| {
            let (table, at) = (&table[(row - first) * e.segments..][..count * e.segments], row - first);
            kernel.convert(count, table, &mut slot.words[at * e.words..][..count * e.words]);
        };
        let rows = plan.tiles(tiles.clone()).map(|(_, count)| count).sum();
        if e.segments == 1 {
            // As in `fill_chunk`.
            convert(first, rows);
        } else {
            plan.tiles(tiles.clone()).for_each(|(row, count)| convert(row, count));
        }
        // A converted row is one segment.
        segments = 1;
        addresses(e, rows, slot.words, slot.converted)
    } else {
        table
    };
    for panel in part * plan.panels_per_unit..((part + 1) * plan.panels_per_unit).min(e.panels) {
        let panel = kernel.panel(group, panel);
        for (row, count) in plan.tiles(tiles.clone()) {
            let table = &table[(row - first) * segments..][..count * segments];
            kernel.tile(&panel, row, count, table);
        }
    }
}

/// Quotient and remainder; most divisors are 1.
#[inline]
fn split(n: usize, by: usize) -> (usize, usize) {
    if by == 1 { (n, 0) } else { (n / by, n % by) }
}

/// Writes the addresses of a chunk of tiles, whose first row is `first`.
fn fill_chunk<R: Rows>(
    (e, plan): (&Extent, &Plan),
    rows: &R,
    (group, first, tiles): (usize, usize, std::ops::Range<usize>),
    table: &mut [usize],
    patch: &mut [R::In],
) {
    let mut at = rows.position(first);
    let mut fill = |row: usize, count: usize| {
        let table = &mut table[(row - first) * e.segments..][..count * e.segments];
        let patch = &mut patch[(row - first) * e.patch_len..][..count * e.patch_len];
        rows.fill(group, &mut at, count, table, patch);
    };
    if e.segments == 1 {
        // With one segment per row, the table of all tiles is that of one large tile.
        fill(first, plan.tiles(tiles).map(|(_, count)| count).sum());
    } else {
        plan.tiles(tiles).for_each(|(row, count)| fill(row, count));
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
    padded: usize,
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
    /// Panels of at most `most` vectors of `lanes` columns.
    pub(crate) fn new(columns: usize, lanes: usize, most: usize) -> Self {
        let vectors = columns.div_ceil(lanes);
        let count = vectors.div_ceil(most);
        let widest = if count == 0 { 0 } else { vectors.div_ceil(count) };
        let wide = if count == 0 { 0 } else { vectors - count * (vectors / count) };
        let padded = vectors * lanes;
        Self { columns, lanes, count, widest, wide: if wide == 0 { count } else { wide }, padded }
    }

    /// Columns rounded up to whole vectors.
    #[inline]
    pub(crate) fn padded(&self) -> usize {
        self.padded
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
    fn units_of_many_columns_are_bounded() {
        let e = Extent {
            groups: 1,
            rows: 128,
            tile_rows: 8,
            panels: 4096,
            segments: 1,
            patch_len: 0,
            words: 0,
            row_bytes: 4000,
            packed_bytes: 1 << 30,
            row_work: 1 << 30,
        };
        for threads in [1, 2] {
            for rows in [1, 3, 128] {
                let p = Plan::new(&Extent { rows, ..e }, threads);
                let panel = e.row_work / e.panels;
                assert!(p.chunk_rows * panel * (p.panels_per_unit - 1) <= MAX_UNIT, "{p:?}");
                assert!(p.panel_units * p.panels_per_unit >= e.panels && p.slots == threads, "{p:?}");
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
                        words: 0,
                        row_bytes,
                        packed_bytes,
                        row_work: packed_bytes,
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
