//! A delegate of a library as a [`Delegate`].

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use delegraph_core::error::{Error, Result};
use delegraph_core::ops::DEFS;
use delegraph_core::{BuiltinOp, NodeId};
use delegraph_delegate_api::{
    Capabilities, Delegate, DelegateContext, DelegateKernel, DelegateParams, GraphView, Rejection,
    VersionTable,
};

use super::calls::{Phase, Prepares, enter};
use super::context::context;
use super::graph::Graph;
use super::instance::Instance;
use super::kernel::{ExternalKernel, Handle};
use super::nodes::read_by;
use crate::abi;
use crate::contain::lock;

/// A delegate for LiteRT, created by [`ExternalLibrary::delegate`](super::ExternalLibrary::delegate).
pub struct ExternalDelegate {
    instance: Arc<Instance>,
    name: String,
    versions: VersionTable,
}

impl fmt::Debug for ExternalDelegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExternalDelegate({})", self.name)
    }
}

impl ExternalDelegate {
    pub(super) fn new(instance: Instance, name: String) -> Self {
        // A delegate checks versions itself, and a composite is inlined before it is offered.
        let ops = DEFS.iter().map(|def| def.op).filter(|&op| op != BuiltinOp::STABLEHLO_COMPOSITE);
        let versions = ops.map(|op| (op, u32::MAX)).collect::<VersionTable>().with_any_custom(u32::MAX);
        ExternalDelegate { instance: Arc::new(instance), name, versions }
    }
}

impl Delegate for ExternalDelegate {
    fn name(&self) -> &str {
        &self.name
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn capabilities(&self) -> Capabilities {
        let dynamic = self.instance.allows_dynamic();
        Capabilities::default().with_dynamic_shapes(dynamic).with_propagated_shapes(dynamic)
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let view = cx.graph();
        let offered = view.nodes().filter(|node| !node.state().folded && cx.may_claim(node).is_ok());
        let offered: Vec<NodeId> = offered.map(|node| node.id()).collect();
        let limit = cx.memory_limit().and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let (graph, withheld) = Graph::new(&view, &offered, limit, context()).map_err(Error::State)?;
        let mut left: HashSet<NodeId> = offered.iter().copied().collect();
        for (node, reason) in withheld {
            left.remove(&node);
            cx.reject(node, Rejection::Other(reason));
        }
        if graph.is_empty() {
            return Ok(());
        }
        let instance = Arc::clone(&self.instance);
        let calls =
            Calls { cx: RefCell::new(cx), graph: &graph, instance: &instance, claims: RefCell::default() };
        let Some(prepare) = instance.read().prepare else {
            return Err(Error::State("the delegate has no `Prepare` function".into()));
        };
        let outcome = enter(&graph, Phase::Prepare(&calls), |context| {
            // SAFETY: the delegate's function, with a context and the delegate.
            unsafe { prepare(context, instance.pointer()) }
        });
        let claims = calls.claims.into_inner();
        outcome.check("Prepare of the delegate").map_err(Error::State)?;
        let claimed: Vec<NodeId> = claims.iter().flat_map(|claim| claim.nodes.iter().copied()).collect();
        graph.with_tensors(|tensors| tensors.keep_constants(&read_by(&view, &claimed)));
        for node in &claimed {
            left.remove(node);
        }
        for node in left {
            let reason = "the delegate did not claim it; its interface has no reasons";
            cx.reject(node, Rejection::Other(reason.into()));
        }
        for claim in claims {
            let Claimed { nodes, registration, made } = claim;
            let made = Mutex::new(made);
            let (graph, instance) = (Arc::clone(&graph), Arc::clone(&instance));
            cx.claim(&nodes, move |params, view| {
                kernel(&graph, &instance, registration, &made, params, view)
            });
        }
        Ok(())
    }
}

/// Returns the kernel of a partition: the one that the delegate created while it prepared or, if other claims or
/// limits changed the partitions since, a new one.
fn kernel(
    graph: &Arc<Graph>,
    instance: &Arc<Instance>,
    registration: abi::Registration,
    made: &Mutex<Vec<Handle>>,
    params: &DelegateParams,
    view: &GraphView<'_>,
) -> Result<Box<dyn DelegateKernel>> {
    let found = {
        let mut made = lock(made);
        let place = made.iter().position(|handle| handle.partition == *params);
        place.map(|place| made.swap_remove(place))
    };
    let handle = match found {
        Some(handle) => handle,
        None => Handle::new(graph, instance, registration, view, params.clone()).map_err(Error::State)?,
    };
    Ok(Box::new(ExternalKernel::new(handle)))
}

/// Nodes that the delegate replaced, with one registration.
struct Claimed {
    nodes: Vec<NodeId>,
    registration: abi::Registration,
    made: Vec<Handle>,
}

/// A delegate's calls while it prepares.
struct Calls<'c, 'a> {
    cx: RefCell<&'c mut DelegateContext<'a>>,
    graph: &'c Arc<Graph>,
    instance: &'c Arc<Instance>,
    claims: RefCell<Vec<Claimed>>,
}

impl Prepares for Calls<'_, '_> {
    fn preview(&self, nodes: &[NodeId]) -> Result<(*mut abi::DelegateParams, std::ffi::c_int), String> {
        let cx = self.cx.borrow();
        let partitions = cx.preview_partitions(nodes);
        self.graph.preview(&cx.graph(), &partitions, self.instance.pointer())
    }

    fn replace(
        &self,
        registration: abi::Registration,
        nodes: &[NodeId],
        delegate: *mut abi::Delegate,
    ) -> Result<(), String> {
        if registration.invoke.is_none() {
            return Err("its registration has no `invoke` function".into());
        }
        if delegate != self.instance.pointer() {
            return Err(format!(
                "nodes were replaced for the delegate {delegate:p} instead of {:p}",
                self.instance.pointer()
            ));
        }
        let taken = |node: &&NodeId| self.claims.borrow().iter().any(|claim| claim.nodes.contains(node));
        if let Some(node) = nodes.iter().find(taken) {
            return Err(format!("node {} is replaced twice", node.0));
        }
        let (view, partitions) = {
            let cx = self.cx.borrow();
            (cx.graph(), cx.preview_partitions(nodes))
        };
        let made = partitions
            .into_iter()
            .map(|params| Handle::new(self.graph, self.instance, registration, &view, params))
            .collect::<Result<Vec<_>, String>>()?;
        self.claims.borrow_mut().push(Claimed { nodes: nodes.to_vec(), registration, made });
        Ok(())
    }
}
