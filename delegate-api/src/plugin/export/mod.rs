//! The plugin's side, for authors in Rust: the table's functions for any delegate. Used by
//! [`export_delegate!`](crate::export_delegate).

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::ManuallyDrop;

use delegraph_core::kernel::RuntimeTensor;
use delegraph_core::{BuiltinOp, Error, Op, Result};

use super::abi::*;
use super::raw::{read, slice};
use super::{CreateError, OptionError, PluginOptions};
use crate::{Capabilities, Claim, Delegate, DelegateContext, DelegateKernel, GraphView, Rejection};

mod contain;
pub mod fusions;
mod graph;
mod host;
mod kernel;
pub mod ops;
#[cfg(test)]
mod tests;

use contain::{contain, contain_quietly, failed};
use graph::Graph;
use host::Host;
use kernel::ExportedKernel;

type PartitionKernel = ExportedKernel<dyn DelegateKernel>;

/// The type of a table's `create`.
pub type CreateFunction = unsafe extern "C" fn(
    *const DelegraphHost,
    *const DelegraphOption,
    usize,
    *mut *mut c_void,
    *mut DelegraphError,
) -> i32;

/// Returns the table of a plugin with this `create` function.
pub const fn table(create: CreateFunction) -> DelegraphPlugin {
    DelegraphPlugin {
        abi_version: DELEGRAPH_ABI_VERSION,
        size: size_of::<DelegraphPlugin>(),
        create: Some(create),
        destroy: Some(destroy),
        name: Some(name),
        versions: Some(versions),
        capabilities: Some(capabilities),
        prepare: Some(prepare),
        end_prepare: Some(end_prepare),
        create_kernel: Some(create_kernel),
        destroy_kernel: Some(destroy_kernel),
        prepare_kernel: Some(prepare_kernel),
        invoke_kernel: Some(invoke_kernel),
        kernel_stats: Some(kernel_stats),
        node_times: Some(node_times),
    }
}

/// An exported delegate, to which the application holds a pointer.
struct Exported {
    host: Host,
    name: CString,
    versions: Vec<DelegraphOpVersion>,
    capabilities: Capabilities,
    /// The names to which `versions` points.
    _custom_names: Vec<CString>,
    /// Borrows `delegate`, so it is dropped first, and nothing else accesses the delegate while it exists.
    session: Option<Session>,
    delegate: *mut dyn Delegate,
}

impl Drop for Exported {
    fn drop(&mut self) {
        self.session = None;
        // SAFETY: the pointer was created by `Box::into_raw`, and the session that borrows the delegate is dropped.
        drop(unsafe { Box::from_raw(self.delegate) });
    }
}

/// The state from `prepare` to `end_prepare`.
struct Session {
    /// Borrows `graph` and the delegate; dropped first.
    claims: ManuallyDrop<Vec<Claim<'static>>>,
    graph: *mut Graph,
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: dropped once, here. Nothing borrows the graph afterwards, whose pointer was created by
        // `Box::into_raw`.
        unsafe {
            ManuallyDrop::drop(&mut self.claims);
            drop(Box::from_raw(self.graph));
        }
    }
}

impl Session {
    fn view(&self) -> GraphView<'_> {
        // SAFETY: the graph lives as long as the session, and does not change.
        unsafe { &*self.graph }.view()
    }
}

/// Implements the `create` function of a table.
///
/// # Safety
/// The pointers follow the interface.
pub unsafe fn create<D: Delegate + 'static>(
    host: *const DelegraphHost,
    options: *const DelegraphOption,
    option_count: usize,
    delegate: *mut *mut c_void,
    error: *mut DelegraphError,
    make: impl FnOnce(&PluginOptions) -> Result<D, CreateError>,
) -> i32 {
    let made = contain(|| {
        // SAFETY: guaranteed by the caller.
        let host = unsafe { Host::new(host) }.map_err(CreateError::Failed)?;
        host.take_log();
        // SAFETY: guaranteed by the caller.
        let options = unsafe { read_options(options, option_count) }?;
        let made = make(&options)?;
        options.check_all_used()?;
        let exported = Exported::new(host, made).map_err(CreateError::Failed)?;
        if delegate.is_null() {
            return Err(CreateError::Failed(Error::State("`delegate` is null".into())));
        }
        // SAFETY: not null; guaranteed by the caller.
        unsafe { delegate.write(Box::into_raw(Box::new(exported)).cast()) };
        Ok(())
    });
    // SAFETY: guaranteed by the caller.
    unsafe {
        match made {
            Ok(Ok(())) => DELEGRAPH_OK,
            Ok(Err(CreateError::Option(e))) => failed(error, DELEGRAPH_BAD_OPTION, &e.to_string()),
            Ok(Err(CreateError::Failed(e))) => contain::report(error, &e),
            Err(panic) => failed(error, DELEGRAPH_PANICKED, &panic),
        }
    }
}

