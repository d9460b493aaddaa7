//! A complete delegate in under a hundred lines: chains of ADD and MUL of float32 tensors of one shape.
//! `docs/write-a-delegate.md` explains each part. Run it with `cargo run --example delegate_add_mul`.
use std::ops::Range;

use delegraph::core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph::core::ops::binary::{AddParams, MulParams};
use delegraph::core::ops::{Activation, Params};
use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder};
use delegraph::delegate_api::*;
use delegraph::{Interpreter, Model, Result, TensorType};

pub(crate) struct AddMul(pub(crate) VersionTable);

impl SimpleDelegate for AddMul {
    fn name(&self) -> &str {
        "add-mul"
    }
    fn max_versions(&self) -> &VersionTable {
        &self.0
    }
    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        for (i, tensor) in node.inputs().enumerate() {
            if tensor.ty() != TensorType::Float32 {
                return Err(Rejection::UnsupportedType { operand: format!("input {i}"), ty: tensor.ty() });
            }
            if tensor.shape() != node.output(0).and_then(|t| t.shape()) {
                return Err(Rejection::UnsupportedParam("the shapes differ".into()));
            }
        }
        match node.params() {
            Params::Add(AddParams { fused_activation_function: Activation::None, .. }) => Ok(()),
            Params::Mul(MulParams { fused_activation_function: Activation::None, .. }) => Ok(()),
            _ => Err(Rejection::UnsupportedParam("an activation is applied".into())),
        }
    }
    fn create_kernel(
        &mut self,
        p: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        let (mut steps, mut values, mut places) = (Vec::new(), Vec::new(), vec![0..0; graph.tensor_count()]);
        // Places are assigned in the order of use, so that results are stored after their operands.
        let mut place = |t: TensorInfo<'_>| {
            let (place, start) = (&mut places[t.id().0], values.len());
            if place.end == 0 {
                values.resize(start + t.shape().map_or(0, |shape| shape.elements()), 0.0);
                *place = start..values.len();
                t.constant_as::<f32>().into_iter().for_each(|c| values[place.clone()].copy_from_slice(c));
            }
            place.clone()
        };
        for node in p.nodes.iter().map(|&id| graph.node(id)).filter(|node| !node.state().folded) {
            let operands: Vec<_> = node.inputs().map(&mut place).collect();
            let result = node.output(0).map_or(0..0, &mut place);
            steps.push((matches!(node.params(), Params::Mul(_)), operands, result));
        }
        let [inputs, outputs] =
            [&p.inputs, &p.outputs].map(|ids| ids.iter().map(|&id| place(graph.tensor(id))).collect());
        Ok(Box::new(Chain { steps, inputs, outputs, values }))
    }
}

/// The values of all tensors, and per step whether it multiplies, its operands and its result.
struct Chain {
    values: Vec<f32>,
    steps: Vec<(bool, Vec<Range<usize>>, Range<usize>)>,
    inputs: Vec<Range<usize>>,
    outputs: Vec<Range<usize>>,
}

impl Kernel for Chain {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }
    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        for (i, place) in self.inputs.iter().enumerate() {
            self.values[place.clone()].copy_from_slice(cx.input(i)?);
        }
        for (multiplies, operands, place) in &self.steps {
            let (before, result) = self.values.split_at_mut(place.start);
            for (i, (a, b)) in operands[0].clone().zip(operands[1].clone()).enumerate() {
                result[i] = if *multiplies { before[a] * before[b] } else { before[a] + before[b] };
            }
        }
        for (i, place) in self.outputs.iter().enumerate() {
            cx.output::<f32>(i)?.copy_from_slice(&self.values[place.clone()]);
        }
        Ok(())
    }
}

impl DelegateKernel for Chain {}

/// `y = (a + b) · b`
pub(crate) fn model() -> Result<Model> {
    let mut graph = SubgraphBuilder::new("main");
    let [a, b] = ["a", "b"].map(|name| graph.input(name, TensorType::Float32, [4]));
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([a, b]).output("sum");
    let y = graph.node(BuiltinOp::MUL, MulParams::default()).inputs([sum, b]).output("y");
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build()
}

pub(crate) fn main() -> Result<()> {
    let delegate = Simple(AddMul(VersionTable::new(&[(BuiltinOp::ADD, 1), (BuiltinOp::MUL, 1)])));
    let mut interpreter = Interpreter::builder(model()?).delegate(delegate).build()?;
    interpreter.input_mut::<f32>(0)?.copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
    interpreter.input_mut::<f32>(1)?.fill(10.0);
    interpreter.invoke()?;
    println!(
        "{} nodes delegated: {:?}",
        interpreter.report().delegated_nodes(),
        interpreter.output::<f32>(0)?
    );
    Ok(())
}
