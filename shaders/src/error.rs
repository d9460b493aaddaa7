use thiserror::Error;

/// The reason why a spec has no kernel.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShaderError {
    /// Shapes or parameters contradict each other.
    #[error("{kernel}: {why}")]
    Invalid {
        /// Kernel family.
        kernel: &'static str,
        /// The values observed.
        why: String,
    },
    /// The use is valid, but no variant covers it or a limit of the device is exceeded.
    #[error("{kernel}: not supported: {why}")]
    Unsupported {
        /// Kernel family.
        kernel: &'static str,
        /// The values observed, and those supported.
        why: String,
    },
    /// A kernel source does not render, which is a defect of this crate.
    #[error("{kernel}: template line {line}: {why}")]
    Template {
        /// Kernel family.
        kernel: &'static str,
        /// Line in the source, from 1.
        line: usize,
        /// The cause.
        why: String,
    },
}

impl ShaderError {
    /// Creates the error for a `spec` whose shapes or parameters contradict each other.
    pub(crate) fn contradiction(kernel: &'static str, spec: &impl std::fmt::Debug) -> Self {
        Self::invalid(kernel, format!("contradicting shapes or parameters: {spec:?}"))
    }

    pub(crate) fn invalid(kernel: &'static str, why: impl Into<String>) -> Self {
        Self::Invalid { kernel, why: why.into() }
    }

    pub(crate) fn unsupported(kernel: &'static str, why: impl Into<String>) -> Self {
        Self::Unsupported { kernel, why: why.into() }
    }
}
