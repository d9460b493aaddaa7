//! AVERAGE_POOL_2D, MAX_POOL_2D.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{Float32, Int8, Int16, UInt8};
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Activation;
use delegraph_shaders::pool_2d::{Pool, Spec};

use super::{GpuOp, activation, invalid_scale, mixed_types, pad_front, positive};
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::AVERAGE_POOL_2D, 3, &[Float32, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::MAX_POOL_2D, 3, &[Float32, UInt8, Int16, Int8], lower),
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &Pool2DParams = cx.params()?;
    let op = match cx.node().op().builtin() {
        Some(BuiltinOp::AVERAGE_POOL_2D) => Pool::Average,
        _ => Pool::Max,
    };
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    let integers = match cx.is_narrow(input) {
        // CPU kernels use the scale for the activation only.
        true if cx.narrow(input) == cx.narrow(output) => {
            cx.steps(input)?;
            Some(cx.steps(output)?.range(p.fused_activation_function).map_err(invalid_scale)?)
        }
        true => return Err(mixed_types(cx)),
        false => None,
    };
    let (input, output) = match integers {
        Some(_) => (input, output),
        None => (cx.input(0)?, cx.real_output(0)?),
    };
    let shapes = [cx.shape4(input)?, cx.shape4(output)?];
    let window = [positive(p.filter_height, "window")?, positive(p.filter_width, "window")?];
    if integers.is_some() && window[0].saturating_mul(window[1]) > u16::MAX.into() {
        return Err(unsupported(format!(
            "a window of {} × {} integers; at most {} are supported",
            window[0],
            window[1],
            u16::MAX
        )));
    }
    let stride = [positive(p.stride_h, "stride")?, positive(p.stride_w, "stride")?];
    let pad = |d: usize| pad_front(p.padding, shapes[0][d + 1], shapes[1][d + 1], window[d], stride[d], 1);
    let spec = Spec {
        op,
        input: shapes[0],
        output: shapes[1],
        window,
        stride,
        padding: [pad(0)?, pad(1)?],
        activation: match integers {
            Some(_) => Activation::None,
            None => activation(p.fused_activation_function)?,
        },
        integers: integers.map(Into::into),
    };
    cx.push(spec, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;
    use delegraph_core::ops::{Activation, Padding};

    #[test]
    fn averages_of_bytes_that_lie_between_two_steps() {
        let input = T::new(&[1, 1, 5, 1], &[3_i8, 4, -5, -6, 100]).quantized(0.065, -18);
        let params = |fused_activation_function| {
            Params::Pool2D(
                Pool2DParams::default()
                    .padding(Padding::Valid)
                    .stride_w(1)
                    .stride_h(1)
                    .filter_width(2)
                    .filter_height(1)
                    .fused_activation_function(fused_activation_function),
            )
        };
        let row = |values: &[i8]| T::new(&[1, 1, 4, 1], values).quantized(0.065, -18);
        let inputs = [Some(input)];
        let op = BuiltinOp::AVERAGE_POOL_2D;
        check(op, 2, params(Activation::None), &inputs, &[row(&[4, -1, -6, 47])]);
        check(op, 2, params(Activation::ReluN1To1), &inputs, &[row(&[-3, -3, -6, -3])]);
    }

    #[test]
    fn windows_count_what_lies_inside() {
        let input = T::new(&[1, 2, 3, 1], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let params = |padding| {
            Params::Pool2D(
                Pool2DParams::default()
                    .padding(padding)
                    .stride_w(2)
                    .stride_h(2)
                    .filter_width(2)
                    .filter_height(2)
                    .fused_activation_function(Activation::None),
            )
        };
        let row = |values: &[f32]| T::new(&[1, 1, values.len(), 1], values);
        let inputs = [Some(input)];
        check(BuiltinOp::AVERAGE_POOL_2D, 1, params(Padding::Same), &inputs, &[row(&[3.0, 4.5])]);
        check(BuiltinOp::MAX_POOL_2D, 1, params(Padding::Same), &inputs, &[row(&[5.0, 6.0])]);
        check(BuiltinOp::MAX_POOL_2D, 1, params(Padding::Valid), &inputs, &[row(&[5.0])]);
    }
}
