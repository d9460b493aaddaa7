//! The interpreter: a model, kernels, delegates, inputs and outputs.

use std::fmt;
use std::sync::Arc;
use std::task::Context;

use delegraph_core::error::{Error, Result, absent, counted};
use delegraph_core::kernel::{AlignedBuffer, Placement, RuntimeTensor, Strings};
use delegraph_core::{Element, Model, Shape, Signature, TensorId, TensorType};
use delegraph_delegate_api::{
    BufferHandle, Callees, Delegate, DelegateStats, DeviceKernel, GraphView, PartitionOptions, Report,
};

use super::delegation::Exclusion;
use super::engine::{Engine, Slot};
use super::fallback::{self, State};
use super::host::{CancellationToken, Profiler};
use super::rewrite::ModelRewrite;
use super::subgraph::{Cursor, MemoryReport, Parts, Planned, Progress};

/// Runs a model.
///
/// ```
/// use delegraph_core::{Model, ModelBytes};
/// use delegraph_interpreter::Interpreter;
///
/// # fn main() -> delegraph_core::Result<()> {
/// let file = include_bytes!("../../../assets/digits/digits_float32.tflite");
/// let model = Model::from_bytes(ModelBytes::new(&file[..]))?;
/// let mut interpreter = Interpreter::builder(model).threads(2).build()?;
/// interpreter.input_mut::<f32>(0)?.fill(0.0);
/// interpreter.invoke()?;
/// assert_eq!(interpreter.output::<f32>(0)?.len(), 10);
/// # Ok(())
/// # }
/// ```
pub struct Interpreter {
    engine: Engine,
    /// The report of a subgraph that is not prepared.
    empty_report: Report,
    /// The selected subgraph, whose inputs and outputs are those of the interpreter.
    entry: usize,
    rewrite: Option<Box<dyn ModelRewrite>>,
}

impl fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreter")
            .field("model", &self.model().path())
            .field("subgraph", &self.entry)
            .finish_non_exhaustive()
    }
}

impl Interpreter {
    /// Returns the model as it runs. Composites without a delegate or a kernel of their name are replaced by their
    /// bodies; nodes then have other numbers than in the model that the interpreter was created for.
    pub fn model(&self) -> &Arc<Model> {
        &self.engine.model
    }

    /// Returns the rewriting that the model went through before it was prepared.
    pub(crate) fn model_rewrite(&self) -> Option<&dyn ModelRewrite> {
        self.rewrite.as_deref()
    }

    pub(super) fn new(engine: Engine, rewrite: Option<Box<dyn ModelRewrite>>) -> Self {
        Interpreter { engine, empty_report: Report::default(), entry: 0, rewrite }
    }

    /// Selects the subgraph of the signature `key`. Inputs, outputs and `invoke` then refer to this subgraph.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the model does not have the signature; the errors of creating kernels.
    pub fn select_signature(&mut self, key: &str) -> Result<Signature> {
        let signature = self.model().signature(key).cloned().ok_or_else(|| {
            let keys: Vec<&str> = self.model().signatures().iter().map(|s| s.key()).collect();
            let has = match keys.as_slice() {
                [] => "the model has no signatures".into(),
                keys => format!("the model has: {}", keys.join(", ")),
            };
            Error::InvalidInput(format!("no signature \"{key}\"; {has}"))
        })?;
        self.engine.create(signature.subgraph())?;
        self.entry = signature.subgraph();
        Ok(signature)
    }

    /// Selects subgraph `index`, as [`Interpreter::select_signature`] does by a signature's key.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the model does not have the subgraph; the errors of creating kernels.
    pub fn select_subgraph(&mut self, index: usize) -> Result<()> {
        let count = self.model().subgraphs().len();
        if index >= count {
            return Err(no_such("subgraph", index, count));
        }
        self.engine.create(index)?;
        self.entry = index;
        Ok(())
    }

    /// Returns the number of inputs.
    pub fn input_count(&self) -> usize {
        self.ids().0.len()
    }

    /// Returns the number of outputs.
    pub fn output_count(&self) -> usize {
        self.ids().1.len()
    }

    /// Returns input `i` with its type, shape and quantization.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such input.
    pub fn input_tensor(&self, i: usize) -> Result<&RuntimeTensor> {
        let id = self.input_id(i)?;
        Ok(&self.parts()?.tensors[id.0])
    }

