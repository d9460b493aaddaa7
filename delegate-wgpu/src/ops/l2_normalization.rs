//! L2_NORMALIZATION.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{Float32, Int8, UInt8};
use delegraph_core::ops::Activation;
use delegraph_core::ops::l2_normalization::L2NormParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::l2_normalization::{Bytes, Spec};

use super::{GpuOp, mixed_types};
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] =
    &[GpuOp::new(BuiltinOp::L2_NORMALIZATION, 2, &[Float32, UInt8, Int8], lower)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let fused = cx.params::<L2NormParams>()?.fused_activation_function;
    if fused != Activation::None {
        return Err(unsupported(format!("fused activation {fused:?}; only None is supported")));
    }
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    let shape = cx.shape(input);
    let depth = shape.last().copied().unwrap_or(1);
    let rows = shape.iter().rev().skip(1).product();
    if !cx.is_bytes(input) {
        let (input, output) = (cx.input(0)?, cx.real_output(0)?);
        return cx.push(Spec { rows, depth, integers: None }, &[input], output);
    }
    let (from, to) = (cx.steps(input)?, cx.steps(output)?);
    let zero = if to.low == 0 { 128 } else { 0 };
    if cx.narrow(input) != cx.narrow(output) {
        return Err(mixed_types(cx));
    }
    if (to.scale, to.zero) != (1.0 / 128.0, zero) {
        let found = format!("output scale {} and zero point {}", to.scale, to.zero);
        return Err(unsupported(format!("{found}; only 1/128 and {zero} are supported")));
    }
    let integers = Some(Bytes { input_zero: from.zero, zero, range: [to.low, to.high] });
    cx.push(Spec { rows, depth, integers }, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check, support};
    use delegraph_core::Params;

    #[test]
    fn rows_get_the_length_one() {
        let params = || Params::L2Norm(L2NormParams::default().fused_activation_function(Activation::None));
        let input = T::new(&[2, 1, 2], &[3.0_f32, -4.0, 0.0, 1e-9]);
        let expected = T::new(&[2, 1, 2], &[0.6_f32, -0.8, 0.0, 1e-3]);
        check(BuiltinOp::L2_NORMALIZATION, 1, params(), &[Some(input)], &[expected]);
        let input = T::noise(&[3, 300], 7);
        let values = input.floats();
        let norm = |row: usize| values[row * 300..][..300].iter().map(|x| x * x).sum::<f32>().sqrt();
        let expected = T::from_fn(&[3, 300], |i| values[i] / norm(i / 300));
        check(BuiltinOp::L2_NORMALIZATION, 1, params(), &[Some(input)], &[expected]);
    }

    #[test]
    fn a_rejection_states_the_scale_that_was_found_and_the_one_that_is_supported() {
        let params = Params::L2Norm(L2NormParams::default().fused_activation_function(Activation::None));
        let bytes = |scale| T::new(&[1, 2], &[3_i8, 4]).quantized(scale, 0);
        let answer = support(BuiltinOp::L2_NORMALIZATION, 2, params, &[Some(bytes(1.0))], &[bytes(0.02)]);
        let reason = "output scale 0.02 and zero point 0; only 1/128 and 0 are supported";
        assert!(answer.is_none_or(|a| a == Err(Rejection::UnsupportedParam(reason.into()))));
    }
}
