//! LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM: in floating point, with weights that are floats or quantized.

use delegraph_core::kernel::{InvokeContext, PrepareContext};
use delegraph_core::ops::lstm::inputs::{CELL, INPUT};
use delegraph_core::ops::lstm::{LSTMParams, UnidirectionalSequenceLSTMParams};
use delegraph_core::ops::{Activation, LstmKernelType, TensorType};
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::kernels::prepared::{Invoke, prepared, unsupported_type};
use crate::kernels::weights::{integer_dot, quantize_asymmetric, quantize_symmetric, scale_zero_point};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::LSTM, prepared(step), 1..=4).add_builtin(
        BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM,
        prepared(sequence),
        1..=4,
    );
}

fn step(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<LSTMParams>()?;
    if p.kernel_type == LstmKernelType::Basic {
        return Err(Error::Unsupported("the basic LSTM cell".into()));
    }
    let cell =
        Cell::new(cx, p.fused_activation_function, [p.cell_clip, p.proj_clip], p.asymmetric_quantize_inputs)?;
    let batch = cx.input(INPUT)?.shape()[0];
    run(cx, cell, Order { batch, steps: 1, time_major: false })
}

fn sequence(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<UnidirectionalSequenceLSTMParams>()?;
    let cell =
        Cell::new(cx, p.fused_activation_function, [p.cell_clip, p.proj_clip], p.asymmetric_quantize_inputs)?;
    let shape = cx.input(INPUT)?.shape();
    let (batch, steps) = if p.time_major { (shape[1], shape[0]) } else { (shape[0], shape[1]) };
    run(cx, cell, Order { batch, steps, time_major: p.time_major })
}

/// Where a step's vector lies.
struct Order {
    batch: usize,
    steps: usize,
    time_major: bool,
}

impl Order {
    fn at(&self, batch: usize, step: usize) -> usize {
        if self.time_major { step * self.batch + batch } else { batch * self.steps + step }
    }
}

fn run(cx: &mut PrepareContext<'_>, cell: Cell, order: Order) -> Result<Invoke> {
    let Cell { features, cells, outputs, .. } = cell;
    let floats = cx.temporary_of::<f32>(cells.saturating_mul(5))?;
    let bytes = cx.temporary_of::<i8>(features.saturating_add(outputs).saturating_add(cells))?;
    Ok(Box::new(move |cx| {
        let operands = Operands::new(cx, &cell)?;
        let (input, output) = (cx.input::<f32>(INPUT)?, cx.output::<f32>(0)?);
        let (last, state) = (cx.variable::<f32>(CELL.output_state)?, cx.variable::<f32>(CELL.cell_state)?);
        let (floats, bytes) = (cx.temporary::<f32>(floats)?, cx.temporary::<i8>(bytes)?);
        for batch in 0..order.batch {
            let last = &mut last[batch * outputs..][..outputs];
            let state = &mut state[batch * cells..][..cells];
            for step in 0..order.steps {
                let at = order.at(batch, step);
                let input = &input[at * features..][..features];
                cell.step(&operands, input, last, state, floats, bytes);
                output[at * outputs..][..outputs].copy_from_slice(last);
            }
        }
        Ok(())
    }))
}

/// The cell's sizes and settings.
struct Cell {
    features: usize,
    cells: usize,
    outputs: usize,
    activation: Activation,
    cell_clip: f32,
    output_clip: f32,
    asymmetric: bool,
    /// The scale of each input that holds integers.
    scales: [Option<f32>; 17],
    /// Which gates' recurrent weights are diagonals.
    diagonal: [bool; 4],
}

impl Cell {
    fn new(
        cx: &PrepareContext<'_>,
        activation: Activation,
        [cell_clip, output_clip]: [f32; 2],
        asymmetric: bool,
    ) -> Result<Self> {
        let input = cx.input(INPUT)?;
        if input.ty() != TensorType::Float32 {
            return Err(unsupported_type("input", input));
        }
        let mut scales = [None; 17];
        for (i, tensor) in (1..cx.num_inputs()).filter_map(|i| Some((i, cx.optional_input(i)?))) {
            let is_weights = i <= 11 || i == CELL.projection;
            match tensor.ty() {
                TensorType::Float32 => {}
                TensorType::Int8 | TensorType::UInt8 if is_weights => {
                    scales[i] = Some(scale_zero_point(tensor)?.0)
                }
                _ => return Err(unsupported_type("operand", tensor)),
            }
            if tensor.tensor().sparsity.is_some() {
                return Err(Error::Unsupported(format!("sparse weights \"{}\"", tensor.name())));
            }
        }
        let features = input.shape().last().copied().unwrap_or(0);
        let cells = cx.input(CELL.weights[3])?.shape()[0];
        let outputs = cx.output(0)?.shape().last().copied().unwrap_or(0);
        let diagonal = CELL.recurrent.map(|i| cx.optional_input(i).is_some_and(|w| w.shape().rank() == 1));
        Ok(Cell {
            features,
            cells,
            outputs,
            activation,
            cell_clip,
            output_clip,
            asymmetric,
            scales,
            diagonal,
        })
    }

