//! LOCAL_RESPONSE_NORMALIZATION.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::Float32;
use delegraph_core::ops::local_response_normalization::LocalResponseNormalizationParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::local_response_normalization::Spec;

use super::{GpuOp, expect_one_of};
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(BuiltinOp::LOCAL_RESPONSE_NORMALIZATION, 1, &[Float32], lower)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &LocalResponseNormalizationParams = cx.params()?;
    expect_one_of(cx, 0, GpuOp::FLOATS)?;
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let [n, h, w, channels] = cx.shape4(input)?;
    let spec = Spec {
        pixels: n * h * w,
        channels,
        // A negative radius is read as 0.
        radius: u32::try_from(p.radius).unwrap_or(0),
        bias: p.bias,
        alpha: p.alpha,
        beta: p.beta,
    };
    cx.push(spec, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn neighbours_along_the_channels() {
        let input = T::new(&[1, 1, 2, 3], &[1.0_f32, -2.0, 3.0, 0.5, 0.0, 4.0]);
        let run = |radius, sums: [f32; 6]| {
            let params =
                LocalResponseNormalizationParams::default().radius(radius).bias(2.0).alpha(0.5).beta(0.75);
            let values = input.floats();
            let expected = T::from_fn(&[1, 1, 2, 3], |i| values[i] / (2.0 + 0.5 * sums[i]).powf(0.75));
            let op = BuiltinOp::LOCAL_RESPONSE_NORMALIZATION;
            let params = Params::LocalResponseNormalization(params);
            check(op, 1, params, &[Some(input.clone())], &[expected]);
        };
        run(0, [1.0, 4.0, 9.0, 0.25, 0.0, 16.0]);
        run(1, [5.0, 14.0, 13.0, 0.25, 16.25, 16.0]);
        run(i32::MAX, [14.0, 14.0, 14.0, 16.25, 16.25, 16.25]);
    }

    #[test]
    fn powers_of_negative_sums() {
        let input = T::new(&[1, 1, 1, 3], &[1.0_f32, -2.0, 3.0]);
        for beta in [2.0, 1.0, -3.0, 0.0] {
            let params =
                LocalResponseNormalizationParams::default().radius(0).bias(-1.0).alpha(-0.5).beta(beta);
            let values = input.floats();
            let sum = |i: usize| -1.0 - 0.5 * values[i] * values[i];
            let expected = T::from_fn(&[1, 1, 1, 3], |i| values[i] * sum(i).powf(-beta));
            let op = BuiltinOp::LOCAL_RESPONSE_NORMALIZATION;
            let params = Params::LocalResponseNormalization(params);
            check(op, 1, params, &[Some(input.clone())], &[expected]);
        }
    }
}
