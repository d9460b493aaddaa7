//! Tables of functions of quantized values. A table has up to 65,536 entries, and a model may have one per node, so
//! entries are computed when they are uploaded, and equal tables are uploaded once.

use std::fmt::{self, Debug};
use std::sync::Arc;

use delegraph_core::quantized::Steps;

/// The results of a function for all integers of a type: first those of 0 and above, then, for signed types, those of
/// the lowest integer and above, so that a negative value is an index from the table's end.
#[derive(Clone)]
pub(crate) struct Table {
    key: String,
    from: Steps,
    function: Arc<dyn Fn(i32) -> i32 + Send + Sync>,
}

impl Table {
    /// Creates the table of `function` over the integers of `from`. `name` identifies the function and its parameters:
    /// tables with the same name and steps are equal.
    pub(crate) fn new(
        name: &dyn Debug,
        from: Steps,
        to: Steps,
        function: impl Fn(i32) -> i32 + Send + Sync + 'static,
    ) -> Self {
        Table { key: format!("{name:?} {from:?} {to:?}"), from, function: Arc::new(function) }
    }

    /// Returns the hash of everything that determines the entries.
    pub(crate) fn hash(&self) -> blake3::Hash {
        // Hashed in a domain of its own: the bytes of a constant may be equal to a key.
        blake3::Hasher::new_derive_key("delegraph tables of quantized functions")
            .update(self.key.as_bytes())
            .finalize()
    }

    /// Returns the number of entries.
    pub(crate) fn count(&self) -> u32 {
        (self.from.high - self.from.low + 1).unsigned_abs()
    }

    /// Computes the entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = i32> {
        let Steps { low, high, .. } = self.from;
        (0..=high).chain(low..0).map(|value| (self.function)(value))
    }
}

impl Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({})", self.key)
    }
}
