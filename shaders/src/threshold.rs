//! The sizes at which shaders change to another variant.

/// A condition on a size (an extent, or a product of extents) that decides between two variants of a shader.
///
/// Shaders compute their variant with [`Threshold::holds`], and declare the same constants to
/// [`Shader::other_sizes`](crate::Shader::other_sizes), so that the two cannot disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Threshold {
    /// The size is a multiple of this.
    MultipleOf(u32),
    /// The size is this or more.
    AtLeast(u32),
    /// The size is exactly this.
    Exactly(u32),
}

impl Threshold {
    /// Innermost extents that are read as vectors of four.
    pub const VECTORS: Self = Self::MultipleOf(4);
    /// Extents above one. Those of one are dropped from loops, and broadcast.
    pub const SEVERAL: Self = Self::AtLeast(2);

    /// Returns whether `size` meets the condition.
    pub fn holds(self, size: u32) -> bool {
        match self {
            Self::MultipleOf(n) => size.is_multiple_of(n),
            Self::AtLeast(n) => size >= n,
            Self::Exactly(n) => size == n,
        }
    }

    /// Returns samples of all sizes: a few on either side of each threshold, ascending. The samples are 1, small odd
    /// numbers and small multiples, so that products of them are on both sides as well.
    ///
    /// A size may be divided by four before a threshold is applied, so [`Threshold::AtLeast`] has a sample that reaches
    /// it after the division.
    pub fn samples(thresholds: &[Self]) -> Vec<u32> {
        let mut units = vec![4];
        let mut floors = vec![3];
        let mut samples = vec![1];
        for threshold in thresholds {
            match *threshold {
                Self::MultipleOf(n) => units.push(n.max(1)),
                Self::AtLeast(n) => floors.push(n.max(3)),
                Self::Exactly(n) => samples.push(n),
            }
        }
        for floor in floors {
            samples.push(floor | 1);
            for unit in &units {
                // An odd multiple is not a multiple of larger units.
                let reached = if floor <= 3 { floor } else { floor.saturating_mul(4) };
                samples.push((reached.div_ceil(*unit) | 1).saturating_mul(*unit));
            }
        }
        samples.retain(|size| *size > 0);
        samples.sort_unstable();
        samples.dedup();
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::Threshold;

    #[test]
    fn samples_are_on_both_sides_of_each_threshold() {
        let check = |thresholds: &[Threshold], expected: &[u32]| {
            let samples = Threshold::samples(thresholds);
            assert_eq!(samples, expected, "{thresholds:?}");
            for threshold in thresholds {
                let holds = |size: &&u32| threshold.holds(**size);
                assert!(samples.iter().any(|size| threshold.holds(*size)), "{threshold:?}");
                assert!(samples.iter().filter(holds).count() < samples.len(), "{threshold:?}");
            }
        };
        check(&[], &[1, 3, 4]);
        check(&[Threshold::SEVERAL, Threshold::VECTORS], &[1, 3, 4]);
        check(&[Threshold::MultipleOf(8)], &[1, 3, 4, 8]);
        check(&[Threshold::AtLeast(64)], &[1, 3, 4, 65, 260]);
        check(&[Threshold::Exactly(10), Threshold::VECTORS], &[1, 3, 4, 10]);
    }
}
