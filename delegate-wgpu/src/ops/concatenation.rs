//! CONCATENATION.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::Activation;
use delegraph_core::ops::concatenation::{ConcatenationParams, axis};
use delegraph_core::quantized::concatenation::Rescale;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::concatenation::Spec;

use super::unary::look_up;
use super::{GpuOp, invalid};
use crate::graph::{Join, ValueId};
use crate::lower::{Lowering, unsupported};
use crate::table::entries;

pub(super) const OPS: &[GpuOp] = &[GpuOp { op: BuiltinOp::CONCATENATION, max_version: 7, lower }];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    if cx.params::<ConcatenationParams>()?.fused_activation_function != Activation::None {
        return Err(unsupported("a fused activation"));
    }
    let axis = axis(&cx.infer()).map_err(invalid)?;
    let mut shapes = Vec::with_capacity(cx.node().num_inputs());
    for i in 0..cx.node().num_inputs() {
        let input = cx.moved_input(i)?;
        // Scalars become a vector.
        let shape = cx.shape(input);
        shapes.push(if shape.is_empty() { vec![1] } else { shape });
    }
    join(cx, shapes, axis)
}

/// One copy per input; `passes` lets producers write where the copy would, where that is one piece of memory.
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
        // Kernels on the CPU move other types as they are, and refuse scales that differ.
        let input = match cx.narrow(input) {
            Some((8, false)) => rescaled(cx, input, output)?,
            Some(_) if cx.affine(input) != cx.affine(output) => {
                return Err(unsupported("an input of another scale than the output"));
            }
            _ => input,
        };
        cx.push(Join { spec: spec.clone(), part }, &[input], output)?;
    }
    Ok(())
}

/// Bytes of another scale are expressed anew.
fn rescaled(cx: &mut Lowering<'_, '_, '_>, input: ValueId, output: ValueId) -> Result<ValueId, Rejection> {
    if cx.affine(input) == cx.affine(output) {
        return Ok(input);
    }
    let (from, to) = (cx.steps(input)?, cx.steps(output)?);
    let Some(rescale) = Rescale::new(from, to) else { return Ok(input) };
    let (table, shape) = (entries(from, |byte| rescale.apply(byte)), cx.shape(input));
    let anew = cx.temporary_like(&shape, output);
    look_up(cx, input, &table, anew)?;
    Ok(anew)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn inputs_follow_each_other() {
        let a = T::new(&[2, 1], &[1.0_f32, 2.0]);
        let b = T::new(&[2, 2], &[3.0_f32, 4.0, 5.0, 6.0]).constant();
        let both = T::new(&[2, 3], &[1.0_f32, 3.0, 4.0, 2.0, 5.0, 6.0]);
        let params = ConcatenationParams { axis: -1, fused_activation_function: Activation::None };
        let inputs = [Some(a), Some(b)];
        check(BuiltinOp::CONCATENATION, 1, Params::Concatenation(params), &inputs, &[both]);
    }
}
