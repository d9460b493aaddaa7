//! The code of `docs/fusion.md`, and tests that the page shows compiled code.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use common::delegraph;

use std::sync::Arc;

use delegraph::core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph::core::ops::batch_matmul::BatchMatMulParams;
use delegraph::core::ops::binary::{AddParams, SubParams};
use delegraph::core::ops::fully_connected::FullyConnectedParams;
use delegraph::core::ops::{Activation, Params};
use delegraph::core::{
    Attributes, BuiltinOp, ModelBuilder, Node, NodeId, OpResolver, SubgraphBuilder, TensorId,
};
use delegraph::delegate_api::{
    CompositeRunner, DelegateKernel, DelegateParams, GraphView, NodeView, Rejection, VersionTable,
};
use delegraph::fusion::{
    Call, CompositeFusion, Fused, ModelPair, Outcome, PatternFusion, Pipeline, Rewriter, compare,
};
use delegraph::{
    BuiltinOpResolver, Error, Interpreter, Model, MutableOpResolver, Registration, Result, Simple,
    SimpleDelegate, TensorType,
};

/// `relu(x · w + b)` with weights `[inputs, outputs]`, as a framework might write it.
fn dense_body() -> SubgraphBuilder {
    let mut body = SubgraphBuilder::new("acme.dense.body");
    let x = body.input("x", TensorType::Float32, [1, 3]);
    let weights = body.input("weights", TensorType::Float32, [3, 2]);
    let bias = body.input("bias", TensorType::Float32, [2]);
    let product = body.node(BuiltinOp::BATCH_MATMUL, BatchMatMulParams::default());
    let product = product.inputs([x, weights]).output("product");
    let sum = body.node(BuiltinOp::ADD, AddParams::default()).inputs([product, bias]).output("sum");
    let zero = body.constant("zero", [], &[0.0f32]);
    let y = body.node(BuiltinOp::MAXIMUM, Params::None).inputs([sum, zero]).output("y");
    body.outputs([y]);
    body
}

/// A model of one composite, whose weights are constants.
fn dense_model() -> Result<Model> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 3]);
    let weights = graph.constant("weights", [3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let bias = graph.constant("bias", [2], &[0.5f32, -100.0]);
    let attributes = Attributes::new().with("activation", "relu");
    let dense = graph.composite("acme.dense", dense_body()).attributes(&attributes).version(1);
    let y = dense.inputs([x, weights, bias]).output("y");
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build()
}

/// The fused kernel, for applications that have one.
struct Dense;

impl Kernel for Dense {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        cx.ensure_counts(3, 1)?;
        let rows = cx.input(0)?.shape().first().copied().unwrap_or(1);
        let columns = cx.input(1)?.shape().last().copied().unwrap_or(0);
        cx.set_output_shape(0, [rows, columns])
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (x, weights, bias) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.input::<f32>(2)?);
        let output = cx.output::<f32>(0)?;
        dense(x, weights, bias, output);
        Ok(())
    }
}

fn dense(x: &[f32], weights: &[f32], bias: &[f32], output: &mut [f32]) {
    let (columns, features) = (bias.len().max(1), (weights.len() / bias.len().max(1)).max(1));
    for (y, x) in output.chunks_exact_mut(columns).zip(x.chunks_exact(features)) {
        y.copy_from_slice(bias);
        for (x, row) in x.iter().zip(weights.chunks_exact(columns)) {
            y.iter_mut().zip(row).for_each(|(y, w)| *y += x * w);
        }
        y.iter_mut().for_each(|y| *y = y.max(0.0));
    }
}

fn register(resolver: &mut MutableOpResolver) {
    resolver.add_composite("acme.dense", Registration::new(|_| Ok(Dense)), 1);
}

/// A delegate that declares the composite.
struct Npu(VersionTable);

impl Npu {
    fn new() -> Self {
        Npu(VersionTable::default().with_composite("acme.dense", 1))
    }
}

