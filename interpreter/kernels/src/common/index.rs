//! Iteration over tensors of any rank: strides, nested loops, copies between strided views.

use delegraph_core::TensorType;
use delegraph_core::kernel::Parallel;
use smallvec::SmallVec;

use delegraph_compute::{SharedMut, chunk_len, threads_for};

mod walk;

/// Distance between neighbours along each dimension, in elements, outermost dimension first.
pub(crate) type Strides = SmallVec<[isize; 8]>;

/// Strides of a dense tensor, in elements.
pub(crate) fn dense_strides(shape: &[usize]) -> Strides {
    let mut strides = Strides::from_elem(1, shape.len());
    for d in (1..shape.len()).rev() {
        // Wraps only for tensors without elements.
        strides[d - 1] = strides[d].wrapping_mul(shape[d].cast_signed());
    }
    strides
}

/// Strides for reading a dense tensor of shape `from` as a tensor of shape `to`, to which it broadcasts by NumPy's
/// rule. Repeated dimensions have stride 0.
pub(crate) fn broadcast_strides(from: &[usize], to: &[usize]) -> Strides {
    let missing = to.len() - from.len();
    let mut strides = Strides::from_elem(0, missing);
    let repeated = |(d, stride)| if from[d] == 1 && to[missing + d] != 1 { 0 } else { stride };
    strides.extend(dense_strides(from).into_iter().enumerate().map(repeated));
    strides
}

/// Nested loops over `N` operands, each with a stride per loop. Loops that are contiguous for every operand are merged,
/// so that the innermost loop is as long as possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nest<const N: usize> {
    outer: SmallVec<[(usize, [isize; N]); 8]>,
    inner: (usize, [isize; N]),
}

impl<const N: usize> Nest<N> {
    /// Loops over `shape`, outermost first; `strides[n][d]` is the step of operand `n` in loop `d`.
    pub(crate) fn new(shape: &[usize], strides: [&[isize]; N]) -> Self {
        let mut nest = Nest { outer: SmallVec::new(), inner: (1, [0; N]) };
        for d in (0..shape.len()).rev() {
            if shape[d] == 1 {
                continue;
            }
            let size = shape[d];
            let step: [isize; N] = std::array::from_fn(|n| strides[n][d]);
            let last = nest.outer.last_mut().unwrap_or(&mut nest.inner);
            if last.0 == 1 {
                *last = (size, step);
            } else if (0..N).all(|n| step[n] == last.1[n].wrapping_mul(last.0.cast_signed())) {
                last.0 = last.0.wrapping_mul(size);
            } else {
                nest.outer.push((size, step));
            }
        }
        nest.outer.reverse();
        nest
    }

    /// Number of iterations.
    pub(crate) fn count(&self) -> usize {
        self.outer.iter().fold(self.inner.0, |product, (count, _)| product.saturating_mul(*count))
    }

    /// Length and strides of the innermost loop.
    pub(crate) fn inner(&self) -> (usize, [isize; N]) {
        self.inner
    }
}

/// A loop whose iterations can run in parallel, as they write disjoint ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Index of the loop, counted from the outermost one.
    pub(crate) depth: usize,
    /// Number of iterations.
    pub(crate) count: usize,
    /// Step of each operand.
    pub(crate) step: [isize; 2],
    /// Largest offset that the loops inside reach in the output.
    pub(crate) reach: usize,
}

impl Nest<2> {
    /// Returns the outermost loop with several iterations and a nonzero step in the second operand, if the step is
    /// longer than the reach of the loops inside. `None` also for negative steps and more than eight outer loops.
    pub(crate) fn cut(&self) -> Option<Cut> {
        let loops = || self.outer.iter().chain([&self.inner]);
        let (depth, &(count, step)) =
            loops().enumerate().find(|(_, (count, step))| *count > 1 && step[1] != 0)?;
        let mut reach = 0usize;
        for (count, step) in loops().skip(depth + 1) {
            reach = reach.checked_add(count.checked_sub(1)?.checked_mul(usize::try_from(step[1]).ok()?)?)?;
        }
        (usize::try_from(step[1]).ok()? > reach && !self.outer.spilled()).then_some(Cut {
            depth,
            count,
            step,
            reach,
        })
    }

