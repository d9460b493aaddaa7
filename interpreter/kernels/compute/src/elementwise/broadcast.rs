//! Iteration over two operands that broadcast to one output.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::SharedMut;
use crate::base::error::{ComputeError, Result, check_len, product};
use crate::threads::share::{chunk_len, is_one_task, threads_for};

/// Maximum number of dimensions after merging those that broadcast alike.
const MAX_DIMS: usize = 6;

/// Maximum number of elements of a block.
const BLOCK: usize = 1024;

/// A function of blocks. Not a closure, as the compiler would not inline one into functions with target features.
pub(crate) trait Blocks<T> {
    /// Computes `out` from two operands of the same length. Implementations must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The processor must have the instructions that the implementation requires.
    unsafe fn run(&self, a: &[T], b: &[T], out: &mut [T]);
}

/// Two operands that broadcast to one output, prepared for their shapes.
#[derive(Clone, Copy, Debug)]
pub struct Broadcast {
    /// Merged dimensions, innermost first: size, and strides of both operands.
    dims: [(usize, usize, usize); MAX_DIMS],
    lens: [usize; 3],
}

impl Broadcast {
    /// For operands of shapes `a` and `b`, aligned at their last dimensions; dimensions of size 1 are repeated.
    ///
    /// # Errors
    /// Fails if the shapes do not broadcast, more than 6 dimensions remain after merging those that broadcast alike, or
    /// a number of elements overflows.
    pub fn new(a: &[usize], b: &[usize]) -> Result<Self> {
        let rank = a.len().max(b.len());
        let at =
            |s: &[usize], i: usize| s.len().checked_sub(i + 1).and_then(|i| s.get(i)).copied().unwrap_or(1);
        let mut dims = [(1, 0, 0); MAX_DIMS];
        let (mut used, mut size_a, mut size_b, mut size) = (0usize, 1usize, 1usize, 1usize);
        for i in 0..rank {
            let (da, db) = (at(a, i), at(b, i));
            if da != db && da != 1 && db != 1 {
                return Err(ComputeError::Broadcast { dim: i + 1, a: da, b: db });
            }
            let extent = if da == 1 { db } else { da };
            let (sa, sb) = (if da == 1 { 0 } else { size_a }, if db == 1 { 0 } else { size_b });
            size_a = product("operand", &[size_a, da])?;
            size_b = product("operand", &[size_b, db])?;
            size = product("output", &[size, extent])?;
            if extent == 1 {
                continue;
            }
            // Contiguous with the next inner dimension, in both operands.
            if let Some((n, ia, ib)) = used.checked_sub(1).and_then(|u| dims.get_mut(u))
                && sa == *n * *ia
                && sb == *n * *ib
            {
                *n *= extent;
                continue;
            }
            let dim = dims.get_mut(used).ok_or(ComputeError::Range { what: "number of dimensions" })?;
            *dim = (extent, sa, sb);
            used += 1;
        }
        Ok(Self { dims, lens: [size_a, size_b, size] })
    }

    /// Checks that operands and output have the lengths of their shapes. An omitted operand is the output itself, which
    /// must have its shape.
    pub(crate) fn check(&self, [a, b]: [Option<usize>; 2], out: usize) -> Result<()> {
        let [len_a, len_b, len] = self.lens;
        if a.is_none() && b.is_none() {
            return Err(ComputeError::Range { what: "omission of both operands" });
        }
        // An operand with the length of the output is not repeated in any dimension, so it has the output's layout.
        check_len("first operand", a.unwrap_or(out), len_a)?;
        check_len("second operand", b.unwrap_or(out), len_b)?;
        check_len("output", out, len)
    }

    /// Divides the output into disjoint pieces and calls `task` once for each, with a range of rows of the innermost
    /// dimension and a range of columns.
    pub(crate) fn pieces(&self, par: &dyn Parallel, task: impl Fn(Range<usize>, Range<usize>) + Sync) {
        let (inner, len) = (self.dims[0].0, self.lens[2]);
        if inner == len && len > 0 && is_one_task(len) {
            return task(0..1, 0..len);
        }
        let Some(rows) = len.checked_div(inner).filter(|&rows| rows > 0) else { return };
        // A single row is divided; otherwise whole rows are grouped.
        let par = threads_for(par, len);
        let piece = if rows == 1 { chunk_len(par, inner, 1).min(inner) } else { inner };
        let (pieces, chunk) = (inner.div_ceil(piece), chunk_len(par, rows, inner).min(rows));
        par.run(rows.div_ceil(chunk) * pieces, &|index| {
            let (first, from) = (index / pieces * chunk, index % pieces * piece);
            let rows = first..(first + chunk).min(rows);
            task(rows, from.min(inner)..(from + piece).min(inner));
        });
    }

