//! The results per op, version and type.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;
use crate::engine::{CaseResult, Outcome};

/// The outcomes of the cases of one op in one version and type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cell {
    /// All cases.
    pub cases: usize,
    /// Cases that pass.
    pub passed: usize,
    /// Cases that fail.
    pub failed: usize,
    /// Cases that are known failures.
    pub known: usize,
    /// Cases whose op the delegate claims.
    pub claimed: usize,
    /// The reason why one of the other cases is not supported.
    pub reason: String,
}

impl Cell {
    fn add(&mut self, result: &CaseResult) {
        self.cases += 1;
        self.claimed += usize::from(result.op_claimed);
        match (result.outcome, &result.known) {
            (Outcome::Pass, _) => self.passed += 1,
            (Outcome::Unsupported, _) => {
                if self.reason.is_empty() {
                    self.reason.clone_from(&result.detail);
                }
            }
            (_, Some(_)) => self.known += 1,
            (_, None) => self.failed += 1,
        }
    }

    /// Returns the class of the cell, from worst to empty: `bad`, `known`, `good`, `part` (some pass, others are not
    /// supported), `none`.
    pub fn class(&self) -> &'static str {
        if self.failed > 0 {
            "bad"
        } else if self.known > 0 {
            "known"
        } else if self.passed == self.cases {
            "good"
        } else if self.passed > 0 {
            "part"
        } else {
            "none"
        }
    }
}

/// Ops with their versions by types.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Matrix {
    /// The types that occur, in their usual order.
    pub types: Vec<String>,
    /// By op and version, the cells of the types that occur.
    pub rows: BTreeMap<(String, u32), BTreeMap<String, Cell>>,
}

/// The usual order of types: floats, integers, the rest.
const ORDER: [&str; 17] = [
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "int4",
    "int2",
    "bool",
    "string",
    "complex64",
];

impl Matrix {
    /// Returns the matrix of a run.
    pub fn of(report: &Report) -> Self {
        let mut matrix = Matrix::default();
        let mut types = BTreeSet::new();
        for result in report.results.iter().filter(|r| !r.op.is_empty()) {
            let row = matrix.rows.entry((result.op.clone(), result.version)).or_default();
            row.entry(result.ty.clone()).or_default().add(result);
            types.insert(result.ty.clone());
        }
        let place = |ty: &String| ORDER.iter().position(|o| o == ty).unwrap_or(ORDER.len());
        matrix.types = types.into_iter().collect();
        matrix.types.sort_by_key(place);
        matrix
    }
}
