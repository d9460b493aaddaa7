//! L2_NORMALIZATION.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::l2_normalization::L2NormParams;
use delegraph_core::ops::{Activation, TensorType};
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::kernels::prepared::{Invoke, prepared, unsupported_type};
use crate::kernels::quantized::{
    Multiplier, QuantizedElement, doubling_high_mul, rounding_shift_right, saturating_shl,
};
use crate::kernels::weights::scale_zero_point;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::L2_NORMALIZATION, prepared(prepare), 1..=2);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let activation = cx.params::<L2NormParams>()?.fused_activation_function;
    if activation != Activation::None {
        return Err(Error::Unsupported(format!("activation {activation:?}")));
    }
    let input = cx.input(0)?;
    let depth = input.shape().last().copied().unwrap_or(1).max(1);
    match input.ty() {
        TensorType::Float32 => Ok(float(depth)),
        TensorType::UInt8 => quantized::<u8>(cx, depth, 128),
        TensorType::Int8 => quantized::<i8>(cx, depth, 0),
        _ => Err(unsupported_type("input", input)),
    }
}

fn float(depth: usize) -> Invoke {
    Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        for (input, output) in input.chunks_exact(depth).zip(output.chunks_exact_mut(depth)) {
            let norm = input.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-6);
            output.iter_mut().zip(input).for_each(|(o, x)| *o = x / norm);
        }
        Ok(())
    })
}

/// Outputs have the scale 1/128 and `zero_point`.
fn quantized<Q: QuantizedElement>(cx: &PrepareContext<'_>, depth: usize, zero_point: i32) -> Result<Invoke> {
    let zero = scale_zero_point(cx.input(0)?)?.1;
    let output = cx.output(0)?;
    if scale_zero_point(output)? != (1.0 / 128.0, zero_point) {
        return Err(Error::Unsupported(format!(
            "\"{}\" without scale 1/128 and zero point {zero_point}",
            output.name()
        )));
    }
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<Q>(0)?, cx.output::<Q>(0)?);
        for (input, output) in input.chunks_exact(depth).zip(output.chunks_exact_mut(depth)) {
            let centred = |x: Q| Into::<i32>::into(x).wrapping_sub(zero);
            let square =
                input.iter().map(|&x| centred(x).wrapping_mul(centred(x))).fold(0, i32::wrapping_add);
            let inverse = inverse_square_root(square);
            for (o, &x) in output.iter_mut().zip(input) {
                // Times 128: in front for uint8, in the shift for int8, as the field does it.
                let value = match Q::MIN {
                    0 => inverse.apply(centred(x).wrapping_mul(128)),
                    _ => Multiplier { shift: inverse.shift + 7, ..inverse }.apply(centred(x)),
                };
                *o = Q::clamped(value.wrapping_add(zero_point), Q::MIN, Q::MAX);
            }
        }
        Ok(())
    }))
}

/// `1 / √x` by five steps of Newton's method in the arithmetic of the field's fixed-point library. 0 counts as 1.
fn inverse_square_root(mut x: i32) -> Multiplier {
    if x <= 1 {
        return Multiplier { multiplier: i32::MAX, shift: 0 };
    }
    // Even powers of two are taken out, until x lies between 2²⁷ and 2²⁹.
    let mut right = 11;
    while x >= 1 << 29 {
        x /= 4;
        right += 1;
    }
    let pairs = (x.leading_zeros() - 1) / 2 - 1;
    right -= pairs.cast_signed();
    x <<= 2 * pairs;
    // Numbers with 28 bits after the point, from here on.
    const THREE_HALVES: i32 = 3 << 27;
    const HALF_ROOT_OF_TWO: i32 = 1_518_500_250;
    let half = rounding_shift_right(x >> 1, 1);
    let mut root = 1i32 << 28;
    for _ in 0..5 {
        let cube = saturating_shl(doubling_high_mul(doubling_high_mul(root, root), root), 6);
        let step = doubling_high_mul(THREE_HALVES, root).wrapping_sub(doubling_high_mul(half, cube));
        root = saturating_shl(step, 3);
    }
    root = doubling_high_mul(root, HALF_ROOT_OF_TWO);
    match right {
        ..0 => Multiplier { multiplier: root.wrapping_shl((-right).cast_unsigned()), shift: 0 },
        _ => Multiplier { multiplier: root, shift: -right },
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::kernels::testing::{T, check, error};

    fn params(fused_activation_function: Activation) -> Params {
        Params::L2Norm(L2NormParams { fused_activation_function })
    }

    #[test]
    fn rows_get_length_one() {
        let input = || Some(T::new(&[2, 2], &[3f32, -4.0, 0.0, 0.0]));
        let output = || T::new(&[2, 2], &[0.6f32, -0.8, 0.0, 0.0]);
        check(BuiltinOp::L2_NORMALIZATION, 1, params(Activation::None), &[input()], &[output()]);
        let text = error(BuiltinOp::L2_NORMALIZATION, 1, params(Activation::Relu), &[input()], &[output()]);
        assert!(text.contains("Relu"), "{text}");
    }

    #[test]
    fn integers() {
        let input = Some(T::new(&[1, 2], &[33i8, -37]).quantized(0.3, 3));
        let output = T::new(&[1, 2], &[77i8, -102]).quantized(1.0 / 128.0, 0);
        check(BuiltinOp::L2_NORMALIZATION, 2, params(Activation::None), &[input], &[output]);
        let input = Some(T::new(&[1, 2], &[33u8, 0]).quantized(0.3, 3));
        let output = T::new(&[1, 2], &[255u8, 115]).quantized(1.0 / 128.0, 128);
        check(BuiltinOp::L2_NORMALIZATION, 1, params(Activation::None), &[input], &[output]);
    }

    #[test]
    fn inverse_square_roots() {
        for x in [2, 3, 5, 100, 65_025, 1 << 27, i32::MAX] {
            let Multiplier { multiplier, shift } = inverse_square_root(x);
            let got = f64::from(multiplier) * 2f64.powi(shift - 31);
            assert!((got * f64::from(x).sqrt() - 1.0).abs() < 1e-5, "1 / √{x} is not {got}");
        }
    }
}
