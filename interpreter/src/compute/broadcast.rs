//! Two operands that broadcast to one output: how they are walked over.

use std::ops::Range;

use super::Parallel;
use super::error::{ComputeError, Result, check_len, product};
use super::share::{bundle, crew};

/// Most dimensions that differ in how they broadcast, after merging those that don't.
const MAX_DIMS: usize = 6;

/// Two operands that broadcast to one output, prepared for their shapes.
#[derive(Clone, Copy, Debug)]
pub struct Broadcast {
    /// Merged dimensions, innermost first: extent, and strides of both operands.
    dims: [(usize, usize, usize); MAX_DIMS],
    lens: [usize; 3],
}

impl Broadcast {
    /// For operands of shapes `a` and `b`, aligned at their last dimensions; dimensions of 1 are repeated.
    ///
    /// # Errors
    /// Where the shapes don't broadcast, or in more ways than fit here.
    pub fn new(a: &[usize], b: &[usize]) -> Result<Self> {
        let rank = a.len().max(b.len());
        let at =
            |s: &[usize], i: usize| s.len().checked_sub(i + 1).and_then(|i| s.get(i)).copied().unwrap_or(1);
        let mut dims = [(1, 0, 0); MAX_DIMS];
        let (mut used, mut size_a, mut size_b, mut size) = (0usize, 1usize, 1usize, 1usize);
        for i in 0..rank {
            let (da, db) = (at(a, i), at(b, i));
            if da != db && da != 1 && db != 1 {
                return Err(ComputeError::Range { what: "shapes that are to broadcast" });
            }
            let extent = if da == 1 { db } else { da };
            let (sa, sb) = (if da == 1 { 0 } else { size_a }, if db == 1 { 0 } else { size_b });
            size_a = product("operand", &[size_a, da])?;
            size_b = product("operand", &[size_b, db])?;
            size = product("output", &[size, extent])?;
            if extent == 1 {
                continue;
            }
            // Goes on where the dimension inside ends, in both operands.
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

    /// Checks that operands and output have as many elements as their shapes. Where one operand is left out it is the
    /// output, of which it must have the shape.
    pub(crate) fn check(&self, [a, b]: [Option<usize>; 2], out: usize) -> Result<()> {
        let [len_a, len_b, len] = self.lens;
        if a.is_none() && b.is_none() {
            return Err(ComputeError::Range { what: "operands" });
        }
        // An operand of as many elements as the output is repeated in no dimension: it lies as the output does.
        check_len("first operand", a.unwrap_or(out), len_a)?;
        check_len("second operand", b.unwrap_or(out), len_b)?;
        check_len("output", out, len)
    }

    /// Hands out the output in pieces: rows of the innermost dimension, and the part of each.
    pub(crate) fn pieces(&self, par: &dyn Parallel, task: impl Fn(Range<usize>, Range<usize>) + Sync) {
        let (inner, len) = (self.dims[0].0, self.lens[2]);
        let Some(rows) = len.checked_div(inner).filter(|&rows| rows > 0) else { return };
        // A long row is cut up, short rows are bundled.
        let par = crew(par, len);
        let piece = if rows == 1 { bundle(par, inner, 1).min(inner) } else { inner };
        let (pieces, bundle) = (inner.div_ceil(piece), bundle(par, rows, inner).min(rows));
        par.run(rows.div_ceil(bundle) * pieces, &|index| {
            let (first, from) = (index / pieces * bundle, index % pieces * piece);
            let rows = first..(first + bundle).min(rows);
            task(rows, from.min(inner)..(from + piece).min(inner));
        });
    }

    /// What the operands move by along a row: 0 or 1.
    pub(crate) fn steps(&self) -> [usize; 2] {
        let (_, a, b) = self.dims[0];
        [a, b]
    }

    /// Where each row's part, from `first_column` on, begins in the operands and in the output.
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
