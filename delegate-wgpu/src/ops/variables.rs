//! READ_VARIABLE, ASSIGN_VARIABLE. The values stay on the device between runs; see `kernel/variables.rs`.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{self, Bool, Float32, Int8, Int16, Int32, Int64, UInt8, UInt32};
use delegraph_delegate_api::Rejection;

use super::GpuOp;
use crate::graph::lowering::{Lowering, unsupported};

const TYPES: &[TensorType] = &[Float32, Int32, UInt8, Int64, Bool, Int16, Int8, UInt32];

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::READ_VARIABLE, 1, TYPES, read),
    GpuOp::new(BuiltinOp::ASSIGN_VARIABLE, 1, TYPES, assign),
];

fn read(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let handle = handle(cx)?;
    cx.read_resource(handle)
}

fn assign(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let handle = handle(cx)?;
    if cx.is_constant(1) {
        return Err(unsupported(
            "a constant is assigned; the CPU stores it, and the device reads it from there",
        ));
    }
    let value = cx.held_input(1)?;
    cx.assign_resource(handle, value)
}

/// Returns the handle of the variable.
fn handle(cx: &Lowering<'_, '_, '_>) -> Result<i32, Rejection> {
    let node = cx.node();
    if !node.graph().is_direct() {
        let text = "a delegate in a plugin cannot access resource variables of the interpreter";
        return Err(unsupported(text));
    }
    let handle = node.input(0).and_then(|tensor| tensor.constant_as::<i32>()).and_then(<[i32]>::first);
    handle
        .copied()
        .ok_or_else(|| unsupported("the handle of the variable is computed; only VAR_HANDLE is supported"))
}