    /// Returns output `i` with its type, shape, quantization and, after `invoke`, data.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such output.
    pub fn output_tensor(&self, i: usize) -> Result<&RuntimeTensor> {
        let id = self.output_id(i)?;
        Ok(&self.parts()?.tensors[id.0])
    }

    /// As [`Interpreter::output_tensor`], with an error if the data are not in the CPU's memory.
    fn output_on_cpu(&self, i: usize) -> Result<&RuntimeTensor> {
        if self.output_buffer(i).is_some() {
            return Err(Error::State(format!(
                "output {i} is in a delegate's buffer; `fetch_output({i})` copies it to the CPU's memory"
            )));
        }
        self.output_tensor(i)
    }

    /// Returns the elements of input `i`, mutable. The values persist between calls of `invoke`.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such input, or its elements are not of type `T`; [`Error::State`] if the
    /// input is a constant; those of [`Interpreter::prepare`].
    pub fn input_mut<T: Element>(&mut self, i: usize) -> Result<&mut [T]> {
        self.prepare()?;
        let id = self.input_id(i)?;
        let tensor = &mut self.parts_mut()?.tensors[id.0];
        let ty = tensor.ty;
        tensor.elements_mut().map_err(|e| match e {
            Error::Unsupported(_) => {
                Error::InvalidInput(format!("input {i} has elements of type {ty}, not {}", T::TYPE))
            }
            e => e,
        })
    }

    /// Returns the bytes of input `i`, mutable. The length of a string tensor is changed by
    /// [`Interpreter::set_input_bytes`].
    ///
    /// # Errors
    /// As [`Interpreter::input_mut`], without the check of the type.
    pub fn input_bytes_mut(&mut self, i: usize) -> Result<&mut [u8]> {
        self.prepare()?;
        let id = self.input_id(i)?;
        self.parts_mut()?.tensors[id.0].bytes_mut()
    }

    /// Copies `bytes` to input `i`. A string tensor accepts any number of bytes: its strings in the encoding of the
    /// format, see [`Strings`].
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the number of bytes differs from that of the input's type and shape, or if the bytes
    /// of a string tensor are malformed or their number of strings does not fit the shape; as
    /// [`Interpreter::input_bytes_mut`].
    pub fn set_input_bytes(&mut self, i: usize, bytes: &[u8]) -> Result<()> {
        self.prepare()?;
        let id = self.input_id(i)?;
        let tensor = &mut self.parts_mut()?.tensors[id.0];
        if tensor.ty == TensorType::String {
            tensor.check_strings(bytes)?;
            tensor.allocate_bytes(Placement::Dynamic, bytes.len())?;
        }
        let target = tensor.bytes_mut()?;
        if target.len() != bytes.len() {
            let (needed, given) = (target.len(), bytes.len());
            return Err(Error::InvalidInput(format!(
                "input {i} takes {}, not {given}",
                counted(needed, "byte")
            )));
        }
        target.copy_from_slice(bytes);
        Ok(())
    }

    /// Sets the strings of input `i`, a string tensor. [`RuntimeTensor::strings`] reads the strings of an output.
    ///
    /// # Errors
    /// As [`Interpreter::set_input_bytes`].
    pub fn set_input_strings<S: AsRef<[u8]>>(&mut self, i: usize, strings: &[S]) -> Result<()> {
        self.set_input_bytes(i, &Strings::encode(strings.iter().map(AsRef::as_ref))?)
    }

    /// Returns the elements of output `i` after the last `invoke`.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such output; [`Error::Unsupported`] if its elements are not of type `T`;
    /// [`Error::State`] if the output is in a delegate's buffer.
    pub fn output<T: Element>(&self, i: usize) -> Result<&[T]> {
        self.output_on_cpu(i)?.elements()
    }

    /// Returns the index of the input with this name in the selected signature or, if there is none, of the input whose
    /// tensor has the name.
    pub fn input_index(&self, name: &str) -> Option<usize> {
        self.index_of(name, self.ids().0, |signature| signature.inputs())
    }

    /// Returns the index of the output with this name in the selected signature or, if there is none, of the output
    /// whose tensor has the name.
    pub fn output_index(&self, name: &str) -> Option<usize> {
        self.index_of(name, self.ids().1, |signature| signature.outputs())
    }

