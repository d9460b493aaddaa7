//! How quantized values map to real ones.

/// `real = scale · (quantized − zero_point)`, per tensor or per index of one dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct Affine {
    /// One scale, or one per index of `dimension`.
    pub scales: Vec<f32>,
    /// As many zero points as scales.
    pub zero_points: Vec<i64>,
    /// The dimension that the scales run along, where there is more than one.
    pub dimension: usize,
}

/// The quantization of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Quantization {
    /// Affine, per tensor or per channel.
    Affine(Affine),
    /// Blocks of the innermost dimension share a scale; scales and zero points are tensors of the same subgraph.
    Blockwise {
        /// The tensor of scales.
        scales: usize,
        /// The tensor of zero points, if any.
        zero_points: Option<usize>,
        /// Elements in a block.
        block_size: usize,
    },
    /// Scales vary along several dimensions; scales and zero points are tensors of the same subgraph.
    MultiAxis {
        /// The tensor of scales.
        scales: usize,
        /// The tensor of zero points, if any.
        zero_points: Option<usize>,
        /// Elements in a block.
        block_size: usize,
        /// The dimensions that the scales run along, each of them once.
        dimensions: Vec<usize>,
    },
    /// Opaque bytes that only a custom kernel understands.
    Custom(Vec<u8>),
}

/// The smallest and the greatest real value that a tensor was seen to hold: one each, or one per channel.
#[derive(Debug, Clone, PartialEq)]
pub struct MinMax {
    /// The smallest values.
    pub min: Vec<f32>,
    /// The greatest values.
    pub max: Vec<f32>,
}

impl Quantization {
    /// Per-tensor affine quantization.
    pub fn per_tensor(scale: f32, zero_point: i64) -> Self {
        Quantization::Affine(Affine { scales: vec![scale], zero_points: vec![zero_point], dimension: 0 })
    }

    /// The affine parameters, if this is affine quantization.
    pub fn affine(&self) -> Option<&Affine> {
        match self {
            Quantization::Affine(affine) => Some(affine),
            _ => None,
        }
    }

    /// Scale and zero point, where one pair holds for the whole tensor.
    pub fn scale_zero_point(&self) -> Option<(f32, i32)> {
        let affine = self.affine()?;
        match (affine.scales.as_slice(), affine.zero_points.as_slice()) {
            ([scale], [zero_point]) => Some((*scale, i32::try_from(*zero_point).ok()?)),
            _ => None,
        }
    }
}
