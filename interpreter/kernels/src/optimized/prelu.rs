//! PRELU in single precision.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::binary::float;
use super::optimize;
use crate::common::prepared::Invoke;
use delegraph_compute::{Binary, Clamp};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::PRELU, 1..=1, prepare);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    if cx.output(0)?.ty() != TensorType::Float32 {
        return Ok(None);
    }
    float(cx, Binary::Prelu, Some(Clamp::NONE))
}
