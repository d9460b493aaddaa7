//! Which call of a plugin is going on, on this thread: what its context number stands for.
//!
//! A plugin never holds a pointer of ours whose life it would have to watch: a number that is no longer current, or
//! current on another thread, finds nothing.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use delegraph_core::Result;

use super::super::abi::*;
use super::super::raw::error_of;
use super::graph::HostGraph;

/// What a plugin may say while it prepares.
pub(super) trait Prepares {
    fn may_claim(&self, node: usize) -> bool;
    fn preview(&self, nodes: &[usize], each: &mut dyn FnMut(&DelegraphPartition));
    fn reject(&self, node: usize, reason: &DelegraphRejection);
    fn claim(&self, nodes: &[usize], claim: u64);
}

/// What a kernel may ask for while it prepares.
pub(super) trait KernelPrepares {
    fn temporary(&self, bytes: usize) -> usize;
    fn persistent(&self, bytes: usize) -> Result<usize>;
    fn set_output_shape(&self, output: usize, dims: &[usize]) -> Result<()>;
    fn set_output_dynamic(&self, output: usize) -> Result<()>;
}

/// What a kernel may ask for while it runs.
pub(super) trait Invokes {
    fn resize_output(&self, output: usize, dims: &[usize], bytes: usize) -> Result<*mut u8>;
    fn parallel(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));
    fn is_cancelled(&self) -> bool;
    fn progress(&self, done: usize, total: usize);
}

/// The options of a node with a custom op.
pub(super) struct OpOptions<'a> {
    pub(super) bytes: &'a [u8],
    /// What was wrong with the last option that was asked for.
    pub(super) wrong: RefCell<Option<delegraph_core::Error>>,
}

/// What can be asked in a call.
#[derive(Clone, Copy)]
pub(super) enum Scope<'c, 'g> {
    Prepare(&'c HostGraph<'g>, &'c dyn Prepares),
    CreateKernel(&'c HostGraph<'g>),
    CreateOp(&'c OpOptions<'c>),
    PrepareKernel(&'c dyn KernelPrepares),
    Invoke(&'c dyn Invokes),
}

struct Frame<'c, 'g> {
    id: DelegraphContext,
    scope: Scope<'c, 'g>,
    /// The first wrong argument of a call of the plugin.
    misuse: RefCell<Option<String>>,
    outer: *const Frame<'static, 'static>,
}

impl<'c, 'g> Frame<'c, 'g> {
    /// What `context` stands for: this call, or the graph of a subgraph that its graph calls.
    fn named(&self, context: DelegraphContext) -> Option<Scope<'c, 'g>> {
        if self.id == context {
            return Some(self.scope);
        }
        match self.scope {
            Scope::Prepare(graph, _) | Scope::CreateKernel(graph) => {
                graph.find(context).map(Scope::CreateKernel)
            }
            _ => None,
        }
    }
}

thread_local! {
    /// The innermost call.
    static CURRENT: Cell<*const Frame<'static, 'static>> = const { Cell::new(std::ptr::null()) };
}

/// A number that no context has had.
pub(super) fn new_context() -> DelegraphContext {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Calls a plugin: `call` with the number of its context and room for a message. Fails where the plugin says so, and
/// where it asked for something that makes no sense.
pub(super) fn enter(
    scope: Scope<'_, '_>,
    message: &mut super::super::raw::MessageRoom,
    call: impl FnOnce(DelegraphContext, *mut DelegraphError) -> i32,
) -> Result<()> {
    /// Makes the outer call current again, however this one ends.
    struct Leave(*const Frame<'static, 'static>);
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let id = new_context();
    let leave = Leave(CURRENT.get());
    let frame = Frame { id, scope, misuse: RefCell::new(None), outer: leave.0 };
    CURRENT.set(std::ptr::from_ref(&frame).cast());
    let mut slot = message.slot();
    let status = call(id, &raw mut slot);
    drop(leave);
    if let Some(misuse) = frame.misuse.into_inner() {
        return Err(delegraph_core::Error::InvalidNode(format!("the plugin is wrong: {misuse}")));
    }
    if status == DELEGRAPH_OK { Ok(()) } else { Err(error_of(status, message.message(&slot))) }
}

/// Answers a plugin. `Err` is what makes no sense in its question.
pub(super) fn answer(
    context: DelegraphContext,
    function: &str,
    f: impl FnOnce(Scope<'_, '_>) -> Result<i32, String>,
) -> i32 {
    ask(context, function, f).unwrap_or(DELEGRAPH_INVALID)
}

/// The same for functions that do not return a status.
pub(super) fn ask<T>(
    context: DelegraphContext,
    function: &str,
    f: impl FnOnce(Scope<'_, '_>) -> Result<T, String>,
) -> Option<T> {
    let mut at = CURRENT.get();
    let (frame, scope) = loop {
        // SAFETY: frames are on the stack of this thread, below us; each is taken off the list before it goes.
        let frame = unsafe { at.as_ref() }?;
        if let Some(scope) = frame.named(context) {
            break (frame, scope);
        }
        at = frame.outer;
    };
    let text = match catch_unwind(AssertUnwindSafe(|| f(scope))) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(text)) => text,
        Err(_) => "it caused a panic".to_owned(),
    };
    if let Ok(mut misuse) = frame.misuse.try_borrow_mut() {
        misuse.get_or_insert_with(|| format!("{function}: {text}"));
    }
    None
}
