//! One helper for table tests of kernels: a model of one node, made in memory, run, and compared.

use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::graph::{Model, Node, Subgraph, Tensor, TensorId};
use delegraph_core::kernel::Strings;
use delegraph_core::quantization::Affine;
use delegraph_core::{BuiltinOp, Element, Op, OpResolver, Params, Quantization, Shape, TensorType};

use crate::{BuiltinOpResolver, Interpreter, ReferenceOpResolver};

/// A tensor with data: an input, or what an output should be.
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

    /// The file holds the data.
    pub(crate) fn constant(mut self) -> Self {
        self.constant = true;
        self
    }

    /// State that starts at zero.
    pub(crate) fn variable(mut self) -> Self {
        self.variable = true;
        self
    }

    /// Not an input, but what carries the quantization of values inside the op.
    pub(crate) fn intermediate(scale: f32, zero_point: i64) -> Self {
        T { intermediate: true, ..T::new(&[], &[0i16]).quantized(scale, zero_point) }
    }

    pub(crate) fn quantized(mut self, scale: f32, zero_point: i64) -> Self {
        self.quantization = Some(Quantization::per_tensor(scale, zero_point));
        self
    }

    /// With the quantization of another one.
    pub(crate) fn quantized_like(mut self, other: &Self) -> Self {
        self.quantization.clone_from(&other.quantization);
        self
    }

    /// Another tensor of the type and quantization, all zeros.
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

/// Runs one node with these inputs; outputs have the declared type and quantization of `outputs`. `None` leaves an
/// optional input out.
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

/// Runs one node with these options of a custom op.
pub(crate) fn run_custom(
    resolver: impl OpResolver + 'static,
    op: impl Into<Op>,
    version: u32,
    params: Params,
    options: &[u8],
    inputs: &[Option<T>],
    outputs: &[T],
) -> Result<Vec<(Shape, Vec<u8>)>> {
    results(&mut interpreter(resolver, op, version, params, (options, 1), inputs, outputs)?, outputs.len())
}

fn results(interpreter: &mut Interpreter, outputs: usize) -> Result<Vec<(Shape, Vec<u8>)>> {
    interpreter.invoke()?;
    let output = |i| interpreter.output_tensor(i).map(|t| (t.shape.clone(), t.bytes().to_vec()));
    (0..outputs).map(output).collect()
}

/// An interpreter of one node that has its inputs, with custom options and threads.
pub(crate) fn interpreter(
    resolver: impl OpResolver + 'static,
    op: impl Into<Op>,
    version: u32,
    params: Params,
    (options, threads): (&[u8], usize),
    inputs: &[Option<T>],
    outputs: &[T],
) -> Result<Interpreter> {
    let mut data = options.to_vec();
    let mut tensors = Vec::new();
    for (i, t) in inputs.iter().flatten().chain(outputs).enumerate() {
        // Constants start at multiples of 16, as in real files.
        data.resize(data.len().next_multiple_of(16), 0);
        let range = t.constant.then(|| data.len()..data.len() + t.bytes.len());
        if t.constant {
            data.extend_from_slice(&t.bytes);
        }
        tensors.push(Tensor {
            quantization: t.quantization.clone().map(Arc::new),
            is_variable: t.variable,
            data: range,
            ..Tensor::new(format!("t{i}"), t.ty, t.shape.clone())
        });
    }
    let mut next = 0..;
    let mut id = || TensorId(next.next().unwrap());
    let ids: Vec<_> = inputs.iter().map(|t| t.as_ref().map(|_| id())).collect();
    let inside = |t: &Option<T>| t.as_ref().is_some_and(|t| t.intermediate);
    let of = |which: bool| ids.iter().zip(inputs).filter(move |(_, t)| inside(t) == which).map(|(id, _)| *id);
    let (node_inputs, intermediates) = (of(false).collect::<Vec<_>>(), of(true).collect());
    let node_outputs: Vec<_> = outputs.iter().map(|_| id()).collect();
    let fed: Vec<(TensorId, &T)> = ids
        .iter()
        .flatten()
        .copied()
        .zip(inputs.iter().flatten())
        .filter(|(_, t)| !t.constant && !t.variable && !t.intermediate)
        .collect();
    let subgraph = Subgraph {
        inputs: fed.iter().map(|(id, _)| *id).collect(),
        outputs: node_outputs.clone(),
        nodes: vec![Node {
            custom_options: 0..options.len(),
            intermediates,
            ..Node::new(op, version, params, node_inputs, node_outputs)
        }],
        tensors,
        ..Default::default()
    };
    let model = Model::from_subgraphs(data, vec![subgraph])?;
    let mut interpreter = Interpreter::builder(model).resolver(resolver).threads(threads).build()?;
    for (i, (_, t)) in fed.iter().enumerate() {
        interpreter.set_input_bytes(i, &t.bytes)?;
    }
    Ok(interpreter)
}

/// Runs one node on the reference and on the optimized kernels; both must give `expected`, floats within the
/// project's tolerance, everything else exactly. Inputs are tried as given, and once more as constants.
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

/// Runs one node on the reference and on the optimized kernels, which must agree: floats within the project's tolerance,
/// everything else exactly. Returns whether they gave outputs rather than the same error.
pub(crate) fn twins(
    op: BuiltinOp,
    version: u32,
    params: &Params,
    inputs: &[Option<T>],
    outputs: &[T],
) -> bool {
    let want = run(ReferenceOpResolver::new(), op, version, params.clone(), inputs, outputs);
    let on = |threads: usize| {
        let mut interpreter = interpreter(
            BuiltinOpResolver::new(),
            op,
            version,
            params.clone(),
            (&[], threads),
            inputs,
            outputs,
        )?;
        results(&mut interpreter, outputs.len())
    };
    let got = on(1);
    if let (Ok(one), Ok(three)) = (&got, &on(3)) {
        assert!(one == three, "{op:?} {params:?}: otherwise on three threads");
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

/// The error of running one node on the reference kernels.
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
    let near = |a: f32, b: f32| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 + 1e-4 * max;
    assert!(got.iter().zip(&want).all(|(&a, &b)| near(a, b)), "{what}:\n got {got:?}\nwant {want:?}");
}
