//! The mapping between quantized and real values.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use crate::types::{ModelBytes, TensorId};

/// `real = scale · (quantized − zero_point)`, per tensor or per index of one dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct Affine {
    /// One scale, or one per index of `dimension`.
    pub scales: Vec<f32>,
    /// The zero points, one per scale.
    pub zero_points: ZeroPoints,
    /// The dimension that the scales run along, where there is more than one.
    pub dimension: usize,
}

/// The quantization of a tensor.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Quantization {
    /// Affine, per tensor or per channel.
    Affine(Affine),
    /// Blocks of the innermost dimension share a scale; scales and zero points are tensors of the same subgraph.
    Blockwise {
        /// The tensor of scales.
        scales: TensorId,
        /// The tensor of zero points, if any.
        zero_points: Option<TensorId>,
        /// Elements in a block.
        block_size: usize,
    },
    /// Scales vary along several dimensions; scales and zero points are tensors of the same subgraph.
    MultiAxis {
        /// The tensor of scales.
        scales: TensorId,
        /// The tensor of zero points, if any.
        zero_points: Option<TensorId>,
        /// Elements in a block.
        block_size: usize,
        /// The dimensions that the scales run along, each of them once.
        dimensions: Vec<usize>,
    },
    /// Opaque bytes that only a custom kernel understands.
    Custom(Vec<u8>),
}

/// Zero points, one per channel. If all are equal, which is usual, only one is stored.
#[derive(Clone, Default)]
pub struct ZeroPoints {
    count: usize,
    /// The first value, then the others unless all are equal.
    values: Box<[i64]>,
    /// All values, once a caller requested a slice and `values` is shorter.
    all: OnceLock<Box<[i64]>>,
}

impl ZeroPoints {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the zero point of a channel; `None` if there are fewer channels.
    pub fn get(&self, channel: usize) -> Option<i64> {
        let held = if self.values.len() == 1 { 0 } else { channel };
        self.values.get(held).copied().filter(|_| channel < self.count)
    }

    /// Iterates over the values of all channels.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = i64> + Clone + '_ {
        (0..self.count).map(|channel| self.get(channel).unwrap_or_default())
    }

    /// Returns the zero point of all channels, where they have the same.
    pub fn uniform(&self) -> Option<i64> {
        <[i64; 1]>::try_from(&*self.values).ok().map(|[one]| one)
    }

    /// Returns whether all are 0.
    pub fn are_zero(&self) -> bool {
        self.values.iter().all(|&zero| zero == 0)
    }

    /// Returns the zero points of all channels. The first call may allocate the list.
    pub fn as_slice(&self) -> &[i64] {
        if self.values.len() == self.count {
            &self.values
        } else {
            self.all.get_or_init(|| self.iter().collect())
        }
    }
}

impl From<Vec<i64>> for ZeroPoints {
    fn from(all: Vec<i64>) -> Self {
        let count = all.len();
        let values = match all.first() {
            Some(first) if all.iter().all(|zero| zero == first) => Box::from([*first]),
            _ => all.into(),
        };
        ZeroPoints { count, values, all: OnceLock::new() }
    }
}

impl fmt::Debug for ZeroPoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl PartialEq for ZeroPoints {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.values == other.values
    }
}

/// The smallest and the greatest observed real value of a tensor: one each, or one per channel. Nothing computes with
/// them, so values from a file stay in its bytes.
#[derive(Clone)]
pub struct MinMax(Seen);

#[derive(Clone)]
enum Seen {
    Values([Vec<f32>; 2]),
    /// Little-endian floats.
    Bytes(ModelBytes, [Range<usize>; 2]),
}

impl MinMax {
    /// Creates ranges from their smallest and their greatest values: one of each, or one of each per channel.
    pub fn new(min: Vec<f32>, max: Vec<f32>) -> Self {
        MinMax(Seen::Values([min, max]))
    }

