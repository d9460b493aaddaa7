//! Selects the runner of each marked composite: a delegate that claims it, otherwise a kernel of its name, otherwise
//! its body. Bodies are inlined, so that delegates claim their nodes individually, and partitions can include nodes of
//! several bodies.

use std::collections::HashMap;
use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::{Composite, Model, NodeId};
use delegraph_delegate_api::Rejection;

use super::slots::Slot;
use super::{Engine, Resolution};
use crate::runtime::composites::{Bounds, Inlined, Inliner, Origin, Place, kernel_key};
use crate::runtime::subgraph::{Parts, unclaimed};

/// Composites that delegates did not claim, by subgraph and node, with the reason of each delegate.
type Left = HashMap<(usize, NodeId), Vec<(usize, Rejection)>>;

impl Engine {
    /// Replaces composites by their bodies if no kernel has their name and no delegate declares them. Begins from the
    /// original model.
    ///
    /// # Errors
    /// If the resulting model is invalid, or a kernel cannot be created.
    pub(crate) fn resolve_composites(&mut self) -> Result<()> {
        let original = self.original.clone();
        match self.inline(&original, &[], &|_| false)? {
            Some(Inlined { model, mut origins }) => {
                self.set_reasons(&mut origins, &HashMap::new());
                self.adopt(Arc::new(model), origins)?;
            }
            None if Arc::ptr_eq(&self.model, &original) => {}
            None => {
                let origins = vec![Vec::new(); original.subgraphs().len()];
                self.adopt(original, origins)?;
            }
        }
        self.resolution = Resolution::Decided;
        Ok(())
    }

    /// Replaces composites that delegates were offered and did not claim by their bodies. Returns whether there were
    /// any; then the model must be prepared again.
    ///
    /// # Errors
    /// As [`Engine::resolve_composites`].
    pub(super) fn inline_unclaimed(&mut self) -> Result<bool> {
        let planned = self.slots.iter().filter_map(|slot| match slot {
            Slot::Planned(planned) => Some(planned),
            Slot::Unprepared(_) => None,
        });
        // Per composite, the reasons of the delegates.
        let left: Left = planned
            .flat_map(|s| {
                let reasons = |id: NodeId| s.report().nodes.get(id.0).map(|n| n.rejections.clone());
                let of = |id| ((s.parts().index, id), reasons(id).unwrap_or_default());
                unclaimed(s.parts(), s.report()).map(of).collect::<Vec<_>>()
            })
            .collect();
        if left.is_empty() {
            return Ok(false);
        }
        let model = self.model.clone();
        let inlined = self
            .inline(&model, &self.inlined, &|place| place.is_some_and(|place| left.contains_key(&place)))?;
        let Some(Inlined { model, mut origins }) = inlined else { return Ok(false) };
        self.set_reasons(&mut origins, &left);
        self.adopt(Arc::new(model), origins)?;
        Ok(true)
    }

    /// Sets the reasons why delegates did not claim the new composites in `origins`: those in `left`, or that they do
    /// not declare them.
    fn set_reasons(&self, origins: &mut [Vec<Origin>], left: &Left) {
        for origin in origins.iter_mut().flatten().filter(|origin| origin.rejections.is_empty()) {
            let given = origin.place.and_then(|place| left.get(&place)).cloned();
            origin.rejections =
                given.unwrap_or_else(|| self.delegates.undeclared(&origin.name, origin.version));
        }
    }

    /// Inlines the composites that no delegate or kernel can run as a whole, and those in `left`, after an earlier
    /// inlining of those in `inlined`.
    fn inline(
        &self,
        model: &Model,
        inlined: &[Vec<Origin>],
        left: &dyn Fn(Place) -> bool,
    ) -> Result<Option<Inlined>> {
        let whole = |c: &Composite<'_>| self.runs_whole(c);
        let composite = |c: &Composite<'_>, place| left(place) || !whole(c);
        let nodes = |model: &Model| model.subgraphs().iter().map(|g| g.nodes().len()).sum::<usize>();
        let earlier = nodes(model).saturating_sub(nodes(&self.original));
        let bounds = Bounds { nodes: self.limits.inlined_nodes, earlier, bytes: self.limits.memory };
        Inliner { composite: &composite, functions: false, state: false, earlier: inlined, bounds }.run(model)
    }

    /// Returns whether a kernel is registered under the composite's name, or a delegate declares it.
    pub(crate) fn runs_whole(&self, composite: &Composite<'_>) -> bool {
        self.resolver.find(&kernel_key(composite), composite.version).is_some()
            || self.delegates.declare(composite)
    }

    /// Runs `model` from now on. It differs from the previous model in nodes, and its first tensors are those of the
    /// previous model.
    fn adopt(&mut self, model: Arc<Model>, origins: Vec<Vec<Origin>>) -> Result<()> {
        (self.model, self.inlined) = (model, origins);
        let (model, resolver, budget) = (&self.model, &*self.resolver, &self.budget);
        self.slots.replace_all(|slot| {
            let old = slot.into_parts();
            let mut new = Parts::new(model.clone(), old.index, resolver, budget)?;
            new.inherit(*old);
            Ok(Slot::Unprepared(Box::new(new)))
        })
    }
}
