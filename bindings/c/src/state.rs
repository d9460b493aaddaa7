//! The mutable state of an interpreter: the runtime, the tensors that the application holds, and whether they have
//! memory.

use std::ffi::c_int;
use std::sync::{Arc, PoisonError};

use delegraph::core::TensorId;
use delegraph::core::error::{Error, Result, absent, counted};
use delegraph::core::graph::Subgraph;
use delegraph::core::kernel::Placement;
use delegraph::delegate_api::PartitionOptions;
use delegraph::interpreter::CancellationToken;
use delegraph::{Delegate, Interpreter, Model};

use crate::context::Owner;
use crate::delegate::{Buffers, Pointer};
use crate::kernel::Failure;
use crate::report::Reporter;
use crate::tensor::{Mirror, Place, Tensor, allocation, allocation_of};

/// The error of a run before memory is planned, as in TensorFlow Lite.
pub(crate) const NOT_READY: &str = "Invoke called on model that is not ready.";

/// `kTfLiteNullBufferHandle`.
pub(crate) const NO_BUFFER: c_int = -1;

/// An interpreter and its tensors.
pub(crate) struct State {
    /// The model of the file. The runtime may inline composites, which adds tensors at the end.
    pub(crate) model: Arc<Model>,
    interpreter: Interpreter,
    graphs: Vec<Graph>,
    /// Whether a failed delegate is removed.
    fallback: bool,
    /// Creates the interpreter again, with the data of intermediate tensors. `None` after it was called.
    preserving: Option<Rebuild>,
    /// The record of failures of the application's delegates.
    failures: Vec<Failure>,
    reporter: Reporter,
    /// Buffers of delegates for tensors of the first subgraph.
    buffers: Vec<Buffer>,
    /// Whether an output may stay in its buffer after a run.
    pub(crate) outputs_stay: bool,
    /// The context for functions on these buffers.
    context: Option<Arc<Owner>>,
}

/// Creates an interpreter that keeps the data of all tensors.
pub(crate) type Rebuild = Box<dyn Fn() -> Result<(Interpreter, Vec<Failure>)> + Send>;

/// A buffer of a delegate for a tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    tensor: usize,
    pub(crate) handle: c_int,
    pub(crate) delegate: Pointer,
}

/// The tensors of a subgraph.
#[derive(Default)]
struct Graph {
    /// The tensors that the application requested.
    mirrors: Vec<(usize, Mirror)>,
    /// Per tensor, its position in `mirrors`; empty before the first request.
    places: Vec<Option<usize>>,
    /// Memory of the application.
    custom: Vec<Custom>,
    /// Whether tensors have memory for the current shapes.
    allocated: bool,
}

/// Memory of the application for a tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Custom {
    pub(crate) tensor: usize,
    pub(crate) data: *mut u8,
    pub(crate) bytes: usize,
}

// SAFETY: the memory belongs to the application, which uses it and the interpreter on one thread at a time.
unsafe impl Send for Custom {}

impl State {
    /// Creates the state of an interpreter that is not prepared.
    pub(crate) fn new(
        model: Arc<Model>,
        interpreter: Interpreter,
        fallback: bool,
        failures: Vec<Failure>,
        reporter: Reporter,
        preserving: Rebuild,
    ) -> Self {
        let graphs = model.subgraphs().iter().map(|_| Graph::default()).collect();
        let (buffers, outputs_stay, context) = (Vec::new(), false, None);
        let preserving = Some(preserving);
        State {
            model,
            interpreter,
            graphs,
            fallback,
            preserving,
            failures,
            reporter,
            buffers,
            outputs_stay,
            context,
        }
    }

    /// Applies a delegate after the others, and plans memory again.
    ///
    /// # Errors
    /// The errors of [`State::allocate`], and of the delegate.
    pub(crate) fn add_delegate(
        &mut self,
        delegate: Box<dyn Delegate>,
        failure: Option<Failure>,
    ) -> Result<()> {
        self.failures.extend(failure);
        self.interpreter.add_delegate(delegate, PartitionOptions::default());
        let others: Vec<usize> =
            (1..self.graphs.len()).filter(|&graph| self.graphs[graph].allocated).collect();
        self.allocate(0)?;
        others.into_iter().try_for_each(|graph| self.allocate(graph))
    }

