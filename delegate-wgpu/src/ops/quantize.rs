//! QUANTIZE, DEQUANTIZE.

use delegraph_core::BuiltinOp;
use delegraph_core::fixed_point::Multiplier;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::quantize::{Direction, Spec};

use super::{GpuOp, invalid_scale, unary};
use crate::graph::{Element, ValueId};
use crate::lower::{Lowering, unsupported};
use crate::table::of_bytes;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp { op: BuiltinOp::QUANTIZE, max_version: 6, lower: quantize },
    GpuOp { op: BuiltinOp::DEQUANTIZE, max_version: 9, lower: dequantize },
];

fn quantize(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    if cx.element(input) == Element::F32 {
        return cx.round(input, output, Direction::ToEven);
    }
    let (Some(from), Some(to)) = (cx.affine(input), cx.affine(output)) else {
        return Err(unsupported("integers without a scale of their own"));
    };
    if cx.is_bytes(input) {
        let ratio = Multiplier::new(f64::from(from.scale) / f64::from(to.scale)).map_err(invalid_scale)?;
        let rescaled = |q: i32| ratio.apply_up(q - from.zero).saturating_add(to.zero);
        let table = of_bytes(from, |q| rescaled(q).clamp(to.low, to.high));
        return unary::look_up(cx, input, &table, output);
    }
    let real = real_numbers(cx, input)?;
    cx.round(real, output, Direction::Away)
}

fn dequantize(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let input = cx.any_input(0)?;
    // Halves are floats on the device.
    if cx.element(input) == Element::F32 {
        return cx.alias(0, input, 0);
    }
    let affine = cx.affine(input).ok_or_else(|| unsupported("integers without a scale of their own"))?;
    let output = cx.output(0)?;
    let elements = cx.shape(input).iter().product();
    cx.push(Spec { affine, direction: Direction::ToReal, elements }, &[input], output)
}

/// What integers of 16 bits stand for.
fn real_numbers(cx: &mut Lowering<'_, '_, '_>, input: ValueId) -> Result<ValueId, Rejection> {
    let affine = cx.affine(input).ok_or_else(|| unsupported("integers without a scale of their own"))?;
    let shape = cx.shape(input);
    let real = cx.temporary(&shape);
    let elements = shape.iter().product();
    cx.push(Spec { affine, direction: Direction::ToReal, elements }, &[input], real)?;
    Ok(real)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn there_and_back() {
        let real = T::new(&[5], &[-10.0_f32, -0.25, 0.0, 0.75, 100.0]);
        let stored = T::new(&[5], &[-20_i8, -1, 0, 2, 127]).quantized(0.5, 0);
        check(
            BuiltinOp::QUANTIZE,
            1,
            Params::None,
            &[Some(real)],
            &[T::new(&[5], &[-20_i8, 0, 0, 2, 127]).quantized(0.5, 0)],
        );
        let real = T::new(&[5], &[-10.0_f32, -0.5, 0.0, 1.0, 63.5]);
        check(BuiltinOp::DEQUANTIZE, 2, Params::None, &[Some(stored.clone())], &[real]);
        let rescaled = T::new(&[5], &[88_u8, 126, 128, 132, 255]).quantized(0.25, 128);
        check(BuiltinOp::QUANTIZE, 2, Params::None, &[Some(stored)], std::slice::from_ref(&rescaled));
        let wide = T::new(&[5], &[-400_i16, -20, 0, 40, 1270]).quantized(0.025, 0);
        check(BuiltinOp::QUANTIZE, 2, Params::None, &[Some(rescaled)], &[wide]);
    }

    #[test]
    fn halves() {
        let halves = [1.5_f32, -2.0].map(half::f16::from_f32);
        let input = Some(T::new(&[2], &halves));
        check(BuiltinOp::DEQUANTIZE, 3, Params::None, &[input], &[T::new(&[2], &[1.5_f32, -2.0])]);
    }
}
