//! The interpreter: a model, kernels, delegates, inputs and outputs.

use std::sync::Arc;

use delegraph_core::error::{Error, Result};
use delegraph_core::kernel::{AlignedBuffer, Placement, RuntimeTensor, SavedVariables, Strings};
use delegraph_core::{Element, Model, OpResolver, Shape, Signature, TensorId, TensorType};
use delegraph_delegate_api::{
    BufferHandle, Callees, Delegate, DelegateStats, DeviceKernel, GraphView, PartitionOptions, Report,
};

use crate::delegation::Applied;
use crate::engine::Engine;
use crate::fusion::FusionReport;
use crate::invocation::Invocation;
use crate::observe::{CancellationToken, Profiler};
use crate::resolvers::BuiltinOpResolver;
use crate::subgraph::{Inference, MemoryReport, SubgraphRuntime};

mod builder;

pub use builder::{DEFAULT_MEMORY_LIMIT, InterpreterBuilder};

/// Runs a model.
///
/// ```
/// use delegraph_core::{Model, ModelBytes};
/// use delegraph_interpreter::Interpreter;
///
/// # fn main() -> delegraph_core::Result<()> {
/// let file = include_bytes!("../../assets/digits/digits_float32.tflite");
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
    /// The report where there is nothing to say.
    nothing: Report,
    /// The subgraph that inputs, outputs and `invoke` are about.
    entry: usize,
    fusion: Option<FusionReport>,
}

impl Interpreter {
    /// A builder for `model` with all kernels.
    pub fn builder(model: impl Into<Arc<Model>>) -> InterpreterBuilder {
        Self::builder_with(model, BuiltinOpResolver::new())
    }

    /// A builder for `model` with these kernels: those that nothing else names are left out of the program.
    pub fn builder_with(
        model: impl Into<Arc<Model>>,
        resolver: impl OpResolver + 'static,
    ) -> InterpreterBuilder {
        InterpreterBuilder::new(model.into(), Arc::new(resolver))
    }

    /// The model as it runs. Bodies of composites that no delegate claims, and no kernel of their name runs, are in the
    /// place of these; then nodes have other numbers than in the model that the interpreter was made for.
    pub fn model(&self) -> &Arc<Model> {
        &self.engine.model
    }

    /// What [`InterpreterBuilder::fusion`] did.
    pub fn fusion_report(&self) -> Option<&FusionReport> {
        self.fusion.as_ref()
    }

    /// Infers subgraph `index`: shapes, states of nodes, and, where asked for, the values of nodes over constants.
    pub(crate) fn infer(&mut self, index: usize, values: bool) -> Result<Inference> {
        let (mut subgraph, mut env) = self.engine.take(index)?;
        let result = subgraph.infer(&mut env).map(|()| subgraph.inference(values));
        self.engine.put(subgraph);
        result
    }

    /// Makes the subgraph of this signature the one that inputs, outputs and `invoke` are about.
    pub fn select_signature(&mut self, key: &str) -> Result<Signature> {
        let signature = self.model().signature(key).cloned().ok_or_else(|| {
            let keys: Vec<&str> = self.model().signatures.iter().map(|s| s.key.as_str()).collect();
            Error::InvalidInput(format!("no signature \"{key}\"; the model has: {}", keys.join(", ")))
        })?;
        self.entry = signature.subgraph;
        if self.engine.slots[self.entry].is_none() {
            let (subgraph, _) = self.engine.take(self.entry)?;
            self.engine.put(subgraph);
        }
        Ok(signature)
    }

    /// How many inputs there are.
    pub fn input_count(&self) -> usize {
        self.ids().0.len()
    }

    /// How many outputs there are.
    pub fn output_count(&self) -> usize {
        self.ids().1.len()
    }

    /// Input `i` with its type, shape and quantization.
    pub fn input_tensor(&self, i: usize) -> Result<&RuntimeTensor> {
        let id = self.input_id(i)?;
        Ok(&self.subgraph()?.tensors[id.0])
    }

    /// Output `i` with its type, shape, quantization and, after `invoke`, data.
    pub fn output_tensor(&self, i: usize) -> Result<&RuntimeTensor> {
        let id = *self.ids().1.get(i).ok_or_else(|| no_such("output", i, self.output_count()))?;
        Ok(&self.subgraph()?.tensors[id.0])
    }

