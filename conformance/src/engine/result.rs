//! The result of a case, as reports and worker processes transfer it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::durations;

/// The outcome of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Outcome {
    /// Every output is as expected.
    Pass,
    /// An output differs.
    Mismatch,
    /// The outputs are correct, but the delegate violates its contract: see [`CaseResult::checks`].
    Violation,
    /// The delegate does not claim the case, or no kernel supports it. The detail contains the reason.
    Unsupported,
    /// The model or an input is invalid.
    Invalid,
    /// The run failed.
    Error,
    /// The process crashed.
    Crash,
    /// The run exceeded the time limit.
    Timeout,
}

impl Outcome {
    /// All outcomes, in the order of reports.
    pub const ALL: &'static [Outcome] = &[
        Outcome::Pass,
        Outcome::Mismatch,
        Outcome::Violation,
        Outcome::Unsupported,
        Outcome::Invalid,
        Outcome::Error,
        Outcome::Crash,
        Outcome::Timeout,
    ];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Mismatch => "mismatch",
            Outcome::Violation => "violation",
            Outcome::Unsupported => "unsupported",
            Outcome::Invalid => "invalid",
            Outcome::Error => "error",
            Outcome::Crash => "crash",
            Outcome::Timeout => "timeout",
        }
    }

    /// Returns the outcome with this name.
    pub fn named(name: &str) -> Option<Self> {
        Outcome::ALL.iter().copied().find(|o| o.name() == name)
    }

    /// Returns whether the outcome is neither wrong nor a failure.
    pub fn is_fine(self) -> bool {
        matches!(self, Outcome::Pass | Outcome::Unsupported)
    }
}

/// One case's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CaseResult {
    /// The name: for folders, the path below the corpus.
    pub case: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The reason of a failure or of missing support; empty for a case that passes.
    #[serde(default)]
    pub detail: String,
    /// The tested op. For folders, that of the first node that does not only convert or move data.
    #[serde(default)]
    pub op: String,
    /// The version of the tested op.
    #[serde(default)]
    pub version: u32,
    /// The type of the tested op's data.
    #[serde(default, rename = "type")]
    pub ty: String,
    /// Op and version of each node, `ADD:1`, without repetitions.
    #[serde(default)]
    pub ops: Vec<String>,
    /// The types of inputs and outputs, without repetitions.
    #[serde(default)]
    pub types: Vec<String>,
    /// Inputs, with type, shape and quantization.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// Outputs, with type, shape and quantization.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// The params of the op.
    #[serde(default)]
    pub params: String,
    /// Tags to select the case by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The number of nodes of the model.
    #[serde(default)]
    pub nodes: usize,
    /// The number of claimed nodes, without those computed while preparing.
    #[serde(default)]
    pub claimed: usize,
    /// Whether a node of the tested op is claimed.
    #[serde(default)]
    pub op_claimed: bool,
    /// Why other nodes are not claimed: `node 0 ADD v1: UnsupportedType: input 0 has the unsupported type INT64`.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// The duration of the case; in JSON `ms`, in milliseconds.
    #[serde(default, rename = "ms", with = "durations::milliseconds")]
    pub elapsed: Duration,
    /// Time of the fastest invocation on the backend under test; in JSON `us`, in microseconds.
    #[serde(default, rename = "us", with = "durations::optional_microseconds")]
    pub time: Option<Duration>,
    /// Time of the fastest invocation on the CPU kernels of the comparison; in JSON `cpu_us`, in microseconds.
    #[serde(default, rename = "cpu_us", with = "durations::optional_microseconds")]
    pub cpu_time: Option<Duration>,
    /// The differences of the worst output.
    #[serde(default)]
    pub errors: Option<ErrorStats>,
    /// The results of the contract checks.
    #[serde(default)]
    pub checks: Vec<ContractCheck>,
    /// The reason of a known failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<String>,
}

/// The outcome of a case that has no problem to run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{detail}")]
pub struct CaseFailure {
    /// The outcome.
    pub outcome: Outcome,
    /// The reason.
    pub detail: String,
}

impl CaseFailure {
    /// Creates a failure with this outcome and reason.
    pub fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        CaseFailure { outcome, detail: detail.into() }
    }
}

impl CaseResult {
    /// Creates a result without details.
    pub fn new(case: impl Into<String>, outcome: Outcome, detail: impl Into<String>) -> Self {
        CaseResult {
            case: case.into(),
            outcome,
            detail: detail.into(),
            op: String::new(),
            version: 0,
            ty: String::new(),
            ops: Vec::new(),
            types: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            params: String::new(),
            tags: Vec::new(),
            nodes: 0,
            claimed: 0,
            op_claimed: false,
            reasons: Vec::new(),
            elapsed: Duration::ZERO,
            time: None,
            cpu_time: None,
            errors: None,
            checks: Vec::new(),
            known: None,
        }
    }