    /// Runs a function on blocks of both operands and of the output, for the given rows and columns. An omitted operand
    /// stands for the content of the output.
    ///
    /// # Safety
    /// As for [`Blocks::run`]. No other thread may access these rows and columns of `out`.
    #[inline(always)]
    pub(crate) unsafe fn blocks<T: Copy + Default>(
        &self,
        (rows, columns): (Range<usize>, Range<usize>),
        operands: [Option<&[T]>; 2],
        out: SharedMut<'_, T>,
        f: impl Blocks<T>,
    ) {
        let (inner, len) = (self.dims[0].0, columns.len());
        // Short rows are computed together.
        let together = if len == inner && inner < BLOCK / 2 { BLOCK / inner.max(1) } else { 1 };
        let mut copies = [[T::default(); BLOCK]; 2];
        let mut copied = [0; 2];
        // Operands whose rows are all equal.
        let alike = [0, 1].map(|i| self.dims[1..].iter().all(|dim| [dim.1, dim.2][i] == 0));
        let mut row = rows.start;
        while row < rows.end {
            let count = together.min(rows.end - row);
            for from in (0..len).step_by(BLOCK) {
                let n = if together > 1 { count * len } else { BLOCK.min(len - from) };
                let column = columns.start + from;
                let start = row * inner + column;
                // SAFETY: the caller has exclusive access to these rows and columns, and blocks do not overlap.
                let out = unsafe { out.slice(start, n) };
                for i in 0..2 {
                    match operands[i] {
                        None => copies[i][..n].copy_from_slice(out),
                        // In the output's layout.
                        Some(all) if all.len() == self.lens[2] => {}
                        Some(_) if self.steps()[i] == 1 && together == 1 => {}
                        Some(_) if alike[i] && copied[i] >= n && (together > 1 || self.steps()[i] == 0) => {}
                        Some(all) if together == 1 => {
                            let at = self.rows(row..row + 1, column).next().map_or(0, |at| at[i]);
                            copies[i][..n].fill(all[at]);
                            copied[i] = n;
                        }
                        Some(all) => {
                            self.repeat(i, row..row + count, all, &mut copies[i]);
                            copied[i] = n;
                        }
                    }
                }
                let block = |i: usize| match operands[i] {
                    Some(all) if all.len() == self.lens[2] => &all[start..][..n],
                    Some(all) if self.steps()[i] == 1 && together == 1 => {
                        let at = self.rows(row..row + 1, column).next().map_or(0, |at| at[i]);
                        &all[at..][..n]
                    }
                    _ => &copies[i][..n],
                };
                // SAFETY: the caller meets the contract of this function.
                unsafe { f.run(block(0), block(1), out) };
            }
            row += count;
        }
    }

    /// Copies an operand's parts of some rows, one after the other.
    fn repeat<T: Copy>(&self, operand: usize, rows: Range<usize>, all: &[T], to: &mut [T]) {
        let inner = self.dims[0].0;
        for (to, at) in to.chunks_exact_mut(inner).zip(self.rows(rows, 0)) {
            match self.steps()[operand] {
                0 => to.fill(all[at[operand]]),
                _ => to.copy_from_slice(&all[at[operand]..][..inner]),
            }
        }
    }

    /// Strides of the operands along a row: 0 or 1.
    pub(crate) fn steps(&self) -> [usize; 2] {
        let (_, a, b) = self.dims[0];
        [a, b]
    }

    /// Offsets of each row's part, which begins at `first_column`, in the operands and in the output.
    #[inline(always)]
    pub(crate) fn rows(&self, rows: Range<usize>, first_column: usize) -> Rows<'_> {
        let (inner, step_a, step_b) = self.dims[0];
        let mut start = Rows {
            outer: &self.dims[1..],
            index: [0; MAX_DIMS - 1],
            at: [first_column * step_a, first_column * step_b, rows.start * inner + first_column],
            inner,
            left: rows.len(),
        };
        let mut left = rows.start;
        for (i, (n, sa, sb)) in start.index.iter_mut().zip(start.outer) {
            if left == 0 {
                break;
            }
            *i = left % n;
            left /= n;
            start.at[0] += *i * sa;
            start.at[1] += *i * sb;
        }
        start
    }
}

/// See [`Broadcast::rows`].
pub(crate) struct Rows<'a> {
    outer: &'a [(usize, usize, usize)],
    index: [usize; MAX_DIMS - 1],
    at: [usize; 3],
    inner: usize,
    left: usize,
}

impl Iterator for Rows<'_> {
    type Item = [usize; 3];

    #[inline(always)]
    fn next(&mut self) -> Option<[usize; 3]> {
        self.left = self.left.checked_sub(1)?;
        let row = self.at;
        self.at[2] += self.inner;
        for (i, (n, sa, sb)) in self.index.iter_mut().zip(self.outer) {
            *i += 1;
            self.at[0] += sa;
            self.at[1] += sb;
            if *i < *n {
                break;
            }
            self.at[0] -= *n * sa;
            self.at[1] -= *n * sb;
            *i = 0;
        }
        Some(row)
    }
}
