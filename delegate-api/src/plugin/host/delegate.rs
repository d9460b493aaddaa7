//! A plugin's delegate as a [`Delegate`].

use std::cell::RefCell;
use std::ffi::CStr;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use delegraph_core::{BuiltinOp, Composite, Error, NodeId, Result, TensorType};

use super::super::abi::*;
use super::super::raw::{MessageRoom, slice, text_of};
use super::frames::{Prepares, Scope, enter};
use super::graph::HostGraph;
use super::instance::Instance;
use super::kernel::{KernelHandle, PluginKernel};
use crate::{
    Capabilities, Delegate, DelegateContext, DelegateKernel, DelegateParams, GraphView, NodeView, Rejection,
    VersionTable,
};

/// A delegate of a plugin, created by [`PluginLibrary::delegate`](super::PluginLibrary::delegate).
pub struct PluginDelegate {
    instance: Arc<Instance>,
    name: String,
    versions: VersionTable,
    capabilities: Capabilities,
}

impl fmt::Debug for PluginDelegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PluginDelegate({})", self.name)
    }
}

impl PluginDelegate {
    /// Creates the delegate, with the name, versions and capabilities that the plugin declares.
    pub(super) fn new(instance: Instance) -> Result<Self> {
        let wrong = |text: String| Error::State(format!("the plugin is wrong: {text}"));
        let functions = &instance.library.functions;
        // SAFETY: `create` made the delegate.
        let name = unsafe { (functions.name)(instance.delegate) };
        if name.is_null() {
            return Err(wrong("it has no name".into()));
        }
        // SAFETY: a name ends with a zero and lives as long as the delegate.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        if name.is_empty() {
            return Err(wrong("its name is empty".into()));
        }
        let mut count = 0;
        // SAFETY: `create` made the delegate.
        let versions = unsafe { (functions.versions)(instance.delegate, &raw mut count) };
        const MAX_COUNT: usize = 1 << 16;
        if count > MAX_COUNT {
            return Err(wrong(format!("it declares {count} op versions, more than {MAX_COUNT}")));
        }
        // SAFETY: the plugin guarantees `count` entries as long as the delegate exists.
        let list =
            unsafe { slice(versions, count) }.ok_or_else(|| wrong("its op versions are null".into()))?;
        let mut versions = VersionTable::default();
        for entry in list {
            if entry.custom_name.is_null() {
                if entry.op == DELEGRAPH_CUSTOM_OP {
                    return Err(wrong("one of its op versions is that of a custom op without a name".into()));
                }
                versions = versions.with_op(BuiltinOp(entry.op), entry.max_version);
            } else {
                // SAFETY: a custom op's name ends with a zero.
                let custom = unsafe { CStr::from_ptr(entry.custom_name) };
                let custom = custom.to_str().map_err(|e| wrong(format!("the name of a custom op: {e}")))?;
                versions = match BuiltinOp(entry.op) {
                    BuiltinOp::STABLEHLO_COMPOSITE => versions.with_composite(custom, entry.max_version),
                    _ => versions.with_custom(custom, entry.max_version),
                };
            }
        }
        // SAFETY: `create` made the delegate.
        let can = functions.capabilities.map_or(0, |capabilities| unsafe { capabilities(instance.delegate) });
        let capabilities = Capabilities {
            dynamic_shapes: can & DELEGRAPH_CAN_DYNAMIC_SHAPES != 0,
            propagated_shapes: can & DELEGRAPH_CAN_PROPAGATED_SHAPES != 0,
        };
        Ok(PluginDelegate { instance: Arc::new(instance), name, versions, capabilities })
    }
}

impl Delegate for PluginDelegate {
    fn name(&self) -> &str {
        &self.name
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let session = Rc::new(Session { instance: self.instance.clone(), graph: HostGraph::new(cx.graph()) });
        let claims = {
            let calls = PrepareCalls { cx: RefCell::new(cx), claims: RefCell::default() };
            let (instance, mut room) = (&session.instance, MessageRoom::new());
            let functions = &instance.library.functions;
            enter(Scope::Prepare(&session.graph, &calls), &mut room, |context, error| {
                // SAFETY: `create` made the delegate, and `&mut self` is exclusive.
                unsafe { (functions.prepare)(instance.delegate, context, error) }
            })?;
            calls.claims.into_inner()
        };
        for (nodes, claim) in claims {
            let session = session.clone();
            cx.claim(&nodes, move |params, _| session.create_kernel(claim, params));
        }
        Ok(())
    }
}

