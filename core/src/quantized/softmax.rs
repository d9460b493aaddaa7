//! SOFTMAX and LOG_SOFTMAX of quantized rows: their tables.

use super::Steps;
use super::lookup::Table16;
use crate::error::{Error, Result};
use crate::quantized::fixed_point::Multiplier;

/// Returns `exp(-scale * difference)` for each difference of two 8-bit values, from 0 to 255.
pub fn exp_table(scale: f32) -> Vec<f32> {
    (0..=255u8).map(|difference| (-scale * f32::from(difference)).exp()).collect()
}

/// The tables of 16-bit SOFTMAX.
#[derive(Debug, Clone)]
pub struct Wide {
    /// `exp` over `[-10, 0]`.
    pub exp: Table16,
    /// `1 / (1 + x)` over `[0, 1]`.
    pub inverse: Table16,
    /// From the input's scale to that of `exp`.
    pub to_table: Multiplier,
}

impl Wide {
    /// Creates the tables for rows of `depth` elements.
    ///
    /// # Errors
    /// For rows whose sums need more than 32 bits, zero points, and scales beyond the range of fixed-point factors.
    pub fn new(from: Steps, beta: f32, depth: usize) -> Result<Self> {
        // Sums of exponentials are kept in 32 bits, 15 of them behind the point.
        if depth > usize::from(u16::MAX) {
            return Err(Error::Unsupported(format!(
                "16-bit rows of {depth} elements; at most {} are supported",
                u16::MAX
            )));
        }
        if from.zero != 0 {
            return Err(Error::Unsupported(format!(
                "16-bit values with zero point {}; only 0 is supported",
                from.zero
            )));
        }
        const RANGE: f64 = 65535.0;
        Ok(Wide {
            exp: Table16::double((10.0 / RANGE, i16::MAX.into()), (2.0 / RANGE, 0), f64::exp),
            inverse: Table16::double((1.0 / RANGE, i16::MIN.into()), (2.0 / RANGE, 0), |x| 1.0 / (1.0 + x)),
            to_table: Multiplier::new(f64::from(from.scale * beta) / (10.0 / RANGE))?,
        })
    }
}

/// Checks for the scale (within a thousandth) and the zero point that the op's results always have.
///
/// # Errors
/// If they differ.
pub fn check_output(to: Steps, scale: f32, zero: i32) -> Result<()> {
    if to.zero == zero && (to.scale - scale).abs() <= 0.001 * scale {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "an output of scale {} and zero point {}, which must be {scale} and {zero}",
        to.scale, to.zero
    )))
}
