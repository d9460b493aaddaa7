//! RESHAPE, SQUEEZE, EXPAND_DIMS: a view with another shape, without a dispatch.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{
    BFloat16, Bool, Complex64, Float16, Float32, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32,
};
use delegraph_delegate_api::Rejection;

use super::GpuOp;
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(
        BuiltinOp::RESHAPE,
        1,
        &[Float32, Float16, Int32, UInt8, Int64, Bool, Int16, Complex64, Int8, UInt32, UInt16, BFloat16],
        lower,
    ),
    GpuOp::new(
        BuiltinOp::SQUEEZE,
        2,
        &[Float32, Float16, Int32, UInt8, Int64, Bool, Int16, Complex64, Int8, UInt32, UInt16, BFloat16],
        lower,
    ),
    GpuOp::new(
        BuiltinOp::EXPAND_DIMS,
        1,
        &[Float32, Float16, Int32, UInt8, Int64, Bool, Int16, Complex64, Int8, UInt32, UInt16, BFloat16],
        lower,
    ),
];

pub(super) fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let input = cx.held_input(0)?;
    cx.alias(0, input, 0)
}
