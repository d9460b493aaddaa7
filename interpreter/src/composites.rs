//! Who runs marked composites: a delegate that claims them, else a kernel of their name, else their bodies, which take
//! their place in the graph so that delegates choose among the nodes and partitions go across them.

use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::{Composite, Model, NodeId};
use delegraph_delegate_api::{CompositeReport, CompositeRunner, Runner};

use crate::engine::Engine;
use crate::fusion::inline::{Inlined, Inliner, Origin, Place, can_inline, kernel_key};
use crate::subgraph::SubgraphRuntime;

impl Engine {
    /// Puts bodies in the place of composites that nobody can run whole: no kernel has their name, and no delegate
    /// declares them. Begins from the model as it was given.
    pub(crate) fn resolve_composites(&mut self) -> Result<()> {
        let original = self.original.clone();
        match self.inline(&original, &|_| false)? {
            Some(Inlined { model, origins, .. }) => self.adopt(Arc::new(model), origins),
            None if Arc::ptr_eq(&self.model, &original) => Ok(()),
            None => {
                let origins = vec![Vec::new(); original.subgraphs.len()];
                self.adopt(original, origins)
            }
        }
    }

    /// Puts bodies in the place of composites that delegates were asked about and left. Returns whether there were any:
    /// then everything is prepared again.
    pub(crate) fn settle_composites(&mut self) -> Result<bool> {
        let prepared = self.slots.iter().flatten().filter(|s| s.prepared);
        let left: Vec<(usize, NodeId)> =
            prepared.flat_map(|s| unclaimed(s).map(|id| (s.index, id))).collect();
        if left.is_empty() {
            return Ok(false);
        }
        let model = self.model.clone();
        let inlined = self.inline(&model, &|place| place.is_some_and(|place| left.contains(&place)))?;
        let Some(Inlined { model, mut origins, moved }) = inlined else { return Ok(false) };
        for ((new, old), moved) in origins.iter_mut().zip(&self.inlined).zip(&moved) {
            let number = |id: &NodeId| moved.get(id.0).copied().flatten();
            new.extend(old.iter().map(|origin| Origin {
                nodes: origin.nodes.iter().filter_map(number).collect(),
                ..origin.clone()
            }));
        }
        self.adopt(Arc::new(model), origins)?;
        Ok(true)
    }

    /// Inlines the composites that nobody could run whole, and those that were `left`.
    fn inline(&self, model: &Model, left: &dyn Fn(Place) -> bool) -> Result<Option<Inlined>> {
        let kernel = |c: &Composite<'_>| self.resolver.find(&kernel_key(c), c.version).is_some();
        let declared = |c: &Composite<'_>| {
            let mut tables = self.delegation.delegates.iter().map(|a| a.delegate.max_versions());
            tables.any(|table| table.check_composite(c).is_ok())
        };
        let composite = |c: &Composite<'_>, place| left(place) || !(kernel(c) || declared(c));
        Inliner { composite: &composite, functions: false, state: false }.run(model)
    }

    /// Runs `model` from now on, of which only nodes, and tensors behind those that there were, are others.
    fn adopt(&mut self, model: Arc<Model>, origins: Vec<Vec<Origin>>) -> Result<()> {
        (self.model, self.inlined) = (model, origins);
        for slot in &mut self.slots {
            let Some(old) = slot.take() else { continue };
            let mut new = SubgraphRuntime::new(self.model.clone(), old.index, &*self.resolver)?;
            new.inherit(*old);
            *slot = Some(Box::new(new));
        }
        Ok(())
    }
}

/// Composites that a prepared subgraph would call, whose bodies could take their place.
pub(crate) fn unclaimed(subgraph: &SubgraphRuntime) -> impl Iterator<Item = NodeId> {
    let (model, index) = (&subgraph.model, subgraph.index);
    subgraph
        .report
        .nodes
        .iter()
        .filter(move |n| {
            n.runner == Runner::Cpu
                && !subgraph.has_named_kernel(n.node)
                && can_inline(model, index, model.subgraphs[index].node(n.node))
        })
        .map(|n| n.node)
}

/// Who runs each composite of a subgraph whose nodes have their runners.
pub(crate) fn report(subgraph: &mut SubgraphRuntime, inlined: &[Vec<Origin>]) {
    let (model, index) = (&subgraph.model, subgraph.index);
    let origins = inlined.get(index).into_iter().flatten();
    let mut composites: Vec<CompositeReport> = origins
        .map(|origin| CompositeReport {
            name: origin.name.clone(),
            version: origin.version,
            runner: CompositeRunner::Inlined,
            nodes: origin.nodes.clone(),
        })
        .collect();
    for node in &subgraph.report.nodes {
        let Some(composite) = Composite::with_body(model, model.subgraphs[index].node(node.node)) else {
            continue;
        };
        let runner = match node.runner {
            Runner::Delegate { delegate, .. } => CompositeRunner::Delegate(delegate),
            _ if subgraph.has_named_kernel(node.node) => CompositeRunner::Kernel,
            _ => CompositeRunner::Called,
        };
        let (name, version) = (composite.name.to_owned(), composite.version);
        composites.push(CompositeReport { name, version, runner, nodes: vec![node.node] });
    }
    composites.sort_by_key(|c| c.nodes.first().copied());
    subgraph.report.composites = composites;
}