    fn graph(&self, subgraph: usize) -> Result<&Subgraph> {
        let count = self.model.subgraphs().len();
        let missing = || Error::InvalidInput(absent("subgraph", subgraph, "the model", count));
        self.model.subgraph(subgraph).ok_or_else(missing)
    }

    /// Returns a tensor for the application.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if it does not exist.
    pub(crate) fn tensor(&mut self, handle: usize, subgraph: usize, index: usize) -> Result<*mut Tensor> {
        let tensors = self.graph(subgraph)?.tensors();
        let count = tensors.len();
        let file = tensors
            .get(index)
            .ok_or_else(|| Error::InvalidInput(absent("tensor", index, "the subgraph", count)))?;
        if let Some(place) = self.graphs[subgraph].places.get(index).copied().flatten() {
            return Ok(self.graphs[subgraph].mirrors[place].1.pointer());
        }
        let mirror = Mirror::new(Tensor::new(file, Place { interpreter: handle, subgraph, index }));
        let pointer = mirror.pointer();
        self.interpreter.select_subgraph(subgraph)?;
        let graph = &mut self.graphs[subgraph];
        let place = graph.mirrors.len();
        graph.mirrors.push((index, mirror));
        graph.places.resize(count, None);
        graph.places[index] = Some(place);
        self.refresh(subgraph, place)?;
        Ok(pointer)
    }

    /// Updates the tensor at a position of `mirrors`. The subgraph must be selected.
    fn refresh(&mut self, subgraph: usize, place: usize) -> Result<()> {
        let graph = &mut self.graphs[subgraph];
        let Some((index, mirror)) = graph.mirrors.get_mut(place) else { return Ok(()) };
        let id = TensorId(*index);
        let Some(current) = self.interpreter.subgraph_tensor(subgraph, id) else { return Ok(()) };
        let tensor = mirror.tensor();
        tensor.set_shape(&current.shape);
        if let Some(custom) = graph.custom.iter().find(|custom| custom.tensor == id.0) {
            tensor.set_data(allocation::CUSTOM, custom.data, current.byte_size().unwrap_or(0));
            return Ok(());
        }
        let file = self.model.subgraph(subgraph).map(|graph| (graph, graph.tensor(id)));
        if let Some(bytes) = file.and_then(|(_, file)| self.model.constant(file)) {
            tensor.set_data(allocation::MMAP_RO, bytes.as_ptr().cast_mut(), bytes.len());
            return Ok(());
        }
        let kept =
            file.is_some_and(|(graph, _)| graph.inputs().contains(&id) || graph.outputs().contains(&id));
        let (placement, needed) = (current.placement(), current.byte_size().unwrap_or(0));
        let kind = allocation_of(placement);
        match placement {
            Placement::Constant => {
                let bytes = current.bytes();
                tensor.set_data(kind, bytes.as_ptr().cast_mut(), bytes.len());
            }
            Placement::Variable | Placement::Bound | Placement::Arena | Placement::Dynamic
                if graph.allocated && (kept || placement == Placement::Variable) =>
            {
                let bytes = self.interpreter.tensor_bytes_mut(id)?;
                let data = if bytes.is_empty() { std::ptr::null_mut() } else { bytes.as_mut_ptr() };
                tensor.set_data(kind, data, bytes.len());
            }
            _ => tensor.set_data(tensor.common.allocation_type, std::ptr::null_mut(), needed),
        }
        Ok(())
    }

    /// Updates all tensors of a subgraph, which must be selected.
    fn refresh_all(&mut self, subgraph: usize) -> Result<()> {
        (0..self.graphs[subgraph].mirrors.len()).try_for_each(|place| self.refresh(subgraph, place))
    }

    /// Plans memory for a subgraph, and resets its variables.
    ///
    /// # Errors
    /// The errors of [`Interpreter::prepare`]; [`Error::Delegate`] if a delegate of the application failed;
    /// [`Error::InvalidInput`] if memory of the application is too small.
    pub(crate) fn allocate(&mut self, subgraph: usize) -> Result<()> {
        self.graph(subgraph)?;
        self.interpreter.select_subgraph(subgraph)?;
        self.graphs[subgraph].allocated = false;
        let result = self.prepare(subgraph);
        self.graphs[subgraph].allocated = result.is_ok();
        self.refresh_all(subgraph)?;
        result
    }

