//! CONCATENATION of bytes with scales of their own.

use super::Steps;

/// The conversion of bytes whose scale or zero point differs from the output's: rescaled in float, as in TFLite.
#[derive(Debug, Clone, Copy)]
pub struct Rescale {
    scale: f32,
    bias: f32,
    to: Steps,
}

impl Rescale {
    /// Creates the conversion; `None` if scales and zero points are the same.
    pub fn new(from: Steps, to: Steps) -> Option<Self> {
        let scale = from.scale * (1.0 / to.scale);
        let same = (from.scale, from.zero) == (to.scale, to.zero);
        (!same).then_some(Rescale { scale, bias: -from.zero as f32 * scale, to })
    }

    /// Returns the integer at the output's scale for one at the input's.
    pub fn apply(&self, value: i32) -> i32 {
        let value = (value as f32 * self.scale + self.bias).round() as i32;
        self.to.clamp(value.saturating_add(self.to.zero))
    }
}
