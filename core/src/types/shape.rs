//! Tensor shapes.

use std::fmt;
use std::ops::Deref;

use smallvec::SmallVec;

/// The shape of a tensor, outermost dimension first. A scalar has rank 0 and one element.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(SmallVec<[usize; 6]>);

impl Shape {
    /// Creates a shape with these dimensions.
    pub fn new(dims: &[usize]) -> Self {
        Shape(SmallVec::from_slice(dims))
    }

    /// Returns the dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Returns the product of all dimensions, `None` if it overflows.
    pub fn checked_elements(&self) -> Option<usize> {
        checked_product(&self.0)
    }

    /// Returns the product of all dimensions, saturating. Shapes of allocated tensors never saturate.
    pub fn elements(&self) -> usize {
        self.checked_elements().unwrap_or(usize::MAX)
    }

    /// Appends a dimension on the inside.
    pub fn push(&mut self, dim: usize) {
        self.0.push(dim);
    }

    /// Returns the shape with ones in front, up to `rank` dimensions; `None` if it has more than `rank`.
    pub fn expanded(&self, rank: usize) -> Option<Shape> {
        let missing = rank.checked_sub(self.rank())?;
        Some(std::iter::repeat_n(1, missing).chain(self.0.iter().copied()).collect())
    }
}

/// Returns the product of `dims`; `None` if it overflows. If any dimension is zero, the product is zero.
pub fn checked_product(dims: &[usize]) -> Option<usize> {
    if dims.contains(&0) {
        return Some(0);
    }
    dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

/// Returns the shape that `a` and `b` broadcast to, by NumPy's rule; `None` if they do not.
pub fn broadcast(a: &Shape, b: &Shape) -> Option<Shape> {
    let rank = a.rank().max(b.rank());
    let (a, b) = (a.expanded(rank)?, b.expanded(rank)?);
    a.iter()
        .zip(b.iter())
        .map(|(&x, &y)| match (x, y) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Shape::new(dims)
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Self {
        shape.clone()
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Shape::new(&dims)
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Self {
        Shape(iter.into_iter().collect())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            write!(f, "{}{d}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products() {
        assert_eq!(Shape::new(&[]).checked_elements(), Some(1));
        assert_eq!(Shape::new(&[2, 3]).checked_elements(), Some(6));
        assert_eq!(Shape::new(&[usize::MAX, 0, usize::MAX]).checked_elements(), Some(0));
        assert_eq!(Shape::new(&[usize::MAX, 2]).checked_elements(), None);
    }

    #[test]
    fn broadcasting() {
        let check = |a: &[usize], b: &[usize], want: Option<&[usize]>| {
            assert_eq!(broadcast(&a.into(), &b.into()), want.map(Shape::from));
        };
        check(&[2, 3], &[3], Some(&[2, 3]));
        check(&[2, 1], &[1, 4], Some(&[2, 4]));
        check(&[], &[5], Some(&[5]));
        check(&[0], &[1], Some(&[0]));
        check(&[2], &[3], None);
    }
}