    /// One step of one sequence. `last` is the last output and becomes the next.
    fn step(
        &self,
        operands: &Operands<'_>,
        input: &[f32],
        last: &mut [f32],
        state: &mut [f32],
        floats: &mut [f32],
        bytes: &mut [i8],
    ) {
        let cells = self.cells;
        let (for_input, rest) = bytes.split_at_mut(self.features);
        let (for_last, for_hidden) = rest.split_at_mut(self.outputs);
        let [input_gate, forget_gate, cell_gate, output_gate, hidden] = std::array::from_fn(|i| i * cells);
        let vectors =
            [Vector::new(input, for_input, self.asymmetric), Vector::new(last, for_last, self.asymmetric)];
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        let [of_input, of_forget, of_cell, of_output] = &operands.gates;
        if let Some(gate) = of_input {
            gate.run(&vectors, state, &mut floats[input_gate..][..cells], sigmoid);
        }
        if let Some(gate) = of_forget {
            gate.run(&vectors, state, &mut floats[forget_gate..][..cells], sigmoid);
        }
        if let Some(gate) = of_cell {
            gate.run(&vectors, state, &mut floats[cell_gate..][..cells], |x| activate(self.activation, x));
        }
        for (c, state) in state.iter_mut().enumerate() {
            let forget = floats[forget_gate + c];
            let keep = if of_input.is_some() { floats[input_gate + c] } else { 1.0 - forget };
            *state = clip(forget * *state + floats[cell_gate + c] * keep, self.cell_clip);
        }
        // This gate sees the new state.
        if let Some(gate) = of_output {
            gate.run(&vectors, state, &mut floats[output_gate..][..cells], sigmoid);
        }
        for (c, state) in state.iter().enumerate() {
            floats[hidden + c] = activate(self.activation, *state) * floats[output_gate + c];
        }
        let hidden = &floats[hidden..][..cells];
        let Some(projection) = &operands.projection else { return last.copy_from_slice(hidden) };
        match operands.projection_bias {
            Some(bias) => last.copy_from_slice(bias),
            None => last.fill(0.0),
        }
        projection.multiply_add(&Vector::new(hidden, &mut for_hidden[..cells], self.asymmetric), last);
        last.iter_mut().for_each(|o| *o = clip(*o, self.output_clip));
    }
}

fn clip(x: f32, limit: f32) -> f32 {
    if limit > 0.0 { x.max(-limit).min(limit) } else { x }
}

fn activate(activation: Activation, x: f32) -> f32 {
    match (activation, activation.clamp()) {
        (_, Some((low, high))) => x.max(low).min(high),
        (Activation::SignBit, _) => f32::from(u8::from(x.is_sign_negative())),
        _ => x.tanh(),
    }
}

/// A vector, and what it is where it meets integer weights.
struct Vector<'a> {
    values: &'a [f32],
    quantized: &'a [i8],
    scale: f32,
    zero_point: i32,
}

impl<'a> Vector<'a> {
    fn new(values: &'a [f32], quantized: &'a mut [i8], asymmetric: bool) -> Self {
        let (scale, zero_point) = match asymmetric {
            true => quantize_asymmetric(values, quantized),
            false => (quantize_symmetric(values, quantized), 0),
        };
        Vector { values, quantized, scale, zero_point }
    }
}

/// Weights: a matrix, or a vector that stands for a diagonal one.
enum Matrix<'a> {
    Float(&'a [f32]),
    Integer(&'a [i8], f32),
}

impl<'a> Matrix<'a> {
    fn new(cx: &mut InvokeContext<'a>, cell: &Cell, i: usize) -> Result<Option<Self>> {
        if !cx.has_input(i) {
            return Ok(None);
        }
        Ok(Some(match cell.scales[i] {
            Some(scale) => Matrix::Integer(bytemuck::cast_slice(cx.input_bytes(i)?), scale),
            None => Matrix::Float(cx.input(i)?),
        }))
    }

    /// Adds the product with a vector to `sums`.
    fn multiply_add(&self, vector: &Vector<'_>, sums: &mut [f32]) {
        let width = vector.values.len().max(1);
        match self {
            Matrix::Float(weights) => {
                for (sum, row) in sums.iter_mut().zip(weights.chunks_exact(width)) {
                    *sum += row.iter().zip(vector.values).map(|(w, x)| w * x).sum::<f32>();
                }
            }
            Matrix::Integer(weights, scale) => {
                for (sum, row) in sums.iter_mut().zip(weights.chunks_exact(width)) {
                    let dot = integer_dot(0, vector.quantized, row, vector.zero_point, 0);
                    *sum += dot as f32 * (scale * vector.scale);
                }
            }
        }
    }

    /// Adds the product of each element with one of `values` to one of `sums`.
    fn scale_add(&self, values: &[f32], sums: &mut [f32]) {
        let pairs = sums.iter_mut().zip(values);
        match self {
            Matrix::Float(weights) => pairs.zip(*weights).for_each(|((sum, x), w)| *sum += w * x),
            Matrix::Integer(weights, scale) => {
                pairs.zip(*weights).for_each(|((sum, x), &w)| *sum += scale * f32::from(w) * x);
            }
        }
    }
}

/// The operands of one gate.
struct Gate<'a> {
    weights: Matrix<'a>,
    recurrent: Matrix<'a>,
    diagonal: bool,
    peephole: Option<Matrix<'a>>,
    norm: Option<&'a [f32]>,
    bias: &'a [f32],
}

