//! Iteration over nested loops. Each caller instantiates little code: the steps between runs of the innermost loop are
//! shared functions.

use std::convert::Infallible;
use std::ops::Range;

use smallvec::SmallVec;

use super::Nest;

/// Elements between two polls of [`Nest::zip_polled`]: less than 50 ms with any function.
const PIECE: usize = 1 << 19;

/// The offsets of the operands at the start of every run of the innermost loop, in order.
struct Runs<'n, const N: usize> {
    nest: &'n Nest<N>,
    index: SmallVec<[usize; 8]>,
    next: Option<[usize; N]>,
}

impl<'n, const N: usize> Runs<'n, N> {
    fn new(nest: &'n Nest<N>, start: [usize; N]) -> Self {
        let empty = nest.inner.0 == 0 || nest.outer.iter().any(|(size, _)| *size == 0);
        let index = SmallVec::from_elem(0, nest.outer.len());
        Runs { nest, index, next: (!empty).then_some(start) }
    }

    /// Returns the offsets of the run after the one at `at`.
    #[inline(never)]
    fn after(&mut self, mut at: [usize; N]) -> Option<[usize; N]> {
        for (index, &(size, step)) in self.index.iter_mut().zip(&self.nest.outer).rev() {
            *index += 1;
            if *index < size {
                return Some(std::array::from_fn(|n| at[n].wrapping_add_signed(step[n])));
            }
            // Rewind this loop; the next outer loop advances.
            *index = 0;
            let back = (size - 1).cast_signed();
            at = std::array::from_fn(|n| at[n].wrapping_add_signed(step[n].wrapping_mul(-back)));
        }
        None
    }
}

impl<const N: usize> Iterator for Runs<'_, N> {
    type Item = [usize; N];

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.next?;
        self.next = self.after(at);
        Some(at)
    }
}

impl<const N: usize> Nest<N> {
    /// Calls `f` with the operands' offsets at the start of every run of the innermost loop, in order. `start` has the
    /// initial offsets.
    pub(crate) fn for_each_run(&self, start: [usize; N], f: impl FnMut([usize; N])) {
        Runs::new(self, start).for_each(f);
    }

    /// Like [`Nest::for_each_run`], up to the first error.
    ///
    /// # Errors
    /// That of `f`.
    pub(crate) fn try_for_each_run<E>(
        &self,
        start: [usize; N],
        f: impl FnMut([usize; N]) -> Result<(), E>,
    ) -> Result<(), E> {
        Runs::new(self, start).try_for_each(f)
    }

    /// Calls `f` with the operands' offsets for every element, in order.
    pub(crate) fn for_each(&self, start: [usize; N], mut f: impl FnMut([usize; N])) {
        let each = |at| {
            f(at);
            Ok::<(), Infallible>(())
        };
        let Ok(()) = self.try_for_each(start, each);
    }

    /// Like [`Nest::for_each`], up to the first error.
    ///
    /// # Errors
    /// That of `f`.
    pub(crate) fn try_for_each<E>(
        &self,
        start: [usize; N],
        mut f: impl FnMut([usize; N]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (size, step) = self.inner;
        self.try_for_each_run(start, |mut at| {
            for _ in 0..size {
                f(at)?;
                at = std::array::from_fn(|n| at[n].wrapping_add_signed(step[n]));
            }
            Ok(())
        })
    }
}

/// Parts of runs of the innermost loop, of at most [`PIECE`] elements, for a dense output of `len` elements.
struct Pieces<'n> {
    runs: Runs<'n, 2>,
    /// The offsets of the rest of a run, and its place in the output.
    rest: ([usize; 2], Range<usize>),
    len: usize,
    /// Elements until the next poll.
    left: usize,
}

/// A part of a run.
struct Piece {
    at: [usize; 2],
    out: Range<usize>,
    /// Whether a poll is due before the part.
    poll: bool,
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    #[inline(never)]
    fn next(&mut self) -> Option<Piece> {
        let (size, steps) = self.runs.nest.inner;
        let (at, rest) = &mut self.rest;
        if rest.start == rest.end {
            *at = self.runs.next()?;
            *rest = rest.end..rest.end.checked_add(size).filter(|end| *end <= self.len)?;
        }
        let count = rest.len().min(PIECE);
        let poll = count > self.left;
        self.left = if poll { PIECE } else { self.left } - count;
        let piece = Piece { at: *at, out: rest.start..rest.start + count, poll };
        rest.start += count;
        *at = std::array::from_fn(|n| at[n].wrapping_add_signed(steps[n].wrapping_mul(count.cast_signed())));
        Some(piece)
    }
}

