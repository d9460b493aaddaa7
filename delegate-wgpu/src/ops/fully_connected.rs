//! FULLY_CONNECTED.

use delegraph_core::TensorType::{Float32, Int8, Int16, UInt8};
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::{Activation as Fused, WeightsFormat};
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::fully_connected::Spec;
use delegraph_shaders::{Activation, Epilogue, batch_matmul, binary};

use super::integers::{
    FloatRows, I16Accumulator, Operands, Rounding, ScaleProduct, WeightZeros, are_weights, product, steps,
};
use super::{GpuOp, activation};
use crate::graph::lowering::{Lowering, no_scale, unsupported};
use crate::graph::{Element, ValueId};

pub(super) const OPS: &[GpuOp] =
    &[GpuOp::new(BuiltinOp::FULLY_CONNECTED, 14, &[Float32, UInt8, Int16, Int8], lower)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &FullyConnectedParams = cx.params()?;
    if p.weights_format != WeightsFormat::Default {
        return Err(unsupported(format!("weights format {:?}; only Default is supported", p.weights_format)));
    }
    let weights = cx.input_shape(1)?;
    let &[outputs, inputs] = weights.as_slice() else {
        return Err(unsupported(format!("weights of shape {weights:?}; only rank 2 is supported")));
    };
    let rows = cx.input_shape(0)?.iter().product::<u32>() / inputs;
    let bytes = matches!(cx.ty(0), Some(TensorType::Int8 | TensorType::UInt8));
    let computes_bias = cx.has_input(2) && !cx.is_constant(2);
    // Computed integer weights of floats and of INT16 data are lowered as constants, once a run has computed them.
    let computed = bytes && (!cx.is_constant(1) || computes_bias);
    if are_weights(cx, 1) && !computed {
        return packed_weights(cx, p, [rows, inputs, outputs]);
    }
    if bytes {
        return computed_integers(cx, p, [rows, inputs, outputs]);
    }
    let activation = activation(p.fused_activation_function)?;
    let input = cx.input(0)?;
    if !cx.is_constant(1) || computes_bias {
        return computed_weights(cx, input, [rows, inputs, outputs], activation);
    }
    let (filter, bias, output) = (cx.constant(1)?, cx.optional_constant(2)?, cx.real_output(0)?);
    let spec = Spec { rows, inputs, outputs, epilogue: Epilogue::activation(activation) };
    cx.push_weighted(spec, input, filter, bias, output)
}

/// Constant integer weights, which stay packed.
fn packed_weights(
    cx: &mut Lowering<'_, '_, '_>,
    p: &FullyConnectedParams,
    [rows, inputs, outputs]: [u32; 3],
) -> Result<(), Rejection> {
    let sparse = cx.node().input(1).is_some_and(|weights| weights.tensor().sparsity.is_some());
    let bytes = cx.ty(0) != Some(TensorType::Int16);
    let affine = cx.quantization(1).and_then(|q| q.affine());
    let one_scale = affine.is_some_and(|a| a.scales.len() == 1);
    let zero = affine.is_some_and(|a| one_scale && !a.zero_points.are_zero());
    // Without a bias, its declared type determines the width of sums.
    let wide = match cx.ty(2) {
        Some(ty) => ty == TensorType::Int64,
        None => p.quantized_bias_type == TensorType::Int64 || zero,
    };
    // A computed bias of float activations is added in a step of its own.
    let apart = cx.has_input(2) && !cx.is_constant(2) && cx.ty(0) == Some(TensorType::Float32);
    let mut product = product(
        cx,
        &Operands {
            input: 0,
            filter: 1,
            bias: (!apart).then_some(2),
            dimension: 0,
            activation: if apart { Fused::None } else { p.fused_activation_function },
            rounding: if sparse && bytes { Rounding::Away } else { Rounding::Up },
            scale_product: if one_scale { ScaleProduct::Single } else { ScaleProduct::Double },
            weight_zeros: WeightZeros::Any,
            // CPU kernels compute weights with a zero point without the matrix product of narrow integers.
            i16_accumulator: match wide || zero {
                true => I16Accumulator::Double { wraps: !wide },
                false => I16Accumulator::I32,
            },
            float_rows: FloatRows { count: rows, pixels: 1, asymmetric: p.asymmetric_quantize_inputs },
        },
    )?;
    let spec = Spec { rows, inputs, outputs, epilogue: product.epilogue };
    if !apart {
        return cx.push_product(spec, product);
    }
    let (activation, bias) = (activation(p.fused_activation_function)?, cx.input(2)?);
    let sum = cx.temporary(&[rows, outputs]);
    let output = std::mem::replace(&mut product.output, sum);
    cx.push_product(spec, product)?;
    add(cx, [sum, bias], [rows, outputs], activation, output)
}

