//! The interpreter: a model, kernels, delegates, inputs and outputs.

use std::sync::Arc;

use delegraph_core::error::{Error, Result};
use delegraph_core::kernel::{AlignedBuffer, Placement, RuntimeTensor, Strings};
use delegraph_core::resolver::check_resolved;
use delegraph_core::{Element, Model, OpResolver, Shape, Signature, TensorId, TensorType};
use delegraph_delegate_api::{Delegate, DelegateStats, Policy, Report};

use crate::delegation;
use crate::engine::{Engine, Settings};
use crate::observe::{CancellationToken, Observer, Profiler};
use crate::resolvers::BuiltinOpResolver;
use crate::subgraph::{MemoryReport, SubgraphRuntime};

/// No tensor and no arena may be larger, unless the application says otherwise: 4 GiB.
pub const DEFAULT_MEMORY_LIMIT: usize = if usize::BITS >= 64 { 4 << 30 } else { usize::MAX / 2 };

/// Makes an [`Interpreter`].
pub struct InterpreterBuilder {
    model: Arc<Model>,
    resolver: Arc<dyn OpResolver>,
    delegates: Vec<Box<dyn Delegate>>,
    policy: Policy,
    threads: usize,
    settings: Settings,
    prepare_later: bool,
}

impl InterpreterBuilder {
    /// Which kernels to use; [`BuiltinOpResolver`] unless this is called.
    #[must_use]
    pub fn resolver(mut self, resolver: impl OpResolver + 'static) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// Adds a delegate. Delegates choose in the order in which they are added.
    #[must_use]
    pub fn delegate(mut self, delegate: Box<dyn Delegate>) -> Self {
        self.delegates.push(delegate);
        self
    }

    /// What to do about nodes that no delegate takes.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How many threads CPU kernels use; 1 unless this is called.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Bytes that no single tensor and no arena may exceed; [`DEFAULT_MEMORY_LIMIT`] unless this is called.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.settings.memory_limit = bytes;
        self
    }

    /// Lets every tensor keep what it held at the end of an invocation, for [`Interpreter::tensor`]. The arena grows
    /// to hold them all; tensors inside a delegate's partition stay with the delegate.
    #[must_use]
    pub fn preserve_all_tensors(mut self) -> Self {
        self.settings.preserve_all_tensors = true;
        self
    }

    /// Leaves shapes, delegates and memory to the first [`Interpreter::prepare`] (or whatever needs it), so that
    /// inputs can be resized before anything depends on their shapes in the file.
    #[must_use]
    pub fn prepare_later(mut self) -> Self {
        self.prepare_later = true;
        self
    }

    /// Finds a kernel for every node, infers shapes, lets delegates claim nodes, and plans memory.
    ///
    /// # Errors
    /// [`Error::UnresolvedOps`] with every op that has no kernel; whatever is wrong with a node, with its location.
    pub fn build(self) -> Result<Interpreter> {
        check_resolved(&self.model, &*self.resolver)?;
        let slots = std::iter::repeat_with(|| None).take(self.model.subgraphs.len()).collect();
        let engine = Engine {
            model: self.model,
            resolver: self.resolver,
            slots,
            resources: Default::default(),
            parallel: crate::threads(self.threads),
            observer: Observer::default(),
            settings: self.settings,
        };
        let delegated = !self.delegates.is_empty();
        let mut interpreter = Interpreter {
            engine,
            delegates: self.delegates,
            delegated,
            policy: self.policy,
            report: Report::default(),
            entry: 0,
        };
        let (subgraph, _) = interpreter.engine.take(0)?;
        interpreter.engine.put(subgraph);
        if !self.prepare_later {
            interpreter.prepare()?;
        }
        Ok(interpreter)
    }
}

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
    delegates: Vec<Box<dyn Delegate>>,
    delegated: bool,
    policy: Policy,
    report: Report,
    /// The subgraph that inputs, outputs and `invoke` are about.
    entry: usize,
}

impl Interpreter {
    /// A builder for `model`.
    pub fn builder(model: impl Into<Arc<Model>>) -> InterpreterBuilder {
        InterpreterBuilder {
            model: model.into(),
            resolver: Arc::new(BuiltinOpResolver::new()),
            delegates: Vec::new(),
            policy: Policy::default(),
            threads: 1,
            settings: Settings { memory_limit: DEFAULT_MEMORY_LIMIT, preserve_all_tensors: false },
            prepare_later: false,
        }
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.engine.model
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
        self.output_tensor(i)?.elements()
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
    /// [`InterpreterBuilder::preserve_all_tensors`], only inputs, outputs, constants and variables still hold what
    /// they held.
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
    pub fn prepare(&mut self) -> Result<()> {
        if self.engine.slots.get(self.entry).and_then(Option::as_ref).is_some_and(|s| s.prepared) {
            return Ok(());
        }
        let (mut subgraph, mut env) = self.engine.take(self.entry)?;
        let result = subgraph.infer(&mut env).and_then(|()| {
            let policy = if self.delegated { self.policy } else { Policy::Prefer };
            delegation::apply(&mut subgraph, &mut self.delegates, policy, &mut env)
        });
        self.engine.put(subgraph);
        self.report = result?;
        Ok(())
    }

    /// Computes the outputs from the inputs. Allocates nothing where all shapes are known.
    pub fn invoke(&mut self) -> Result<()> {
        self.prepare()?;
        let (mut subgraph, mut env) = self.engine.take(self.entry)?;
        let result = subgraph.invoke(&mut env);
        let panicked = env.parallel.take_panicked();
        self.engine.put(subgraph);
        if panicked {
            return Err(Error::State(
                "a kernel panicked on one of its threads; its results are unusable".into(),
            ));
        }
        result
    }

    /// Forgets all state: variable tensors are zero again (INT8 ones hold their zero point), resource variables have no value, initialization runs again.
    pub fn reset_variables(&mut self) -> Result<()> {
        self.engine.resources.reset();
        self.engine.slots.iter_mut().flatten().try_for_each(|s| s.reset_variables())
    }

    /// Who runs what, and why not.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Memory of the selected subgraph.
    pub fn memory(&self) -> MemoryReport {
        self.subgraph().map(|s| s.memory).unwrap_or_default()
    }

    /// What the kernels of delegates measured, per partition.
    pub fn delegate_stats(&self) -> Vec<DelegateStats> {
        self.subgraph().map(|s| s.partitions.iter().map(|p| p.kernel.stats()).collect()).unwrap_or_default()
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