    /// As [`Interpreter::output_tensor`], where its data are in the CPU's memory.
    fn output_on_cpu(&self, i: usize) -> Result<&RuntimeTensor> {
        if self.output_buffer(i).is_some() {
            return Err(Error::State(format!(
                "output {i} is with a delegate; `fetch_output({i})` copies it"
            )));
        }
        self.output_tensor(i)
    }

    /// The elements of input `i`, to be written. They keep their values from one `invoke` to the next.
    ///
    /// # Errors
    /// Where there is no such input, or its elements are not of type `T`.
    pub fn input_mut<T: Element>(&mut self, i: usize) -> Result<&mut [T]> {
        self.prepare()?;
        let id = self.input_id(i)?;
        self.subgraph_mut()?.tensors[id.0].elements_mut().map_err(|e| match e {
            Error::Unsupported(_) => {
                Error::InvalidInput(format!("input {i} has another element type than {}", T::TYPE))
            }
            e => e,
        })
    }

    /// The bytes of input `i`, to be written. Those of strings are for [`Interpreter::set_input_bytes`] to change.
    pub fn input_bytes_mut(&mut self, i: usize) -> Result<&mut [u8]> {
        self.prepare()?;
        let id = self.input_id(i)?;
        self.subgraph_mut()?.tensors[id.0].bytes_mut()
    }

    /// Copies `bytes` to input `i`. A string tensor takes any number of them; they are its strings as the format stores
    /// them, see [`Strings`](delegraph_core::kernel::Strings).
    ///
    /// # Errors
    /// Where they are not what the input's type and shape need.
    pub fn set_input_bytes(&mut self, i: usize, bytes: &[u8]) -> Result<()> {
        self.prepare()?;
        let id = self.input_id(i)?;
        let tensor = &mut self.subgraph_mut()?.tensors[id.0];
        if tensor.ty == TensorType::String {
            tensor.check_strings(bytes)?;
            tensor.allocate_bytes(Placement::Dynamic, bytes.len())?;
        }
        let target = tensor.bytes_mut()?;
        if target.len() != bytes.len() {
            let (needed, given) = (target.len(), bytes.len());
            return Err(Error::InvalidInput(format!("input {i} takes {needed} bytes, not {given}")));
        }
        target.copy_from_slice(bytes);
        Ok(())
    }

    /// Fills input `i`, a string tensor. Outputs have [`strings`](RuntimeTensor::strings).
    pub fn set_input_strings<S: AsRef<[u8]>>(&mut self, i: usize, strings: &[S]) -> Result<()> {
        self.set_input_bytes(i, &Strings::encode(strings.iter().map(AsRef::as_ref))?)
    }

    /// The elements of output `i`, as the last `invoke` left them.
    pub fn output<T: Element>(&self, i: usize) -> Result<&[T]> {
        self.output_on_cpu(i)?.elements()
    }

    /// The input of this name: of the selected signature, else of the tensor itself.
    pub fn input_index(&self, name: &str) -> Option<usize> {
        self.index_of(name, self.ids().0, |signature| &signature.inputs)
    }

    /// The output of this name: of the selected signature, else of the tensor itself.
    pub fn output_index(&self, name: &str) -> Option<usize> {
        self.index_of(name, self.ids().1, |signature| &signature.outputs)
    }

    fn index_of(
        &self,
        name: &str,
        ids: &[TensorId],
        names: impl Fn(&Signature) -> &[(String, TensorId)],
    ) -> Option<usize> {
        let model = self.model();
        let signatures = model.signatures.iter().filter(|s| s.subgraph == self.entry);
        let named = signatures.flat_map(|s| names(s).iter()).find(|(n, _)| n == name).map(|(_, id)| *id);
        let subgraph = &model.subgraphs[self.entry];
        ids.iter().position(|id| match named {
            Some(named) => named == *id,
            None => &*subgraph.tensor(*id).name == name,
        })
    }

    /// Any tensor of the selected subgraph, as the last `invoke` left it. Unless the interpreter was built with
    /// [`InterpreterBuilder::preserve_all_tensors`], only inputs, outputs, constants of the file and variables
    /// still hold what they held.
    ///
    /// # Errors
    /// Where there is no such tensor.
    pub fn tensor(&self, id: TensorId) -> Result<&RuntimeTensor> {
        let tensors = &self.subgraph()?.tensors;
        tensors.get(id.0).ok_or_else(|| no_such("tensor", id.0, tensors.len()))
    }

