//! ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, SQUARED_DIFFERENCE in single precision; the first three also in 8 and 16 bits.

use delegraph_core::kernel::{PrepareContext, TensorView};
use delegraph_core::ops::binary::{AddParams, DivParams, MulParams, SubParams};
use delegraph_core::ops::{Activation, TensorType};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{byte_quant, clamp_of, compute_error, compute_multiplier, optimize};
use crate::common::prepared::Invoke;
use crate::common::quantized::{Multiplier, activation_range};
use crate::reference::binary_quantized::{power_of_two_shifts, scaled_sum};
use delegraph_compute::{
    Binary, Broadcast, ByteBinary, ByteBinaryOp, ByteBinaryQuant, Clamp, Factor, Isa, Ties, zip_i16,
};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::ADD, 1..=6, |cx| {
        let p = cx.params::<AddParams>()?;
        either(cx, Binary::Add, (p.fused_activation_function, p.pot_scale_int16))
    });
    optimize(resolver, BuiltinOp::SUB, 1..=5, |cx| {
        let p = cx.params::<SubParams>()?;
        either(cx, Binary::Sub, (p.fused_activation_function, p.pot_scale_int16))
    });
    optimize(resolver, BuiltinOp::MUL, 1..=8, |cx| {
        let activation = cx.params::<MulParams>()?.fused_activation_function;
        either(cx, Binary::Mul, (activation, false))
    });
    optimize(resolver, BuiltinOp::DIV, 1..=2, |cx| {
        float(cx, Binary::Div, clamp_of(cx.params::<DivParams>()?.fused_activation_function))
    });
    optimize(resolver, BuiltinOp::MAXIMUM, 1..=4, |cx| float(cx, Binary::Maximum, Some(Clamp::NONE)));
    optimize(resolver, BuiltinOp::MINIMUM, 1..=4, |cx| float(cx, Binary::Minimum, Some(Clamp::NONE)));
    optimize(resolver, BuiltinOp::SQUARED_DIFFERENCE, 1..=2, |cx| {
        float(cx, Binary::SquaredDifference, Some(Clamp::NONE))
    });
}

fn either(
    cx: &mut PrepareContext<'_>,
    function: Binary,
    (activation, pot_scale): (Activation, bool),
) -> Result<Option<Invoke>> {
    match cx.input(0)?.ty() {
        TensorType::Int8 | TensorType::UInt8 => bytes(cx, function, activation),
        TensorType::Int16 => sixteens(cx, function, activation, pot_scale),
        _ => float(cx, function, clamp_of(activation)),
    }
}

