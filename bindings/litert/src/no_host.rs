//! The host of kernels without access to other subgraphs.

use std::sync::Arc;

use delegraph_core::error::Error;
use delegraph_core::kernel::{Budget, Host, Resources, RuntimeTensor};
use delegraph_core::{Shape, Subgraph};

/// A host without other subgraphs.
pub(crate) struct NoHost {
    resources: Resources,
    budget: Arc<Budget>,
}

impl NoHost {
    /// A host whose kernels use `budget`.
    pub(crate) fn within(budget: &Arc<Budget>) -> Self {
        NoHost { resources: Resources::default(), budget: budget.clone() }
    }
}

impl Default for NoHost {
    fn default() -> Self {
        Self::within(Budget::unlimited())
    }
}

fn unreachable_subgraph<T>() -> delegraph_core::Result<T> {
    Err(Error::Unsupported("calling other subgraphs from a delegate of this runtime".into()))
}

impl Host for NoHost {
    fn resources(&mut self) -> &mut Resources {
        &mut self.resources
    }

    fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    fn subgraph(&self, _: usize) -> Option<&Subgraph> {
        None
    }

    fn prepare_callee(&mut self, _: usize, _: &[Shape]) -> delegraph_core::Result<Vec<Option<Shape>>> {
        unreachable_subgraph()
    }

    fn reset_callee(&mut self, _: usize) -> delegraph_core::Result<()> {
        unreachable_subgraph()
    }

    fn call(&mut self, _: usize, _: &[&RuntimeTensor]) -> delegraph_core::Result<Vec<&RuntimeTensor>> {
        unreachable_subgraph()
    }
}
