//! ADD, SUB, MUL, DIV, SQUARED_DIFFERENCE of quantized inputs: their factors.

use super::Steps;
use crate::error::{Error, Result};
use crate::quantized::fixed_point::Multiplier;

/// Inputs at a common scale, twice the larger input scale, with spare bits on the right.
#[derive(Debug, Clone, Copy)]
pub struct Scaled {
    /// The zero point of each input.
    pub zero_points: [i32; 2],
    /// The number of bits by which inputs are shifted before they are multiplied.
    pub left_shift: u32,
    /// The factors of the inputs.
    pub inputs: [Multiplier; 2],
    /// The factor of a result at the common scale.
    pub output: Multiplier,
    /// The zero point of the output.
    pub zero_point: i32,
}

impl Scaled {
    /// Returns the factors of a sum or a difference.
    ///
    /// # Errors
    /// For scales beyond the range of fixed-point factors, and for 16 bits with zero points.
    pub fn sum(inputs: [Steps; 2], to: Steps) -> Result<Self> {
        let left_shift = if inputs[0].is_wide() { 15 } else { 20 };
        Self::with(inputs, to, left_shift, |twice_max| {
            Multiplier::new(twice_max / f64::from((1u32 << left_shift) as f32 * to.scale))
        })
    }

    /// Returns the factors of the square of a difference.
    ///
    /// # Errors
    /// As for [`Scaled::sum`], and for an output scale that is so small that the factor of a result is 1 or above.
    pub fn squared(inputs: [Steps; 2], to: Steps) -> Result<Self> {
        const LEFT_SHIFT: u32 = 7;
        Self::with(inputs, to, LEFT_SHIFT, |twice_max| {
            Multiplier::below_one(
                twice_max * twice_max / f64::from((1u32 << (2 * LEFT_SHIFT)) as f32 * to.scale),
            )
        })
    }

    fn with(
        [a, b]: [Steps; 2],
        to: Steps,
        left_shift: u32,
        output: impl Fn(f64) -> Result<Multiplier>,
    ) -> Result<Self> {
        check([a, b], to)?;
        // The last bit depends on which steps are in single precision.
        let twice_max = f64::from(2.0 * a.scale.max(b.scale));
        Ok(Scaled {
            zero_points: [a.zero, b.zero],
            left_shift,
            inputs: [
                Multiplier::below_one(f64::from(a.scale) / twice_max)?,
                Multiplier::below_one(f64::from(b.scale) / twice_max)?,
            ],
            output: output(twice_max)?,
            zero_point: to.zero,
        })
    }

    /// Returns both inputs at the common scale. `apply` multiplies a factor and a value.
    pub fn inputs_with(&self, apply: fn(Multiplier, i32) -> i32, a: i32, b: i32) -> [i32; 2] {
        let scaled = |value: i32, i: usize| {
            let shifted = value.wrapping_sub(self.zero_points[i]).wrapping_shl(self.left_shift);
            apply(self.inputs[i], shifted)
        };
        [scaled(a, 0), scaled(b, 1)]
    }

    /// Requantizes a value at the common scale to the output's scale and zero point, without clamping it to the
    /// output's type. Values beyond 32 bits at the output's scale become the largest or smallest ones.
    pub fn result(&self, raw: i32) -> i32 {
        let most = i32::MAX >> self.output.shift.clamp(0, 31);
        self.output.apply(raw.clamp(-most - 1, most)).wrapping_add(self.zero_point)
    }
}

fn check([a, b]: [Steps; 2], to: Steps) -> Result<()> {
    if a.is_wide() && (a.zero, b.zero, to.zero) != (0, 0, 0) {
        return Err(Error::Unsupported(format!(
            "INT16 with zero points {}, {} and {}; only 0 is supported",
            a.zero, b.zero, to.zero
        )));
    }
    Ok(())
}

/// Returns the factor of a product, found in single precision as in TFLite.
///
/// # Errors
/// As for [`Scaled::sum`].
pub fn product([a, b]: [Steps; 2], to: Steps) -> Result<Multiplier> {
    check([a, b], to)?;
    Multiplier::new((a.scale * b.scale / to.scale).into())
}

/// Returns the factor of a quotient.
///
/// # Errors
/// For scales beyond the range of fixed-point factors.
pub fn quotient([a, b]: [Steps; 2], to: Steps) -> Result<Multiplier> {
    Multiplier::new((a.scale / (b.scale * to.scale)).into())
}

/// Returns the right shifts of 16-bit inputs to the output's scale if all scales are powers of two; `None` if not.
///
/// # Errors
/// If all are powers of two, but in a combination that TFLite's kernels reject, or with zero points.
pub fn power_of_two_shifts([a, b]: [Steps; 2], to: Steps) -> Result<Option<[i32; 2]>> {
    let log2 = |steps: Steps| {
        let log = steps.scale.ln() * (1.0 / 2f32.ln());
        ((log - log.round()).abs() < 1e-3).then_some(log.round() as i32)
    };
    let zeros = (a.zero, b.zero, to.zero);
    let (Some(a), Some(b), Some(output)) = (log2(a), log2(b), log2(to)) else { return Ok(None) };
    let shifts = [output.saturating_sub(a), output.saturating_sub(b)];
    if shifts.contains(&0) && shifts.iter().all(|s| *s >= 0) && zeros == (0, 0, 0) {
        return Ok(Some(shifts));
    }
    Err(Error::Unsupported(format!(
        "INT16 scales of 2^{a} and 2^{b} with an output scale of 2^{output}; one must be the output's, none larger"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TensorType;

    #[test]
    fn differences_far_beyond_the_output_are_its_ends() {
        let steps = |scale| Steps::new(TensorType::Int16, scale, 0).unwrap();
        let scaled = Scaled::sum([steps(1.0); 2], steps(1e-9)).unwrap();
        assert!(scaled.output.shift > 0);
        for (a, b, positive) in
            [(1, 0, true), (0, 1, false), (32_767, -32_768, true), (-32_768, 32_767, false)]
        {
            let [a, b] = scaled.inputs_with(Multiplier::apply, a, b);
            let result = scaled.result(a - b);
            assert!(if positive { result > 32_767 } else { result < -32_768 }, "{a} - {b}: {result}");
        }
    }
}
