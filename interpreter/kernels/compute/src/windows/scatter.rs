//! Sums of overlapping parts, of which the rows of transposed convolutions are made.

use crate::base::clamp::Clamp;

/// Placement of parts in a row: part `i` begins `stride * i` elements after the start, less `padding`. Elements outside
/// of the row are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scatter {
    /// Elements of a part.
    pub len: usize,
    /// Elements from the start of a part to that of the next, in the target.
    pub stride: usize,
    /// Elements before the start of the target.
    pub padding: usize,
}

impl Scatter {
    /// Adds parts of floats to `to`: the first `len` elements of each `step` elements of `from`.
    ///
    /// # Panics
    /// Panics if `step` is 0, or if `step` or the end of `from` cuts off elements of a part that are inside `to`.
    pub fn add(&self, from: &[f32], step: usize, to: &mut [f32]) {
        self.add_with(from, step, to, |a, b| a + b);
    }

    /// As [`Scatter::add`], for integers, which wrap around.
    ///
    /// # Panics
    /// As [`Scatter::add`].
    pub fn add_wrapping(&self, from: &[i32], step: usize, to: &mut [i32]) {
        self.add_with(from, step, to, i32::wrapping_add);
    }

    #[inline(always)]
    fn add_with<T: Copy>(&self, from: &[T], step: usize, to: &mut [T], add: impl Fn(T, T) -> T) {
        let len = to.len();
        for (i, part) in from.chunks(step).enumerate() {
            // Positions in the padded target.
            let start = i * self.stride;
            let (first, end) = (start.max(self.padding), (start + self.len).min(len + self.padding));
            if first >= end {
                continue;
            }
            let to = &mut to[first - self.padding..end - self.padding];
            let part = &part[first - start..end - start];
            to.iter_mut().zip(part).for_each(|(to, &x)| *to = add(*to, x));
        }
    }
}

/// Adds `bias` to each run of `bias.len()` sums, clamps the results and writes them to `out`. An empty `bias` adds
/// nothing.
///
/// # Panics
/// Panics if a bound of `clamp` is NaN, or the lower bound is greater.
pub fn add_bias(sums: &[f32], bias: &[f32], clamp: Clamp, out: &mut [f32]) {
    let clamp = |x: f32| x.clamp(clamp.low, clamp.high);
    if bias.is_empty() {
        out.iter_mut().zip(sums).for_each(|(out, &sum)| *out = clamp(sum));
        return;
    }
    for (out, sums) in out.chunks_exact_mut(bias.len()).zip(sums.chunks_exact(bias.len())) {
        for ((out, &sum), &bias) in out.iter_mut().zip(sums).zip(bias) {
            *out = clamp(sum + bias);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    #[test]
    fn parts_add_up_where_they_overlap() {
        let mut rng = Rng::new(5);
        for _ in 0..200 {
            let (len, stride, padding) = (rng.range(1, 9), rng.range(1, 9), rng.range(0, 7));
            let (step, parts, width) = (len + rng.range(0, 3), rng.range(0, 6), rng.range(0, 30));
            let from: Vec<i32> = (0..step * parts).map(|_| rng.range(0, 1000) as i32).collect();
            let mut expected = vec![1i32; width];
            for part in 0..parts {
                for x in 0..len {
                    if let Some(at) = (part * stride + x).checked_sub(padding).filter(|&at| at < width) {
                        expected[at] += from[part * step + x];
                    }
                }
            }
            let scatter = Scatter { len, stride, padding };
            let mut sums = vec![1i32; width];
            scatter.add_wrapping(&from, step, &mut sums);
            assert_eq!(sums, expected, "{scatter:?}");
            let floats: Vec<f32> = from.iter().map(|&x| x as f32).collect();
            let mut sums = vec![1f32; width];
            scatter.add(&floats, step, &mut sums);
            assert_eq!(sums, expected.iter().map(|&x| x as f32).collect::<Vec<_>>(), "{scatter:?}");
        }
    }

    #[test]
    fn biases_repeat() {
        let clamp = Clamp { low: 0.0, high: 6.0 };
        let mut out = [0.0; 4];
        add_bias(&[1.0, -1.0, 7.0, 2.0], &[1.0, -2.0], clamp, &mut out);
        assert_eq!(out, [2.0, 0.0, 6.0, 0.0]);
        add_bias(&[1.0, -1.0, 7.0, 2.0], &[], clamp, &mut out);
        assert_eq!(out, [1.0, 0.0, 6.0, 2.0]);
    }
}
