//! LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM with float cells and float or quantized weights.
//! `lstm/integer.rs` has the integer cells, `lstm/basic.rs` the old basic cell.

use delegraph_core::kernel::{Budget, InitContext, InvokeContext, PrepareContext, Temporary};
use delegraph_core::ops::lstm::inputs::{self, AUXILIARY, BACKWARD, CELL, FORWARD, INPUT};
use delegraph_core::ops::lstm::{
    BidirectionalSequenceLstmParams, LstmParams, UnidirectionalSequenceLstmParams,
};
use delegraph_core::ops::{Activation, LstmKernelType, TensorType};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::{Invoke, prepared, prepared_with, unsupported_type};
use crate::common::recurrent::{Matrix, Order, Vector, Weights};
use crate::common::weights::{check_bias_type, float_activation};

mod basic;
mod integer;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::LSTM, prepared_with(intermediates, step), 1..=4)
        .add_builtin(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM, prepared_with(intermediates, sequence), 1..=4)
        .add_builtin(BuiltinOp::BIDIRECTIONAL_SEQUENCE_LSTM, prepared(bidirectional), 1..=3);
}

/// Scale and zero point of the values inside an integer cell, if the file has them.
type Intermediates = Vec<Option<(f32, i32)>>;

fn intermediates(cx: &InitContext<'_>) -> Result<Intermediates> {
    let scale = |id: &Option<_>| id.and_then(|id| cx.subgraph.tensor(id).quantization()?.scale_zero_point());
    Ok(cx.node.intermediates().iter().map(scale).collect())
}

/// Params that the ops share.
#[derive(Debug, Clone, Copy)]
struct Settings {
    activation: Activation,
    cell_clip: f32,
    output_clip: f32,
    asymmetric: bool,
}

fn step(intermediates: &Intermediates, cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<LstmParams>()?;
    if p.kernel_type == LstmKernelType::Basic {
        return basic::prepare(cx);
    }
    let settings = Settings {
        activation: p.fused_activation_function,
        cell_clip: p.cell_clip,
        output_clip: p.proj_clip,
        asymmetric: p.asymmetric_quantize_inputs,
    };
    // One step of all sequences.
    let batch = cx.input(INPUT)?.shape().first().copied().unwrap_or(0);
    one_direction(cx, intermediates, settings, Order { batch, steps: 1, time_major: true }, true)
}

fn sequence(intermediates: &Intermediates, cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<UnidirectionalSequenceLstmParams>()?;
    let settings = Settings {
        activation: p.fused_activation_function,
        cell_clip: p.cell_clip,
        output_clip: p.proj_clip,
        asymmetric: p.asymmetric_quantize_inputs,
    };
    let order = Order::new(cx.input(INPUT)?.shape(), p.time_major);
    one_direction(cx, intermediates, settings, order, false)
}

fn one_direction(
    cx: &mut PrepareContext<'_>,
    intermediates: &Intermediates,
    settings: Settings,
    order: Order,
    sparse: bool,
) -> Result<Invoke> {
    if cx.input(INPUT)?.ty() == TensorType::Int8 {
        return integer::prepare(cx, intermediates, settings, order);
    }
    let cell = Cell::new(cx, &CELL, settings, sparse)?;
    let scratch = Scratch::new(cx, &[&cell])?;
    Ok(Box::new(move |cx| {
        let (floats, bytes) = scratch.get(cx)?;
        let output = cx.output::<f32>(0)?;
        cell.run(cx, &Run { order, input: INPUT, backward: false, offset: 0 }, output, floats, bytes)
    }))
}

fn bidirectional(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<BidirectionalSequenceLstmParams>()?;
    let settings = Settings {
        activation: p.fused_activation_function,
        cell_clip: p.cell_clip,
        output_clip: p.proj_clip,
        asymmetric: p.asymmetric_quantize_inputs,
    };
    let order = Order::new(cx.input(INPUT)?.shape(), p.time_major);
    let merged = p.merge_outputs;
    let forward = Cell::new(cx, &FORWARD, settings, false)?;
    let backward = Cell::new(cx, &BACKWARD, settings, false)?;
    let scratch = Scratch::new(cx, &[&forward, &backward])?;
    // An auxiliary input without weights is the backward cell's input.
    let instead = cx.optional_input(AUXILIARY).is_some() && forward.auxiliary == 0;
    let first = Run { order, input: INPUT, backward: false, offset: 0 };
    let second = Run {
        order,
        input: if instead { AUXILIARY } else { INPUT },
        backward: true,
        offset: if merged { forward.outputs } else { 0 },
    };
    Ok(Box::new(move |cx| {
        let (floats, bytes) = scratch.get(cx)?;
        let output = cx.output::<f32>(0)?;
        forward.run(cx, &first, output, floats, bytes)?;
        let output = if merged { output } else { cx.output::<f32>(1)? };
        backward.run(cx, &second, output, floats, bytes)
    }))
}

