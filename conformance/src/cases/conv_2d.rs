//! CONV_2D.

use delegraph_core::ops::conv_2d::Conv2DParams;

use super::prelude::*;

struct Problem {
    input: [usize; 4],
    filter: [usize; 4],
    padding: Padding,
    stride: i32,
    dilation: i32,
    activation: Activation,
}

fn problems() -> Vec<(&'static str, Problem)> {
    use Activation::{None as Plain, Relu, Relu6, ReluN1To1};
    let p = |input, filter, padding, stride, dilation, activation| Problem {
        input,
        filter,
        padding,
        stride,
        dilation,
        activation,
    };
    vec![
        ("pointwise", p([1, 3, 4, 5], [3, 1, 1, 5], Padding::Same, 1, 1, Plain)),
        ("same", p([2, 5, 6, 3], [4, 3, 3, 3], Padding::Same, 1, 1, Relu)),
        ("valid", p([1, 6, 5, 2], [3, 3, 2, 2], Padding::Valid, 1, 1, Relu6)),
        ("strided", p([1, 7, 8, 3], [5, 3, 3, 3], Padding::Same, 2, 1, ReluN1To1)),
        ("dilated", p([1, 7, 7, 2], [3, 3, 3, 2], Padding::Valid, 1, 2, Plain)),
        ("wide", p([1, 4, 4, 17], [19, 1, 1, 17], Padding::Valid, 1, 1, Plain)),
    ]
}

fn params(p: &Problem) -> Conv2DParams {
    Conv2DParams::default()
        .padding(p.padding)
        .stride_w(p.stride)
        .stride_h(p.stride)
        .fused_activation_function(p.activation)
        .dilation_w_factor(p.dilation)
        .dilation_h_factor(p.dilation)
        .quantized_bias_type(Float32)
}

pub(super) const OP_KINDS: OpKinds = &[];

pub(super) fn cases(out: &mut Vec<Case>) {
    for (name, p) in problems() {
        let channels = p.filter[0];
        let bias = |ty| x(ty, &[channels]).constant();
        let float = [x(Float32, &p.input), x(Float32, &p.filter).constant(), bias(Float32)];
        out.push(Case::new(Op::CONV_2D, params(&p), float).detail(name));
        let fed = [x(Float32, &p.input), x(Float32, &p.filter), x(Float32, &[channels])];
        out.push(Case::new(Op::CONV_2D, params(&p), fed).detail(format!("{name}_fed")));

        let bytes = [
            x(UInt8, &p.input).q(0.04, 121),
            x(UInt8, &p.filter).constant().q(0.02, 133),
            bias(Int32).range(-900.0, 900.0).q(0.0008, 0),
        ];
        out.push(Case::new(Op::CONV_2D, params(&p), bytes).q(0.11, 119).detail(name));
        for (per, weights) in
            [("tensor", x(Int8, &p.filter).q(0.02, 0)), ("channel", x(Int8, &p.filter).channels(0.01, 0))]
        {
            let integers =
                [x(Int8, &p.input).q(0.04, -9), weights.clone().constant(), bias(Int32).range(-900.0, 900.0)];
            out.push(
                Case::new(Op::CONV_2D, params(&p), integers).q(0.13, 7).detail(format!("{name}_per_{per}")),
            );
            let hybrid = [x(Float32, &p.input), weights.clone().constant(), bias(Float32)];
            out.push(Case::new(Op::CONV_2D, params(&p), hybrid).detail(format!("{name}_hybrid_per_{per}")));
            let wide = [
                x(Int16, &p.input).range(-9000.0, 9000.0).q(0.0004, 0),
                weights.constant(),
                bias(Int64).range(-90_000.0, 90_000.0),
            ];
            out.push(
                Case::new(Op::CONV_2D, params(&p), wide).q(0.0009, 0).detail(format!("{name}_per_{per}")),
            );
        }
        let packed = [
            x(Int8, &p.input).q(0.04, -9),
            x(Int4, &p.filter).constant().channels(0.1, 0),
            bias(Int32).range(-900.0, 900.0),
        ];
        out.push(Case::new(Op::CONV_2D, params(&p), packed).q(0.13, 7).detail(format!("{name}_int4")));
    }
    let grouped = Problem {
        input: [1, 4, 5, 6],
        filter: [4, 3, 3, 3],
        padding: Padding::Same,
        stride: 1,
        dilation: 1,
        activation: Activation::None,
    };
    let float =
        [x(Float32, &grouped.input), x(Float32, &grouped.filter).constant(), x(Float32, &[4]).constant()];
    out.push(Case::new(Op::CONV_2D, params(&grouped), float).detail("grouped"));
    let integers = [
        x(Int8, &grouped.input).q(0.04, -9),
        x(Int8, &grouped.filter).constant().channels(0.01, 0),
        x(Int32, &[4]).constant(),
    ];
    out.push(Case::new(Op::CONV_2D, params(&grouped), integers).q(0.13, 7).detail("grouped"));
    // A 32-bit bias with 16-bit activations.
    let inputs = [
        x(Int16, &[1, 3, 3, 2]).range(-9000.0, 9000.0).q(0.0004, 0),
        x(Int8, &[3, 2, 2, 2]).constant().channels(0.01, 0),
        x(Int32, &[3]).constant().range(-9000.0, 9000.0),
    ];
    let narrow = params(&grouped).quantized_bias_type(Int32);
    out.push(Case::new(Op::CONV_2D, narrow, inputs).q(0.0009, 0).detail("bias_int32"));
}
