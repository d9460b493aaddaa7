//! A Delegraph delegate. It runs ADD on float32 tensors of one shape, and is where one for your hardware begins:
//! Delegraph's `docs/write-a-delegate.md` says what each part is for.
//!
//! `cargo test` compares it with the reference kernels. `cargo build` also makes a plugin of it:
//!
//! ```sh
//! delegraph explain MODEL.tflite --delegate plugin:target/debug/libthe_delegate.so
//! ```

use std::ops::Range;

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext, Temporary};
use delegraph_core::ops::binary::AddParams;
use delegraph_core::{BuiltinOp, Error, Op, Result, TensorId, TensorType};
use delegraph_delegate_api::plugin::PluginOptions;
use delegraph_delegate_api::{
    DelegateKernel, DelegateParams, GraphView, NodeView, Rejection, SimpleDelegate, VersionTable,
    export_delegate,
};

export_delegate!(|_: &PluginOptions| Ok(MyDelegate::new()));

/// The delegate.
pub struct MyDelegate {
    versions: VersionTable,
}

impl MyDelegate {
    /// A delegate without options.
    pub fn new() -> Self {
        // Per op, the highest version that is implemented. Whatever is above, or not here, is never offered.
        MyDelegate { versions: VersionTable::new(&[(BuiltinOp::ADD, 1)]) }
    }
}

impl Default for MyDelegate {
    fn default() -> Self {
        MyDelegate::new()
    }
}

impl SimpleDelegate for MyDelegate {
    fn name(&self) -> &str {
        "the-delegate"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        // Its inputs are constant: it was computed already, and there is nothing to run.
        if node.state().folded {
            return Ok(());
        }
        match node.op() {
            Op::Builtin(BuiltinOp::ADD) => supports_add(node),
            op => Err(Rejection::UnsupportedOp { op: op.clone() }),
        }
    }

    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        Ok(Box::new(Sums::new(params, graph)?))
    }
}

fn supports_add(node: &NodeView<'_>) -> Result<(), Rejection> {
    for (i, tensor) in node.inputs().enumerate() {
        if tensor.ty() != TensorType::Float32 {
            return Err(Rejection::UnsupportedType { operand: format!("input {i}"), ty: tensor.ty() });
        }
        if tensor.shape() != node.output(0).and_then(|output| output.shape()) {
            return Err(Rejection::UnsupportedParam("the inputs are broadcast".into()));
        }
    }
    let params: Result<&AddParams, _> = node.params().try_into();
    match params.ok().and_then(|params| params.fused_activation_function.clamp()) {
        Some(_) => Ok(()),
        None => Err(Rejection::UnsupportedParam("the activation is more than a clamp".into())),
    }
}

/// Runs a partition: its nodes one after the other.
struct Sums {
    steps: Vec<Sum>,
    /// Where in the workspace each of the partition's outputs is.
    outputs: Vec<Range<usize>>,
    /// Elements of all results together.
    size: usize,
    workspace: Option<Temporary>,
}

struct Sum {
    operands: [Operand; 2],
    /// The activation.
    low: f32,
    high: f32,
    /// Where in the workspace the result goes.
    result: Range<usize>,
}

enum Operand {
    /// The partition's input of this number.
    Input(usize),
    /// The result of an earlier step.
    Computed(Range<usize>),
    Constant(Vec<f32>),
}

impl Sums {
    fn new(params: &DelegateParams, graph: &GraphView<'_>) -> Result<Self> {
        let mut computed: Vec<Option<Range<usize>>> = vec![None; graph.tensor_count()];
        let place = |computed: &[Option<Range<usize>>], id: TensorId| {
            let place = computed.get(id.0).cloned().flatten();
            place.ok_or_else(|| Error::State(format!("tensor {} was not computed", id.0)))
        };
        let (mut steps, mut size) = (Vec::new(), 0);
        for node in params.nodes.iter().map(|&id| graph.node(id)).filter(|node| !node.state().folded) {
            let operand = |i: usize| -> Result<Operand> {
                let tensor =
                    node.input(i).ok_or_else(|| Error::InvalidNode(format!("input {i} is missing")))?;
                let input = params.inputs.iter().position(|&id| id == tensor.id());
                Ok(match (input, tensor.constant_as::<f32>()) {
                    (Some(input), _) => Operand::Input(input),
                    (None, Some(values)) => Operand::Constant(values.to_vec()),
                    (None, None) => Operand::Computed(place(&computed, tensor.id())?),
                })
            };
            let operands = [operand(0)?, operand(1)?];
            let add: &AddParams = node.params().try_into()?;
            let unbounded = (f32::NEG_INFINITY, f32::INFINITY);
            let (low, high) = add.fused_activation_function.clamp().unwrap_or(unbounded);
            let elements = node.output(0).and_then(|t| t.shape()).map_or(0, |shape| shape.elements());
            let result = size..size + elements;
            size = result.end;
            for output in node.outputs() {
                computed[output.id().0] = Some(result.clone());
            }
            steps.push(Sum { operands, low, high, result });
        }
        let outputs = params.outputs.iter().map(|&id| place(&computed, id)).collect::<Result<_>>()?;
        Ok(Sums { steps, outputs, size, workspace: None })
    }
}

impl Kernel for Sums {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.workspace = Some(cx.temporary_of::<f32>(self.size)?);
        Ok(())
    }

    /// Allocates nothing.
    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let workspace = self.workspace.ok_or_else(|| Error::State("it is not prepared".into()))?;
        let workspace = cx.temporary::<f32>(workspace)?;
        for step in &self.steps {
            // Results lie in the order in which they are computed: all that a step reads is before its own.
            let (before, result) = workspace.split_at_mut(step.result.start);
            let result = &mut result[..step.result.len()];
            result.fill(0.0);
            for operand in &step.operands {
                let values = match operand {
                    Operand::Input(input) => cx.input::<f32>(*input)?,
                    Operand::Computed(place) => &before[place.clone()],
                    Operand::Constant(values) => values,
                };
                result.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
            result.iter_mut().for_each(|sum| *sum = sum.clamp(step.low, step.high));
        }
        for (i, place) in self.outputs.iter().enumerate() {
            cx.output::<f32>(i)?.copy_from_slice(&workspace[place.clone()]);
        }
        Ok(())
    }
}

impl DelegateKernel for Sums {}
