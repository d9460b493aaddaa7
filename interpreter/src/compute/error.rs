//! What can go wrong in a compute primitive.

use thiserror::Error;

/// Result of a compute primitive.
pub type Result<T> = std::result::Result<T, ComputeError>;

/// An operand that doesn't fit the geometry, or a geometry that can't be computed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ComputeError {
    /// An operand has another number of elements than its shape says.
    #[error("{what} has {got} elements, {needed} are needed")]
    Length {
        /// Which operand.
        what: &'static str,
        /// Elements that the geometry asks for.
        needed: usize,
        /// Elements that were handed in.
        got: usize,
    },
    /// A dimension or parameter is out of range.
    #[error("{what} is out of range")]
    Range {
        /// Which one.
        what: &'static str,
    },
    /// A buffer of this size can't be addressed or allocated.
    #[error("a buffer for {what} is too large for this machine")]
    TooLarge {
        /// What the buffer is for.
        what: &'static str,
    },
}

/// Fails unless an operand has exactly `needed` elements.
pub(crate) fn check_len(what: &'static str, got: usize, needed: usize) -> Result<()> {
    if got == needed { Ok(()) } else { Err(ComputeError::Length { what, needed, got }) }
}

/// Product of dimensions, or an error where it overflows.
pub(crate) fn product(what: &'static str, dims: &[usize]) -> Result<usize> {
    dims.iter().try_fold(1usize, |a, &d| a.checked_mul(d)).ok_or(ComputeError::TooLarge { what })
}
