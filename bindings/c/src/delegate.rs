//! Delegates of the application: opaque ones, which consist of functions, those with the classic interface, and the
//! library's own.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use delegraph::core::error::{Error, Result};
use delegraph::core::{Model, NodeId, Op};
use delegraph::delegate_api::{
    Capabilities, DelegateContext, DelegateKernel, DelegateParams, GraphView, VersionTable,
};
use delegraph::{Delegate, core::ops};

use crate::abi::{self, OpaqueBuilder, OpaqueParams};
use crate::arrays::Ints;
use crate::contain::guard;
use crate::context::{Owner, Partition, Replaced};
use crate::kernel::{Failure, ForeignKernel, Params};
use crate::operator::OPERATORS;
use crate::report::Reporter;
use crate::types::OK;

/// The flag of a delegate that supports shapes that are known only while the model runs.
const ALLOW_DYNAMIC_TENSORS: i64 = 1;

/// A delegate of the application, which outlives the interpreters that use it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pointer(pub(crate) *mut abi::Delegate);

// SAFETY: the interface requires that a delegate is used from the thread that uses the interpreter.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

/// Creates a delegate of the library itself.
pub(crate) type Own = Arc<dyn Fn() -> Result<Box<dyn Delegate>> + Send + Sync>;

/// The delegates that this library allocated, by address.
static KNOWN: Mutex<Option<HashMap<usize, Kind>>> = Mutex::new(None);

/// The functions of an opaque delegate, in memory of this library.
#[derive(Clone, Copy)]
struct Builder(*mut OpaqueBuilder);

// SAFETY: the address is only stored, and freed once.
unsafe impl Send for Builder {}

/// The kind of a delegate that this library allocated.
#[derive(Clone)]
enum Kind {
    Opaque(Builder),
    Own(Own),
}

/// Returns a structure for a delegate of this library.
fn structure(builder: *mut OpaqueBuilder) -> *mut abi::Delegate {
    Box::into_raw(Box::new(abi::Delegate { builder, ..TfLiteDelegateCreate() }))
}

fn register(delegate: *mut abi::Delegate, kind: Kind) -> *mut abi::Delegate {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.get_or_insert_default().insert(delegate.addr(), kind);
    delegate
}

/// Creates a delegate of the library.
pub(crate) fn create_own(own: Own) -> *mut abi::Delegate {
    register(structure(std::ptr::null_mut()), Kind::Own(own))
}

/// Deletes a delegate that this library created; reports others.
pub(crate) fn delete(function: &str, delegate: *mut abi::Delegate) {
    if delegate.is_null() {
        return;
    }
    let known = KNOWN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_mut()
        .and_then(|k| k.remove(&delegate.addr()));
    if known.is_none() {
        Reporter::default()
            .report(&format!("{function}: the delegate was not created by this library, or is deleted"));
        return;
    }
    // SAFETY: made by `structure`, and removed from the table: it is freed once.
    drop(unsafe { Box::from_raw(delegate) });
    if let Some(Kind::Opaque(builder)) = known {
        // SAFETY: the pointer is that of a box of `TfLiteOpaqueDelegateCreate`, and was removed from the table.
        drop(unsafe { Box::from_raw(builder.0) });
    }
}

/// Creates an opaque delegate; null for null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueDelegateCreate(
    builder: *const OpaqueBuilder,
) -> *mut abi::Delegate {
    guard("TfLiteOpaqueDelegateCreate", std::ptr::null_mut(), || {
        if builder.is_null() || !builder.is_aligned() {
            return std::ptr::null_mut();
        }
        // SAFETY: the interface requires null or a structure.
        let builder = Box::into_raw(Box::new(unsafe { *builder }));
        register(structure(builder), Kind::Opaque(Builder(builder)))
    })
}

/// Deletes an opaque delegate; null is allowed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteOpaqueDelegateDelete(delegate: *mut abi::Delegate) {
    guard("TfLiteOpaqueDelegateDelete", (), || delete("TfLiteOpaqueDelegateDelete", delegate));
}

/// Returns the data of a delegate; null for null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueDelegateGetData(delegate: *const abi::Delegate) -> *mut c_void {
    guard("TfLiteOpaqueDelegateGetData", std::ptr::null_mut(), || {
        if delegate.is_null() || !delegate.is_aligned() {
            return std::ptr::null_mut();
        }
        // SAFETY: the interface requires null or a live delegate; its builder lives as long.
        unsafe {
            let builder = (*delegate).builder;
            if builder.is_null() { (*delegate).data } else { (*builder).data }
        }
    })
}

/// Returns a delegate without functions.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteDelegateCreate() -> abi::Delegate {
    abi::Delegate {
        data: std::ptr::null_mut(),
        prepare: None,
        copy_from_buffer: None,
        copy_to_buffer: None,
        free_buffer: None,
        flags: 0,
        builder: std::ptr::null_mut(),
    }
}

