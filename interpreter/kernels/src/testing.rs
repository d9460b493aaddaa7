//! Table tests of kernels: one node, evaluated and compared.

use std::sync::Arc;

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{Model, Node, NodeId, Subgraph, Tensor, TensorId};
use delegraph_core::kernel::{
    Budget, Host, InitContext, Kernel, Parallel, Placement, PrepareContext, Resources, RuntimeTensor, Strings,
};
use delegraph_core::quantization::Affine;
use delegraph_core::{BuiltinOp, Element, Op, OpResolver, Params, Quantization, Shape, TensorType};

use crate::{
    BuiltinOpResolver, Environment, Evaluation, KnownInputs, OutputShapes, ReferenceOpResolver, evaluate,
    infer_outputs,
};
use delegraph_compute::ThreadPool;

/// A tensor with data: an input, or an expected output.
#[derive(Debug, Clone)]
pub(crate) struct T {
    ty: TensorType,
    shape: Shape,
    bytes: Vec<u8>,
    quantization: Option<Quantization>,
    constant: bool,
    variable: bool,
    intermediate: bool,
}

impl T {
    pub(crate) fn new<E: Element>(shape: &[usize], elements: &[E]) -> Self {
        let bytes = bytemuck::cast_slice(elements).to_vec();
        let shape = Shape::new(shape);
        assert_eq!(shape.elements(), elements.len(), "a test's tensor has the wrong number of elements");
        T {
            ty: E::TYPE,
            shape,
            bytes,
            quantization: None,
            constant: false,
            variable: false,
            intermediate: false,
        }
    }

    pub(crate) fn strings(shape: &[usize], strings: &[&str]) -> Self {
        let bytes = Strings::encode(strings.iter().map(|s| s.as_bytes())).unwrap();
        T { ty: TensorType::String, shape: Shape::new(shape), bytes, ..T::new::<u8>(&[0], &[]) }
    }

    /// Makes the tensor a constant of the model.
    pub(crate) fn constant(mut self) -> Self {
        self.constant = true;
        self
    }

    /// Makes the tensor a variable, which is initially zero.
    pub(crate) fn variable(mut self) -> Self {
        self.variable = true;
        self
    }

    /// An intermediate tensor, which holds the quantization of a value inside the op.
    pub(crate) fn intermediate(scale: f32, zero_point: i64) -> Self {
        T { intermediate: true, ..T::new(&[], &[0i16]).quantized(scale, zero_point) }
    }

    pub(crate) fn quantized(mut self, scale: f32, zero_point: i64) -> Self {
        self.quantization = Some(Quantization::per_tensor(scale, zero_point));
        self
    }

    /// Sets the quantization to that of `other`.
    pub(crate) fn quantized_like(mut self, other: &Self) -> Self {
        self.quantization.clone_from(&other.quantization);
        self
    }

    /// A tensor of zeros with this type and quantization.
    pub(crate) fn like(&self, shape: &[usize]) -> Self {
        let shape = Shape::new(shape);
        let width = self.bytes.len().checked_div(self.shape.elements()).unwrap_or(0);
        T { bytes: vec![0; shape.elements() * width], shape, ..self.clone() }
    }

    pub(crate) fn per_channel(mut self, scales: &[f32], dimension: usize) -> Self {
        let zero_points = vec![0; scales.len()].into();
        self.quantization =
            Some(Quantization::Affine(Affine { scales: scales.to_vec(), zero_points, dimension }));
        self
    }
}

/// Runs one node; `outputs` has the declared types and quantizations. `None` omits an optional input.
pub(crate) fn run(
    resolver: impl OpResolver + 'static,
    op: impl Into<Op>,
    version: u32,
    params: Params,
    inputs: &[Option<T>],
    outputs: &[T],
) -> Result<Vec<(Shape, Vec<u8>)>> {
    run_custom(resolver, op, version, params, &[], inputs, outputs)
}

/// Runs one node of a custom op with options.
pub(crate) fn run_custom(
    resolver: impl OpResolver + 'static,
    op: impl Into<Op>,
    version: u32,
    params: Params,
    options: &[u8],
    inputs: &[Option<T>],
    outputs: &[T],
) -> Result<Vec<(Shape, Vec<u8>)>> {
    let mut node = SingleNode::new(&resolver, op, version, params, (options, 1), inputs, outputs)?;
    results(&mut node, outputs.len())
}

