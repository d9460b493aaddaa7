//! Data for which an op is not defined.

use std::fmt;

use super::Error;

/// Data for which an op is not defined. CPU kernels and delegates report it with the same text, as [`Error::Kernel`].
///
/// A delegate's kernel adds the node's location ([`Error::at`]): see [`Error::is_invalid_data`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidData {
    /// An index outside of the dimension that it refers to.
    Index {
        /// The index.
        index: i64,
        /// The size of the dimension.
        size: usize,
    },
    /// The id of a row outside of its table.
    Row {
        /// The id.
        id: i64,
        /// The number of rows.
        rows: usize,
    },
    /// A divisor of 0, where the op defines no quotient.
    DivisionByZero,
    /// An integer to a negative power.
    NegativePower,
    /// The root of a negative quantized value.
    NegativeRoot,
}

impl fmt::Display for InvalidData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidData::Index { index, size } => {
                write!(f, "index {index} is out of range for a dimension of {size}")
            }
            InvalidData::Row { id, rows } => {
                write!(f, "id {id} is out of range for {}", super::counted(rows, "row"))
            }
            InvalidData::DivisionByZero => f.write_str("division by 0"),
            InvalidData::NegativePower => {
                f.write_str("an integer to a negative power; exponents of integers must not be negative")
            }
            InvalidData::NegativeRoot => f.write_str("the root of a negative value"),
        }
    }
}

impl From<InvalidData> for Error {
    fn from(data: InvalidData) -> Self {
        Error::Kernel(data.to_string())
    }
}