    /// Lets input `i` live in `buffer`, so that nothing has to be copied: the application fills a buffer elsewhere and
    /// hands it in. Returns the buffer that was bound before. Only the first binding plans memory anew; after that
    /// buffers are exchanged at no cost.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] where the buffer does not have the input's size.
    pub fn bind_input(&mut self, i: usize, buffer: AlignedBuffer) -> Result<Option<AlignedBuffer>> {
        self.prepare()?;
        let id = self.input_id(i)?;
        self.subgraph_mut()?.bind(id, buffer)
    }

    /// Lets output `i` be written into `buffer`. Returns the buffer that was bound before, with what the last
    /// invocation wrote; so two buffers suffice to hand results on while the next invocation runs.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] where the buffer does not have the output's size; [`Error::State`] where the output
    /// is constant, an input, a variable, or has a shape that depends on data.
    pub fn bind_output(&mut self, i: usize, buffer: AlignedBuffer) -> Result<Option<AlignedBuffer>> {
        self.prepare()?;
        let id = *self.ids().1.get(i).ok_or_else(|| no_such("output", i, self.output_count()))?;
        if self.ids().0.contains(&id) {
            return Err(Error::State(format!("output {i} is an input; bind that")));
        }
        self.subgraph_mut()?.bind(id, buffer)
    }

    /// Has `profiler` told of every step from now on; `None` ends it.
    pub fn set_profiler(&mut self, profiler: Option<Box<dyn Profiler>>) {
        self.engine.observer.profiler = profiler;
    }