    /// Creates values in ranges of `bytes`.
    pub(crate) fn in_file(bytes: ModelBytes, min: Range<usize>, max: Range<usize>) -> Self {
        MinMax(Seen::Bytes(bytes, [min, max]))
    }

    /// Returns the smallest values.
    pub fn min(&self) -> Vec<f32> {
        self.values(0)
    }

    /// Returns the greatest values.
    pub fn max(&self) -> Vec<f32> {
        self.values(1)
    }

    fn values(&self, side: usize) -> Vec<f32> {
        match &self.0 {
            Seen::Values(values) => values[side].clone(),
            Seen::Bytes(bytes, ranges) => {
                let bytes = bytes.as_ref().get(ranges[side].clone()).unwrap_or_default();
                bytes.as_chunks().0.iter().map(|&float| f32::from_le_bytes(float)).collect()
            }
        }
    }
}

impl fmt::Debug for MinMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MinMax").field("min", &self.min()).field("max", &self.max()).finish()
    }
}

impl PartialEq for MinMax {
    fn eq(&self, other: &Self) -> bool {
        self.min() == other.min() && self.max() == other.max()
    }
}

impl Quantization {
    /// Per-tensor affine quantization.
    pub fn per_tensor(scale: f32, zero_point: i64) -> Self {
        Quantization::Affine(Affine {
            scales: vec![scale],
            zero_points: vec![zero_point].into(),
            dimension: 0,
        })
    }

    /// Returns the affine parameters, if this is affine quantization.
    pub fn affine(&self) -> Option<&Affine> {
        match self {
            Quantization::Affine(affine) => Some(affine),
            _ => None,
        }
    }

    /// Returns scale and zero point, where one pair holds for the whole tensor and the zero point fits an `i32`.
    pub fn scale_zero_point(&self) -> Option<(f32, i32)> {
        let affine = self.affine()?;
        match affine.scales.as_slice() {
            [scale] if affine.zero_points.len() == 1 => {
                Some((*scale, i32::try_from(affine.zero_points.uniform()?).ok()?))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_zero_points_are_held_once() {
        for all in [vec![], vec![7], vec![7; 5], vec![0; 3], vec![7, 7, 8], vec![0, 0, -1]] {
            let zeros = ZeroPoints::from(all.clone());
            let same = all.iter().all(|&z| z == all[0]);
            assert_eq!(zeros.values.len(), if same { all.len().min(1) } else { all.len() }, "{all:?}");
            assert_eq!((zeros.len(), zeros.is_empty()), (all.len(), all.is_empty()));
            assert_eq!(zeros.uniform(), all.first().copied().filter(|_| same), "{all:?}");
            assert_eq!(zeros.are_zero(), all.iter().all(|&z| z == 0));
            assert!(zeros.iter().eq(all.iter().copied()));
            assert_eq!((0..=all.len()).map(|i| zeros.get(i)).collect::<Vec<_>>().last(), Some(&None));
            assert_eq!(zeros.as_slice(), all);
            assert_eq!(zeros, ZeroPoints::from(all));
        }
        assert_ne!(ZeroPoints::from(vec![0; 3]), ZeroPoints::from(vec![0; 4]));
        assert_ne!(ZeroPoints::from(vec![0; 3]), ZeroPoints::from(vec![0, 0, 1]));
    }

    #[test]
    fn ranges_of_values_stay_in_the_file() {
        let mut file = vec![1, 2, 3];
        [-1.5f32, 0.5, 2.0, 4.0].iter().for_each(|v| file.extend(v.to_le_bytes()));
        let in_file = MinMax::in_file(ModelBytes::new(file), 3..11, 11..19);
        assert_eq!((in_file.min(), in_file.max()), (vec![-1.5, 0.5], vec![2.0, 4.0]));
        assert_eq!(in_file, MinMax::new(vec![-1.5, 0.5], vec![2.0, 4.0]));
        assert_ne!(in_file, MinMax::new(vec![-1.5, 0.5], vec![2.0, 5.0]));
    }
}