    /// Splits off a loop that sums up rows: the innermost loop has stride 1 in both operands, and the loop around it
    /// has stride 0 in the second. Returns the other loops, and the count and the stride of the one split off.
    pub(crate) fn stacked(&self) -> Option<(Self, usize, usize)> {
        let &(count, [step, 0]) = self.outer.last().filter(|_| self.inner.1 == [1, 1])? else { return None };
        let mut rest = self.clone();
        rest.outer.pop();
        Some((rest, count, usize::try_from(step).ok()?))
    }

    /// Returns the loops with only `count` iterations of the cut.
    pub(crate) fn part(&self, cut: Cut, count: usize) -> Self {
        let mut part = self.clone();
        part.outer.get_mut(cut.depth).unwrap_or(&mut part.inner).0 = count;
        part
    }

    /// Loops for an elementwise op whose inputs of shapes `a` and `b` broadcast to `out`.
    pub(crate) fn broadcast(a: &[usize], b: &[usize], out: &[usize]) -> Self {
        Nest::new(out, [&broadcast_strides(a, out), &broadcast_strides(b, out)])
    }
}

/// A view of a tensor: the offset of its first element and its strides, in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    /// Offset of the first element.
    pub(crate) start: usize,
    /// Step of each dimension.
    pub(crate) strides: Strides,
}

impl View {
    /// Returns the whole of a dense tensor.
    pub(crate) fn dense(shape: &[usize]) -> Self {
        View { start: 0, strides: dense_strides(shape) }
    }

    /// Returns the box of a dense tensor of shape `shape` that begins at `origin`.
    pub(crate) fn at(shape: &[usize], origin: &[usize]) -> Self {
        let strides = dense_strides(shape);
        let start = origin.iter().zip(&strides).map(|(&o, &s)| o.wrapping_mul(s.cast_unsigned()));
        let start = start.fold(0, usize::wrapping_add);
        View { start, strides }
    }

    /// Returns a dense tensor of shape `from` as a view of shape `to`, to which it broadcasts.
    pub(crate) fn broadcast(from: &[usize], to: &[usize]) -> Self {
        View { start: 0, strides: broadcast_strides(from, to) }
    }
}

/// A copy between two views, for elements of any size. Elements below a byte are packed, the first in the lowest bits.
#[derive(Debug, Clone)]
pub(crate) struct StridedCopy {
    nest: Nest<2>,
    start: [usize; 2],
    bits: usize,
}

/// Contiguous copies of fewer bytes are not divided over threads.
const MAX_PLAIN: usize = 64 << 10;

/// Elements of a copy between two polls: less than 50 ms.
const MAX_PIECE: usize = 4 << 20;

/// Steps of a poll for a copy, beside its elements.
const COPY_STEPS: usize = 64;

impl StridedCopy {
    /// A copy of `shape` elements of `bits` bits each from one view to another.
    pub(crate) fn new(shape: &[usize], bits: usize, from: &View, to: &View) -> Self {
        let nest = Nest::new(shape, [&from.strides, &to.strides]);
        StridedCopy { nest, start: [from.start, to.start], bits }
    }

