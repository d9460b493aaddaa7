//! Tensors of more than 65,536 elements, for errors of 16-bit counters, dispatches in one dimension, and work split
//! into blocks.

use std::string::String;

use delegraph_core::ops::Padding;
use delegraph_core::ops::arg_min_max::ArgMaxParams;
use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::ops::cast::CastParams;
use delegraph_core::ops::concatenation::ConcatenationParams;
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::cumsum::CumsumParams;
use delegraph_core::ops::depth_to_space::DepthToSpaceParams;
use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::gather::GatherParams;
use delegraph_core::ops::pack::PackParams;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::reshape::ReshapeParams;
use delegraph_core::ops::resize::{ResizeBilinearParams, ResizeNearestNeighborParams};
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_core::ops::split::SplitParams;
use delegraph_core::ops::transpose_conv::TransposeConvParams;

use super::super::prelude::*;
use super::{elementwise, unary};

/// A one-dimensional shape with a prime number of elements.
const LINE: usize = 70_001;
/// About the same number of elements in four dimensions.
const IMAGE: [usize; 4] = [3, 79, 61, 5];
const PLAIN: Activation = Activation::None;

pub(super) fn cases(out: &mut Vec<Case>) {
    let mut push = |case: Case, detail: &str| {
        let detail = if detail.is_empty() { String::new() } else { format!("_{detail}") };
        out.push(case.detail(format!("large{detail}")).seeded(41));
    };
    each(&mut push);
    moved(&mut push);
    folded(&mut push);
    windows(&mut push);
    products(&mut push);
}

fn bytes(ty: TensorType, shape: &[usize]) -> Operand {
    x(ty, shape).q(0.03, if ty == UInt8 { 121 } else { -7 })
}

fn each(push: &mut impl FnMut(Case, &str)) {
    for &(op, low, high, types) in unary::TABLE {
        push(Case::new(op, unary::params(op, 0), [x(Float32, &[LINE]).range(low, high)]), "");
        if low < 0.0 && types.contains(&Int8) && !matches!(op, Op::NEG | Op::TANH | Op::LOGISTIC) {
            push(Case::new(op, unary::params(op, 0), [bytes(Int8, &IMAGE)]).q(0.03, -7), "");
        }
    }
    for op in [Op::ADD, Op::SUB, Op::MUL, Op::DIV, Op::MAXIMUM, Op::MINIMUM, Op::SQUARED_DIFFERENCE] {
        let params = || elementwise::params(op, PLAIN);
        let right = |shape: &[usize]| x(Float32, shape).range(0.5, 3.0);
        push(Case::new(op, params(), [x(Float32, &[LINE]), right(&[LINE])]), "");
        push(Case::new(op, params(), [x(Float32, &IMAGE), right(&[79, 1, 5])]), "rows");
        push(Case::new(op, params(), [x(Float32, &IMAGE), right(&[5])]), "channels");
    }
    for op in [Op::ADD, Op::SUB, Op::MUL] {
        let case =
            Case::new(op, elementwise::params(op, PLAIN), [bytes(Int8, &[LINE]), bytes(Int8, &[LINE])]);
        push(case.q(0.07, 5), "");
        let inputs = [x(Int32, &[LINE]).range(-900.0, 900.0), x(Int32, &[LINE]).range(-900.0, 900.0)];
        push(Case::new(op, elementwise::params(op, PLAIN), inputs), "");
    }
    for op in [Op::LESS, Op::GREATER_EQUAL, Op::EQUAL] {
        let inputs = [x(Float32, &[LINE]), x(Float32, &[1])];
        push(Case::new(op, Params::None, inputs).outputs([Output::of(Bool)]), "");
    }
    let inputs = [x(Bool, &[LINE]), x(Float32, &[LINE]), x(Float32, &[LINE])];
    push(Case::new(Op::SELECT_V2, Params::None, inputs), "");
    let alpha = x(Float32, &[1, 1, 5]).constant();
    push(Case::new(Op::PRELU, Params::None, [x(Float32, &IMAGE), alpha]), "");
    for (from, to) in [(Float32, Int32), (Int32, Float32), (Float32, Int8), (Int8, Float32)] {
        let params = CastParams::default().in_data_type(from).out_data_type(to);
        let case = Case::new(Op::CAST, params, [x(from, &[LINE]).range(-100.0, 100.0)]);
        push(case.outputs([Output::of(to)]), "");
    }
    for ty in [Int8, UInt8] {
        let zero = if ty == UInt8 { 121 } else { -7 };
        let data = x(Float32, &[LINE]).range(-5.0, 5.0);
        push(
            Case::new(Op::QUANTIZE, Params::None, [data]).outputs([Output::of(ty).q(0.03, zero)]),
            &format!("to_{}", ty.name().to_lowercase()),
        );
        let case = Case::new(Op::DEQUANTIZE, Params::None, [bytes(ty, &[LINE])]);
        push(case.outputs([Output::of(Float32)]), "");
    }
}

