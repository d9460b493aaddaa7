//! CONV_3D, CONV_3D_TRANSPOSE.

use delegraph_core::kernel::{Parallel, PrepareContext};
use delegraph_core::ops::TensorType;
use delegraph_core::ops::conv_3d::Conv3DParams;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::pace::{PIECE, Polls};
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::weights::{check_bias_type, clamp_bounds};
use crate::common::windows::Axis;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::CONV_3D, prepared(conv), 1).add_builtin(
        BuiltinOp::CONV_3D_TRANSPOSE,
        prepared(transpose),
        1,
    );
}

/// Windows along depth, height and width: `small` counts positions of the filter, `large` is the tensor it moves over.
#[derive(Clone, Copy)]
struct Windows {
    batch: usize,
    axes: [Axis; 3],
}

impl Windows {
    fn new(p: &Conv3DParams, large: &[usize], filter: &[usize], small: &[usize]) -> Self {
        let (strides, dilations) = (p.strides(), p.dilations());
        let axis = |d: usize| {
            Axis::new([large[d + 1], filter[d], small[d + 1]], strides[d], dilations[d], p.padding)
        };
        Windows { batch: large[0], axes: [axis(0), axis(1), axis(2)] }
    }

    /// Calls `f` for every window in order with its index, and the indices of each filter tap and its element of the
    /// large tensor. Each call takes `products` products. Ends early if the work is interrupted.
    fn for_each(self, parallel: &dyn Parallel, products: usize, mut f: impl FnMut(usize, usize, usize)) {
        let [z, y, x] = self.axes;
        // Taps without channels take time, too.
        let products = products.max(1);
        let (mut window, mut polls) = (0, Polls::new(parallel));
        // Rows of taps are counted as a whole, and the taps of long rows.
        let row_products = products.saturating_mul(x.window);
        let long = row_products > PIECE;
        for batch in 0..self.batch {
            for (oz, oy) in (0..z.output).flat_map(|oz| (0..y.output).map(move |oy| (oz, oy))) {
                for ox in 0..x.output {
                    if ox % 16 == 0 && parallel.is_interrupted() {
                        return;
                    }
                    for (kz, iz) in z.taps(oz) {
                        for (ky, iy) in y.taps(oy) {
                            if !long && polls.interrupted_after(row_products) {
                                return;
                            }
                            let (tap, row) = (kz * y.window + ky, (batch * z.input + iz) * y.input + iy);
                            for (kx, ix) in x.taps(ox) {
                                if long && polls.interrupted_after(products) {
                                    return;
                                }
                                f(window, tap * x.window + kx, row * x.input + ix);
                            }
                        }
                    }
                    window += 1;
                }
            }
        }
    }
}

fn conv(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (input, filter, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    check_float(cx, &[0, 1], 2)?;
    let p: &Conv3DParams = cx.params()?;
    let (low, high) = clamp_bounds(p.fused_activation_function)?;
    let windows = Windows::new(p, input.shape(), filter.shape(), output.shape());
    let (inputs, outputs) = (filter.shape()[3], filter.shape()[4]);
    Ok(Box::new(move |cx| {
        let (input, filter, bias) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.optional_input::<f32>(2)?);
        let output = cx.output::<f32>(0)?;
        output.fill(0.0);
        windows.for_each(cx.parallel(), inputs.saturating_mul(outputs), |window, tap, at| {
            let sums = &mut output[window * outputs..][..outputs];
            let input = &input[at * inputs..][..inputs];
            for (x, weights) in
                input.iter().zip(filter[tap * inputs * outputs..].chunks_exact(outputs.max(1)))
            {
                sums.iter_mut().zip(weights).for_each(|(sum, w)| *sum += x * w);
            }
        });
        finish(output, bias, low, high);
        Ok(())
    }))
}

