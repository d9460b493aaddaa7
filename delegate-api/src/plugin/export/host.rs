//! The application's functions, wrapped for plugins in Rust.

use std::ffi::c_void;
use std::sync::OnceLock;

use delegraph_core::{Error, NodeId, Result};

use super::super::abi::*;
use super::super::raw::{read, text};
use crate::Rejection;

/// The application's function that allocates persistent memory.
pub(super) type Persistent = unsafe extern "C" fn(DelegraphContext, usize) -> i64;

macro_rules! functions {
    ($($name:ident: fn($($arg:ident: $ty:ty),*) -> $result:ty;)+) => {
        /// The functions of the application that plugins in Rust use.
        #[derive(Clone, Copy)]
        pub(super) struct Host {
            $($name: unsafe extern "C" fn($($ty),*) -> $result,)+
        }

        impl Host {
            /// Wraps the functions at `host`.
            ///
            /// # Safety
            /// `host` is null or a table with its size.
            pub(super) unsafe fn new(host: *const DelegraphHost) -> Result<Self> {
                // SAFETY: guaranteed by the caller.
                let table = unsafe { read(host) }.ok_or_else(|| Error::State("there is no application".into()))?;
                $(let $name = table.$name.ok_or_else(|| Error::Unsupported(format!(
                    "the application is too old for this plugin: it has no function `{}`; update it, or build the \
                     plugin with its release of delegraph-delegate-api", stringify!($name)
                )))?;)+
                Ok(Host { $($name),+ })
            }
        }
    };
}
functions! {
    log_level: fn() -> i32;
    log: fn(level: i32, target: DelegraphText, text: DelegraphText) -> ();
    graph: fn(context: DelegraphContext, graph: *mut DelegraphGraph) -> i32;
    model: fn(context: DelegraphContext, model: *mut DelegraphModel) -> i32;
    callee: fn(context: DelegraphContext, subgraph: usize) -> DelegraphContext;
    is_cancelled: fn(context: DelegraphContext) -> i32;
    progress: fn(context: DelegraphContext, done: usize, total: usize) -> i32;
    node: fn(context: DelegraphContext, node: usize, out: *mut DelegraphNode) -> i32;
    tensor: fn(context: DelegraphContext, tensor: usize, out: *mut DelegraphTensor) -> i32;
    reject: fn(context: DelegraphContext, node: usize, reason: *const DelegraphRejection) -> i32;
    claim: fn(context: DelegraphContext, nodes: *const usize, count: usize, claim: u64) -> i32;
    temporary: fn(context: DelegraphContext, bytes: usize) -> i64;
    set_output_shape: fn(context: DelegraphContext, output: usize, dims: *const usize, rank: usize) -> i32;
    set_output_dynamic: fn(context: DelegraphContext, output: usize) -> i32;
    resize_output: fn(
        context: DelegraphContext, output: usize, dims: *const usize, rank: usize, bytes: usize, data: *mut *mut c_void
    ) -> i32;
    parallel: fn(
        context: DelegraphContext, tasks: usize, task: Option<unsafe extern "C" fn(*mut c_void, usize)>, user: *mut c_void
    ) -> i32;
}

/// Converts a status to a result. The application has recorded the call and its error.
fn check(status: i32, what: &str) -> Result<()> {
    if status == DELEGRAPH_OK {
        return Ok(());
    }
    Err(Error::State(format!("the application refuses `{what}`, status {status}")))
}

/// Safe wrappers of the functions.
impl Host {
    pub(super) fn graph(&self, context: DelegraphContext) -> Result<DelegraphGraph> {
        let none = DelegraphText { data: std::ptr::null(), len: 0 };
        let mut out = DelegraphGraph {
            size: size_of::<DelegraphGraph>(),
            subgraph: 0,
            nodes: 0,
            tensors: 0,
            inputs: 0,
            outputs: 0,
            model_path: none,
        };
        // SAFETY: a function of the application, with a struct of the size that it names.
        check(unsafe { (self.graph)(context, &raw mut out) }, "graph")?;
        Ok(out)
    }

    pub(super) fn model(&self, context: DelegraphContext) -> Result<DelegraphModel> {
        let mut out = DelegraphModel {
            size: size_of::<DelegraphModel>(),
            data: std::ptr::null(),
            len: 0,
            owner: std::ptr::null_mut(),
            release: None,
        };
        // SAFETY: a function of the application, with a struct of the size that it names.
        check(unsafe { (self.model)(context, &raw mut out) }, "model")?;
        Ok(out)
    }

