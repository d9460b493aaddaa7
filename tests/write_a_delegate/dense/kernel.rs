use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use delegraph_core::kernel::{InvokeContext, Kernel, Parallel, PrepareContext, Temporary};
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::{BuiltinOp, Error, NodeId, Op, Result, TensorId};
use delegraph_delegate_api::{DelegateKernel, DelegateParams, GraphView, NodeTime, NodeView, TensorInfo};

/// Runs the nodes of a partition in order.
pub struct Layers {
    steps: Vec<Step>,
    /// The workspace range of each of the partition's outputs.
    outputs: Vec<Range<usize>>,
    /// The total number of elements of all results.
    size: usize,
    workspace: Option<Temporary>,
    times: Vec<NodeTime>,
}

struct Step {
    node: NodeId,
    layer: Layer,
    source: Source,
    /// The workspace range of the result.
    result: Range<usize>,
}

/// The input of a step.
enum Source {
    /// The partition's input with this index.
    Input(usize),
    /// The result of an earlier step.
    Computed(Range<usize>),
    Constant(Vec<f32>),
}

enum Layer {
    Relu,
    Dense(Dense),
}

struct Dense {
    /// `[inputs, units]`: the model's `[units, inputs]`, transposed for a contiguous inner loop.
    weights: Vec<f32>,
    bias: Vec<f32>,
    inputs: usize,
    low: f32,
    high: f32,
}

impl Layers {
    pub fn new(params: &DelegateParams, graph: &GraphView<'_>) -> Result<Self> {
        let mut computed: Vec<Option<Range<usize>>> = vec![None; graph.tensor_count()];
        let (mut steps, mut size) = (Vec::new(), 0);
        for node in params.nodes.iter().map(|&id| graph.node(id)) {
            // The output is a constant for all consumers.
            if node.state().folded {
                continue;
            }
            let (input, output) = (operand(node.input(0))?, operand(node.output(0))?);
            let source = match params.inputs.iter().position(|&id| id == input.id()) {
                Some(i) => Source::Input(i),
                None => match input.constant_as::<f32>() {
                    Some(values) => Source::Constant(values.to_vec()),
                    None => Source::Computed(place(&computed, input.id())?),
                },
            };
            let layer = match node.op() {
                Op::Builtin(BuiltinOp::FULLY_CONNECTED) => Layer::Dense(Dense::new(&node)?),
                _ => Layer::Relu,
            };
            let result = size..size + output.tensor().shape.elements();
            size = result.end;
            computed[output.id().0] = Some(result.clone());
            steps.push(Step { node: node.id(), layer, source, result });
        }
        let outputs = params.outputs.iter().map(|&id| place(&computed, id)).collect::<Result<_>>()?;
        let times = Vec::with_capacity(steps.len());
        Ok(Layers { steps, outputs, size, workspace: None, times })
    }
}

fn operand(tensor: Option<TensorInfo<'_>>) -> Result<TensorInfo<'_>> {
    tensor.ok_or_else(|| Error::InvalidNode("an operand is missing".into()))
}

fn place(computed: &[Option<Range<usize>>], id: TensorId) -> Result<Range<usize>> {
    computed[id.0].clone().ok_or_else(|| Error::State(format!("tensor {} was not computed", id.0)))
}

impl Dense {
    fn new(node: &NodeView<'_>) -> Result<Self> {
        let params: &FullyConnectedParams = node.params().try_into()?;
        let unbounded = (f32::NEG_INFINITY, f32::INFINITY);
        let (low, high) = params.fused_activation_function.clamp().unwrap_or(unbounded);
        let weights = operand(node.input(1))?;
        let [units, inputs] = weights.tensor().shape[..] else {
            return Err(Error::InvalidNode("weights must have two dimensions".into()));
        };
        let stored = weights.constant_as::<f32>().unwrap_or_default();
        let packed = (0..inputs * units).map(|i| stored[i % units * inputs + i / units]).collect();
        let bias = node.input(2).and_then(|bias| bias.constant_as::<f32>());
        let bias = bias.map_or_else(|| vec![0.0; units], <[f32]>::to_vec);
        Ok(Dense { weights: packed, bias, inputs, low, high })
    }

    fn run(&self, input: &[f32], output: &mut [f32], parallel: &dyn Parallel) {
        let units = self.bias.len();
        let rows = input.chunks_exact(self.inputs).zip(output.chunks_exact_mut(units));
        // Each thread takes the next row until none is left.
        let rows = Mutex::new(rows);
        let next = || rows.lock().unwrap_or_else(PoisonError::into_inner).next();
        parallel.run(parallel.threads(), &|_| {
            while let Some((x, y)) = next() {
                y.copy_from_slice(&self.bias);
                for (x, weights) in x.iter().zip(self.weights.chunks_exact(units)) {
                    y.iter_mut().zip(weights).for_each(|(y, w)| *y += x * w);
                }
                y.iter_mut().for_each(|y| *y = y.clamp(self.low, self.high));
            }
        });
    }
}

impl Kernel for Layers {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.workspace = Some(cx.temporary_of::<f32>(self.size)?);
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let workspace = self.workspace.ok_or_else(|| Error::State("it is not prepared".into()))?;
        let workspace = cx.temporary::<f32>(workspace)?;
        self.times.clear();
        for (done, step) in self.steps.iter().enumerate() {
            if cx.host().is_cancelled() {
                return Err(Error::Cancelled);
            }
            let start = Instant::now();
            // Results are stored in the order of computation: a step reads only memory before its own result.
            let (before, after) = workspace.split_at_mut(step.result.start);
            let result = &mut after[..step.result.len()];
            let source = match &step.source {
                Source::Input(i) => cx.input::<f32>(*i)?,
                Source::Computed(place) => &before[place.clone()],
                Source::Constant(values) => values,
            };
            match &step.layer {
                // NaN stays NaN; `max` would return 0.
                Layer::Relu => source.iter().zip(result).for_each(|(x, y)| *y = x.clamp(0.0, f32::INFINITY)),
                Layer::Dense(dense) => dense.run(source, result, cx.parallel()),
            }
            self.times.push(NodeTime::new(step.node, start.elapsed()));
            cx.host().progress(done + 1, self.steps.len());
        }
        for (i, place) in self.outputs.iter().enumerate() {
            cx.output::<f32>(i)?.copy_from_slice(&workspace[place.clone()]);
        }
        Ok(())
    }
}

impl DelegateKernel for Layers {
    fn node_times(&self) -> &[NodeTime] {
        &self.times
    }
}
