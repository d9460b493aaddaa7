//! Kernels of the application: custom ops, replaced builtin ops, and the partitions of its delegates.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use delegraph::core::TensorId;
use delegraph::core::error::{Error, Result, counted};
use delegraph::core::kernel::{InvokeContext, Kernel, Placement, PrepareContext, Strings};
use delegraph::core::{Shape, TensorType};
use delegraph::delegate_api::DelegateKernel;

use crate::abi;
use crate::context::{Node, Owner, Phase};
use crate::operator::Functions;
use crate::tensor::allocation;
use crate::types::{self, CANCELLED, OK, Status};

/// The result of `init` that means a failure (`TfLiteKernelInitFailed`).
const INIT_FAILED: usize = usize::MAX;

/// A kernel that calls functions of the application.
pub(crate) struct ForeignKernel {
    name: String,
    functions: Functions,
    context: Arc<Owner>,
    node: *mut Node,
    state: *mut c_void,
    /// Per input that the runtime passes, without repetitions: its position, and the index of its tensor.
    inputs: Vec<(usize, usize)>,
    /// Per output, the index of its tensor.
    outputs: Vec<usize>,
    /// The record of failures, which are also returned.
    on_failure: Option<Failure>,
}

/// Records the first failure of a delegate.
pub(crate) type Failure = Arc<Mutex<Option<String>>>;

// SAFETY: node and state belong to the context and the application, and are used by the thread that uses the kernel.
unsafe impl Send for ForeignKernel {}

impl ForeignKernel {
    /// Creates the kernel of a node: calls its `init` with `buffer`.
    ///
    /// # Errors
    /// [`Error::Kernel`] if `init` fails.
    pub(crate) fn new(
        name: String,
        functions: Functions,
        context: Arc<Owner>,
        node: *mut Node,
        buffer: (*const c_char, usize),
    ) -> Result<Self> {
        let (inputs, outputs) = Default::default();
        let mut kernel = ForeignKernel {
            name,
            functions,
            context,
            node,
            state: std::ptr::null_mut(),
            inputs,
            outputs,
            on_failure: None,
        };
        kernel.context.with(|context| {
            context.phase = Phase::Prepare;
            context.synchronize();
        });
        // SAFETY: the context is live, and there are no references into it. The buffer belongs to the caller.
        let state = unsafe { kernel.functions.init(kernel.context.pointer(), buffer.0, buffer.1) };
        kernel.state = state;
        if state.addr() == INIT_FAILED {
            return Err(kernel.failed("init failed".into()));
        }
        // SAFETY: the node belongs to the context, which is live. No reference to it exists.
        unsafe { (*node).raw.user_data = state };
        Ok(kernel)
    }

    /// Sets the tensors that the runtime passes, in its order.
    #[must_use]
    pub(crate) fn with_tensors(mut self, inputs: &[Option<TensorId>], outputs: &[TensorId]) -> Self {
        let mut seen = std::collections::HashSet::new();
        let present = inputs.iter().enumerate().filter_map(|(position, id)| Some((position, (*id)?.0)));
        self.inputs = present.filter(|(_, tensor)| seen.insert(*tensor)).collect();
        self.outputs = outputs.iter().map(|id| id.0).collect();
        self
    }

    /// Sets the record of failures.
    #[must_use]
    pub(crate) fn noting(mut self, failure: Failure) -> Self {
        self.on_failure = Some(failure);
        self
    }

