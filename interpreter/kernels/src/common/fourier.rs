//! Fourier transforms of power-of-two lengths, in double precision.

use std::f64::consts::TAU;

use std::sync::Arc;

use delegraph_core::kernel::{Budget, Charged};
use delegraph_core::{Error, Result};

use super::pace::{PIECE, Pace};

type Complex = [f64; 2];

/// Number of roots computed between two calls of [`Budget::check`]: less than a millisecond.
const CHECKED: usize = 1 << 14;

fn times([a, b]: Complex, [c, d]: Complex) -> Complex {
    [a * c - b * d, a * d + b * c]
}

fn plus(a: Complex, b: Complex) -> Complex {
    [a[0] + b[0], a[1] + b[1]]
}

fn minus(a: Complex, b: Complex) -> Complex {
    [a[0] - b[0], a[1] - b[1]]
}

/// `exp(-2πi k / len)`
fn root(k: usize, len: usize) -> Complex {
    let (sin, cos) = (-TAU * k as f64 / len as f64).sin_cos();
    [cos, sin]
}

/// Returns the length, which must be a power of two.
pub(crate) fn check(len: i32) -> Result<usize> {
    let size = usize::try_from(len).ok().filter(|len| len.is_power_of_two());
    size.ok_or_else(|| Error::Unsupported(format!("a length of {len}; only powers of two are supported")))
}

/// A transform of complex numbers, in place.
pub(crate) struct Fft {
    len: usize,
    /// For each stage, which joins pairs of parts of 4, 8, 16, … elements: as many roots as a part has elements.
    roots: Charged<Complex>,
}

impl Fft {
    pub(crate) fn new(len: i32, budget: &Arc<Budget>) -> Result<Self> {
        Fft::of(check(len)?, budget)
    }

    fn of(len: usize, budget: &Arc<Budget>) -> Result<Self> {
        // Parts of 4, 8, …, len / 2 elements have len - 4 together.
        let mut roots = budget.reserved(len.saturating_sub(4))?;
        for part in (2..usize::BITS).map(|i| 1usize << i).take_while(|part| *part < len) {
            for k in 0..part {
                if k % CHECKED == 0 {
                    budget.check()?;
                }
                roots.push(root(k, 2 * part))?;
            }
        }
        Ok(Fft { len, roots })
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Transforms `line`, which has [`Fft::len`] elements. Stages: bit-reversed order, groups of four, then pairs of
    /// parts of 4, 8, 16, … elements.
    ///
    /// # Errors
    /// The errors of [`Budget::check`].
    pub(crate) fn run(&self, line: &mut [Complex], pace: &mut Pace) -> Result<()> {
        let digits = self.len.checked_ilog2().unwrap_or(0);
        for first in (0..self.len).step_by(PIECE) {
            let end = self.len.min(first + PIECE);
            pace.spend((end - first).saturating_mul(8))?;
            for i in first..end {
                let j = i.reverse_bits().checked_shr(usize::BITS - digits).unwrap_or(0);
                if i < j {
                    line.swap(i, j);
                }
            }
        }
        if let [a, b] = line {
            (*a, *b) = (plus(*a, *b), minus(*a, *b));
        }
        for piece in line.chunks_mut(PIECE) {
            pace.spend(piece.len().saturating_mul(2))?;
            for four in piece.chunks_exact_mut(4) {
                let (a, b) = (plus(four[0], four[1]), minus(four[0], four[1]));
                let (c, d) = (plus(four[2], four[3]), minus(four[2], four[3]));
                let turned = [d[1], -d[0]];
                four.copy_from_slice(&[plus(a, c), plus(b, turned), minus(a, c), minus(b, turned)]);
            }
        }
        let (mut part, mut left) = (4, &*self.roots);
        while part < self.len {
            let (roots, rest) = left.split_at(part);
            // Pieces of pairs, or pairs of pieces; both sizes are powers of two.
            for piece in line.chunks_mut(PIECE.max(2 * part)) {
                if part < PIECE {
                    pace.spend(piece.len().saturating_mul(2))?;
                    for pair in piece.chunks_exact_mut(2 * part) {
                        let (even, odd) = pair.split_at_mut(part);
                        join(even, odd, roots);
                    }
                    continue;
                }
                let (even, odd) = piece.split_at_mut(part);
                for ((even, odd), roots) in
                    even.chunks_mut(PIECE).zip(odd.chunks_mut(PIECE)).zip(roots.chunks(PIECE))
                {
                    pace.spend(4 * PIECE)?;
                    join(even, odd, roots);
                }
            }
            (part, left) = (2 * part, rest);
        }
        Ok(())
    }
}

/// The sums and the differences of elements and turned elements.
#[inline]
fn join(even: &mut [Complex], odd: &mut [Complex], roots: &[Complex]) {
    for ((a, b), root) in even.iter_mut().zip(odd).zip(roots) {
        let turned = times(*b, *root);
        (*a, *b) = (plus(*a, turned), minus(*a, turned));
    }
}

/// A transform of real numbers: one transform of half the length over complex numbers whose parts are the even and the
/// odd elements.
pub(crate) struct RealFft {
    len: usize,
    half: Fft,
    /// Roots for the lower half of the frequencies.
    roots: Charged<Complex>,
}

impl RealFft {
    pub(crate) fn new(len: i32, budget: &Arc<Budget>) -> Result<Self> {
        let len = check(len)?;
        let roots = budget.collect((0..len / 4 + 1).map(|k| root(k, len)))?;
        Ok(RealFft { len, half: Fft::of(len / 2, budget)?, roots })
    }

