//! Shape arithmetic of all families: element counts, broadcasting strides, collapsing of dimensions.

use crate::{ShaderError, Threshold};

/// Maximum rank of a tensor, and of a loop nest after collapsing.
pub(crate) const MAX_RANK: usize = 6;

/// Returns the number of elements of a tensor, below 2^31: kernels index with 32-bit integers, some of them signed. The
/// product of any of the shape's extents other than zeros is below 2^31, too.
pub(crate) fn elements(kernel: &'static str, shape: &[u32]) -> Result<u32, ShaderError> {
    let fits = |n: &u32| *n <= i32::MAX.unsigned_abs();
    shape
        .iter()
        .try_fold(1_u32, |n, extent| n.checked_mul((*extent).max(1)).filter(fits))
        .map(|n| if shape.contains(&0) { 0 } else { n })
        .ok_or_else(|| {
            ShaderError::unsupported(
                kernel,
                format!("shape {shape:?} has 2^31 elements or more; fewer are supported"),
            )
        })
}

/// Returns the row-major strides of a dense tensor.
pub(crate) fn dense_strides(shape: &[u32]) -> Vec<u32> {
    let mut strides = vec![1; shape.len()];
    let mut stride = 1_u32;
    for (to, extent) in strides.iter_mut().zip(shape).rev() {
        *to = stride;
        stride = stride.saturating_mul(*extent);
    }
    strides
}

/// Returns the strides with which an operand of `shape` is read for each element of `output`, by NumPy's broadcasting:
/// shapes are aligned at the last dimension, and an extent of one repeats. `None` if `shape` does not broadcast to
/// `output`.
pub(crate) fn broadcast_strides(shape: &[u32], output: &[u32]) -> Option<Vec<u32>> {
    let missing = output.len().checked_sub(shape.len())?;
    let mut strides = vec![0; output.len()];
    let dense = dense_strides(shape);
    for (i, (extent, stride)) in shape.iter().zip(dense).enumerate() {
        let (to, out) = (strides.get_mut(missing + i)?, output.get(missing + i)?);
        *to = match extent {
            1 => 0,
            _ if extent == out => stride,
            _ => return None,
        };
    }
    Some(strides)
}

/// The lengths of index tuples, which are the extents of the innermost dimension of indices.
pub(crate) const INDEX_DEPTHS: [Threshold; MAX_RANK] = {
    let mut depths = [Threshold::SEVERAL; MAX_RANK];
    let mut depth = 0;
    while depth < MAX_RANK {
        depths[depth] = Threshold::Exactly(depth as u32 + 1);
        depth += 1;
    }
    depths
};

/// The thresholds at which a collapsed nest changes: extents of one are dropped, vectors of four are split off.
pub(crate) const NEST: [Threshold; 2] = [Threshold::SEVERAL, Threshold::VECTORS];

/// A loop nest over an output: extents from the outermost in, and per operand the stride of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nest<const N: usize> {
    pub(crate) extents: Vec<u32>,
    pub(crate) strides: [Vec<i64>; N],
}

impl<const N: usize> Nest<N> {
    /// Drops extents of one, and merges neighbours with one constant stride in all operands. At least one dimension
    /// remains.
    pub(crate) fn collapse(&self) -> Self {
        let mut out = Self { extents: Vec::new(), strides: std::array::from_fn(|_| Vec::new()) };
        for (i, extent) in self.extents.iter().enumerate() {
            if !Threshold::SEVERAL.holds(*extent) {
                continue;
            }
            let stride = |operand: &Vec<i64>| operand.get(i).copied().unwrap_or(0);
            let merges = !out.extents.is_empty()
                && out.strides.iter().zip(&self.strides).all(|(done, operand)| {
                    done.last().copied() == stride(operand).checked_mul(i64::from(*extent))
                });
            match out.extents.last_mut() {
                Some(last) if merges => {
                    *last = last.saturating_mul(*extent);
                    for (done, operand) in out.strides.iter_mut().zip(&self.strides) {
                        if let Some(last) = done.last_mut() {
                            *last = stride(operand);
                        }
                    }
                }
                _ => {
                    out.extents.push(*extent);
                    for (done, operand) in out.strides.iter_mut().zip(&self.strides) {
                        done.push(stride(operand));
                    }
                }
            }
        }
        if out.extents.is_empty() {
            out.extents.push(1);
            out.strides.iter_mut().for_each(|s| s.push(0));
        }
        out
    }

    /// Returns the operands' strides along dimension `d`, none of which may be negative.
    pub(crate) fn unsigned_strides(&self, d: usize) -> [u32; N] {
        self.strides.each_ref().map(|s| s.get(d).and_then(|s| u32::try_from(*s).ok()).unwrap_or(0))
    }

    /// Divides the innermost dimension into vectors of four, if its extent and all operands allow that; returns whether
    /// it did. An operand either has stride 1 there and other strides that are multiples of four, or repeats one
    /// element.
    pub(crate) fn split_vec4(&mut self) -> bool {
        let in_fours = |strides: &Vec<i64>| match strides.split_last() {
            Some((1, outer)) => outer.iter().all(|s| s % 4 == 0),
            last => matches!(last, Some((0, _))),
        };
        let Some(inner) = self.extents.last_mut().filter(|n| Threshold::VECTORS.holds(**n)) else {
            return false;
        };
        if !self.strides.iter().all(in_fours) {
            return false;
        }
        *inner /= 4;
        for strides in &mut self.strides {
            if let Some((1, outer)) = strides.split_last_mut() {
                outer.iter_mut().for_each(|s| *s /= 4);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(extents: &[u32], strides: [&[i64]; 2], expected: &[u32], expected_strides: [&[i64]; 2]) {
        let nest = Nest { extents: extents.to_vec(), strides: strides.map(<[i64]>::to_vec) };
        let collapsed = nest.collapse();
        assert_eq!(collapsed.extents, expected);
        assert_eq!(collapsed.strides, expected_strides.map(<[i64]>::to_vec));
    }

    #[test]
    fn neighbours_with_one_stride_are_merged() {
        check(&[2, 3, 4], [&[12, 4, 1], &[12, 4, 1]], &[24], [&[1], &[1]]);
        check(&[2, 3, 4], [&[12, 4, 1], &[0, 0, 1]], &[6, 4], [&[4, 1], &[0, 1]]);
        check(&[2, 1, 4], [&[4, 9, 1], &[0, 9, 0]], &[8], [&[1], &[0]]);
        check(&[1, 1], [&[1, 1], &[1, 1]], &[1], [&[0], &[0]]);
        check(&[2, 3], [&[3, 1], &[-3, -1]], &[6], [&[1], &[-1]]);
    }

    #[test]
    fn broadcasts_like_numpy() {
        assert_eq!(broadcast_strides(&[3, 1], &[2, 3, 4]), Some(vec![0, 1, 0]));
        assert_eq!(broadcast_strides(&[], &[2, 3]), Some(vec![0, 0]));
        assert_eq!(broadcast_strides(&[2], &[3]), None);
        assert_eq!(broadcast_strides(&[1, 2], &[2]), None);
    }

    #[test]
    fn counts_beyond_31_bits_are_errors() {
        assert_eq!(elements("test", &[4, 0, 5]), Ok(0));
        assert_eq!(elements("test", &[1 << 15, (1 << 16) - 1]), Ok(2_147_450_880));
        assert!(elements("test", &[1 << 16, 1 << 15]).is_err());
    }
}