    fn failed(&self, what: String) -> Error {
        let text = format!("{}: {what}", self.name);
        if let Some(failure) = &self.on_failure {
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| text.clone());
        }
        Error::Kernel(text)
    }

    fn check(&self, function: &str, status: Option<Status>) -> Result<()> {
        match status {
            Some(OK) => Ok(()),
            Some(CANCELLED) => Err(Error::Cancelled),
            Some(status) => Err(self.failed(format!("{function} returned the status {status}"))),
            None => Err(self.failed(format!("it has no function {function}"))),
        }
    }

    /// Passes the inputs and outputs to the application, in their state before the kernel is prepared.
    fn describe(&self, cx: &PrepareContext<'_>) -> Result<()> {
        self.context.with(|context| {
            context.budget = cx.budget().clone();
            context.set_threads(cx.threads());
            for &(position, tensor) in &self.inputs {
                let view = cx.input(position)?;
                let constant = context.tensors.get(tensor).is_some_and(|raw| {
                    matches!(raw.allocation_type, allocation::MMAP_RO | allocation::PERSISTENT_RO)
                });
                if constant && !context.tensors.get(tensor).is_some_and(|raw| raw.data.is_null()) {
                    continue;
                }
                context.tensors.update(tensor, view.tensor());
                let bytes = view.tensor().byte_size().unwrap_or(0);
                match view.constant_bytes() {
                    Some(bytes) => {
                        context.tensors.set_data(tensor, bytes.as_ptr().cast_mut(), bytes.len());
                    }
                    None => context.tensors.set_data(tensor, std::ptr::null_mut(), bytes),
                }
            }
            for (position, &tensor) in self.outputs.iter().enumerate() {
                let output = cx.output(position)?;
                context.tensors.update(tensor, output.tensor());
                let dynamic =
                    context.tensors.get(tensor).is_some_and(|t| t.allocation_type == allocation::DYNAMIC);
                if !dynamic {
                    let bytes = output.tensor().byte_size().unwrap_or(0);
                    context.tensors.set_data(tensor, std::ptr::null_mut(), bytes);
                }
            }
            context.phase = Phase::Prepare;
            context.synchronize();
            Ok(())
        })
    }

    /// Reads the output shapes that the application set, and allocates its temporaries.
    fn take_shapes(&self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.context.with(|context| {
            for (position, &tensor) in self.outputs.iter().enumerate() {
                let raw = context.tensors.get(tensor);
                let (kind, ty) = raw.map_or((0, 0), |raw| (raw.allocation_type, raw.ty));
                let own = cx.output(position)?;
                if ty != types::number(own.ty()) {
                    let (from, to) = (own.ty(), types::name(ty).unwrap_or(c"an unknown type"));
                    return Err(self.failed(format!("output {position} changed from {from} to {to:?}")));
                }
                if kind == allocation::DYNAMIC {
                    cx.set_output_data_dependent(position)?;
                    continue;
                }
                let shape = shape_of(context.tensors.dims(tensor))
                    .ok_or_else(|| self.failed(format!("output {position} has no shape")))?;
                if *own.shape() != shape {
                    cx.set_output_shape(position, shape)?;
                }
            }
            // SAFETY: the node belongs to the context, which is live.
            let temporaries = unsafe { (*self.node).temporaries() }.to_vec();
            for temporary in temporaries {
                let index =
                    usize::try_from(temporary).ok().filter(|index| *index >= context.tensors.in_model());
                let Some((index, raw)) = index.and_then(|index| Some((index, context.tensors.get(index)?)))
                else {
                    return Err(self.failed(format!("tensor {temporary} is not a temporary")));
                };
                let (bytes, kind) = (raw.bytes, raw.allocation_type);
                if matches!(kind, allocation::ARENA_RW | allocation::ARENA_RW_PERSISTENT) {
                    let budget = context.budget.clone();
                    context.tensors.allocate(index, bytes, &budget)?;
                    context.tensors.set_allocation_type(index, kind);
                }
            }
            Ok(())
        })
    }

    /// Points the tensors at the memory of an invocation.
    fn point(&self, cx: &mut InvokeContext<'_>) -> Result<()> {
        self.context.with(|context| {
            for &(position, tensor) in &self.inputs {
                let current = cx.input_tensor(position)?;
                let placement = current.placement();
                context.tensors.set_shape(tensor, &current.shape);
                let (data, bytes) = match placement {
                    Placement::Variable => {
                        let bytes = cx.variable_bytes(position)?;
                        (bytes.as_mut_ptr(), bytes.len())
                    }
                    _ => {
                        let bytes = cx.input_bytes(position)?;
                        (bytes.as_ptr().cast_mut(), bytes.len())
                    }
                };
                context.tensors.set_data(tensor, data, bytes);
            }
            for (position, &tensor) in self.outputs.iter().enumerate() {
                let dynamic =
                    context.tensors.get(tensor).is_some_and(|t| t.allocation_type == allocation::DYNAMIC);
                if !dynamic {
                    context.tensors.set_shape(tensor, cx.output_shape(position)?);
                    let bytes = cx.output_bytes(position)?;
                    context.tensors.set_data(tensor, bytes.as_mut_ptr(), bytes.len());
                }
            }
            context.phase = Phase::Invoke;
            context.synchronize();
            Ok(())
        })
    }

    /// Ends a call of the application's code: reads its changes of outputs and temporaries.
    fn reconcile(&self) {
        self.context.with(|context| {
            context.phase = Phase::Prepare;
            // SAFETY: the node belongs to the context, which is live.
            let temporaries = unsafe { (*self.node).temporaries() };
            let added = temporaries.iter().filter_map(|&index| usize::try_from(index).ok());
            let added = added.filter(|index| *index >= context.tensors.in_model());
            let changed: Vec<usize> = self.outputs.iter().copied().chain(added).collect();
            changed.into_iter().for_each(|index| context.tensors.reconcile(index));
        });
    }

    /// Copies outputs whose size the application set while running.
    fn take_dynamic(&self, cx: &mut InvokeContext<'_>) -> Result<()> {
        self.context.with(|context| {
            for (position, &tensor) in self.outputs.iter().enumerate() {
                let Some(raw) = context.tensors.get(tensor) else { continue };
                if raw.allocation_type != allocation::DYNAMIC {
                    continue;
                }
                let (data, bytes, ty) = (raw.data.cast::<u8>(), raw.bytes, raw.ty);
                let dims = context.tensors.dims(tensor);
                let shape = shape_of(dims);
                let shape = shape.ok_or_else(|| self.failed(format!("output {position} has no shape")))?;
                let needed = context.tensors.byte_size(tensor, dims)?;
                if needed.is_some_and(|needed| needed != bytes) || (data.is_null() && bytes > 0) {
                    let bytes = counted(bytes, "byte");
                    return Err(self.failed(format!("output {position} has {bytes} for the shape {shape}")));
                }
                let data = if data.is_null() { std::ptr::NonNull::dangling().as_ptr() } else { data };
                // SAFETY: the memory of the tensor has `bytes` bytes: it was allocated by `reallocate`, or by the
                // application with the interface's function for it. Null has none.
                let from = unsafe { std::slice::from_raw_parts(data, bytes) };
                if types::element(ty) == Some(TensorType::String) {
                    Strings::parse(from).map_err(|e| self.failed(format!("output {position}: {e}")))?;
                }
                cx.resize_output_bytes(position, shape, bytes)?;
                cx.output_bytes(position)?.copy_from_slice(from);
            }
            Ok(())
        })
    }
}