    /// Returns the number of frequencies, which is the length of the line that `run` writes.
    pub(crate) fn frequencies(&self) -> usize {
        self.len / 2 + 1
    }

    /// Writes the frequencies of `input` to `line`. Short input is padded with zeros, long input is truncated.
    ///
    /// # Errors
    /// The errors of [`Budget::check`].
    pub(crate) fn run(
        &self,
        input: impl Iterator<Item = f64>,
        line: &mut [Complex],
        pace: &mut Pace,
    ) -> Result<()> {
        let line = &mut line[..self.frequencies()];
        let mut input = input.take(self.len);
        for piece in line.as_flattened_mut().chunks_mut(PIECE) {
            pace.spend(piece.len().saturating_mul(2))?;
            piece.fill(0.0);
            piece.iter_mut().zip(input.by_ref()).for_each(|(to, x)| *to = x);
        }
        let half = self.len / 2;
        if half == 0 {
            return Ok(());
        }
        self.half.run(&mut line[..half], pace)?;
        line[half] = line[0];
        for (first, roots) in (0..).step_by(PIECE).zip(self.roots.chunks(PIECE)) {
            pace.spend(roots.len().saturating_mul(8))?;
            for (k, &root) in (first..).zip(roots) {
                // The transforms of the even and the odd elements, recovered by the symmetry of real input.
                let (a, [re, im]) = (line[k], line[half - k]);
                let even = [0.5 * (a[0] + re), 0.5 * (a[1] - im)];
                let odd = times([0.5 * (a[1] + im), 0.5 * (re - a[0])], root);
                let (this, [re, im]) = (plus(even, odd), minus(even, odd));
                (line[k], line[half - k]) = (this, [re, -im]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_longer_than_a_piece() {
        let (len, budget) = (4 * PIECE, Budget::unlimited());
        let real = RealFft::new(len as i32, budget).unwrap();
        let mut line = vec![[0.0; 2]; real.frequencies()];
        let mut run = |budget| real.run([0.0, 0.0, 0.0, 1.0].into_iter(), &mut line, &mut Pace::of(budget));
        let cancelled = Budget::new(0);
        cancelled.cancel();
        assert!(matches!(run(&cancelled), Err(Error::Cancelled)));
        run(budget).unwrap();
        for (k, got) in line.iter().enumerate().step_by(1013) {
            approx::assert_abs_diff_eq!(got[..], root(3 * k % len, len)[..], epsilon = 1e-9);
        }
    }

    #[test]
    fn both_are_the_sums_that_define_them() {
        let budget = Budget::unlimited();
        let mut pace = Pace::of(budget);
        for len in [1usize, 2, 4, 8, 16, 64, 512] {
            let values: Vec<f64> = (0..len).map(|i| ((i * 37 + 11) % 23) as f64 - 9.5).collect();
            let want: Vec<Complex> = (0..len)
                .map(|k| {
                    let term = |(i, &x): (usize, &f64)| times([x, 0.25 * x], root(i * k % len, len));
                    values.iter().enumerate().map(term).fold([0.0; 2], plus)
                })
                .collect();
            let close = |got: &[Complex], want: &[Complex]| {
                let epsilon = 1e-10 * len as f64;
                approx::assert_abs_diff_eq!(*got.as_flattened(), *want.as_flattened(), epsilon = epsilon);
            };
            let mut line: Vec<Complex> = values.iter().map(|&x| [x, 0.25 * x]).collect();
            Fft::of(len, budget).unwrap().run(&mut line, &mut pace).unwrap();
            close(&line, &want);

            let real = RealFft::new(len as i32, budget).unwrap();
            let want: Vec<Complex> = (0..len / 2 + 1)
                .map(|k| {
                    let term = |(i, &x): (usize, &f64)| times([x, 0.0], root(i * k % len, len));
                    values.iter().enumerate().map(term).fold([0.0; 2], plus)
                })
                .collect();
            let mut line = vec![[7.0; 2]; real.frequencies()];
            real.run(values.iter().copied().chain([3.0]), &mut line, &mut pace).unwrap();
            close(&line, &want);
        }
        assert!(RealFft::new(0, budget).is_err() && RealFft::new(-4, budget).is_err());
        assert!(Fft::new(12, budget).is_err() && Fft::new(1 << 30, &Budget::new(1 << 20)).is_err());
    }
}
