//! FILL.

use delegraph_core::BuiltinOp;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::tile::Spec;

use super::GpuOp;
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(BuiltinOp::FILL, 5, GpuOp::UNPACKED, lower)];

/// One element, repeated along every dimension.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let value = cx.any_input(1)?;
    let multiples = cx.output_shape(0)?;
    if multiples.iter().all(|&n| n == 1) {
        return cx.alias(0, value, 0);
    }
    let output = cx.output(0)?;
    cx.push(Spec { input: vec![1; multiples.len()], multiples }, &[value], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn one_value_everywhere() {
        let dims = |dims: &[i32]| Some(T::new(&[dims.len()], dims).constant());
        let value = Some(T::new(&[], &[7.5_f32]));
        let expected = T::new(&[3, 2], &[7.5_f32; 6]);
        check(BuiltinOp::FILL, 1, Params::None, &[dims(&[3, 2]), value.clone()], &[expected]);
        let expected = T::new(&[1], &[7.5_f32]);
        check(BuiltinOp::FILL, 1, Params::None, &[dims(&[1]), value], &[expected]);
    }
}
