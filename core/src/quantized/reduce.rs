//! MEAN and SUM of quantized elements: the conversion of their sum.

use super::Steps;
use crate::error::Result;
use crate::quantized::fixed_point::Multiplier;

/// Turns quantized sums into quantized means.
#[derive(Debug, Clone, Copy)]
pub struct Mean {
    /// The factor of a sum.
    pub multiplier: Multiplier,
    /// The zero points of all elements together, which are subtracted from a sum before the multiplication.
    pub before: i32,
    /// The number that is added to the product: the output's zero point and, in images, the input's.
    pub after: i32,
    /// The size of a group of neighbouring results, and the number of leading results in it that are rounded upwards.
    pub up: [usize; 2],
    to: Steps,
    count: usize,
}

impl Mean {
    /// Creates the conversion of sums of `count` elements each. `image` is the number of channels for a mean over
    /// height and width of an image that keeps these dimensions. For 8 bits, TFLite has other arithmetic for images:
    /// one factor for scale and count, found in single precision, and halves that are rounded upwards in whole blocks
    /// of 16 channels.
    ///
    /// # Errors
    /// For scales beyond the range of fixed-point factors.
    pub fn new(from: Steps, to: Steps, count: usize, image: Option<usize>) -> Result<Self> {
        if let Some(channels) = image.filter(|_| !from.is_wide()) {
            let zero = from.zero as f32 * from.scale / to.scale;
            let zero = (if zero > 0.0 { zero + 0.5 } else { zero - 0.5 }) as i32;
            let multiplier = Multiplier::new((from.scale / (count as f32 * to.scale)).into())?;
            let up = [channels, channels - channels % 16];
            return Ok(Mean { multiplier, before: 0, after: to.zero.wrapping_sub(zero), up, to, count });
        }
        let multiplier = divided(Multiplier::new(f64::from(from.scale) / f64::from(to.scale))?, count);
        let before = from.zero.wrapping_mul(count as i32);
        Ok(Mean { multiplier, before, after: to.zero, up: [1, 0], to, count })
    }

    /// Returns the mean for this sum, at position `i` of the results.
    pub fn of(&self, i: usize, sum: i32) -> i32 {
        if self.count == 0 {
            return self.to.clamp(0);
        }
        let sum = sum.wrapping_sub(self.before);
        let up = i.checked_rem(self.up[0]).is_some_and(|i| i < self.up[1]);
        let scaled = if up { self.multiplier.apply_up(sum) } else { self.multiplier.apply(sum) };
        self.to.clamp(scaled.wrapping_add(self.after))
    }
}

/// Returns a factor that also divides by `count`. The shift to the left before the division preserves precision.
fn divided(m: Multiplier, count: usize) -> Multiplier {
    let bits = count.checked_ilog2().unwrap_or(0) as i32;
    let shift = bits.min(32).min(31 + m.shift);
    let multiplier = (i64::from(m.multiplier) << shift.max(0)) / count.max(1) as i64;
    Multiplier { multiplier: multiplier as i32, shift: m.shift - shift }
}

/// Returns the multiplier after each factor of a product of `count` quantized integers: each is brought to the root of
/// the output's scale, so that the product stays in range.
///
/// # Errors
/// For scales beyond the range of fixed-point factors.
pub fn product_factor(from: f32, to: f32, count: usize) -> Result<Multiplier> {
    let root = f64::from(to).powf(1.0 / count.max(1) as f64);
    Multiplier::new(f64::from(from) / root)
}

/// Turns sums of quantized integers into quantized sums: rescaled in single precision, as in TFLite.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    /// The factor of a sum.
    pub scale: f32,
    /// Added after the multiplication.
    pub bias: f32,
    to: Steps,
}

impl Sum {
    /// Creates the conversion of sums of `count` elements each.
    pub fn new(from: Steps, to: Steps, count: usize) -> Self {
        let scale = from.scale / to.scale;
        Sum { scale, bias: -from.zero as f32 * scale * count as f32, to }
    }

    /// Returns the stored integer for this sum.
    #[inline]
    pub fn of(&self, sum: i32) -> i32 {
        let value = (sum as f32 * self.scale + self.bias).round() as i32;
        self.to.clamp(value.saturating_add(self.to.zero))
    }
}