fn results(node: &mut SingleNode, outputs: usize) -> Result<Vec<(Shape, Vec<u8>)>> {
    node.invoke()?;
    let output = |i| {
        let tensor = node.output(i);
        (tensor.shape.clone(), tensor.bytes().to_vec())
    };
    Ok((0..outputs).map(output).collect())
}

/// One node with its kernel and its tensors, which hold the values of the inputs.
pub(crate) struct SingleNode {
    model: Model,
    node: Node,
    kernel: Box<dyn Kernel>,
    tensors: Vec<RuntimeTensor>,
    host: NoSubgraphs,
    pool: ThreadPool,
}

/// Maximum size of an output or temporary, in bytes.
const MEMORY_LIMIT: usize = 1 << 30;

impl SingleNode {
    /// Prepares one node with custom options, threads and inputs.
    ///
    /// The kernel prepares without the values of non-constant inputs, as before the first invocation.
    pub(crate) fn new(
        resolver: &dyn OpResolver,
        op: impl Into<Op>,
        version: u32,
        params: Params,
        (options, threads): (&[u8], usize),
        inputs: &[Option<T>],
        outputs: &[T],
    ) -> Result<Self> {
        let mut data = options.to_vec();
        let mut tensors = Vec::new();
        for (i, t) in inputs.iter().flatten().chain(outputs).enumerate() {
            // Constants are aligned to 16 bytes, like those of files.
            data.resize(data.len().next_multiple_of(16), 0);
            let range = t.constant.then(|| data.len()..data.len() + t.bytes.len());
            if t.constant {
                data.extend_from_slice(&t.bytes);
            }
            let mut tensor = Tensor::new(format!("t{i}"), t.ty, t.shape.clone()).with_data(range);
            tensor.set_quantization(t.quantization.clone());
            tensor.set_variable(t.variable);
            tensors.push(tensor);
        }
        let mut next = 0..;
        let mut id = || TensorId(next.next().unwrap());
        let ids: Vec<_> = inputs.iter().map(|t| t.as_ref().map(|_| id())).collect();
        let inside = |t: &Option<T>| t.as_ref().is_some_and(|t| t.intermediate);
        let of =
            |which: bool| ids.iter().zip(inputs).filter(move |(_, t)| inside(t) == which).map(|(id, _)| *id);
        let (node_inputs, intermediates) = (of(false).collect::<Vec<_>>(), of(true).collect::<Vec<_>>());
        let node_outputs: Vec<_> = outputs.iter().map(|_| id()).collect();
        let given = || ids.iter().flatten().copied().zip(inputs.iter().flatten());
        let is_fed = |t: &T| !t.constant && !t.variable && !t.intermediate;
        let node = Node::new(op, version, params, node_inputs, node_outputs.clone())
            .with_custom_options(0..options.len())
            .with_intermediates(intermediates);
        let fed: Vec<_> = given().filter(|(_, t)| is_fed(t)).map(|(id, _)| id).collect();
        let subgraph = Subgraph::new("", tensors, vec![node.clone()], fed, node_outputs);
        // Verifies the node.
        let model = Model::from_subgraphs(data, vec![subgraph.clone()])?;
        let at = |e: Error| e.at(model.locate(0, NodeId(0)));
        let registration = resolver.find(node.op(), node.version());
        let registration = registration.ok_or_else(|| at(Error::Unsupported("no kernel".into())))?;
        let cx = InitContext::new(&node, &subgraph).with_custom_options(options);
        let mut kernel = registration.init(&cx).map_err(at)?;
        let mut tensors: Vec<RuntimeTensor> = subgraph.tensors().iter().map(RuntimeTensor::new).collect();
        for (id, t) in given() {
            let tensor = &mut tensors[id.0];
            if t.constant {
                tensor.set_constant_copy(&t.bytes)?;
            } else if t.variable {
                tensor.allocate(Placement::Variable)?;
                reset(tensor)?;
            }
        }
        let (mut host, pool) = (NoSubgraphs::default(), ThreadPool::new(threads));
        prepare(&node, &mut *kernel, &mut tensors, &mut host, threads).map_err(at)?;
        for (id, t) in given().filter(|(_, t)| is_fed(t)) {
            let tensor = &mut tensors[id.0];
            tensor.allocate_bytes(Placement::Dynamic, t.bytes.len())?;
            tensor.bytes_mut()?.copy_from_slice(&t.bytes);
        }
        Ok(SingleNode { model, node, kernel, tensors, host, pool })
    }

