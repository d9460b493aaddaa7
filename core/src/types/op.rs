//! Operators of nodes.

use std::fmt;
use std::sync::Arc;

use super::printable::printable;

pub use crate::schema::BuiltinOperator as BuiltinOp;

/// An operator: builtin, by its code, or custom, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// One of the format's builtin operators. The code may be one that this build does not know.
    Builtin(BuiltinOp),
    /// A custom operator.
    Custom(Arc<str>),
}

impl Op {
    /// Returns the custom operator `name`.
    pub fn custom(name: &str) -> Self {
        Op::Custom(name.into())
    }

    /// Returns the builtin code, if it is a builtin operator.
    pub fn builtin(&self) -> Option<BuiltinOp> {
        match self {
            Op::Builtin(op) => Some(*op),
            Op::Custom(_) => None,
        }
    }
}

impl From<BuiltinOp> for Op {
    fn from(op: BuiltinOp) -> Self {
        Op::Builtin(op)
    }
}

impl fmt::Display for Op {
    /// The name; that of a custom operator in quotes, and [`printable`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Builtin(op) => match op.variant_name() {
                Some(name) => f.write_str(name),
                None => write!(f, "builtin operator {}", op.0),
            },
            Op::Custom(name) => write!(f, "custom op \"{}\"", printable(name)),
        }
    }
}
