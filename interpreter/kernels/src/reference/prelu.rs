//! PRELU.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::index::Nest;
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::quantized::{Multiplier, QuantizedElement, scale_zero_point_in_range};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::PRELU, prepared(prepare), 1);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (input, slopes) = (cx.input(0)?, cx.input(1)?);
    match (input.ty(), slopes.ty()) {
        (TensorType::Float32, TensorType::Float32) => {
            let nest = Nest::broadcast(input.shape(), slopes.shape(), input.shape());
            Ok(Box::new(move |cx| {
                let (input, slopes, output) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output(0)?);
                let leaky = |x, slope: f32| if x >= 0.0 { x } else { x * slope };
                nest.zip_polled(input, slopes, output, leaky, || cx.check_interrupted())
            }))
        }
        (TensorType::UInt8, TensorType::UInt8) => quantized::<u8, u8>(cx),
        (TensorType::Int8, TensorType::Int8) => quantized::<i8, i8>(cx),
        (TensorType::Int16, TensorType::Int8) => quantized::<i16, i8>(cx),
        (TensorType::Float32 | TensorType::UInt8 | TensorType::Int8 | TensorType::Int16, _) => {
            Err(unsupported_type("slopes", slopes))
        }
        _ => Err(unsupported_type("input", input)),
    }
}

fn quantized<T: QuantizedElement, S: QuantizedElement>(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (scale, zero) = scale_zero_point_in_range(cx.input(0)?)?;
    let (slope_scale, slope_zero) = scale_zero_point_in_range(cx.input(1)?)?;
    let (output_scale, output_zero) = scale_zero_point_in_range(cx.output(0)?)?;
    let above = Multiplier::new((scale / output_scale).into())?;
    let below = Multiplier::new((scale * slope_scale / output_scale).into())?;
    let shape = cx.input(0)?.shape();
    let nest = Nest::broadcast(shape, cx.input(1)?.shape(), shape);
    Ok(Box::new(move |cx| {
        let (input, slopes, output) = (cx.input::<T>(0)?, cx.input::<S>(1)?, cx.output(0)?);
        let leaky = |x: T, slope: S| {
            let x = x.into() - zero;
            let scaled = if x >= 0 { above.apply(x) } else { below.apply(x * (slope.into() - slope_zero)) };
            T::clamped(scaled.wrapping_add(output_zero), T::MIN, T::MAX)
        };
        nest.zip_polled(input, slopes, output, leaky, || cx.check_interrupted())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn slopes_broadcast() {
        let input = || Some(T::new(&[1, 2, 1, 2], &[1f32, -2.0, -3.0, 4.0]));
        let slopes = Some(T::new(&[1, 1, 2], &[0.5f32, 2.0]));
        let output = || T::new(&[1, 2, 1, 2], &[1f32, -4.0, -1.5, 4.0]);
        check(BuiltinOp::PRELU, 1, Params::None, &[input(), slopes], &[output()]);
        let wrong = Some(T::new(&[3], &[0f32; 3]));
        let text = error(BuiltinOp::PRELU, 1, Params::None, &[input(), wrong], &[output()]);
        assert!(text.contains("do not broadcast"), "{text}");
    }

    #[test]
    fn quantized_slopes() {
        let input = Some(T::new(&[1, 4], &[10i8, -10, -20, 30]).quantized(0.5, 0));
        let slopes = Some(T::new(&[1], &[2i8]).quantized(0.25, 0));
        let output = T::new(&[1, 4], &[9i8, -6, -11, 29]).quantized(0.5, -1);
        check(BuiltinOp::PRELU, 1, Params::None, &[input, slopes], &[output]);
    }
}
