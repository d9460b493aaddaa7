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

/// Returns the error of a kernel whose primitive failed. Shape inference has checked the sizes already, so the data is
/// not the cause.
pub fn compute_error(error: ComputeError) -> Error {
    match error {
        ComputeError::TooLarge { .. } => Error::OutOfMemory(error.to_string()),
        _ => Error::external(error),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_keep_the_error_of_their_primitive() {
        let error = ComputeError::Length { what: "the bias", needed: 4, got: 3 };
        let Error::External(source) = compute_error(error.clone()) else { panic!("another variant") };
        assert_eq!(source.downcast_ref(), Some(&error));
        assert_eq!(compute_error(error).to_string(), "the bias has 3 elements, 4 are needed");
        let large = compute_error(ComputeError::TooLarge { what: "the sums" });
        assert!(matches!(large, Error::OutOfMemory(_)), "{large:?}");
    }
}
