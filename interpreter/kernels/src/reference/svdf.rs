//! SVDF: feature filters, whose latest results are stored in a state and filtered over time.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::svdf::SvdfParams;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result};

use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::quantized::{Multiplier, QuantizedElement};
use crate::common::weights::{
    DynamicInput, Weights, check_bias_type, float_activation, integer_dot, scale_zero_point,
};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::SVDF, prepared(prepare), 1..=4);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    use TensorType::{Float32, Int8, Int16, UInt8};
    let (input, feature, time) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    match (input.ty(), feature.ty(), time.ty()) {
        (Float32, Float32, Float32) => float(cx),
        (Float32, Int8 | UInt8, Int8 | UInt8) => hybrid(cx),
        (Int8, Int8, Int16) => int8(cx),
        (Float32 | Int8, ..) => Err(unsupported_type("weights", feature)),
        _ => Err(unsupported_type("input", input)),
    }
}

/// Shapes of an SVDF.
#[derive(Clone, Copy)]
struct Svdf {
    batch: usize,
    inputs: usize,
    filters: usize,
    memory: usize,
    rank: usize,
}

impl Svdf {
    fn new(cx: &PrepareContext<'_>) -> Result<Self> {
        let (input, time) = (cx.input(0)?.shape(), cx.input(2)?.shape());
        let rank = usize::try_from(cx.params::<SvdfParams>()?.rank).unwrap_or(1);
        Ok(Svdf { batch: input[0], inputs: input[1], filters: time[0], memory: time[1], rank })
    }

    /// Appends `latest(batch, filter)` to the state, and passes the units' sums over time to `finish`.
    fn run<S: Element, T: Copy, A: Default, O>(
        &self,
        mut pace: Pace,
        (state, time): (&mut [S], &[T]),
        output: &mut [O],
        latest: impl Fn(usize, usize) -> S,
        add: impl Fn(A, S, T) -> A,
        finish: impl Fn(usize, A) -> O,
    ) -> Result<()> {
        let Svdf { inputs, filters, memory, rank, .. } = *self;
        if filters == 0 || memory == 0 {
            return Ok(());
        }
        for (row, state) in state.chunks_exact_mut(memory).enumerate() {
            pace.spend(memory.saturating_add(inputs))?;
            state.copy_within(1.., 0);
            state[memory - 1] = latest(row / filters, row % filters);
        }
        for (i, out) in output.iter_mut().enumerate() {
            pace.spend(memory.saturating_mul(rank))?;
            let (batch, unit) = (i / (filters / rank), i % (filters / rank));
            let sum = (unit * rank..(unit + 1) * rank).fold(A::default(), |sum, filter| {
                let state = &state[(batch * filters + filter) * memory..][..memory];
                let time = &time[filter * memory..][..memory];
                state.iter().zip(time).fold(sum, |sum, (&s, &t)| add(sum, s, t))
            });
            *out = finish(unit, sum);
        }
        Ok(())
    }
}

fn float(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<f32>(cx, 3)?;
    let svdf = Svdf::new(cx)?;
    let activation = float_activation(cx.params::<SvdfParams>()?.fused_activation_function);
    Ok(Box::new(move |cx| {
        let (input, feature) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?);
        let bias = cx.optional_input::<f32>(3)?;
        let latest = |batch: usize, filter: usize| {
            let (input, weights) = (&input[batch * svdf.inputs..], &feature[filter * svdf.inputs..]);
            input.iter().zip(&weights[..svdf.inputs]).fold(0f32, |sum, (a, b)| sum + a * b)
        };
        let add = |sum: f32, state: f32, time: f32| sum + state * time;
        svdf.run(
            Pace::new(cx),
            (cx.variable::<f32>(4)?, cx.input(2)?),
            cx.output(0)?,
            latest,
            add,
            |unit, sum| activation(sum + bias.map_or(0.0, |bias| bias[unit])),
        )
    }))
}

/// Float inputs and integer weights: each vector of the batch is quantized while running; the state is float.
fn hybrid(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<f32>(cx, 3)?;
    let svdf = Svdf::new(cx)?;
    let p: &SvdfParams = cx.params()?;
    let (activation, asymmetric) =
        (float_activation(p.fused_activation_function), p.asymmetric_quantize_inputs);
    let (feature_scale, time_scale) = (scale_zero_point(cx.input(1)?)?.0, scale_zero_point(cx.input(2)?)?.0);
    let dynamic = DynamicInput::new(cx, svdf.batch, svdf.inputs, asymmetric)?;
    let (feature, time) = (Weights::new(cx, 1)?, Weights::new(cx, 2)?);
    Ok(Box::new(move |cx| {
        let input = cx.input(0)?;
        let rows = dynamic.quantize(cx, input)?;
        let (feature, time) = (feature.get(cx)?, time.get(cx)?);
        let bias = cx.optional_input::<f32>(3)?;
        let latest = |batch: usize, filter: usize| {
            let input = &rows.values[batch * svdf.inputs..][..svdf.inputs];
            let sum = integer_dot(0, input, &feature[filter * svdf.inputs..], rows.zero_points[batch], 0);
            sum as f32 * (rows.scales[batch] * feature_scale)
        };
        let add = |sum: f32, state: f32, time: i8| sum + state * (f32::from(time) * time_scale);
        svdf.run(Pace::new(cx), (cx.variable::<f32>(4)?, time), cx.output(0)?, latest, add, |unit, sum| {
            activation(sum + bias.map_or(0.0, |bias| bias[unit]))
        })
    }))
}