fn moved(push: &mut impl FnMut(Case, &str)) {
    for ty in [Float32, Int8] {
        let data = || if ty == Int8 { bytes(ty, &IMAGE) } else { x(ty, &IMAGE) };
        let like = |case: Case| if ty == Int8 { case.q(0.03, -7) } else { case };
        let pads = known(&[4, 2], &[0i32, 1, 2, 0, 0, 3, 1, 0]);
        push(like(Case::new(Op::PAD, Params::None, [data(), pads])), "");
        for order in [[0, 3, 1, 2], [3, 2, 1, 0], [1, 0, 2, 3]] {
            push(like(Case::new(Op::TRANSPOSE, Params::None, [data(), list(&order)])), "");
        }
        for axis in [0, 2, 3] {
            let params = ConcatenationParams::default().axis(axis).fused_activation_function(PLAIN);
            push(like(Case::new(Op::CONCATENATION, params, [data(), data()])), &format!("axis_{axis}"));
        }
        let inputs = [data(), list(&[0, 1, 2, 1]), list(&[3, 78, 58, 4])];
        push(like(Case::new(Op::SLICE, Params::None, inputs)), "");
        let flat = ReshapeParams::default().new_shape(vec![-1]);
        push(like(Case::new(Op::RESHAPE, flat, [data(), list(&[-1])])), "");
        let params = GatherParams::default().axis(1).batch_dims(0);
        let indices = x(Int32, &[80]).range(0.0, 78.0);
        push(like(Case::new(Op::GATHER, params, [data(), indices])), "");
        let params = PackParams::default().axis(4).values_count(2);
        push(like(Case::new(Op::PACK, params, [data(), data()])), "");
        let params = SplitParams::default().num_splits(3);
        let case = Case::new(Op::SPLIT, params, [known(&[], &[0]), x(ty, &IMAGE).auto()]);
        push(case.outputs(vec![Output::of(ty); 3]).auto(ty), "");
    }
    let inputs = [x(Float32, &[1, 79, 1, 5]), list(&[3, 1, 61, 1])];
    push(Case::new(Op::TILE, Params::None, inputs), "");
    let inputs = [x(Float32, &[79, 1, 5]), list(&[3, 79, 61, 5])];
    push(Case::new(Op::BROADCAST_TO, Params::None, inputs), "");
    let params = DepthToSpaceParams::default().block_size(2);
    push(Case::new(Op::DEPTH_TO_SPACE, params, [x(Float32, &[1, 61, 59, 20])]), "");
    for (align_corners, half_pixel_centers) in [(false, true), (true, false)] {
        let inputs = || [x(Float32, &[1, 40, 53, 5]), list(&[119, 127])];
        let params = ResizeBilinearParams::default()
            .align_corners(align_corners)
            .half_pixel_centers(half_pixel_centers);
        push(Case::new(Op::RESIZE_BILINEAR, params, inputs()), "");
        let params = ResizeNearestNeighborParams::default()
            .align_corners(align_corners)
            .half_pixel_centers(half_pixel_centers);
        push(Case::new(Op::RESIZE_NEAREST_NEIGHBOR, params, inputs()), "");
    }
}

fn folded(push: &mut impl FnMut(Case, &str)) {
    for op in [Op::SUM, Op::MEAN, Op::REDUCE_MAX, Op::REDUCE_MIN] {
        for axes in [&[1, 2][..], &[3], &[0]] {
            let params = ReducerParams::default().keep_dims(true);
            let name = axes.iter().map(i32::to_string).collect::<Vec<_>>().join("_");
            push(Case::new(op, params, [x(Float32, &IMAGE).range(-3.0, 5.0), list(axes)]), &name);
        }
    }
    push(Case::new(Op::SOFTMAX, SoftmaxParams::default().beta(1.0), [x(Float32, &[4999, 14])]), "");
    push(
        Case::new(Op::SOFTMAX, SoftmaxParams::default().beta(1.0), [bytes(Int8, &[4999, 14])])
            .q(1.0 / 256.0, -128),
        "",
    );
    let params = ArgMaxParams::default().output_type(Int32);
    push(Case::new(Op::ARG_MAX, params, [x(Float32, &IMAGE), known(&[], &[3])]), "");
    let params = CumsumParams::default().exclusive(false).reverse(false);
    push(Case::new(Op::CUMSUM, params, [x(Float32, &[331, 223]), known(&[], &[0])]), "");
}

