//! Whether the GPU computes what the CPU computes.

use delegraph_conformance::compare::Comparison;

/// Collects what disagrees, so that everything is shown before the demo fails.
#[derive(Default)]
pub(crate) struct Verdict {
    wrong: Vec<String>,
}

impl Verdict {
    /// Takes note of how far the GPU's outputs of `model` are from the CPU's.
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

    /// An error that names every model on which they disagree.
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
