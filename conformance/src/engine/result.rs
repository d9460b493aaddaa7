//! What came of a case, as reports and worker processes hand it on.

use serde::{Deserialize, Serialize};

/// What came of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Every output is as expected.
    Pass,
    /// An output differs.
    Mismatch,
    /// The outputs are right, but the delegate broke its contract: see [`CaseResult::checks`].
    Violation,
    /// The delegate does not claim it, or nothing here runs it. The detail says why.
    Unsupported,
    /// The model or an input is invalid.
    Invalid,
    /// It ran, and failed.
    Error,
    /// It ended the process.
    Crash,
    /// It was ended after too long a time.
    Timeout,
}

impl Outcome {
    /// All of them, in the order in which reports show them.
    pub const ALL: [Outcome; 8] = [
        Outcome::Pass,
        Outcome::Mismatch,
        Outcome::Violation,
        Outcome::Unsupported,
        Outcome::Invalid,
        Outcome::Error,
        Outcome::Crash,
        Outcome::Timeout,
    ];

    /// The name in reports.
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

    /// The outcome of this name.
    pub fn named(name: &str) -> Option<Self> {
        Outcome::ALL.into_iter().find(|o| o.name() == name)
    }

    /// Neither wrong nor failed.
    pub fn is_fine(self) -> bool {
        matches!(self, Outcome::Pass | Outcome::Unsupported)
    }
}

/// One case's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Its name: for folders, the path below the corpus.
    pub case: String,
    /// What came of it.
    pub outcome: Outcome,
    /// What went wrong, or why it is not supported; empty for one that passes.
    #[serde(default)]
    pub detail: String,
    /// The op that it is about; of folders, the rarest kind of node: the first that is no CAST or the like.
    #[serde(default)]
    pub op: String,
    /// The version of that op.
    #[serde(default)]
    pub version: u32,
    /// The type of that op's data.
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
    /// What sets it apart from others.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Nodes of the model.
    #[serde(default)]
    pub nodes: usize,
    /// How many of them the delegate has, those that were computed while preparing not counted.
    #[serde(default)]
    pub claimed: usize,
    /// Whether a node of the op that it is about is among them.
    #[serde(default)]
    pub op_claimed: bool,
    /// Why the others are not: `node 0 ADD v1: UnsupportedType: input 0 has type INT64`.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// Milliseconds that everything took.
    #[serde(default)]
    pub ms: f64,
    /// Microseconds of an invocation on what is tested.
    #[serde(default)]
    pub us: Option<f64>,
    /// Microseconds of an invocation on the CPU kernels that it is timed against.
    #[serde(default)]
    pub cpu_us: Option<f64>,
    /// How far the worst output is off.
    #[serde(default)]
    pub errors: Option<ErrorStats>,
    /// What was looked at beyond numbers.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// The reason why it is known to fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<String>,
}

impl CaseResult {
    /// A result of which nothing more is known.
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
            ms: 0.0,
            us: None,
            cpu_us: None,
            errors: None,
            checks: Vec::new(),
            known: None,
        }
    }

    /// Failed, and not known to.
    pub fn is_failure(&self) -> bool {
        !self.outcome.is_fine() && self.known.is_none()
    }
}

/// One thing that was looked at beyond numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Which.
    pub name: String,
    /// What is wrong; empty where all is well.
    pub problem: String,
}

/// How far an output is off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorStats {
    /// Which output.
    pub output: usize,
    /// In which invocation.
    pub step: usize,
    /// How many elements it has.
    pub elements: usize,
    /// How many of them are off by more than is allowed.
    pub wrong: usize,
    /// How many of them are off at all.
    pub off: usize,
    /// The largest absolute difference.
    #[serde(with = "number")]
    pub max_abs: f64,
    /// The largest difference relative to what is expected there.
    #[serde(with = "number")]
    pub max_rel: f64,
    /// What is allowed, where it is the same for all elements.
    pub allowed: Option<f64>,
    /// How many elements are off by how much, relative to the largest expected magnitude: not at all; below 1e-9, below
    /// 1e-8, …, below 10, more; not finite where it should be, or the other way round.
    pub histogram: Vec<usize>,
    /// The first element that is wrong, or the worst where none is.
    pub first: Option<Bad>,
}

/// How many bins [`ErrorStats::histogram`] has.
pub const BINS: usize = 14;

impl ErrorStats {
    /// An output of which nothing is off.
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

    /// Puts the worse of two after the other: wrong elements first, then by how far they are off in all.
    pub fn severity(&self) -> (usize, f64) {
        let decades = self.histogram.iter().enumerate().skip(1);
        let furthest = decades.filter(|(_, n)| **n > 0).map(|(i, _)| i).max().unwrap_or(0);
        (self.wrong, furthest as f64 + self.max_rel.min(1.0) / 2.0)
    }
}

/// An element.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bad {
    /// Where it is.
    pub index: Vec<usize>,
    /// What came out.
    #[serde(with = "number")]
    pub got: f64,
    /// What is expected.
    #[serde(with = "number")]
    pub expected: f64,
}

/// Numbers in JSON, those that are not finite as text.
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
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::named(outcome.name()), Some(outcome));
            assert_eq!(serde_json::to_string(&outcome).unwrap(), format!("\"{}\"", outcome.name()));
        }
        // What older versions wrote.
        let old = r#"{"case":"a","outcome":"pass","detail":"","ops":[],"types":[],"ms":1.5}"#;
        assert_eq!(serde_json::from_str::<CaseResult>(old).unwrap().ms, 1.5);
    }
}
