//! Integer LSTM cells: 8-bit values and weights, 16-bit states and gates. A gate's two matrix products are added with
//! 16 bits or, if the file has the scales of all twelve intermediate values, with 8 bits.

use delegraph_core::kernel::{Budget, InvokeContext, PrepareContext, Temporary};
use delegraph_core::ops::TensorType;
use delegraph_core::ops::lstm::inputs::{CELL, INPUT};
use delegraph_core::{Element, Error, Result};

use super::{Intermediates, Settings};
use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, unsupported_type};
use crate::common::quantized::{Multiplier, inverse_root, rounding_shift_right};
use crate::common::recurrent::Order;
use crate::common::weights::{check_bias_type, integer_dot, scale_zero_point};
use delegraph_core::quantized::lstm::{
    self, Cell as Numbers, Gate, Product, logistic_of_float, norm_factor, norm_scales, tanh_of_float,
};
use delegraph_core::quantized::sigmoid::{logistic, tanh};

/// Steps of a [`Pace`] per sigmoid or hyperbolic tangent.
const ACTIVATION_STEPS: usize = 32;

/// Steps of a [`Pace`] for other work on an element of a vector, and for a sum of products beside the products.
const ELEMENT_STEPS: usize = 8;

struct Cell {
    numbers: Numbers,
    features: usize,
    cells: usize,
    outputs: usize,
}

pub(super) fn prepare(
    cx: &mut PrepareContext<'_>,
    intermediates: &Intermediates,
    settings: Settings,
    order: Order,
) -> Result<Invoke> {
    check_types(cx)?;
    let cell = Cell::new(cx, intermediates, settings)?;
    let gates = cx.temporary_of::<i16>(cell.cells.saturating_mul(5))?;
    let hidden = cx.temporary_of::<i8>(cell.cells)?;
    Ok(Box::new(move |cx| cell.run(cx, order, gates, hidden)))
}

fn check_types(cx: &PrepareContext<'_>) -> Result<()> {
    fn all<T: Element>(
        cx: &PrepareContext<'_>,
        what: &str,
        list: impl IntoIterator<Item = usize>,
    ) -> Result<()> {
        for tensor in list.into_iter().filter_map(|i| cx.optional_input(i)) {
            if tensor.ty() != T::TYPE {
                return Err(unsupported_type(what, tensor));
            }
            if tensor.tensor().sparsity.is_some() {
                let text = format!("sparse weights \"{}\"; only dense ones are supported", tensor.name());
                return Err(Error::Unsupported(text));
            }
        }
        Ok(())
    }
    all::<i8>(cx, "weights", CELL.weights.into_iter().chain(CELL.recurrent).chain([CELL.projection]))?;
    all::<i16>(cx, "weights", CELL.peephole.into_iter().chain(CELL.norm).flatten())?;
    CELL.bias.iter().chain([&CELL.projection_bias]).try_for_each(|&i| check_bias_type::<i32>(cx, i))?;
    all::<i16>(cx, "state", [CELL.cell_state])?;
    let last = cx.input(CELL.output_state)?;
    if !matches!(last.ty(), TensorType::Int8 | TensorType::Int16) {
        return Err(unsupported_type("state", last));
    }
    match CELL.recurrent.iter().filter_map(|&i| cx.optional_input(i)).find(|t| t.shape().rank() != 2) {
        Some(weights) => {
            let text =
                format!("diagonal integer weights \"{}\"; only matrices are supported", weights.name());
            Err(Error::Unsupported(text))
        }
        None if cx.output(0)?.ty() != TensorType::Int8 => Err(unsupported_type("output", cx.output(0)?)),
        None => Ok(()),
    }
}

impl Cell {
    fn new(cx: &PrepareContext<'_>, intermediates: &Intermediates, settings: Settings) -> Result<Self> {
        let dim = |i: usize| -> Result<usize> { Ok(cx.input(i)?.shape().first().copied().unwrap_or(0)) };
        let cells = dim(CELL.weights[3])?;
        let projection = cx.optional_input(CELL.projection).is_some();
        let outputs = if projection { dim(CELL.projection)? } else { cells };
        let settings = lstm::Settings {
            cells,
            outputs,
            output_scale: scale_zero_point(cx.output(0)?)?.0,
            cell_clip: settings.cell_clip,
            output_clip: settings.output_clip,
        };
        let of = |i: usize| cx.optional_input(i).map(scale_zero_point).transpose();
        Ok(Cell {
            numbers: Numbers::new(of, intermediates, settings)?,
            features: cx.input(INPUT)?.shape().last().copied().unwrap_or(0),
            cells,
            outputs,
        })
    }