impl Nest<2> {
    fn pieces(&self, len: usize) -> Pieces<'_> {
        Pieces { runs: Runs::new(self, [0; 2]), rest: ([0; 2], 0..0), len, left: PIECE }
    }

    /// As [`Nest::zip_polled`], without polls.
    #[cfg(test)]
    pub(crate) fn zip<A: Copy, B: Copy, O>(&self, a: &[A], b: &[B], out: &mut [O], f: impl Fn(A, B) -> O) {
        let Ok(()) = self.zip_polled(a, b, out, f, || Ok::<(), Infallible>(()));
    }

    /// `out[i] = f(a[i], b[i])` for a dense `out`; the nest has the offsets in `a` and `b`. `poll` is called between
    /// pieces of the work; its error ends the work.
    ///
    /// # Errors
    /// That of `poll`.
    pub(crate) fn zip_polled<A: Copy, B: Copy, O, E>(
        &self,
        a: &[A],
        b: &[B],
        out: &mut [O],
        f: impl Fn(A, B) -> O,
        mut poll: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        self.for_each_piece(out.len(), &mut poll, &mut Zip { steps: self.inner.1, a, b, out, f })
    }

    /// Passes all pieces of a dense output of `len` elements to a task. Compiled once per type of error, not once per task.
    #[inline(never)]
    fn for_each_piece<E>(
        &self,
        len: usize,
        poll: &mut dyn FnMut() -> Result<(), E>,
        task: &mut dyn PieceTask,
    ) -> Result<(), E> {
        for piece in self.pieces(len) {
            if piece.poll {
                poll()?;
            }
            task.run(piece.at, piece.out);
        }
        Ok(())
    }
}

/// The work on each piece. A trait object of a closure would compile the code a second time, for `FnOnce`.
trait PieceTask {
    /// Works on a part of a run that begins at these offsets, for a range of the output.
    fn run(&mut self, at: [usize; 2], out: Range<usize>);
}

/// The task of [`Nest::zip_polled`].
struct Zip<'z, A, B, O, F> {
    steps: [isize; 2],
    a: &'z [A],
    b: &'z [B],
    out: &'z mut [O],
    f: F,
}

impl<A: Copy, B: Copy, O, F: Fn(A, B) -> O> PieceTask for Zip<'_, A, B, O, F> {
    fn run(&mut self, [at_a, at_b]: [usize; 2], out: Range<usize>) {
        /// Copies that stand for an element of stride 0, so that the loop over consecutive elements handles it, too. A
        /// separate loop would be compiled for every function.
        const COPIES: usize = 128;
        /// Shorter runs do not pay for the copies.
        const LONG: usize = 32;
        let (a, b, f) = (self.a, self.b, &self.f);
        let out = &mut self.out[out];
        let piece = match self.steps {
            [1, 1] => out.len(),
            [1, 0] | [0, 1] if out.len() >= LONG => COPIES,
            [step_a, step_b] => {
                for (i, o) in out.iter_mut().enumerate() {
                    let i = i.cast_signed();
                    *o = f(a[at_a.wrapping_add_signed(i * step_a)], b[at_b.wrapping_add_signed(i * step_b)]);
                }
                return;
            }
        };
        let copies_a = (self.steps[0] == 0).then(|| [a[at_a]; COPIES]);
        let copies_b = (self.steps[1] == 0).then(|| [b[at_b]; COPIES]);
        for (i, out) in out.chunks_mut(piece.max(1)).enumerate() {
            let (first, size) = (i * piece, out.len());
            let a = copies_a.as_ref().map_or_else(|| &a[at_a + first..][..size], |copies| &copies[..size]);
            let b = copies_b.as_ref().map_or_else(|| &b[at_b + first..][..size], |copies| &copies[..size]);
            out.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (a, b))| *o = f(*a, *b));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_repeats_in_runs_of_any_length() {
        for size in [1u32, 31, 32, 127, 128, 129, 300] {
            let rows: Vec<u32> = (0..3 * size).map(|i| i * 7).collect();
            let column = [5, 11, 13];
            let want: Vec<u32> = (0..)
                .zip(&rows)
                .map(|(i, x): (usize, &u32)| x.wrapping_sub(column[i / size as usize]))
                .collect();
            let (shape, mut got) = ([3, size as usize], vec![0; rows.len()]);
            Nest::broadcast(&shape, &[3, 1], &shape).zip(&rows, &column, &mut got, |a, b| a.wrapping_sub(b));
            assert_eq!(got, want, "{size}");
            Nest::broadcast(&[3, 1], &shape, &shape).zip(&column, &rows, &mut got, |a, b| b.wrapping_sub(a));
            assert_eq!(got, want, "{size}");
        }
    }

    #[test]
    fn long_loops_poll() {
        // Two long rows, and many rows of one element.
        for shape in [[2, 3 * PIECE], [4 * PIECE, 1]] {
            let count = shape[0] * shape[1];
            let a: Vec<u32> = (0..count as u32).collect();
            for b_shape in [[1, shape[1]], [shape[0], 1], shape] {
                let b: Vec<u32> = (0..(b_shape[0] * b_shape[1]) as u32).map(|i| i.wrapping_mul(7)).collect();
                let nest = Nest::broadcast(&shape, &b_shape, &shape);
                let (mut want, mut got, mut polls) = (vec![0; count], vec![0; count], 0);
                nest.zip(&a, &b, &mut want, |a, b| a ^ b);
                let poll = || {
                    polls += 1;
                    Ok::<(), ()>(())
                };
                nest.zip_polled(&a, &b, &mut got, |a, b| a ^ b, poll).unwrap();
                assert!(got == want, "{shape:?} {b_shape:?}");
                assert!(polls >= 3, "{polls} polls");
                assert_eq!(nest.zip_polled(&a, &b, &mut got, |a, b| a ^ b, || Err(3)), Err(3));
            }
        }
    }
}
