//! Composites of a subgraph after claiming.

use delegraph_core::{Composite, NodeId};
use delegraph_delegate_api::{CompositeReport, CompositeRunner, Report, Runner};

use super::parts::Parts;
use crate::runtime::composites::{Inlinable, Origin};
use crate::runtime::delegation::Delegates;

/// Returns the composites that the subgraph would call, and whose bodies could replace them.
pub(crate) fn unclaimed<'a>(parts: &'a Parts, report: &'a Report) -> impl Iterator<Item = NodeId> + 'a {
    let on_cpu = report.nodes.iter().filter(|n| n.runner == Runner::Cpu).map(|n| n.node);
    let mut inlinable = Inlinable::new(&parts.model, parts.subgraph());
    on_cpu.filter(move |id| !parts.has_named_kernel(*id) && inlinable.contains(parts.subgraph().node(*id)))
}

/// Returns the runner of each composite. `origins` are the composites that were replaced by their bodies.
pub(super) fn report(
    parts: &Parts,
    report: &Report,
    origins: &[Origin],
    delegates: &Delegates,
) -> Vec<CompositeReport> {
    let mut composites: Vec<CompositeReport> = origins
        .iter()
        .map(|origin| {
            let (name, runner) = (origin.name.clone(), CompositeRunner::Inlined);
            CompositeReport::new(name, origin.version, runner, origin.nodes.clone())
                .with_rejections(origin.rejections.clone())
        })
        .collect();
    for node in &report.nodes {
        let Some(composite) = Composite::of_builtin(&parts.model, parts.subgraph().node(node.node)) else {
            continue;
        };
        let runner = match node.runner {
            Runner::Delegate { delegate, .. } => CompositeRunner::Delegate(delegate),
            _ if parts.has_named_kernel(node.node) => CompositeRunner::Kernel,
            _ => CompositeRunner::Called,
        };
        let (name, version) = (composite.name.to_owned(), composite.version);
        let report = CompositeReport::new(name, version, runner, vec![node.node]);
        composites.push(report.with_rejections(node.rejections.clone()));
    }
    for composite in &mut composites {
        composite.declared_by = delegates.declaring(&composite.name);
    }
    composites.sort_by_key(|c| c.nodes.first().copied());
    composites
}