/// Memory for one step of a cell.
#[derive(Debug, Clone, Copy)]
struct Scratch {
    floats: Temporary,
    bytes: Temporary,
}

impl Scratch {
    fn new(cx: &mut PrepareContext<'_>, cells: &[&Cell]) -> Result<Self> {
        let most = |size: fn(&Cell) -> usize| cells.iter().map(|cell| size(cell)).max().unwrap_or(0);
        let sizes = |c: &Cell| {
            [c.features, c.auxiliary, c.outputs, c.cells].into_iter().fold(0, usize::saturating_add)
        };
        let floats = cx.temporary_of::<f32>(most(|c| c.cells.saturating_mul(5)))?;
        Ok(Scratch { floats, bytes: cx.temporary_of::<i8>(most(sizes))? })
    }

    fn get<'a>(&self, cx: &mut InvokeContext<'a>) -> Result<(&'a mut [f32], &'a mut [i8])> {
        Ok((cx.temporary(self.floats)?, cx.temporary(self.bytes)?))
    }
}

/// The order in which a cell visits the steps, and its part of the output.
struct Run {
    order: Order,
    input: usize,
    backward: bool,
    /// Offset of the cell's outputs within a step of the output tensor.
    offset: usize,
}

/// Steps of a [`Pace`] per activation.
const ACTIVATION_STEPS: usize = 16;

/// A float cell.
struct Cell {
    at: inputs::Cell,
    settings: Settings,
    features: usize,
    /// Width of the auxiliary input; 0 if the cell has no weights for it.
    auxiliary: usize,
    cells: usize,
    outputs: usize,
    weights: [Option<Weights>; 4],
    of_auxiliary: [Option<Weights>; 4],
    recurrent: [Option<Weights>; 4],
    /// Gates whose recurrent weights are diagonal matrices.
    diagonal: [bool; 4],
    peephole: [Option<Weights>; 4],
    projection: Option<Weights>,
}

impl Cell {
    fn new(cx: &PrepareContext<'_>, at: &inputs::Cell, settings: Settings, sparse: bool) -> Result<Self> {
        let input = cx.input(INPUT)?;
        if input.ty() != TensorType::Float32 {
            return Err(unsupported_type("input", input));
        }
        let floats = at.bias.into_iter().chain([at.projection_bias, at.output_state, at.cell_state]);
        floats.chain(at.norm.into_iter().flatten()).try_for_each(|i| check_bias_type::<f32>(cx, i))?;
        let width = |i: usize| cx.optional_input(i).and_then(|t| t.shape().last().copied());
        let gates = |positions: [Option<usize>; 4]| -> Result<[Option<Weights>; 4]> {
            let mut weights = [const { None }; 4];
            for (weights, i) in weights.iter_mut().zip(positions) {
                *weights = i.map(|i| Weights::new(cx, i, sparse)).transpose()?.flatten();
            }
            Ok(weights)
        };
        Ok(Cell {
            at: *at,
            settings,
            features: width(INPUT).unwrap_or(0),
            auxiliary: at.auxiliary[3].and_then(width).unwrap_or(0),
            cells: cx.input(at.weights[3])?.shape().first().copied().unwrap_or(0),
            outputs: match cx.optional_input(at.projection) {
                Some(projection) => projection.shape().first().copied().unwrap_or(0),
                None => cx.input(at.weights[3])?.shape().first().copied().unwrap_or(0),
            },
            weights: gates(at.weights.map(Some))?,
            of_auxiliary: gates(at.auxiliary)?,
            recurrent: gates(at.recurrent.map(Some))?,
            diagonal: at.recurrent.map(|i| cx.optional_input(i).is_some_and(|w| w.shape().rank() == 1)),
            peephole: gates(at.peephole)?,
            projection: Weights::new(cx, at.projection, sparse)?,
        })
    }

