//! Operators of nodes.

use std::fmt;
use std::sync::Arc;

use super::printable::{printable, short_name};
use crate::schema;

/// A builtin operator, by its code in the format. The code may be one that this build does not know.
///
/// Every op with a definition ([`DEFS`](crate::ops::DEFS)) has a constant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct BuiltinOp(pub i32);

impl BuiltinOp {
    /// Returns the op's name in the schema: `CONV_2D`; `None` for a code that this build does not know.
    pub fn variant_name(self) -> Option<&'static str> {
        schema::BuiltinOperator(self.0).variant_name()
    }
}

impl fmt::Debug for BuiltinOp {
    /// The name, or the code of an unknown op.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        schema::BuiltinOperator(self.0).fmt(f)
    }
}

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

    /// Returns the op for a message: as [`Display`](fmt::Display), with the name of a custom operator as
    /// [`short_name`]. Different ops may have the same text.
    ///
    /// ```
    /// use delegraph_core::Op;
    ///
    /// let [a, b] = ["a", "b"].map(|end| Op::custom(&("x".repeat(80) + end)));
    /// assert_ne!(a.to_string(), b.to_string());
    /// assert_eq!(a.in_short(), format!("custom op \"{}…\"", "x".repeat(80)));
    /// ```
    pub fn in_short(&self) -> String {
        match self {
            Op::Builtin(_) => self.to_string(),
            Op::Custom(name) => format!("custom op \"{}\"", short_name(name)),
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