    fn index_of(
        &self,
        name: &str,
        ids: &[TensorId],
        names: impl Fn(&Signature) -> &[(String, TensorId)],
    ) -> Option<usize> {
        let model = self.model();
        let signatures = model.signatures().iter().filter(|s| s.subgraph() == self.entry);
        let named = signatures.flat_map(|s| names(s).iter()).find(|(n, _)| n == name).map(|(_, id)| *id);
        let subgraph = &model.subgraphs()[self.entry];
        ids.iter().position(|id| match named {
            Some(named) => named == *id,
            None => subgraph.tensor(*id).name() == name,
        })
    }

    /// Returns any tensor of the selected subgraph after the last `invoke`. Only inputs, outputs, constants of the file
    /// and variables keep their data, unless the interpreter was built with
    /// [`preserve_all_tensors`](crate::InterpreterBuilder::preserve_all_tensors).
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such tensor.
    pub fn tensor(&self, id: TensorId) -> Result<&RuntimeTensor> {
        let tensors = &self.parts()?.tensors;
        tensors.get(id.0).ok_or_else(|| no_such("tensor", id.0, tensors.len()))
    }

    /// As [`Interpreter::tensor`], for any subgraph. `None` if there is no such tensor, or the subgraph was never used.
    pub fn subgraph_tensor(&self, subgraph: usize, id: TensorId) -> Option<&RuntimeTensor> {
        self.engine.slots.get(subgraph)?.parts().tensors.get(id.0)
    }

    /// Returns the bytes of any tensor of the selected subgraph, mutable: those of an input, or of a variable. Empty
    /// before the tensor has memory. Written bytes of other tensors are lost in the next `invoke`.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such tensor; [`Error::State`] for a constant.
    pub fn tensor_bytes_mut(&mut self, id: TensorId) -> Result<&mut [u8]> {
        let tensors = &mut self.parts_mut()?.tensors;
        let count = tensors.len();
        tensors.get_mut(id.0).ok_or_else(|| no_such("tensor", id.0, count))?.bytes_mut()
    }

    /// Binds input `i` to `buffer`, so that data need not be copied: the application fills a buffer elsewhere and
    /// passes it in. Returns the buffer that was bound before. Only the first binding plans memory again, which
    /// invalidates outputs; exchanging buffers later has no cost.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such input, or the buffer does not have its size; [`Error::State`] if the
    /// input is constant, a variable, or a string tensor; those of [`Interpreter::prepare`].
    pub fn bind_input(&mut self, i: usize, buffer: AlignedBuffer) -> Result<Option<AlignedBuffer>> {
        self.prepare()?;
        let id = self.input_id(i)?;
        self.bind(id, buffer)
    }

    /// Binds output `i` to `buffer`. Returns the buffer that was bound before, with the results of the last invocation.
    /// With two buffers, results can be read while the next invocation runs.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such output, or the buffer does not have its size; [`Error::State`] if
    /// the output is constant, an input, a variable, a string tensor, or has a shape that depends on data; those of
    /// [`Interpreter::prepare`].
    pub fn bind_output(&mut self, i: usize, buffer: AlignedBuffer) -> Result<Option<AlignedBuffer>> {
        self.prepare()?;
        let id = self.output_id(i)?;
        if self.ids().0.contains(&id) {
            return Err(Error::State(format!("output {i} is an input; bind that")));
        }
        self.bind(id, buffer)
    }

    fn bind(&mut self, id: TensorId, buffer: AlignedBuffer) -> Result<Option<AlignedBuffer>> {
        let bound = self.planned()?.is_bound(id)?;
        let before = self.parts_mut()?.tensors[id.0].bind(buffer)?;
        if !bound {
            self.engine.unprepare(self.entry)?;
        }
        Ok(before)
    }

    /// Sets the profiler that receives every step; `None` removes it.
    pub fn set_profiler(&mut self, profiler: Option<Box<dyn Profiler>>) {
        self.engine.observer.profiler = profiler;
    }

