//! Fuses recurrent layers into the sequence LSTM ops.
//!
//! Frameworks express such a layer as a loop of products, with the weights of its four gates in one matrix. The order
//! and layout of the gates depend on the framework. The fused op has a matrix per gate, `[cells, features]`. The
//! matrices are cut and transposed while fusing, so that the file holds constants in the op's layout.

use std::borrow::Cow;

use delegraph_core::error::{Result, counted};
use delegraph_core::graph::{Node, Subgraph, Tensor, TensorId};
use delegraph_core::ops::control_flow::StableHloCompositeParams;
use delegraph_core::ops::lstm::inputs::{BACKWARD, CELL, Cell, FORWARD};
use delegraph_core::ops::lstm::{BidirectionalSequenceLstmParams, UnidirectionalSequenceLstmParams};
use delegraph_core::ops::pack::PackParams;
use delegraph_core::ops::reshape::ReshapeParams;
use delegraph_core::ops::slice::StridedSliceParams;
use delegraph_core::ops::{Activation, Params};
use delegraph_core::{BuiltinOp, Shape, TensorType};

use crate::fusion::composite::{Call, CompositeFusion, Outcome};
use crate::fusion::rewriter::Rewriter;

/// Replaces a recurrent layer by UNIDIRECTIONAL_SEQUENCE_LSTM, or by BIDIRECTIONAL_SEQUENCE_LSTM if it has weights for
/// both directions. Weights are float32 constants or, with `hybrid`, int8 constants with one scale; the op is then a
/// hybrid one. Initial states must be zero.
///
/// The op is the body of a composite named `NAME.fused`, because its state must be reset in every invocation; see
/// [`Pipeline::stateful`](crate::fusion::Pipeline::stateful).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lstm {
    name: Cow<'static, str>,
    /// The layout of its operands.
    pub layout: LstmLayout,
    /// Whether int8 weights are supported. The op then quantizes activations, which changes the results.
    pub hybrid: bool,
}

impl Lstm {
    /// Creates a fusion of the composites `name`, for float weights.
    pub fn new(name: impl Into<Cow<'static, str>>, layout: LstmLayout) -> Self {
        Lstm { name: name.into(), layout, hybrid: false }
    }

    /// Sets [`Lstm::hybrid`].
    #[must_use]
    pub fn with_hybrid(mut self, hybrid: bool) -> Self {
        self.hybrid = hybrid;
        self
    }
}

/// The layout of a recurrent layer's operands in a framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LstmLayout {
    /// Keras: `x [batch, time, features]`, then per direction `h`, `c` `[batch, cells]`, `kernel [features, 4 ·
    /// cells]`, `recurrent_kernel [cells, 4 · cells]`, `bias [4 · cells]`; gates input, forget, cell, output.
    /// Attributes `time_major`, `go_backwards`. Results: all outputs, or the last; or one of these, `h`, `c`; or
    /// the last output, all outputs, `h`, `c`.
    Keras,
    /// ONNX: `X [time, batch, features]`, `W [directions, 4 · cells, features]`, `R [directions, 4 · cells, cells]`, `B
    /// [directions, 8 · cells]`, then optionally `initial_h`, `initial_c` `[directions, batch, cells]`; gates input,
    /// output, forget, cell. Attribute `direction`. Results: `Y [time, directions, batch, cells]`, then optionally
    /// `Y_h`, `Y_c`.
    Onnx,
    /// PyTorch: `x [time, batch, features]`, `h`, `c` `[directions, batch, cells]`, then per direction `w_ih [4 ·
    /// cells, features]`, `w_hh [4 · cells, cells]`, `b_ih`, `b_hh` `[4 · cells]`; gates input, forget, cell, output.
    /// Attribute `batch_first`. Results: all outputs, then optionally `h`, `c`.
    Torch,
}

/// The indices of the operands of one direction.
struct Direction {
    weights: usize,
    recurrent: usize,
    biases: Vec<usize>,
    /// The index of the direction in tensors with several directions.
    index: usize,
}