/// The state from `prepare` until all kernels of the claims are created.
struct Session<'a> {
    graph: HostGraph<'a>,
    instance: Arc<Instance>,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(end_prepare) = self.instance.library.functions.end_prepare {
            // SAFETY: `create` made the delegate; the borrow of `prepare` lasts until here.
            unsafe { end_prepare(self.instance.delegate) };
        }
    }
}

impl Session<'_> {
    fn create_kernel(&self, claim: u64, params: &DelegateParams) -> Result<Box<dyn DelegateKernel>> {
        let partition = PartitionIds::new(params);
        let partition = partition.describe();
        let (instance, mut room) = (&self.instance, MessageRoom::new());
        let functions = &instance.library.functions;
        let mut kernel = std::ptr::null_mut();
        let out = &raw mut kernel;
        let made = enter(Scope::CreateKernel(&self.graph), &mut room, |context, error| {
            // SAFETY: `create` made the delegate, whose borrow by `prepare` lasts; the other pointers are valid during
            // the call.
            unsafe { (functions.create_kernel)(instance.delegate, context, claim, &partition, out, error) }
        });
        // Also after a failed call, so that the created object is destroyed.
        let handle = KernelHandle::new(instance.clone(), kernel);
        made?;
        let handle = handle.ok_or_else(|| {
            Error::State("the plugin is wrong: `create_kernel` succeeded, but returned no kernel".into())
        })?;
        Ok(Box::new(PluginKernel::new(handle, params, &self.graph.view)))
    }
}

/// A partition's ids as integers.
struct PartitionIds {
    nodes: Vec<usize>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

impl PartitionIds {
    fn new(params: &DelegateParams) -> Self {
        PartitionIds {
            nodes: params.nodes.iter().map(|id| id.0).collect(),
            inputs: params.inputs.iter().map(|id| id.0).collect(),
            outputs: params.outputs.iter().map(|id| id.0).collect(),
        }
    }

    fn describe(&self) -> DelegraphPartition {
        DelegraphPartition {
            size: size_of::<DelegraphPartition>(),
            nodes: self.nodes.as_ptr(),
            node_count: self.nodes.len(),
            inputs: self.inputs.as_ptr(),
            input_count: self.inputs.len(),
            outputs: self.outputs.as_ptr(),
            output_count: self.outputs.len(),
        }
    }
}

/// A plugin's calls in `prepare`. Indices of nodes are in range: `table` checks them.
struct PrepareCalls<'c, 'a> {
    cx: RefCell<&'c mut DelegateContext<'a>>,
    claims: RefCell<Vec<(Vec<NodeId>, u64)>>,
}

impl Prepares for PrepareCalls<'_, '_> {
    fn may_claim(&self, node: usize) -> bool {
        let cx = self.cx.borrow();
        let node = cx.graph().node(NodeId(node));
        cx.may_claim(&node).is_ok() && reachable(&cx.graph(), node.id()).is_ok()
    }

    fn preview(&self, nodes: &[usize], each: &mut dyn FnMut(&DelegraphPartition)) {
        let ids: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
        // Not borrowed while the plugin is called, since it may call back.
        let partitions = self.cx.borrow().preview_partitions(&ids);
        partitions.iter().for_each(|params| each(&PartitionIds::new(params).describe()));
    }

    fn reject(&self, node: usize, reason: &DelegraphRejection) {
        let mut cx = self.cx.borrow_mut();
        let view = cx.graph().node(NodeId(node));
        let reason = rejection(reason, &view);
        cx.reject(view.id(), reason);
    }

