//! Compares the GPU's results with the CPU's.

/// The largest difference of two outputs, and the allowed difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Comparison {
    /// The largest absolute difference; infinite where one output has a NaN, or fewer elements, than the other.
    pub(crate) max_abs: f64,
    /// One quantization step, or for floats a ten-thousandth of the largest expected value.
    pub(crate) allowed: f64,
}

impl Comparison {
    /// Compares `got` with `expected`, whose elements are multiples of `step` where it is quantized.
    pub(crate) fn of(got: &[f32], expected: &[f32], step: Option<f32>) -> Self {
        let largest = expected.iter().fold(0f64, |max, v| max.max(f64::from(*v).abs()));
        // A step, plus the rounding of its conversion to a float.
        let allowed = step.map_or(1e-5 + 1e-4 * largest, |step| 1.001 * f64::from(step));
        let difference = |(a, b): (&f32, &f32)| {
            let difference = (f64::from(*a) - f64::from(*b)).abs();
            if difference.is_nan() { f64::INFINITY } else { difference }
        };
        let max_abs = match got.len() == expected.len() {
            true => got.iter().zip(expected).map(difference).fold(0.0, f64::max),
            false => f64::INFINITY,
        };
        Comparison { max_abs, allowed }
    }

    pub(crate) fn passes(&self) -> bool {
        self.max_abs <= self.allowed
    }
}

/// Collects differences, so that all results are printed before the demo fails.
#[derive(Default)]
pub(crate) struct Verdict {
    wrong: Vec<String>,
}

impl Verdict {
    /// Records the difference of the GPU's outputs of `model` from the CPU's.
    pub(crate) fn hear(&mut self, model: &str, comparison: Option<Comparison>) {
        match comparison {
            Some(c) if c.passes() => {}
            Some(c) => {
                let (difference, allowed) = (c.max_abs, c.allowed);
                self.wrong.push(format!("{model}: {difference:.1e} apart, where {allowed:.1e} is allowed"));
            }
            None => self.wrong.push(format!("{model}: no outputs to compare")),
        }
    }

    /// Returns an error that names every model with a difference, if there is one.
    pub(crate) fn pronounce(self) -> Result<(), String> {
        if self.wrong.is_empty() {
            return Ok(());
        }
        Err(format!("GPU and CPU disagree:\n  {}", self.wrong.join("\n  ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disagreement_is_named() {
        let far = |max_abs| Some(Comparison { max_abs, allowed: 1e-4 });
        let mut verdict = Verdict::default();
        verdict.hear("a", far(1e-5));
        assert_eq!(Verdict::default().pronounce(), Ok(()));
        verdict.hear("b", far(96.0));
        verdict.hear("c", far(f64::INFINITY));
        verdict.hear("d", None);
        let text = verdict.pronounce().unwrap_err();
        let expected =
            "b: 9.6e1 apart, where 1.0e-4 is allowed\n  c: inf apart, where 1.0e-4 is allowed\n  d: ";
        assert!(text.contains(expected) && !text.contains("a:"), "{text}");
    }
}
