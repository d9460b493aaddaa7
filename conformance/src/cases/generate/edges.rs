//! Edge cases of shapes: empty tensors, one element, prime numbers, many elements; ranks from 0 to 8.

use std::string::String;

use delegraph_core::ops::concatenation::ConcatenationParams;
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::gather::GatherParams;
use delegraph_core::ops::pack::{PackParams, UnpackParams};
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::reshape::ReshapeParams;
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_core::ops::stablehlo_movement::StablehloPadParams;

use super::super::prelude::*;
use super::elementwise;

/// Ranks 0 to 8, with different sizes where possible.
const RANKS: [&[usize]; 9] = [
    &[],
    &[13],
    &[3, 5],
    &[2, 3, 5],
    &[2, 3, 1, 5],
    &[2, 1, 3, 2, 5],
    &[2, 3, 1, 2, 1, 5],
    &[1, 2, 1, 3, 2, 1, 2],
    &[2, 1, 2, 1, 3, 1, 2, 1],
];

fn plain(op: Op) -> Params {
    elementwise::params(op, Activation::None)
}

pub(super) fn cases(out: &mut Vec<Case>) {
    let mut push = |case: Case, detail: String| out.push(case.detail(detail).seeded(21));
    for (rank, shape) in RANKS.into_iter().enumerate() {
        for ty in [Float32, Int32] {
            let name = |what: &str| format!("rank_{rank}{what}");
            for op in [Op::ADD, Op::MUL, Op::SUB] {
                push(Case::new(op, plain(op), [x(ty, shape), x(ty, shape)]), name(""));
                push(Case::new(op, plain(op), [x(ty, shape), x(ty, &[])]), name("_scalar"));
            }
            for op in [Op::ABS, Op::NEG] {
                push(Case::new(op, Params::None, [x(ty, shape)]), name(""));
            }
            let last = shape.last().copied().unwrap_or(1) as i32;
            let flat = ReshapeParams::default().new_shape(vec![-1, last]);
            push(Case::new(Op::RESHAPE, flat, [x(ty, shape), list(&[-1, last])]), name(""));
            if rank == 0 {
                continue;
            }
            let order: Vec<i32> = (0..rank as i32).rev().collect();
            if rank < 7 {
                push(Case::new(Op::TRANSPOSE, Params::None, [x(ty, shape), list(&order)]), name("_reversed"));
            }
            let pair = ConcatenationParams::default().axis(-1).fused_activation_function(Activation::None);
            push(Case::new(Op::CONCATENATION, pair, [x(ty, shape), x(ty, shape)]), name("_last"));
            let pair = ConcatenationParams::default().axis(0).fused_activation_function(Activation::None);
            push(Case::new(Op::CONCATENATION, pair, [x(ty, shape), x(ty, shape)]), name("_first"));
            let params = GatherParams::default().axis(-1).batch_dims(0);
            push(Case::new(Op::GATHER, params, [x(ty, shape), list(&[0, 0])]), name("_last"));
            let times: Vec<i32> = (0..rank as i32).map(|i| 1 + i % 2).collect();
            push(Case::new(Op::TILE, Params::None, [x(ty, shape), list(&times)]), name(""));
            let to: Vec<i32> = shape.iter().map(|&d| if d == 1 { 3 } else { d as i32 }).collect();
            push(Case::new(Op::BROADCAST_TO, Params::None, [x(ty, shape), list(&to)]), name(""));
            push(Case::new(Op::REVERSE_V2, Params::None, [x(ty, shape), list(&[-1])]), name("_last"));
            let params = PackParams::default().axis(1).values_count(3);
            push(Case::new(Op::PACK, params, vec![x(ty, shape); 3]), name(""));
            let params = UnpackParams::default().axis(-1).num(last);
            let case = Case::new(Op::UNPACK, params, [x(ty, shape)]);
            push(case.outputs(vec![Output::default(); last as usize]), name("_last"));
            if ty == Float32 {
                push(Case::new(Op::SOFTMAX, SoftmaxParams::default().beta(1.0), [x(ty, shape)]), name(""));
                for op in [Op::SUM, Op::REDUCE_MAX, Op::MEAN] {
                    let params = ReducerParams::default().keep_dims(false);
                    push(Case::new(op, params, [x(ty, shape), list(&[rank as i32 - 1])]), name("_last"));
                }
            }
        }
    }
    empty(&mut push);
    sizes(&mut push);
}