/// The meaning of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    All,
    Last,
    Cell,
}

struct Plan {
    directions: Vec<Direction>,
    states: Vec<usize>,
    time_major: bool,
    /// The positions of the gates input, forget, cell and output in the weights.
    gates: [usize; 4],
    /// Whether weights are `[features, 4 · cells]`.
    transposed: bool,
    roles: Vec<Role>,
}

/// The factor of the allowed difference if activations are quantized to 8 bits.
pub(crate) const HYBRID: f64 = 300.0;

/// The suffix of the composite that contains the fused op.
pub(super) const FUSED: &str = ".fused";

const NAMES: [&str; 4] = ["input", "forget", "cell", "output"];

impl Lstm {
    fn plan(&self, call: &Call, graph: &Rewriter<'_>) -> Result<Plan> {
        let attributes = call.attributes()?;
        let (operands, results) = (call.node.inputs().len(), call.node.outputs().len());
        let rank = call.node.outputs().first().and_then(|t| graph.shape(*t)).map(|s| s.rank());
        let first = if rank == Some(2) { Role::Last } else { Role::All };
        let roles = match (results, self.layout) {
            (4, LstmLayout::Keras) => vec![Role::Last, Role::All, Role::Last, Role::Cell],
            (3, LstmLayout::Keras) => vec![first, Role::Last, Role::Cell],
            (3, _) => vec![Role::All, Role::Last, Role::Cell],
            _ => vec![first],
        };
        Ok(match self.layout {
            LstmLayout::Keras => {
                call.arity(if operands == 11 { 11..=11 } else { 6..=6 }, roles.len())?;
                let direction = |first: usize| Direction {
                    weights: first + 2,
                    recurrent: first + 3,
                    biases: vec![first + 4],
                    index: 0,
                };
                let firsts = [1, 6].into_iter().take(operands / 5);
                Plan {
                    states: firsts.clone().flat_map(|first| [first, first + 1]).collect(),
                    directions: firsts.map(direction).collect(),
                    time_major: attributes.get_or("time_major", false)?,
                    gates: [0, 1, 2, 3],
                    transposed: true,
                    roles,
                }
            }
            LstmLayout::Onnx => {
                call.arity(if operands == 6 { 6..=6 } else { 4..=4 }, roles.len())?;
                let (_, shape) = call.of_rank(graph, 1, "W", 3)?;
                let count = shape.map_or(1, |s| s[0]);
                Plan {
                    directions: (0..count.min(2))
                        .map(|index| Direction { weights: 1, recurrent: 2, biases: vec![3], index })
                        .collect(),
                    states: (4..operands).collect(),
                    time_major: true,
                    gates: [0, 2, 3, 1],
                    transposed: false,
                    roles,
                }
            }
            LstmLayout::Torch => {
                call.arity(if operands == 11 { 11..=11 } else { 7..=7 }, roles.len())?;
                let direction = |first: usize| Direction {
                    weights: first,
                    recurrent: first + 1,
                    biases: vec![first + 2, first + 3],
                    index: 0,
                };
                Plan {
                    directions: [3, 7].into_iter().take(operands / 4).map(direction).collect(),
                    states: vec![1, 2],
                    time_major: !attributes.get_or("batch_first", false)?,
                    gates: [0, 1, 2, 3],
                    transposed: false,
                    roles,
                }
            }
        })
    }