fn bytes(cx: &mut PrepareContext<'_>, function: Binary, activation: Activation) -> Result<Option<Invoke>> {
    let (a, b, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    if [b.ty(), output.ty()] != [a.ty(); 2] {
        return Ok(None);
    }
    let (Some(quant_a), Some(quant_b)) = (byte_quant(a), byte_quant(b)) else { return Ok(None) };
    let Ok(shapes) = Broadcast::new(a.shape(), b.shape()) else { return Ok(None) };
    let (function, output, zero_point, (low, high)) = match function {
        Binary::Add | Binary::Sub => {
            let (scaled, range) = scaled_sum(cx, activation)?;
            // The reference kernel rejects such sums with a reason, and saturates such differences.
            if scaled.output.shift > 0 {
                return Ok(None);
            }
            let factors = scaled.inputs.map(compute_multiplier);
            let byte = if function == Binary::Add { ByteBinary::Add } else { ByteBinary::Sub };
            (byte(factors), scaled.output, scaled.zero_point, range)
        }
        Binary::Mul => {
            let scales = [a.scale_zero_point()?.0, b.scale_zero_point()?.0];
            let (scale, zero_point) = output.scale_zero_point()?;
            let multiplier = Multiplier::new((scales[0] * scales[1] / scale).into())?;
            (ByteBinary::Mul, multiplier, zero_point, activation_range(activation, output)?)
        }
        _ => return Ok(None),
    };
    let operands = [quant_a, quant_b];
    let isa = Isa::best();
    let quant = ByteBinaryQuant { operands, output: compute_multiplier(output), zero_point, low, high };
    let op = ByteBinaryOp::new(isa, function, quant).map_err(compute_error)?;
    may_overwrite_either(cx)?;
    Ok(Some(Box::new(move |cx| {
        let [a, b] = [cx.input_bytes_unless_overwritten(0)?, cx.input_bytes_unless_overwritten(1)?];
        let output = cx.output_bytes(0)?;
        op.run(isa, &shapes, a, b, output, cx.parallel()).map_err(compute_error)
    })))
}

/// Sums, differences and products of 16 bits. With `pot_scale_int16`, sums and differences whose scales are all powers
/// of two are left to the reference kernel.
fn sixteens(
    cx: &mut PrepareContext<'_>,
    function: Binary,
    activation: Activation,
    pot_scale: bool,
) -> Result<Option<Invoke>> {
    let (a, b, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    let quantized = [a, b, output].map(|t| t.ty() == TensorType::Int16 && t.quantization().is_some());
    let zero = |t: TensorView<'_>| t.scale_zero_point().is_ok_and(|(_, zero)| zero == 0);
    let shifts = matches!(function, Binary::Add | Binary::Sub).then(|| power_of_two_shifts(cx, pot_scale));
    let scaled = matches!(shifts, None | Some(Ok(None)));
    if quantized != [true; 3] || !scaled || ![a, b, output].into_iter().all(zero) {
        return Ok(None);
    }
    let Ok(shapes) = Broadcast::new(a.shape(), b.shape()) else { return Ok(None) };
    let isa = Isa::best();
    match function {
        Binary::Mul => {
            let [a, b, output] =
                [a.scale_zero_point()?.0, b.scale_zero_point()?.0, output.scale_zero_point()?.0];
            let multiplier = compute_multiplier(Multiplier::new((a * b / output).into())?);
            let (low, high) = activation_range(activation, cx.output(0)?)?;
            let factor = Factor::new(multiplier, Ties::Away);
            let product = move |a: i16, b: i16| {
                let scaled = factor.apply(i32::from(a).wrapping_mul(i32::from(b)));
                scaled.max(low).min(high) as i16
            };
            Ok(Some(Box::new(move |cx| {
                let (a, b, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
                zip_i16(isa, &shapes, a, b, output, cx.parallel(), product).map_err(compute_error)
            })))
        }
        Binary::Add | Binary::Sub => {
            let (scaled, range) = scaled_sum(cx, activation)?;
            if scaled.output.shift > 0 {
                return Ok(None);
            }
            // TFLite's sum of equal shapes handles groups of 16 elements, whose inputs it rounds once.
            let equal = function == Binary::Add && a.shape() == b.shape();
            let sign = if function == Binary::Add { 1 } else { -1 };
            let ((low, high), inputs, shift) = (range, scaled.inputs, scaled.left_shift);
            let twice = inputs.map(|m| Factor::new(compute_multiplier(m), Ties::Away));
            let once = inputs.map(Once::new);
            let output = Factor::new(compute_multiplier(scaled.output), Ties::Away);
            let result =
                move |a: i32, b: i32| output.apply(a.wrapping_add(sign * b)).max(low).min(high) as i16;
            let sum = move |a: i16, b: i16| {
                result(twice[0].apply(i32::from(a) << shift), twice[1].apply(i32::from(b) << shift))
            };
            let sum_at_once = move |a: i16, b: i16| {
                result(once[0].apply(i32::from(a) << shift), once[1].apply(i32::from(b) << shift))
            };
            Ok(Some(Box::new(move |cx| {
                let (a, b) = (cx.input::<i16>(0)?, cx.input::<i16>(1)?);
                let (output, par) = (cx.output::<i16>(0)?, cx.parallel());
                if !equal {
                    return zip_i16(isa, &shapes, a, b, output, par, sum).map_err(compute_error);
                }
                zip_i16(isa, &shapes, a, b, output, par, sum_at_once).map_err(compute_error)?;
                let rest = output.len() / 16 * 16;
                for (o, (a, b)) in output[rest..].iter_mut().zip(a[rest..].iter().zip(&b[rest..])) {
                    *o = sum(*a, *b);
                }
                Ok(())
            })))
        }
        _ => Ok(None),
    }
}

/// [`Multiplier::apply_once`] as loops apply it.
#[derive(Clone, Copy)]
struct Once {
    multiplier: i64,
    right: u32,
}

impl Once {
    fn new(m: Multiplier) -> Self {
        Once { multiplier: m.multiplier.into(), right: (31 - m.shift.min(0)).clamp(31, 62).cast_unsigned() }
    }

    #[inline(always)]
    fn apply(self, x: i32) -> i32 {
        ((i64::from(x) * self.multiplier + (1 << (self.right - 1))) >> self.right) as i32
    }
}

/// An operand that is not broadcast has the output's layout and may be overwritten.
fn may_overwrite_either(cx: &mut PrepareContext<'_>) -> Result<()> {
    let elements = cx.output(0)?.shape().elements();
    for i in 0..2 {
        if cx.input(i)?.shape().elements() == elements {
            cx.may_overwrite(i);
        }
    }
    Ok(())
}

pub(super) fn float(
    cx: &mut PrepareContext<'_>,
    function: Binary,
    clamp: Option<Clamp>,
) -> Result<Option<Invoke>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let Some(clamp) = clamp else { return Ok(None) };
    if [a, b].iter().any(|t| t.ty() != TensorType::Float32) {
        return Ok(None);
    }
    // The reference kernel handles shapes with more broadcast dimensions than the primitive supports.
    let Ok(shapes) = Broadcast::new(a.shape(), b.shape()) else { return Ok(None) };
    let isa = Isa::best();
    may_overwrite_either(cx)?;
    Ok(Some(Box::new(move |cx| {
        let [a, b] = [cx.input_unless_overwritten::<f32>(0)?, cx.input_unless_overwritten::<f32>(1)?];
        let output = cx.output::<f32>(0)?;
        shapes.run(isa, function, a, b, output, clamp, cx.parallel()).map_err(compute_error)
    })))
}
