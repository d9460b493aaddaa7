//! PRELU.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{Float32, Int8, Int16, UInt8};
use delegraph_core::fixed_point::Multiplier;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Activation;
use delegraph_shaders::binary::Binary;
use delegraph_shaders::binary_quantized::Operator;

use super::{GpuOp, binary, invalid_scale};
use crate::graph::ValueId;
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(BuiltinOp::PRELU, 1, &[Float32, UInt8, Int16, Int8], lower)];

/// Slopes are broadcast like the second operand of a binary operator; `passes` merges slopes per channel into a
/// convolution.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let (values, slopes) = (cx.any_input(0)?, cx.any_input(1)?);
    if cx.is_narrow(values) {
        return quantized(cx, values, slopes);
    }
    let inputs = [cx.input(0)?, cx.input(1)?];
    binary::push_on(cx, Binary::Prelu, inputs, Activation::None)
}

fn quantized(cx: &mut Lowering<'_, '_, '_>, values: ValueId, slopes: ValueId) -> Result<(), Rejection> {
    let output = cx.output(0)?;
    let fits = cx.narrow(slopes) == cx.narrow(values)
        || (cx.narrow(values), cx.narrow(slopes)) == (Some((16, true)), Some((8, true)));
    if !fits || cx.narrow(output) != cx.narrow(values) || cx.is_narrow(slopes) && !cx.is_bytes(slopes) {
        return Err(cx.wrong_type(1));
    }
    let (x, slope, to) = (cx.steps(values)?, cx.steps(slopes)?, cx.steps(output)?);
    let above = Multiplier::new((x.scale / to.scale).into()).map_err(invalid_scale)?;
    let below = Multiplier::new((x.scale * slope.scale / to.scale).into()).map_err(invalid_scale)?;
    let factors = binary::Factors {
        zeros: [x.zero, slope.zero],
        inputs: [above, below],
        range: (to.low, to.high),
        zero: to.zero,
        ..Default::default()
    };
    binary::push_quantized(cx, Operator::Prelu, factors, [values, slopes])
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