    /// A copy of a dense tensor into one of shape `to`. Along each dimension, the first element is copied to index
    /// `before` and neighbours are `apart` elements apart. Elements outside of `to` are left out.
    pub(crate) fn spread(
        shape: &[usize],
        to: &[usize],
        before: &[isize],
        apart: &[usize],
        bits: usize,
    ) -> Self {
        let (mut counts, mut from, mut target) =
            (SmallVec::<[usize; 8]>::new(), View::dense(shape), View::dense(to));
        for d in 0..shape.len() {
            // 128 bits hold the products of any numbers in a file.
            let (low, step) = (before[d] as i128, apart[d] as i128);
            let at_least = |distance: i128| (distance.max(0) + step - 1) / step;
            let (first, end) = (at_least(-low), at_least(to[d] as i128 - low).min(shape[d] as i128));
            counts.push((end - first).max(0) as usize);
            from.start =
                from.start.wrapping_add((first as usize).wrapping_mul(from.strides[d].cast_unsigned()));
            let origin = (low + first * step) as usize;
            target.start = target.start.wrapping_add(origin.wrapping_mul(target.strides[d].cast_unsigned()));
            target.strides[d] = target.strides[d].wrapping_mul(step as isize);
        }
        StridedCopy::new(&counts, bits, &from, &target)
    }

    /// Returns the steps of a poll for the copy: about nanoseconds.
    pub(crate) fn steps(&self) -> usize {
        self.nest.count().saturating_add(COPY_STEPS)
    }

    /// Returns whether the copy is `elements` consecutive elements, from offset 0 to offset 0.
    pub(crate) fn is_dense(&self, elements: usize) -> bool {
        let (size, steps) = self.nest.inner;
        self.start == [0; 2]
            && self.nest.outer.is_empty()
            && size == elements
            && (size < 2 || steps == [1; 2])
    }

    /// Whether all offsets that the parts of `cut` write are below `elements`.
    fn fits(&self, cut: &Cut, elements: usize) -> bool {
        let last = || cut.count.checked_sub(1)?.checked_mul(usize::try_from(cut.step[1]).ok()?);
        let end = last().and_then(|last| last.checked_add(cut.reach)?.checked_add(self.start[1]));
        end.is_some_and(|end| end < elements)
    }

    /// Copies from the bytes of one tensor to the bytes of another, on several threads if the copy is large enough.
    /// Skips the rest when the work is interrupted.
    pub(crate) fn run_on(&self, from: &[u8], to: &mut [u8], par: &dyn Parallel) {
        // A copy without elements may start outside of both tensors.
        if self.nest.count() == 0 {
            return;
        }
        let width = self.bits / 8;
        // The usual copy in small models: contiguous, and too small for several threads.
        let (count, steps) = self.nest.inner;
        if self.nest.outer.is_empty()
            && steps == [1; 2]
            && self.bits.is_multiple_of(8)
            && count.saturating_mul(width) < MAX_PLAIN
        {
            let [i, o] = self.start.map(|start| start * width);
            return copy_bytes(&from[i..][..count * width], &mut to[o..][..count * width]);
        }
        let loops = || self.nest.outer.iter().chain([&self.nest.inner]);
        let elements = loops().fold(1usize, |all, (count, _)| all.saturating_mul(*count));
        let par = threads_for(par, elements.saturating_mul(width) / 4);
        let several = width > 0 && par.threads() > 1;
        let cut = several.then(|| self.nest.cut()).flatten();
        let Some(cut) = cut.filter(|cut| self.fits(cut, to.len() / width)) else {
            return self.run_polled(from, to, par);
        };
        let each = elements.checked_div(cut.count).unwrap_or(0);
        let piece = chunk_len(par, cut.count, (each * width).div_ceil(4));
        let shared = SharedMut::new(to);
        par.run(cut.count.div_ceil(piece), &|task| {
            let (first, count) = (task * piece, piece.min(cut.count - task * piece));
            let [at, to] = [0, 1]
                .map(|n| self.start[n].wrapping_add_signed(cut.step[n].wrapping_mul(first.cast_signed())));
            let reach = (count - 1).wrapping_mul(cut.step[1].cast_unsigned()).wrapping_add(cut.reach);
            // SAFETY: the steps of the cut are longer than the reach of the loops inside it (`Nest::cut`), and no
            // offset overflows (`fits`), so that parts do not overlap. `Parallel::run` calls each task at most once.
            let to = unsafe { shared.slice(to * width, (reach + 1) * width) };
            let part = StridedCopy { nest: self.nest.part(cut, count), start: [at, 0], bits: self.bits };
            part.run_polled(from, to, par);
        });
    }

