//! The basic LSTM cell: one matrix for all four gates, in single precision or with 8-bit values and 16-bit states.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::lstm::basic_inputs::{BIAS, CELL_STATE, INPUT, OUTPUT_STATE, WEIGHTS};
use delegraph_core::{Element, Error, Result};

use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, unsupported_type};
use crate::common::quantized::{Multiplier, rounding_shift_right};
use crate::common::weights::scale_zero_point;
use delegraph_core::quantized::sigmoid::{logistic, tanh};

/// The outputs: output, state, concatenated input and previous output, and gates before their activations.
const OUTPUT: usize = 0;
const STATE: usize = 1;
const JOINED: usize = 2;
const GATES: usize = 3;

/// Sizes of a cell.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    features: usize,
    cells: usize,
}

pub(super) fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    use TensorType::{Float32, Int16, Int32, UInt8};
    let input = cx.input(INPUT)?;
    let (values, state, bias) = match input.ty() {
        Float32 => (Float32, Float32, Float32),
        UInt8 => (UInt8, Int16, Int32),
        _ => return Err(unsupported_type("input", input)),
    };
    for (i, ty) in [(OUTPUT_STATE, values), (WEIGHTS, values), (BIAS, bias), (CELL_STATE, state)] {
        let tensor = cx.input(i)?;
        if tensor.ty() != ty {
            return Err(unsupported_type("operand", tensor));
        }
    }
    let (shape, cells) = (input.shape(), cx.input(CELL_STATE)?.shape());
    let dim = |shape: &[usize], i: usize| shape.get(i).copied().unwrap_or(0);
    let sizes = Sizes { batch: dim(shape, 0), features: dim(shape, 1), cells: dim(cells, 1) };
    if values == Float32 { Ok(float(cx, sizes)) } else { quantized(cx, sizes) }
}

/// Input `$i`, the previous output or the state. A variable is also written.
macro_rules! state {
    ($cx:ident, $i:expr, $ty:ty) => {
        match $cx.input_tensor($i)?.placement() {
            delegraph_core::kernel::Placement::Variable => State::Variable($cx.variable::<$ty>($i)?),
            _ => State::Given($cx.input::<$ty>($i)?),
        }
    };
}

enum State<'a, T> {
    Variable(&'a mut [T]),
    Given(&'a [T]),
}

impl<T: Element> State<'_, T> {
    fn values(&self) -> &[T] {
        match self {
            State::Variable(values) => values,
            State::Given(values) => values,
        }
    }

    fn set(&mut self, to: &[T]) {
        if let State::Variable(values) = self {
            values.copy_from_slice(to);
        }
    }
}

/// Steps of a [`Pace`] for the activations of a cell.
const CELL_STEPS: usize = 128;

fn join<T: Element>(joined: &mut [T], sizes: Sizes, input: &[T], last: &[T], pace: &mut Pace) -> Result<()> {
    let Sizes { batch, features, cells } = sizes;
    for b in 0..batch {
        pace.spend(features.saturating_add(cells))?;
        let row = &mut joined[b * (features + cells)..][..features + cells];
        row[..features].copy_from_slice(&input[b * features..][..features]);
        row[features..].copy_from_slice(&last[b * cells..][..cells]);
    }
    Ok(())
}