    /// Runs all steps of all sequences.
    fn run<'a>(
        &self,
        cx: &mut InvokeContext<'a>,
        run: &Run,
        output: &mut [f32],
        floats: &mut [f32],
        bytes: &mut [i8],
    ) -> Result<()> {
        let operands = Operands::new(cx, self)?;
        let input = cx.input::<f32>(run.input)?;
        let auxiliary = if self.auxiliary > 0 { cx.input::<f32>(AUXILIARY)? } else { &[] };
        let last = cx.variable::<f32>(self.at.output_state)?;
        let state = cx.variable::<f32>(self.at.cell_state)?;
        let &Cell { features, cells, outputs, .. } = self;
        let stride = output.len().checked_div(run.order.batch * run.order.steps).unwrap_or(0);
        let mut pace = Pace::new(cx);
        for batch in 0..run.order.batch {
            let last = &mut last[batch * outputs..][..outputs];
            let state = &mut state[batch * cells..][..cells];
            for step in run.order.walk(run.backward) {
                cx.check_interrupted()?;
                let at = run.order.at(batch, step);
                let input = &input[at * features..][..features];
                let auxiliary = &auxiliary[at * self.auxiliary..][..self.auxiliary];
                self.step(&operands, [input, auxiliary], last, state, floats, bytes, &mut pace)?;
                output[at * stride + run.offset..][..outputs].copy_from_slice(last);
            }
        }
        Ok(())
    }

    /// Runs one step of one sequence. `last` has the previous output and receives the new one.
    #[allow(clippy::too_many_arguments)]
    fn step(
        &self,
        operands: &Operands<'_>,
        [input, auxiliary]: [&[f32]; 2],
        last: &mut [f32],
        state: &mut [f32],
        floats: &mut [f32],
        bytes: &mut [i8],
        pace: &mut Pace,
    ) -> Result<()> {
        let Settings { activation, cell_clip, output_clip, asymmetric } = self.settings;
        let cells = self.cells;
        let (for_input, rest) = bytes.split_at_mut(self.features);
        let (for_auxiliary, rest) = rest.split_at_mut(self.auxiliary);
        let (for_last, for_hidden) = rest.split_at_mut(self.outputs);
        let [input_gate, forget_gate, cell_gate, output_gate, hidden] = std::array::from_fn(|i| i * cells);
        pace.spend(input.len().saturating_add(auxiliary.len()).saturating_add(last.len()))?;
        let vectors = [
            Vector::new(input, for_input, asymmetric),
            Vector::new(auxiliary, for_auxiliary, asymmetric),
            Vector::new(last, for_last, asymmetric),
        ];
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        let activate = float_activation(activation);
        let [of_input, of_forget, of_cell, of_output] = &operands.gates;
        if let Some(gate) = of_input {
            gate.run(&vectors, state, &mut floats[input_gate..][..cells], sigmoid, pace)?;
        }
        if let Some(gate) = of_forget {
            gate.run(&vectors, state, &mut floats[forget_gate..][..cells], sigmoid, pace)?;
        }
        if let Some(gate) = of_cell {
            gate.run(&vectors, state, &mut floats[cell_gate..][..cells], activate, pace)?;
        }
        // Polled before the states change, so that an interruption leaves those of a whole step.
        pace.spend(cells.saturating_mul(ACTIVATION_STEPS))?;
        let pace = &mut Pace::of(Budget::unlimited());
        for (c, state) in state.iter_mut().enumerate() {
            let forget = floats[forget_gate + c];
            let keep = if of_input.is_some() { floats[input_gate + c] } else { 1.0 - forget };
            *state = clip(forget * *state + floats[cell_gate + c] * keep, cell_clip);
        }
        // This gate reads the new state.
        if let Some(gate) = of_output {
            gate.run(&vectors, state, &mut floats[output_gate..][..cells], sigmoid, pace)?;
        }
        for (c, state) in state.iter().enumerate() {
            floats[hidden + c] = activate(*state) * floats[output_gate + c];
        }
        let hidden = &floats[hidden..][..cells];
        let Some(projection) = &operands.projection else {
            last.copy_from_slice(hidden);
            return Ok(());
        };
        match operands.projection_bias {
            Some(bias) => last.copy_from_slice(bias),
            None => last.fill(0.0),
        }
        let hidden = Vector::new(hidden, &mut for_hidden[..cells], asymmetric);
        multiply_add(projection, &hidden, hidden.scale(), last, pace)?;
        last.iter_mut().for_each(|o| *o = clip(*o, output_clip));
        Ok(())
    }
}

fn clip(x: f32, limit: f32) -> f32 {
    if limit > 0.0 { x.max(-limit).min(limit) } else { x }
}

/// Operands of one gate.
struct Gate<'a> {
    weights: Matrix<'a>,
    auxiliary: Option<Matrix<'a>>,
    recurrent: Matrix<'a>,
    diagonal: bool,
    peephole: Option<Matrix<'a>>,
    norm: Option<&'a [f32]>,
    bias: &'a [f32],
}

