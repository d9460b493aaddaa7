//! TRANSPOSE_CONV.

use delegraph_core::ops::transpose_conv::TransposeConvParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[];

pub(super) fn cases(out: &mut Vec<Case>) {
    for (name, output, input, kernel, padding, stride) in [
        ("same1", [1, 4, 5, 3], [1, 4, 5, 2], [3, 3], Padding::Same, 1),
        ("same2", [1, 8, 6, 2], [1, 4, 3, 3], [3, 3], Padding::Same, 2),
        ("valid1", [2, 5, 6, 1], [2, 4, 4, 4], [2, 3], Padding::Valid, 1),
        ("valid2", [1, 9, 7, 4], [1, 4, 3, 2], [3, 3], Padding::Valid, 2),
        ("wide", [1, 6, 6, 11], [1, 3, 3, 5], [3, 3], Padding::Same, 2),
    ] {
        let filter = [output[3], kernel[0], kernel[1], input[3]];
        let shape = list(&output.map(|d| d as i32));
        let params = |fused_activation_function, quantized_bias_type| {
            TransposeConvParams::default()
                .padding(padding)
                .stride_w(stride)
                .stride_h(stride)
                .fused_activation_function(fused_activation_function)
                .quantized_bias_type(quantized_bias_type)
        };
        let op = |activation, bias, weights: Operand, data: Operand, biased: Option<Operand>| {
            let inputs = [shape.clone(), weights.constant(), data].into_iter().chain(biased);
            Case::new(Op::TRANSPOSE_CONV, params(activation, bias), inputs)
        };
        let plain = Activation::None;
        let bias = |ty| Some(x(ty, &[output[3]]).constant());
        out.push(
            op(plain, Float32, x(Float32, &filter), x(Float32, &input), None)
                .outputs_of(Float32)
                .detail(name),
        );
        for activation in [plain, Activation::Relu, Activation::Relu6] {
            let case = op(activation, Float32, x(Float32, &filter), x(Float32, &input), bias(Float32));
            out.push(case.outputs_of(Float32).detail(format!("{name}_{activation:?}").to_lowercase()));
        }
        let large = |ty| bias(ty).map(|b| b.range(-900.0, 900.0));
        let bytes =
            op(plain, Float32, x(UInt8, &filter).q(0.02, 133), x(UInt8, &input).q(0.04, 121), large(Int32));
        out.push(bytes.q(0.11, 119).outputs_of(UInt8).detail(name));
        for (per, weights) in
            [("tensor", x(Int8, &filter).q(0.02, 0)), ("channel", x(Int8, &filter).channels(0.01, 0))]
        {
            for biased in [None, large(Int32)] {
                let detail =
                    format!("{name}_per_{per}_{}", if biased.is_some() { "bias" } else { "no_bias" });
                let case = op(plain, Float32, weights.clone(), x(Int8, &input).q(0.04, -9), biased);
                out.push(case.q(0.13, 7).outputs_of(Int8).detail(detail));
            }
            let wide = x(Int16, &input).range(-9000.0, 9000.0).q(0.0004, 0);
            let case = op(plain, Float32, weights.clone(), wide.clone(), large(Int64));
            out.push(case.q(0.0009, 0).outputs_of(Int16).detail(format!("{name}_per_{per}")));
            let case = op(plain, Int32, weights, wide, large(Int32));
            out.push(case.q(0.0009, 0).outputs_of(Int16).detail(format!("{name}_per_{per}_bias_int32")));
        }
    }
}