    /// Returns the numbers of features and cells; `None` if a shape depends on data.
    fn sizes(&self, call: &Call, graph: &Rewriter<'_>, plan: &Plan) -> Result<Option<(usize, usize)>> {
        let (_, Some(x)) = call.of_rank(graph, 0, "x", 3)? else { return Ok(None) };
        let features = x[2];
        let mut cells = None;
        for direction in &plan.directions {
            let recurrent = call.argument(direction.recurrent, "the recurrent weights")?;
            let Some(shape) = graph.shape(recurrent) else { return Ok(None) };
            let dims: Vec<usize> =
                shape.iter().skip(usize::from(self.layout == LstmLayout::Onnx)).copied().collect();
            let wrong = |wanted: &str| {
                call.wrong(
                    direction.recurrent,
                    "the recurrent weights",
                    &format!("must be of shape {wanted}, is {shape}"),
                )
            };
            let count = match (dims.as_slice(), plan.transposed) {
                ([cells, gates], true) if *gates == 4 * cells => *cells,
                (_, true) => return Err(wrong("[cells, 4 · cells]")),
                ([gates, cells], false) if *gates == 4 * cells => *cells,
                (_, false) => return Err(wrong("[4 · cells, cells]")),
            };
            cells = Some(count);
            let weights = call.argument(direction.weights, "the weights")?;
            let wanted = if plan.transposed { [features, 4 * count] } else { [4 * count, features] };
            if let Some(shape) = graph.shape(weights) {
                let has: Vec<usize> =
                    shape.iter().skip(usize::from(self.layout == LstmLayout::Onnx)).copied().collect();
                if has != wanted {
                    let message = format!("must be of shape {}, is {shape}", Shape::new(&wanted));
                    return Err(call.wrong(direction.weights, "the weights", &message));
                }
            }
            for &bias in &direction.biases {
                let id = call.argument(bias, "the bias")?;
                let per = if self.layout == LstmLayout::Onnx { 8 } else { 4 };
                if let Some(shape) = graph.shape(id)
                    && shape.last() != Some(&(per * count))
                {
                    let message = format!("must have {}, is {shape}", counted(per * count, "element"));
                    return Err(call.wrong(bias, "the bias", &message));
                }
            }
        }
        Ok(cells.map(|cells| (features, cells)))
    }
}

impl CompositeFusion for Lstm {
    fn name(&self) -> &str {
        &self.name
    }

    fn tolerance(&self) -> f64 {
        if self.hybrid { HYBRID } else { 1.0 }
    }

    fn verify_signature(&self, call: &Call, graph: &Rewriter<'_>) -> Result<()> {
        let plan = self.plan(call, graph)?;
        let attributes = call.attributes()?;
        attributes.optional::<bool>("go_backwards")?;
        attributes.optional::<&str>("direction")?;
        self.sizes(call, graph, &plan).map(drop)
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        let plan = self.plan(call, graph)?;
        let Some((features, cells)) = self.sizes(call, graph, &plan)? else {
            return Outcome::unchanged("a shape depends on data");
        };
        let attributes = call.attributes()?;
        if attributes.get_or("go_backwards", false)?
            || attributes.get_or("direction", "forward")? == "reverse"
        {
            return Outcome::unchanged(
                "an attribute reverses time; fused ops run forward or in both directions",
            );
        }
        let x = call.argument(0, "x")?;
        if let Some(ty) = graph.ty(x).filter(|ty| *ty != TensorType::Float32) {
            return Outcome::unchanged(format!("its input is {ty}; only FLOAT32 is fused"));
        }
        for &state in &plan.states {
            let zero = call.operand(state).is_some_and(|id| is_zero(graph, id, 0));
            if !zero {
                return Outcome::unchanged(format!(
                    "its state at the beginning (argument {state}) is not known to be zero"
                ));
            }
        }
        let used = |i: usize| {
            call.node.outputs().get(i).is_some_and(|t| !graph.readers(*t).is_empty() || graph.is_output(*t))
        };
        let bidirectional = plan.directions.len() == 2;
        for (i, role) in plan.roles.iter().enumerate().filter(|(i, _)| used(*i)) {
            if *role == Role::Cell {
                return Outcome::unchanged(format!("its cell state at the end (result {i}) is read"));
            }
            if *role == Role::Last && bidirectional {
                return Outcome::unchanged(format!(
                    "its last output in both directions (result {i}) is read"
                ));
            }
        }
        let Some(cut) = plan
            .directions
            .iter()
            .map(|d| self.cut(call, graph, &plan, d, cells))
            .collect::<Option<Vec<_>>>()
        else {
            let also = if self.hybrid { ", or of INT8 with one scale" } else { "" };
            return Outcome::unchanged(format!("its weights are not constants of FLOAT32{also}"));
        };
        let Some(sequence) = graph.shape(x).cloned() else {
            return Outcome::unchanged("a shape depends on data");
        };
        let body = Body::new(graph, x, &plan, cut, cells, features, &sequence);
        Ok(self.put(call, graph, &plan, body, cells, &sequence))
    }
}

