//! DYNAMIC_UPDATE_SLICE.

use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::dynamic_update_slice::Spec;

use super::GpuOp;
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(BuiltinOp::DYNAMIC_UPDATE_SLICE, 6, GpuOp::UNPACKED, lower)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    cx.expect(2, TensorType::Int32)?;
    let (input, update) = (cx.any_input(0)?, cx.any_input(1)?);
    if cx.shape(input).is_empty() {
        return cx.alias(0, update, 0);
    }
    let (start, output) = (cx.any_input(2)?, cx.output(0)?);
    cx.push(Spec { input: cx.shape(input), update: cx.shape(update) }, &[input, update, start], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn updates_are_moved_inside() {
        let run = |start: [i32; 2], expected: [f32; 9]| {
            let inputs = [
                Some(T::from_fn(&[3, 3], |i| i as f32)),
                Some(T::new(&[2, 1], &[-1.0_f32, -2.0])),
                Some(T::new(&[2], &start)),
            ];
            let op = BuiltinOp::DYNAMIC_UPDATE_SLICE;
            check(op, 1, Params::None, &inputs, &[T::new(&[3, 3], &expected)]);
        };
        run([1, 1], [0.0, 1.0, 2.0, 3.0, -1.0, 5.0, 6.0, -2.0, 8.0]);
        run([5, -4], [0.0, 1.0, 2.0, -1.0, 4.0, 5.0, -2.0, 7.0, 8.0]);
    }
}