    fn run(
        &self,
        cx: &mut InvokeContext<'_>,
        order: Order,
        gates: Temporary,
        hidden: Temporary,
    ) -> Result<()> {
        let &Cell { features, cells, outputs, .. } = self;
        let operands = Operands::new(cx)?;
        let (input, output) = (cx.input::<i8>(INPUT)?, cx.output::<i8>(0)?);
        // Some files declare the previous output with 16 bits; TFLite uses the first half of that memory.
        let last = match cx.input_tensor(CELL.output_state)?.ty {
            TensorType::Int16 => bytemuck::cast_slice_mut(cx.variable::<i16>(CELL.output_state)?),
            _ => cx.variable::<i8>(CELL.output_state)?,
        };
        let state = cx.variable::<i16>(CELL.cell_state)?;
        let (gates, hidden) = (cx.temporary::<i16>(gates)?, cx.temporary::<i8>(hidden)?);
        let (gates, hidden) = (&mut gates[..5 * cells], &mut hidden[..cells]);
        let mut pace = Pace::new(cx);
        for batch in 0..order.batch {
            let last = &mut last[batch * outputs..][..outputs];
            let state = &mut state[batch * cells..][..cells];
            // Index of the sequence in its batch, and the number of sequences.
            let group = if order.time_major { (batch, order.batch) } else { (0, 1) };
            for step in order.walk(false) {
                cx.check_interrupted()?;
                let at = order.at(batch, step);
                let input = &input[at * features..][..features];
                self.step(&operands, group, input, last, state, gates, hidden, &mut pace)?;
                output[at * outputs..][..outputs].copy_from_slice(last);
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn step(
        &self,
        operands: &Operands<'_>,
        group: (usize, usize),
        input: &[i8],
        last: &mut [i8],
        state: &mut [i16],
        gates: &mut [i16],
        hidden: &mut [i8],
        pace: &mut Pace,
    ) -> Result<()> {
        let cells = self.cells;
        // The last gate reads the new state.
        let mut whole = Pace::of(Budget::unlimited());
        for i in 0..4 {
            // Polled before the states change, so that an interruption leaves those of a whole step.
            let pace = if i == 3 { &mut whole } else { &mut *pace };
            if i == 3 {
                self.update(state, gates, pace)?;
            }
            if let (Some(gate), Some(of_gate)) = (&self.numbers.gates[i], &operands.gates[i]) {
                let out = &mut gates[i * cells..][..cells];
                self.gate(gate, of_gate, group, [input, last], state, out, i == 2, pace)?;
            }
        }
        let pace = &mut whole;
        let (before, of_state) = gates.split_at_mut(4 * cells);
        let output_gate = &before[3 * cells..];
        for (t, &s) in of_state.iter_mut().zip(state.iter()) {
            pace.spend(ACTIVATION_STEPS)?;
            *t = match self.numbers.narrow {
                true => tanh_of_float(s, -15),
                false => tanh::<16>(s.into(), (15 + self.numbers.state_exponent).cast_unsigned()) as i16,
            };
        }
        self.output(operands, output_gate, of_state, hidden, last, pace)
    }

    #[allow(clippy::too_many_arguments)]
    fn gate(
        &self,
        gate: &Gate,
        operands: &GateOperands<'_>,
        (batch, group): (usize, usize),
        [input, last]: [&[i8]; 2],
        state: &[i16],
        out: &mut [i16],
        is_cell_gate: bool,
        pace: &mut Pace,
    ) -> Result<()> {
        let dot = |x: &[i8], weights: &[i8], row: usize, zero: i32, sum: i32| {
            let weights = &weights[row * x.len()..][..x.len()];
            integer_dot(sum, x, weights, zero, 0)
        };
        // With a normalization, the bias is added after it.
        let bias = operands.bias.filter(|_| gate.norm.is_none());
        for (c, out) in out.iter_mut().enumerate() {
            pace.spend(input.len().saturating_add(last.len()).saturating_add(ELEMENT_STEPS))?;
            let sum = dot(input, operands.weights, c, gate.input.from, bias.map_or(0, |bias| bias[c]));
            let of_last = dot(last, operands.recurrent, c, gate.last.from, 0);
            *out = match gate.narrow {
                None => {
                    let first = saturate16(gate.input.by.apply(sum));
                    saturate16(gate.last.by.apply(of_last).wrapping_add(first.into()))
                }
                Some([of_input, of_recurrent]) => {
                    let narrow = |product: &Product, sum: i32| {
                        let to = i32::from(product.to as i8);
                        product.by.apply(sum).wrapping_add(to).clamp(-128, 127) - to
                    };
                    let (x, h) = (narrow(&gate.input, sum), narrow(&gate.last, of_last));
                    saturate16(of_recurrent.apply(h).wrapping_add(of_input.apply(x)))
                }
            };
        }
        if let Some(weights) = operands.peephole {
            // TFLite steps through the states of all sequences by the number of outputs, even if that is not the number
            // of cells.
            for (c, (out, &state)) in out.iter_mut().zip(state).enumerate() {
                pace.spend(ELEMENT_STEPS)?;
                let at = batch * self.cells + c;
                if at < group * self.outputs {
                    let product = i32::from(weights[at % self.outputs]) * i32::from(state);
                    *out = saturate16(gate.peephole.apply(product).wrapping_add((*out).into()));
                }
            }
        }
        if let (Some((scale, least)), Some(norm), Some(bias)) = (gate.norm, operands.norm, operands.bias) {
            match self.numbers.narrow {
                false => normalize(out, norm, bias, scale, least, pace)?,
                true => normalize_in_float(out, norm, bias, scale, pace)?,
            }
        }
        for out in out {
            pace.spend(ACTIVATION_STEPS)?;
            *out = match (self.numbers.narrow, is_cell_gate) {
                (false, false) => logistic::<16>((*out).into(), 3) as i16,
                (false, true) => tanh::<16>((*out).into(), 3) as i16,
                (true, false) => logistic_of_float(*out),
                (true, true) => tanh_of_float(*out, -12),
            };
        }
        Ok(())
    }

    /// The new state: the old one times the forget gate, plus the candidates times the input gate.
    fn update(&self, state: &mut [i16], gates: &[i16], pace: &mut Pace) -> Result<()> {
        let coupled = self.numbers.gates[0].is_none();
        for (c, state) in state.iter_mut().enumerate() {
            pace.spend(ELEMENT_STEPS)?;
            let gate = |i: usize| i32::from(gates[i * self.cells + c]);
            let forget = gate(1);
            let let_in = if coupled { i32::from(i16::MAX) - forget } else { gate(0) };
            let kept = rounding_shift_right(forget * i32::from(*state), 15) as i16;
            let added = rounding_shift_right(let_in * gate(2), 30 + self.numbers.state_exponent) as i16;
            let sum = saturate16(i32::from(kept) + i32::from(added));
            *state = match self.numbers.cell_clip {
                limit @ 1.. => i32::from(sum).clamp(-limit, limit) as i16,
                _ => sum,
            };
        }
        Ok(())
    }

    fn output(
        &self,
        operands: &Operands<'_>,
        gate: &[i16],
        of_state: &[i16],
        hidden: &mut [i8],
        output: &mut [i8],
        pace: &mut Pace,
    ) -> Result<()> {
        let (by, zero) = self.numbers.hidden;
        let value = |c: usize| by.apply(i32::from(gate[c]) * i32::from(of_state[c]));
        let (Some(projection), Some(weights)) = (self.numbers.projection, operands.projection) else {
            for (c, o) in output.iter_mut().enumerate() {
                pace.spend(ELEMENT_STEPS)?;
                *o = saturate8(value(c).wrapping_add(zero));
            }
            return Ok(());
        };
        let bias = |o: usize| operands.projection_bias.map_or(0, |bias| bias[o]);
        for (c, h) in hidden.iter_mut().enumerate() {
            pace.spend(ELEMENT_STEPS)?;
            // TFLite negates the zero point of the projection.
            *h = saturate8(value(c).wrapping_sub(zero));
        }
        for (o, out) in output.iter_mut().enumerate() {
            pace.spend(self.cells.saturating_add(ELEMENT_STEPS))?;
            let weights = &weights[o * self.cells..][..self.cells];
            let sum = match self.numbers.narrow {
                false => integer_dot(bias(o), hidden, weights, zero.wrapping_neg(), 0),
                true => weights.iter().enumerate().fold(bias(o), |sum, (c, &w)| {
                    let value = rounding_shift_right(i32::from(gate[c]) * i32::from(of_state[c]), 15) as i16;
                    sum.wrapping_add(i32::from(value) * i32::from(w))
                }),
            };
            *out = saturate8(projection.apply(sum).wrapping_add(self.numbers.output_zero));
            if self.numbers.output_clip > 0 {
                *out = i32::from(*out).clamp(-self.numbers.output_clip, self.numbers.output_clip) as i8;
            }
        }
        Ok(())
    }
}

fn saturate16(x: i32) -> i16 {
    x.clamp(i16::MIN.into(), i16::MAX.into()) as i16
}

fn saturate8(x: i32) -> i8 {
    x.clamp(i8::MIN.into(), i8::MAX.into()) as i8
}

/// Normalizes to a mean of 0 and a variance of 1, times factors, plus biases, in integers.
fn normalize(
    values: &mut [i16],
    norm: &[i16],
    bias: &[i32],
    scale: Multiplier,
    least: i32,
    pace: &mut Pace,
) -> Result<()> {
    let count = values.len() as i64;
    if count == 0 {
        return Ok(());
    }
    let (sum, squares) = pace.fold(1, values, (0i64, 0i64), |sums, piece| {
        piece.iter().map(|&x| i64::from(x)).fold(sums, |(sum, squares), x| (sum + x, squares + x * x))
    })?;
    let mean = (sum * 1024 / count) as i32;
    let variance = squares * ((1 << 20) / count) - i64::from(mean) * i64::from(mean);
    let variance = match (variance / (1 << 20)) as i32 {
        ..1 => least,
        enough => enough,
    };
    let inverse = inverse_root(variance);
    let scale = norm_factor(scale);
    for (x, (&norm, &bias)) in values.iter_mut().zip(norm.iter().zip(bias)) {
        pace.spend(ELEMENT_STEPS)?;
        let shifted = (1024 * i32::from(*x)).wrapping_sub(mean);
        let weighted = i64::from(inverse.apply(shifted).wrapping_mul(norm.into()).wrapping_add(bias));
        let rounded = (if weighted > 0 { weighted + 512 } else { weighted - 512 }) / 1024;
        *x = saturate16(scale.apply(rounded as i32));
    }
    Ok(())
}

/// Like [`normalize`], in floating point.
fn normalize_in_float(
    values: &mut [i16],
    norm: &[i16],
    bias: &[i32],
    scale: Multiplier,
    pace: &mut Pace,
) -> Result<()> {
    let [scale, bias_scale] = norm_scales(scale);
    let count = values.len() as f32;
    let (sum, squares) = pace.fold(1, values, (0f32, 0f32), |sums, piece| {
        piece.iter().map(|&x| f32::from(x)).fold(sums, |(sum, squares), x| (sum + x, squares + x * x))
    })?;
    let mean = sum / count;
    let variance = squares / count - mean * mean;
    let inverse = 1.0 / if variance == 0.0 { 1e-8f32 } else { variance }.sqrt();
    for (x, (&norm, &bias)) in values.iter_mut().zip(norm.iter().zip(bias)) {
        pace.spend(ELEMENT_STEPS)?;
        let normalized = (f32::from(*x) - mean) * inverse;
        let weighted = normalized * f32::from(norm) * scale + bias as f32 * bias_scale;
        *x = saturate16((weighted * 4096.0).round() as i32);
    }
    Ok(())
}

struct GateOperands<'a> {
    weights: &'a [i8],
    recurrent: &'a [i8],
    peephole: Option<&'a [i16]>,
    norm: Option<&'a [i16]>,
    bias: Option<&'a [i32]>,
}

/// All operands but the data and the states.
struct Operands<'a> {
    gates: [Option<GateOperands<'a>>; 4],
    projection: Option<&'a [i8]>,
    projection_bias: Option<&'a [i32]>,
}

impl<'a> Operands<'a> {
    fn new(cx: &mut InvokeContext<'a>) -> Result<Self> {
        let mut gates = [const { None }; 4];
        for (i, gate) in gates.iter_mut().enumerate() {
            let Some(weights) = cx.optional_input(CELL.weights[i])? else { continue };
            *gate = Some(GateOperands {
                weights,
                recurrent: cx.input(CELL.recurrent[i])?,
                peephole: CELL.peephole[i].map(|p| cx.optional_input(p)).transpose()?.flatten(),
                norm: CELL.norm[i].map(|n| cx.optional_input(n)).transpose()?.flatten(),
                bias: cx.optional_input(CELL.bias[i])?,
            });
        }
        let projection = cx.optional_input(CELL.projection)?;
        Ok(Operands { gates, projection, projection_bias: cx.optional_input(CELL.projection_bias)? })
    }
}