    /// Returns the context of a subgraph that nodes call, if the application describes it.
    pub(super) fn callee(&self, context: DelegraphContext, subgraph: usize) -> Option<DelegraphContext> {
        // SAFETY: a function of the application.
        Some(unsafe { (self.callee)(context, subgraph) }).filter(|&callee| callee != 0)
    }

    pub(super) fn is_cancelled(&self, context: DelegraphContext) -> bool {
        // SAFETY: a function of the application.
        unsafe { (self.is_cancelled)(context) != 0 }
    }

    pub(super) fn progress(&self, context: DelegraphContext, done: usize, total: usize) {
        // SAFETY: a function of the application.
        unsafe { (self.progress)(context, done, total) };
    }

    pub(super) fn node_flags(&self, context: DelegraphContext, node: usize) -> Result<u32> {
        let mut out = std::mem::MaybeUninit::<DelegraphNode>::zeroed();
        // SAFETY: all-zero is a valid struct; its size is set before it is passed to the application.
        let out = unsafe { out.assume_init_mut() };
        out.size = size_of::<DelegraphNode>();
        // SAFETY: a function of the application, with a struct of the size that it names.
        check(unsafe { (self.node)(context, node, out) }, "node")?;
        Ok(out.flags)
    }

    pub(super) fn tensor(&self, context: DelegraphContext, tensor: usize) -> Result<DelegraphTensor> {
        let mut out = std::mem::MaybeUninit::<DelegraphTensor>::zeroed();
        // SAFETY: all-zero is a valid struct; its size is set before it is passed to the application.
        let out = unsafe { out.assume_init_mut() };
        out.size = size_of::<DelegraphTensor>();
        // SAFETY: a function of the application, with a struct of the size that it names.
        check(unsafe { (self.tensor)(context, tensor, out) }, "tensor")?;
        Ok(*out)
    }

    pub(super) fn claim(&self, context: DelegraphContext, nodes: &[NodeId], claim: u64) -> Result<()> {
        let nodes: Vec<usize> = nodes.iter().map(|id| id.0).collect();
        // SAFETY: a function of the application, with a list and its length.
        check(unsafe { (self.claim)(context, nodes.as_ptr(), nodes.len(), claim) }, "claim")
    }

    pub(super) fn reject(&self, context: DelegraphContext, node: usize, reason: &Rejection) -> Result<()> {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let display = reason.to_string();
        let (kind, words, value, limit) = match reason {
            Rejection::VersionTooHigh { version, max, .. } => {
                (DELEGRAPH_REJECT_VERSION, "", i64::from(*version), i64::from(*max))
            }
            Rejection::CompositeVersionTooHigh { version, max, .. } => {
                (DELEGRAPH_REJECT_VERSION, "", i64::from(*version), i64::from(*max))
            }
            Rejection::UnderstatedVersion { needed, max, .. }
            | Rejection::UnderstatedCompositeVersion { needed, max, .. } => {
                (DELEGRAPH_REJECT_VERSION, "", i64::from(*needed), i64::from(*max))
            }
            Rejection::UnsupportedOp { .. } | Rejection::UnsupportedComposite { .. } => {
                (DELEGRAPH_REJECT_OP, "", 0, 0)
            }
            Rejection::UnsupportedType { operand, ty } => {
                (DELEGRAPH_REJECT_TYPE, operand.as_str(), *ty as i64, 0)
            }
            Rejection::UnsupportedParam(text) => (DELEGRAPH_REJECT_PARAM, text.as_str(), 0, 0),
            Rejection::DynamicShape { tensor } => (DELEGRAPH_REJECT_DYNAMIC_SHAPE, tensor.as_str(), 0, 0),
            Rejection::DeviceLimit(text) => (DELEGRAPH_REJECT_DEVICE_LIMIT, text.as_str(), 0, 0),
            Rejection::Overridden { .. } => (DELEGRAPH_REJECT_OVERRIDDEN, "", 0, 0),
            Rejection::PartitionTooSmall { nodes, min } => {
                (DELEGRAPH_REJECT_PARTITION_TOO_SMALL, "", number(*nodes), number(*min))
            }
            Rejection::TooManyPartitions { max } => {
                (DELEGRAPH_REJECT_TOO_MANY_PARTITIONS, "", 0, number(*max))
            }
            Rejection::Excluded(text) => (DELEGRAPH_REJECT_EXCLUDED, text.as_str(), 0, 0),
            Rejection::CostModel(text) => (DELEGRAPH_REJECT_COST, text.as_str(), 0, 0),
            _ => (DELEGRAPH_REJECT_OTHER, display.as_str(), 0, 0),
        };
        let reason = DelegraphRejection {
            size: size_of::<DelegraphRejection>(),
            kind,
            text: text(words),
            value,
            limit,
        };
        // SAFETY: a function of the application, with a struct of the size that it names.
        check(unsafe { (self.reject)(context, node, &raw const reason) }, "reject")
    }

