use thiserror::Error;

/// Why no kernel could be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ShaderError {
    /// Shapes or parameters that contradict each other.
    #[error("{kernel}: {why}")]
    Invalid {
        /// Kernel family.
        kernel: &'static str,
        /// What is wrong, with the numbers.
        why: String,
    },
    /// A valid use that this family has no kernel for, or that the device has no room for.
    #[error("{kernel}: not supported: {why}")]
    Unsupported {
        /// Kernel family.
        kernel: &'static str,
        /// What is missing.
        why: String,
    },
    /// A kernel source that doesn't render: a mistake in this crate.
    #[error("{kernel}: template line {line}: {why}")]
    Template {
        /// Kernel family.
        kernel: &'static str,
        /// Line in the source, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

impl ShaderError {
    pub(crate) fn invalid(kernel: &'static str, why: impl Into<String>) -> Self {
        Self::Invalid { kernel, why: why.into() }
    }

    pub(crate) fn unsupported(kernel: &'static str, why: impl Into<String>) -> Self {
        Self::Unsupported { kernel, why: why.into() }
    }
}
