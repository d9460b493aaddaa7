//! The highest version of each op that a delegate runs.

use std::collections::HashMap;

use delegraph_core::{BuiltinOp, Composite, Op};

use crate::Rejection;

/// The highest version that a delegate runs, per op. Ops that the table does not contain are not supported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionTable {
    ops: HashMap<Op, u32>,
    /// Composites by name.
    composites: HashMap<String, u32>,
    /// Custom ops that `ops` does not contain.
    any_custom: Option<u32>,
}

impl VersionTable {
    /// Creates a table of builtin ops.
    pub fn new(builtins: &[(BuiltinOp, u32)]) -> Self {
        builtins.iter().copied().collect()
    }

    /// Adds an op.
    #[must_use]
    pub fn with_op(mut self, op: impl Into<Op>, max_version: u32) -> Self {
        self.ops.insert(op.into(), max_version);
        self
    }

    /// Adds a custom op.
    #[must_use]
    pub fn with_custom(self, name: &str, max_version: u32) -> Self {
        self.with_op(Op::custom(name), max_version)
    }

    /// Adds all custom ops, for a delegate that decides about them itself when it sees a node.
    #[must_use]
    pub fn with_any_custom(mut self, max_version: u32) -> Self {
        self.any_custom = Some(max_version);
        self
    }

    /// Adds a marked composite: a `STABLEHLO_COMPOSITE` that represents the operation `name`. Before a
    /// composite is inlined, it is offered to the delegates that declare it; see `docs/fusion.md` in the repository.
    #[must_use]
    pub fn with_composite(mut self, name: &str, max_version: u32) -> Self {
        self.composites.insert(name.to_owned(), max_version);
        self
    }

    /// Returns the highest version of `op`, if it is supported at all.
    pub fn max_version(&self, op: &Op) -> Option<u32> {
        let any = self.any_custom.filter(|_| matches!(op, Op::Custom(_)));
        self.ops.get(op).copied().or(any)
    }

    /// Returns the highest version of the composite `name`, if it is supported at all. A delegate that supports the op
    /// `STABLEHLO_COMPOSITE` itself takes composites of any name and version.
    pub fn max_composite_version(&self, name: &str) -> Option<u32> {
        let any = self.max_version(&Op::Builtin(BuiltinOp::STABLEHLO_COMPOSITE));
        self.composites.get(name).copied().or(any.map(|_| u32::MAX))
    }

    /// Checks `op` at `version` against the table.
    ///
    /// # Errors
    /// [`Rejection::UnsupportedOp`] or [`Rejection::VersionTooHigh`].
    pub fn check(&self, op: &Op, version: u32) -> Result<(), Rejection> {
        match self.max_version(op) {
            None => Err(Rejection::UnsupportedOp { op: op.clone() }),
            Some(max) if version > max => Err(Rejection::VersionTooHigh { op: op.clone(), version, max }),
            Some(_) => Ok(()),
        }
    }

    /// Checks `op` at `version` against the table, for a node that uses features of version `needed`.
    ///
    /// # Errors
    /// As [`VersionTable::check`]; [`Rejection::UnderstatedVersion`] where only `needed` is above the maximum.
    pub(crate) fn check_use(&self, op: &Op, version: u32, needed: u32) -> Result<(), Rejection> {
        self.check(op, version)?;
        match self.max_version(op) {
            Some(max) if needed > max => {
                Err(Rejection::UnderstatedVersion { op: op.clone(), version, needed, max })
            }
            _ => Ok(()),
        }
    }

    /// Checks a composite against the table.
    ///
    /// # Errors
    /// [`Rejection::UnsupportedComposite`] or [`Rejection::CompositeVersionTooHigh`].
    pub fn check_composite(&self, composite: &Composite<'_>) -> Result<(), Rejection> {
        let (name, version) = (composite.name, composite.version);
        match self.max_composite_version(name) {
            None => Err(Rejection::UnsupportedComposite { name: name.to_owned() }),
            Some(max) if version > max => {
                Err(Rejection::CompositeVersionTooHigh { name: name.to_owned(), version, max })
            }
            Some(_) => Ok(()),
        }
    }

    /// Returns every op and its highest version, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Op, u32)> {
        let mut all: Vec<_> = self.ops.iter().map(|(op, v)| (op, *v)).collect();
        all.sort_by_key(|(op, _)| op.to_string());
        all.into_iter()
    }

    /// Returns every composite and its highest version, sorted by name.
    pub fn composites(&self) -> impl Iterator<Item = (&str, u32)> {
        let mut all: Vec<_> = self.composites.iter().map(|(name, v)| (name.as_str(), *v)).collect();
        all.sort_unstable();
        all.into_iter()
    }
}

impl<O: Into<Op>> FromIterator<(O, u32)> for VersionTable {
    fn from_iter<I: IntoIterator<Item = (O, u32)>>(versions: I) -> Self {
        let ops = versions.into_iter().map(|(op, version)| (op.into(), version)).collect();
        VersionTable { ops, ..VersionTable::default() }
    }
}