/// Returns the delegate at an address of the application, to be applied to a model, and the record of its failures.
///
/// # Errors
/// [`Error::InvalidInput`] for null, and for a delegate without a function to prepare it; the errors of the library's
/// own delegates.
///
/// # Safety
/// The address is null or of a delegate that lives as long as the result.
pub(crate) unsafe fn open(
    pointer: Pointer,
    model: &Arc<Model>,
    reporter: Reporter,
) -> Result<(Box<dyn Delegate>, Option<Failure>)> {
    let known = KNOWN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .and_then(|k| k.get(&pointer.0.addr()).cloned());
    if let Some(Kind::Own(create)) = known {
        return create().map(|delegate| (delegate, None));
    }
    if pointer.0.is_null() || !pointer.0.is_aligned() {
        return Err(Error::InvalidInput("the delegate is null or misaligned".into()));
    }
    // SAFETY: guaranteed by the caller.
    let (builder, flags) = unsafe {
        let builder = (*pointer.0).builder;
        match builder.is_null() {
            true => (None, (*pointer.0).flags),
            false => (Some(*builder), (*builder).flags),
        }
    };
    // SAFETY: as above.
    let prepares =
        builder.map_or(unsafe { (*pointer.0).prepare.is_some() }, |builder| builder.prepare.is_some());
    if !prepares {
        return Err(Error::InvalidInput("the delegate has no function Prepare".into()));
    }
    let failure = Failure::default();
    let delegate = ForeignDelegate {
        pointer,
        builder,
        versions: every_op(model),
        dynamic: flags & ALLOW_DYNAMIC_TENSORS != 0,
        reporter,
        skipped: Vec::new(),
        failure: failure.clone(),
    };
    Ok((Box::new(delegate), Some(failure)))
}

/// Returns the version table of a delegate that checks versions itself.
fn every_op(model: &Model) -> VersionTable {
    let builtins = ops::DEFS.iter().map(|definition| (Op::Builtin(definition.op), u32::MAX));
    let nodes = model.subgraphs().iter().flat_map(|graph| graph.nodes());
    let custom = nodes.filter(|node| node.op().builtin().is_none()).map(|node| (node.op().clone(), u32::MAX));
    builtins.chain(custom).collect()
}

/// The functions of a delegate on its own buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffers(Pointer);

impl Buffers {
    pub(crate) fn of(delegate: Pointer) -> Self {
        Buffers(delegate)
    }

    /// Returns the functions of an opaque delegate.
    ///
    /// # Safety
    /// The delegate is live, or is null.
    unsafe fn builder(self) -> Option<OpaqueBuilder> {
        let delegate = (self.0).0;
        // SAFETY: guaranteed by the caller; a builder lives as long as its delegate.
        unsafe {
            if delegate.is_null() || (*delegate).builder.is_null() {
                None
            } else {
                Some(*(*delegate).builder)
            }
        }
    }

    /// Copies a buffer to the memory of a tensor.
    ///
    /// # Errors
    /// [`Error::Delegate`] if the delegate has no function for it, or the function fails.
    ///
    /// # Safety
    /// The delegate, the context and the tensor live, and no references to the latter exist.
    pub(crate) unsafe fn copy_from(
        self,
        context: *mut abi::Context,
        handle: c_int,
        tensor: *mut delegraph_litert::abi::Tensor,
    ) -> Result<()> {
        let delegate = (self.0).0;
        // SAFETY: guaranteed by the caller.
        let status = unsafe {
            match self.builder() {
                Some(builder) => {
                    builder.copy_from_buffer.map(|f| f(context, delegate, builder.data, handle, tensor))
                }
                None => (*delegate).copy_from_buffer.map(|f| f(context, delegate, handle, tensor)),
            }
        };
        match status {
            Some(OK) => Ok(()),
            Some(status) => {
                Err(Error::delegate("of the application", format!("CopyFromBufferHandle returned {status}")))
            }
            None => Err(Error::delegate("of the application", "it has no CopyFromBufferHandle")),
        }
    }

    /// Frees a handle, if the delegate has a function for it.
    ///
    /// # Safety
    /// The delegate and the context live, and no reference to the latter exists.
    pub(crate) unsafe fn free(self, context: *mut abi::Context, mut handle: c_int) {
        let delegate = (self.0).0;
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.builder() {
                Some(builder) => {
                    if let Some(f) = builder.free_buffer {
                        f(context, delegate, builder.data, &raw mut handle);
                    }
                }
                None => {
                    if let Some(f) = (*delegate).free_buffer {
                        f(context, delegate, &raw mut handle);
                    }
                }
            }
        }
    }
}