    fn prepare(&mut self, subgraph: usize) -> Result<()> {
        let take = |failure: &Failure| failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.failures.iter().for_each(|failure| drop(take(failure)));
        self.interpreter.prepare()?;
        // The runtime continues without a delegate that failed; TensorFlow Lite reports it.
        if let Some(text) = self.failures.iter().find_map(take) {
            return Err(Error::delegate("of the application", text));
        }
        self.interpreter.reset_variable_tensors(subgraph)?;
        for custom in &self.graphs[subgraph].custom {
            let tensor = self.interpreter.tensor(TensorId(custom.tensor))?;
            let (needed, has) = (tensor.byte_size()?, custom.bytes);
            if has < needed {
                return Err(Error::InvalidInput(format!(
                    "the custom allocation of tensor {} has {}, {needed} are needed",
                    custom.tensor,
                    counted(has, "byte")
                )));
            }
        }
        Ok(())
    }

    /// Changes the shape of input `input` of a subgraph; `strict` keeps the dimensions that the model fixes.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such input, or it does not support the shape.
    pub(crate) fn resize(
        &mut self,
        subgraph: usize,
        input: i32,
        shape: &[usize],
        strict: bool,
    ) -> Result<()> {
        let graph = self.graph(subgraph)?;
        let id = usize::try_from(input).ok().and_then(|input| graph.inputs().get(input)).copied();
        let count = graph.inputs().len();
        let missing = || Error::InvalidInput(absent("input", input, "the subgraph", count));
        let id = id.ok_or_else(missing)?;
        if strict {
            check_strict(graph.tensor(id), shape)?;
        }
        self.interpreter.select_subgraph(subgraph)?;
        let input = usize::try_from(input).unwrap_or(0);
        if self.interpreter.input_tensor(input)?.shape.dims() == shape {
            return Ok(());
        }
        self.graphs[subgraph].allocated = false;
        let result = self.interpreter.resize_input_to_any(input, shape);
        self.refresh_all(subgraph)?;
        result
    }

    /// Runs a subgraph.
    ///
    /// # Errors
    /// [`Error::State`] before [`State::allocate`]; those of [`Interpreter::invoke`].
    pub(crate) fn invoke(&mut self, subgraph: usize) -> Result<()> {
        if !self.graphs.get(subgraph).is_some_and(|graph| graph.allocated) {
            return Err(Error::State(NOT_READY.into()));
        }
        self.interpreter.select_subgraph(subgraph)?;
        for custom in &self.graphs[subgraph].custom {
            let to = self.interpreter.tensor_bytes_mut(TensorId(custom.tensor))?;
            let count = to.len().min(custom.bytes);
            // SAFETY: the application keeps memory of this size until it sets another, and `allocate` compared the
            // sizes.
            unsafe { std::ptr::copy(custom.data, to.as_mut_ptr(), count) };
        }
        if self.fallback {
            self.interpreter.invoke_with_fallback()?;
            self.refresh_all(subgraph)?;
        } else {
            self.interpreter.invoke()?;
        }
        for custom in &self.graphs[subgraph].custom {
            let from = self.interpreter.tensor(TensorId(custom.tensor))?.bytes();
            // SAFETY: as above.
            unsafe { std::ptr::copy(from.as_ptr(), custom.data, from.len().min(custom.bytes)) };
        }
        self.refresh_dynamic(subgraph)?;
        if subgraph == 0 && !self.buffers.is_empty() { self.take_buffers() } else { Ok(()) }
    }

