//! Checks of kernels: a condition that does not hold is an error that names it.

/// Returns an [`Error::InvalidNode`](crate::Error::InvalidNode) with this text where the condition does not hold.
///
/// When the interpreter returns the error, its message begins with the model's file, the node and its op.
///
/// ```
/// # use delegraph_core::{Result, ensure};
/// fn check(stride: usize) -> Result<()> {
///     ensure!(stride > 0, "stride {stride}, it must be at least 1");
///     Ok(())
/// }
/// assert_eq!(check(0).unwrap_err().to_string(), "invalid node: stride 0, it must be at least 1");
/// ```
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return ::core::result::Result::Err($crate::Error::InvalidNode(::std::format!($($text)+)));
        }
    };
}

/// Returns an [`Error::InvalidNode`](crate::Error::InvalidNode) that names both values where they differ.
///
/// ```
/// # use delegraph_core::{Result, ensure_eq};
/// fn check(rows: usize, columns: usize) -> Result<()> {
///     ensure_eq!(rows, columns, "rows of a square matrix");
///     Ok(())
/// }
/// assert_eq!(check(2, 3).unwrap_err().to_string(), "invalid node: rows of a square matrix: 2, wanted 3");
/// ```
#[macro_export]
macro_rules! ensure_eq {
    ($left:expr, $right:expr, $($text:tt)+) => {
        match (&$left, &$right) {
            (left, right) => if *left != *right {
                let text = ::std::format!($($text)+);
                return ::core::result::Result::Err($crate::Error::InvalidNode(
                    ::std::format!("{text}: {left:?}, wanted {right:?}"),
                ));
            }
        }
    };
}