/// 8-bit inputs and feature weights, 16-bit state and time weights.
fn int8(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<i32>(cx, 3)?;
    let svdf = Svdf::new(cx)?;
    let scale = |i| -> Result<f32> { Ok(scale_zero_point(cx.input(i)?)?.0) };
    let state_scale = scale(4)?;
    let (output_scale, output_zero) = scale_zero_point(cx.output(0)?)?;
    // TFLite multiplies the scales in single precision.
    let to_state = Multiplier::new((scale(0)? * scale(1)? / state_scale).into())?;
    let to_output = Multiplier::new((state_scale * scale(2)? / output_scale).into())?;
    let zero = scale_zero_point(cx.input(0)?)?.1;
    Ok(Box::new(move |cx| {
        let (input, feature) = (cx.input::<i8>(0)?, cx.input::<i8>(1)?);
        let bias = cx.optional_input::<i32>(3)?;
        let latest = |batch: usize, filter: usize| {
            let input = &input[batch * svdf.inputs..][..svdf.inputs];
            let sum = integer_dot(0, input, &feature[filter * svdf.inputs..], zero, 0);
            i16::clamped(to_state.apply(sum), i16::MIN.into(), i16::MAX.into())
        };
        let add = |sum: i32, state: i16, time: i16| sum.wrapping_add(i32::from(state) * i32::from(time));
        svdf.run(
            Pace::new(cx),
            (cx.variable::<i16>(4)?, cx.input::<i16>(2)?),
            cx.output(0)?,
            latest,
            add,
            |unit, sum| {
                let sum = sum.wrapping_add(bias.map_or(0, |bias| bias[unit]));
                let scaled = to_output.apply(sum).wrapping_add(output_zero);
                i8::clamped(scaled, i8::MIN.into(), i8::MAX.into())
            },
        )
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::Activation;

    use super::*;
    use crate::testing::{T, check, error};

    fn params(rank: i32) -> Params {
        Params::Svdf(
            SvdfParams::default()
                .rank(rank)
                .fused_activation_function(Activation::None)
                .asymmetric_quantize_inputs(false),
        )
    }

    #[test]
    fn filters_of_a_unit_are_summed() {
        let input = || Some(T::new(&[1, 2], &[1f32, 2.0]));
        let feature = || Some(T::new(&[4, 2], &[1f32, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 0.0]));
        // Only the last time step has a value yet.
        let time = || Some(T::new(&[4, 2], &[9f32, 1.0, 9.0, 10.0, 9.0, 100.0, 9.0, 1000.0]));
        let bias = Some(T::new(&[2], &[0.5f32, 0.0]));
        let state = || Some(T::new(&[1, 8], &[0f32; 8]).variable());
        let output = T::new(&[1, 2], &[21.5f32, 2300.0]);
        check(BuiltinOp::SVDF, 1, params(2), &[input(), feature(), time(), bias, state()], &[output]);
        let inputs = [input(), feature(), time(), None, state()];
        let text = error(BuiltinOp::SVDF, 1, params(3), &inputs, &[T::new(&[1, 2], &[0f32; 2])]);
        assert!(text.contains("4 filters do not have rank 3"), "{text}");
    }

    #[test]
    fn integers() {
        let inputs = [
            Some(T::new(&[1, 2], &[3i8, 5]).quantized(0.5, 1)),
            Some(T::new(&[1, 2], &[2i8, 4]).quantized(0.5, 0)),
            Some(T::new(&[1, 2], &[9i16, 6]).quantized(0.5, 0)),
            Some(T::new(&[1], &[-20i32])),
            Some(T::new(&[1, 2], &[0i16; 2]).quantized(0.25, 0).variable()),
        ];
        // The state becomes 2·2 + 4·4 = 20; the output (20·6 - 20) / 8 - 1.
        let output = T::new(&[1, 1], &[12i8]).quantized(1.0, -1);
        check(BuiltinOp::SVDF, 3, params(1), &inputs, &[output]);
    }
}
