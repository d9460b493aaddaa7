//! Errors of the compute primitives.

use delegraph_core::Error;
use delegraph_core::error::counted;

/// Result of a compute primitive.
pub type Result<T> = std::result::Result<T, ComputeError>;

/// An operand that does not match the geometry, or a geometry that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ComputeError {
    /// An operand has the wrong number of elements.
    #[error("{} of {what}, {needed} needed", counted(.got, "element"))]
    Length {
        /// Name of the operand.
        what: &'static str,
        /// Elements that the geometry requires.
        needed: usize,
        /// Elements of the operand.
        got: usize,
    },
    /// A dimension or parameter is out of range or not supported.
    #[error("unsupported {what}")]
    Range {
        /// Name of the dimension or parameter, possibly with the reason.
        what: &'static str,
    },
    /// A number is not a multiple of another one.
    #[error("the number of {what} is {got}; only multiples of {factor} are supported")]
    Multiple {
        /// Name of what is counted, in the plural.
        what: &'static str,
        /// The number.
        got: usize,
        /// The number that must divide it.
        factor: usize,
    },
    /// Two operands do not broadcast.
    #[error("operands with {a} and {b} elements along dimension -{dim} do not broadcast")]
    Broadcast {
        /// Dimension, counted from 1 at the last one.
        dim: usize,
        /// Elements of the first operand along it.
        a: usize,
        /// Elements of the second operand along it.
        b: usize,
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

/// Checks that a number is a multiple of `factor`; any number if `factor` is 0.
pub(crate) fn check_multiple(what: &'static str, got: usize, factor: usize) -> Result<()> {
    match got.checked_rem(factor) {
        None | Some(0) => Ok(()),
        Some(_) => Err(ComputeError::Multiple { what, got, factor }),
    }
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
        let error = ComputeError::Length { what: "bias", needed: 4, got: 3 };
        let Error::External(source) = compute_error(error.clone()) else { panic!("another variant") };
        assert_eq!(source.downcast_ref(), Some(&error));
        assert_eq!(compute_error(error).to_string(), "3 elements of bias, 4 needed");
        let large = compute_error(ComputeError::TooLarge { what: "the sums" });
        assert!(matches!(large, Error::OutOfMemory(_)), "{large:?}");
    }

    #[test]
    fn messages_state_the_numbers() {
        let text = |checked: Result<()>| checked.unwrap_err().to_string();
        assert_eq!(text(check_len("factors", 1, 2)), "1 element of factors, 2 needed");
        check_multiple("heads", 5, 0).unwrap();
        check_multiple("heads", 6, 2).unwrap();
        assert_eq!(
            text(check_multiple("heads", 5, 2)),
            "the number of heads is 5; only multiples of 2 are supported"
        );
    }
}
