//! CONCATENATION.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{BFloat16, Bool, Float16, Float32, Int4, Int8, Int16, Int32, UInt8, UInt32};
use delegraph_core::ops::Activation;
use delegraph_core::ops::concatenation::{ConcatenationParams, axis};
use delegraph_core::quantized::concatenation::Rescale;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::concatenation::Spec;

use super::unary::look_up;
use super::{GpuOp, invalid, mixed_scales};
use crate::graph::lowering::{Lowering, unsupported};
use crate::graph::{Join, Table, ValueId};

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(
    BuiltinOp::CONCATENATION,
    7,
    &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, UInt32, Int4, BFloat16],
    lower,
)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let fused = cx.params::<ConcatenationParams>()?.fused_activation_function;
    if fused != Activation::None {
        return Err(unsupported(format!("fused activation {fused:?}; only None is supported")));
    }
    let axis = axis(&cx.infer()).map_err(invalid)?;
    let mut shapes = Vec::with_capacity(cx.node().input_count());
    for i in 0..cx.node().input_count() {
        let input = cx.moved_input(i)?;
        // Scalars become a vector.
        let shape = cx.shape(input);
        shapes.push(if shape.is_empty() { vec![1] } else { shape });
    }
    join(cx, shapes, axis)
}

/// Adds one copy per input. `passes` removes a copy where its producer can write a contiguous part of the output.
pub(super) fn join(
    cx: &mut Lowering<'_, '_, '_>,
    inputs: Vec<Vec<u32>>,
    axis: usize,
) -> Result<(), Rejection> {
    let count = inputs.len();
    let spec = Spec { inputs, axis };
    let output = cx.moved_output(0)?;
    for part in 0..count {
        let input = cx.moved_input(part)?;
        // CPU kernels requantize UINT8. They copy other types unchanged, and reject different scales.
        let input = match cx.narrow(input) {
            Some((8, false)) => rescaled(cx, input, output)?,
            Some(_) if cx.affine(input) != cx.affine(output) => {
                return Err(mixed_scales(cx, input, output));
            }
            _ => input,
        };
        cx.push(Join { spec: spec.clone(), part }, &[input], output)?;
    }
    Ok(())
}

/// Requantizes 8-bit inputs whose scale differs from the output's.
fn rescaled(cx: &mut Lowering<'_, '_, '_>, input: ValueId, output: ValueId) -> Result<ValueId, Rejection> {
    if cx.affine(input) == cx.affine(output) {
        return Ok(input);
    }
    let (from, to) = (cx.steps(input)?, cx.steps(output)?);
    let Some(rescale) = Rescale::new(from, to) else { return Ok(input) };
    let table = Table::new(&"rescale", from, to, move |byte| rescale.apply(byte));
    let shape = cx.shape(input);
    let requantized = cx.temporary_like(&shape, output);
    look_up(cx, input, table, requantized)?;
    Ok(requantized)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check, support};
    use delegraph_core::Params;

    #[test]
    fn inputs_follow_each_other() {
        let a = T::new(&[2, 1], &[1.0_f32, 2.0]);
        let b = T::new(&[2, 2], &[3.0_f32, 4.0, 5.0, 6.0]).constant();
        let both = T::new(&[2, 3], &[1.0_f32, 3.0, 4.0, 2.0, 5.0, 6.0]);
        let params = ConcatenationParams::default().axis(-1).fused_activation_function(Activation::None);
        let inputs = [Some(a), Some(b)];
        check(BuiltinOp::CONCATENATION, 1, Params::Concatenation(params), &inputs, &[both]);
    }

    #[test]
    fn a_rejection_states_both_scales() {
        let bytes = |scale| T::new(&[2], &[1_i8, 2]).quantized(scale, 3);
        let params = ConcatenationParams::default().fused_activation_function(Activation::None);
        let inputs = [Some(bytes(0.5))];
        let params = Params::Concatenation(params);
        let answer = support(BuiltinOp::CONCATENATION, 2, params, &inputs, &[bytes(0.25)]);
        let reason = "an input with scale 0.5 and zero point 3, an output with scale 0.25 and zero point 3; \
                      only equal ones are supported";
        assert!(answer.is_none_or(|a| a == Err(Rejection::UnsupportedParam(reason.into()))));
    }
}
