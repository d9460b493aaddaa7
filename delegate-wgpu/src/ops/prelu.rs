//! PRELU.

use delegraph_core::BuiltinOp;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Activation;
use delegraph_shaders::binary::Binary;

use super::{GpuOp, binary};
use crate::lower::Lowering;

pub(super) const OPS: &[GpuOp] = &[GpuOp { op: BuiltinOp::PRELU, max_version: 1, lower }];

/// Slopes are broadcast like an operator's second operand; `passes` fuses those per channel into a convolution.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let inputs = [cx.input(0)?, cx.input(1)?];
    binary::push_on(cx, Binary::Prelu, inputs, Activation::None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn slopes_per_channel() {
        let input = T::new(&[1, 2, 2], &[-1.0_f32, -1.0, 2.0, -3.0]);
        let slopes = T::new(&[1, 2], &[0.5_f32, 2.0]).constant();
        let expected = T::new(&[1, 2, 2], &[-0.5_f32, -2.0, 2.0, -6.0]);
        check(BuiltinOp::PRELU, 1, Params::None, &[Some(input), Some(slopes)], &[expected]);
    }
}
