//! Rewriting a model before it is prepared.

use std::any::Any;
use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::{Composite, Model, OpResolver};

use super::host::ResourceLimits;

/// Rewrites a model before it is prepared.
pub(crate) trait ModelRewrite: Any + Send {
    /// Returns the model to run instead of `model`. Composites for which `keep` is true must not be changed. `limits`
    /// apply to the rewriting, and to preparing its result.
    ///
    /// # Errors
    /// If the model cannot be prepared, or the rewriting fails.
    fn rewrite(
        &mut self,
        model: &Arc<Model>,
        resolver: &Arc<dyn OpResolver>,
        keep: &dyn Fn(&Composite<'_>) -> bool,
        limits: &ResourceLimits,
    ) -> Result<Arc<Model>>;
}
