//! SOFTMAX, LOG_SOFTMAX.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{Float16, Float32, Int8, Int16, UInt8};
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_core::quantized::softmax::{Wide, check_output, exp_table};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::softmax::Spec;
use delegraph_shaders::softmax_quantized::Spec as Quantized;
use delegraph_shaders::softmax_wide::Spec as Sixteens;

use super::quantize::factor;
use super::{GpuOp, invalid_scale, mixed_types};
use crate::graph::lowering::{Lowering, unsupported};
use crate::graph::{Element, ValueId};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::SOFTMAX, 4, &[Float32, Float16, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::LOG_SOFTMAX, 2, &[Float32, UInt8, Int8], lower),
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let log = cx.node().op().builtin() == Some(BuiltinOp::LOG_SOFTMAX);
    let beta = if log { 1.0 } else { cx.params::<SoftmaxParams>()?.beta };
    let input = cx.any_input(0)?;
    let shape = cx.shape(input);
    let (&depth, outer) = shape
        .split_last()
        .ok_or_else(|| unsupported("a scalar; only tensors of rank 1 or more are supported"))?;
    if !log && cx.is_narrow(input) {
        let size = [outer.iter().product(), depth];
        return if cx.is_bytes(input) {
            of_bytes(cx, input, size, beta)
        } else {
            wide(cx, input, size, beta)
        };
    }
    if log && cx.is_narrow(input) {
        // TFLite defines a single quantization of the result.
        let output = cx.output(0)?;
        let to = cx.steps(output)?;
        check_output(to, 1.0 / 16.0, to.high).map_err(invalid_scale)?;
    }
    let (input, output) = (cx.input(0)?, cx.real_output(0)?);
    cx.push(Spec { rows: outer.iter().product(), depth, beta, log }, &[input], output)
}

/// 8 bits: a table of the exponentials of all differences, summed in the order of the CPU kernel.
fn of_bytes(
    cx: &mut Lowering<'_, '_, '_>,
    input: ValueId,
    [rows, depth]: [u32; 2],
    beta: f32,
) -> Result<(), Rejection> {
    if !beta.is_finite() {
        return Err(unsupported(format!("beta {beta}; only finite numbers are supported")));
    }
    let output = cx.output(0)?;
    let (from, to) = (cx.steps(input)?, cx.steps(output)?);
    let zero = match (cx.narrow(input), cx.narrow(output)) {
        // Without the zero point, which LiteRT's kernel assumes to be 0.
        (Some((8, false)), Some((8, false))) => None,
        (Some((8, true)), Some((8, true))) => {
            check_output(to, 1.0 / 256.0, -128).map_err(invalid_scale)?;
            Some(to.zero)
        }
        (_, Some((16, true))) => Some(to.zero),
        _ => return Err(mixed_types(cx)),
    };
    let table = cx.new_constant(&[256], Element::F32, &exp_table(from.scale * beta));
    let spec = Quantized { rows, depth, scale: to.scale, zero, range: [to.low, to.high] };
    cx.push(spec, &[input, table], output)
}

/// 16 bits, with the tables of the CPU kernel.
fn wide(
    cx: &mut Lowering<'_, '_, '_>,
    input: ValueId,
    [rows, depth]: [u32; 2],
    beta: f32,
) -> Result<(), Rejection> {
    let output = cx.output(0)?;
    let (from, to) = (cx.steps(input)?, cx.steps(output)?);
    if cx.narrow(output) != Some((16, true)) {
        return Err(mixed_types(cx));
    }
    check_output(to, 1.0 / 32768.0, 0).map_err(invalid_scale)?;
    // The factor to the table's scale has the sign of beta; the shader multiplies by positive factors.
    if beta.is_nan() || beta < 0.0 {
        return Err(unsupported(format!(
            "beta {beta} of 16-bit integers; only values from 0 on are supported"
        )));
    }
    let tables = Wide::new(from, beta, depth as usize).map_err(invalid_scale)?;
    let points = tables.exp.points().iter().chain(tables.inverse.points());
    let points: Vec<i32> = points.map(|&point| point.into()).collect();
    let count = u32::try_from(points.len()).unwrap_or(u32::MAX);
    let points = cx.new_constant(&[count], Element::I32, &points);
    cx.push(Sixteens { rows, depth, to_table: factor(tables.to_table) }, &[input, points], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check, support};
    use delegraph_core::Params;

    #[test]
    fn rows_sum_to_one() {
        let input = T::new(&[2, 2], &[0.0_f32, 3.0_f32.ln(), 100.0, 100.0]);
        let params = Params::Softmax(SoftmaxParams::default().beta(1.0));
        let expected = T::new(&[2, 2], &[0.25_f32, 0.75, 0.5, 0.5]);
        check(BuiltinOp::SOFTMAX, 1, params, &[Some(input.clone())], std::slice::from_ref(&expected));
        let logarithm = T::from_fn(&[2, 2], |i| expected.floats()[i].ln());
        check(BuiltinOp::LOG_SOFTMAX, 1, Params::None, &[Some(input)], &[logarithm]);
    }

    #[test]
    fn what_the_cpu_refuses_is_refused() {
        let answer = |op, params, [from, to]: [f32; 2], zero| {
            let input = T::new(&[1, 2], &[5i8, 9]).quantized(from, 0);
            support(op, 2, params, &[Some(input)], &[T::new(&[1, 2], &[0i8, 0]).quantized(to, zero)])
        };
        let softmax = |beta, from| {
            let params = Params::Softmax(SoftmaxParams::default().beta(beta));
            answer(BuiltinOp::SOFTMAX, params, [from, 1.0 / 256.0], -128)
        };
        let log = |scale, zero| answer(BuiltinOp::LOG_SOFTMAX, Params::None, [0.5, scale], zero);
        for taken in [softmax(1.0, 0.5), log(1.0 / 16.0, 127)] {
            assert!(taken.is_none_or(|answer| answer.is_ok()));
        }
        let infinite = [f32::INFINITY, f32::NEG_INFINITY].map(|beta| softmax(beta, 0.5));
        let scales = [0.0, 3e38, 1e-30].map(|scale| softmax(1.0, scale));
        for refused in infinite.into_iter().chain(scales).chain([log(1.0 / 8.0, 127), log(1.0 / 16.0, 0)]) {
            assert!(refused.is_none_or(|answer| answer.is_err()));
        }
    }

    #[test]
    fn negative_factors_of_16_bits_stay_on_the_cpu() {
        let answer = |beta| {
            let input = T::new(&[1, 2], &[5i16, 9]).quantized(0.5, 0);
            let output = T::new(&[1, 2], &[0i16, 0]).quantized(1.0 / 32768.0, 0);
            let params = Params::Softmax(SoftmaxParams::default().beta(beta));
            support(BuiltinOp::SOFTMAX, 3, params, &[Some(input)], &[output])
        };
        assert!(answer(1.0).is_none_or(|answer| answer.is_ok()));
        assert!(answer(-1.0).is_none_or(|answer| matches!(answer, Err(Rejection::UnsupportedParam(_)))));
    }
}
