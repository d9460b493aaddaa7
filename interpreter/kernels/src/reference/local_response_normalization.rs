//! LOCAL_RESPONSE_NORMALIZATION.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::local_response_normalization::LocalResponseNormalizationParams;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::prepared::{Invoke, prepared, unsupported_type};

/// Number of squares that are added between polls.
const CHECKED: usize = 1 << 20;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::LOCAL_RESPONSE_NORMALIZATION, prepared(prepare), 1);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p: &LocalResponseNormalizationParams = cx.params()?;
    let (bias, alpha, beta) = (p.bias, p.alpha, p.beta);
    let radius = usize::try_from(p.radius).unwrap_or(0);
    let input = cx.input(0)?;
    let depth = input.shape()[3].max(1);
    if input.ty() != TensorType::Float32 {
        return Err(unsupported_type("input", input));
    }
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        let mut summed = 0;
        for (input, output) in input.chunks_exact(depth).zip(output.chunks_exact_mut(depth)) {
            cx.check_interrupted()?;
            for (c, o) in output.iter_mut().enumerate() {
                // A row of many channels and a large radius takes seconds.
                if summed > CHECKED {
                    cx.check_interrupted()?;
                    summed = 0;
                }
                let end = c.saturating_add(radius).saturating_add(1).min(depth);
                let sum: f32 = input[c.saturating_sub(radius)..end].iter().map(|x| x * x).sum();
                summed += end - c.saturating_sub(radius);
                *o = input[c] * (bias + alpha * sum).powf(-beta);
            }
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn neighbours_on_both_sides_count() {
        let params = || {
            let (radius, bias, alpha, beta) = (1, 1.0, 2.0, 0.5);
            Params::LocalResponseNormalization(
                LocalResponseNormalizationParams::default().radius(radius).bias(bias).alpha(alpha).beta(beta),
            )
        };
        let input = Some(T::new(&[1, 1, 1, 3], &[2f32, -1.0, 3.0]));
        let output = T::new(&[1, 1, 1, 3], &[2.0 / 11f32.sqrt(), -1.0 / 29f32.sqrt(), 3.0 / 21f32.sqrt()]);
        check(BuiltinOp::LOCAL_RESPONSE_NORMALIZATION, 1, params(), &[input], &[output]);
        let flat = T::new(&[3], &[1f32; 3]);
        let text =
            error(BuiltinOp::LOCAL_RESPONSE_NORMALIZATION, 1, params(), &[Some(flat.clone())], &[flat]);
        assert!(text.contains("rank 4"), "{text}");
    }
}
