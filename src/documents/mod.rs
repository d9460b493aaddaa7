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

/// Returns a document as JSON on several lines, in which everything that a terminal acts on is escaped.
///
/// # Errors
/// The errors of [`serde_json`]; documents of this module have none.
pub fn json(document: &(impl Serialize + ?Sized)) -> serde_json::Result<String> {
    Ok(printable_json(serde_json::to_string_pretty(document)?))
}
