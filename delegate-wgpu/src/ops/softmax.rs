//! SOFTMAX, LOG_SOFTMAX.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::softmax::Spec;

use super::GpuOp;
use crate::lower::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp { op: BuiltinOp::SOFTMAX, max_version: 4, lower },
    GpuOp { op: BuiltinOp::LOG_SOFTMAX, max_version: 2, lower },
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let log = cx.node().op().builtin() == Some(BuiltinOp::LOG_SOFTMAX);
    let beta = if log { 1.0 } else { cx.params::<SoftmaxParams>()?.beta };
    let (input, output) = (cx.input(0)?, cx.real_output(0)?);
    let shape = cx.shape(input);
    let (&depth, outer) = shape.split_last().ok_or_else(|| unsupported("a scalar"))?;
    cx.push(Spec { rows: outer.iter().product(), depth, beta, log }, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn rows_sum_to_one() {
        let input = T::new(&[2, 2], &[0.0_f32, 3.0_f32.ln(), 100.0, 100.0]);
        let params = Params::Softmax(SoftmaxParams { beta: 1.0 });
        let expected = T::new(&[2, 2], &[0.25_f32, 0.75, 0.5, 0.5]);
        check(BuiltinOp::SOFTMAX, 1, params, &[Some(input.clone())], std::slice::from_ref(&expected));
        let logarithm = T::from_fn(&[2, 2], |i| expected.floats()[i].ln());
        check(BuiltinOp::LOG_SOFTMAX, 1, Params::None, &[Some(input)], &[logarithm]);
    }
}
