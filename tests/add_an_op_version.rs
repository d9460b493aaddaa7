//! The example of `docs/add-an-op-version.md`: dilation, version 2 of DEPTHWISE_CONV_2D.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Only tests call this.

use delegraph::core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph::core::ops::Padding;
use delegraph::core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph::core::{BuiltinOp, ModelBuilder, Op, OpResolver, SubgraphBuilder};
use delegraph::delegate_api::{
    DelegateKernel, DelegateParams, GraphView, NodeView, Rejection, Simple, SimpleDelegate, VersionTable,
};
use delegraph::{
    BuiltinOpResolver, Error, Interpreter, Model, ModelBytes, MutableOpResolver, ReferenceOpResolver,
    Registration, Result, TensorType,
};

const OP: BuiltinOp = BuiltinOp::DEPTHWISE_CONV_2D;
const FILTER: [f32; 4] = [1.0, 10.0, 100.0, 1000.0];

/// A file with one depthwise convolution of 2x2, on an input of 4x4.
fn file(dilation: i32) -> Vec<u8> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 4, 4, 1]);
    let filter = graph.constant("filter", [1, 2, 2, 1], &FILTER);
    let params = DepthwiseConv2DParams::default()
        .padding(Padding::Valid)
        .stride_w(1)
        .stride_h(1)
        .depth_multiplier(1)
        .dilation_w_factor(dilation)
        .dilation_h_factor(dilation);
    let y = graph.node(OP, params).inputs([x, filter]).output("y");
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap().to_bytes().unwrap()
}

fn model(dilation: i32) -> Model {
    Model::from_bytes(ModelBytes::new(file(dilation))).unwrap()
}

fn input() -> Vec<f32> {
    (0..16).map(|i| i as f32).collect()
}

/// The result of the convolution, computed directly.
fn expected(dilation: usize) -> Vec<f32> {
    let size = 4 - dilation;
    let at = |y: usize, x: usize| (4 * y + x) as f32;
    let output = |y: usize, x: usize| {
        FILTER[0] * at(y, x)
            + FILTER[1] * at(y, x + dilation)
            + FILTER[2] * at(y + dilation, x)
            + FILTER[3] * at(y + dilation, x + dilation)
    };
    (0..size * size).map(|i| output(i / size, i % size)).collect()
}

fn run(interpreter: &mut Interpreter) -> Vec<f32> {
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&input());
    interpreter.invoke().unwrap();
    interpreter.output::<f32>(0).unwrap().to_vec()
}

/// A runtime without dilation: the same kernel, registered for version 1 only.
fn old_resolver() -> MutableOpResolver {
    let current = ReferenceOpResolver::new();
    let kernel = current.find(&Op::Builtin(OP), 1).unwrap().clone();
    let mut resolver = MutableOpResolver::new();
    resolver.add_builtin(OP, kernel, 1);
    resolver
}

/// A delegate that runs depthwise convolutions of one channel, up to a version that it declares.
struct Depthwise {
    versions: VersionTable,
}

impl Depthwise {
    fn up_to(version: u32) -> Simple<Self> {
        Simple(Depthwise { versions: VersionTable::new(&[(OP, version)]) })
    }
}

impl SimpleDelegate for Depthwise {
    fn name(&self) -> &str {
        "depthwise"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn supports(&self, _: &NodeView<'_>) -> std::result::Result<(), Rejection> {
        Ok(())
    }

    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        let params: &DepthwiseConv2DParams = graph.node(params.nodes[0]).params().try_into()?;
        Ok(Box::new(DepthwiseKernel { dilation: params.dilation_w_factor as usize }))
    }
}

struct DepthwiseKernel {
    dilation: usize,
}

impl Kernel for DepthwiseKernel {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        let (d, size) = (self.dilation, 4 - self.dilation);
        for (i, out) in output.iter_mut().enumerate() {
            let at = |dy: usize, dx: usize| input[4 * (i / size + dy * d) + i % size + dx * d];
            *out = (0..4).map(|k| FILTER[k] * at(k / 2, k % 2)).sum();
        }
        Ok(())
    }
}

impl DelegateKernel for DepthwiseKernel {}