/// A delegate with functions of the application.
struct ForeignDelegate {
    pointer: Pointer,
    builder: Option<OpaqueBuilder>,
    versions: VersionTable,
    dynamic: bool,
    reporter: Reporter,
    /// Subgraphs that the delegate runs together with the nodes that call them.
    skipped: Vec<usize>,
    failure: Failure,
}

// SAFETY: the pointers belong to the application, which the interface requires to use an interpreter from one thread at
// a time.
unsafe impl Send for ForeignDelegate {}

impl ForeignDelegate {
    /// Calls the application's function with a context.
    fn call(&self, context: *mut abi::Context) -> c_int {
        // SAFETY: the application passed the functions for this use; the context is live, and there are no references
        // into it.
        unsafe {
            match self.builder.and_then(|builder| Some((builder.prepare?, builder.data))) {
                Some((prepare, data)) => prepare(context, self.pointer.0, data),
                // `open` checked that the function exists.
                None => (*self.pointer.0).prepare.map_or(OK, |f| f(context, self.pointer.0)),
            }
        }
    }
}

impl Delegate for ForeignDelegate {
    fn name(&self) -> &str {
        "delegate of the application"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default().with_dynamic_shapes(self.dynamic)
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let graph = cx.graph();
        if self.skipped.contains(&graph.index()) {
            return Ok(());
        }
        let owner = Owner::of_graph(&graph, self.reporter);
        owner.with(|context| context.begin(self.pointer.0, cx));
        let status = self.call(owner.pointer());
        let (replaced, skipped) = owner.with(|context| {
            context.forget_borrowed();
            context.end()
        });
        self.skipped.extend(skipped);
        if status != OK {
            let text = format!("Prepare returned the status {status}");
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| text.clone());
            return Err(Error::Kernel(text));
        }
        for Replaced { functions, operator, nodes } in replaced {
            let nodes: Vec<NodeId> = nodes.into_iter().map(NodeId).collect();
            let (owner, failure) = (owner.clone(), self.failure.clone());
            let (pointer, builder) = (self.pointer, self.builder.map(|builder| Data(builder.data)));
            cx.claim(&nodes, move |params, graph| {
                let kernel = Making { owner: &owner, operator, pointer, data: builder, failure: &failure };
                kernel.make(functions, params, graph)
            });
        }
        Ok(())
    }
}

/// The data of an opaque delegate.
#[derive(Clone, Copy)]
struct Data(*mut c_void);

/// The parts of a partition's kernel.
struct Making<'m> {
    owner: &'m Arc<Owner>,
    operator: *mut crate::operator::OperatorHandle,
    pointer: Pointer,
    data: Option<Data>,
    failure: &'m Failure,
}

impl Making<'_> {
    fn make(
        &self,
        functions: crate::operator::Functions,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        let partition = Partition::new(params, graph);
        let (inputs, outputs) =
            (Ints::of(partition.inputs.iter().copied()), Ints::of(partition.outputs.iter().copied()));
        let node = self.owner.with(|context| {
            for &tensor in &partition.inputs {
                let info = graph.tensor(delegraph::core::TensorId(tensor));
                let missing = context.tensors.get(tensor).is_some_and(|raw| raw.data.is_null());
                if let Some(bytes) = info.constant().filter(|_| missing) {
                    let budget = context.budget.clone();
                    context.tensors.set_copy(tensor, bytes, &budget)?;
                }
            }
            Ok::<_, Error>(context.nodes.add(
                self.operator,
                Ints::of(partition.inputs.iter().copied()),
                Ints::of(partition.outputs.iter().copied()),
            ))
        })?;
        let delegate = self.pointer.0;
        // SAFETY: the node belongs to the context, which is live.
        unsafe { (*node).raw.delegate = delegate.cast() };
        let lists = (partition.nodes.pointer(), inputs.pointer(), outputs.pointer());
        let buffer = match self.data {
            Some(Data(delegate_data)) => Params::Opaque(OpaqueParams {
                delegate,
                delegate_data,
                nodes: lists.0,
                inputs: lists.1,
                outputs: lists.2,
            }),
            None => Params::Classic(abi::DelegateParams {
                delegate,
                nodes: lists.0,
                inputs: lists.1,
                outputs: lists.2,
            }),
        };
        let name =
            OPERATORS.get(self.operator).and_then(|o| o.text().map(|t| t.to_string_lossy().into_owned()));
        let name = name.unwrap_or_else(|| "delegate of the application".into());
        let kernel = ForeignKernel::new(name, functions, self.owner.clone(), node, buffer.buffer());
        let note = |error: Error| {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert_with(|| error.to_string());
            error
        };
        let inputs: Vec<_> = params.inputs.iter().copied().map(Some).collect();
        let kernel = kernel.map_err(note)?.with_tensors(&inputs, &params.outputs);
        Ok(Box::new(kernel.noting(self.failure.clone())))
    }
}
