//! TILE, BROADCAST_TO.

use delegraph_core::BuiltinOp;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::tile::Spec;

use super::GpuOp;
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::TILE, 3, GpuOp::UNPACKED, lower),
    GpuOp::new(BuiltinOp::BROADCAST_TO, 4, GpuOp::UNPACKED, lower),
];

/// The shapes determine the repetitions of each dimension; BROADCAST_TO may add dimensions in front.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let input = cx.any_input(0)?;
    let (shape, wanted) = (cx.shape(input), cx.output_shape(0)?);
    let error = || {
        unsupported(format!(
            "an output of shape {wanted:?}; \
        only multiples of the input's shape {shape:?} are supported"
        ))
    };
    let added = wanted.len().checked_sub(shape.len()).ok_or_else(error)?;
    let expanded = [vec![1; added], shape.clone()].concat();
    let times = |(&to, &from): (&u32, &u32)| to.checked_div(from).filter(|n| n * from == to);
    let multiples: Option<Vec<u32>> = wanted.iter().zip(&expanded).map(times).collect();
    let multiples = multiples.ok_or_else(error)?;
    if multiples.iter().all(|&n| n == 1) {
        return cx.alias(0, input, 0);
    }
    let output = cx.output(0)?;
    cx.push(Spec { input: expanded, multiples }, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn repeats() {
        let row = T::new(&[1, 2], &[1.0_f32, 2.0]);
        let tiled = T::new(&[2, 4], &[1.0_f32, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
        let inputs = [Some(row.clone()), Some(T::new(&[2], &[2_i32, 2]).constant())];
        check(BuiltinOp::TILE, 1, Params::None, &inputs, &[tiled]);
        let broadcast = T::new(&[2, 2, 2], &[1.0_f32, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
        let inputs = [Some(row), Some(T::new(&[3], &[2_i32, 2, 2]).constant())];
        check(BuiltinOp::BROADCAST_TO, 2, Params::None, &inputs, &[broadcast]);
    }
}
