//! ARG_MAX, ARG_MIN.

use delegraph_core::TensorType::{Bool, Float32, Int8, Int32, UInt8};
use delegraph_core::ops::arg_min_max::axis;
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::arg_min_max::Spec;
use delegraph_shaders::long::Convert;

use super::{GpuOp, invalid, not_constant};
use crate::graph::Element;
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::ARG_MAX, 3, &[Float32, Int32, UInt8, Bool, Int8], lower),
    GpuOp::new(BuiltinOp::ARG_MIN, 3, &[Float32, Int32, UInt8, Bool, Int8], lower),
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let largest = cx.node().op().builtin() == Some(BuiltinOp::ARG_MAX);
    let input = cx.any_input(0)?;
    let long = cx.node().output(0).is_some_and(|tensor| tensor.ty() == TensorType::Int64);
    let output = if long { cx.long_output(0)? } else { cx.output(0)? };
    let (element, shape) = (cx.element(input), cx.shape(input));
    let axis = axis(&cx.infer()).map_err(invalid)?.ok_or_else(not_constant)?;
    let (outer, inner) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product());
    let spec = Spec { element, outer, size: shape[axis], inner, largest };
    if !long {
        return cx.push(spec, &[input], output);
    }
    let indices = cx.output_shape(0)?;
    let elements = indices.iter().product();
    let found = cx.temporary_of(&indices, Element::I32);
    cx.push(spec, &[input], found)?;
    cx.push(Convert { narrows: false, elements }, &[found], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::ops::arg_min_max::{ArgMaxParams, ArgMinParams};
    use delegraph_core::{Bool, Params};

    fn run(op: BuiltinOp, input: &T, axis: i32, expected: &[i32]) {
        let output_type = TensorType::Int32;
        let params = match op {
            BuiltinOp::ARG_MAX => Params::ArgMax(ArgMaxParams::default().output_type(output_type)),
            _ => Params::ArgMin(ArgMinParams::default().output_type(output_type)),
        };
        let inputs = [Some(input.clone()), Some(T::new(&[], &[axis]).constant())];
        check(op, 1, params, &inputs, &[T::new(&[expected.len()], expected)]);
    }

    #[test]
    fn the_first_of_equals() {
        let nan = f32::NAN;
        let input = T::new(&[2, 4], &[1.0_f32, 5.0, -0.0, 5.0, nan, f32::NEG_INFINITY, 0.0, -2.0]);
        run(BuiltinOp::ARG_MAX, &input, -1, &[1, 2]);
        run(BuiltinOp::ARG_MIN, &input, 1, &[2, 1]);
        run(BuiltinOp::ARG_MAX, &input, 0, &[0, 0, 0, 0]);
        run(BuiltinOp::ARG_MIN, &input, 0, &[0, 1, 0, 1]);
        run(BuiltinOp::ARG_MIN, &T::new(&[3], &[nan; 3]), 0, &[0]);
        let integers = T::new(&[3], &[i32::MIN, i32::MAX, -1]);
        run(BuiltinOp::ARG_MAX, &integers, 0, &[1]);
        run(BuiltinOp::ARG_MIN, &integers, 0, &[0]);
        run(BuiltinOp::ARG_MAX, &T::new(&[3], &[Bool(0), Bool(1), Bool(1)]), 0, &[1]);
    }

    #[test]
    fn indices_of_64_bits() {
        let params = Params::ArgMax(ArgMaxParams::default().output_type(TensorType::Int64));
        let inputs = [Some(T::new(&[2, 3], &[1_i32, 3, 2, 9, 8, 7])), Some(T::new(&[], &[1_i32]).constant())];
        check(BuiltinOp::ARG_MAX, 1, params, &inputs, &[T::new(&[2], &[1_i64, 0])]);
    }

    #[test]
    fn long_rows() {
        let input = T::noise(&[3, 1001], 5);
        let values = input.floats();
        let best = |row: usize| {
            let row = &values[row * 1001..][..1001];
            (1..1001).fold(0, |best, i| if row[i] > row[best] { i } else { best }) as i32
        };
        run(BuiltinOp::ARG_MAX, &input, 1, &[best(0), best(1), best(2)]);
    }
}
