//! ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, SQUARED_DIFFERENCE in single precision.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::binary::{AddParams, DivParams, MulParams, SubParams};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{clamp_of, compute_error, optimize};
use crate::compute::{Binary, Broadcast, Clamp, Isa};
use crate::kernels::prepared::Invoke;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::ADD, 1..=6, |cx| {
        float(cx, Binary::Add, clamp_of(cx.params::<AddParams>()?.fused_activation_function))
    });
    optimize(resolver, BuiltinOp::SUB, 1..=5, |cx| {
        float(cx, Binary::Sub, clamp_of(cx.params::<SubParams>()?.fused_activation_function))
    });
    optimize(resolver, BuiltinOp::MUL, 1..=8, |cx| {
        float(cx, Binary::Mul, clamp_of(cx.params::<MulParams>()?.fused_activation_function))
    });
    optimize(resolver, BuiltinOp::DIV, 1..=2, |cx| {
        float(cx, Binary::Div, clamp_of(cx.params::<DivParams>()?.fused_activation_function))
    });
    optimize(resolver, BuiltinOp::MAXIMUM, 1..=4, |cx| float(cx, Binary::Maximum, Some(Clamp::NONE)));
    optimize(resolver, BuiltinOp::MINIMUM, 1..=4, |cx| float(cx, Binary::Minimum, Some(Clamp::NONE)));
    optimize(resolver, BuiltinOp::SQUARED_DIFFERENCE, 1..=2, |cx| {
        float(cx, Binary::SquaredDifference, Some(Clamp::NONE))
    });
}

pub(super) fn float(
    cx: &mut PrepareContext<'_>,
    function: Binary,
    clamp: Option<Clamp>,
) -> Result<Option<Invoke>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let Some(clamp) = clamp else { return Ok(None) };
    if [a, b].iter().any(|t| t.ty() != TensorType::Float32) {
        return Ok(None);
    }
    // Operands that broadcast in more ways than the primitive does are the reference kernel's.
    let Ok(shapes) = Broadcast::new(a.shape(), b.shape()) else { return Ok(None) };
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (a, b, output) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output::<f32>(0)?);
        shapes.run(isa, function, a, b, output, clamp, cx.parallel()).map_err(compute_error)
    })))
}
