//! PACK, UNPACK.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{BFloat16, Bool, Float16, Float32, Int8, Int16, Int32, UInt8, UInt32};
use delegraph_core::ops::pack::{pack_axis, unpack_axis};
use delegraph_delegate_api::Rejection;

use super::concatenation::join;
use super::split::cut;
use super::{GpuOp, invalid, mixed_scales};
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::PACK, 5, &[Float32, Int32, UInt8, Int16, Int8, UInt32], pack),
    GpuOp::new(BuiltinOp::UNPACK, 6, &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, BFloat16], unpack),
];

/// A concatenation of inputs with an additional dimension of 1.
fn pack(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let axis = pack_axis(&cx.infer()).map_err(invalid)?;
    let mut shape = cx.output_shape(0)?;
    shape.iter_mut().skip(axis).take(1).for_each(|size| *size = 1);
    let output = cx.output(0)?;
    for i in 0..cx.node().input_count() {
        let input = cx.any_input(i)?;
        if cx.affine(input) != cx.affine(output) {
            return Err(mixed_scales(cx, input, output));
        }
    }
    join(cx, vec![shape; cx.node().input_count()], axis)
}

fn unpack(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let axis = unpack_axis(&cx.infer()).map_err(invalid)?;
    let input = cx.any_input(0)?;
    (0..).zip(0..cx.node().output_count()).try_for_each(|(start, i)| cut(cx, i, input, axis, start, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;
    use delegraph_core::ops::pack::{PackParams, UnpackParams};

    #[test]
    fn packs_and_unpacks() {
        let (a, b) = (T::new(&[2], &[1.0_f32, 2.0]), T::new(&[2], &[3.0_f32, 4.0]));
        let packed = T::new(&[2, 2], &[1.0_f32, 3.0, 2.0, 4.0]);
        let params = Params::Pack(PackParams::default().values_count(2).axis(1));
        check(BuiltinOp::PACK, 1, params, &[Some(a.clone()), Some(b.clone())], std::slice::from_ref(&packed));
        let params = Params::Unpack(UnpackParams::default().num(2).axis(-1));
        check(BuiltinOp::UNPACK, 1, params, &[Some(packed)], &[a, b]);
    }
}
