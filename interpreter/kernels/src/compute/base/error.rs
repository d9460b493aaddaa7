//! Errors of the compute primitives.

use delegraph_core::Error;

/// Result of a compute primitive.
pub type Result<T> = std::result::Result<T, ComputeError>;

/// An operand that does not match the geometry, or a geometry that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ComputeError {
    /// An operand has the wrong number of elements.
    #[error("{what} has {got} elements, {needed} are needed")]
    Length {
        /// Name of the operand.
        what: &'static str,
        /// Elements that the geometry requires.
        needed: usize,
        /// Elements of the operand.
        got: usize,
    },
    /// A dimension or parameter is out of range.
    #[error("{what} is out of range")]
    Range {
        /// Name of the dimension or parameter.
        what: &'static str,
    },
    /// The size of a buffer overflows, or it cannot be allocated.
    #[error("a buffer for {what} is too large for this machine")]
    TooLarge {
        /// Purpose of the buffer.
        what: &'static str,
    },
}

/// Returns the error of a kernel whose primitive failed. Inference has checked the sizes already.
pub(crate) fn compute_error(error: ComputeError) -> Error {
    match error {
        ComputeError::TooLarge { .. } => Error::OutOfMemory(error.to_string()),
        _ => Error::Kernel(error.to_string()),
    }
}

/// Checks that an operand has exactly `needed` elements.
pub(crate) fn check_len(what: &'static str, got: usize, needed: usize) -> Result<()> {
    if got == needed { Ok(()) } else { Err(ComputeError::Length { what, needed, got }) }
}

/// Product of dimensions; fails on overflow.
pub(crate) fn product(what: &'static str, dims: &[usize]) -> Result<usize> {
    dims.iter().try_fold(1usize, |a, &d| a.checked_mul(d)).ok_or(ComputeError::TooLarge { what })
}
