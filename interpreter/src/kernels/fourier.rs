//! Fourier transforms of powers of two of elements, in double precision.

use std::f64::consts::TAU;

use delegraph_core::{Error, Result};

type Complex = [f64; 2];

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

fn check(len: i32) -> Result<usize> {
    let size = usize::try_from(len).ok().filter(|len| len.is_power_of_two());
    size.ok_or_else(|| Error::Unsupported(format!("a length of {len}, not a power of two")))
}

/// Of complex numbers, in place.
pub(super) struct Fft {
    len: usize,
    /// For parts of 4, 8, 16, … elements that are joined in pairs: as many roots as a part has elements.
    roots: Vec<Complex>,
}

impl Fft {
    pub(super) fn new(len: i32) -> Result<Self> {
        Ok(Fft::of(check(len)?))
    }

    fn of(len: usize) -> Self {
        let parts = (2..usize::BITS).map(|i| 1usize << i).take_while(|part| *part < len);
        let roots = parts.flat_map(|part| (0..part).map(move |k| root(k, 2 * part))).collect();
        Fft { len, roots }
    }

    /// How many elements.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Elements in the order of their reversed binary digits, fours of them, then pairs of parts of 4, 8, 16, … elements.
    pub(super) fn run(&self, line: &mut [Complex]) {
        let digits = self.len.checked_ilog2().unwrap_or(0);
        for i in 0..self.len {
            let j = i.reverse_bits().checked_shr(usize::BITS - digits).unwrap_or(0);
            if i < j {
                line.swap(i, j);
            }
        }
        if let [a, b] = line {
            (*a, *b) = (plus(*a, *b), minus(*a, *b));
        }
        for four in line.chunks_exact_mut(4) {
            let (a, b) = (plus(four[0], four[1]), minus(four[0], four[1]));
            let (c, d) = (plus(four[2], four[3]), minus(four[2], four[3]));
            let turned = [d[1], -d[0]];
            four.copy_from_slice(&[plus(a, c), plus(b, turned), minus(a, c), minus(b, turned)]);
        }
        let (mut part, mut left) = (4, self.roots.as_slice());
        while part < self.len {
            let (roots, rest) = left.split_at(part);
            for pair in line.chunks_exact_mut(2 * part) {
                let (even, odd) = pair.split_at_mut(part);
                for ((a, b), root) in even.iter_mut().zip(odd).zip(roots) {
                    let turned = times(*b, *root);
                    (*a, *b) = (plus(*a, turned), minus(*a, turned));
                }
            }
            (part, left) = (2 * part, rest);
        }
    }
}

/// Of real numbers: as one transform of half as many complex ones, whose parts are the even and the odd elements.
pub(super) struct RealFft {
    len: usize,
    half: Fft,
    /// For the first half of the frequencies.
    roots: Vec<Complex>,
}

impl RealFft {
    pub(super) fn new(len: i32) -> Result<Self> {
        let len = check(len)?;
        Ok(RealFft { len, half: Fft::of(len / 2), roots: (0..len / 4 + 1).map(|k| root(k, len)).collect() })
    }

    /// How many frequencies; `run` needs a line of so many elements.
    pub(super) fn frequencies(&self) -> usize {
        self.len / 2 + 1
    }

    /// Puts the frequencies of `input`, and of zeros after it or without what is too much, into `line`.
    pub(super) fn run(&self, input: impl Iterator<Item = f64>, line: &mut [Complex]) {
        let line = &mut line[..self.frequencies()];
        line.fill([0.0; 2]);
        line.as_flattened_mut().iter_mut().zip(input.take(self.len)).for_each(|(to, x)| *to = x);
        let half = self.len / 2;
        if half == 0 {
            return;
        }
        self.half.run(&mut line[..half]);
        line[half] = line[0];
        for (k, &root) in self.roots.iter().enumerate() {
            // Frequencies of the even and the odd elements, which those of the other end mirror.
            let (a, [re, im]) = (line[k], line[half - k]);
            let even = [0.5 * (a[0] + re), 0.5 * (a[1] - im)];
            let odd = times([0.5 * (a[1] + im), 0.5 * (re - a[0])], root);
            let (this, [re, im]) = (plus(even, odd), minus(even, odd));
            (line[k], line[half - k]) = (this, [re, -im]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_the_sums_that_define_them() {
        for len in [1usize, 2, 4, 8, 16, 64, 512] {
            let values: Vec<f64> = (0..len).map(|i| ((i * 37 + 11) % 23) as f64 - 9.5).collect();
            let want: Vec<Complex> = (0..len)
                .map(|k| {
                    let term = |(i, &x): (usize, &f64)| times([x, 0.25 * x], root(i * k % len, len));
                    values.iter().enumerate().map(term).fold([0.0; 2], plus)
                })
                .collect();
            let close = |got: &[Complex], want: &[Complex]| {
                let worst = got.iter().flatten().zip(want.iter().flatten()).map(|(a, b)| (a - b).abs());
                assert!(worst.fold(0.0, f64::max) < 1e-10 * len as f64, "{len}");
            };
            let mut line: Vec<Complex> = values.iter().map(|&x| [x, 0.25 * x]).collect();
            Fft::of(len).run(&mut line);
            close(&line, &want);

            let real = RealFft::new(len as i32).unwrap();
            let want: Vec<Complex> = (0..len / 2 + 1)
                .map(|k| {
                    let term = |(i, &x): (usize, &f64)| times([x, 0.0], root(i * k % len, len));
                    values.iter().enumerate().map(term).fold([0.0; 2], plus)
                })
                .collect();
            let mut line = vec![[7.0; 2]; real.frequencies()];
            real.run(values.iter().copied().chain([3.0]), &mut line);
            close(&line, &want);
        }
        assert!(RealFft::new(0).is_err() && RealFft::new(-4).is_err() && Fft::new(12).is_err());
    }
}