/// # Safety
/// `options` is null or points to `count` options.
unsafe fn read_options(options: *const DelegraphOption, count: usize) -> Result<PluginOptions, OptionError> {
    // SAFETY: guaranteed by the caller.
    let options = unsafe { slice(options, count) }.unwrap_or_default();
    let text = |text: *const c_char| {
        if text.is_null() {
            return Ok(String::new());
        }
        // SAFETY: not null, and zero-terminated.
        let text = unsafe { CStr::from_ptr(text) }.to_str();
        text.map(str::to_owned).map_err(|e| OptionError::new(format!("an option is not UTF-8: {e}")))
    };
    let pairs = options.iter().map(|option| Ok((text(option.key)?, text(option.value)?)));
    PluginOptions::new(pairs.collect::<Result<Vec<_>, OptionError>>()?)
}

impl Exported {
    fn new<D: Delegate + 'static>(host: Host, delegate: D) -> Result<Self> {
        let c_string = |text: &str| {
            CString::new(text)
                .map_err(|_| Error::State(format!("\"{}\" contains a zero byte", text.escape_debug())))
        };
        let name = c_string(delegate.name())?;
        let (mut versions, mut custom_names) = (Vec::new(), Vec::new());
        for (op, max_version) in delegate.max_versions().iter() {
            versions.push(match op {
                Op::Builtin(op) => {
                    DelegraphOpVersion { op: op.0, max_version, custom_name: std::ptr::null() }
                }
                Op::Custom(name) => {
                    custom_names.push(c_string(name)?);
                    let custom_name = custom_names.last().map_or(std::ptr::null(), |name| name.as_ptr());
                    DelegraphOpVersion { op: DELEGRAPH_CUSTOM_OP, max_version, custom_name }
                }
            });
        }
        // A composite is its op with a name.
        for (name, max_version) in delegate.max_versions().composites() {
            custom_names.push(c_string(name)?);
            let custom_name = custom_names.last().map_or(std::ptr::null(), |name| name.as_ptr());
            versions.push(DelegraphOpVersion {
                op: BuiltinOp::STABLEHLO_COMPOSITE.0,
                max_version,
                custom_name,
            });
        }
        let capabilities = delegate.capabilities();
        let delegate: *mut dyn Delegate = Box::into_raw(Box::new(delegate));
        let (_custom_names, session) = (custom_names, None);
        Ok(Exported { host, name, versions, capabilities, _custom_names, session, delegate })
    }

    fn prepare(&mut self, context: DelegraphContext) -> Result<()> {
        self.session = None;
        let graph = Box::into_raw(Box::new(Graph::read(&self.host, context)?));
        let mut session = Session { claims: ManuallyDrop::new(Vec::new()), graph };
        // SAFETY: the session frees the graph after everything that borrows it.
        let view: GraphView<'static> = unsafe { &*graph }.view();
        // SAFETY: there is no session that borrows the delegate; this borrow ends with the new session.
        let delegate: &'static mut dyn Delegate = unsafe { &mut *self.delegate };
        let cx = DelegateContext::new(view, delegate.max_versions().clone());
        let mut cx = cx.with_capabilities(self.capabilities);
        delegate.prepare(&mut cx)?;
        let (claims, reasons) = cx.finish();
        for (node, reason) in reasons.iter().enumerate() {
            match reason {
                None | Some(Rejection::NotClaimed) => {}
                Some(reason) => self.host.reject(context, node, reason)?,
            }
        }
        for (number, claim) in claims.iter().enumerate() {
            self.host.claim(context, &claim.nodes, number as u64)?;
        }
        *session.claims = claims;
        self.session = Some(session);
        Ok(())
    }

    fn create_kernel(&mut self, claim: u64, partition: &DelegraphPartition) -> Result<PartitionKernel> {
        let Some(session) = &mut self.session else {
            return Err(Error::State("`create_kernel` without `prepare`".into()));
        };
        let params = session.view().params_of(partition)?;
        // SAFETY: the graph lives as long as the session.
        let view = unsafe { &*session.graph }.view();
        let claim = usize::try_from(claim).ok().and_then(|i| session.claims.get_mut(i));
        let claim =
            claim.ok_or_else(|| Error::State("`create_kernel` for a claim that was not made".into()))?;
        let kernel = (claim.factory)(&params, &view)?;
        let ids = params.inputs.iter().chain(&params.outputs);
        let tensors = ids.map(|id| RuntimeTensor::new(view.subgraph().tensor(*id))).collect();
        Ok(ExportedKernel::new(kernel, self.host, tensors, &vec![false; params.inputs.len()]))
    }
}

