//! FULLY_CONNECTED.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::WeightsFormat;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::fully_connected::Spec;
use delegraph_shaders::{Activation, Epilogue, batch_matmul, binary};

use super::integers::{Operands, are_weights, product};
use super::{GpuOp, activation};
use crate::graph::{Element, ValueId};
use crate::lower::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[GpuOp { op: BuiltinOp::FULLY_CONNECTED, max_version: 14, lower }];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &FullyConnectedParams = cx.params()?;
    if p.weights_format != WeightsFormat::Default {
        return Err(unsupported("shuffled weights"));
    }
    let weights = cx.input_shape(1)?;
    let &[outputs, inputs] = weights.as_slice() else {
        return Err(unsupported(format!("weights of shape {weights:?}")));
    };
    let rows = cx.input_shape(0)?.iter().product::<u32>() / inputs;
    if are_weights(cx, 1) && cx.is_constant(1) {
        return packed_weights(cx, p, [rows, inputs, outputs]);
    }
    let activation = activation(p.fused_activation_function)?;
    let input = cx.input(0)?;
    if !cx.is_constant(1) {
        return computed_weights(cx, input, [rows, inputs, outputs], activation);
    }
    let (filter, bias, output) = (cx.constant(1)?, cx.optional_constant(2)?, cx.real_output(0)?);
    let spec = Spec { rows, inputs, outputs, epilogue: Epilogue::activation(activation) };
    cx.push_weighted(spec, input, filter, bias, output)
}

/// Weights of integers, which stay packed.
fn packed_weights(
    cx: &mut Lowering<'_, '_, '_>,
    p: &FullyConnectedParams,
    [rows, inputs, outputs]: [u32; 3],
) -> Result<(), Rejection> {
    let sparse = cx.node().input(1).is_some_and(|weights| weights.tensor().sparsity.is_some());
    let product = product(
        cx,
        &Operands {
            input: 0,
            filter: 1,
            bias: 2,
            dimension: 0,
            activation: p.fused_activation_function,
            upwards: if sparse { 0 } else { usize::MAX },
            single: true,
            rows,
            row_pixels: 1,
            asymmetric: p.asymmetric_quantize_inputs,
        },
    )?;
    cx.push_product(Spec { rows, inputs, outputs, epilogue: product.epilogue }, product)
}

/// Weights that the model computes: a product, and the bias on its own.
fn computed_weights(
    cx: &mut Lowering<'_, '_, '_>,
    input: ValueId,
    [rows, inputs, outputs]: [u32; 3],
    activation: Activation,
) -> Result<(), Rejection> {
    let (weights, output) = (cx.input(1)?, cx.real_output(0)?);
    let bias = if cx.has_input(2) { Some(cx.input(2)?) } else { None };
    let product = batch_matmul::Spec {
        a: vec![rows, inputs],
        b: vec![outputs, inputs],
        transpose_a: false,
        transpose_b: true,
        activation: if bias.is_some() { Activation::None } else { activation },
    };
    let Some(bias) = bias else { return cx.push(product, &[input, weights], output) };
    let sum = cx.temporary(&[rows, outputs]);
    cx.push(product, &[input, weights], sum)?;
    let add = binary::Spec {
        op: binary::Binary::Add,
        element: Element::F32,
        a: vec![rows, outputs],
        b: vec![outputs],
        output: vec![rows, outputs],
        activation,
    };
    cx.push(add, &[sum, bias], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;
    use delegraph_core::ops::{Activation as Fused, TensorType};

    #[test]
    fn constant_and_computed_weights() {
        let params = || {
            Params::FullyConnected(FullyConnectedParams {
                fused_activation_function: Fused::Relu,
                weights_format: WeightsFormat::Default,
                keep_num_dims: false,
                asymmetric_quantize_inputs: false,
                quantized_bias_type: TensorType::Float32,
            })
        };
        let input = T::new(&[2, 2], &[1.0_f32, 2.0, 3.0, 4.0]);
        let weights = T::new(&[3, 2], &[1.0_f32, 0.0, 0.0, -1.0, 1.0, 1.0]);
        let bias = T::new(&[3], &[0.0_f32, 3.0, 0.5]);
        let expected = [T::new(&[2, 3], &[1.0_f32, 1.0, 3.5, 3.0, 0.0, 7.5])];
        let op = BuiltinOp::FULLY_CONNECTED;
        let constant = [weights.clone(), bias.clone()].map(|t| Some(t.constant()));
        let inputs = [&[Some(input.clone())], constant.as_slice()].concat();
        check(op, 1, params(), &inputs, &expected);
        check(op, 1, params(), &[Some(input), Some(weights), Some(bias)], &expected);
    }

    #[test]
    fn nibbles_stay_packed() {
        let input = T::new(&[1, 3], &[10_i8, -20, 30]).quantized(1.0, 0);
        // Rows of three: 1, -2, 3 and 7, -8, 0.
        let nibbles = T::packed(delegraph_core::TensorType::Int4, &[2, 3], &[0xe1, 0x73, 0x08]);
        let weights = nibbles.constant().quantized(0.5, 0);
        let expected = T::new(&[1, 2], &[70_i8, 115]).quantized(1.0, 0);
        let params = Params::FullyConnected(FullyConnectedParams {
            fused_activation_function: Fused::None,
            weights_format: WeightsFormat::Default,
            keep_num_dims: false,
            asymmetric_quantize_inputs: false,
            quantized_bias_type: delegraph_core::TensorType::Int32,
        });
        let inputs = [Some(input), Some(weights), None];
        check(BuiltinOp::FULLY_CONNECTED, 4, params, &inputs, &[expected]);
    }
}
