//! Bounds of fused activations.

/// Bounds of a fused activation: results are `min(max(x, low), high)`; NaN stays NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clamp {
    /// Lower bound.
    pub low: f32,
    /// Upper bound.
    pub high: f32,
}

impl Clamp {
    /// No activation.
    pub const NONE: Self = Self { low: f32::NEG_INFINITY, high: f32::INFINITY };
    /// `RELU`.
    pub const RELU: Self = Self { low: 0.0, high: f32::INFINITY };
    /// `RELU6`.
    pub const RELU6: Self = Self { low: 0.0, high: 6.0 };
    /// `RELU_N1_TO_1`.
    pub const RELU_N1_TO_1: Self = Self { low: -1.0, high: 1.0 };
}
