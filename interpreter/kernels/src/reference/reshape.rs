//! RESHAPE, SQUEEZE, EXPAND_DIMS: the same bytes with another shape.

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{BuiltinOp, MutableOpResolver, Registration, Result, TensorType};

use crate::common::prepared::copy_bytes;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::RESHAPE, Registration::new(|_| Ok(View)), 1)
        .add_builtin(BuiltinOp::SQUEEZE, Registration::new(|_| Ok(View)), 1..=2)
        .add_builtin(BuiltinOp::EXPAND_DIMS, Registration::new(|_| Ok(View)), 1);
}

/// The same bytes with another shape.
pub(super) struct View;

impl Kernel for View {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        // Runs only if input and output do not share memory.
        let input = cx.input_bytes(0)?;
        if cx.input_tensor(0)?.ty == TensorType::String {
            cx.resize_output_bytes(0, cx.output_shape(0)?.clone(), input.len())?;
        }
        copy_bytes(input, cx.output_bytes(0)?, cx.parallel());
        Ok(())
    }

    fn is_view(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::reshape::{ReshapeParams, SqueezeParams};

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn reshape() {
        let input = || Some(T::new(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let params = |dims: &[i32]| Params::Reshape(ReshapeParams::default().new_shape(dims.to_vec()));
        let output = |shape: &[usize]| T::new(shape, &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        check(BuiltinOp::RESHAPE, 1, params(&[3, -1]), &[input()], &[output(&[3, 2])]);
        let operand = Some(T::new(&[1], &[-1i32]));
        check(BuiltinOp::RESHAPE, 1, params(&[]), &[input(), operand.clone()], &[output(&[6])]);
        let text = error(BuiltinOp::RESHAPE, 1, params(&[4, -1]), &[input()], &[output(&[6])]);
        assert!(
            text.contains(
                "node 0 (RESHAPE v1, writes \"t1\"): invalid node: cannot reshape [2, 3] to [4, -1]"
            ),
            "{text}"
        );
    }

    #[test]
    fn strings() {
        let operand = Some(T::new(&[1], &[-1i32]));
        let input = Some(T::strings(&[1, 2], &["a", "bc"]));
        let params = Params::Reshape(ReshapeParams::default().new_shape(Vec::new()));
        check(BuiltinOp::RESHAPE, 1, params, &[input, operand], &[T::strings(&[2], &["a", "bc"])]);
    }

    #[test]
    fn squeeze_and_expand() {
        let input = || Some(T::new(&[1, 2, 1], &[1i8, 2]));
        let squeeze = |dims: &[i32]| Params::Squeeze(SqueezeParams::default().squeeze_dims(dims.to_vec()));
        check(BuiltinOp::SQUEEZE, 1, squeeze(&[]), &[input()], &[T::new(&[2], &[1i8, 2])]);
        check(BuiltinOp::SQUEEZE, 1, squeeze(&[-1]), &[input()], &[T::new(&[1, 2], &[1i8, 2])]);
        let text = error(BuiltinOp::SQUEEZE, 1, squeeze(&[1]), &[input()], &[T::new(&[2], &[1i8, 2])]);
        assert!(text.contains("cannot squeeze dimension 1"), "{text}");
        let axis = Some(T::new(&[1], &[-1i32]));
        check(BuiltinOp::EXPAND_DIMS, 1, Params::None, &[input(), axis], &[T::new(&[1, 2, 1, 1], &[1i8, 2])]);
    }
}
