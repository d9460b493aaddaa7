//! Iteration over nested loops. Every caller instantiates these functions; in a module of their own they are not placed
//! between the functions that all callers share, which then fit one page of memory.

use std::convert::Infallible;

use smallvec::SmallVec;

use super::Nest;

/// Elements between two polls of [`Nest::zip_polled`]: less than 50 ms of any function.
const PIECE: usize = 1 << 19;

impl<const N: usize> Nest<N> {
    /// Calls `f` with the operands' offsets at the start of every run of the innermost loop, in order. `start` has the
    /// initial offsets.
    pub fn for_each_run(&self, start: [usize; N], mut f: impl FnMut([usize; N])) {
        let each = |at| {
            f(at);
            Ok::<(), Infallible>(())
        };
        let Ok(()) = self.try_for_each_run(start, each);
    }

    /// Like [`Nest::for_each_run`], up to the first error.
    ///
    /// # Errors
    /// That of `f`.
    pub fn try_for_each_run<E>(
        &self,
        start: [usize; N],
        mut f: impl FnMut([usize; N]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.inner.0 == 0 || self.outer.iter().any(|(size, _)| *size == 0) {
            return Ok(());
        }
        let mut index = SmallVec::<[usize; 8]>::from_elem(0, self.outer.len());
        let mut at = start;
        loop {
            f(at)?;
            let mut d = self.outer.len();
            loop {
                if d == 0 {
                    return Ok(());
                }
                d -= 1;
                let (size, step) = self.outer[d];
                index[d] += 1;
                if index[d] < size {
                    at = std::array::from_fn(|n| at[n].wrapping_add_signed(step[n]));
                    break;
                }
                // Rewind this loop; the next outer loop advances.
                index[d] = 0;
                let back = (size - 1).cast_signed();
                at = std::array::from_fn(|n| at[n].wrapping_add_signed(step[n].wrapping_mul(-back)));
            }
        }
    }

    /// Calls `f` with the operands' offsets for every element, in order.
    pub fn for_each(&self, start: [usize; N], mut f: impl FnMut([usize; N])) {
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
    pub fn try_for_each<E>(
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

impl Nest<2> {
    /// `out[i] = f(a[i], b[i])` for a dense `out`; the nest has the offsets in `a` and `b`.
    pub fn zip<A: Copy, B: Copy, O>(&self, a: &[A], b: &[B], out: &mut [O], f: impl Fn(A, B) -> O) {
        let (size, steps) = self.inner;
        let mut rows = out.chunks_exact_mut(size.max(1));
        self.for_each_run([0; 2], |at| {
            if let Some(out) = rows.next() {
                zip_run(at, steps, a, b, out, &f);
            }
        });
    }

    /// Like [`Nest::zip`]; `poll` is called between pieces of the work, and ends it by an error.
    ///
    /// # Errors
    /// That of `poll`.
    pub fn zip_polled<A: Copy, B: Copy, O, E>(
        &self,
        a: &[A],
        b: &[B],
        out: &mut [O],
        f: impl Fn(A, B) -> O,
        mut poll: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        if out.len() <= PIECE {
            self.zip(a, b, out, f);
            return Ok(());
        }
        let (size, steps) = self.inner;
        let mut rows = out.chunks_exact_mut(size.max(1));
        let mut left = PIECE;
        self.try_for_each_run([0; 2], |at| {
            let pieces = rows.next().into_iter().flat_map(|row| row.chunks_mut(PIECE)).enumerate();
            for (piece, out) in pieces {
                left = match left.checked_sub(out.len()) {
                    Some(left) => left,
                    None => {
                        poll()?;
                        PIECE - out.len()
                    }
                };
                let first = (piece * PIECE).cast_signed();
                let at = std::array::from_fn(|n| at[n].wrapping_add_signed(first.wrapping_mul(steps[n])));
                zip_run(at, steps, a, b, out, &f);
            }
            Ok(())
        })
    }
}

/// One run of the innermost loop of [`Nest::zip`], from the offsets `at`.
fn zip_run<A: Copy, B: Copy, O>(
    [at_a, at_b]: [usize; 2],
    steps: [isize; 2],
    a: &[A],
    b: &[B],
    out: &mut [O],
    f: impl Fn(A, B) -> O,
) {
    let size = out.len();
    match steps {
        [1, 1] => {
            let (a, b) = (&a[at_a..][..size], &b[at_b..][..size]);
            out.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (a, b))| *o = f(*a, *b));
        }
        [1, 0] => {
            let b = b[at_b];
            out.iter_mut().zip(&a[at_a..][..size]).for_each(|(o, a)| *o = f(*a, b));
        }
        [0, 1] => {
            let a = a[at_a];
            out.iter_mut().zip(&b[at_b..][..size]).for_each(|(o, b)| *o = f(a, *b));
        }
        [step_a, step_b] => {
            for (i, o) in out.iter_mut().enumerate() {
                let i = i.cast_signed();
                *o = f(a[at_a.wrapping_add_signed(i * step_a)], b[at_b.wrapping_add_signed(i * step_b)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