    pub(super) fn temporary(&self, context: DelegraphContext, bytes: usize) -> Result<()> {
        // SAFETY: a function of the application.
        let number = unsafe { (self.temporary)(context, bytes) };
        check(if number < 0 { DELEGRAPH_INVALID } else { DELEGRAPH_OK }, "temporary")
    }

    pub(super) fn persistent(
        &self,
        context: DelegraphContext,
        bytes: usize,
        function: Persistent,
    ) -> Result<()> {
        // SAFETY: a function of the application.
        let number = unsafe { function(context, bytes) };
        check(if number < 0 { DELEGRAPH_INVALID } else { DELEGRAPH_OK }, "persistent")
    }

    pub(super) fn set_output_shape(
        &self,
        context: DelegraphContext,
        output: usize,
        dims: &[usize],
    ) -> Result<()> {
        // SAFETY: a function of the application, with a list and its length.
        let status = unsafe { (self.set_output_shape)(context, output, dims.as_ptr(), dims.len()) };
        check(status, "set_output_shape")
    }

    pub(super) fn set_output_dynamic(&self, context: DelegraphContext, output: usize) -> Result<()> {
        // SAFETY: a function of the application.
        check(unsafe { (self.set_output_dynamic)(context, output) }, "set_output_dynamic")
    }

    pub(super) fn write_output(
        &self,
        context: DelegraphContext,
        output: usize,
        dims: &[usize],
        bytes: &[u8],
    ) -> Result<()> {
        let mut memory = std::ptr::null_mut();
        let (rank, len, out) = (dims.len(), bytes.len(), &raw mut memory);
        // SAFETY: a function of the application, with a list and its length, and a place for the answer.
        let status = unsafe { (self.resize_output)(context, output, dims.as_ptr(), rank, len, out) };
        check(status, "resize_output")?;
        if !bytes.is_empty() {
            // SAFETY: the application allocated this number of bytes for this output alone.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast::<u8>(), len) };
        }
        Ok(())
    }

    pub(super) fn parallel(
        &self,
        context: DelegraphContext,
        tasks: usize,
        task: unsafe extern "C" fn(*mut c_void, usize),
        user: *mut c_void,
    ) -> bool {
        // SAFETY: a function of the application; `task` may be called with `user` until it returns.
        unsafe { (self.parallel)(context, tasks, Some(task), user) == DELEGRAPH_OK }
    }

    /// Redirects this library's log messages to the application, unless the plugin has set a logger.
    pub(super) fn take_log(&self) {
        static LOG: OnceLock<Host> = OnceLock::new();
        struct Log;
        impl log::Log for Log {
            fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
                metadata.level() <= log::max_level()
            }
            fn log(&self, record: &log::Record<'_>) {
                if let Some(host) = LOG.get().filter(|_| self.enabled(record.metadata())) {
                    let line = record.args().to_string();
                    // SAFETY: a function of the application, with text and its length.
                    unsafe { (host.log)(record.level() as i32, text(record.target()), text(&line)) };
                }
            }
            fn flush(&self) {}
        }
        if LOG.set(*self).is_ok() && log::set_logger(&Log).is_ok() {
            // SAFETY: a function of the application.
            let level = unsafe { (self.log_level)() };
            let all = log::LevelFilter::iter();
            log::set_max_level(
                all.take(level.clamp(0, 5) as usize + 1).last().unwrap_or(log::LevelFilter::Off),
            );
        }
    }
}