    /// Like [`StridedCopy::run`], in pieces of [`MAX_PIECE`] elements; skips the rest when the work is interrupted. Pieces
    /// of more than eight outer loops allocate memory for them.
    fn run_polled(&self, from: &[u8], to: &mut [u8], par: &dyn Parallel) {
        let elements = self.nest.count();
        let mut loops = self.nest.outer.iter().chain([&self.nest.inner]).enumerate();
        let divided = loops.find(|(_, (count, _))| elements > MAX_PIECE && *count > 1);
        let Some((depth, &(count, step))) = divided else { return self.run(from, to) };
        let piece = (MAX_PIECE / (elements / count).max(1)).max(1);
        for first in (0..count).step_by(piece) {
            if par.is_interrupted() {
                return;
            }
            let mut part = self.clone();
            part.nest.outer.get_mut(depth).unwrap_or(&mut part.nest.inner).0 = piece.min(count - first);
            let skipped = |n: usize| step[n].wrapping_mul(first.cast_signed());
            part.start = std::array::from_fn(|n| self.start[n].wrapping_add_signed(skipped(n)));
            part.run_polled(from, to, par);
        }
    }

    /// Copies from the bytes of one tensor to the bytes of another.
    fn run(&self, from: &[u8], to: &mut [u8]) {
        if let Some(rows) = self.rows() {
            let [i, o] = rows.start;
            return rows.copy(&from[i..], &mut to[o..]);
        }
        match self.bits {
            8 => self.elements::<1>(from, to),
            16 => self.elements::<2>(from, to),
            32 => self.elements::<4>(from, to),
            64 => self.elements::<8>(from, to),
            128 => self.elements::<16>(from, to),
            bits => self.nest.for_each(self.start, |[i, o]| set_packed(to, bits, o, packed(from, bits, i))),
        }
    }

    /// Returns the copy as one of rows of whole bytes, if it is one.
    fn rows(&self) -> Option<ByteRows> {
        let (&[(count, steps)], (size, [1, 1])) = (&*self.nest.outer, self.nest.inner) else { return None };
        let width = self.bits.is_multiple_of(8).then_some(self.bits / 8)?;
        let len = size.checked_mul(width)?;
        let [from, to] = steps.map(|step| usize::try_from(step).ok()?.checked_mul(width));
        let [i, o] = self.start.map(|start| start.checked_mul(width));
        (count > 0).then_some(ByteRows { count, len, start: [i?, o?], steps: [from?, to?] })
    }

    fn elements<const W: usize>(&self, from: &[u8], to: &mut [u8]) {
        let (from, to) = (from.as_chunks::<W>().0, to.as_chunks_mut::<W>().0);
        let (size, [step_from, step_to]) = self.nest.inner();
        if step_to == 1
            && step_from != 1
            && let Some(d) = self.nest.outer.iter().position(|(_, step)| step[0] == 1)
        {
            return self.transpose(d, from, to);
        }
        self.nest.for_each_run(self.start, |[mut i, mut o]| match (step_from, step_to) {
            (1, 1) => copy_bytes(from[i..][..size].as_flattened(), to[o..][..size].as_flattened_mut()),
            (0, 1) => to[o..][..size].fill(from[i]),
            _ => {
                for _ in 0..size {
                    to[o] = from[i];
                    i = i.wrapping_add_signed(step_from);
                    o = o.wrapping_add_signed(step_to);
                }
            }
        });
    }