    /// Computes the outputs.
    pub(crate) fn invoke(&mut self) -> Result<()> {
        let SingleNode { model, node, kernel, tensors, host, pool } = self;
        let mut run = |known| {
            let mut environment = Environment { host, parallel: pool };
            evaluate(node, &mut **kernel, tensors, known, &mut environment)
                .map_err(|e| e.at(model.locate(0, NodeId(0))))
        };
        if run(KnownInputs::Constants)? == Evaluation::DataDependent {
            assert_eq!(run(KnownInputs::All)?, Evaluation::Computed);
        }
        assert!(!pool.take_panicked(), "the kernel panicked on a thread");
        Ok(())
    }

    /// Output `i`.
    pub(crate) fn output(&self, i: usize) -> &RuntimeTensor {
        &self.tensors[self.node.outputs()[i].0]
    }

    /// Sets variables to their initial value.
    pub(crate) fn reset_variables(&mut self) -> Result<()> {
        self.tensors.iter_mut().filter(|t| t.placement() == Placement::Variable).try_for_each(reset)
    }
}

/// Infers and prepares a node before its inputs have values, unless the shape of an output depends on those.
fn prepare(
    node: &Node,
    kernel: &mut dyn Kernel,
    tensors: &mut [RuntimeTensor],
    host: &mut NoSubgraphs,
    threads: usize,
) -> Result<()> {
    if infer_outputs(node, tensors, KnownInputs::Constants)? == OutputShapes::DataDependent {
        return Ok(());
    }
    let (params, inputs, outputs) = (node.params(), node.inputs(), node.outputs());
    let mut cx = PrepareContext::new(params, node.version(), inputs, outputs, tensors, host)
        .with_threads(threads)
        .with_persistent_memory();
    kernel.prepare(&mut cx)
}

/// Fills a variable with zeros: quantized INT8 ones with their zero point.
fn reset(tensor: &mut RuntimeTensor) -> Result<()> {
    let zero = match (tensor.ty, tensor.scale_zero_point()) {
        (TensorType::Int8, Some((_, zero_point))) => zero_point as u8,
        _ => 0,
    };
    tensor.bytes_mut()?.fill(zero);
    Ok(())
}

/// A host with resources and without other subgraphs.
pub(crate) struct NoSubgraphs {
    resources: Resources,
    budget: Arc<Budget>,
}

impl NoSubgraphs {
    /// A host whose kernels may use `bytes` bytes.
    pub(crate) fn within(bytes: usize) -> Self {
        NoSubgraphs { resources: Resources::default(), budget: Budget::new(bytes) }
    }
}

impl Default for NoSubgraphs {
    fn default() -> Self {
        Self::within(MEMORY_LIMIT)
    }
}

impl Host for NoSubgraphs {
    fn resources(&mut self) -> &mut Resources {
        &mut self.resources
    }

    fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    fn subgraph(&self, _: usize) -> Option<&Subgraph> {
        None
    }

    fn prepare_callee(&mut self, index: usize, _: &[Shape]) -> Result<Vec<Option<Shape>>> {
        Err(Error::InvalidNode(format!("subgraph {index} does not exist")))
    }

