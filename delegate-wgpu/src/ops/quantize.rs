//! QUANTIZE, DEQUANTIZE.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{Float16, Float32, Int2, Int4, Int8, Int16, UInt4, UInt8};
use delegraph_core::fixed_point::Multiplier;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::quantize::{Direction, Spec};
use delegraph_shaders::rescale::{By, Factor, Spec as Rescale};

use super::{GpuOp, invalid_scale};
use crate::graph::Element;
use crate::graph::lowering::{Lowering, no_scale};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::QUANTIZE, 6, &[Float32, UInt8, Int16, Int8], quantize),
    GpuOp::new(BuiltinOp::DEQUANTIZE, 9, &[Float16, UInt8, Int16, Int8, Int4, Int2, UInt4], dequantize),
];

fn quantize(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    if cx.element(input) == Element::F32 {
        return cx.round(input, output, Direction::ToEven);
    }
    if !cx.is_narrow(input) {
        return Err(cx.wrong_type(0));
    }
    let (from, to) = (cx.steps(input)?, cx.steps(output)?);
    let ratio = Multiplier::new(f64::from(from.scale) / f64::from(to.scale)).map_err(invalid_scale)?;
    let elements: u32 = cx.shape(input).iter().product();
    // From 8 bits to 8 bits, LiteRT's kernel processes 16 elements at once and rounds their halves upwards.
    let up = if cx.is_bytes(input) && cx.is_bytes(output) { elements / 16 * 16 } else { 0 };
    let spec = Rescale {
        by: By::Fixed { before: from.zero, factor: factor(ratio), up: [elements, up] },
        after: to.zero,
        saturates: true,
        low: to.low,
        high: to.high,
        elements,
    };
    cx.push(spec, &[input], output)
}

/// Returns a factor in the shader's form.
pub(super) fn factor(of: Multiplier) -> Factor {
    Factor { multiplier: of.multiplier, shift: of.shift }
}

fn dequantize(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let input = cx.moved_input(0)?;
    // 16-bit floats are 32-bit floats on the device.
    if cx.element(input) == Element::F32 {
        return cx.alias(0, input, 0);
    }
    let affine = cx.affine(input).ok_or_else(no_scale)?;
    let output = cx.output(0)?;
    let elements = cx.shape(input).iter().product();
    cx.push(Spec { affine, direction: Direction::ToReal, elements }, &[input], output)
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
            // Elements beyond a multiple of 16 round halves away from zero.
            &[T::new(&[5], &[-20_i8, -1, 0, 2, 127]).quantized(0.5, 0)],
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

    #[test]
    fn elements_that_share_a_byte() {
        use delegraph_core::TensorType::{Int2, Int4, UInt4};
        let run = |ty, bytes: &[u8], zero, expected: [f32; 3]| {
            let input = T::packed(ty, &[3], bytes).quantized(0.5, zero);
            let expected = [T::new(&[3], &expected)];
            check(BuiltinOp::DEQUANTIZE, 9, Params::None, &[Some(input.clone())], &expected);
            check(BuiltinOp::DEQUANTIZE, 9, Params::None, &[Some(input.constant())], &expected);
        };
        run(Int4, &[0x8f, 0x07], 1, [-1.0, -4.5, 3.0]);
        run(UInt4, &[0x8f, 0x07], 0, [7.5, 4.0, 3.5]);
        run(Int2, &[0b01_1011], 0, [-0.5, -1.0, 0.5]);
    }
}
