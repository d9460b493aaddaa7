//! L2_NORMALIZATION in single precision.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::l2_normalization::L2NormParams;
use delegraph_core::ops::{Activation, TensorType};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{compute_error, optimize};
use crate::common::prepared::Invoke;
use delegraph_compute::{Isa, unit_length};

/// Maximum number of elements of a row, which is not interrupted; the reference kernel polls in rows.
const MAX_DEPTH: usize = 1 << 24;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::L2_NORMALIZATION, 1..=2, prepare);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let plain = cx.params::<L2NormParams>()?.fused_activation_function == Activation::None;
    let input = cx.input(0)?;
    if !plain || [input.ty(), cx.output(0)?.ty()] != [TensorType::Float32; 2] {
        return Ok(None);
    }
    let depth = input.shape().last().copied().unwrap_or(1);
    if depth > MAX_DEPTH {
        return Ok(None);
    }
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        unit_length(isa, (depth, 1e-6), input, output, cx.parallel()).map_err(compute_error)
    })))
}