impl Gate<'_> {
    /// The gate's values, of the input and the last output, and of the cell state.
    fn run(
        &self,
        [input, last]: &[Vector<'_>; 2],
        state: &[f32],
        gate: &mut [f32],
        activate: impl Fn(f32) -> f32,
    ) {
        match self.norm {
            Some(_) => gate.fill(0.0),
            None => gate.copy_from_slice(self.bias),
        }
        self.weights.multiply_add(input, gate);
        match self.diagonal {
            true => self.recurrent.scale_add(last.values, gate),
            false => self.recurrent.multiply_add(last, gate),
        }
        if let Some(peephole) = &self.peephole {
            peephole.scale_add(state, gate);
        }
        if let Some(norm) = self.norm {
            normalize(gate);
            gate.iter_mut().zip(norm.iter().zip(self.bias)).for_each(|(g, (n, b))| *g = *g * n + b);
        }
        gate.iter_mut().for_each(|g| *g = activate(*g));
    }
}

/// To a mean of 0 and a variance of 1.
fn normalize(values: &mut [f32]) {
    let count = values.len() as f32;
    let mean = values.iter().sum::<f32>() / count;
    let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count;
    let factor = 1.0 / (variance + 1e-8).sqrt();
    values.iter_mut().for_each(|x| *x = (*x - mean) * factor);
}

/// All operands but the data and the states.
struct Operands<'a> {
    gates: [Option<Gate<'a>>; 4],
    projection: Option<Matrix<'a>>,
    projection_bias: Option<&'a [f32]>,
}

impl<'a> Operands<'a> {
    fn new(cx: &mut InvokeContext<'a>, cell: &Cell) -> Result<Self> {
        let mut gates = [None, None, None, None];
        for (i, gate) in gates.iter_mut().enumerate() {
            let weights = Matrix::new(cx, cell, CELL.weights[i])?;
            let recurrent = Matrix::new(cx, cell, CELL.recurrent[i])?;
            let (Some(weights), Some(recurrent)) = (weights, recurrent) else { continue };
            let peephole = CELL.peephole[i].map(|p| Matrix::new(cx, cell, p)).transpose()?.flatten();
            let (norm, bias) = (CELL.norm[i].map(|n| cx.optional_input(n)).transpose()?.flatten(), cx.input(CELL.bias[i])?);
            let diagonal = cell.diagonal[i];
            *gate = Some(Gate { weights, recurrent, diagonal, peephole, norm, bias });
        }
        let projection = Matrix::new(cx, cell, CELL.projection)?;
        Ok(Operands { gates, projection, projection_bias: cx.optional_input(CELL.projection_bias)? })
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::kernels::testing::{T, check, error};

    /// One cell that adds all it sees: gates of 0.5, as their weights are 0.
    fn inputs(weights: impl Fn(f32) -> T, steps: usize) -> Vec<Option<T>> {
        let bias = || Some(T::new(&[1], &[0f32]));
        let mut inputs = vec![Some(T::new(&[1, steps, 1], &vec![1f32; steps]))];
        inputs.extend([0.0, 0.0, 2.0, 0.0].map(|w| Some(weights(w))));
        inputs.extend([0.0; 4].map(|w| Some(weights(w))));
        inputs.extend([None, None, None, bias(), bias(), bias(), bias(), None, None]);
        inputs.extend([(); 2].map(|()| Some(T::new(&[1, 1], &[0f32]).variable())));
        inputs
    }

    fn params(cell_clip: f32) -> Params {
        Params::UnidirectionalSequenceLSTM(UnidirectionalSequenceLSTMParams {
            fused_activation_function: Activation::None,
            cell_clip,
            proj_clip: 0.0,
            time_major: false,
            asymmetric_quantize_inputs: false,
            diagonal_recurrent_tensors: false,
        })
    }

    #[test]
    fn cells_remember() {
        let op = BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM;
        let float = |w: f32| T::new(&[1, 1], &[w]);
        // The state is 1, 1.5, 1.75; the output half of it.
        let output = || T::new(&[1, 3, 1], &[0.5f32, 0.75, 0.875]);
        check(op, 1, params(0.0), &inputs(float, 3), &[output()]);
        let clipped = T::new(&[1, 3, 1], &[0.5f32, 0.625, 0.625]);
        check(op, 1, params(1.25), &inputs(float, 3), &[clipped]);
        let integer = |w: f32| T::new(&[1, 1], &[(w * 50.0) as i8]).quantized(0.02, 0);
        check(op, 2, params(0.0), &inputs(integer, 3), &[output()]);
        let mut wrong = inputs(float, 3);
        wrong[5] = None;
        let text = error(op, 1, params(0.0), &wrong, &[output()]);
        assert!(text.contains("input 5 is missing"), "{text}");
    }
}
