//! The current call of a plugin on this thread, identified by a context number.
//!
//! A number cannot dangle like a pointer: one that is not current, or is current on another thread, is not found.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use delegraph_core::{Error, Result};

use super::super::abi::*;
use super::super::raw::error_of;
use super::PluginFault;
use super::graph::{HostGraph, new_context};

/// The calls that a plugin may make while it prepares.
pub(super) trait Prepares {
    fn may_claim(&self, node: usize) -> bool;
    fn preview(&self, nodes: &[usize], each: &mut dyn FnMut(&DelegraphPartition));
    fn reject(&self, node: usize, reason: &DelegraphRejection);
    fn claim(&self, nodes: &[usize], claim: u64);
}

/// The requests of a kernel while it prepares. Errors describe invalid requests.
pub(super) trait KernelPrepares {
    fn temporary(&self, bytes: usize) -> usize;
    fn persistent(&self, bytes: usize) -> Result<usize, String>;
    fn set_output_shape(&self, output: usize, dims: &[usize]) -> Result<(), String>;
    fn set_output_dynamic(&self, output: usize) -> Result<(), String>;
}

/// The requests of a kernel while it runs. Errors describe invalid requests.
pub(super) trait Invokes {
    fn resize_output(&self, output: usize, dims: &[usize], bytes: usize) -> Result<*mut u8, String>;
    fn parallel(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));
    fn is_cancelled(&self) -> bool;
    fn progress(&self, done: usize, total: usize);
}

/// The options of a node with a custom op.
pub(super) struct OpOptions<'a> {
    pub(super) bytes: &'a [u8],
    /// The error of the last option that was read.
    pub(super) wrong: RefCell<Option<Error>>,
}

/// The kind of a call, which determines the functions that the plugin may call back.
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
    /// Returns the scope of `context`: this call, or the graph of a subgraph that its graph calls.
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

/// Calls a plugin: `call` receives the number of its context and a buffer for a message. Fails if the plugin reports an
/// error, or passed invalid arguments to the application.
pub(super) fn enter(
    scope: Scope<'_, '_>,
    message: &mut super::super::raw::MessageRoom,
    call: impl FnOnce(DelegraphContext, *mut DelegraphError) -> i32,
) -> Result<()> {
    /// Makes the outer call current again, on every exit.
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
        return Err(Error::external(PluginFault { library: None, message: misuse }));
    }
    if status == DELEGRAPH_OK { Ok(()) } else { Err(error_of(status, message.message(&slot))) }
}

/// Answers a call of a plugin. `Err` describes an invalid argument.
pub(super) fn answer(
    context: DelegraphContext,
    function: &str,
    f: impl FnOnce(Scope<'_, '_>) -> Result<i32, String>,
) -> i32 {
    ask(context, function, f).unwrap_or(DELEGRAPH_INVALID)
}

/// As [`answer`], for functions that do not return a status.
pub(super) fn ask<T>(
    context: DelegraphContext,
    function: &str,
    f: impl FnOnce(Scope<'_, '_>) -> Result<T, String>,
) -> Option<T> {
    let mut at = CURRENT.get();
    let (frame, scope) = loop {
        // SAFETY: frames are on the stack of this thread, in callers; each is removed from the list before it is
        // dropped.
        let frame = unsafe { at.as_ref() }?;
        if let Some(scope) = frame.named(context) {
            break (frame, scope);
        }
        at = frame.outer;
    };
    let text = match catch_unwind(AssertUnwindSafe(|| f(scope))) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(text)) => text,
        Err(panic) => {
            // Dropping a payload may panic.
            std::mem::forget(panic);
            "it caused a panic".to_owned()
        }
    };
    if let Ok(mut misuse) = frame.misuse.try_borrow_mut() {
        misuse.get_or_insert_with(|| format!("{function}: {text}"));
    }
    None
}
