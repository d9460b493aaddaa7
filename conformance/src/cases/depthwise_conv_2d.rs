//! DEPTHWISE_CONV_2D.

use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;

use super::prelude::*;

const ONE_SCALE: Verdict = Verdict::NotCompared(
    "LiteRT reads a scale per channel here, whatever the filter has; Delegraph uses the filter's only scale",
);

pub(super) const OP_KINDS: OpKinds = &[];

pub(super) fn cases(out: &mut Vec<Case>) {
    use Activation::{None as Plain, Relu, Relu6};
    for (name, input, kernel, multiplier, padding, stride, dilation, activation) in [
        ("same", [1, 5, 6, 4], [3, 3], 1, Padding::Same, 1, 1, Plain),
        ("valid", [2, 5, 5, 3], [2, 3], 1, Padding::Valid, 1, 1, Relu),
        ("strided", [1, 7, 8, 9], [3, 3], 1, Padding::Same, 2, 1, Relu6),
        ("multiplied", [1, 4, 5, 2], [3, 3], 3, Padding::Same, 1, 1, Plain),
        ("dilated", [1, 7, 7, 2], [3, 3], 1, Padding::Valid, 1, 2, Plain),
        ("wide", [1, 4, 4, 16], [5, 5], 1, Padding::Same, 1, 1, Plain),
    ] {
        let channels = input[3] * multiplier;
        let filter = [1, kernel[0], kernel[1], channels];
        let params = || {
            DepthwiseConv2DParams::default()
                .padding(padding)
                .stride_w(stride)
                .stride_h(stride)
                .depth_multiplier(multiplier as i32)
                .fused_activation_function(activation)
                .dilation_w_factor(dilation)
                .dilation_h_factor(dilation)
        };
        let op = |inputs: [Operand; 3]| Case::new(Op::DEPTHWISE_CONV_2D, params(), inputs);
        let bias = |ty| x(ty, &[channels]).constant();
        out.push(op([x(Float32, &input), x(Float32, &filter).constant(), bias(Float32)]).detail(name));
        out.push(
            op([x(Float32, &input), x(Float32, &filter), x(Float32, &[channels])])
                .detail(format!("{name}_fed")),
        );
        let bytes = [
            x(UInt8, &input).q(0.04, 121),
            x(UInt8, &filter).constant().q(0.02, 133),
            bias(Int32).range(-900.0, 900.0).q(0.0008, 0),
        ];
        out.push(op(bytes).q(0.11, 119).detail(name));
        for (per, weights) in
            [("tensor", x(Int8, &filter).q(0.02, 0)), ("channel", x(Int8, &filter).channels(0.01, 3))]
        {
            let weights = weights.constant();
            let integers = [x(Int8, &input).q(0.04, -9), weights.clone(), bias(Int32).range(-900.0, 900.0)];
            out.push(op(integers).q(0.13, 7).detail(format!("{name}_per_{per}")));
            let wide = [
                x(Int16, &input).range(-9000.0, 9000.0).q(0.0004, 0),
                weights.clone(),
                bias(Int64).range(-90_000.0, 90_000.0),
            ];
            out.push(op(wide).q(0.0009, 0).detail(format!("{name}_per_{per}")));
            let hybrid = [x(Float32, &input), weights, bias(Float32)];
            let case = op(hybrid).detail(format!("{name}_hybrid_per_{per}"));
            out.push(if per == "tensor" { case.verdict(ONE_SCALE) } else { case });
        }
        let packed = [
            x(Int8, &input).q(0.04, -9),
            x(Int4, &filter).constant().channels(0.1, 3),
            bias(Int32).range(-900.0, 900.0),
        ];
        out.push(op(packed).q(0.13, 7).detail(format!("{name}_int4")));
    }
}
