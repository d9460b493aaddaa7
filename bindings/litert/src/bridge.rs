//! The connection between a delegate and the runtime's entry points.

use std::ffi::{CString, c_char, c_int};
use std::sync::{Arc, Mutex};

use delegraph_core::NodeId;
use delegraph_core::error::counted;
use delegraph_delegate_api::plugin::PluginOptions;
use delegraph_delegate_api::{Claim, Delegate, DelegateContext, NodeView, Rejection};

use crate::abi::{self, Status};
use crate::contain::{contain, lock};
use crate::graph::Graph;
use crate::kernel::{Kernel, State, registration};
use crate::made::{Made, read_by_others};
use crate::options::Settings;
use crate::raw::{self, Result, checked};
use crate::runtime::{Partition, Runtime};

/// The result of preparing a graph.
struct Outcome {
    host: String,
    claimed: usize,
    nodes: usize,
    partitions: usize,
    /// The nodes that the runtime keeps, with the reasons.
    left: Vec<String>,
}

/// The reason why a graph was not delegated, and whether part of it was already replaced.
struct Failure {
    text: String,
    replaced: bool,
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure { text, replaced: false }
    }
}

/// `TfLiteDelegate::Prepare`: inspects a subgraph and claims the nodes that the delegate runs.
unsafe extern "C" fn prepare(context: *mut abi::Context, delegate: *mut abi::Delegate) -> Status {
    // SAFETY: the runtime's own context, and the delegate that was passed to it.
    let (runtime, state) = match unsafe { (Runtime::new(context), State::of(delegate)) } {
        (Ok(runtime), Ok(state)) => (runtime, state),
        _ => return abi::DELEGATE_ERROR,
    };
    let mut replaced = false;
    let preparing = lock(&state.preparing);
    let result = contain(|| {
        apply(&runtime, &state, delegate).map_err(|failure| {
            replaced = failure.replaced;
            failure.text
        })
    });
    lock(&state.ready).clear();
    drop(preparing);
    let name = state.name.to_string_lossy();
    match result {
        Ok(outcome) => {
            if state.settings.verbose {
                let Outcome { host, claimed, nodes, partitions, left } = &outcome;
                let (nodes, partitions) = (counted(nodes, "node"), counted(partitions, "partition"));
                eprintln!("delegraph: {host}: {name} runs {claimed} of {nodes} in {partitions}");
                left.iter().for_each(|line| eprintln!("delegraph: {line}"));
            }
            abi::OK
        }
        Err(text) => {
            let text = format!("delegate {name}: {text}");
            runtime.report(&text);
            if state.settings.require || replaced {
                // The runtime restores its own plan, and reports to the application.
                return abi::DELEGATE_ERROR;
            }
            // The plan is unchanged. Listeners for errors may ignore messages of calls with a good status.
            eprintln!("delegraph: {text}; the runtime continues without it");
            abi::OK
        }
    }
}

fn apply(runtime: &Runtime, state: &Arc<State>, handle: *mut abi::Delegate) -> Result<Outcome, Failure> {
    let host = state.check_host(runtime)?;
    let mut graph = Graph::read(runtime, host.all_fields)?;
    let (claims, left) = ask(runtime, state, &graph)?;
    graph.forget();
    let (plan, nodes) = (graph.plan().to_vec(), graph.plan().len());
    let graph = Arc::new(Mutex::new(graph));
    let claimed = claims.iter().map(|claim| claim.nodes.len()).sum();
    let mut outcome = Outcome { host: host.name, claimed, nodes, partitions: 0, left };
    for (i, claim) in claims.into_iter().enumerate() {
        let MadeClaim { nodes, partitions } = claim;
        let indices: Vec<c_int> = nodes.iter().filter_map(|n| plan.get(n.0).copied()).collect();
        // Earlier claims may have changed the partitions of the remaining nodes.
        let as_announced = i == 0 || {
            let now = runtime.preview(&indices).map_err(|text| Failure { text, replaced: true })?;
            now.iter().all(|p| partitions.iter().any(|(announced, _)| announced == p))
        };
        if !as_announced {
            outcome.claimed -= nodes.len();
            let (verb, whose) = if nodes.len() == 1 { ("is", "its") } else { ("are", "their") };
            let count = counted(nodes.len(), "node");
            let left =
                format!("{count} of another claim {verb} left: earlier claims changed {whose} partitions");
            outcome.left.push(left);
            continue;
        }
        outcome.partitions += partitions.len();
        let claimed: Arc<[NodeId]> = nodes.into();
        let kernel = |(partition, made)| {
            Kernel::new(partition, Arc::clone(state), Arc::clone(&graph), Arc::clone(&claimed), made)
        };
        lock(&state.ready).extend(partitions.into_iter().map(kernel));
        let replaced = runtime.replace(&indices, registration(state), handle);
        replaced.map_err(|text| Failure { text, replaced: true })?;
    }
    Ok(outcome)
}