impl SimpleDelegate for Npu {
    fn name(&self) -> &str {
        "npu"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.0
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        let composite = node.composite().ok_or_else(|| Rejection::Other("not a composite".into()))?;
        let attributes = composite.attributes().map_err(|e| Rejection::Other(e.to_string()))?;
        let constant = |i: usize| node.input(i).is_some_and(|t| t.is_constant());
        match attributes.get::<&str>("activation") {
            Ok("relu") if constant(1) && constant(2) => Ok(()),
            Ok("relu") => {
                Err(Rejection::UnsupportedParam("computed weights; only constants are supported".into()))
            }
            _ => Err(Rejection::UnsupportedParam("only the activation \"relu\" is supported".into())),
        }
    }

    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        // Constants are not inputs of a partition: the kernel copies them.
        let node = graph.node(params.nodes[0]);
        let constant = |i: usize| node.input(i).and_then(|t| t.constant_as::<f32>()).map(<[f32]>::to_vec);
        match (constant(1), constant(2)) {
            (Some(weights), Some(bias)) => Ok(Box::new(NpuDense { weights, bias })),
            _ => Err(Error::Unsupported("computed weights; only constants are supported".into())),
        }
    }
}

struct NpuDense {
    weights: Vec<f32>,
    bias: Vec<f32>,
}

impl Kernel for NpuDense {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let rows = cx.input(0)?.shape().first().copied().unwrap_or(1);
        cx.set_output_shape(0, [rows, self.bias.len()])
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        dense(cx.input::<f32>(0)?, &self.weights, &self.bias, cx.output::<f32>(0)?);
        Ok(())
    }
}

impl DelegateKernel for NpuDense {}

/// `acme.dense` becomes FULLY_CONNECTED, whose weights are `[outputs, inputs]`.
struct FuseDense;

impl CompositeFusion for FuseDense {
    fn name(&self) -> &str {
        "acme.dense"
    }

    fn verify_signature(&self, call: &Call, graph: &Rewriter<'_>) -> Result<()> {
        call.arity(3..=3, 1)?;
        let (_, x) = call.of_rank(graph, 0, "x", 2)?;
        let (_, weights) = call.of_rank(graph, 1, "weights", 2)?;
        if let (Some(x), Some(weights)) = (x, weights)
            && x[1] != weights[0]
        {
            return Err(call.wrong(1, "weights", &format!("must have {} rows, is {weights}", x[1])));
        }
        call.attributes()?.get::<&str>("activation").map(drop)
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        let activation = match call.attributes()?.get::<&str>("activation")? {
            "none" => Activation::None,
            "relu" => Activation::Relu,
            other => return Outcome::unchanged(format!("its activation \"{other}\" has no fused form")),
        };
        let weights = call.argument(1, "weights")?;
        let Some(values) = graph.floats(weights) else {
            return Outcome::unchanged("its weights are not FLOAT32 constants");
        };
        let Some([rows, columns]) = graph.shape(weights).and_then(|s| <[usize; 2]>::try_from(s.dims()).ok())
        else {
            return Outcome::unchanged("a shape depends on data");
        };
        // Transposed once: the model contains the result.
        let transposed: Vec<f32> =
            (0..columns).flat_map(|c| values.iter().copied().skip(c).step_by(columns)).collect();
        let transposed = graph.new_constant("weights", [columns, rows], &transposed);
        let params = FullyConnectedParams::default().fused_activation_function(activation);
        let inputs = [call.operand(0), Some(transposed), call.operand(2)];
        let fused = Node::new(BuiltinOp::FULLY_CONNECTED, 1, params, inputs, [call.output(0)?]);
        graph.replace(call.id, &[call.id], fused);
        Ok(Outcome::Fused)
    }
}

/// `(a - b)²` becomes SQUARED_DIFFERENCE.
struct SquaredDifference;

