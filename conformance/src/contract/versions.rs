//! Versions: the declared maximum, and nodes above it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use delegraph_core::ops::definition;
use delegraph_core::{Op, OpResolver, Registration};
use delegraph_delegate_api::{Policy, Runner};
use delegraph_interpreter::{Interpreter, ReferenceOpResolver};

use super::{Found, Trial};

/// Offers the problem's model with its node one version above the delegate's declared maximum, which must not be
/// claimed.
pub(super) fn check(trial: &Trial<'_>) -> Found {
    let delegate = trial.make()?;
    let op = &trial.problem.op;
    let Some(max) = delegate.max_versions().max_version(op) else { return Ok(None) };
    if let Some(newest) = newest(op)
        && max > newest
    {
        return Ok(Some(format!(
            "it declares {op} up to version {max}; the newest known version is {newest}, and the meaning of later \
             ones is unknown"
        )));
    }
    let Some(above) = max.checked_add(1) else { return Ok(None) };
    let mut draft = trial.problem.model.to_draft();
    let mut nodes = Vec::new();
    for (s, subgraph) in draft.subgraphs.iter_mut().enumerate() {
        for (n, node) in subgraph.nodes_mut().iter_mut().enumerate().filter(|(_, node)| *node.op() == *op) {
            node.set_version(above);
            nodes.push((s, n));
        }
    }
    let Ok(model) = draft.verify() else { return Ok(None) };
    let builder = Interpreter::builder(Arc::new(model)).resolver(AnyVersion(ReferenceOpResolver::new()));
    let built = builder.delegate(delegate).policy(Policy::Report).prepare_later().build();
    // Versions determine what inference accepts; a model that it rejects cannot be offered.
    let Ok(mut interpreter) = built else { return Ok(None) };
    if super::prepare(&mut interpreter, trial.problem).is_err() {
        return Ok(None);
    }
    for (s, n) in nodes {
        let Some(node) = interpreter.subgraph_report(s).and_then(|r| r.nodes.get(n)) else { continue };
        // A composite that is not claimed is replaced by the nodes of its body.
        if node.op == *op && matches!(node.runner, Runner::Delegate { .. }) {
            return Ok(Some(format!("it claims {op} version {above}, its declared maximum is {max}")));
        }
    }
    Ok(None)
}

/// Returns the newest version in any release.
fn newest(op: &Op) -> Option<u32> {
    definition(op.builtin()?)?.history.iter().map(|(version, _)| *version).max()
}

/// The reference kernels, for any version.
struct AnyVersion(ReferenceOpResolver);

impl OpResolver for AnyVersion {
    fn find(&self, op: &Op, version: u32) -> Option<&Registration> {
        let newest = self.0.versions(op).iter().map(|range| *range.end()).max()?;
        self.0.find(op, version.min(newest))
    }

    fn versions(&self, op: &Op) -> Vec<RangeInclusive<u32>> {
        self.0.versions(op)
    }
}