impl Kernel for ForeignKernel {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.describe(cx)?;
        let context = self.context.pointer();
        // SAFETY: the context is live, there are no references into it, and the node belongs to it.
        let status = unsafe { self.functions.prepare(context, self.node.cast()) };
        self.reconcile();
        if status.is_some() {
            self.check("prepare", status)?;
        }
        self.take_shapes(cx)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        self.point(cx)?;
        // SAFETY: as in `prepare`. The tensors point at memory that is valid until `cx` is used again.
        let status = unsafe { self.functions.invoke(self.context.pointer(), self.node.cast()) };
        self.reconcile();
        self.check("invoke", status)?;
        self.take_dynamic(cx)
    }
}

impl DelegateKernel for ForeignKernel {}

impl Drop for ForeignKernel {
    fn drop(&mut self) {
        if self.state.addr() != INIT_FAILED {
            // SAFETY: the context is live, and there are no references into it; `init` returned the state.
            unsafe { self.functions.free(self.context.pointer(), self.state) };
        }
    }
}

/// The lists that `init` of a delegate's kernel reads.
pub(crate) enum Params {
    Opaque(abi::OpaqueParams),
    Classic(abi::DelegateParams),
}

impl Params {
    /// Returns the buffer for `init`.
    pub(crate) fn buffer(&self) -> (*const c_char, usize) {
        match self {
            Params::Opaque(params) => ((&raw const *params).cast(), size_of::<abi::OpaqueParams>()),
            Params::Classic(params) => ((&raw const *params).cast(), size_of::<abi::DelegateParams>()),
        }
    }
}

/// Returns dimensions as a shape; `None` for a negative one.
fn shape_of(dims: &[c_int]) -> Option<Shape> {
    let dims: Option<Vec<usize>> = dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    dims.map(|dims| Shape::new(&dims))
}
