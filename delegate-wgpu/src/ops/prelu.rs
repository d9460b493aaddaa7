//! PRELU.

use delegraph_core::BuiltinOp;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Activation;
use delegraph_shaders::binary::Binary;

use super::{GpuOp, binary};
use crate::lower::Lowering;

pub(super) const OPS: &[GpuOp] = &[GpuOp { op: BuiltinOp::PRELU, max_version: 1, lower }];

/// Slopes are broadcast like an operator's second operand; `passes` fuses those per channel into a convolution.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    binary::push(cx, Binary::Prelu, Activation::None)
}