/// A gate's matrices and bias.
struct Gate {
    weights: (Tensor, Vec<u8>),
    recurrent: (Tensor, Vec<u8>),
    bias: Vec<f32>,
}

impl Lstm {
    /// Cuts the weights of one direction into those of the gates.
    fn cut(
        &self,
        call: &Call,
        graph: &Rewriter<'_>,
        plan: &Plan,
        direction: &Direction,
        cells: usize,
    ) -> Option<Vec<Gate>> {
        let matrix = |operand: usize, name: &str, place: usize| {
            let id = call.operand(operand)?;
            let (tensor, bytes) = (graph.tensor(id)?, graph.constant(id)?);
            let width = match (tensor.ty(), tensor.quantization()) {
                (TensorType::Float32, None) => 4,
                (TensorType::Int8, Some(q)) if self.hybrid => {
                    q.scale_zero_point().filter(|(_, zero)| *zero == 0).map(|_| 1)?
                }
                _ => return None,
            };
            let dims = tensor.shape().dims();
            let dims = if self.layout == LstmLayout::Onnx { dims.get(1..)? } else { dims };
            let [rows, columns] = *dims else { return None };
            let inner = if plan.transposed { rows } else { columns };
            let start = direction.index * rows * columns;
            let mut values = Vec::with_capacity(cells * inner * width);
            for cell in 0..cells {
                for i in 0..inner {
                    let unit = place * cells + cell;
                    let at = start + if plan.transposed { i * columns + unit } else { unit * columns + i };
                    values.extend_from_slice(bytes.get(at * width..(at + 1) * width)?);
                }
            }
            let mut cut = Tensor::new(format!("{}/{name}", tensor.name()), tensor.ty(), [cells, inner]);
            cut.set_quantization(tensor.shared_quantization());
            Some((cut, values))
        };
        let biases: Vec<Vec<f32>> = direction
            .biases
            .iter()
            .map(|&i| {
                let values = graph.floats(call.operand(i)?)?;
                if self.layout != LstmLayout::Onnx {
                    return Some(vec![values]);
                }
                let own = values.get(direction.index * 8 * cells..(direction.index + 1) * 8 * cells)?;
                Some(vec![own.get(..4 * cells)?.to_vec(), own.get(4 * cells..)?.to_vec()])
            })
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect();
        let gate = |(name, &place): (&str, &usize)| {
            let mut bias = vec![0f32; cells];
            for values in &biases {
                let own = values.get(place * cells..(place + 1) * cells)?;
                bias.iter_mut().zip(own).for_each(|(sum, v)| *sum += v);
            }
            Some(Gate {
                weights: matrix(direction.weights, &format!("input-to-{name}"), place)?,
                recurrent: matrix(direction.recurrent, &format!("recurrent-to-{name}"), place)?,
                bias,
            })
        };
        NAMES.into_iter().zip(&plan.gates).map(gate).collect()
    }

