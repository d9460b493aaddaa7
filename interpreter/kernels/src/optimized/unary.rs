//! Elementwise ops of one input in single precision.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::unary::{GeluParams, LeakyReluParams};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{compute_error, optimize};
use crate::common::prepared::Invoke;
use delegraph_compute::{Clamp, Isa, Unary, unary};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    const ZERO_TO_ONE: Clamp = Clamp { low: 0.0, high: 1.0 };
    optimize(resolver, BuiltinOp::RELU, 1..=3, |cx| float(cx, Unary::Clamp(Clamp::RELU)));
    optimize(resolver, BuiltinOp::RELU6, 1..=3, |cx| float(cx, Unary::Clamp(Clamp::RELU6)));
    optimize(resolver, BuiltinOp::RELU_N1_TO_1, 1..=1, |cx| float(cx, Unary::Clamp(Clamp::RELU_N1_TO_1)));
    optimize(resolver, BuiltinOp::RELU_0_TO_1, 1..=1, |cx| float(cx, Unary::Clamp(ZERO_TO_ONE)));
    optimize(resolver, BuiltinOp::HARD_SWISH, 1..=1, |cx| float(cx, Unary::HardSwish));
    optimize(resolver, BuiltinOp::LOGISTIC, 1..=3, |cx| float(cx, Unary::Logistic));
    optimize(resolver, BuiltinOp::TANH, 1..=3, |cx| float(cx, Unary::Tanh));
    optimize(resolver, BuiltinOp::EXP, 1..=2, |cx| float(cx, Unary::Exp));
    optimize(resolver, BuiltinOp::ELU, 1..=1, |cx| float(cx, Unary::Elu));
    optimize(resolver, BuiltinOp::GELU, 1..=3, |cx| {
        let approximate = cx.params::<GeluParams>()?.approximate;
        float(cx, if approximate { Unary::GeluByTanh } else { Unary::Gelu })
    });
    optimize(resolver, BuiltinOp::ABS, 1..=5, |cx| float(cx, Unary::Abs));
    optimize(resolver, BuiltinOp::NEG, 1..=1, |cx| float(cx, Unary::Neg));
    optimize(resolver, BuiltinOp::SQUARE, 1..=1, |cx| float(cx, Unary::Square));
    optimize(resolver, BuiltinOp::SQRT, 1..=2, |cx| float(cx, Unary::Sqrt));
    optimize(resolver, BuiltinOp::RSQRT, 1..=3, |cx| float(cx, Unary::Rsqrt));
    optimize(resolver, BuiltinOp::LEAKY_RELU, 1..=2, |cx| {
        float(cx, Unary::LeakyRelu(cx.params::<LeakyReluParams>()?.alpha))
    });
}

fn float(cx: &mut PrepareContext<'_>, function: Unary) -> Result<Option<Invoke>> {
    if cx.input(0)?.ty() != TensorType::Float32 {
        return Ok(None);
    }
    cx.may_overwrite(0);
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input_unless_overwritten::<f32>(0)?, cx.output::<f32>(0)?);
        unary(isa, function, input, output, cx.parallel()).map_err(compute_error)
    })))
}