unsafe extern "C" fn destroy(delegate: *mut c_void) {
    // SAFETY: `create` made it, and it is destroyed once.
    contain_quietly(|| drop(unsafe { Box::from_raw(delegate.cast::<Exported>()) }));
}

unsafe extern "C" fn name(delegate: *mut c_void) -> *const c_char {
    // SAFETY: `create` made it.
    unsafe { &*delegate.cast::<Exported>() }.name.as_ptr()
}

unsafe extern "C" fn versions(delegate: *mut c_void, count: *mut usize) -> *const DelegraphOpVersion {
    // SAFETY: `create` made it, and `count` is valid for a write.
    unsafe {
        let exported = &*delegate.cast::<Exported>();
        count.write(exported.versions.len());
        exported.versions.as_ptr()
    }
}

unsafe extern "C" fn capabilities(delegate: *mut c_void) -> u64 {
    // SAFETY: `create` made it.
    let can = unsafe { &*delegate.cast::<Exported>() }.capabilities;
    let flag = |on: bool, flag: u64| if on { flag } else { 0 };
    flag(can.dynamic_shapes, DELEGRAPH_CAN_DYNAMIC_SHAPES)
        | flag(can.propagated_shapes, DELEGRAPH_CAN_PROPAGATED_SHAPES)
}

unsafe extern "C" fn prepare(
    delegate: *mut c_void,
    context: DelegraphContext,
    error: *mut DelegraphError,
) -> i32 {
    // SAFETY: `create` made it, and no other call uses it; `error` is a buffer for a message.
    unsafe { contain::status(error, || (*delegate.cast::<Exported>()).prepare(context)) }
}

unsafe extern "C" fn end_prepare(delegate: *mut c_void) {
    // SAFETY: `create` made it, and no other call uses it.
    contain_quietly(|| unsafe { (*delegate.cast::<Exported>()).session = None });
}

unsafe extern "C" fn create_kernel(
    delegate: *mut c_void,
    _: DelegraphContext,
    claim: u64,
    partition: *const DelegraphPartition,
    kernel: *mut *mut c_void,
    error: *mut DelegraphError,
) -> i32 {
    // SAFETY: `create` made it, and no other call uses it; the other pointers follow the interface.
    unsafe {
        contain::status(error, || {
            let partition = read(partition).ok_or_else(|| Error::State("there is no partition".into()))?;
            let made = (*delegate.cast::<Exported>()).create_kernel(claim, &partition)?;
            kernel.write(Box::into_raw(Box::new(made)).cast());
            Ok(())
        })
    }
}

unsafe extern "C" fn destroy_kernel(kernel: *mut c_void) {
    // SAFETY: `create_kernel` made it, and it is destroyed once.
    contain_quietly(|| drop(unsafe { Box::from_raw(kernel.cast::<PartitionKernel>()) }));
}

unsafe extern "C" fn prepare_kernel(
    kernel: *mut c_void,
    context: DelegraphContext,
    call: *const DelegraphKernelCall,
    error: *mut DelegraphError,
) -> i32 {
    // SAFETY: `create_kernel` made it, and no other call uses it; the other pointers follow the interface.
    unsafe { contain::status(error, || (*kernel.cast::<PartitionKernel>()).prepare(context, call)) }
}

unsafe extern "C" fn invoke_kernel(
    kernel: *mut c_void,
    context: DelegraphContext,
    call: *const DelegraphKernelCall,
    error: *mut DelegraphError,
) -> i32 {
    // SAFETY: `create_kernel` made it, and no other call uses it; the other pointers follow the interface.
    unsafe { contain::status(error, || (*kernel.cast::<PartitionKernel>()).invoke(context, call)) }
}

unsafe extern "C" fn kernel_stats(kernel: *mut c_void, stats: *mut DelegraphStats) {
    contain_quietly(|| {
        // SAFETY: `create_kernel` made it, and no other call uses it; `stats` is a struct with its size.
        unsafe {
            let measured = (*kernel.cast::<PartitionKernel>()).stats();
            super::raw::write(stats, &measured);
        }
    });
}

unsafe extern "C" fn node_times(kernel: *mut c_void, count: *mut usize) -> *const DelegraphNodeTime {
    let mut times: &[DelegraphNodeTime] = &[];
    contain_quietly(|| {
        // SAFETY: `create_kernel` made it, and no other call uses it until the caller has read the times.
        times = unsafe { (*kernel.cast::<PartitionKernel>()).node_times() };
    });
    // SAFETY: `count` is valid for a write.
    unsafe { count.write(times.len()) };
    times.as_ptr()
}