impl PatternFusion for SquaredDifference {
    fn name(&self) -> &str {
        "acme-squared-difference"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, node: NodeId) -> Result<bool> {
        // From the last node backwards: the producer of the squared value.
        let Some(square) = graph.node_of(node, BuiltinOp::SQUARE) else { return Ok(false) };
        let (Some(difference), Some(&output)) = (square.input(0), square.outputs().first()) else {
            return Ok(false);
        };
        let Some((subtraction, sub)) = graph.made_by(difference, BuiltinOp::SUB) else { return Ok(false) };
        let plain = matches!(sub.params(), Params::Sub(p) if p.fused_activation_function == Activation::None);
        // A value with another consumer must be kept.
        if !plain || !graph.is_private(difference) || !graph.is_float(output) {
            return Ok(false);
        }
        let fused =
            Node::new(BuiltinOp::SQUARED_DIFFERENCE, 1, Params::None, sub.inputs().to_vec(), [output]);
        graph.replace(node, &[node, subtraction], fused);
        Ok(true)
    }
}

/// Checks the ops of the fused model, and that it computes the same.
fn check(pipeline: &Pipeline, model: &Model, expected: &[&str]) -> Result<Fused> {
    let fused = pipeline.run(model)?;
    let ops: Vec<String> = fused.model.subgraphs()[0].nodes().iter().map(|n| n.op().to_string()).collect();
    assert_eq!(ops, expected, "{:?}", fused.report);
    let resolver: Arc<dyn OpResolver> = Arc::new(BuiltinOpResolver::new());
    let models = ModelPair { original: &Arc::new(model.clone()), fused: &Arc::new(fused.model.clone()) };
    for difference in compare(models, &resolver, 10)? {
        assert!(difference.is_fine(), "{difference:?}");
    }
    Ok(fused)
}

const X: [f32; 3] = [1.0, -0.5, 2.0];
const Y: [f32; 2] = [1.0 - 1.5 + 10.0 + 0.5, 0.0];

/// Runs the model, and returns what ran the composite.
fn run(mut interpreter: Interpreter) -> Result<Option<CompositeRunner>> {
    interpreter.input_mut::<f32>(0)?.copy_from_slice(&X);
    interpreter.invoke()?;
    assert_eq!(interpreter.output::<f32>(0)?, Y);
    Ok(interpreter.report().composites.first().map(|c| c.runner))
}

#[test]
fn delegates_kernels_and_bodies_give_the_same() -> Result<()> {
    let mut resolver = MutableOpResolver::extending(BuiltinOpResolver::new());
    register(&mut resolver);
    let model = dense_model()?;
    // 1. A delegate that claims it. 2. A kernel of its name. 3. Its body.
    let claimed = Interpreter::builder(model.clone()).resolver(resolver.clone()).delegate(Simple(Npu::new()));
    assert_eq!(run(claimed.build()?)?, Some(CompositeRunner::Delegate(0)));
    let kernel = Interpreter::builder(model.clone()).resolver(resolver);
    assert_eq!(run(kernel.build()?)?, Some(CompositeRunner::Kernel));
    let inlined = Interpreter::builder(model.clone());
    assert_eq!(run(inlined.build()?)?, Some(CompositeRunner::Inlined));
    // 4. Fused: there is no composite left.
    let fused = Interpreter::builder(model).fusion(Pipeline::new().composite(FuseDense));
    assert_eq!(run(fused.build()?)?, None);
    Ok(())
}

#[test]
fn a_composite_is_fused_in_memory_and_from_file_to_file() -> Result<()> {
    let pipeline = Pipeline::new().composite(FuseDense);
    let fused = check(&pipeline, &dense_model()?, &["FULLY_CONNECTED"])?;
    let folder = tempfile::tempdir().unwrap();
    fused.model.save(folder.path().join("fused.tflite"))?;
    let model = delegraph::load(folder.path().join("fused.tflite"))?;
    assert_eq!(run(Interpreter::builder(model).build()?)?, None);
    // Without the fusion, the body takes its place, and the pattern fusions apply to the body.
    check(&Pipeline::new(), &dense_model()?, &["BATCH_MATMUL", "ADD"])?;
    Ok(())
}