    /// Cancels invocations of this interpreter, from any thread.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.engine.observer.token.clone()
    }

    /// Gives input `i` another shape. Shapes are inferred anew at the next use; inputs lose their data. Inputs and
    /// outputs whose size changes leave the buffers that they were bound to, which are dropped.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] where the model fixes the dimensions that would change.
    pub fn resize_input(&mut self, i: usize, shape: &[usize]) -> Result<()> {
        let id = self.input_id(i)?;
        let file = self.engine.model.subgraphs[self.entry].tensor(id);
        if file.shape.dims() != shape && !file.accepts(shape) {
            let dims = file.shape_signature.iter().flatten().map(|d| d.map_or("?".into(), |d| d.to_string()));
            let dims = dims.collect::<Vec<_>>().join(", ");
            let wanted = Shape::new(shape);
            return Err(Error::InvalidInput(format!(
                "input {i} (\"{}\") takes [{dims}], not {wanted}",
                file.name
            )));
        }
        let shape = Shape::new(shape);
        self.subgraph_mut()?.resize_input(id, &shape);
        Ok(())
    }

    /// Brings everything up to date after a resize. `invoke` does it by itself.
    ///
    /// # Errors
    /// Whatever is wrong with a node, with its location. Not a delegate's failure, unless the policy is
    /// [`Policy::Require`]: then everything is prepared again without that delegate, and the report says so.
    pub fn prepare(&mut self) -> Result<()> {
        if self.engine.slots.get(self.entry).and_then(Option::as_ref).is_some_and(|s| s.prepared) {
            return Ok(());
        }
        if std::mem::take(&mut self.engine.stale) {
            self.engine.resolve_composites()?;
        }
        self.engine.delegation.forgive();
        loop {
            let (mut subgraph, mut env) = self.engine.take(self.entry)?;
            let result = env.prepare_now(&mut subgraph, true);
            self.engine.put(subgraph);
            // Each round leaves out one more delegate, so this ends.
            match result {
                Err(_) if self.engine.delegation.recovers() => self.engine.undelegate(),
                // Each round has fewer composites, so this ends, too.
                Ok(()) if self.engine.settle_composites()? => {}
                result => return result,
            }
        }
    }

    /// Computes the outputs from the inputs. Allocates nothing where all shapes are known.
    ///
    /// # Errors
    /// [`Error::Delegate`] with delegate, partition and nodes where a delegate fails; what the kernel says, with its
    /// node, where a CPU kernel does. Outputs and variables are then as far as the invocation came.
    pub fn invoke(&mut self) -> Result<()> {
        self.prepare()?;
        let (mut subgraph, mut env) = self.engine.take(self.entry)?;
        let result = subgraph.invoke(&mut env).and_then(|()| subgraph.deliver());
        let panicked = env.parallel.take_panicked();
        self.engine.put(subgraph);
        if panicked {
            return Err(Error::State(
                "a kernel panicked on one of its threads; its results are unusable".into(),
            ));
        }
        if matches!(result, Err(Error::Cancelled)) {
            self.engine.observer.token.clear();
        }
        result
    }

    /// Starts an invocation that goes on while the caller does something else. The interpreter comes back with the
    /// result: by awaiting it, or by [`Invocation::wait`].
    ///
    /// ```
    /// # use delegraph_core::{Model, ModelBytes};
    /// # use delegraph_interpreter::Interpreter;
    /// # fn main() -> delegraph_core::Result<()> {
    /// # let file = include_bytes!("../../assets/digits/digits_float32.tflite");
    /// # let interpreter = Interpreter::builder(Model::from_bytes(ModelBytes::new(&file[..]))?).build()?;
    /// let invocation = interpreter.invoke_async();
    /// // ... something else ...
    /// let (interpreter, result) = invocation.wait();
    /// result?;
    /// assert_eq!(interpreter.output::<f32>(0)?.len(), 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn invoke_async(self) -> Invocation {
        Invocation::start(self)
    }

    /// As [`Interpreter::invoke`], but where a delegate fails, it is dropped and everything is computed without it, from
    /// the same inputs and with the variables as they were. Returns the failure of each delegate that was dropped;
    /// the report has them from then on.
    ///
    /// # Errors
    /// As for `invoke`, but for failures of delegates.
    pub fn invoke_with_fallback(&mut self) -> Result<Vec<Error>> {
        self.prepare()?;
        let mut failures = Vec::new();
        loop {
            let before = State::save(&self.engine)?;
            match self.invoke() {
                Ok(()) => return Ok(failures),
                Err(error) if self.engine.delegation.recovers_for_good() => {
                    failures.push(error);
                    let inputs = State::inputs(&self.engine, self.entry);
                    self.engine.undelegate();
                    self.prepare()?;
                    before.restore(&mut self.engine, self.entry, &inputs)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds a delegate, after those that there are. Everything is prepared anew at the next use; variables keep their
    /// values, inputs lose theirs.
    pub fn add_delegate(&mut self, delegate: Box<dyn Delegate>, limits: PartitionOptions) {
        self.engine.delegation.delegates.push(Applied::new(delegate, limits));
        self.engine.undelegate();
        self.engine.offer_composites_again();
    }

    /// Gives every node back to the CPU, and the delegates to the caller. Variables keep their values, inputs lose
    /// theirs.
    pub fn remove_delegates(&mut self) -> Vec<Box<dyn Delegate>> {
        self.engine.undelegate();
        std::mem::take(&mut self.engine.delegation.delegates).into_iter().map(|a| a.delegate).collect()
    }

    /// Forgets all state: variable tensors are zero again (INT8 ones hold their zero point), resource variables have no value, initialization runs again.
    pub fn reset_variables(&mut self) -> Result<()> {
        self.engine.resources.reset();
        self.engine.slots.iter_mut().flatten().try_for_each(|s| s.reset_variables())
    }

    /// Who runs what in the selected subgraph, and why not.
    pub fn report(&self) -> &Report {
        self.subgraph_report(self.entry).unwrap_or(&self.nothing)
    }

    /// The report on any subgraph; `None` before it was first needed. Subgraphs that a delegate runs as part of a node
    /// that it claimed are not reported apart.
    pub fn subgraph_report(&self, index: usize) -> Option<&Report> {
        self.engine.slots.get(index)?.as_deref().map(|s| &s.report)
    }

    /// Any subgraph as delegates saw it, but for what they took: shapes, constants, what each node costs. `None` where it
    /// is not prepared. With the report on it, [`Advice`](delegraph_delegate_api::Advice) says what to support next.
    pub fn graph(&self, index: usize) -> Option<GraphView<'_>> {
        self.engine.callee(index)
    }

    /// Has input `i` taken from `buffer` in every invocation from now on, with no copy where the delegate that reads it
    /// accepts the buffer. `None`, or a resize to another size, takes it from the CPU's memory again.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] where the buffer does not have the input's size.
    pub fn set_input_buffer(&mut self, i: usize, buffer: Option<BufferHandle>) -> Result<()> {
        self.prepare()?;
        let id = self.input_id(i)?;
        self.subgraph_mut()?.set_input_buffer(id, buffer)
    }

    /// Has output `i` copied into `buffer` at the end of every invocation from now on: on the device where a delegate
    /// left it there, through the CPU's memory else. `None`, or a resize to another size, ends that.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] where there is no such output, or the buffer does not have its size.
    pub fn set_output_buffer(&mut self, i: usize, buffer: Option<BufferHandle>) -> Result<()> {
        self.prepare()?;
        let id = *self.ids().1.get(i).ok_or_else(|| no_such("output", i, self.output_count()))?;
        let (mut subgraph, env) = self.engine.take(self.entry)?;
        let result = subgraph.set_output_buffer(id, buffer);
        subgraph.plan_devices(&env);
        self.engine.put(subgraph);
        result
    }

    /// The buffer that output `i` is in since the last `invoke`, where it stayed with a delegate. It is valid until
    /// the next one.
    pub fn output_buffer(&self, i: usize) -> Option<&BufferHandle> {
        let id = *self.ids().1.get(i)?;
        self.subgraph().ok()?.devices.get(id)
    }

    /// Copies output `i` to the CPU's memory, where it stayed with a delegate.
    ///
    /// # Errors
    /// Where there is no such output, or the delegate fails.
    pub fn fetch_output(&mut self, i: usize) -> Result<()> {
        let id = *self.ids().1.get(i).ok_or_else(|| no_such("output", i, self.output_count()))?;
        self.subgraph_mut()?.fetch(id)
    }

    /// Memory of the selected subgraph.
    pub fn memory(&self) -> MemoryReport {
        self.subgraph().map(|s| s.memory).unwrap_or_default()
    }

    /// What the kernels of delegates measured, per partition.
    pub fn delegate_stats(&self) -> Vec<DelegateStats> {
        self.subgraph().map(|s| s.partitions.iter().map(|p| p.kernel.stats()).collect()).unwrap_or_default()
    }

    /// What one run starts on devices, per partition.
    pub fn device_kernels(&self) -> Vec<Vec<DeviceKernel>> {
        let kernels = |s: &SubgraphRuntime| s.partitions.iter().map(|p| p.kernel.device_kernels()).collect();
        self.subgraph().map(kernels).unwrap_or_default()
    }

    /// How many threads CPU kernels use.
    pub fn threads(&self) -> usize {
        self.engine.parallel.threads()
    }

    fn ids(&self) -> (&[TensorId], &[TensorId]) {
        let subgraph = &self.engine.model.subgraphs[self.entry];
        (&subgraph.inputs, &subgraph.outputs)
    }

    fn input_id(&self, i: usize) -> Result<TensorId> {
        self.ids().0.get(i).copied().ok_or_else(|| no_such("input", i, self.input_count()))
    }

    fn subgraph(&self) -> Result<&SubgraphRuntime> {
        self.engine.slots[self.entry]
            .as_deref()
            .ok_or_else(|| Error::State("an earlier call panicked".into()))
    }

    fn subgraph_mut(&mut self) -> Result<&mut SubgraphRuntime> {
        self.engine.slots[self.entry]
            .as_deref_mut()
            .ok_or_else(|| Error::State("an earlier call panicked".into()))
    }
}

/// What an invocation changes that a second attempt needs as it was.
struct State {
    variables: Vec<(usize, TensorId, Vec<u8>)>,
    resources: SavedVariables,
}

impl State {
    fn save(engine: &Engine) -> Result<Self> {
        let mut variables = Vec::new();
        for subgraph in engine.slots.iter().flatten() {
            let own =
                subgraph.tensors.iter().enumerate().filter(|(_, t)| t.placement() == Placement::Variable);
            variables.extend(own.map(|(i, t)| (subgraph.index, TensorId(i), t.bytes().to_vec())));
        }
        Ok(State { variables, resources: engine.resources.save()? })
    }

    /// The inputs, which an invocation leaves as they are.
    fn inputs(engine: &Engine, entry: usize) -> Vec<Vec<u8>> {
        let subgraph = engine.slots.get(entry).and_then(Option::as_deref);
        let inputs = |s: &SubgraphRuntime| {
            let inputs = s.model.subgraphs[entry].inputs.iter();
            inputs.map(|id| s.tensors[id.0].bytes().to_vec()).collect()
        };
        subgraph.map_or_else(Vec::new, inputs)
    }

    fn restore(self, engine: &mut Engine, entry: usize, inputs: &[Vec<u8>]) -> Result<()> {
        for (index, id, bytes) in &self.variables {
            if let Some(subgraph) = engine.slots[*index].as_deref_mut() {
                write(&mut subgraph.tensors[id.0], bytes)?;
            }
        }
        engine.resources.restore(self.resources);
        if let Some(subgraph) = engine.slots[entry].as_deref_mut() {
            let ids = subgraph.model.subgraphs[entry].inputs.clone();
            for (id, bytes) in ids.into_iter().zip(inputs) {
                write(&mut subgraph.tensors[id.0], bytes)?;
            }
        }
        Ok(())
    }
}

/// Gives a tensor the data that it had.
fn write(tensor: &mut RuntimeTensor, bytes: &[u8]) -> Result<()> {
    if tensor.ty == TensorType::String {
        tensor.allocate_bytes(Placement::Dynamic, bytes.len())?;
    }
    let target = tensor.bytes_mut()?;
    if target.len() == bytes.len() {
        target.copy_from_slice(bytes);
    }
    Ok(())
}

fn no_such(what: &str, i: usize, count: usize) -> Error {
    Error::InvalidInput(format!("there is no {what} {i}; the model has {count}"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use delegraph_core::ModelBytes;

    use super::*;
    use crate::observe::StepEvent;

    fn digits() -> InterpreterBuilder {
        let file = include_bytes!("../../assets/digits/digits_float32.tflite");
        Interpreter::builder(Model::from_bytes(ModelBytes::new(&file[..])).unwrap())
    }

    fn ramp(len: usize) -> Vec<f32> {
        (0..len).map(|i| i as f32 / len as f32).collect()
    }

    /// What the model gives for a ramp.
    fn expected() -> Vec<f32> {
        let mut interpreter = digits().build().unwrap();
        let input = interpreter.input_mut::<f32>(0).unwrap();
        input.copy_from_slice(&ramp(input.len()));
        interpreter.invoke().unwrap();
        interpreter.output::<f32>(0).unwrap().to_vec()
    }

    #[test]
    fn bound_buffers_replace_copies() {
        let mut interpreter = digits().build().unwrap();
        let (input, output) = (interpreter.input_tensor(0).unwrap(), interpreter.output_tensor(0).unwrap());
        let (input, output) = (input.byte_size().unwrap(), output.byte_size().unwrap());
        let mut filled = AlignedBuffer::zeroed(input).unwrap();
        filled.bytes_mut().copy_from_slice(bytemuck::cast_slice(&ramp(input / 4)));
        assert!(interpreter.bind_input(0, filled).unwrap().is_none());
        assert!(interpreter.bind_output(0, AlignedBuffer::zeroed(output).unwrap()).unwrap().is_none());
        interpreter.invoke().unwrap();
        assert_eq!(interpreter.output::<f32>(0).unwrap(), expected());
        let result = interpreter.bind_output(0, AlignedBuffer::zeroed(output).unwrap()).unwrap().unwrap();
        assert_eq!(bytemuck::cast_slice::<u8, f32>(result.bytes()), expected());
        let wrong = interpreter.bind_input(0, AlignedBuffer::zeroed(input + 1).unwrap());
        assert!(wrong.unwrap_err().to_string().contains("a buffer of"));
        interpreter.invoke().unwrap();
        assert_eq!(interpreter.output::<f32>(0).unwrap(), expected());
    }

    #[test]
    fn an_output_whose_shape_depends_on_data_is_not_bound() {
        use delegraph_core::{BuiltinOp, ModelBuilder, Params, SubgraphBuilder, TensorType};
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Bool, [4]);
        let rows = graph.tensor("rows", TensorType::Int64, [0, 1]);
        graph.node(BuiltinOp::WHERE, Params::None).inputs([x]).writes([rows]);
        graph.outputs([rows]);
        let model = ModelBuilder::new().subgraph(graph).build().unwrap();
        let mut interpreter = Interpreter::builder(model).build().unwrap();
        for _ in 0..2 {
            let bound = interpreter.bind_output(0, AlignedBuffer::zeroed(0).unwrap());
            assert!(matches!(bound, Err(Error::State(_))), "{bound:?}");
            interpreter.invoke().unwrap();
        }
    }

    #[test]
    fn bound_buffers_that_no_longer_fit_are_left() {
        let mut interpreter = digits().build().unwrap();
        let output = interpreter.output_tensor(0).unwrap().byte_size().unwrap();
        interpreter.bind_output(0, AlignedBuffer::zeroed(output).unwrap()).unwrap();
        let mut shape = interpreter.input_tensor(0).unwrap().shape.dims().to_vec();
        shape[0] = 3;
        interpreter.resize_input(0, &shape).unwrap();
        interpreter.invoke().unwrap();
        assert_eq!(interpreter.output::<f32>(0).unwrap().len(), 3 * output / 4);
        assert!(interpreter.bind_output(0, AlignedBuffer::zeroed(3 * output).unwrap()).unwrap().is_none());
        interpreter.invoke().unwrap();
    }

    #[test]
    fn all_tensors_may_be_kept() {
        let mut plain = digits().build().unwrap();
        let mut kept = digits().preserve_all_tensors().build().unwrap();
        for interpreter in [&mut plain, &mut kept] {
            let input = interpreter.input_mut::<f32>(0).unwrap();
            input.copy_from_slice(&ramp(input.len()));
            interpreter.invoke().unwrap();
        }
        assert_eq!(plain.output::<f32>(0).unwrap(), kept.output::<f32>(0).unwrap());
        assert!(kept.memory().arena_bytes > plain.memory().arena_bytes);
        // Every node's input still gives its output: each tensor can be read, and none was overwritten by another.
        let subgraph = &kept.model().subgraphs[0];
        let computed = subgraph.nodes.iter().flat_map(|n| &n.outputs);
        for id in computed {
            assert!(!kept.tensor(*id).unwrap().bytes().is_empty());
        }
        assert!(kept.tensor(TensorId(1 << 20)).is_err());
    }

    #[test]
    fn cancelling_ends_one_invocation() {
        let mut interpreter = digits().build().unwrap();
        let token = interpreter.cancellation_token();
        std::thread::spawn(move || token.cancel()).join().unwrap();
        assert!(matches!(interpreter.invoke(), Err(Error::Cancelled)));
        interpreter.invoke().unwrap();
    }

    struct Steps(Arc<Mutex<Vec<usize>>>);

    impl Profiler for Steps {
        fn step(&mut self, event: &StepEvent<'_>) {
            assert_eq!((event.subgraph, event.delegate, event.deferred), (0, None, false));
            self.0.lock().unwrap().extend(event.nodes.iter().map(|n| n.0));
        }
    }

    #[test]
    fn a_profiler_sees_every_step() {
        let mut interpreter = digits().build().unwrap();
        let steps = Arc::new(Mutex::new(Vec::new()));
        interpreter.set_profiler(Some(Box::new(Steps(steps.clone()))));
        interpreter.invoke().unwrap();
        let seen = std::mem::take(&mut *steps.lock().unwrap());
        assert!(!seen.is_empty() && seen.windows(2).all(|w| w[0] < w[1]), "{seen:?}");
        interpreter.set_profiler(None);
        interpreter.invoke().unwrap();
        assert!(steps.lock().unwrap().is_empty());
    }

    #[test]
    fn every_prepared_subgraph_has_a_report_and_a_graph() {
        let interpreter = digits().build().unwrap();
        let (report, graph) = (interpreter.report(), interpreter.graph(0).unwrap());
        assert!(!report.nodes.is_empty());
        assert_eq!(report.nodes.len(), graph.nodes().count());
        assert!(graph.nodes().any(|n| n.cost().multiply_adds > 0));
        assert!(interpreter.graph(1).is_none());
        assert!(digits().prepare_later().build().unwrap().graph(0).is_none());
    }

    #[test]
    fn names_find_inputs_and_outputs() {
        let interpreter = digits().build().unwrap();
        let signature = interpreter.model().signatures[0].clone();
        assert_eq!(interpreter.input_index(&signature.inputs[0].0), Some(0));
        assert_eq!(interpreter.output_index(&signature.outputs[0].0), Some(0));
        assert_eq!(interpreter.input_index("nobody"), None);
    }

    #[test]
    fn interpreters_on_one_model_run_in_several_threads() {
        let model = digits().build().unwrap().model().clone();
        let want = expected();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (model, want) = (model.clone(), &want);
                scope.spawn(move || {
                    let mut interpreter = Interpreter::builder(model).build().unwrap();
                    let input = interpreter.input_mut::<f32>(0).unwrap();
                    input.copy_from_slice(&ramp(input.len()));
                    for _ in 0..20 {
                        interpreter.invoke().unwrap();
                        assert_eq!(interpreter.output::<f32>(0).unwrap(), want);
                    }
                });
            }
        });
    }
}