/// Lets the delegate claim nodes, and creates all kernels; no node is replaced before all kernels are ready. Also
/// returns the rejected nodes with their reasons.
fn ask(runtime: &Runtime, state: &State, graph: &Graph) -> Result<(Vec<MadeClaim>, Vec<String>)> {
    let mut delegate = lock(&state.delegate);
    let mut cx = DelegateContext::new(graph.view(), delegate.max_versions().clone());
    contain(|| delegate.prepare(&mut cx).map_err(|e| e.chain()))?;
    let (claims, reasons) = cx.finish();
    let mut left = left_nodes(graph, &reasons);
    let claimed: usize = claims.iter().map(|claim| claim.nodes.len()).sum();
    let all = graph.plan().len();
    if state.settings.require && claimed < all {
        let first = left.iter().take(8).map(|line| format!("\n{line}")).collect::<String>();
        let (left, verb) = (all - claimed, if all == 1 { "is" } else { "are" });
        let all = counted(all, "node");
        return Err(format!("the policy is `require`, but {left} of {all} {verb} left:{first}"));
    }
    let mut made = Vec::new();
    for mut claim in claims {
        let shared = shared_weights(graph, &claim.nodes);
        claim.nodes.retain(|node| !shared.contains(node));
        left.extend(
            shared
                .iter()
                .map(|&node| describe(graph, node, "a node that is not delegated reads its weights")),
        );
        made.push(make(runtime, graph, claim)?);
    }
    Ok((made, left))
}

/// Returns the claimed nodes that expand constants of the file also for unclaimed nodes. They stay with the runtime:
/// for the claim, their outputs are constants anyway, and other delegates look for the origin of weights.
fn shared_weights(graph: &Graph, claimed: &[NodeId]) -> Vec<NodeId> {
    let view = graph.view();
    let mut expanding: Vec<NodeId> = Vec::new();
    for node in view.nodes().filter(|node| claimed.contains(&node.id()) && node.state().folded) {
        let expanded = |id| expanding.iter().any(|&n| view.node(n).outputs().any(|t| t.id() == id));
        if node.inputs().all(|t| graph.is_given(t.id()) || expanded(t.id())) {
            expanding.push(node.id());
        }
    }
    let mut shared: Vec<NodeId> = Vec::new();
    for &node in expanding.iter().rev() {
        let readers = view.node(node).outputs().map(|t| t.id());
        let claimed: Vec<NodeId> = claimed.iter().copied().filter(|n| !shared.contains(n)).collect();
        if readers.into_iter().any(|id| read_by_others(&view, id, &claimed)) {
            shared.push(node);
        }
    }
    shared
}

fn describe(graph: &Graph, node: NodeId, reason: &str) -> String {
    let index = graph.plan().get(node.0).copied().unwrap_or_default();
    let node = graph.view().node(node);
    format!("node {index} ({} v{}): {reason}", node.op(), node.version())
}

/// The nodes that the runtime keeps, with the reasons.
fn left_nodes(graph: &Graph, reasons: &[Option<Rejection>]) -> Vec<String> {
    let line = |(node, reason): (NodeView<'_>, &Option<Rejection>)| {
        let withheld = graph.withheld(node.id()).map(str::to_owned);
        let reason = withheld.or_else(|| reason.as_ref().map(ToString::to_string))?;
        Some(describe(graph, node.id(), &reason))
    };
    graph.view().nodes().zip(reasons).filter_map(line).collect()
}

/// The kernels of a claim, before the runtime requests them.
struct MadeClaim {
    nodes: Vec<NodeId>,
    partitions: Vec<(Partition, Made)>,
}