fn float(_: &PrepareContext<'_>, sizes: Sizes) -> Invoke {
    let Sizes { batch, features, cells } = sizes;
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    Box::new(move |cx| {
        let (input, weights, bias) =
            (cx.input::<f32>(INPUT)?, cx.input::<f32>(WEIGHTS)?, cx.input::<f32>(BIAS)?);
        let (mut last, mut state) = (state!(cx, OUTPUT_STATE, f32), state!(cx, CELL_STATE, f32));
        let (output, new_state) = (cx.output::<f32>(OUTPUT)?, cx.output::<f32>(STATE)?);
        let (joined, gates) = (cx.output::<f32>(JOINED)?, cx.output::<f32>(GATES)?);
        let mut pace = Pace::new(cx);
        join(joined, sizes, input, last.values(), &mut pace)?;
        let width = features + cells;
        for (i, gate) in gates.iter_mut().enumerate() {
            pace.spend(width.saturating_add(8))?;
            let (b, unit) = (i / (4 * cells), i % (4 * cells));
            let row = &joined[b * width..][..width];
            let products = weights[unit * width..][..width].iter().zip(row).map(|(w, x)| w * x);
            *gate = bias[unit] + products.sum::<f32>();
        }
        for i in 0..batch * cells {
            pace.spend(CELL_STEPS)?;
            let at = i / cells * 4 * cells + i % cells;
            let gate = |n: usize| gates[at + n * cells];
            let kept = sigmoid(gate(2)) * state.values()[i];
            new_state[i] = sigmoid(gate(0)) * gate(1).tanh() + kept;
            output[i] = sigmoid(gate(3)) * new_state[i].tanh();
        }
        last.set(output);
        state.set(new_state);
        Ok(())
    })
}

/// 8-bit values are multiples of 1/128 around 128; states are 16-bit numbers with 4 integer bits, gates with 3.
fn quantized(cx: &PrepareContext<'_>, sizes: Sizes) -> Result<Invoke> {
    const STATE_BITS: u32 = 4;
    let Sizes { batch, features, cells } = sizes;
    let state = cx.output(STATE)?;
    let scale = scale_zero_point(state)?.0;
    if scale != 2f32.powi(STATE_BITS.cast_signed() - 15) {
        return Err(Error::Unsupported(format!(
            "state \"{}\" with scale {scale}; only 1/2048 is supported",
            state.name()
        )));
    }
    let zero = scale_zero_point(cx.input(WEIGHTS)?)?.1;
    let to_gate = Multiplier::new((4096.0 * scale_zero_point(cx.input(BIAS)?)?.0).into())?;
    let product = |a: i32, b: i32| {
        let product = (a * b + (1 << 14)) >> 15;
        product.min(i16::MAX.into())
    };
    let narrow = |x: i32| x.clamp(i16::MIN.into(), i16::MAX.into());
    Ok(Box::new(move |cx| {
        let (input, weights, bias) =
            (cx.input::<u8>(INPUT)?, cx.input::<u8>(WEIGHTS)?, cx.input::<i32>(BIAS)?);
        let (mut last, mut state) = (state!(cx, OUTPUT_STATE, u8), state!(cx, CELL_STATE, i16));
        let (output, new_state) = (cx.output::<u8>(OUTPUT)?, cx.output::<i16>(STATE)?);
        let (joined, gates) = (cx.output::<u8>(JOINED)?, cx.output::<i16>(GATES)?);
        let mut pace = Pace::new(cx);
        join(joined, sizes, input, last.values(), &mut pace)?;
        let width = features + cells;
        for (i, gate) in gates.iter_mut().enumerate() {
            pace.spend(width.saturating_add(8))?;
            let (b, unit) = (i / (4 * cells), i % (4 * cells));
            let row = joined[b * width..][..width].iter().zip(&weights[unit * width..]);
            let sum = row.fold(bias[unit], |sum, (&x, &w)| {
                sum.wrapping_add((i32::from(x) - 128) * i32::from(w).wrapping_sub(zero))
            });
            *gate = narrow(to_gate.apply_up(sum)) as i16;
        }
        for i in 0..batch * cells {
            pace.spend(CELL_STEPS)?;
            let at = i / cells * 4 * cells + i % cells;
            let gate = |n: usize| i32::from(gates[at + n * cells]);
            let added = product(logistic::<16>(gate(0), 3), tanh::<16>(gate(1), 3));
            let kept = product(logistic::<16>(gate(2), 3), state.values()[i].into());
            let sum = narrow(rounding_shift_right(added, STATE_BITS.cast_signed()) + kept);
            new_state[i] = sum as i16;
            let result = product(logistic::<16>(gate(3), 3), tanh::<16>(sum, STATE_BITS));
            output[i] = (128 + rounding_shift_right(result, 8).clamp(-128, 127)) as u8;
        }
        last.set(output);
        state.set(new_state);
        Ok(())
    }))
}
