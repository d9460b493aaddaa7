//! Up to which version of each op a delegate runs.

use std::collections::HashMap;

use delegraph_core::{BuiltinOp, Op};

use crate::Rejection;

/// The highest version that a delegate runs, per op. Ops that are not in it are not supported at all.
#[derive(Debug, Clone, Default)]
pub struct VersionTable(HashMap<Op, u32>);

impl VersionTable {
    /// A table of builtin ops.
    pub fn new(builtins: &[(BuiltinOp, u32)]) -> Self {
        VersionTable(builtins.iter().map(|&(op, version)| (Op::Builtin(op), version)).collect())
    }

    /// Adds an op.
    #[must_use]
    pub fn with(mut self, op: Op, max_version: u32) -> Self {
        self.0.insert(op, max_version);
        self
    }

    /// Adds a custom op.
    #[must_use]
    pub fn with_custom(self, name: &str, max_version: u32) -> Self {
        self.with(Op::custom(name), max_version)
    }

    /// The highest version of `op`, if it is supported at all.
    pub fn max(&self, op: &Op) -> Option<u32> {
        self.0.get(op).copied()
    }

    /// Ok when `op` at `version` may be claimed.
    pub fn check(&self, op: &Op, version: u32) -> Result<(), Rejection> {
        match self.max(op) {
            None => Err(Rejection::UnsupportedOp { op: op.clone() }),
            Some(max) if version > max => Err(Rejection::VersionTooHigh { op: op.clone(), version, max }),
            Some(_) => Ok(()),
        }
    }

    /// Every op and its highest version, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Op, u32)> {
        let mut all: Vec<_> = self.0.iter().map(|(op, v)| (op, *v)).collect();
        all.sort_by_key(|(op, _)| op.to_string());
        all.into_iter()
    }
}
