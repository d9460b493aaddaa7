//! Iteration over nested loops. Every caller instantiates these functions; in a module of their own they are not placed
//! between the functions that all callers share, which then fit one page of memory.

use smallvec::SmallVec;

use super::Nest;

impl<const N: usize> Nest<N> {
    /// Calls `f` with the operands' offsets at the start of every run of the innermost loop, in order. `start` has the
    /// initial offsets.
    pub fn for_each_run(&self, start: [usize; N], mut f: impl FnMut([usize; N])) {
        if self.inner.0 == 0 || self.outer.iter().any(|(size, _)| *size == 0) {
            return;
        }
        let mut index = SmallVec::<[usize; 8]>::from_elem(0, self.outer.len());
        let mut at = start;
        loop {
            f(at);
            let mut d = self.outer.len();
            loop {
                if d == 0 {
                    return;
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
        let (size, step) = self.inner;
        self.for_each_run(start, |mut at| {
            for _ in 0..size {
                f(at);
                at = std::array::from_fn(|n| at[n].wrapping_add_signed(step[n]));
            }
        });
    }
}

impl Nest<2> {
    /// `out[i] = f(a[i], b[i])` for a dense `out`; the nest has the offsets in `a` and `b`.
    pub fn zip<A: Copy, B: Copy, O>(&self, a: &[A], b: &[B], out: &mut [O], f: impl Fn(A, B) -> O) {
        let (size, [step_a, step_b]) = self.inner;
        let mut rows = out.chunks_exact_mut(size.max(1));
        self.for_each_run([0; 2], |[at_a, at_b]| {
            let Some(out) = rows.next() else { return };
            match (step_a, step_b) {
                (1, 1) => {
                    let (a, b) = (&a[at_a..][..size], &b[at_b..][..size]);
                    out.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (a, b))| *o = f(*a, *b));
                }
                (1, 0) => {
                    let b = b[at_b];
                    out.iter_mut().zip(&a[at_a..][..size]).for_each(|(o, a)| *o = f(*a, b));
                }
                (0, 1) => {
                    let a = a[at_a];
                    out.iter_mut().zip(&b[at_b..][..size]).for_each(|(o, b)| *o = f(a, *b));
                }
                _ => {
                    for (i, o) in out.iter_mut().enumerate() {
                        let i = i.cast_signed();
                        *o = f(
                            a[at_a.wrapping_add_signed(i * step_a)],
                            b[at_b.wrapping_add_signed(i * step_b)],
                        );
                    }
                }
            }
        });
    }
}
