//! The errors of reading and writing cases, goldens, expectations and reports.

use std::fmt;
use std::io;
use std::path::PathBuf;

use delegraph_core::error::BoxError;

/// The error of reading or writing a file of this crate, or of running a model with its contents.
///
/// [`Display`](fmt::Display) contains the message of the source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The contents of a file are invalid or not supported, or a result differs from them.
    #[error("{message}")]
    #[non_exhaustive]
    Invalid {
        /// The defect and its place.
        message: String,
        /// The cause, if it has a type of its own.
        source: Option<BoxError>,
    },
    /// An output differs from the expected one in its type, shape or number of elements, or beyond the tolerance.
    #[error("{message}")]
    #[non_exhaustive]
    Mismatch {
        /// Both sides.
        message: String,
        /// The [`Deviation`](crate::compare::Deviation), if elements exceed the tolerance.
        source: Option<BoxError>,
    },
    /// A model cannot be prepared or run.
    #[error(transparent)]
    Model(#[from] delegraph_core::Error),
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Error::Io { path: path.into(), source }
    }

    pub(crate) fn mismatch(message: impl fmt::Display) -> Self {
        Error::Mismatch { message: message.to_string(), source: None }
    }

    pub(crate) fn mismatch_caused_by(cause: impl Into<BoxError>) -> Self {
        let cause = cause.into();
        Error::Mismatch { message: cause.to_string(), source: Some(cause) }
    }

    pub(crate) fn invalid(message: impl fmt::Display) -> Self {
        Error::Invalid { message: message.to_string(), source: None }
    }

    pub(crate) fn invalid_caused_by(cause: impl Into<BoxError>) -> Self {
        let cause = cause.into();
        Error::Invalid { message: cause.to_string(), source: Some(cause) }
    }

    /// As `invalid_caused_by`, with the place of the defect in front of the message.
    pub(crate) fn invalid_at(place: impl fmt::Display, cause: impl Into<BoxError>) -> Self {
        let cause = cause.into();
        Error::Invalid { message: format!("{place}: {cause}"), source: Some(cause) }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    /// Checks that an error has a source of type `T`, whose message is the end of its own.
    fn check<T: std::error::Error + 'static>(error: &Error) {
        let source = error.source().and_then(|source| source.downcast_ref::<T>());
        let text = source.map(ToString::to_string).unwrap_or_else(|| panic!("another source: {error:?}"));
        assert!(!text.is_empty() && error.to_string().ends_with(&text), "{error}");
    }

    #[test]
    fn causes_keep_their_types() {
        use crate::expectations::Expectations;
        use crate::npy::{self, Array};

        check::<io::Error>(&Array::parse(b"\x93NUMPY\x09\x00").unwrap_err());
        check::<delegraph_core::kernel::StringsError>(&npy::write_strings(&[1], b"hello").unwrap_err());
        check::<toml::de::Error>(&Expectations::parse("known =").unwrap_err());
        // Neither expectations nor results.
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = Expectations::read(&file).unwrap_err();
        check::<Error>(&error);
        check::<toml::de::Error>(error.source().and_then(|e| e.downcast_ref::<Error>()).unwrap());
        check::<serde_json::Error>(&crate::report::Report::read(&file).unwrap_err());
        assert!(Error::invalid("a defect").source().is_none());
    }

    #[test]
    fn a_mismatch_beyond_the_tolerance_has_its_deviation() {
        use delegraph_core::{BuiltinOp, Params, Shape, TensorType};

        use crate::cases::{Case, Computed};

        let case = Case::new(BuiltinOp::ABS, Params::None, []);
        let computed = |value: f32, shape: &[usize]| Computed {
            ty: TensorType::Float32,
            shape: Shape::new(shape),
            quantized: false,
            bytes: value.to_le_bytes().to_vec(),
        };
        let agree = |got: &Computed| case.agree(got, &computed(1.0, &[1]), 0);
        assert!(agree(&computed(1.0, &[1])).is_ok());
        let error = agree(&computed(2.0, &[1])).unwrap_err();
        assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
        check::<crate::compare::Deviation>(&error);
        assert!(agree(&computed(1.0, &[])).unwrap_err().source().is_none());
    }
}
