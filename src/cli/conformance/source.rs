//! The source of cases: the built-in ones, or those of a folder.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use delegraph::Model;
use delegraph_conformance::cases::{self, Case};
use delegraph_conformance::compare::Arithmetic;
use delegraph_conformance::corpus;
use delegraph_conformance::engine::{CaseFailure, CaseResult, Outcome, Problem};
use delegraph_conformance::runner::{ContractChecks, Engine};

use crate::cli::failure::Failure;
use crate::cli::text::printable_path;

/// The help for a folder without cases.
pub(super) const CASE: &str =
    "pass a folder with cases: folders that hold model.tflite, input_0.npy, … and expected_0.npy, …";

/// Cases by name.
pub(super) enum Source {
    /// The built-in cases.
    Suite { seed: u64, arithmetic: Arithmetic, cases: Vec<Case>, places: HashMap<String, usize> },
    /// Folders below a root, for this arithmetic.
    Corpus { root: PathBuf, arithmetic: Arithmetic, folders: Vec<String> },
}

impl Source {
    /// The built-in cases, generated from `seed`, for this arithmetic.
    pub(super) fn suite(seed: u64, arithmetic: Arithmetic) -> Self {
        let cases = cases::suite(seed);
        let places = cases.iter().enumerate().map(|(i, c)| (c.name.clone(), i)).collect();
        Source::Suite { seed, arithmetic, cases, places }
    }

    /// Returns the folders below `root`, for this arithmetic.
    pub(super) fn corpus(root: &Path, arithmetic: Arithmetic) -> Result<Self, Failure> {
        let failed = |e: io::Error| {
            let why = match e.kind() {
                io::ErrorKind::NotADirectory => "it is not a folder".to_owned(),
                _ => e.to_string(),
            };
            Failure::invalid(format!("--corpus {}: {why}", printable_path(root))).with_help(CASE)
        };
        let found = corpus::find(root).map_err(failed)?;
        let name = |case: &PathBuf| match case.strip_prefix(root).unwrap_or(case).display().to_string() {
            // The root itself is a case.
            name if name.is_empty() => ".".to_owned(),
            name => name,
        };
        let folders = found.iter().map(name).collect();
        Ok(Source::Corpus { root: root.to_path_buf(), arithmetic, folders })
    }

    /// Returns the names, in the order in which they run, and whether the contract is checked in a sample: the first
    /// two cases of each op and type.
    pub(super) fn names(&self) -> Vec<(String, bool)> {
        match self {
            Source::Suite { cases, .. } => {
                let mut seen: HashMap<_, usize> = HashMap::new();
                let mut sampled = |case: &Case| {
                    let count = seen.entry((case.op, case.data_type())).or_default();
                    *count += 1;
                    *count <= 2
                };
                cases.iter().map(|case| (case.name.clone(), sampled(case))).collect()
            }
            Source::Corpus { folders, .. } => folders.iter().map(|name| (name.clone(), false)).collect(),
        }
    }

    /// Returns the model of the case of this name; `None` if it cannot be loaded.
    pub(super) fn model(&self, name: &str) -> Option<Model> {
        match self {
            Source::Suite { cases, places, .. } => cases.get(*places.get(name)?)?.build().ok(),
            Source::Corpus { root, .. } => delegraph::load(root.join(name).join("model.tflite")).ok(),
        }
    }

    /// Returns the case of this name.
    pub(super) fn problem(&self, name: &str) -> Result<Problem, CaseFailure> {
        match self {
            Source::Suite { arithmetic, cases, places, .. } => {
                let case = places.get(name).and_then(|&i| cases.get(i));
                let case = case.ok_or_else(|| CaseFailure::new(Outcome::Invalid, "there is no such case"))?;
                Problem::of_case(case, *arithmetic)
                    .map_err(|e| CaseFailure::new(Outcome::Invalid, e.to_string()))
            }
            Source::Corpus { root, arithmetic, .. } => {
                let folder = if name.is_empty() { root.clone() } else { root.join(name) };
                let mut problem = corpus::load(&folder, name)?;
                problem.halves = *arithmetic == Arithmetic::GpuHalves;
                Ok(problem)
            }
        }
    }

    /// Runs the case of this name.
    pub(super) fn run(&self, name: &str, engine: &Engine, checks: ContractChecks) -> CaseResult {
        engine.run_made(name, || self.problem(name), checks)
    }
}