    /// Replaces the composite by a call of the fused op, and reshapes its result to those of the composite.
    fn put(
        &self,
        call: &Call,
        graph: &mut Rewriter<'_>,
        plan: &Plan,
        body: Body,
        cells: usize,
        sequence: &Shape,
    ) -> Outcome {
        let Body { subgraph, outputs } = body;
        let params = StableHloCompositeParams::default()
            .name(format!("{}{FUSED}", self.name))
            .decomposition_subgraph_index(i32::try_from(graph.new_subgraph(subgraph)).unwrap_or(i32::MAX))
            .composite_attributes(call.bytes.clone())
            .version(1);
        let used = |graph: &Rewriter<'_>, i: usize| {
            let id = call.node.outputs().get(i).copied();
            id.filter(|t| !graph.readers(*t).is_empty() || graph.is_output(*t))
        };
        let wanted: Vec<(Role, TensorId)> =
            plan.roles.iter().enumerate().filter_map(|(i, role)| Some((*role, used(graph, i)?))).collect();
        // If a result equals the op's output, the op writes it directly.
        let stacked = self.layout == LstmLayout::Onnx;
        let direct = wanted.iter().find(|(role, _)| *role == Role::All && !stacked).map(|(_, id)| *id);
        let made: Vec<TensorId> = match direct {
            Some(id) => vec![id],
            None => outputs
                .iter()
                .map(|shape| {
                    let name = graph.name(call.node.outputs()[0], "sequence");
                    graph.new_tensor(Tensor::new(name, TensorType::Float32, shape.clone()))
                })
                .collect(),
        };
        let x = call.node.inputs().first().copied().flatten();
        let composite = Node::new(BuiltinOp::STABLEHLO_COMPOSITE, 1, params, [x], made.clone());
        for (role, id) in wanted.into_iter().rev() {
            if Some(id) == direct {
                continue;
            }
            let Some(result) = graph.shape(id).cloned() else { continue };
            match role {
                Role::All if made.len() == 2 => {
                    // `[time, directions, batch, cells]`
                    let pack = PackParams::default().values_count(2).axis(1);
                    graph.insert(
                        call.id,
                        Node::new(BuiltinOp::PACK, 1, pack, made.iter().copied().map(Some), [id]),
                    );
                }
                Role::All => reshape(graph, call, made[0], id, &result),
                _ => last(graph, call, plan, made[0], id, &result, cells, sequence),
            }
        }
        graph.replace(call.id, &[call.id], composite);
        Outcome::Fused
    }
}

fn reshape(graph: &mut Rewriter<'_>, call: &Call, x: TensorId, y: TensorId, shape: &Shape) {
    let sizes: Vec<i32> = shape.iter().map(|&d| i32::try_from(d).unwrap_or(i32::MAX)).collect();
    let sizes = graph.new_constant("shape", [sizes.len()], &sizes);
    graph.insert(
        call.id,
        Node::new(BuiltinOp::RESHAPE, 1, ReshapeParams::default(), [Some(x), Some(sizes)], [y]),
    );
}

/// Adds nodes for the outputs of the last step.
#[allow(clippy::too_many_arguments)]
fn last(
    graph: &mut Rewriter<'_>,
    call: &Call,
    plan: &Plan,
    all: TensorId,
    y: TensorId,
    result: &Shape,
    cells: usize,
    sequence: &Shape,
) {
    let batch = if plan.time_major { sequence[1] } else { sequence[0] };
    let name = graph.name(y, "step");
    let step = match result.rank() {
        2 => y,
        _ => graph.new_tensor(Tensor::new(name, TensorType::Float32, [batch, cells])),
    };
    let (begin, end, axis): ([i32; 3], [i32; 3], i32) = match plan.time_major {
        true => ([-1, 0, 0], [0, 0, 0], 1),
        false => ([0, -1, 0], [0, 0, 0], 2),
    };
    let params = StridedSliceParams::default().begin_mask(7 & !axis).end_mask(7).shrink_axis_mask(axis);
    let [begin, end, strides] = [("begin", begin), ("end", end), ("strides", [1; 3])]
        .map(|(name, v)| graph.new_constant(name, [3], &v));
    if step != y {
        reshape(graph, call, step, y, result);
    }
    let inputs = [all, begin, end, strides].map(Some);
    graph.insert(call.id, Node::new(BuiltinOp::STRIDED_SLICE, 1, params, inputs, [step]));
}

/// The subgraph of the fused op, and the shapes of its outputs.
struct Body {
    subgraph: Subgraph,
    outputs: Vec<Shape>,
}

