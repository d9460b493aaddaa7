//! Descriptions of a model and of its interpreter as documents that are serialized: the JSON of the command's `inspect` and
//! `explain`.

pub(crate) mod explain;
pub(crate) mod inspect;
pub(crate) mod options;
pub(crate) mod text;
pub(crate) mod unresolved;
pub(crate) mod versions;

use serde::Serialize;

pub use explain::{Explanation, Runners, explain};
pub use inspect::{Inspection, inspect};
pub use versions::{Understated, understated};

use crate::core::types::printable_json;

impl Explanation {
    /// Returns the document as JSON on several lines, in which everything that a terminal acts on is escaped.
    pub fn to_json(&self) -> String {
        infallible_json(self)
    }
}

impl Inspection {
    /// Returns the document as JSON on several lines, in which everything that a terminal acts on is escaped.
    pub fn to_json(&self) -> String {
        infallible_json(self)
    }
}

/// Returns a document as JSON on several lines, in which everything that a terminal acts on is escaped.
///
/// # Errors
/// The errors of [`serde_json`].
pub(crate) fn json(document: &(impl Serialize + ?Sized)) -> serde_json::Result<String> {
    Ok(printable_json(serde_json::to_string_pretty(document)?))
}

/// As [`json`], for documents with derived `Serialize` and string keys only, which serde_json always writes.
fn infallible_json(document: &impl Serialize) -> String {
    #[allow(clippy::expect_used)]
    json(document).expect("derived documents with string keys are valid JSON")
}