/// Computed 8-bit weights.
fn computed_integers(
    cx: &mut Lowering<'_, '_, '_>,
    p: &FullyConnectedParams,
    [rows, inputs, outputs]: [u32; 3],
) -> Result<(), Rejection> {
    if cx.ty(0) != cx.ty(1) {
        return Err(cx.wrong_type(1));
    }
    let mut operands = vec![cx.any_input(0)?, cx.any_input(1)?];
    let output = cx.output(0)?;
    let (Some(a), Some(b), Some(to)) = (cx.affine(operands[0]), cx.affine(operands[1]), cx.affine(output))
    else {
        return Err(no_scale());
    };
    let bias = cx.has_input(2);
    if bias {
        cx.expect(2, TensorType::Int32)?;
        operands.push(cx.any_input(2)?);
    }
    let spec = batch_matmul::Spec {
        a: vec![rows, inputs],
        b: vec![outputs, inputs],
        transpose_a: false,
        transpose_b: true,
        activation: Activation::None,
        integers: Some(steps([a, b, to], inputs, bias, true, p.fused_activation_function)?),
    };
    cx.push(spec, &operands, output)
}

/// Computed float weights or bias: a product, and a step that adds the bias.
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
        integers: None,
    };
    let Some(bias) = bias else { return cx.push(product, &[input, weights], output) };
    let sum = cx.temporary(&[rows, outputs]);
    cx.push(product, &[input, weights], sum)?;
    add(cx, [sum, bias], [rows, outputs], activation, output)
}

