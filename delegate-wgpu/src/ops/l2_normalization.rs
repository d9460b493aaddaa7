//! L2_NORMALIZATION.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::Activation;
use delegraph_core::ops::l2_normalization::L2NormParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::l2_normalization::{Bytes, Spec};

use super::GpuOp;
use crate::lower::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[GpuOp { op: BuiltinOp::L2_NORMALIZATION, max_version: 2, lower }];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let fused = cx.params::<L2NormParams>()?.fused_activation_function;
    if fused != Activation::None {
        return Err(unsupported(format!("activation {fused:?}")));
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
    if cx.narrow(input) != cx.narrow(output) || (to.scale, to.zero) != (1.0 / 128.0, zero) {
        return Err(unsupported("an output of another scale than 1/128"));
    }
    let integers = Some(Bytes { input_zero: from.zero, zero, range: [to.low, to.high] });
    cx.push(Spec { rows, depth, integers }, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn rows_get_the_length_one() {
        let params = || Params::L2Norm(L2NormParams { fused_activation_function: Activation::None });
        let input = T::new(&[2, 1, 2], &[3.0_f32, -4.0, 0.0, 1e-9]);
        let expected = T::new(&[2, 1, 2], &[0.6_f32, -0.8, 0.0, 1e-3]);
        check(BuiltinOp::L2_NORMALIZATION, 1, params(), &[Some(input)], &[expected]);
        let input = T::noise(&[3, 300], 7);
        let values = input.floats();
        let norm = |row: usize| values[row * 300..][..300].iter().map(|x| x * x).sum::<f32>().sqrt();
        let expected = T::from_fn(&[3, 300], |i| values[i] / norm(i / 300));
        check(BuiltinOp::L2_NORMALIZATION, 1, params(), &[Some(input)], &[expected]);
    }
}