/// Empty tensors, in all operands or in one.
fn empty(push: &mut impl FnMut(Case, String)) {
    let nothing = || x(Float32, &[2, 0, 3]);
    let name = || "empty".to_owned();
    for op in [Op::ADD, Op::MUL] {
        push(Case::new(op, plain(op), [nothing(), nothing()]), name());
        push(Case::new(op, plain(op), [nothing(), x(Float32, &[3])]), name());
    }
    for op in [Op::RELU, Op::ABS, Op::TANH] {
        push(Case::new(op, Params::None, [nothing()]), name());
    }
    let pair = || ConcatenationParams::default().axis(1).fused_activation_function(Activation::None);
    let some = x(Float32, &[2, 4, 3]);
    push(Case::new(Op::CONCATENATION, pair(), [nothing(), some.clone(), nothing()]), name());
    push(Case::new(Op::CONCATENATION, pair(), [some.clone(), nothing()]), name());
    push(Case::new(Op::SLICE, Params::None, [some.clone(), list(&[0, 2, 1]), list(&[2, 0, 1])]), name());
    push(Case::new(Op::TRANSPOSE, Params::None, [nothing(), list(&[2, 0, 1])]), name());
    push(Case::new(Op::PAD, Params::None, [nothing(), known(&[3, 2], &[0i32, 0, 1, 1, 0, 0])]), name());
    // Nothing of the input is left, and what would be left begins outside of it.
    for (shape, low) in [(vec![3], vec![-9]), (vec![3, 4], vec![0, -9]), (vec![3, 4], vec![7, 0])] {
        let high: Vec<i64> = low.iter().map(|n| -n).collect();
        let none = vec![0; shape.len()];
        let params = StablehloPadParams::default()
            .edge_padding_low(low)
            .edge_padding_high(high)
            .interior_padding(none);
        let inputs = [x(Float32, &shape), x(Float32, &[]).range(1.0, 1.0)];
        push(Case::new(Op::STABLEHLO_PAD, params, inputs), "nothing_left".into());
    }
    let params = ReshapeParams::default().new_shape(vec![0, 6]);
    push(Case::new(Op::RESHAPE, params, [nothing(), list(&[0, 6])]), name());
    for op in [Op::SUM, Op::REDUCE_MAX] {
        push(Case::new(op, ReducerParams::default().keep_dims(true), [nothing(), list(&[2])]), name());
    }
    push(
        Case::new(Op::SUM, ReducerParams::default().keep_dims(false), [nothing(), list(&[1])]),
        "empty_axis".into(),
    );
    push(Case::new(Op::SOFTMAX, SoftmaxParams::default().beta(1.0), [x(Float32, &[0, 5])]), name());
    let params = GatherParams::default().axis(1).batch_dims(0);
    push(Case::new(Op::GATHER, params, [some, x(Int32, &[0])]), name());
    let inputs = [x(Float32, &[0, 5]), x(Float32, &[3, 5]).constant(), x(Float32, &[3]).constant()];
    push(Case::new(Op::FULLY_CONNECTED, FullyConnectedParams::default(), inputs), name());
}

/// Lengths close to those of vectors, workgroups and their remainders, and long ones.
fn sizes(push: &mut impl FnMut(Case, String)) {
    let lengths =
        [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 255, 256, 257, 1023, 1025, 4099];
    for n in lengths {
        let name = || format!("length_{n}");
        push(Case::new(Op::ADD, plain(Op::ADD), [x(Float32, &[n]), x(Float32, &[n])]), name());
        let bytes = || x(Int8, &[n]).q(0.03, -7);
        push(Case::new(Op::ADD, plain(Op::ADD), [bytes(), bytes()]).q(0.05, 9), name());
        push(Case::new(Op::RELU, Params::None, [x(Float32, &[n])]), name());
        push(
            Case::new(Op::SUM, ReducerParams::default().keep_dims(false), [x(Float32, &[3, n]), list(&[1])]),
            name(),
        );
        push(Case::new(Op::SOFTMAX, SoftmaxParams::default().beta(1.0), [x(Float32, &[3, n])]), name());
        let inputs = [x(Float32, &[3, n]), x(Float32, &[5, n]).constant(), x(Float32, &[5]).constant()];
        push(Case::new(Op::FULLY_CONNECTED, FullyConnectedParams::default(), inputs), name());
        let inputs = [
            x(Int8, &[3, n]).q(0.03, -7),
            x(Int8, &[5, n]).constant().range(-127.0, 127.0).q(0.02, 0),
            x(Int32, &[5]).constant().range(-900.0, 900.0).q(0.0006, 0),
        ];
        let scale = 0.0006 * 74.0 * 0.9 * (n as f32).sqrt() * 2.0;
        push(Case::new(Op::FULLY_CONNECTED, FullyConnectedParams::default(), inputs).q(scale, 3), name());
    }
    // Numbers of input and output channels of a convolution.
    for (channels, outputs) in [
        (1, 1),
        (1, 5),
        (2, 3),
        (3, 2),
        (4, 4),
        (5, 4),
        (4, 5),
        (7, 9),
        (8, 8),
        (9, 7),
        (15, 17),
        (33, 3),
        (3, 33),
    ] {
        let params = Conv2DParams::default()
            .padding(Padding::Same)
            .stride_w(1)
            .stride_h(1)
            .fused_activation_function(Activation::None)
            .dilation_w_factor(1)
            .dilation_h_factor(1)
            .quantized_bias_type(Float32);
        let inputs = [
            x(Float32, &[2, 4, 5, channels]),
            x(Float32, &[outputs, 3, 2, channels]).constant(),
            x(Float32, &[outputs]).constant(),
        ];
        push(Case::new(Op::CONV_2D, params, inputs), format!("channels_{channels}_{outputs}"));
    }
}