/// Adds a bias to each row.
fn add(
    cx: &mut Lowering<'_, '_, '_>,
    operands: [ValueId; 2],
    [rows, outputs]: [u32; 2],
    activation: Activation,
    output: ValueId,
) -> Result<(), Rejection> {
    let spec = binary::Spec {
        op: binary::Binary::Add,
        element: Element::F32,
        a: vec![rows, outputs],
        b: vec![outputs],
        output: vec![rows, outputs],
        activation,
    };
    cx.push(spec, &operands, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn constant_and_computed_weights() {
        let params = || {
            Params::FullyConnected(
                FullyConnectedParams::default()
                    .fused_activation_function(Fused::Relu)
                    .weights_format(WeightsFormat::Default)
                    .keep_num_dims(false)
                    .asymmetric_quantize_inputs(false)
                    .quantized_bias_type(TensorType::Float32),
            )
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
        let params = Params::FullyConnected(
            FullyConnectedParams::default()
                .fused_activation_function(Fused::None)
                .weights_format(WeightsFormat::Default)
                .keep_num_dims(false)
                .asymmetric_quantize_inputs(false)
                .quantized_bias_type(delegraph_core::TensorType::Int32),
        );
        let inputs = [Some(input), Some(weights), None];
        check(BuiltinOp::FULLY_CONNECTED, 4, params, &inputs, &[expected]);
    }

    fn plain(quantized_bias_type: TensorType) -> Params {
        Params::FullyConnected(
            FullyConnectedParams::default()
                .fused_activation_function(Fused::None)
                .weights_format(WeightsFormat::Default)
                .keep_num_dims(false)
                .asymmetric_quantize_inputs(false)
                .quantized_bias_type(quantized_bias_type),
        )
    }

    #[test]
    fn sums_of_16_bits_are_scaled_in_double_precision() {
        // 0.0007 in single precision is slightly smaller, so that 3.5 steps are slightly less.
        let run = |input: &[i16], weights: &[i8], zero, bias: &[i64], scale: f32, expected: &[i16]| {
            let input = T::new(&[1, input.len()], input).quantized(1.0, 0);
            let depth = weights.len() / bias.len();
            let weights = T::new(&[bias.len(), depth], weights).constant().quantized(scale, zero);
            let expected = T::new(&[1, bias.len()], expected).quantized(1.0, 0);
            let inputs = [Some(input), Some(weights), Some(T::new(&[bias.len()], bias).constant())];
            let params = plain(TensorType::Int64);
            check(BuiltinOp::FULLY_CONNECTED, 4, params, &inputs, &[expected]);
        };
        run(&[50], &[100, -100], 0, &[0, 0], 0.0007, &[3, -3]);
        run(&[50], &[100, -100], 0, &[1, -1], 0.0007, &[4, -4]);
        run(&[1], &[1, 1, 1], 0, &[6, -8, 0], 0.5, &[4, -4, 1]);
        // The number below a half is not representable in a double: it becomes a half, and is rounded away from zero.
        run(&[1], &[1], 0, &[4459009574153390], f32::from_bits(0x250147ae), &[1]);
        run(&[1], &[1], 0, &[4459009574153388], f32::from_bits(0x250147ae), &[0]);
        run(&[i16::MIN], &[127, -127], 0, &[0, 0], 1.0, &[i16::MIN, i16::MAX]);
        // Far beyond 32 bits, with weights of 255 less their zero point.
        let (input, weights) = (vec![i16::MIN; 2100], [vec![127_i8; 2100], vec![-128; 2100]].concat());
        let sum = -32_768 * 255 * 2100_i64;
        let half = -(2 * 16_000 + 1) << 19;
        run(&input, &weights, -128, &[half - sum, half + 1], 2_f32.powi(-20), &[-16_001, -16_000]);
    }

    /// Rows whose scale an invocation finds, and rows for which a workgroup does.
    #[test]
    fn rows_of_floats_of_every_length_and_number() {
        for (rows, depth) in [(1, 5), (100, 64), (3, 65), (200, 300), (70_000, 65)] {
            let of = |row: usize| -1.0 - (row % 7) as f32;
            // Only the last element of a row is not zero.
            let at = |i: usize| if i % depth == depth - 1 { of(i / depth) } else { 0.0 };
            let input = T::new(&[rows, depth], &(0..rows * depth).map(at).collect::<Vec<_>>());
            let weights = T::new(&[1, depth], &vec![2_i8; depth]).constant().quantized(1.0, 0);
            let expected = T::new(&[rows, 1], &(0..rows).map(|row| 2.0 * of(row)).collect::<Vec<_>>());
            let inputs = [Some(input), Some(weights), None];
            check(BuiltinOp::FULLY_CONNECTED, 9, plain(TensorType::Float32), &inputs, &[expected]);
        }
    }

    #[test]
    fn computed_weights_of_bytes() {
        let input = || T::new(&[1, 2], &[3_u8, 250]).quantized(1.0, 1);
        let weights = || T::new(&[2, 2], &[7_u8, 5, 255, 0]).quantized(0.5, 5);
        let bias = T::new(&[2], &[2_i32, -2]);
        // Quarters of 2 · 2 + 2 and 2 · 250 - 249 · 5 - 2: ties are rounded up, and so was the intermediate -373.5.
        let expected = T::new(&[1, 2], &[202_u8, 14]).quantized(2.0, 200);
        let inputs = [Some(input()), Some(weights()), Some(bias)];
        let params = plain(TensorType::Int32);
        check(BuiltinOp::FULLY_CONNECTED, 1, params.clone(), &inputs, &[expected]);
        let expected = T::new(&[1, 2], &[201_u8, 14]).quantized(2.0, 200);
        check(BuiltinOp::FULLY_CONNECTED, 1, params, &[Some(input()), Some(weights()), None], &[expected]);
    }
}
