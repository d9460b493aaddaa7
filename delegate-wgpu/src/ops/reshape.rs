//! RESHAPE, SQUEEZE, EXPAND_DIMS: the same bytes under another shape, so nothing runs.

use delegraph_core::BuiltinOp;
use delegraph_delegate_api::Rejection;

use super::GpuOp;
use crate::lower::Lowering;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp { op: BuiltinOp::RESHAPE, max_version: 1, lower },
    GpuOp { op: BuiltinOp::SQUEEZE, max_version: 2, lower },
    GpuOp { op: BuiltinOp::EXPAND_DIMS, max_version: 1, lower },
];

pub(super) fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let input = cx.held_input(0)?;
    cx.alias(0, input, 0)
}
