//! A delegate and the kernels of its partitions, held by the runtime.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

use delegraph_core::{NodeId, Shape, TensorId};
use delegraph_delegate_api::{Delegate, DelegateContext};

use crate::abi::{self, Status};
use crate::contain::{contain, lock};
use crate::graph::Graph;
use crate::host::{self, Accepted};
use crate::made::Made;
use crate::options::Settings;
use crate::raw::{Result, checked};
use crate::runtime::{Partition, Runtime};

/// A delegate held by the runtime.
pub(crate) struct State {
    pub(crate) delegate: Mutex<Box<dyn Delegate>>,
    pub(crate) name: CString,
    pub(crate) settings: Settings,
    /// The calling runtimes: the address of a function, and its runtime.
    pub(crate) hosts: Mutex<Vec<(usize, Result<Accepted>)>>,
    /// Held while a graph is prepared: interpreters on several threads may share a delegate.
    pub(crate) preparing: Mutex<()>,
    /// Kernels that the runtime has not yet requested.
    pub(crate) ready: Mutex<Vec<Kernel>>,
}

impl State {
    /// Returns the state behind a delegate that `create` made.
    ///
    /// # Safety
    /// `delegate` is null, or was made by `create` and not destroyed since.
    pub(crate) unsafe fn of(delegate: *const abi::Delegate) -> Result<Arc<State>> {
        let delegate = checked(delegate, "the delegate")?;
        // SAFETY: not null; `create` made it (guaranteed by the caller).
        let state = checked(unsafe { (*delegate).data }.cast::<State>().cast_const(), "the delegate's data")?;
        // SAFETY: `create` stored it there with `Arc::into_raw`, and it lives as long as the delegate.
        Ok(unsafe {
            Arc::increment_strong_count(state);
            Arc::from_raw(state)
        })
    }

    /// Removes the kernel of this partition from `ready` and returns it.
    pub(crate) fn take(&self, partition: &Partition) -> Option<Box<Kernel>> {
        let mut ready = lock(&self.ready);
        let found = ready.iter().position(|kernel| kernel.partition == *partition)?;
        Some(Box::new(ready.swap_remove(found)))
    }

    pub(crate) fn check_host(&self, runtime: &Runtime) -> Result<Accepted> {
        let functions = runtime.functions()?;
        let address = functions.first().map_or(0, |f| f.addr());
        let mut hosts = lock(&self.hosts);
        if let Some((_, found)) = hosts.iter().find(|(at, _)| *at == address) {
            return found.clone();
        }
        let found = host::check(&functions, self.settings.allow_unknown_host);
        hosts.push((address, found.clone()));
        found
    }
}

/// A kernel held by the runtime.
pub(crate) struct Kernel {
    /// The runtime's description of the partition.
    pub(crate) partition: Partition,
    state: Arc<State>,
    graph: Arc<Mutex<Graph>>,
    /// All nodes of the claim that the partition is part of.
    claimed: Arc<[NodeId]>,
    made: Made,
}

impl Kernel {
    pub(crate) fn new(
        partition: Partition,
        state: Arc<State>,
        graph: Arc<Mutex<Graph>>,
        claimed: Arc<[NodeId]>,
        made: Made,
    ) -> Self {
        Kernel { partition, state, graph, claimed, made }
    }

    /// Prepares the node for the runtime: creates the kernel again if shapes changed, and resizes the outputs.
    fn prepare(&mut self, runtime: &Runtime) -> Result<()> {
        if self.made.changed(runtime)? {
            self.made = self.remake(runtime)?;
        }
        self.made.fit_outputs(runtime)
    }

    fn remake(&self, runtime: &Runtime) -> Result<Made> {
        let mut graph = lock(&self.graph);
        let basis = self.made.basis.iter().map(|(id, _)| Ok((*id, runtime.shape(id.0)?)));
        let actual: HashMap<TensorId, Shape> = basis.collect::<Result<_>>()?;
        graph.infer(&actual);
        let made = self.remade(&graph);
        graph.forget();
        made
    }