    fn reset_callee(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn call(&mut self, index: usize, _: &[&RuntimeTensor]) -> Result<Vec<&RuntimeTensor>> {
        Err(Error::InvalidNode(format!("subgraph {index} does not exist")))
    }
}

/// Runs one node on the reference and the optimized kernels and compares with `expected`: floats within tolerance,
/// other types exactly. The node runs with the given inputs, and again with constant inputs.
pub(crate) fn check(op: impl Into<Op>, version: u32, params: Params, inputs: &[Option<T>], expected: &[T]) {
    let op = op.into();
    let constants: Vec<Option<T>> =
        inputs.iter().cloned().map(|t| t.map(|t| if t.variable { t } else { t.constant() })).collect();
    for (name, inputs) in [("as given", inputs), ("constant", &constants)] {
        for reference in [true, false] {
            let (op, params) = (op.clone(), params.clone());
            let result = match reference {
                true => run(ReferenceOpResolver::new(), op, version, params, inputs, expected),
                false => run(BuiltinOpResolver::new(), op, version, params, inputs, expected),
            };
            let kernels = if reference { "reference" } else { "optimized" };
            let result = result.unwrap_or_else(|e| panic!("{kernels} kernel, inputs {name}: {e}"));
            for (i, ((shape, bytes), want)) in result.iter().zip(expected).enumerate() {
                assert_eq!(shape, &want.shape, "{kernels} kernel, inputs {name}, output {i}: shape");
                compare(want, bytes, &format!("{kernels} kernel, inputs {name}, output {i}"));
            }
        }
    }
}

/// Runs one node on the reference kernels and on the optimized kernels with one and three threads, and compares: floats
/// within tolerance, other types exactly. Returns whether there are outputs; otherwise both fail with the same error.
pub(crate) fn check_optimized(
    op: BuiltinOp,
    version: u32,
    params: &Params,
    inputs: &[Option<T>],
    outputs: &[T],
) -> bool {
    let want = run(ReferenceOpResolver::new(), op, version, params.clone(), inputs, outputs);
    let on = |threads: usize| {
        let resolver = BuiltinOpResolver::new();
        let mut node =
            SingleNode::new(&resolver, op, version, params.clone(), (&[], threads), inputs, outputs)?;
        results(&mut node, outputs.len())
    };
    let got = on(1);
    if let (Ok(one), Ok(three)) = (&got, &on(3)) {
        assert!(one == three, "{op:?} {params:?}: three threads give another result than one");
    }
    let what = || {
        let shapes: Vec<_> = inputs.iter().flatten().map(|t| (t.ty, &t.shape, &t.quantization)).collect();
        format!(
            "{op:?} {params:?} of {shapes:?} to {:?}",
            outputs.iter().map(|t| &t.shape).collect::<Vec<_>>()
        )
    };
    match (want, got) {
        (Ok(want), Ok(got)) => {
            for (i, (((shape, bytes), (want_shape, want)), output)) in
                got.iter().zip(&want).zip(outputs).enumerate()
            {
                assert_eq!(shape, want_shape, "{}, output {i}", what());
                let want = T { bytes: want.clone(), ..output.clone() };
                compare(&want, bytes, &format!("{}, output {i}", what()));
            }
            true
        }
        (Err(want), Err(got)) => {
            assert_eq!(got.to_string(), want.to_string(), "{}", what());
            false
        }
        (Ok(_), Err(e)) => panic!("{}: only the optimized kernel fails: {e}", what()),
        (Err(e), Ok(_)) => panic!("{}: only the reference kernel fails: {e}", what()),
    }
}

/// The error of one node on the reference kernels.
pub(crate) fn error(
    op: impl Into<Op>,
    version: u32,
    params: Params,
    inputs: &[Option<T>],
    outputs: &[T],
) -> String {
    match run(ReferenceOpResolver::new(), op, version, params, inputs, outputs) {
        Ok(_) => panic!("expected an error"),
        Err(e) => e.to_string(),
    }
}

fn compare(want: &T, bytes: &[u8], what: &str) {
    if want.ty != TensorType::Float32 {
        assert_eq!(bytes, want.bytes, "{what}");
        return;
    }
    let floats = |b: &[u8]| b.as_chunks().0.iter().map(|c| f32::from_le_bytes(*c)).collect::<Vec<_>>();
    let (got, want) = (floats(bytes), floats(&want.bytes));
    assert_eq!(got.len(), want.len(), "{what}: elements");
    let max = want.iter().filter(|v| v.is_finite()).fold(0f32, |m, v| m.max(v.abs()));
    let near = |a: f32, b: f32| {
        approx::abs_diff_eq!(a, b, epsilon = 1e-5 + 1e-4 * max) || a == b || (a.is_nan() && b.is_nan())
    };
    assert!(got.iter().zip(&want).all(|(&a, &b)| near(a, b)), "{what}:\n got {got:?}\nwant {want:?}");
}