/// Creates a kernel for each partition that the runtime would form from the claim.
fn make(runtime: &Runtime, graph: &Graph, mut claim: Claim<'_>) -> Result<MadeClaim> {
    let indices: Vec<c_int> = claim.nodes.iter().filter_map(|n| graph.plan().get(n.0).copied()).collect();
    let mut partitions = Vec::new();
    for partition in runtime.preview(&indices)? {
        let made = Made::new(graph, &graph.view(), &partition, &claim.nodes, &mut claim.factory)?;
        partitions.push((partition, made));
    }
    Ok(MadeClaim { nodes: claim.nodes, partitions })
}

/// The body of `tflite_plugin_create_delegate`; [`export_litert_delegate!`](crate::export_litert_delegate) calls it.
///
/// Returns the delegate, which [`destroy`] frees. On failure, passes the reason to `report` and returns null.
///
/// # Safety
/// `keys` and `values` are null or lists of `count` texts that end with a zero byte.
pub unsafe fn create<D, E>(
    keys: *const *const c_char,
    values: *const *const c_char,
    count: usize,
    report: abi::ReportError,
    make: impl FnOnce(&PluginOptions) -> Result<D, E>,
) -> *mut abi::Delegate
where
    D: Delegate + 'static,
    E: std::fmt::Display,
{
    let made = contain(|| {
        // SAFETY: guaranteed by the caller.
        let options = unsafe { read_options(keys, values, count) }?;
        let settings = Settings::read(&options).map_err(|e| e.to_string())?;
        let delegate = make(&options).map_err(|e| e.to_string())?;
        options.check_all_used().map_err(|e| e.to_string())?;
        let name = CString::new(delegate.name().replace('\0', " ")).map_err(|e| e.to_string())?;
        Ok::<_, String>(State {
            delegate: Mutex::new(Box::new(delegate)),
            name,
            settings,
            hosts: Mutex::default(),
            preparing: Mutex::default(),
            ready: Mutex::default(),
        })
    });
    match made {
        Ok(state) => Box::into_raw(Box::new(abi::Delegate {
            data: Arc::into_raw(Arc::new(state)).cast_mut().cast(),
            prepare: Some(prepare),
            copy_from_buffer_handle: None,
            copy_to_buffer_handle: None,
            free_buffer_handle: None,
            flags: abi::ALLOW_DYNAMIC_TENSORS,
            opaque_delegate_builder: std::ptr::null(),
        })),
        Err(text) => {
            let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
            if let Some(report) = report {
                // SAFETY: a text that ends with a zero byte.
                unsafe { report(text.as_ptr()) };
            }
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// As for [`create`].
unsafe fn read_options(
    keys: *const *const c_char,
    values: *const *const c_char,
    count: usize,
) -> Result<PluginOptions> {
    let count = c_int::try_from(count).map_err(|_| format!("{count} options"))?;
    let count = raw::length(count, "the list of options")?;
    let mut options = Vec::with_capacity(count);
    for i in 0..count {
        let (key, value) =
            (checked(keys.wrapping_add(i), "an option")?, checked(values.wrapping_add(i), "an option")?);
        // SAFETY: not null; `keys` and `values` have `count` elements (guaranteed by the caller).
        let (key, value) =
            unsafe { (checked(*key, "an option's name")?, checked(*value, "an option's value")?) };
        // SAFETY: as above.
        options.push(unsafe { (raw::text(key), raw::text(value)) });
    }
    PluginOptions::new(options).map_err(|e| e.to_string())
}

/// The body of `tflite_plugin_destroy_delegate`; [`export_litert_delegate!`](crate::export_litert_delegate) calls it.
///
/// # Safety
/// `delegate` is null, or was made by [`create`], is not destroyed yet, and no runtime uses it.
pub unsafe fn destroy(delegate: *mut abi::Delegate) {
    if delegate.is_null() {
        return;
    }
    // SAFETY: guaranteed by the caller; `create` made both. Kernels that still exist share the state.
    let state = unsafe {
        let delegate = Box::from_raw(delegate);
        Arc::from_raw(delegate.data.cast::<State>().cast_const())
    };
    let _ = contain(|| {
        drop(state);
        Ok::<_, String>(())
    });
}
