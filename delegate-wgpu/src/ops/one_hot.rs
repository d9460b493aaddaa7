//! ONE_HOT.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{Bool, Float32, Int8, Int32, UInt8};
use delegraph_core::ops::one_hot::axis;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::one_hot::Spec;

use super::{GpuOp, invalid};
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] =
    &[GpuOp::new(BuiltinOp::ONE_HOT, 1, &[Float32, Int32, UInt8, Bool, Int8], lower)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let inputs = [cx.index_input(0)?, cx.any_input(2)?, cx.any_input(3)?];
    let output = cx.output(0)?;
    let (axis, shape) = (axis(&cx.infer()).map_err(invalid)?, cx.shape(output));
    let limit = format!("only the dimensions of the output {shape:?} are supported");
    let outside = || unsupported(format!("axis {axis}; {limit}"));
    let (outer, inner) = shape.split_at_checked(axis).ok_or_else(outside)?;
    let (&depth, inner) = inner.split_first().ok_or_else(outside)?;
    let spec = Spec { outer: outer.iter().product(), depth, inner: inner.iter().product() };
    cx.push(spec, &inputs, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;
    use delegraph_core::ops::one_hot::OneHotParams;

    #[test]
    fn classes_along_any_dimension() {
        let run = |axis, shape: &[usize], expected: &[f32]| {
            let inputs = [
                Some(T::new(&[2], &[1_i32, 5])),
                Some(T::new(&[], &[3_i32]).constant()),
                Some(T::new(&[], &[7.0_f32]).constant()),
                Some(T::new(&[], &[-1.0_f32])),
            ];
            let params = Params::OneHot(OneHotParams::default().axis(axis));
            check(BuiltinOp::ONE_HOT, 1, params, &inputs, &[T::new(shape, expected)]);
        };
        run(-1, &[2, 3], &[-1.0, 7.0, -1.0, -1.0, -1.0, -1.0]);
        run(0, &[3, 2], &[-1.0, -1.0, 7.0, -1.0, -1.0, -1.0]);
    }
}