    /// Returns whether the case failed and is not a known failure.
    pub fn is_failure(&self) -> bool {
        !self.outcome.is_fine() && self.known.is_none()
    }
}

/// The result of a contract check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContractCheck {
    /// The name of the check.
    pub name: String,
    /// The violation; empty if there is none.
    pub problem: String,
}

/// The differences of an output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorStats {
    /// The index of the output.
    pub output: usize,
    /// The index of the invocation.
    pub step: usize,
    /// The number of elements.
    pub elements: usize,
    /// The number of elements that differ by more than is allowed.
    pub wrong: usize,
    /// The number of elements that differ.
    pub off: usize,
    /// The largest absolute difference.
    #[serde(with = "number")]
    pub max_abs: f64,
    /// The largest difference relative to the expected value.
    #[serde(with = "number")]
    pub max_rel: f64,
    /// The allowed difference, if it is the same for all elements.
    pub allowed: Option<f64>,
    /// The distribution of the differences relative to the largest expected magnitude: equal; below 1e-9, below 1e-8,
    /// …, below 10, larger; not finite.
    pub histogram: Vec<usize>,
    /// The first wrong element or, if there is none, the one with the largest difference.
    pub first: Option<Bad>,
}

/// The number of bins of [`ErrorStats::histogram`].
pub const BINS: usize = 14;

impl ErrorStats {
    /// Creates the statistics of an output without differences.
    pub fn exact(elements: usize, (output, step): (usize, usize)) -> Self {
        let mut histogram = vec![0; BINS];
        histogram[0] = elements;
        ErrorStats {
            output,
            step,
            elements,
            wrong: 0,
            off: 0,
            max_abs: 0.0,
            max_rel: 0.0,
            allowed: None,
            histogram,
            first: None,
        }
    }

    /// Returns a key that orders outputs by severity: by wrong elements, then by the largest difference.
    pub fn severity(&self) -> (usize, f64) {
        let decades = self.histogram.iter().enumerate().skip(1);
        let furthest = decades.filter(|(_, n)| **n > 0).map(|(i, _)| i).max().unwrap_or(0);
        (self.wrong, furthest as f64 + self.max_rel.min(1.0) / 2.0)
    }
}

/// An element with its computed and expected value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Bad {
    /// Its index.
    pub index: Vec<usize>,
    /// The computed value.
    #[serde(with = "number")]
    pub got: f64,
    /// The expected value.
    #[serde(with = "number")]
    pub expected: f64,
}

impl Bad {
    /// Describes the element at `index`: the computed and the expected value.
    pub fn new(index: Vec<usize>, got: f64, expected: f64) -> Self {
        Bad { index, got, expected }
    }
}

/// Numbers in JSON; those that are not finite are text.
mod number {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        match value.is_finite() {
            true => serializer.serialize_f64(*value),
            false => serializer.collect_str(value),
        }
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(f64),
        Text(String),
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<f64, D::Error> {
        match Either::deserialize(deserializer)? {
            Either::Number(value) => Ok(value),
            Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_survive_json() {
        let mut result = CaseResult::new("a/b", Outcome::Mismatch, "output 0");
        (result.elapsed, result.time) = (Duration::from_millis(3), Some(Duration::from_nanos(120_123)));
        result.errors = Some(ErrorStats {
            output: 0,
            step: 1,
            elements: 4,
            wrong: 1,
            off: 1,
            max_abs: f64::INFINITY,
            max_rel: 0.5,
            allowed: Some(0.0),
            histogram: vec![1, 2],
            first: Some(Bad { index: vec![1, 2], got: f64::NEG_INFINITY, expected: 1.5 }),
        });
        let text = serde_json::to_string(&result).unwrap();
        assert_eq!(serde_json::from_str::<CaseResult>(&text).unwrap(), result, "{text}");
        assert!(text.contains(r#""ms":3.0,"us":120.123,"cpu_us":null"#), "{text}");
        for &outcome in Outcome::ALL {
            assert_eq!(Outcome::named(outcome.name()), Some(outcome));
            assert_eq!(serde_json::to_string(&outcome).unwrap(), format!("\"{}\"", outcome.name()));
        }
        // The format of older versions.
        let old = r#"{"case":"a","outcome":"pass","detail":"","ops":[],"types":[],"ms":1.5}"#;
        assert_eq!(serde_json::from_str::<CaseResult>(old).unwrap().elapsed, Duration::from_micros(1500));
    }
}
