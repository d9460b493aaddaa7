//! L2_NORMALIZATION.

use std::ops::Add;

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::l2_normalization::L2NormParams;
use delegraph_core::ops::{Activation, TensorType};
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::quantized::{Multiplier, QuantizedElement, inverse_root};
use crate::common::weights::scale_zero_point;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::L2_NORMALIZATION, prepared(prepare), 1..=2);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let activation = cx.params::<L2NormParams>()?.fused_activation_function;
    if activation != Activation::None {
        return Err(Error::Unsupported(format!("activation {activation:?}; only None is supported")));
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
        let mut pace = Pace::new(cx);
        for (input, output) in input.chunks_exact(depth).zip(output.chunks_exact_mut(depth)) {
            let squares = |sum, input: &[f32]| input.iter().map(|x| x * x).fold(sum, f32::add);
            let norm = pace.fold(ELEMENT_STEPS, input, 0f32, squares)?.sqrt();
            // NaN stays NaN; `max` would return the other number.
            let norm = if norm < 1e-6 { 1e-6 } else { norm };
            pace.zip(ELEMENT_STEPS, input, output, |input, output| {
                output.iter_mut().zip(input).for_each(|(o, x)| *o = x / norm);
            })?;
        }
        Ok(())
    })
}

/// Steps of a [`Pace`] per element.
const ELEMENT_STEPS: usize = 4;

/// Quantized outputs have the scale 1/128 and `zero_point`.
fn quantized<Q: QuantizedElement>(cx: &PrepareContext<'_>, depth: usize, zero_point: i32) -> Result<Invoke> {
    let zero = scale_zero_point(cx.input(0)?)?.1;
    let output = cx.output(0)?;
    let (scale, found) = scale_zero_point(output)?;
    if (scale, found) != (1.0 / 128.0, zero_point) {
        return Err(Error::Unsupported(format!(
            "output \"{}\" with scale {scale} and zero point {found}; \
             only 1/128 and {zero_point} are supported",
            output.name()
        )));
    }
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<Q>(0)?, cx.output::<Q>(0)?);
        let mut pace = Pace::new(cx);
        for (input, output) in input.chunks_exact(depth).zip(output.chunks_exact_mut(depth)) {
            let centred = |x: Q| Into::<i32>::into(x).wrapping_sub(zero);
            let square = |x: &Q| centred(*x).wrapping_mul(centred(*x));
            let squares = pace.fold(ELEMENT_STEPS, input, 0, |sum, input| {
                input.iter().map(square).fold(sum, i32::wrapping_add)
            })?;
            let inverse = inverse_root(squares);
            pace.zip(ELEMENT_STEPS, input, output, |input, output| {
                for (o, &x) in output.iter_mut().zip(input) {
                    // TFLite multiplies by 128 before the rescaling for uint8, and adds 7 to the shift for int8.
                    let value = match Q::MIN {
                        0 => inverse.apply(centred(x).wrapping_mul(128)),
                        _ => Multiplier { shift: inverse.shift + 7, ..inverse }.apply(centred(x)),
                    };
                    *o = Q::clamped(value.wrapping_add(zero_point), Q::MIN, Q::MAX);
                }
            })?;
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    fn params(fused_activation_function: Activation) -> Params {
        Params::L2Norm(L2NormParams::default().fused_activation_function(fused_activation_function))
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
}