impl Body {
    fn new(
        graph: &mut Rewriter<'_>,
        x: TensorId,
        plan: &Plan,
        directions: Vec<Vec<Gate>>,
        cells: usize,
        features: usize,
        sequence: &Shape,
    ) -> Self {
        let (first, second) = (sequence[0], sequence[1]);
        let batch = if plan.time_major { second } else { first };
        let mut subgraph = Subgraph::new("fused lstm", vec![], vec![], [], []);
        let mut add = |tensor: Tensor| subgraph.add_tensor(tensor);
        let mut input = Tensor::new("x", TensorType::Float32, [first, second, features]);
        if let Some(tensor) = graph.tensor(x) {
            input.set_quantization(tensor.shared_quantization());
        }
        let input = add(input);
        let bidirectional = directions.len() == 2;
        let count = if bidirectional { 48 } else { 24 };
        let mut inputs: Vec<Option<TensorId>> = vec![None; count];
        inputs[0] = Some(input);
        let places: &[Cell] = if bidirectional { &[FORWARD, BACKWARD] } else { &[CELL] };
        for (place, gates) in places.iter().zip(directions) {
            for (i, gate) in gates.into_iter().enumerate() {
                let mut constant = |(mut tensor, bytes): (Tensor, Vec<u8>)| {
                    tensor.set_data(Some(graph.store(&bytes)));
                    Some(add(tensor))
                };
                let name = format!("{}-gate-bias", NAMES[i]);
                inputs[place.weights[i]] = constant(gate.weights);
                inputs[place.recurrent[i]] = constant(gate.recurrent);
                let bias = Tensor::new(name, TensorType::Float32, [cells]);
                inputs[place.bias[i]] = constant((bias, bytemuck::cast_slice(&gate.bias).to_vec()));
            }
            for (at, name) in [(place.output_state, "output-state"), (place.cell_state, "cell-state")] {
                let state = Tensor::new(name, TensorType::Float32, [batch, cells]);
                inputs[at] = Some(add(state.into_variable()));
            }
        }
        // ONNX has a separate dimension for the directions; the other layouts concatenate them.
        let apart = bidirectional && plan.gates == [0, 2, 3, 1];
        let outputs: Vec<Shape> = match (bidirectional, apart) {
            (false, _) => vec![Shape::from([first, second, cells])],
            (true, false) => vec![Shape::from([first, second, 2 * cells])],
            (true, true) => vec![Shape::from([first, second, cells]); 2],
        };
        let ids: Vec<TensorId> =
            outputs.iter().map(|shape| add(Tensor::new("y", TensorType::Float32, shape.clone()))).collect();
        let (op, params): (_, Params) = if bidirectional {
            let params = BidirectionalSequenceLstmParams::default()
                .fused_activation_function(Activation::Tanh)
                .merge_outputs(!apart)
                .time_major(plan.time_major);
            (BuiltinOp::BIDIRECTIONAL_SEQUENCE_LSTM, params.into())
        } else {
            let params = UnidirectionalSequenceLstmParams::default()
                .fused_activation_function(Activation::Tanh)
                .time_major(plan.time_major);
            (BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM, params.into())
        };
        *subgraph.nodes_mut() = vec![Node::new(op, 1, params, inputs, ids.clone())];
        *subgraph.inputs_mut() = vec![input];
        *subgraph.outputs_mut() = ids;
        Body { subgraph, outputs }
    }
}

/// Returns whether a tensor is known to contain only zeros, whatever the inputs of the model are.
fn is_zero(graph: &Rewriter<'_>, id: TensorId, depth: usize) -> bool {
    if let Some(bytes) = graph.constant(id) {
        return bytes.iter().all(|&b| b == 0);
    }
    let Some(node) = graph.producer(id).and_then(|at| graph.node(at)).filter(|_| depth < 8) else {
        return false;
    };
    let input = |i: usize| node.input(i).is_some_and(|id| is_zero(graph, id, depth + 1));
    match node.op().builtin() {
        Some(BuiltinOp::ZEROS_LIKE) => true,
        Some(BuiltinOp::FILL) => input(1),
        Some(BuiltinOp::RESHAPE | BuiltinOp::TILE | BuiltinOp::BROADCAST_TO | BuiltinOp::EXPAND_DIMS) => {
            input(0)
        }
        _ => false,
    }
}