#[test]
fn a_wrong_call_is_an_error_that_names_the_argument() {
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [1, 3]);
    let weights = body.input("weights", TensorType::Float32, [1, 3]);
    let bias = body.input("bias", TensorType::Float32, [3]);
    let sum = body.node(BuiltinOp::ADD, AddParams::default()).inputs([x, weights]).output("");
    let y = body.node(BuiltinOp::ADD, AddParams::default()).inputs([sum, bias]).output("");
    body.outputs([y]);
    let mut graph = SubgraphBuilder::new("main");
    let inputs: [(&str, &[usize]); 3] = [("x", &[1, 3]), ("weights", &[1, 3]), ("bias", &[3])];
    let inputs: Vec<TensorId> =
        inputs.into_iter().map(|(name, shape)| graph.input(name, TensorType::Float32, shape)).collect();
    let y = graph.composite("acme.dense", body).inputs(inputs).output("y");
    graph.outputs([y]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let error = Pipeline::new().composite(FuseDense).run(&model).unwrap_err().to_string();
    assert!(error.ends_with(ERROR), "{error}");
    assert!(PAGE.contains(ERROR));
}

const ERROR: &str = "composite \"acme.dense\" version 1: argument 1 (weights) must have 3 rows, is [1, 3]";

#[test]
fn a_pattern_is_fused() -> Result<()> {
    let mut graph = SubgraphBuilder::new("main");
    let a = graph.input("a", TensorType::Float32, [2, 4]);
    let b = graph.input("b", TensorType::Float32, [2, 4]);
    let difference = graph.node(BuiltinOp::SUB, SubParams::default()).inputs([a, b]).output("difference");
    let y = graph.node(BuiltinOp::SQUARE, Params::None).inputs([difference]).output("y");
    graph.outputs([y]);
    let pipeline = Pipeline::empty().pattern(SquaredDifference);
    let once = ModelBuilder::new().subgraph(graph.clone()).build()?;
    check(&pipeline, &once, &["SQUARED_DIFFERENCE"])?;
    // As an output of the model, the difference is kept.
    graph.outputs([y, difference]);
    let both = ModelBuilder::new().subgraph(graph).build()?;
    check(&pipeline, &both, &["SUB", "SQUARE"])?;
    Ok(())
}

const PAGE: &str = include_str!("../docs/fusion.md");

/// All Rust and Python on the page is in a file that is compiled and run.
#[test]
fn the_page_shows_what_is_tested() {
    let sources = [
        include_str!("fusion_guide.rs"),
        include_str!("../examples/fusions/src/lib.rs"),
        include_str!("../scripts/make_fusable_model.py"),
    ];
    let mut lines = PAGE.lines();
    let mut blocks = 0;
    while let Some(line) = lines.next() {
        if !["```rust", "```python"].contains(&line) {
            continue;
        }
        let block = lines.by_ref().take_while(|line| *line != "```").collect::<Vec<_>>().join("\n");
        assert!(sources.iter().any(|source| source.contains(&block)), "not tested:\n{block}");
        blocks += 1;
    }
    assert!(blocks > 8, "{blocks} blocks");
}

/// The page contains every pass and fusion, by the name that `--skip` takes.
#[test]
fn the_page_names_every_pass() {
    let pipeline = Pipeline::new().allow_custom().allow_hybrid();
    for name in pipeline.names() {
        assert!(PAGE.contains(&format!("`{name}`")), "{name}");
    }
}

/// The command prints the output that is on the page.
#[test]
fn the_page_shows_what_is_printed() {
    let printed = delegraph(&["run", "assets/fusion/fusable.tflite"]).expect(3, "my_custom_fused_op");
    for line in printed.stderr.lines().filter(|line| line.contains("custom op \"my")) {
        let line = line.trim_start_matches(['×', '│', '╰', '├', '─', '▶', ' ']);
        assert!(PAGE.contains(line.trim()), "{line}");
    }
}