    /// Assigns a buffer of a delegate to an input or output of the first subgraph. Frees the handle of the previous
    /// one.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for other tensors, and for one with a buffer of another delegate.
    pub(crate) fn set_buffer(
        &mut self,
        tensor: *const Tensor,
        handle: c_int,
        delegate: Pointer,
    ) -> Result<()> {
        self.graph(0)?;
        let graph = &mut self.graphs[0];
        let mirror = graph.mirrors.iter_mut().find(|(_, mirror)| std::ptr::eq(mirror.pointer(), tensor));
        let (index, mirror) = mirror.ok_or_else(|| {
            Error::InvalidInput("the tensor is not one of the interpreter's first subgraph".into())
        })?;
        let old = self.buffers.iter().position(|buffer| buffer.tensor == *index);
        if old.is_some_and(|old| self.buffers[old].delegate.0 != delegate.0) {
            return Err(Error::InvalidInput(format!("tensor {index} has a buffer of another delegate")));
        }
        let common = &mut mirror.tensor().common;
        (common.delegate, common.buffer_handle, common.data_is_stale) = (delegate.0.cast(), handle, 0);
        let buffer = Buffer { tensor: *index, handle, delegate };
        let old = old.map(|old| self.buffers.swap_remove(old));
        self.buffers.push(buffer);
        old.map_or(Ok(()), |old| self.free(old))
    }

    /// Returns the buffer of a tensor.
    pub(crate) fn buffer(&self, tensor: c_int) -> Option<Buffer> {
        let index = usize::try_from(tensor).ok()?;
        self.buffers.iter().copied().find(|buffer| buffer.tensor == index)
    }

    fn context(&mut self) -> Result<Arc<Owner>> {
        let missing = || Error::State("the model has no subgraph".into());
        let graph = self.model.subgraph(0).ok_or_else(missing)?;
        let (model, reporter) = (&self.model, self.reporter);
        Ok(self.context.get_or_insert_with(|| Owner::of_subgraph(model, graph, Some(0), reporter)).clone())
    }

    fn free(&mut self, buffer: Buffer) -> Result<()> {
        let context = self.context()?;
        if buffer.handle != NO_BUFFER {
            // SAFETY: the delegate outlives the interpreter, and no reference into the context exists.
            unsafe { Buffers::of(buffer.delegate).free(context.pointer(), buffer.handle) };
        }
        Ok(())
    }

    /// Copies outputs from their buffers, or records that they are there.
    fn take_buffers(&mut self) -> Result<()> {
        for buffer in self.buffers.clone() {
            let id = TensorId(buffer.tensor);
            if buffer.handle == NO_BUFFER || !self.graph(0)?.outputs().contains(&id) {
                continue;
            }
            let mirror = self.graphs[0].mirrors.iter_mut().find(|(index, _)| *index == buffer.tensor);
            if let Some((_, mirror)) = mirror {
                mirror.tensor().common.data_is_stale = 1;
            }
            if !self.outputs_stay {
                self.read_buffer(buffer)?;
            }
        }
        Ok(())
    }

    /// Copies a tensor from its buffer, if its data are newer there.
    fn read_buffer(&mut self, buffer: Buffer) -> Result<()> {
        let context = self.context()?;
        let mirror = self.graphs[0].mirrors.iter_mut().find(|(index, _)| *index == buffer.tensor);
        let Some((_, mirror)) = mirror.filter(|(_, mirror)| {
            // SAFETY: the tensor lives as long as its mirror.
            unsafe { (*mirror.pointer()).common.data_is_stale != 0 }
        }) else {
            return Ok(());
        };
        let pointer = mirror.pointer();
        // SAFETY: the delegate outlives the interpreter; context and tensor live, and no references to them exist.
        unsafe { Buffers::of(buffer.delegate).copy_from(context.pointer(), buffer.handle, pointer.cast())? };
        mirror.tensor().common.data_is_stale = 0;
        Ok(())
    }

    /// Updates tensors whose memory or shape an invocation may change.
    fn refresh_dynamic(&mut self, subgraph: usize) -> Result<()> {
        for place in 0..self.graphs[subgraph].mirrors.len() {
            let id = TensorId(self.graphs[subgraph].mirrors[place].0);
            let tensor = self.interpreter.subgraph_tensor(subgraph, id);
            if tensor.is_some_and(|tensor| tensor.placement() == Placement::Dynamic) {
                self.refresh(subgraph, place)?;
            }
        }
        Ok(())
    }

    /// Sets the variables of all subgraphs to their initial values.
    ///
    /// # Errors
    /// If a variable cannot be written.
    pub(crate) fn reset_variables(&mut self) -> Result<()> {
        (0..self.graphs.len()).try_for_each(|subgraph| self.interpreter.reset_variable_tensors(subgraph))
    }