#[test]
fn a_model_without_dilation_gets_version_1_and_runs_everywhere() {
    let model = model(1);
    assert_eq!(model.subgraphs()[0].nodes()[0].version(), 1);
    assert_eq!(model.min_runtime_version(), Some("1.5.0"));
    let mut old = Interpreter::builder(model.clone()).resolver(old_resolver()).build().unwrap();
    let mut new = Interpreter::builder(model).resolver(BuiltinOpResolver::new()).build().unwrap();
    assert_eq!(run(&mut old), expected(1));
    assert_eq!(run(&mut new), expected(1));
}

#[test]
fn a_model_with_dilation_gets_version_2_which_the_old_runtime_refuses() {
    let model = model(2);
    assert_eq!(model.subgraphs()[0].nodes()[0].version(), 2);
    assert_eq!(model.min_runtime_version(), Some("1.12.0"));
    let Err(error) = Interpreter::builder(model.clone()).resolver(old_resolver()).build() else {
        unreachable!("the old runtime runs version 2");
    };
    assert!(matches!(error, Error::UnresolvedOps(_)));
    let text = error.to_string();
    for part in ["DEPTHWISE_CONV_2D", "version 2", "1.12.0", "node 0"] {
        assert!(text.contains(part), "\"{part}\" is not in: {text}");
    }
    let mut new = Interpreter::builder(model).build().unwrap();
    assert_eq!(run(&mut new), expected(2));
}

#[test]
fn an_old_delegate_leaves_version_2_to_the_cpu_and_a_new_one_takes_it() {
    for (dilation, max, claimed) in [(1, 1, true), (2, 1, false), (1, 2, true), (2, 2, true)] {
        let delegate = Depthwise::up_to(max);
        let mut interpreter = Interpreter::builder(model(dilation)).delegate(delegate).build().unwrap();
        let report = interpreter.report();
        assert_eq!(report.delegated_nodes() == 1, claimed, "dilation {dilation}, delegate up to {max}");
        if !claimed {
            let (node, reason) = report.rejected().next().unwrap();
            assert_eq!(node.version, 2);
            assert_eq!(*reason, Rejection::VersionTooHigh { op: OP.into(), version: 2, max: 1 });
        }
        assert_eq!(run(&mut interpreter), expected(dilation as usize));
    }
}

#[test]
fn an_old_file_that_lacks_the_params_means_what_it_meant() {
    // A FlatBuffer does not store default values, so a file without dilation is identical to the old file: it does not
    // contain the new fields.
    let (without, with) = (file(1), file(2));
    assert!(without.len() < with.len(), "{} bytes, {} bytes", without.len(), with.len());
    let model = model(1);
    let params: &DepthwiseConv2DParams = (model.subgraphs()[0].nodes()[0].params()).try_into().unwrap();
    assert_eq!((params.dilation_w_factor, params.dilation_h_factor), (1, 1));
    assert_eq!(run(&mut Interpreter::builder(model).build().unwrap()), expected(1));
}

#[test]
fn a_version_that_is_too_low_is_not_written() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 4, 4, 1]);
    let filter = graph.constant("filter", [1, 2, 2, 1], &FILTER);
    let params =
        DepthwiseConv2DParams::default().stride_w(1).stride_h(1).dilation_w_factor(2).dilation_h_factor(2);
    let y = graph.node(OP, params).inputs([x, filter]).version(1).output("y");
    graph.outputs([y]);
    let error = ModelBuilder::new().subgraph(graph).build().unwrap_err().to_string();
    assert!(error.contains("DEPTHWISE_CONV_2D") && error.contains('2'), "{error}");
}

#[test]
fn a_node_of_a_version_that_is_too_low_gets_a_kernel_that_knows_its_features() {
    let mut draft = model(2).into_draft();
    draft.subgraphs[0].nodes_mut()[0].set_version(1);
    let understated = draft.verify().unwrap();
    let mut resolver = MutableOpResolver::new();
    resolver.add_builtin(OP, Registration::new(|_| Ok(DepthwiseKernel { dilation: 1 })), 1);
    let mut old = Interpreter::builder(understated.clone()).resolver(resolver.clone()).build().unwrap();
    assert_ne!(run(&mut old), expected(2));
    let kernel = ReferenceOpResolver::new().find(&Op::Builtin(OP), 2).unwrap().clone();
    resolver.add_builtin(OP, kernel, 2);
    let mut new = Interpreter::builder(understated).resolver(resolver).build().unwrap();
    assert_eq!(run(&mut new), expected(2));
}