fn windows(push: &mut impl FnMut(Case, &str)) {
    // Large images with few channels, and small images with many.
    for (shape, outputs, window) in
        [([1, 83, 107, 3], 9, 3), ([1, 7, 5, 131], 70, 1), ([1, 5, 6, 70], 131, 3), ([9, 31, 29, 4], 9, 2)]
    {
        for ty in [Float32, Int8] {
            let [_, h, w, channels] = shape;
            let name = format!("{h}_{w}_{channels}_{outputs}");
            let params = Conv2DParams::default()
                .padding(Padding::Same)
                .stride_w(1)
                .stride_h(1)
                .fused_activation_function(Activation::Relu)
                .dilation_w_factor(1)
                .dilation_h_factor(1)
                .quantized_bias_type(Float32);
            let filter = [outputs, window, window, channels];
            let scale = 0.0006 * 74.0 * 74.0 * ((window * window * channels) as f32).sqrt() / 40.0;
            let case = match ty {
                Int8 => {
                    let inputs = [
                        bytes(ty, &shape),
                        x(ty, &filter).constant().range(-127.0, 127.0).q(0.02, 0),
                        x(Int32, &[outputs]).constant().range(-900.0, 900.0).q(0.0006, 0),
                    ];
                    Case::new(Op::CONV_2D, params, inputs).q(scale, 3)
                }
                _ => {
                    let inputs = [x(ty, &shape), x(ty, &filter).constant(), x(ty, &[outputs]).constant()];
                    Case::new(Op::CONV_2D, params, inputs)
                }
            };
            push(case, &name);
        }
    }
    for shape in [[1, 97, 89, 9], [2, 9, 8, 513]] {
        let params = DepthwiseConv2DParams::default()
            .padding(Padding::Same)
            .stride_w(1)
            .stride_h(1)
            .depth_multiplier(1)
            .fused_activation_function(PLAIN)
            .dilation_w_factor(1)
            .dilation_h_factor(1);
        let channels = shape[3];
        let inputs = [
            x(Float32, &shape),
            x(Float32, &[1, 3, 3, channels]).constant(),
            x(Float32, &[channels]).constant(),
        ];
        push(Case::new(Op::DEPTHWISE_CONV_2D, params.clone(), inputs), &format!("channels_{channels}"));
        let inputs = [
            bytes(Int8, &shape),
            x(Int8, &[1, 3, 3, channels]).constant().range(-127.0, 127.0).q(0.02, 0),
            x(Int32, &[channels]).constant().range(-900.0, 900.0).q(0.0006, 0),
        ];
        push(Case::new(Op::DEPTHWISE_CONV_2D, params, inputs).q(0.2, 3), &format!("channels_{channels}"));
    }
    for op in [Op::AVERAGE_POOL_2D, Op::MAX_POOL_2D] {
        for shape in [[1, 127, 113, 5], [2, 9, 8, 517]] {
            let params = Pool2DParams::default()
                .padding(Padding::Same)
                .stride_w(1)
                .stride_h(1)
                .filter_width(2)
                .filter_height(3)
                .fused_activation_function(PLAIN);
            let name = format!("channels_{}", shape[3]);
            push(Case::new(op, params.clone(), [x(Float32, &shape)]), &name);
            push(Case::new(op, params, [bytes(Int8, &shape)]).q(0.03, -7), &name);
        }
    }
    let params = TransposeConvParams::default()
        .padding(Padding::Same)
        .stride_w(2)
        .stride_h(2)
        .fused_activation_function(PLAIN)
        .quantized_bias_type(Float32);
    let inputs = [list(&[1, 118, 122, 5]), x(Float32, &[5, 3, 3, 7]).constant(), x(Float32, &[1, 59, 61, 7])];
    push(Case::new(Op::TRANSPOSE_CONV, params, inputs), "");
}

fn products(push: &mut impl FnMut(Case, &str)) {
    for (rows, depth, units) in [(1, 1031, 257), (263, 19, 271), (67, 130, 129), (1, 9, 66_003)] {
        let name = format!("{rows}_{depth}_{units}");
        let inputs = [
            x(Float32, &[rows, depth]),
            x(Float32, &[units, depth]).constant(),
            x(Float32, &[units]).constant(),
        ];
        push(Case::new(Op::FULLY_CONNECTED, FullyConnectedParams::default(), inputs), &name);
        let inputs = [
            bytes(Int8, &[rows, depth]),
            x(Int8, &[units, depth]).constant().range(-127.0, 127.0).q(0.02, 0),
            x(Int32, &[units]).constant().range(-900.0, 900.0).q(0.0006, 0),
        ];
        let scale = 0.0006 * 74.0 * 74.0 * (depth as f32).sqrt() / 40.0;
        push(Case::new(Op::FULLY_CONNECTED, FullyConnectedParams::default(), inputs).q(scale, 3), &name);
    }
    for (batches, rows, depth, columns) in [(2, 191, 17, 193), (37, 45, 9, 43), (1, 66, 131, 65)] {
        let params = BatchMatMulParams::default().adj_x(false).adj_y(false).asymmetric_quantize_inputs(false);
        let inputs = [x(Float32, &[batches, rows, depth]), x(Float32, &[batches, depth, columns])];
        push(Case::new(Op::BATCH_MATMUL, params, inputs), &format!("{batches}_{rows}_{depth}_{columns}"));
    }
}