    fn remade(&self, graph: &Graph) -> Result<Made> {
        let nodes: Vec<NodeId> =
            self.partition.nodes.iter().map(|&n| graph.node_of(n)).collect::<Result<_>>()?;
        let states = graph.states_of(&nodes);
        let view = graph.view_with(&states);
        let mut delegate = lock(&self.state.delegate);
        let mut cx = DelegateContext::new(view, delegate.max_versions().clone());
        contain(|| delegate.prepare(&mut cx).map_err(|e| e.chain()))?;
        let (mut claims, reasons) = cx.finish();
        let claim = claims.iter_mut().find(|claim| nodes.iter().all(|n| claim.nodes.contains(n)));
        let Some(claim) = claim else {
            let reason = nodes.iter().find_map(|n| {
                let reason = graph.withheld(*n).map(str::to_owned);
                reason.or_else(|| reasons.get(n.0)?.as_ref().map(ToString::to_string))
            });
            let reason = reason.unwrap_or_else(|| "the delegate no longer claims them".into());
            return Err(format!("the nodes cannot be delegated with the new shapes: {reason}"));
        };
        Made::new(graph, &view, &self.partition, &self.claimed, &mut claim.factory)
    }

    /// Adds the location to the error.
    fn failure(&self, error: &str) -> String {
        let nodes: Vec<String> = self.partition.nodes.iter().take(6).map(c_int::to_string).collect();
        let more = if self.partition.nodes.len() > 6 { ", …" } else { "" };
        let name = self.state.name.to_string_lossy();
        format!("delegate {name}: partition of nodes {}{more}: {error}", nodes.join(", "))
    }
}

/// Returns the registration of our kernels.
pub(crate) fn registration(state: &State) -> abi::OwnRegistration {
    let common = abi::Registration {
        init: Some(init),
        free: Some(free),
        prepare: Some(prepare),
        invoke: Some(invoke),
        profiling_string: std::ptr::null(),
        builtin_code: delegraph_core::BuiltinOp::DELEGATE.0,
        custom_name: state.name.as_ptr(),
        version: 1,
    };
    abi::OwnRegistration { common, later: [std::ptr::null(); 8] }
}

/// Returns the kernel of a partition, which `Prepare` created, to the runtime.
unsafe extern "C" fn init(context: *mut abi::Context, params: *const c_char, _: usize) -> *mut c_void {
    let found = contain(|| {
        let params = checked(params.cast::<abi::DelegateParams>(), "the params of a partition")?;
        // SAFETY: the runtime calls with the params of a partition, and with the delegate that was passed to it.
        let (partition, state) = unsafe { (Partition::read(params)?, State::of((*params).delegate)?) };
        state
            .take(&partition)
            .ok_or_else(|| "the runtime's partition differs from the announced one".to_owned())
    });
    match found {
        Ok(kernel) => Box::into_raw(kernel).cast(),
        Err(text) => {
            // SAFETY: the runtime's own context.
            let _ = unsafe { Runtime::new(context) }.map(|runtime| runtime.report(&text));
            std::ptr::without_provenance_mut(abi::INIT_FAILED)
        }
    }
}

unsafe extern "C" fn free(_: *mut abi::Context, kernel: *mut c_void) {
    if kernel.is_null() || kernel.addr() == abi::INIT_FAILED {
        return;
    }
    // SAFETY: the result of `init`, which the runtime frees once.
    let kernel = unsafe { Box::from_raw(kernel.cast::<Kernel>()) };
    let _ = contain(|| {
        drop(kernel);
        Ok::<_, String>(())
    });
}

/// Calls `f` with the kernel of a node, and reports errors.
///
/// # Safety
/// The runtime calls with its context and a node of ours.
unsafe fn with_kernel(
    context: *mut abi::Context,
    node: *mut abi::Node,
    f: impl FnOnce(&mut Kernel, &Runtime) -> Result<()>,
) -> Status {
    // SAFETY: the runtime's own context.
    let Ok(runtime) = (unsafe { Runtime::new(context) }) else { return abi::ERROR };
    let result = contain(|| {
        let node = checked(node.cast_const(), "the node")?;
        // SAFETY: not null and aligned.
        let kernel = checked(unsafe { (*node).user_data }.cast::<Kernel>().cast_const(), "the kernel")?;
        // SAFETY: the result of `init` for this node; the runtime uses a node on one thread at a time.
        let kernel = unsafe { &mut *kernel.cast_mut() };
        f(kernel, &runtime).map_err(|e| kernel.failure(&e))
    });
    match result {
        Ok(()) => abi::OK,
        Err(text) => {
            runtime.report(&text);
            abi::ERROR
        }
    }
}

unsafe extern "C" fn prepare(context: *mut abi::Context, node: *mut abi::Node) -> Status {
    // SAFETY: the runtime calls with its context and a node with `registration`.
    unsafe { with_kernel(context, node, Kernel::prepare) }
}

unsafe extern "C" fn invoke(context: *mut abi::Context, node: *mut abi::Node) -> Status {
    // SAFETY: the runtime calls with its context and a node with `registration`.
    unsafe { with_kernel(context, node, |kernel, runtime| kernel.made.invoke(runtime)) }
}
