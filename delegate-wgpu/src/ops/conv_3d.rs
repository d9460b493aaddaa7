//! CONV_3D, CONV_3D_TRANSPOSE.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::Float32;
use delegraph_core::ops::conv_3d::Conv3DParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::conv_3d::Spec;

use super::{GpuOp, activation, expect_one_of, pad_front, positive};
use crate::graph::ValueId;
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::CONV_3D, 1, &[Float32], lower),
    GpuOp::new(BuiltinOp::CONV_3D_TRANSPOSE, 1, &[Float32], lower),
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &Conv3DParams = cx.params()?;
    let (strides, dilations, same) = (p.strides(), p.dilations(), p.padding);
    let activation = activation(p.fused_activation_function)?;
    let transposed = cx.node().op().builtin() == Some(BuiltinOp::CONV_3D_TRANSPOSE);
    // The transpose has the output's shape as its first input, and filter and input in the other order.
    let (data, filter, bias) = if transposed { (2, 1, 3) } else { (0, 1, 2) };
    for i in [data, filter, bias] {
        expect_one_of(cx, i, GpuOp::FLOATS)?;
    }
    let mut inputs = vec![cx.input(data)?, cx.input(filter)?];
    if cx.has_input(bias) {
        inputs.push(cx.input(bias)?);
    }
    let output = cx.output(0)?;
    let shape = |id: ValueId| -> Result<[u32; 5], Rejection> {
        let shape = cx.shape(id);
        shape
            .as_slice()
            .try_into()
            .map_err(|_| unsupported(format!("rank {}; only rank 5 is supported", shape.len())))
    };
    let (input, to, window) = (shape(inputs[0])?, shape(output)?, shape(inputs[1])?);
    let (large, small) = if transposed { (to, input) } else { (input, to) };
    let (mut stride, mut dilation, mut padding) = ([0; 3], [0; 3], [0; 3]);
    for d in 0..3 {
        stride[d] = positive(strides[d], "stride")?;
        dilation[d] = positive(dilations[d], "dilation")?;
        padding[d] = pad_front(same, large[d + 1], small[d + 1], window[d], stride[d], dilation[d])?;
    }
    let window = [window[0], window[1], window[2]];
    let bias = inputs.len() == 3;
    let spec = Spec { transposed, input, output: to, window, stride, dilation, padding, bias, activation };
    cx.push(spec, &inputs, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;
    use delegraph_core::ops::{Activation, Padding};

    fn params(padding: Padding, stride: i32, fused_activation_function: Activation) -> Params {
        Params::Conv3D(
            Conv3DParams::default()
                .padding(padding)
                .stride_d(1)
                .stride_w(stride)
                .stride_h(1)
                .fused_activation_function(fused_activation_function)
                .dilation_d_factor(1)
                .dilation_w_factor(1)
                .dilation_h_factor(1),
        )
    }

    #[test]
    fn windows_in_three_dimensions() {
        let input = T::from_fn(&[1, 2, 2, 3, 1], |i| i as f32);
        let filter = T::new(&[2, 1, 2, 1, 2], &[1.0_f32, 0.0, 10.0, 0.0, 100.0, 0.0, 1000.0, 1.0]);
        let inputs = [Some(input), Some(filter.constant()), Some(T::new(&[2], &[0.5_f32, -9.5]))];
        let at = |i: f32| [i + 10.0 * (i + 1.0) + 100.0 * (i + 6.0) + 1000.0 * (i + 7.0) + 0.5, i - 2.5];
        let all = [0.0_f32, 1.0, 3.0, 4.0].map(at);
        let expected = T::new(&[1, 1, 2, 2, 2], all.map(|[a, b]| [a, b.max(0.0)]).as_flattened());
        let relu = params(Padding::Valid, 1, Activation::Relu);
        check(BuiltinOp::CONV_3D, 1, relu, &inputs, &[expected]);
        // Windows over a plane that extend beyond its lower and right edges.
        let plain = params(Padding::Same, 2, Activation::None);
        let input = T::new(&[1, 1, 1, 3, 1], &[1.0_f32, 2.0, 3.0]);
        let filter = T::new(&[1, 1, 2, 1, 1], &[1.0_f32, 10.0]);
        let expected = T::new(&[1, 1, 1, 2, 1], &[21.0_f32, 3.0]);
        check(BuiltinOp::CONV_3D, 1, plain, &[Some(input), Some(filter)], &[expected]);
    }

    #[test]
    fn the_transpose() {
        let plain = params(Padding::Valid, 2, Activation::None);
        let inputs = [
            Some(T::new(&[5], &[1_i32, 1, 1, 5, 1]).constant()),
            Some(T::new(&[1, 1, 3, 1, 2], &[1.0_f32, 0.0, 10.0, 0.0, 100.0, 1.0]).constant()),
            Some(T::new(&[1, 1, 1, 2, 2], &[1.0_f32, 0.25, 2.0, 0.5])),
        ];
        let expected = T::new(&[1, 1, 1, 5, 1], &[1.0_f32, 10.0, 102.25, 20.0, 200.5]);
        check(BuiltinOp::CONV_3D_TRANSPOSE, 1, plain, &inputs, &[expected]);
    }
}