    /// Places a tensor of the first subgraph in memory of the application.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for constants, strings and tensors that do not exist; the errors of creating the runtime
    /// again for an intermediate tensor.
    pub(crate) fn set_custom(&mut self, custom: Custom) -> Result<()> {
        let graph = self.graph(0)?;
        let id = TensorId(custom.tensor);
        let file = graph.tensors().get(id.0);
        let border = graph.inputs().contains(&id) || graph.outputs().contains(&id);
        let kept = border || file.is_some_and(|file| file.is_variable());
        if !file.is_some_and(|file| !file.is_constant() && file.ty().bits().is_some()) {
            return Err(Error::InvalidInput(format!(
                "tensor {} cannot have a custom allocation: all tensors can, except strings and constants",
                custom.tensor
            )));
        }
        if !kept {
            self.preserve()?;
        }
        self.interpreter.select_subgraph(0)?;
        let own = &mut self.graphs[0];
        own.custom.retain(|other| other.tensor != custom.tensor);
        own.custom.push(custom);
        self.refresh_all(0)
    }

    /// Makes the runtime keep the data of intermediate tensors: creates it again, with the shapes of its inputs.
    fn preserve(&mut self) -> Result<()> {
        let Some(rebuild) = self.preserving.take() else { return Ok(()) };
        self.interpreter.select_subgraph(0)?;
        let count = self.interpreter.input_count();
        let shapes =
            (0..count).map(|input| self.interpreter.input_tensor(input).map(|tensor| tensor.shape.clone()));
        let shapes: Vec<_> = shapes.collect::<Result<_>>()?;
        (self.interpreter, self.failures) = rebuild()?;
        self.interpreter.select_subgraph(0)?;
        for (input, shape) in shapes.iter().enumerate() {
            if self.interpreter.input_tensor(input)?.shape != *shape {
                self.interpreter.resize_input_to_any(input, shape.dims())?;
            }
        }
        for subgraph in 0..self.graphs.len() {
            self.graphs[subgraph].allocated = false;
            if self.graphs[subgraph].mirrors.is_empty() {
                continue;
            }
            self.interpreter.select_subgraph(subgraph)?;
            self.refresh_all(subgraph)?;
        }
        Ok(())
    }

    /// Returns a token that cancels the calls of the runtime. The token may change after [`State::set_custom`].
    pub(crate) fn token(&self) -> CancellationToken {
        self.interpreter.cancellation_token()
    }

    /// Copies a tensor to the CPU's memory if a delegate holds it.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the tensor does not exist; those of the delegate.
    pub(crate) fn fetch(&mut self, index: i32) -> Result<()> {
        let graph = self.graph(0)?;
        let count = graph.tensors().len();
        let id = usize::try_from(index).ok().filter(|index| *index < count).map(TensorId);
        let missing = || Error::InvalidInput(absent("tensor", index, "the subgraph", count));
        let id = id.ok_or_else(missing)?;
        let output = graph.outputs().iter().position(|output| *output == id);
        if let Some(buffer) = self.buffer(index) {
            self.read_buffer(buffer)?;
        }
        self.interpreter.select_subgraph(0)?;
        output.map_or(Ok(()), |output| self.interpreter.fetch_output(output))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for buffer in std::mem::take(&mut self.buffers) {
            // Only a model without subgraphs has no context, and such a model has no buffers.
            let _ = self.free(buffer);
        }
    }
}

/// Compares a shape with the dimensions that the model fixes.
fn check_strict(file: &delegraph::core::graph::Tensor, shape: &[usize]) -> Result<()> {
    let fixed: Vec<Option<usize>> = match file.shape_signature() {
        Some(signature) if !signature.is_empty() => signature.to_vec(),
        _ => file.shape().dims().iter().copied().map(Some).collect(),
    };
    let fits = fixed.len() == shape.len() && fixed.iter().zip(shape).all(|(s, d)| s.is_none_or(|s| s == *d));
    if fits {
        return Ok(());
    }
    let dims: Vec<String> = fixed.iter().map(|dim| dim.map_or("-1".into(), |d| d.to_string())).collect();
    Err(Error::InvalidInput(format!("input \"{}\" takes [{}], not {shape:?}", file.name(), dims.join(", "))))
}
