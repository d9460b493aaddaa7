//! Functions of one 8-bit value as tables of all 256 results, with the arithmetic of the kernels on the CPU.

use delegraph_core::Result;
use delegraph_core::fixed_point::{HardSwish, Multiplier};
use delegraph_shaders::quantize::Affine;
use delegraph_shaders::unary::Unary;

/// The integer that `function` makes of each byte: first of those from 0 up, then, for signed bytes, of those from
/// -128 up, so that a negative value counts from the table's end.
///
/// # Errors
/// For scales that fixed-point factors don't reach.
pub(crate) fn table(function: Unary, input: Affine, output: Affine) -> Result<Vec<i32>> {
    let entry: Box<dyn Fn(i32) -> i32> = match function {
        Unary::Clamp { min, max } => {
            let ratio = Multiplier::new((input.scale / output.scale).into())?;
            let bound = |real: f32, limit: i32| match real.is_finite() {
                true => output.zero.saturating_add((real / output.scale).round() as i32),
                false => limit,
            };
            let (low, high) = (bound(min, output.low), bound(max, output.high));
            Box::new(move |q| ratio.apply(q - input.zero).wrapping_add(output.zero).max(low).min(high))
        }
        Unary::LeakyRelu { alpha } => {
            let ratio = Multiplier::new((input.scale / output.scale).into())?;
            let slope = input.scale * alpha / output.scale;
            let below = Multiplier::new(slope.abs().into())?;
            let scaled = move |x: i32| match x >= 0 {
                true => ratio.apply(x),
                false if slope < 0.0 => -below.apply(x),
                false => below.apply(x),
            };
            Box::new(move |q| scaled(q - input.zero).wrapping_add(output.zero))
        }
        Unary::Abs => {
            let ratio = Multiplier::new((input.scale / output.scale).into())?;
            Box::new(move |q| ratio.apply((q - input.zero).abs()).wrapping_add(output.zero))
        }
        // The field's kernel looks at no scale.
        Unary::Neg => Box::new(|q: i32| i32::from((q as i8).wrapping_neg())),
        // And rounds roots towards zero.
        Unary::Sqrt => Box::new(move |q| {
            let real = (input.scale * (q - input.zero) as f32).sqrt();
            ((real / output.scale) as i32).saturating_add(output.zero)
        }),
        Unary::HardSwish => {
            let hard_swish = HardSwish::new((input.scale, input.zero), (output.scale, output.zero))?;
            Box::new(move |q| hard_swish.apply(q))
        }
        _ => {
            let inverse = 1.0 / output.scale;
            Box::new(move |q| {
                let real = evaluate(function, input.scale * (q - input.zero) as f32);
                ((real * inverse).round() + output.zero as f32) as i32
            })
        }
    };
    Ok(of_bytes(input, |q| entry(q).clamp(output.low, output.high)))
}

/// A table of what `f` makes of the bytes of a tensor.
pub(crate) fn of_bytes<T>(input: Affine, f: impl Fn(i32) -> T) -> Vec<T> {
    (0..256).map(|byte| f(if byte > input.high { byte - 256 } else { byte })).collect()
}

/// The function in single precision, as the shaders compute it. What has no logarithm or root gives the lowest or
/// highest there is.
fn evaluate(function: Unary, x: f32) -> f32 {
    let gelu_tanh = |x: f32| 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh());
    match function {
        Unary::Abs => x.abs(),
        Unary::Affine { scale, offset } => x * scale + offset,
        Unary::Cbrt => x.cbrt(),
        Unary::Ceil => x.ceil(),
        Unary::Clamp { min, max } => x.max(min).min(max),
        Unary::Cos => x.cos(),
        Unary::Elu => {
            if x > 0.0 {
                x
            } else {
                x.exp_m1()
            }
        }
        Unary::Exp => x.exp(),
        Unary::Floor => x.floor(),
        Unary::Gelu => 0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2)),
        Unary::GeluTanh => gelu_tanh(x),
        Unary::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Unary::LeakyRelu { alpha } => {
            if x > 0.0 {
                x
            } else {
                alpha * x
            }
        }
        Unary::Log => {
            if x > 0.0 {
                x.ln()
            } else {
                f32::MIN
            }
        }
        Unary::Logistic => 1.0 / (1.0 + (-x).exp()),
        Unary::Neg => -x,
        Unary::Round => x.round_ties_even(),
        Unary::Rsqrt => {
            if x > 0.0 {
                1.0 / x.sqrt()
            } else {
                f32::MAX
            }
        }
        Unary::Sign => {
            if x == 0.0 {
                0.0
            } else {
                x.signum()
            }
        }
        Unary::Sin => x.sin(),
        Unary::Sqrt => x.max(0.0).sqrt(),
        Unary::Square => x * x,
        Unary::Tanh => x.tanh(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_values_count_from_the_end() {
        let signed = Affine { scale: 0.5, zero: -1, low: -128, high: 127 };
        let unsigned = Affine { scale: 0.25, zero: 10, low: 0, high: 255 };
        let relu = table(Unary::RELU, signed, unsigned).unwrap();
        assert_eq!((relu[0], relu[127], relu[128], relu[255]), (12, 255, 10, 10));
        let tanh = table(Unary::Tanh, unsigned, Affine { scale: 1.0 / 128.0, zero: 0, ..signed }).unwrap();
        assert_eq!((tanh[0], tanh[10], tanh[14], tanh[255]), (-126, 0, 97, 127));
    }
}
