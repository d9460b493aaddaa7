//! TOPK_V2.

use delegraph_core::TensorType::{Float32, Int8, Int16, Int32, UInt8};
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::{gather, topk};

use super::GpuOp;
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] =
    &[GpuOp::new(BuiltinOp::TOPK_V2, 3, &[Float32, Int32, UInt8, Int16, Int8], lower)];

/// The indices, then the elements at these indices.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let input = cx.any_input(0)?;
    let (element, shape) = (cx.element(input), cx.shape(input));
    let (&size, outer) = shape
        .split_last()
        .ok_or_else(|| unsupported("a scalar; only tensors of rank 1 or more are supported"))?;
    let rows = outer.iter().product();
    let wanted = cx.output_shape(0)?.last().copied().unwrap_or(0);
    if cx.node().output(1).is_some_and(|t| t.ty() == TensorType::Int16) && size > i16::MAX as u32 {
        return Err(unsupported(format!(
            "INT16 indices into rows of {size}; at most {} are supported",
            i16::MAX
        )));
    }
    let (values, indices) = (cx.output(0)?, cx.output(1)?);
    cx.push(topk::Spec { element, rows, size, wanted }, &[input], indices)?;
    let spec = gather::Spec { input: vec![rows, size], indices: vec![rows, wanted], axis: 1, batch_dims: 1 };
    cx.push(spec, &[input, indices], values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn from_the_largest_down() {
        let k = |k: i32| Some(T::new(&[], &[k]).constant());
        let nan = f32::NAN;
        let input = T::new(&[2, 4], &[1.0_f32, 5.0, -2.0, 5.0, nan, -1.0, nan, 0.0]);
        let values = T::new(&[2, 3], &[5.0_f32, 5.0, 1.0, 0.0, -1.0, nan]);
        let indices = T::new(&[2, 3], &[1_i32, 3, 0, 3, 1, 0]);
        check(BuiltinOp::TOPK_V2, 1, Params::None, &[Some(input), k(3)], &[values, indices]);
        let input = T::noise(&[2, 500], 3);
        let all = input.floats();
        let mut order: Vec<Vec<i32>> = vec![(0..500).collect(); 2];
        for (row, order) in order.iter_mut().enumerate() {
            order.sort_by(|&a, &b| all[row * 500 + b as usize].total_cmp(&all[row * 500 + a as usize]));
            order.truncate(20);
        }
        let indices = T::new(&[2, 20], &order.concat());
        let values = T::from_fn(&[2, 20], |i| all[i / 20 * 500 + order[i / 20][i % 20] as usize]);
        check(BuiltinOp::TOPK_V2, 1, Params::None, &[Some(input), k(20)], &[values, indices]);
        let integers = [Some(T::new(&[3], &[i32::MIN, 7, i32::MIN])), k(3)];
        let expected = [T::new(&[3], &[7, i32::MIN, i32::MIN]), T::new(&[3], &[1, 0, 2])];
        check(BuiltinOp::TOPK_V2, 1, Params::None, &integers, &expected);
    }
}
