//! SOFTMAX and LOG_SOFTMAX in single precision.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{compute_error, optimize};
use crate::compute::{Isa, Softmax, softmax};
use crate::kernels::prepared::Invoke;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::SOFTMAX, 1..=4, |cx| {
        let beta = cx.params::<SoftmaxParams>()?.beta;
        prepare(cx, Softmax::Probabilities { beta })
    });
    optimize(resolver, BuiltinOp::LOG_SOFTMAX, 1..=2, |cx| prepare(cx, Softmax::Logarithms));
}

fn prepare(cx: &mut PrepareContext<'_>, kind: Softmax) -> Result<Option<Invoke>> {
    let input = cx.input(0)?;
    if [input.ty(), cx.output(0)?.ty()] != [TensorType::Float32; 2] {
        return Ok(None);
    }
    let depth = input.shape().last().copied().unwrap_or(1);
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        softmax(isa, kind, depth, input, output, cx.parallel()).map_err(compute_error)
    })))
}