fn transpose(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (filter, input, output) = (cx.input(1)?, cx.input(2)?, cx.output(0)?);
    check_float(cx, &[1, 2], 3)?;
    let p: &Conv3DParams = cx.params()?;
    let (low, high) = clamp_bounds(p.fused_activation_function)?;
    let windows = Windows::new(p, output.shape(), filter.shape(), input.shape());
    let (outputs, inputs) = (filter.shape()[3], filter.shape()[4]);
    Ok(Box::new(move |cx| {
        let (filter, input, bias) = (cx.input::<f32>(1)?, cx.input::<f32>(2)?, cx.optional_input::<f32>(3)?);
        let output = cx.output::<f32>(0)?;
        output.fill(0.0);
        windows.for_each(cx.parallel(), inputs.saturating_mul(outputs), |window, tap, at| {
            let sums = &mut output[at * outputs..][..outputs];
            let input = &input[window * inputs..][..inputs];
            for (sum, weights) in
                sums.iter_mut().zip(filter[tap * outputs * inputs..].chunks_exact(inputs.max(1)))
            {
                *sum = input.iter().zip(weights).fold(*sum, |sum, (x, w)| sum + x * w);
            }
        });
        finish(output, bias, low, high);
        Ok(())
    }))
}

fn check_float(cx: &PrepareContext<'_>, operands: &[usize], bias: usize) -> Result<()> {
    for &i in operands {
        if cx.input(i)?.ty() != TensorType::Float32 {
            return Err(unsupported_type(&format!("input {i}"), cx.input(i)?));
        }
    }
    check_bias_type::<f32>(cx, bias)
}

/// Adds the bias and applies the activation.
fn finish(output: &mut [f32], bias: Option<&[f32]>, low: f32, high: f32) {
    if let Some(bias) = bias {
        for sums in output.chunks_exact_mut(bias.len().max(1)) {
            sums.iter_mut().zip(bias).for_each(|(sum, b)| *sum += b);
        }
    }
    output.iter_mut().for_each(|o| *o = o.clamp(low, high));
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::{Activation, Padding};

    use super::*;
    use crate::testing::{T, check, error};

    fn params(padding: Padding, activation: Activation) -> Params {
        Params::Conv3D(
            Conv3DParams::default()
                .padding(padding)
                .stride_d(1)
                .stride_h(1)
                .stride_w(2)
                .fused_activation_function(activation),
        )
    }

    #[test]
    fn convolves() {
        let x = || Some(T::new(&[1, 2, 1, 3, 1], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
        // Two taps along the depth, two along the width, two output channels.
        let filter = || Some(T::new(&[2, 1, 2, 1, 2], &[1.0f32, 0.0, 2.0, 1.0, 0.0, 0.0, -1.0, 1.0]));
        let bias = || Some(T::new(&[2], &[0.5f32, 0.0]));
        let inputs = [x(), filter(), bias()];
        let want = T::new(&[1, 1, 1, 1, 2], &[0.5f32, 7.0]);
        check(BuiltinOp::CONV_3D, 1, params(Padding::Valid, Activation::None), &inputs, &[want]);
        let want = T::new(&[1, 2, 1, 2, 2], &[0.5f32, 6.0, 3.5, 0.0, 6.0, 5.0, 6.0, 0.0]);
        check(BuiltinOp::CONV_3D, 1, params(Padding::Same, Activation::Relu6), &inputs, &[want]);
    }

    #[test]
    fn transposes() {
        let shape = || Some(T::new(&[5], &[1, 1, 1, 3, 1]));
        let filter = || Some(T::new(&[1, 1, 2, 1, 2], &[1.0f32, 2.0, 3.0, 4.0]));
        let x = || Some(T::new(&[1, 1, 1, 2, 2], &[1.0f32, 0.0, 0.0, -1.0]));
        let want = T::new(&[1, 1, 1, 3, 1], &[1.0f32, 3.0, -2.0]);
        let inputs = [shape(), filter(), x(), None];
        let none = || params(Padding::Same, Activation::None);
        check(BuiltinOp::CONV_3D_TRANSPOSE, 1, none(), &inputs, std::slice::from_ref(&want));
        let half = Some(T::new(&[1, 1, 1, 2, 2], &[half::f16::ONE; 4]));
        let e = error(BuiltinOp::CONV_3D_TRANSPOSE, 1, none(), &[shape(), filter(), half, None], &[want]);
        assert!(e.contains("FLOAT16"), "{e}");
    }
}
