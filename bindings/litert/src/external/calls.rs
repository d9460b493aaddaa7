//! Calls between this side and a delegate.
//!
//! A call of a delegate has a frame. When the delegate calls back, its context leads to the innermost frame of that
//! context on this thread: a context of another thread, or of an earlier call, is not found.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};

use delegraph_core::NodeId;

use super::graph::{Graph, Resizable};
use crate::abi::{self, Status};
use crate::contain::{contain, lock};
use crate::raw::{self, Result, checked};

/// The maximum number of messages kept per call.
const MAX_MESSAGES: usize = 16;

/// The operations of a delegate while it prepares, in addition to reading the graph.
pub(super) trait Prepares {
    fn preview(&self, nodes: &[NodeId]) -> Result<(*mut abi::DelegateParams, c_int)>;
    fn replace(
        &self,
        registration: abi::Registration,
        nodes: &[NodeId],
        delegate: *mut abi::Delegate,
    ) -> Result<()>;
}

/// The phase of a call, which determines what the delegate may call.
#[derive(Clone, Copy)]
pub(super) enum Phase<'c> {
    /// `TfLiteDelegate::Prepare`.
    Prepare(&'c dyn Prepares),
    /// `init` of a kernel.
    Init,
    /// `prepare` of a kernel.
    PrepareKernel(Resizable<'c>),
    /// `invoke` of a kernel, and copies from its buffers.
    Invoke(Resizable<'c>),
    /// The end of a kernel.
    Free,
}

struct Frame<'c> {
    graph: &'c Graph,
    phase: Phase<'c>,
    messages: RefCell<Vec<String>>,
    /// The first invalid call of the delegate.
    misuse: RefCell<Option<String>>,
    outer: *const Frame<'static>,
}

thread_local! {
    /// The innermost call of this thread.
    static CURRENT: Cell<*const Frame<'static>> = const { Cell::new(std::ptr::null()) };
}

/// The result of a call.
pub(super) struct Outcome<T> {
    pub(super) value: T,
    messages: Vec<String>,
    misuse: Option<String>,
}

impl Outcome<Status> {
    /// Returns an error for a bad status or an invalid call; `what` names the function.
    pub(super) fn check(self, what: &str) -> Result<()> {
        let status = self.value;
        self.with(what, (status != abi::OK).then(|| format!("{what} returned {}", status_name(status))))
            .map(drop)
    }
}

impl<T> Outcome<T> {
    /// Returns the value, unless there is a `failure` or the delegate made an invalid call.
    pub(super) fn with(self, what: &str, failure: Option<String>) -> Result<T> {
        let failure = match (self.misuse, failure) {
            (Some(misuse), _) => Some(format!("{what}: {misuse}")),
            (None, failure) => failure,
        };
        match failure {
            None => Ok(self.value),
            Some(failure) if self.messages.is_empty() => Err(failure),
            Some(failure) => Err(format!("{failure}: {}", self.messages.join("; "))),
        }
    }
}

fn status_name(status: Status) -> String {
    let name = match status {
        1 => "kTfLiteError",
        2 => "kTfLiteDelegateError",
        3 => "kTfLiteApplicationError",
        4 => "kTfLiteDelegateDataNotFound",
        7 => "kTfLiteUnresolvedOps",
        8 => "kTfLiteCancelled",
        _ => return format!("status {status}"),
    };
    name.into()
}

/// Calls a delegate: `call` gets its context.
pub(super) fn enter<T>(
    graph: &Graph,
    phase: Phase<'_>,
    call: impl FnOnce(*mut abi::Context) -> T,
) -> Outcome<T> {
    /// Makes the outer call current again.
    struct Leave(*const Frame<'static>);
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let outer = CURRENT.get();
    // SAFETY: frames of this thread are valid until their calls end, and this call is nested in them.
    let nested = unsafe { find(outer, graph.context()) }.is_some();
    let calling = (!nested).then(|| lock(&graph.calling));
    let frame = Frame { graph, phase, messages: RefCell::default(), misuse: RefCell::default(), outer };
    let leave = Leave(outer);
    CURRENT.set((&raw const frame).cast());
    let value = call(graph.context());
    drop(leave);
    drop(calling);
    Outcome { value, messages: frame.messages.into_inner(), misuse: frame.misuse.into_inner() }
}

/// Finds the innermost frame of a context.
///
/// # Safety
/// `frame` is null or a frame of this thread whose call has not ended.
unsafe fn find<'f>(mut frame: *const Frame<'static>, context: *const abi::Context) -> Option<&'f Frame<'f>> {
    while !frame.is_null() {
        // SAFETY: guaranteed by the caller; the calls of outer frames end later.
        let this = unsafe { &*frame };
        if std::ptr::addr_eq(this.graph.context(), context) {
            return Some(this);
        }
        frame = this.outer;
    }
    None
}

/// Runs a callback in the frame of its context. The first error is kept as the misuse of the call.
fn callback(context: *const abi::Context, f: impl FnOnce(&Frame<'_>) -> Result<()>) -> Status {
    // SAFETY: `CURRENT` is null or a frame of this thread whose call has not ended (`enter`).
    let Some(frame) = (unsafe { find(CURRENT.get(), context) }) else { return abi::ERROR };
    match contain(|| f(frame)) {
        Ok(()) => abi::OK,
        Err(text) => {
            frame.misuse.borrow_mut().get_or_insert(text);
            abi::ERROR
        }
    }
}

/// Stores a result at the delegate's pointer.
///
/// # Safety
/// `place` is null or valid for a write.
unsafe fn store<T>(place: *mut T, value: T, what: &str) -> Result<()> {
    checked(place.cast_const(), what)?;
    // SAFETY: not null and aligned; valid (guaranteed by the caller).
    unsafe { place.write(value) };
    Ok(())
}

/// Keeps a message with the innermost frame of its context, up to [`MAX_MESSAGES`].
pub(super) fn report(context: *mut abi::Context, text: String) {
    // SAFETY: `CURRENT` is null or a frame of this thread whose call has not ended (`enter`).
    let Some(frame) = (unsafe { find(CURRENT.get(), context) }) else { return };
    let mut messages = frame.messages.borrow_mut();
    if messages.len() < MAX_MESSAGES && !text.is_empty() {
        messages.push(text);
    }
}

fn only_while(what: &str, phase: &str) -> Result<()> {
    Err(format!("{what} is only for {phase}"))
}

pub(super) unsafe extern "C" fn get_execution_plan(
    context: *mut abi::Context,
    plan: *mut *mut abi::IntArray,
) -> Status {
    callback(context, |frame| match frame.phase {
        // SAFETY: the delegate passes a place for the result.
        Phase::Prepare(_) | Phase::Init => unsafe {
            store(plan, frame.graph.plan()?, "the place of the plan")
        },
        _ => only_while("GetExecutionPlan", "a delegate that prepares"),
    })
}

pub(super) unsafe extern "C" fn get_node_and_registration(
    context: *mut abi::Context,
    index: c_int,
    node: *mut *mut abi::Node,
    registration: *mut *mut abi::Registration,
) -> Status {
    callback(context, |frame| match frame.phase {
        Phase::Prepare(_) | Phase::Init => {
            let (found, runs) = frame.graph.node(index)?;
            // SAFETY: the delegate passes places for the results.
            unsafe {
                store(node, found, "the place of the node")?;
                store(registration, runs, "the place of the registration")
            }
        }
        _ => only_while("GetNodeAndRegistration", "a delegate that prepares"),
    })
}

pub(super) unsafe extern "C" fn preview(
    context: *mut abi::Context,
    nodes: *const abi::IntArray,
    partitions: *mut *mut abi::DelegateParams,
    count: *mut c_int,
) -> Status {
    callback(context, |frame| match frame.phase {
        Phase::Prepare(calls) => {
            // SAFETY: the delegate passes a list.
            let (found, number) = calls.preview(&unsafe { frame.graph.listed(nodes) }?)?;
            // SAFETY: the delegate passes places for the results.
            unsafe {
                store(partitions, found, "the place of the partitions")?;
                store(count, number, "the place of their number")
            }
        }
        _ => only_while("PreviewDelegatePartitioning", "a delegate that prepares"),
    })
}

/// The delegate passes its registration by value, in a structure that is at least as long as the one here: C passes it in
/// memory, so that the known fields can be read.
pub(super) unsafe extern "C" fn replace(
    context: *mut abi::Context,
    registration: abi::Registration,
    nodes: *const abi::IntArray,
    delegate: *mut abi::Delegate,
) -> Status {
    callback(context, |frame| match frame.phase {
        Phase::Prepare(calls) => {
            // SAFETY: the delegate passes a list.
            let nodes = unsafe { frame.graph.listed(nodes) }?;
            calls.replace(registration, &nodes, delegate)
        }
        _ => only_while("ReplaceNodeSubsetsWithDelegateKernels", "a delegate that prepares"),
    })
}

pub(super) unsafe extern "C" fn resize_tensor(
    context: *mut abi::Context,
    tensor: *mut abi::Tensor,
    dims: *mut abi::IntArray,
) -> Status {
    callback(context, |frame| {
        let own = match frame.phase {
            Phase::PrepareKernel(own) | Phase::Invoke(own) => own,
            Phase::Prepare(_) | Phase::Init => Resizable::default(),
            Phase::Free => return only_while("ResizeTensor", "a kernel that prepares or runs"),
        };
        // SAFETY: the delegate passes ownership of the list.
        unsafe { frame.graph.resize(tensor, dims, &own) }
    })
}

pub(super) unsafe extern "C" fn add_tensors(
    context: *mut abi::Context,
    count: c_int,
    first: *mut c_int,
) -> Status {
    callback(context, |frame| match frame.phase {
        Phase::Prepare(_) | Phase::Init | Phase::PrepareKernel(_) => {
            let number = frame.graph.add_tensors(count)?;
            // The pointer for the number may be null.
            if first.is_null() {
                return Ok(());
            }
            // SAFETY: the delegate passes a place for the result.
            unsafe { store(first, number, "the place of the number") }
        }
        _ => only_while("AddTensors", "a delegate or a kernel that prepares"),
    })
}

pub(super) unsafe extern "C" fn get_model_metadata(
    context: *const abi::Context,
    name: *const c_char,
    data: *mut *const c_char,
    len: *mut usize,
) -> Status {
    let mut found = None;
    let status = callback(context, |frame| {
        checked(name, "the name of the metadata")?;
        // SAFETY: the delegate passes a text.
        found = frame.graph.metadata(&unsafe { raw::text(name) });
        let (bytes, size) = found.unwrap_or((std::ptr::null(), 0));
        // SAFETY: the delegate passes places for the results.
        unsafe {
            store(data, bytes, "the place of the metadata")?;
            store(len, size, "the place of their size")
        }
    });
    // A model without the metadata is not an error of the delegate.
    if found.is_some() { status } else { abi::ERROR }
}

/// There are no contexts of other subgraphs: a delegate is offered each subgraph separately.
pub(super) unsafe extern "C" fn acquire_subgraph_context(
    context: *mut abi::Context,
    index: c_int,
    _: *mut *mut abi::Context,
) -> Status {
    callback(context, |_| {
        Err(format!("the context of subgraph {index} is not available to delegates of LiteRT"))
    })
}

pub(super) unsafe extern "C" fn release_subgraph_context(context: *mut abi::Context, index: c_int) -> Status {
    callback(context, |_| Err(format!("the context of subgraph {index} was not acquired")))
}

/// There are no external contexts: LiteRT's are C++ objects.
pub(super) unsafe extern "C" fn get_external_context(_: *mut abi::Context, _: c_int) -> *mut c_void {
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn set_external_context(_: *mut abi::Context, _: c_int, _: *mut c_void) {}