    fn claim(&self, nodes: &[usize], claim: u64) {
        let mut cx = self.cx.borrow_mut();
        let graph = cx.graph();
        let mut accepted = Vec::with_capacity(nodes.len());
        for id in nodes.iter().copied().map(NodeId) {
            match reachable(&graph, id) {
                Ok(()) => accepted.push(id),
                Err(reason) => cx.reject(id, reason),
            }
        }
        let mut claims = self.claims.borrow_mut();
        match claims.iter_mut().find(|(_, number)| *number == claim) {
            Some((nodes, _)) => nodes.extend(accepted),
            None => claims.push((accepted, claim)),
        }
    }
}

/// Checks that the node has no operands of type RESOURCE or VARIANT, which belong to the interpreter and are not
/// accessible to plugins.
fn reachable(graph: &GraphView<'_>, node: NodeId) -> Result<(), Rejection> {
    let view = graph.node(node);
    let shared = |ty| matches!(ty, TensorType::Resource | TensorType::Variant);
    match view.inputs().chain(view.outputs()).find(|t| shared(t.ty())) {
        Some(t) => Err(Rejection::Other(format!(
            "tensor \"{}\" is {}, which plugins cannot reach",
            t.name(),
            t.ty()
        ))),
        None => Ok(()),
    }
}

/// Returns the typed reason.
fn rejection(reason: &DelegraphRejection, node: &NodeView<'_>) -> Rejection {
    // SAFETY: the plugin guarantees the length of the text.
    let text = unsafe { text_of(reason.text) };
    let number = |value: i64| usize::try_from(value).unwrap_or(0);
    let (op, version, composite) = (node.op(), node.version(), node.composite());
    match reason.kind {
        DELEGRAPH_REJECT_VERSION => {
            let max = u32::try_from(reason.limit).unwrap_or(0);
            match (composite, u32::try_from(reason.value)) {
                (Some(Composite { name, version, .. }), Ok(needed)) if needed > version && version <= max => {
                    Rejection::UnderstatedCompositeVersion { name: name.into(), version, needed, max }
                }
                (Some(Composite { name, version, .. }), _) => {
                    Rejection::CompositeVersionTooHigh { name: name.into(), version, max }
                }
                (None, Ok(needed)) if needed > version && version <= max => {
                    Rejection::UnderstatedVersion { op: op.clone(), version, needed, max }
                }
                _ => Rejection::VersionTooHigh { op: op.clone(), version, max },
            }
        }
        DELEGRAPH_REJECT_OP => match composite {
            Some(composite) => Rejection::UnsupportedComposite { name: composite.name.into() },
            None => Rejection::UnsupportedOp { op: op.clone() },
        },
        DELEGRAPH_REJECT_TYPE => match i8::try_from(reason.value).ok().and_then(TensorType::from_code) {
            Some(ty) => Rejection::UnsupportedType { operand: text, ty },
            None => Rejection::Other(format!("{text} has the unknown type {}", reason.value)),
        },
        DELEGRAPH_REJECT_DYNAMIC_SHAPE => Rejection::DynamicShape { tensor: text },
        DELEGRAPH_REJECT_PARTITION_TOO_SMALL => {
            Rejection::PartitionTooSmall { nodes: number(reason.value), min: number(reason.limit) }
        }
        DELEGRAPH_REJECT_TOO_MANY_PARTITIONS => Rejection::TooManyPartitions { max: number(reason.limit) },
        DELEGRAPH_REJECT_OVERRIDDEN => Rejection::Overridden { op: op.clone() },
        // The others have no meaning without a text.
        _ if text.is_empty() => Rejection::NotClaimed,
        DELEGRAPH_REJECT_PARAM => Rejection::UnsupportedParam(text),
        DELEGRAPH_REJECT_DEVICE_LIMIT => Rejection::DeviceLimit(text),
        DELEGRAPH_REJECT_COST => Rejection::CostModel(text),
        DELEGRAPH_REJECT_EXCLUDED => Rejection::Excluded(text),
        _ => Rejection::Other(text),
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::kernel::RuntimeTensor;
    use delegraph_core::{ModelBuilder, Params, SubgraphBuilder};

    use super::*;
    use crate::NodeState;

    #[test]
    fn versions_of_composites_keep_their_meaning() {
        let mut body = SubgraphBuilder::new("body");
        let x = body.input("x", TensorType::Float32, [4]);
        let y = body.node(BuiltinOp::NEG, Params::None).inputs([x]).output("y");
        body.outputs([y]);
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [4]);
        let y = graph.composite("acme.f", body).version(2).inputs([x]).output("y");
        graph.outputs([y]);
        let model = ModelBuilder::new().subgraph(graph).build().unwrap();
        let tensors: Vec<RuntimeTensor> =
            model.subgraphs()[0].tensors().iter().map(RuntimeTensor::new).collect();
        let (known, states) = (vec![true; tensors.len()], [NodeState::default()]);
        let graph = GraphView::new(&model, 0, &tensors, &known, &states);
        let check = |value: i64, limit: i64, expected: Rejection, end: &str| {
            let (size, text) = (size_of::<DelegraphRejection>(), super::super::super::raw::text(""));
            let reason = DelegraphRejection { size, kind: DELEGRAPH_REJECT_VERSION, text, value, limit };
            let found = rejection(&reason, &graph.node(NodeId(0)));
            assert_eq!(found, expected);
            assert_eq!(found.to_string(), format!("composite \"acme.f\" version 2 {end}"));
        };
        let (name, version) = (|| "acme.f".to_owned(), 2);
        let too_high = |max| Rejection::CompositeVersionTooHigh { name: name(), version, max };
        check(2, 1, too_high(1), "is above the highest supported, 1");
        check(0, 1, too_high(1), "is above the highest supported, 1");
        let understated = Rejection::UnderstatedCompositeVersion { name: name(), version, needed: 5, max: 3 };
        check(5, 3, understated, "uses features of version 5; the highest supported is 3");
    }
}