impl Gate<'_> {
    /// The gate's value from the inputs, the previous output and the cell state.
    fn run(
        &self,
        [input, auxiliary, last]: &[Vector<'_>; 3],
        state: &[f32],
        gate: &mut [f32],
        activate: impl Fn(f32) -> f32,
        pace: &mut Pace,
    ) -> Result<()> {
        pace.spend(gate.len().saturating_mul(4))?;
        match self.norm {
            Some(_) => gate.fill(0.0),
            None => gate.copy_from_slice(self.bias),
        }
        multiply_add(&self.weights, input, input.scale(), gate, pace)?;
        if let Some(weights) = &self.auxiliary {
            multiply_add(weights, auxiliary, auxiliary.scale(), gate, pace)?;
        }
        match self.diagonal {
            true => self.recurrent.scale_add(last.values, gate),
            // TFLite uses the input's scale here if the weights are sparse.
            false => multiply_add(&self.recurrent, last, input.scale(), gate, pace)?,
        }
        if let Some(peephole) = &self.peephole {
            peephole.scale_add(state, gate);
        }
        if let Some(norm) = self.norm {
            normalize(gate, pace)?;
            gate.iter_mut().zip(norm.iter().zip(self.bias)).for_each(|(g, (n, b))| *g = *g * n + b);
        }
        gate.chunks_mut(PIECE).try_for_each(|piece| {
            pace.spend(piece.len().saturating_mul(ACTIVATION_STEPS))?;
            piece.iter_mut().for_each(|g| *g = activate(*g));
            Ok(())
        })
    }
}

/// As [`Matrix::multiply_add`], with polls between pieces of the rows.
pub(super) fn multiply_add(
    matrix: &Matrix<'_>,
    vector: &Vector<'_>,
    sparse_scale: f32,
    sums: &mut [f32],
    pace: &mut Pace,
) -> Result<()> {
    let width = vector.values.len().max(1);
    let rows = (PIECE / width).max(1);
    for (first, sums) in (0..).step_by(rows * width).zip(sums.chunks_mut(rows)) {
        pace.spend(sums.len().saturating_mul(width))?;
        from_element(*matrix, first).multiply_add(vector, sparse_scale, sums);
    }
    Ok(())
}

/// The rows of a matrix that begin with this element.
fn from_element(matrix: Matrix<'_>, first: usize) -> Matrix<'_> {
    match matrix {
        Matrix::Float(weights) => Matrix::Float(weights.get(first..).unwrap_or_default()),
        Matrix::Integer(weights, scale) => Matrix::Integer(weights.get(first..).unwrap_or_default(), scale),
        Matrix::Sparse(weights, scale) => Matrix::Sparse(weights.get(first..).unwrap_or_default(), scale),
    }
}

/// Normalizes to a mean of 0 and a variance of 1.
fn normalize(values: &mut [f32], pace: &mut Pace) -> Result<()> {
    let count = values.len() as f32;
    // As in `Iterator::sum`, sums start with -0.0.
    let mean =
        pace.fold(1, values, -0.0, |sum: f32, piece| piece.iter().fold(sum, |sum, x| sum + x))? / count;
    let squares = |sum: f32, piece: &[f32]| piece.iter().fold(sum, |sum, x| sum + (x - mean) * (x - mean));
    let variance = pace.fold(1, values, -0.0, squares)? / count;
    let factor = 1.0 / (variance + 1e-8).sqrt();
    values.iter_mut().for_each(|x| *x = (*x - mean) * factor);
    Ok(())
}

/// All operands but the data and the states.
struct Operands<'a> {
    gates: [Option<Gate<'a>>; 4],
    projection: Option<Matrix<'a>>,
    projection_bias: Option<&'a [f32]>,
}

impl<'s> Operands<'s> {
    fn new<'a: 's>(cx: &mut InvokeContext<'a>, cell: &'s Cell) -> Result<Self> {
        let mut gates = [const { None }; 4];
        for (i, gate) in gates.iter_mut().enumerate() {
            let mut get = |weights: &'s Option<Weights>| weights.as_ref().map(|w| w.get(cx)).transpose();
            let (Some(weights), Some(recurrent)) = (get(&cell.weights[i])?, get(&cell.recurrent[i])?) else {
                continue;
            };
            let (auxiliary, peephole) = (get(&cell.of_auxiliary[i])?, get(&cell.peephole[i])?);
            let norm = cell.at.norm[i].map(|n| cx.optional_input(n)).transpose()?.flatten();
            let bias = cx.input(cell.at.bias[i])?;
            let diagonal = cell.diagonal[i];
            *gate = Some(Gate { weights, auxiliary, recurrent, diagonal, peephole, norm, bias });
        }
        let projection = cell.projection.as_ref().map(|w| w.get(cx)).transpose()?;
        Ok(Operands { gates, projection, projection_bias: cx.optional_input(cell.at.projection_bias)? })
    }
}

#[cfg(test)]
mod tests;