    /// Runs a copy whose innermost loop writes consecutive elements and whose loop `d` reads consecutive elements. Both
    /// loops are tiled, so that each cache line is fetched once.
    fn transpose<const W: usize>(&self, d: usize, from: &[[u8; W]], to: &mut [[u8; W]]) {
        const TILE: usize = 16;
        let mut rest = self.nest.clone();
        let (rows, [_, row_to]) = rest.outer.remove(d);
        let (columns, [column_from, _]) = std::mem::replace(&mut rest.inner, (1, [0; 2]));
        rest.for_each_run(self.start, |[i, o]| {
            for first_row in (0..rows).step_by(TILE) {
                for first_column in (0..columns).step_by(TILE) {
                    let width = TILE.min(columns - first_column);
                    for row in first_row..rows.min(first_row + TILE) {
                        let at = |step: isize, n: usize| step.wrapping_mul(n.cast_signed());
                        let o = o.wrapping_add_signed(at(row_to, row)).wrapping_add(first_column);
                        let mut i = i.wrapping_add(row).wrapping_add_signed(at(column_from, first_column));
                        for target in &mut to[o..][..width] {
                            *target = from[i];
                            i = i.wrapping_add_signed(column_from);
                        }
                    }
                }
            }
        });
    }

    /// Calls `f` with the index read and the index written, for every element in order.
    #[cfg(test)]
    pub(crate) fn for_each(&self, mut f: impl FnMut(usize, usize)) {
        self.nest.for_each(self.start, |[i, o]| f(i, o));
    }

    /// Like [`StridedCopy::for_each`], up to the first error.
    ///
    /// # Errors
    /// That of `f`.
    pub(crate) fn try_for_each<E>(&self, mut f: impl FnMut(usize, usize) -> Result<(), E>) -> Result<(), E> {
        self.nest.try_for_each(self.start, |[i, o]| f(i, o))
    }
}

/// Rows of consecutive bytes.
struct ByteRows {
    count: usize,
    /// Bytes of a row.
    len: usize,
    /// The first byte, and bytes from row to row, of either tensor.
    start: [usize; 2],
    steps: [usize; 2],
}

impl ByteRows {
    /// Copies the rows. Rows of the usual lengths are single moves of vectors.
    fn copy(&self, from: &[u8], to: &mut [u8]) {
        match self.len {
            4 => self.copy_each(from, to, |from, to| to[..4].copy_from_slice(&from[..4])),
            8 => self.copy_each(from, to, |from, to| to[..8].copy_from_slice(&from[..8])),
            16 => self.copy_each(from, to, |from, to| to[..16].copy_from_slice(&from[..16])),
            32 => self.copy_each(from, to, |from, to| to[..32].copy_from_slice(&from[..32])),
            64 => self.copy_each(from, to, |from, to| to[..64].copy_from_slice(&from[..64])),
            len => self.copy_each(from, to, |from, to| copy_bytes(&from[..len], &mut to[..len])),
        }
    }

    #[inline(always)]
    fn copy_each(&self, from: &[u8], to: &mut [u8], copy: impl Fn(&[u8], &mut [u8])) {
        // The range that all rows reach; an offset beyond a tensor panics here and not after half of the work.
        let end = |n: usize| (self.count - 1).saturating_mul(self.steps[n]).saturating_add(self.len);
        let (mut from, mut to) = (&from[..end(0)], &mut to[..end(1)]);
        for _ in 1..self.count {
            copy(from, to);
            from = &from[self.steps[0]..];
            to = &mut to[self.steps[1]..];
        }
        copy(from, to);
    }
}

