//! Up to which version of each op a delegate runs.

use std::collections::HashMap;

use delegraph_core::{BuiltinOp, Composite, Op};

use crate::Rejection;

/// The highest version that a delegate runs, per op. Ops that are not in it are not supported at all.
#[derive(Debug, Clone, Default)]
pub struct VersionTable {
    ops: HashMap<Op, u32>,
    /// Composites, by name.
    composites: HashMap<String, u32>,
}

impl VersionTable {
    /// A table of builtin ops.
    pub fn new(builtins: &[(BuiltinOp, u32)]) -> Self {
        let ops = builtins.iter().map(|&(op, version)| (Op::Builtin(op), version)).collect();
        VersionTable { ops, composites: HashMap::new() }
    }

    /// Adds an op.
    #[must_use]
    pub fn with(mut self, op: Op, max_version: u32) -> Self {
        self.ops.insert(op, max_version);
        self
    }

    /// Adds a custom op.
    #[must_use]
    pub fn with_custom(self, name: &str, max_version: u32) -> Self {
        self.with(Op::custom(name), max_version)
    }

    /// Adds a marked composite: a `STABLEHLO_COMPOSITE` that stands for the operation `name`. A delegate that has it is
    /// asked before the composite's body takes its place; see the page on fusion.
    #[must_use]
    pub fn with_composite(mut self, name: &str, max_version: u32) -> Self {
        self.composites.insert(name.to_owned(), max_version);
        self
    }

    /// The highest version of the composite `name`, if it is supported at all. A delegate that has the op
    /// `STABLEHLO_COMPOSITE` itself takes composites of any name and version.
    pub fn max_composite(&self, name: &str) -> Option<u32> {
        let any = self.max(&Op::Builtin(BuiltinOp::STABLEHLO_COMPOSITE));
        self.composites.get(name).copied().or(any.map(|_| u32::MAX))
    }

    /// Every composite and its highest version, by name.
    pub fn composites(&self) -> impl Iterator<Item = (&str, u32)> {
        let mut all: Vec<_> = self.composites.iter().map(|(name, v)| (name.as_str(), *v)).collect();
        all.sort_unstable();
        all.into_iter()
    }

    /// Ok when this composite may be claimed.
    pub fn check_composite(&self, composite: &Composite<'_>) -> Result<(), Rejection> {
        let (name, version) = (composite.name, composite.version);
        match self.max_composite(name) {
            None => Err(Rejection::UnsupportedComposite { name: name.to_owned() }),
            Some(max) if version > max => {
                Err(Rejection::CompositeVersionTooHigh { name: name.to_owned(), version, max })
            }
            Some(_) => Ok(()),
        }
    }

    /// The highest version of `op`, if it is supported at all.
    pub fn max(&self, op: &Op) -> Option<u32> {
        self.ops.get(op).copied()
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
        let mut all: Vec<_> = self.ops.iter().map(|(op, v)| (op, *v)).collect();
        all.sort_by_key(|(op, _)| op.to_string());
        all.into_iter()
    }
}