    /// Returns a token that cancels invocations of this interpreter, from any thread.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.engine.observer.token().clone()
    }

    /// Sets another shape for input `i`. Shapes are inferred again at the next use; inputs and outputs lose their data.
    /// Inputs and outputs whose size changes are no longer bound to a buffer; the buffer is dropped.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such input, it is a constant, or the model fixes the dimensions that would
    /// change.
    pub fn resize_input(&mut self, i: usize, shape: &[usize]) -> Result<()> {
        let id = self.input_id(i)?;
        let file = self.engine.model.subgraphs()[self.entry].tensor(id);
        if file.shape().dims() != shape && file.is_constant() {
            let text = format!("input {i} (\"{}\") is constant and cannot be resized", file.name());
            return Err(Error::InvalidInput(text));
        }
        if file.shape().dims() != shape && !file.accepts(shape) {
            let dims =
                file.shape_signature().into_iter().flatten().map(|d| d.map_or("?".into(), |d| d.to_string()));
            let dims = dims.collect::<Vec<_>>().join(", ");
            let wanted = Shape::new(shape);
            return Err(Error::InvalidInput(format!(
                "input {i} (\"{}\") takes [{dims}], not {wanted}",
                file.name()
            )));
        }
        let shape = Shape::new(shape);
        self.engine.resize_input(self.entry, id, &shape)
    }

    /// As [`Interpreter::resize_input`], also if the model fixes the dimensions that change, as in TFLite without
    /// strict resizing. Whether the ops of the model accept the shape is checked by [`Interpreter::prepare`].
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such input, or it is a constant.
    pub fn resize_input_to_any(&mut self, i: usize, shape: &[usize]) -> Result<()> {
        let id = self.input_id(i)?;
        let file = self.engine.model.subgraphs()[self.entry].tensor(id);
        if file.shape().dims() != shape && file.is_constant() {
            let text = format!("input {i} (\"{}\") is constant and cannot be resized", file.name());
            return Err(Error::InvalidInput(text));
        }
        self.engine.resize_input(self.entry, id, &Shape::new(shape))
    }

    /// Prepares the selected subgraph again after a resize. `invoke` calls it.
    ///
    /// # Errors
    /// The errors of op definitions and kernels, with the node. A delegate's failure is an error only with
    /// [`Policy::Require`](delegraph_delegate_api::Policy::Require); otherwise everything is prepared again without the
    /// delegate, and the report has the failure.
    pub fn prepare(&mut self) -> Result<()> {
        self.engine.prepare(self.entry)
    }

    /// Computes the outputs from the inputs. Does not allocate if all shapes are known. Blocks while a delegate's
    /// kernel is pending.
    ///
    /// # Errors
    /// [`Error::Delegate`] with delegate, partition and nodes if a delegate fails; the error of a CPU kernel, with its
    /// node; [`Error::Cancelled`]; [`Error::LimitExceeded`]. Outputs and variables then have the values that the
    /// completed steps wrote. The errors of [`Interpreter::prepare`].
    pub fn invoke(&mut self) -> Result<()> {
        self.prepare()?;
        match self.advance(&mut Cursor::default(), None)? {
            Progress::Done => Ok(()),
            Progress::Pending => {
                Err(Error::State("a blocking call returned while a step was pending".into()))
            }
        }
    }

    /// Runs a prepared subgraph from `cursor` to its end or, with `task`, to the first step that is pending.
    pub(super) fn advance(
        &mut self,
        cursor: &mut Cursor,
        task: Option<&mut Context<'_>>,
    ) -> Result<Progress> {
        self.engine.advance(self.entry, cursor, task)
    }

    /// Ends an invocation at `cursor`.
    pub(super) fn abandon(&mut self, cursor: &Cursor) {
        if let Some(planned) = self.engine.planned_mut(self.entry) {
            planned.abandon(cursor);
        }
    }

    /// As [`Interpreter::invoke`]; a delegate that fails is removed, and the invocation is repeated without it, from
    /// the same inputs and variables. Returns the failure of each removed delegate; the report contains it from then
    /// on.
    ///
    /// # Errors
    /// As [`Interpreter::invoke`], except for failures of delegates.
    pub fn invoke_with_fallback(&mut self) -> Result<Vec<Error>> {
        self.prepare()?;
        let mut failures = Vec::new();
        loop {
            let before = self.save()?;
            match self.invoke() {
                Ok(()) => return Ok(failures),
                Err(error) => failures.push(self.fall_back(error, before)?),
            }
        }
    }

    /// Copies the state that an invocation changes.
    ///
    /// # Errors
    /// [`Error::LimitExceeded`] if there is no memory for the copy.
    pub(super) fn save(&self) -> Result<State> {
        State::save(&self.engine)
    }

    /// Removes the delegate that caused `error`, and restores inputs and variables. Returns `error`.
    ///
    /// # Errors
    /// `error`, if it is not a delegate's failure; the errors of preparing without the delegate.
    pub(super) fn fall_back(&mut self, error: Error, before: State) -> Result<Error> {
        if !self.engine.delegates.exclude_failed(Exclusion::Permanent) {
            return Err(error);
        }
        let inputs = fallback::inputs(&self.engine, self.entry)?;
        self.engine.undelegate();
        self.prepare()?;
        before.restore(&mut self.engine, self.entry, &inputs)?;
        Ok(error)
    }

    /// Adds a delegate, after those that are already applied. Everything is prepared again at the next use; variables
    /// keep their values, inputs do not.
    pub fn add_delegate(&mut self, delegate: impl Delegate + 'static, limits: PartitionOptions) {
        self.engine.delegates.add(Box::new(delegate), limits);
        self.engine.delegates_changed();
    }

    /// Removes the delegates, and returns them. Every node runs on the CPU again. Variables keep their values, inputs
    /// do not.
    pub fn remove_delegates(&mut self) -> Vec<Box<dyn Delegate>> {
        self.engine.undelegate();
        self.engine.delegates.take()
    }

    /// Resets all state: variable tensors are set to zero (INT8 tensors to their zero point), resource variables have
    /// no value, and initialization subgraphs run again.
    ///
    /// # Errors
    /// If a variable cannot be written.
    pub fn reset_variables(&mut self) -> Result<()> {
        self.engine.resources.reset();
        self.engine.slots.iter_mut().try_for_each(|slot| slot.parts_mut().reset_variables())
    }

    /// Resets only these variable tensors of subgraph 0 and these resource variables, by container and name. The
    /// initialization subgraphs `initializers` run again.
    ///
    /// # Errors
    /// As [`Interpreter::reset_variables`].
    pub(crate) fn reset_state(
        &mut self,
        variables: &[TensorId],
        resources: &[(String, String)],
        initializers: &[usize],
    ) -> Result<()> {
        for (container, name) in resources {
            self.engine.resources.reset_variable(container, name);
        }
        for &subgraph in initializers {
            self.engine.resources.unmark_initialized(subgraph);
        }
        self.engine.slots.get_mut(0).map_or(Ok(()), |slot| slot.parts_mut().reset_some_variables(variables))
    }

    /// Sets the variable tensors of a subgraph to zero (INT8 tensors to their zero point), as TFLite does when it
    /// allocates tensors. Resource variables keep their values. A subgraph that was never used has nothing to reset.
    ///
    /// # Errors
    /// If a variable cannot be written.
    pub fn reset_variable_tensors(&mut self, subgraph: usize) -> Result<()> {
        self.engine.slots.get_mut(subgraph).map_or(Ok(()), |slot| slot.parts_mut().reset_variables())
    }

    /// Returns the report on the selected subgraph: runners and rejections of the nodes, partitions, failures of
    /// delegates, and composites. Empty if the subgraph is not prepared.
    pub fn report(&self) -> &Report {
        self.subgraph_report(self.entry).unwrap_or(&self.empty_report)
    }

    /// Returns the report on any subgraph; `None` if it is not prepared. Subgraphs that a delegate runs as part of a
    /// claimed node have no separate report.
    pub fn subgraph_report(&self, index: usize) -> Option<&Report> {
        self.engine.planned(index).map(Planned::report)
    }

    /// Returns any subgraph as delegates saw it before their claims: shapes, constants, the cost of each node. `None`
    /// if it is not prepared. [`Advice`](delegraph_delegate_api::Advice) is computed from this graph and the report.
    pub fn graph(&self, index: usize) -> Option<GraphView<'_>> {
        self.engine.slots.callee(index)
    }

    /// Reads input `i` from `buffer` in every following invocation, without a copy if the delegate that reads it
    /// accepts the buffer. `None`, or a resize to another size, restores the CPU's memory.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such input, or the buffer does not have its size.
    pub fn set_input_buffer(&mut self, i: usize, buffer: Option<BufferHandle>) -> Result<()> {
        self.prepare()?;
        let id = self.input_id(i)?;
        self.planned_mut()?.set_input_buffer(id, buffer)
    }

    /// Copies output `i` to `buffer` at the end of every following invocation: on the device if a delegate left it
    /// there, otherwise through the CPU's memory. `None`, or a resize to another size, ends this.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such output, or the buffer does not have its size.
    pub fn set_output_buffer(&mut self, i: usize, buffer: Option<BufferHandle>) -> Result<()> {
        self.prepare()?;
        let (id, settings) = (self.output_id(i)?, self.engine.settings);
        self.planned_mut()?.set_output_buffer(id, buffer, settings)
    }

    /// Returns the delegate's buffer that holds output `i` after the last `invoke`, if the output stayed there. The
    /// buffer is valid until the next `invoke`.
    pub fn output_buffer(&self, i: usize) -> Option<&BufferHandle> {
        let id = *self.ids().1.get(i)?;
        self.engine.planned(self.entry)?.buffer(id)
    }

    /// Copies output `i` to the CPU's memory if it stayed with a delegate. Waits for the delegate's device.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such output; the delegate's errors.
    pub fn fetch_output(&mut self, i: usize) -> Result<()> {
        let id = self.output_id(i)?;
        self.engine.planned_mut(self.entry).map_or(Ok(()), |planned| planned.fetch(id))
    }

    /// Returns the memory of the selected subgraph; all zero if it is not prepared.
    pub fn memory(&self) -> MemoryReport {
        self.engine.planned(self.entry).map(Planned::memory).unwrap_or_default()
    }

    /// Returns the measurements of delegates' kernels, per partition.
    pub fn delegate_stats(&self) -> Vec<DelegateStats> {
        let stats = |s: &Planned| s.partitions().iter().map(|p| p.kernel.stats()).collect();
        self.engine.planned(self.entry).map(stats).unwrap_or_default()
    }

    /// Returns the kernels that one run starts on devices, per partition.
    pub fn device_kernels(&self) -> Vec<Vec<DeviceKernel>> {
        let kernels = |s: &Planned| s.partitions().iter().map(|p| p.kernel.device_kernels()).collect();
        self.engine.planned(self.entry).map(kernels).unwrap_or_default()
    }

    /// Returns the FLOAT32 tensors that devices store in 16 bits, per partition.
    pub fn half_tensors(&self) -> Vec<Vec<TensorId>> {
        let tensors = |s: &Planned| s.partitions().iter().map(|p| p.kernel.half_tensors().to_vec()).collect();
        self.engine.planned(self.entry).map(tensors).unwrap_or_default()
    }

    /// Returns the number of threads that CPU kernels use.
    pub fn threads(&self) -> usize {
        self.engine.parallel.threads()
    }

    fn ids(&self) -> (&[TensorId], &[TensorId]) {
        let subgraph = &self.engine.model.subgraphs()[self.entry];
        (subgraph.inputs(), subgraph.outputs())
    }

    fn input_id(&self, i: usize) -> Result<TensorId> {
        self.ids().0.get(i).copied().ok_or_else(|| no_such("input", i, self.input_count()))
    }

    fn output_id(&self, i: usize) -> Result<TensorId> {
        self.ids().1.get(i).copied().ok_or_else(|| no_such("output", i, self.output_count()))
    }

    fn parts(&self) -> Result<&Parts> {
        self.engine.slots.get(self.entry).map(Slot::parts).ok_or_else(panicked)
    }

    fn parts_mut(&mut self) -> Result<&mut Parts> {
        self.engine.slots.get_mut(self.entry).map(Slot::parts_mut).ok_or_else(panicked)
    }

    fn planned(&self) -> Result<&Planned> {
        self.engine.planned(self.entry).ok_or_else(panicked)
    }

    fn planned_mut(&mut self) -> Result<&mut Planned> {
        self.engine.planned_mut(self.entry).ok_or_else(panicked)
    }
}

/// Returns the error for a subgraph that is not in its slot.
fn panicked() -> Error {
    Error::State("an earlier call panicked".into())
}

fn no_such(what: &str, i: usize, count: usize) -> Error {
    Error::InvalidInput(absent(what, i, "the model", count))
}