/// Copies a slice to one of the same length; a short one in two moves, which may overlap, without a call of `memcpy`.
#[inline]
fn copy_bytes(from: &[u8], to: &mut [u8]) {
    #[inline(always)]
    fn both_ends<const N: usize>(from: &[u8], to: &mut [u8]) {
        let last = from.len() - N;
        to[..N].copy_from_slice(&from[..N]);
        to[last..].copy_from_slice(&from[last..]);
    }
    let to = &mut to[..from.len()];
    match from.len() {
        0 => {}
        1..4 => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
        4..8 => both_ends::<4>(from, to),
        8..16 => both_ends::<8>(from, to),
        16..=32 => both_ends::<16>(from, to),
        33..=64 => both_ends::<32>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// Element `i` of a tensor of packed elements of `bits` bits, 2 or 4.
pub(crate) fn packed(bytes: &[u8], bits: usize, i: usize) -> u8 {
    let per_byte = 8 / bits;
    bytes[i / per_byte] >> (i % per_byte * bits) & ((1 << bits) - 1)
}

/// Writes element `i` of a tensor of packed elements of `bits` bits, 2 or 4.
pub(crate) fn set_packed(bytes: &mut [u8], bits: usize, i: usize, value: u8) {
    let (per_byte, mask) = (8 / bits, (1 << bits) - 1);
    let shift = i % per_byte * bits;
    let byte = &mut bytes[i / per_byte];
    *byte = *byte & !(mask << shift) | (value & mask) << shift;
}

/// Returns the bits per element of a type whose elements can be copied individually: all but strings and variants.
pub(crate) fn copied_bits(ty: TensorType) -> Option<usize> {
    if ty == TensorType::Resource { Some(32) } else { ty.bits() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use delegraph_compute::Serial;

    #[test]
    fn loops_merge_where_every_operand_is_dense() {
        let check = |a: &[usize], b: &[usize], out: &[usize], inner: (usize, [isize; 2]), outer: usize| {
            let nest = Nest::broadcast(a, b, out);
            assert_eq!((nest.inner(), nest.outer.len()), (inner, outer), "{a:?} and {b:?}");
        };
        check(&[2, 3, 4], &[2, 3, 4], &[2, 3, 4], (24, [1, 1]), 0);
        check(&[2, 3, 4], &[], &[2, 3, 4], (24, [1, 0]), 0);
        check(&[2, 3, 4], &[4], &[2, 3, 4], (4, [1, 1]), 1);
        check(&[2, 1, 4], &[2, 3, 1], &[2, 3, 4], (4, [1, 0]), 2);
        check(&[], &[], &[], (1, [0, 0]), 0);
    }

    #[test]
    fn broadcasts() {
        let (a, b) = ([1, 2, 3, 4, 5, 6], [10, 20]);
        let mut out = [0; 12];
        Nest::broadcast(&[2, 1, 3], &[2, 1], &[2, 2, 3]).zip(&a, &b, &mut out, |a, b| a + b);
        assert_eq!(out, [11, 12, 13, 21, 22, 23, 14, 15, 16, 24, 25, 26]);
        let mut none = [0; 0];
        Nest::broadcast(&[0, 3], &[3], &[0, 3]).zip(&a[..0], &a[..3], &mut none, |a, b| a + b);
    }

    #[test]
    fn spreads() {
        let spread = |to: usize, before, apart| {
            let mut out = vec![0; to];
            let copy = StridedCopy::spread(&[3], &[to], &[before], &[apart], 8);
            copy.run_on(&[1, 2, 3], &mut out, &Serial);
            let mut plain = vec![0; to];
            copy.run(&[1, 2, 3], &mut plain);
            assert_eq!(out, plain);
            out
        };
        assert_eq!(spread(6, 1, 2), [0, 1, 0, 2, 0, 3]);
        assert_eq!(spread(5, 1, 2), [0, 1, 0, 2, 0]);
        assert_eq!(spread(3, -3, 2), [0, 3, 0]);
        assert_eq!(spread(2, -9, 2), [0, 0]);
        assert_eq!(spread(2, 5, 1), [0, 0]);
        assert_eq!(spread(2, isize::MIN, usize::MAX), [0, 0]);
        // The box starts outside of the target, so that it has rows without elements, or 0 rows.
        for before in [[0, 7], [0, -7], [7, 0], [-7, 0]] {
            let mut out = [0; 6];
            StridedCopy::spread(&[2, 3], &[2, 3], &before, &[1, 1], 8).run_on(&[1; 6], &mut out, &Serial);
            assert_eq!(out, [0; 6], "{before:?}");
        }
    }

    #[test]
    fn transposes_in_tiles_are_copies_element_by_element() {
        for (shape, order) in [
            (vec![37, 5], vec![1, 0]),
            (vec![16, 33], vec![1, 0]),
            (vec![2, 19, 17, 3], vec![0, 3, 1, 2]),
            (vec![3, 18, 4, 21], vec![0, 2, 3, 1]),
            (vec![5, 4, 3, 2], vec![3, 2, 1, 0]),
            (vec![0, 7], vec![1, 0]),
        ] {
            let strides = dense_strides(&shape);
            let from = View { start: 0, strides: order.iter().map(|&d| strides[d]).collect() };
            let turned: Vec<usize> = order.iter().map(|&d| shape[d]).collect();
            let count: usize = shape.iter().product();
            for bits in [8, 16, 32, 64, 128] {
                let width = bits / 8;
                let copy = StridedCopy::new(&turned, bits, &from, &View::dense(&turned));
                let source: Vec<u8> = (0..count * width).map(|i| (i * 31 % 251) as u8).collect();
                let (mut got, mut want) = (vec![0; count * width], vec![0; count * width]);
                copy.run(&source, &mut got);
                copy.for_each(|i, o| {
                    want[o * width..][..width].copy_from_slice(&source[i * width..][..width])
                });
                assert_eq!(got, want, "{shape:?} as {order:?}, {bits} bits");
            }
        }
    }

    #[test]
    fn copies_on_several_threads_agree() {
        let pool = delegraph_compute::ThreadPool::new(3);
        let mut rng = delegraph_compute::random::Rng::new(91);
        let mut shared = 0;
        for _ in 0..60 {
            // A box of one tensor, with its dimensions permuted, copied into a larger tensor.
            let rank = rng.range(1, 4);
            let size: Vec<usize> =
                (0..rank).map(|d| rng.range(1, [100_000, 500, 60, 20][rank - 1] + d)).collect();
            let mut order: Vec<usize> = (0..rank).collect();
            (0..rank).for_each(|d| order.swap(d, rng.range(d, rank - 1)));
            let outer: Vec<usize> = size.iter().map(|s| s + rng.range(0, 3)).collect();
            let origin: Vec<usize> = size.iter().zip(&outer).map(|(s, o)| rng.range(0, o - s)).collect();
            let turned: Vec<usize> = order.iter().map(|&d| size[d]).collect();
            let (strides, whole) = (dense_strides(&turned), View::at(&outer, &origin));
            let mut from = View { start: 0, strides: Strides::from_elem(0, rank) };
            order.iter().enumerate().for_each(|(i, &d)| from.strides[d] = strides[i]);
            let width = [1, 4, 8][rng.range(0, 2)];
            let copy = StridedCopy::new(&size, 8 * width, &from, &whole);
            let source: Vec<u8> =
                (0..size.iter().product::<usize>() * width).map(|_| rng.next() as u8).collect();
            let len = outer.iter().product::<usize>() * width;
            let (mut got, mut want) = (vec![7; len], vec![7; len]);
            shared += usize::from(source.len() / 4 > 1 << 15);
            copy.run_on(&source, &mut got, &pool);
            copy.for_each(|i, o| want[o * width..][..width].copy_from_slice(&source[i * width..][..width]));
            assert!(got == want, "{size:?} as {order:?} at {origin:?} of {outer:?}, {width} bytes");
        }
        assert!(shared > 10, "{shared}");
    }

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "a panic ends a module")]
    fn offsets_that_overflow_are_not_shared_by_threads() {
        // The step times eight bytes is 0 modulo 2^64: every part would begin at the first byte.
        let step = 1isize << (isize::BITS - 3);
        let count = 1 << 17;
        let (from, to) = (View::dense(&[count]), View { start: 0, strides: Strides::from_slice(&[step]) });
        let copy = StridedCopy::new(&[count], 64, &from, &to);
        assert!(copy.nest.cut().is_some_and(|cut| !copy.fits(&cut, 1)));
        let pool = delegraph_compute::ThreadPool::new(3);
        let mut target = [0u8; 8];
        let run = std::panic::AssertUnwindSafe(|| copy.run_on(&vec![1; 8 * count], &mut target, &pool));
        assert!(std::panic::catch_unwind(run).is_err());
        assert!(!pool.take_panicked());
    }

    #[test]
    fn copies_of_any_width_agree() {
        // A transpose of [2, 3] that also reverses the rows.
        let from = View { start: 2, strides: Strides::from_slice(&[-1, 3]) };
        for bits in [2, 4, 8, 16, 32, 64, 128] {
            let copy = StridedCopy::new(&[3, 2], bits, &from, &View::dense(&[3, 2]));
            let (mut source, mut target) = (vec![0; 6 * 16], vec![0; 6 * 16]);
            let at = |i: usize| i * bits.div_ceil(8);
            for i in 0..6 {
                let value = u8::try_from(i).unwrap() & ((1 << bits.min(7)) - 1);
                if bits < 8 { set_packed(&mut source, bits, i, value) } else { source[at(i)] = value }
            }
            copy.run(&source, &mut target);
            let read = |i| if bits < 8 { packed(&target, bits, i) } else { target[at(i)] };
            let want = [2, 5, 1, 4, 0, 3].map(|v| if bits == 2 { v & 3 } else { v });
            assert_eq!((0..6).map(read).collect::<Vec<_>>(), want, "{bits} bits");
        }
    }

    /// One thread, whose work is interrupted at its poll number `at`.
    struct Interrupted {
        polls: AtomicUsize,
        at: usize,
    }

    // SAFETY: `run` calls `f` once per number, on the calling thread.
    unsafe impl Parallel for Interrupted {
        fn threads(&self) -> usize {
            1
        }

        fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
            (0..tasks).for_each(f);
        }

        fn is_interrupted(&self) -> bool {
            self.polls.fetch_add(1, Ordering::Relaxed) >= self.at
        }
    }

    #[test]
    fn copies_of_many_loops_are_polled() {
        let shape = [2; 23];
        let mut from = View::dense(&shape);
        from.strides.reverse();
        let copy = StridedCopy::new(&shape, 8, &from, &View::dense(&shape));
        assert!(copy.nest.outer.len() > 8 && copy.nest.count() > MAX_PIECE);
        let bytes = vec![1; copy.nest.count()];
        let mut target = vec![0; bytes.len()];
        copy.run_on(&bytes, &mut target, &Interrupted { polls: AtomicUsize::new(0), at: 0 });
        assert!(target.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn large_copies_are_polled() {
        let n = MAX_PIECE / 2;
        let from: Vec<u8> = (0..3 * n).map(|i| (i % 251) as u8).collect();
        // The longer loop is inside or outside: columns become rows, rows become columns.
        for (shape, strides) in [([3, n], [1, 3]), ([n, 3], [1, n as isize])] {
            let from_view = View { start: 0, strides: Strides::from_slice(&strides) };
            let copy = StridedCopy::new(&shape, 8, &from_view, &View::dense(&shape));
            let [mut whole, mut pieces, mut part] = [(); 3].map(|()| vec![255; 3 * n]);
            copy.run(&from, &mut whole);
            let polls = |at| Interrupted { polls: AtomicUsize::new(0), at };
            copy.run_on(&from, &mut pieces, &polls(usize::MAX));
            assert!(whole == pieces);
            copy.run_on(&from, &mut part, &polls(1));
            let copied = part.iter().position(|&byte| byte == 255).unwrap_or(part.len());
            assert!((1..=MAX_PIECE).contains(&copied), "{copied} elements in one piece");
            assert!(part[..copied] == whole[..copied] && part[copied..].iter().all(|&byte| byte == 255));
        }
    }
}
