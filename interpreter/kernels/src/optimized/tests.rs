//! Optimized kernels compared with reference kernels, on random nodes.

use std::slice::from_ref;

use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::ops::binary::{AddParams, MulParams, SubParams};
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::l2_normalization::L2NormParams;
use delegraph_core::ops::lstm::UnidirectionalSequenceLstmParams;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::resize::{ResizeBilinearParams, ResizeNearestNeighborParams};
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_core::ops::transpose_conv::TransposeConvParams;
use delegraph_core::ops::{Activation, Padding, TensorType, WeightsFormat};
use delegraph_core::{BuiltinOp, Params};

use crate::testing::{T, check_optimized};
use delegraph_compute::random::Rng;

/// An 8-bit tensor of random values, with a scale near `scale`.
fn bytes(rng: &mut Rng, shape: &[usize], signed: bool, scale: f32) -> T {
    let values: Vec<u8> = (0..shape.iter().product()).map(|_| rng.next() as u8).collect();
    quantized(rng, shape, signed, scale, &values)
}

fn quantized(rng: &mut Rng, shape: &[usize], signed: bool, scale: f32, values: &[u8]) -> T {
    // About half of the scales are powers of two, which makes ties.
    let scale =
        if rng.range(0, 1) == 0 { scale.log2().round().exp2() } else { scale * (1.0 + rng.float() * 0.4) };
    let zero = rng.range(0, 255) as i64;
    match signed {
        true => T::new(shape, bytemuck::cast_slice::<u8, i8>(values)).quantized(scale, zero - 128),
        false => T::new(shape, values).quantized(scale, zero),
    }
}

/// An output tensor of this type.
fn bytes_out(rng: &mut Rng, shape: &[usize], signed: bool, scale: f32) -> T {
    quantized(rng, shape, signed, scale, &vec![0; shape.iter().product()])
}

fn activation(rng: &mut Rng) -> Activation {
    [Activation::None, Activation::None, Activation::Relu, Activation::Relu6, Activation::ReluN1To1]
        [rng.range(0, 4)]
}

/// A shape, and two shapes that broadcast to it.
fn broadcast(rng: &mut Rng) -> [Vec<usize>; 3] {
    let rank = rng.range(0, 5);
    let out: Vec<usize> =
        (0..rank).map(|_| if rng.range(0, 20) == 0 { 0 } else { rng.range(1, 7) }).collect();
    let mut a = out.clone();
    let mut b = out.clone();
    for d in 0..rank {
        match rng.range(0, 4) {
            0 => a[d] = 1,
            1 => b[d] = 1,
            _ => {}
        }
    }
    let skip = rng.range(0, rank);
    if b[..skip].iter().all(|&d| d == 1) {
        b.drain(..skip);
    }
    let long = rng.range(0, 3) == 0;
    if long && rank > 0 {
        let n = rng.range(1, 150);
        let grow = |s: &mut Vec<usize>| {
            if let Some(d) = s.last_mut().filter(|d| **d > 1) {
                *d = n;
            }
        };
        let mut out = out;
        let last = |s: &[usize]| s.last().copied().unwrap_or(1);
        if last(&out) > 1 {
            grow(&mut a);
            grow(&mut b);
            grow(&mut out);
        }
        return [out, a, b];
    }
    [out, a, b]
}

#[test]
fn binary_ops_of_bytes() {
    let mut rng = Rng::new(41);
    let mut done = 0;
    for round in 0..300 {
        let [out, a, b] = broadcast(&mut rng);
        let (signed, activation) = (rng.range(0, 1) == 0, activation(&mut rng));
        let (op, params) = match round % 3 {
            0 => {
                let p = AddParams::default().fused_activation_function(activation).pot_scale_int16(true);
                (BuiltinOp::ADD, Params::Add(p))
            }
            1 => {
                let p = SubParams::default().fused_activation_function(activation).pot_scale_int16(true);
                (BuiltinOp::SUB, Params::Sub(p))
            }
            _ => (BuiltinOp::MUL, Params::Mul(MulParams::default().fused_activation_function(activation))),
        };
        let scales = [0, 1].map(|_| 0.02 * 8f32.powf(rng.float()));
        let out_scale = if round % 3 == 2 { scales[0] * scales[1] * 60.0 } else { scales[0] + scales[1] };
        let out_scale = out_scale * 4f32.powf(rng.float());
        let (a, b) = (bytes(&mut rng, &a, signed, scales[0]), bytes(&mut rng, &b, signed, scales[1]));
        let out = bytes_out(&mut rng, &out, signed, out_scale);
        done += usize::from(check_optimized(op, 2, &params, &[Some(a), Some(b)], &[out]));
    }
    assert!(done > 250, "only {done} ran");
}

#[test]
fn floats_to_bytes_and_back() {
    let mut rng = Rng::new(42);
    for round in 0..60 {
        let shape = [rng.range(0, 3), rng.range(1, 300)];
        let signed = rng.range(0, 1) == 0;
        let scale = 0.02 * 8f32.powf(rng.float());
        let mut floats: Vec<f32> = (0..shape[0] * shape[1]).map(|_| rng.float() * scale * 200.0).collect();
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, scale * 0.5, -scale * 1.5];
        floats.iter_mut().step_by(11).zip(special).for_each(|(f, s)| *f = s);
        let out = bytes_out(&mut rng, &shape, signed, scale);
        assert!(check_optimized(
            BuiltinOp::QUANTIZE,
            1,
            &Params::None,
            &[Some(T::new(&shape, &floats))],
            &[out]
        ));
        let input = bytes(&mut rng, &shape, signed, scale);
        let out = T::new(&shape, &floats);
        assert!(check_optimized(BuiltinOp::DEQUANTIZE, 2, &Params::None, &[Some(input)], &[out]), "{round}");
    }
}

#[test]
fn bytes_to_other_scales() {
    let mut rng = Rng::new(65);
    for round in 0..60 {
        let shape = [rng.range(0, 3), rng.range(1, 300)];
        let (from, to) = (rng.range(0, 1) == 0, rng.range(0, 1) == 0);
        let scale = 0.02 * 8f32.powf(rng.float());
        let (input, output) = if round % 3 == 0 {
            // The same values as bytes with and without a sign.
            let values: Vec<u8> = (0..shape[0] * shape[1]).map(|i| i as u8).collect();
            let signed: Vec<i8> = values.iter().map(|byte| byte.cast_signed()).collect();
            let (unsigned, signed) = (T::new(&shape, &values), T::new(&shape, &signed));
            (unsigned.quantized(scale, 131), signed.quantized(scale, 3))
        } else {
            let other = scale * 2f32.powf(rng.float() * 3.0);
            (bytes(&mut rng, &shape, from, scale), bytes_out(&mut rng, &shape, to, other))
        };
        assert!(check_optimized(BuiltinOp::QUANTIZE, 1, &Params::None, &[Some(input)], &[output]), "{round}");
    }
}

/// An image, a window over it, and the output shape.
struct Image {
    input: [usize; 4],
    window: [usize; 2],
    stride: [usize; 2],
    padding: Padding,
    output: [usize; 2],
}

fn image(rng: &mut Rng, most_channels: usize) -> Image {
    let window = [rng.range(1, 5), rng.range(1, 5)];
    let stride = [rng.range(1, 3), rng.range(1, 3)];
    let size = [rng.range(window[0], 15), rng.range(window[1], 15)];
    let padding = if rng.range(0, 1) == 0 { Padding::Same } else { Padding::Valid };
    let output = [0, 1].map(|a| match padding {
        Padding::Same => size[a].div_ceil(stride[a]),
        Padding::Valid => (size[a] - window[a]) / stride[a] + 1,
    });
    let input = [rng.range(1, 2), size[0], size[1], rng.range(1, most_channels)];
    Image { input, window, stride, padding, output }
}

#[test]
fn pools_of_bytes() {
    let mut rng = Rng::new(43);
    for round in 0..150 {
        let i = image(&mut rng, 140);
        let signed = rng.range(0, 1) == 0;
        let x = bytes(&mut rng, &i.input, signed, 0.05);
        let [batch, .., channels] = i.input;
        let out = x.like(&[batch, i.output[0], i.output[1], channels]);
        let params = Params::Pool2D(
            Pool2DParams::default()
                .padding(i.padding)
                .stride_h(i.stride[0] as i32)
                .stride_w(i.stride[1] as i32)
                .filter_height(i.window[0] as i32)
                .filter_width(i.window[1] as i32)
                .fused_activation_function(activation(&mut rng)),
        );
        let op = if round % 2 == 0 { BuiltinOp::AVERAGE_POOL_2D } else { BuiltinOp::MAX_POOL_2D };
        assert!(check_optimized(op, 2, &params, &[Some(x)], &[out]));
    }
}

fn floats(rng: &mut Rng, shape: &[usize], scale: f32) -> T {
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.float() * scale).collect();
    T::new(shape, &values)
}

/// Constant 8-bit weights with one scale, or one per index of `dimension`.
fn weights(rng: &mut Rng, shape: &[usize], dimension: usize) -> T {
    let values: Vec<i8> = (0..shape.iter().product()).map(|_| (rng.next() as i8).max(-127)).collect();
    let weights = T::new(shape, &values).constant();
    if rng.range(0, 1) == 0 {
        return weights.quantized(0.01, 0);
    }
    let scales: Vec<f32> = (0..shape[dimension]).map(|_| 0.01 * (1.5 + rng.float())).collect();
    weights.per_channel(&scales, dimension)
}

fn maybe(rng: &mut Rng, t: T) -> Option<T> {
    (rng.range(0, 2) > 0).then_some(t)
}

#[test]
fn float_inputs_meet_integer_weights() {
    let mut rng = Rng::new(44);
    for _ in 0..60 {
        let (rows, depth, units) = (rng.range(1, 9), rng.range(1, 90), rng.range(1, 70));
        let params = FullyConnectedParams::default()
            .fused_activation_function(activation(&mut rng))
            .weights_format(WeightsFormat::Default)
            .keep_num_dims(false)
            .asymmetric_quantize_inputs(rng.range(0, 1) == 0)
            .quantized_bias_type(TensorType::Float32);
        let x = floats(&mut rng, &[rows, depth], 3.0);
        let w = weights(&mut rng, &[units, depth], 0);
        let bias = floats(&mut rng, &[units], 1.0).constant();
        let (bias, out) = (maybe(&mut rng, bias), floats(&mut rng, &[rows, units], 0.0));
        let params = Params::FullyConnected(params);
        assert!(check_optimized(BuiltinOp::FULLY_CONNECTED, 3, &params, &[Some(x), Some(w), bias], &[out]));
    }
    for round in 0..120 {
        let i = image(&mut rng, 9);
        let ([batch, height, width, channels], [kh, kw]) = (i.input, i.window);
        let [stride_h, stride_w] = i.stride.map(|s| s as i32);
        let fused_activation_function = activation(&mut rng);
        let (op, params, filter, filters) = if round % 2 == 0 {
            let groups = rng.range(1, 2);
            let channels = channels * groups;
            let filters = groups * rng.range(1, 20);
            let p = Conv2DParams::default()
                .padding(i.padding)
                .stride_w(stride_w)
                .stride_h(stride_h)
                .fused_activation_function(fused_activation_function)
                .dilation_w_factor(1)
                .dilation_h_factor(1)
                .quantized_bias_type(TensorType::Float32);
            let filter = weights(&mut rng, &[filters, kh, kw, channels / groups], 0);
            (BuiltinOp::CONV_2D, Params::Conv2D(p), (filter, channels), filters)
        } else {
            let depth_multiplier = rng.range(1, 2) as i32;
            let filters = channels * depth_multiplier as usize;
            let p = DepthwiseConv2DParams::default()
                .padding(i.padding)
                .stride_w(stride_w)
                .stride_h(stride_h)
                .depth_multiplier(depth_multiplier)
                .fused_activation_function(fused_activation_function)
                .dilation_w_factor(1)
                .dilation_h_factor(1);
            let filter = weights(&mut rng, &[1, kh, kw, filters], 3);
            (BuiltinOp::DEPTHWISE_CONV_2D, Params::DepthwiseConv2D(p), (filter, channels), filters)
        };
        let (filter, channels) = filter;
        let x = floats(&mut rng, &[batch, height, width, channels], 2.0);
        let bias = floats(&mut rng, &[filters], 1.0).constant();
        let bias = maybe(&mut rng, bias);
        let out = floats(&mut rng, &[batch, i.output[0], i.output[1], filters], 0.0);
        assert!(check_optimized(op, 5, &params, &[Some(x), Some(filter), bias], &[out]));
    }
}

#[test]
fn products_of_batches() {
    let mut rng = Rng::new(45);
    for round in 0..180 {
        let [out, a, b] = broadcast(&mut rng);
        let (m, k, n) = (rng.range(0, 9), rng.range(0, 40), rng.range(1, 40));
        let (adj_x, adj_y) = (rng.range(0, 1) == 0, rng.range(0, 1) == 0);
        let with = |batch: &[usize], [x, y]: [usize; 2], transposed| {
            [&batch[batch.len().saturating_sub(2)..], &(if transposed { [y, x] } else { [x, y] })].concat()
        };
        let (a, b, out) = (with(&a, [m, k], adj_x), with(&b, [k, n], adj_y), with(&out, [m, n], false));
        let (a, b, out) = match round % 3 {
            0 => {
                let (a, b) = (bytes(&mut rng, &a, true, 0.02), bytes(&mut rng, &b, true, 0.02));
                (a, b, bytes_out(&mut rng, &out, true, 0.1))
            }
            _ => (floats(&mut rng, &a, 1.0), floats(&mut rng, &b, 1.0), floats(&mut rng, &out, 0.0)),
        };
        let b = if rng.range(0, 2) == 0 { b.constant() } else { b };
        let params = Params::BatchMatMul(
            BatchMatMulParams::default().adj_x(adj_x).adj_y(adj_y).asymmetric_quantize_inputs(false),
        );
        check_optimized(BuiltinOp::BATCH_MATMUL, 2, &params, &[Some(a), Some(b)], &[out]);
    }
}

#[test]
fn softmax_of_rows() {
    let mut rng = Rng::new(46);
    for round in 0..80 {
        let depth = if round % 3 == 0 { rng.range(80, 300) } else { rng.range(1, 80) };
        let shape = [rng.range(0, 5), rng.range(1, 3), depth];
        let x = match round % 4 {
            0 => bytes(&mut rng, &shape, true, 0.02),
            2 => bytes(&mut rng, &shape, false, 0.02),
            _ => floats(&mut rng, &shape, 20.0),
        };
        let out = match round % 4 {
            0 => x.like(&shape).quantized(1.0 / 256.0, -128),
            2 => x.like(&shape).quantized(1.0 / 256.0, 0),
            _ => x.like(&shape),
        };
        let beta = 0.5 + rng.float().abs();
        let (op, params) = match round % 4 {
            0..=2 => (BuiltinOp::SOFTMAX, Params::Softmax(SoftmaxParams::default().beta(beta))),
            _ => (BuiltinOp::LOG_SOFTMAX, Params::None),
        };
        assert!(check_optimized(op, 1, &params, &[Some(x)], &[out]));
    }
}

/// A negative factor makes exponents of large elements overflow, on each kernel set.
#[test]
fn softmax_of_a_negative_factor_overflows() {
    let input = T::new(&[1, 3], &[0.0f32, 1000.0, 500.0]);
    let params = Params::Softmax(SoftmaxParams::default().beta(-1.0));
    let out = T::new(&[1, 3], &[0.0f32; 3]);
    assert!(check_optimized(BuiltinOp::SOFTMAX, 1, &params, &[Some(input)], &[out]));
}

#[test]
fn rows_of_length_one() {
    let mut rng = Rng::new(47);
    let params = Params::L2Norm(L2NormParams::default().fused_activation_function(Activation::None));
    for _ in 0..40 {
        let shape = [rng.range(0, 5), rng.range(1, 3), rng.range(1, 80)];
        let x = floats(&mut rng, &shape, 20.0);
        let out = x.like(&shape);
        assert!(check_optimized(BuiltinOp::L2_NORMALIZATION, 1, &params, &[Some(x)], &[out]));
    }
    let x = bytes(&mut rng, &[2, 9], true, 0.02);
    let out = x.like(&[2, 9]).quantized(1.0 / 128.0, 0);
    assert!(check_optimized(BuiltinOp::L2_NORMALIZATION, 2, &params, &[Some(x)], &[out]));
}

#[test]
fn reductions_over_any_dimensions() {
    let mut rng = Rng::new(47);
    let mut done = 0;
    for round in 0..200 {
        let rank = rng.range(1, 4);
        let shape: Vec<usize> =
            (0..rank).map(|_| if rng.range(0, 30) == 0 { 0 } else { rng.range(1, 40) }).collect();
        let axes: Vec<i32> = (0..rank as i32).filter(|_| rng.range(0, 1) == 0).collect();
        let signed = rng.range(0, 1) == 0;
        let x = match round / 4 % 2 {
            0 => floats(&mut rng, &shape, 1.0),
            _ => bytes(&mut rng, &shape, signed, 0.05),
        };
        let keep_dims = rng.range(0, 1) == 0;
        let reduced = |d: usize| axes.contains(&(d as i32));
        let out: Vec<usize> = (0..rank)
            .filter(|&d| keep_dims || !reduced(d))
            .map(|d| if reduced(d) { 1 } else { shape[d] })
            .collect();
        let ops = [BuiltinOp::MEAN, BuiltinOp::SUM, BuiltinOp::REDUCE_MAX, BuiltinOp::REDUCE_MIN];
        let axes = T::new(&[axes.len()], &axes).constant();
        let out = match (round / 4 % 2, round % 4) {
            (1, 0 | 1) => {
                let scale = 0.05 * 4f32.powf(rng.float());
                bytes_out(&mut rng, &out, signed, scale)
            }
            _ => x.like(&out),
        };
        let params = Params::Reducer(ReducerParams::default().keep_dims(keep_dims));
        done += usize::from(check_optimized(ops[round % 4], 2, &params, &[Some(x), Some(axes)], &[out]));
    }
    assert!(done > 190, "only {done} ran");
}

#[test]
fn reductions_of_large_tensors_on_several_threads() {
    let mut rng = Rng::new(52);
    for round in 0..16 {
        let shape = [[1, 30, 31, 70], [3, 1, 9000, 5], [40, 7, 60, 3], [2, 40, 1, 1000]][round / 4];
        let axes = [&[1, 2][..], &[3], &[0, 2], &[0]][round % 4];
        let reduced: Vec<usize> =
            (0..4).map(|d| if axes.contains(&(d as i32)) { 1 } else { shape[d] }).collect();
        let axes = T::new(&[axes.len()], axes).constant();
        let x = bytes(&mut rng, &shape, round % 2 == 0, 0.05);
        let out = bytes_out(&mut rng, &reduced, round % 2 == 0, 0.05);
        let params = Params::Reducer(ReducerParams::default().keep_dims(true));
        assert!(check_optimized(BuiltinOp::MEAN, 2, &params, &[Some(x), Some(axes.clone())], &[out]));
        let x = floats(&mut rng, &shape, 1.0);
        let out = x.like(&reduced);
        assert!(check_optimized(BuiltinOp::SUM, 1, &params, &[Some(x), Some(axes)], &[out]));
    }
}

#[test]
fn borders_of_any_width() {
    let mut rng = Rng::new(53);
    for round in 0..150 {
        let rank = rng.range(1, 5);
        let most = if round % 10 == 0 { 36 } else { 7 };
        let shape: Vec<usize> =
            (0..rank).map(|_| if rng.range(0, 20) == 0 { 0 } else { rng.range(1, most) }).collect();
        if shape.iter().product::<usize>() > 1 << 18 {
            continue;
        }
        let paddings: Vec<i32> = (0..2 * rank).map(|_| rng.range(0, 4).saturating_sub(2) as i32).collect();
        let out: Vec<usize> =
            shape.iter().zip(paddings.chunks(2)).map(|(s, p)| s + (p[0] + p[1]) as usize).collect();
        let paddings = T::new(&[rank, 2], &paddings).constant();
        let (x, value) = match round % 3 {
            0 => (floats(&mut rng, &shape, 1.0), T::new(&[1], &[-1.5f32])),
            1 => (bytes(&mut rng, &shape, true, 0.1), T::new(&[1], &[3i8])),
            _ => {
                let values: Vec<i64> = (0..shape.iter().product()).map(|_| rng.next() as i64).collect();
                (T::new(&shape, &values), T::new(&[1], &[1i64 << 40]))
            }
        };
        let (out, value) = (x.like(&out), value.quantized_like(&x));
        let (op, inputs) = match rng.range(0, 1) {
            0 => (BuiltinOp::PAD, vec![Some(x), Some(paddings)]),
            _ => (BuiltinOp::PADV2, vec![Some(x), Some(paddings), Some(value)]),
        };
        assert!(check_optimized(op, 2, &Params::None, &inputs, &[out]));
    }
}

#[test]
fn nearest_neighbours() {
    let mut rng = Rng::new(54);
    for round in 0..100 {
        let most = if round % 10 == 0 { 120 } else { 20 };
        let shape = [rng.range(1, 2), rng.range(1, 12), rng.range(1, 12), rng.range(1, 18)];
        let size = [rng.range(1, most), rng.range(1, most)];
        let mode = rng.range(0, 2);
        let p = ResizeNearestNeighborParams::default().align_corners(mode == 1).half_pixel_centers(mode == 2);
        let x = match round % 3 {
            0 => floats(&mut rng, &shape, 3.0),
            _ => bytes(&mut rng, &shape, round % 3 == 1, 0.5),
        };
        let out = x.like(&[shape[0], size[0], size[1], shape[3]]);
        let size = T::new(&[2], &size.map(|s| s as i32)).constant();
        let params = Params::ResizeNearestNeighbor(p);
        assert!(check_optimized(
            BuiltinOp::RESIZE_NEAREST_NEIGHBOR,
            3,
            &params,
            &[Some(x), Some(size)],
            &[out]
        ));
    }
}

#[test]
fn bilinear_resizing() {
    let mut rng = Rng::new(48);
    for round in 0..250 {
        let channels = if round % 2 == 0 { rng.range(1, 20) } else { rng.range(20, 150) };
        let shape = [rng.range(1, 2), rng.range(1, 12), rng.range(1, 12), channels];
        // Enlargements by powers of two have arithmetic of their own.
        let size = match rng.range(0, 1) {
            0 => [rng.range(1, 25), rng.range(1, 25)],
            _ => [shape[1] << rng.range(0, 3), shape[2] << rng.range(0, 3)],
        };
        let mode = rng.range(0, 2);
        let p = ResizeBilinearParams::default().align_corners(mode == 1).half_pixel_centers(mode == 2);
        let x = match round / 2 % 4 {
            0 => floats(&mut rng, &shape, 3.0),
            1 => bytes(&mut rng, &shape, true, 0.5),
            2 => sixteens(&mut rng, &shape, 0.5),
            _ => bytes(&mut rng, &shape, false, 0.5),
        };
        let out = x.like(&[shape[0], size[0], size[1], shape[3]]);
        let size = T::new(&[2], &size.map(|s| s as i32)).constant();
        assert!(check_optimized(
            BuiltinOp::RESIZE_BILINEAR,
            3,
            &Params::ResizeBilinear(p),
            &[Some(x), Some(size)],
            &[out]
        ));
    }
}

#[test]
fn transposed_convolutions() {
    let mut rng = Rng::new(49);
    let mut done = 0;
    for round in 0..150 {
        // The image of the transposed convolution: its input is the output here.
        let i = image(&mut rng, 6);
        let [batch, height, width, filters] = i.input;
        let channels = rng.range(1, 30);
        let shape = T::new(&[4], &[batch, height, width, filters].map(|d| d as i32)).constant();
        let kernel = [filters, i.window[0], i.window[1], channels];
        let params = Params::TransposeConv(
            TransposeConvParams::default()
                .padding(i.padding)
                .stride_w(i.stride[1] as i32)
                .stride_h(i.stride[0] as i32)
                .fused_activation_function(activation(&mut rng))
                .quantized_bias_type(TensorType::Float32),
        );
        let small = [batch, i.output[0], i.output[1], channels];
        let (w, x, bias, out) = if round % 3 != 1 {
            let w = match round % 3 {
                0 => floats(&mut rng, &kernel, 1.0).constant(),
                _ => weights(&mut rng, &kernel, 0),
            };
            let x = floats(&mut rng, &small, 1.0);
            (w, x, floats(&mut rng, &[filters], 1.0).constant(), floats(&mut rng, &i.input, 0.0))
        } else {
            let bias: Vec<i32> = (0..filters).map(|_| rng.range(0, 2000) as i32 - 1000).collect();
            let (w, x) = (weights(&mut rng, &kernel, 0), bytes(&mut rng, &small, true, 0.05));
            (w, x, T::new(&[filters], &bias).constant(), bytes_out(&mut rng, &i.input, true, 0.2))
        };
        let bias = maybe(&mut rng, bias);
        done += usize::from(check_optimized(
            BuiltinOp::TRANSPOSE_CONV,
            3,
            &params,
            &[Some(shape), Some(w), Some(x), bias],
            &[out],
        ));
    }
    assert!(done > 100, "only {done} ran");
}

#[test]
fn sequences_through_cells() {
    let mut rng = Rng::new(50);
    for round in 0..40 {
        let (batch, steps) = (rng.range(1, 3), rng.range(1, 6));
        let (features, cells) = (rng.range(1, 40), rng.range(1, 30));
        let time_major = rng.range(0, 1) == 0;
        let shape = |last| if time_major { [steps, batch, last] } else { [batch, steps, last] };
        let x = floats(&mut rng, &shape(features), 1.0);
        let mut matrix = |columns: usize| match round % 2 {
            0 => floats(&mut rng, &[cells, columns], 0.5).constant(),
            _ => {
                let values: Vec<i8> = (0..cells * columns).map(|_| (rng.next() as i8).max(-127)).collect();
                T::new(&[cells, columns], &values).quantized(0.004, 0).constant()
            }
        };
        let mut inputs = vec![Some(x)];
        inputs.extend((0..4).map(|_| Some(matrix(features))));
        inputs.extend((0..4).map(|_| Some(matrix(cells))));
        inputs.extend([None, None, None]);
        inputs.extend((0..4).map(|_| Some(floats(&mut rng, &[cells], 1.0).constant())));
        inputs.extend([None, None]);
        inputs.extend((0..2).map(|_| Some(T::new(&[batch, cells], &vec![0f32; batch * cells]).variable())));
        let out = floats(&mut rng, &shape(cells), 0.0);
        let params = UnidirectionalSequenceLstmParams::default()
            .fused_activation_function(Activation::Tanh)
            .cell_clip(if rng.range(0, 1) == 0 { 0.0 } else { 0.5 })
            .proj_clip(0.0)
            .time_major(time_major)
            .asymmetric_quantize_inputs(rng.range(0, 1) == 0)
            .diagonal_recurrent_tensors(false);
        let params = Params::UnidirectionalSequenceLstm(params);
        if round % 5 == 0 {
            // With coupled input and forget gates the reference kernel runs.
            [1, 5, 12].into_iter().for_each(|i| inputs[i] = None);
        }
        assert!(check_optimized(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM, 2, &params, &inputs, &[out]));
    }
}

/// A 16-bit tensor with a scale near `scale` and zero point 0.
fn sixteens(rng: &mut Rng, shape: &[usize], scale: f32) -> T {
    let values: Vec<i16> = (0..shape.iter().product())
        .map(|_| if rng.range(0, 9) == 0 { [i16::MIN, i16::MAX][rng.range(0, 1)] } else { rng.next() as i16 })
        .collect();
    let scale =
        if rng.range(0, 1) == 0 { scale.log2().round().exp2() } else { scale * (1.0 + rng.float() * 0.4) };
    T::new(shape, &values).quantized(scale, 0)
}

/// A 64-bit or 32-bit bias, or none.
fn wide_bias(rng: &mut Rng, channels: usize, kind: usize) -> Option<T> {
    let values: Vec<i32> = (0..channels).map(|_| rng.range(0, 2_000_000) as i32 - 1_000_000).collect();
    let wide: Vec<i64> = values.iter().map(|v| i64::from(*v) * 5_000).collect();
    match kind {
        0 => None,
        1 => Some(T::new(&[channels], &values).constant()),
        _ => Some(T::new(&[channels], &wide).constant()),
    }
}

#[test]
fn sixteen_bits_meet_eight() {
    let mut rng = Rng::new(55);
    for round in 0..150 {
        let large = round % 25 == 0;
        let mut i = image(&mut rng, if large { 60 } else { 9 });
        if large {
            // More sums than are kept in memory at once.
            (i.input[1], i.input[2], i.stride) = (40, 41, [1, 1]);
            i.output = match i.padding {
                Padding::Same => [40, 41],
                Padding::Valid => [41 - i.window[0], 42 - i.window[1]],
            };
        }
        let ([batch, height, width, channels], [kh, kw]) = (i.input, i.window);
        let (stride_h, stride_w) = (i.stride[0] as i32, i.stride[1] as i32);
        let fused_activation_function = activation(&mut rng);
        let padding = i.padding;
        let (dilation_w_factor, dilation_h_factor) = (1, 1);
        let (op, params, filter, channels, filters, kind) = if round % 2 == 0 {
            let groups = rng.range(1, 2);
            let channels = channels * groups;
            let filters = groups * rng.range(1, 40);
            let params = Params::Conv2D(
                Conv2DParams::default()
                    .padding(padding)
                    .stride_w(stride_w)
                    .stride_h(stride_h)
                    .fused_activation_function(fused_activation_function)
                    .dilation_w_factor(dilation_w_factor)
                    .dilation_h_factor(dilation_h_factor)
                    .quantized_bias_type(TensorType::Float32),
            );
            let filter = weights(&mut rng, &[filters, kh, kw, channels / groups], 0);
            (BuiltinOp::CONV_2D, params, filter, channels, filters, rng.range(0, 2))
        } else {
            let depth_multiplier = 1 + (rng.range(0, 3) / 3) as i32;
            let channels = if rng.range(0, 1) == 0 { channels } else { channels * 11 };
            let filters = channels * depth_multiplier as usize;
            let params = Params::DepthwiseConv2D(
                DepthwiseConv2DParams::default()
                    .padding(padding)
                    .stride_w(stride_w)
                    .stride_h(stride_h)
                    .depth_multiplier(depth_multiplier)
                    .fused_activation_function(fused_activation_function)
                    .dilation_w_factor(dilation_w_factor)
                    .dilation_h_factor(dilation_h_factor),
            );
            let filter = weights(&mut rng, &[1, kh, kw, filters], 3);
            (BuiltinOp::DEPTHWISE_CONV_2D, params, filter, channels, filters, 2 * rng.range(0, 1))
        };
        let x = sixteens(&mut rng, &[batch, height, width, channels], 0.0005);
        let bias = wide_bias(&mut rng, filters, kind);
        let out = sixteens(&mut rng, &[batch, i.output[0], i.output[1], filters], 0.002);
        assert!(check_optimized(op, 5, &params, &[Some(x), Some(filter), bias], &[out]));
    }
    for round in 0..90 {
        let (rows, depth, units) = match round {
            0 => (700, 30, 70),
            _ => (rng.range(1, 9), rng.range(1, 90), rng.range(1, 70)),
        };
        let params = Params::FullyConnected(
            FullyConnectedParams::default()
                .fused_activation_function(activation(&mut rng))
                .weights_format(WeightsFormat::Default)
                .keep_num_dims(false)
                .asymmetric_quantize_inputs(false)
                .quantized_bias_type([TensorType::Float32, TensorType::Int64][round % 2]),
        );
        let x = sixteens(&mut rng, &[rows, depth], 0.0005);
        let w = weights(&mut rng, &[units, depth], 0);
        let kind = rng.range(0, 2);
        let bias = wide_bias(&mut rng, units, kind);
        let out = sixteens(&mut rng, &[rows, units], 0.002);
        assert!(check_optimized(BuiltinOp::FULLY_CONNECTED, 7, &params, &[Some(x), Some(w), bias], &[out]));
    }
}

/// Depthwise convolutions over time: some kernels compute their images as rows.
#[test]
fn images_of_one_column() {
    let mut rng = Rng::new(56);
    for round in 0..120 {
        let (batch, channels, multiplier) = (rng.range(1, 3), rng.range(1, 70), rng.range(1, 2));
        let (kernel, stride, dilation) = (rng.range(1, 9), rng.range(1, 3), rng.range(1, 3));
        let (height, reach) = (rng.range(25, 90), (kernel - 1) * dilation);
        let (padding, rows) = match rng.range(0, 1) {
            0 => (Padding::Same, height.div_ceil(stride)),
            _ => (Padding::Valid, (height - reach).div_ceil(stride)),
        };
        let filters = channels * multiplier;
        // The distances across have no effect on one column.
        let params = DepthwiseConv2DParams::default()
            .padding(padding)
            .stride_w(rng.range(1, 3) as i32)
            .stride_h(stride as i32)
            .depth_multiplier(multiplier as i32)
            .fused_activation_function(activation(&mut rng))
            .dilation_w_factor(rng.range(1, 3) as i32)
            .dilation_h_factor(dilation as i32);
        let (shape, out) = ([batch, height, 1, channels], [batch, rows, 1, filters]);
        let filter = [1, kernel, 1, filters];
        let op = BuiltinOp::DEPTHWISE_CONV_2D;
        let (x, filter, bias, out) = match round % 4 {
            0 => {
                let (filter, bias) = (floats(&mut rng, &filter, 1.0), floats(&mut rng, &[filters], 1.0));
                let (x, out) = (floats(&mut rng, &shape, 2.0), floats(&mut rng, &out, 0.0));
                (x, filter.constant(), Some(bias.constant()), out)
            }
            1 => {
                let (x, out) = (floats(&mut rng, &shape, 2.0), floats(&mut rng, &out, 0.0));
                (x, weights(&mut rng, &filter, 3), None, out)
            }
            2 => {
                let (x, out) = (bytes(&mut rng, &shape, true, 0.05), bytes_out(&mut rng, &out, true, 0.2));
                (x, weights(&mut rng, &filter, 3), None, out)
            }
            _ => {
                let (x, out) = (sixteens(&mut rng, &shape, 0.0005), sixteens(&mut rng, &out, 0.002));
                (x, weights(&mut rng, &filter, 3), wide_bias(&mut rng, filters, 2), out)
            }
        };
        let params = Params::DepthwiseConv2D(params);
        assert!(check_optimized(op, 5, &params, &[Some(x), Some(filter), bias], &[out]), "round {round}");
    }
}

#[test]
fn sums_and_products_of_sixteen_bits() {
    let mut rng = Rng::new(56);
    let mut done = 0;
    for round in 0..210 {
        let [out, a, b] = broadcast(&mut rng);
        let (fused_activation_function, pot_scale_int16) = (activation(&mut rng), rng.range(0, 5) == 0);
        let (op, params) = match round % 3 {
            0 => (
                BuiltinOp::ADD,
                Params::Add(
                    AddParams::default()
                        .fused_activation_function(fused_activation_function)
                        .pot_scale_int16(pot_scale_int16),
                ),
            ),
            1 => (
                BuiltinOp::SUB,
                Params::Sub(
                    SubParams::default()
                        .fused_activation_function(fused_activation_function)
                        .pot_scale_int16(pot_scale_int16),
                ),
            ),
            _ => (
                BuiltinOp::MUL,
                Params::Mul(MulParams::default().fused_activation_function(fused_activation_function)),
            ),
        };
        let scales = [0, 1].map(|_| 0.0002 * 8f32.powf(rng.float()));
        let out_scale = if round % 3 == 2 { scales[0] * scales[1] * 9000.0 } else { scales[0] + scales[1] };
        let out_scale = out_scale * 4f32.powf(rng.float());
        let (a, b) = (sixteens(&mut rng, &a, scales[0]), sixteens(&mut rng, &b, scales[1]));
        let out = sixteens(&mut rng, &out, out_scale);
        done += usize::from(check_optimized(op, 4, &params, &[Some(a), Some(b)], &[out]));
    }
    assert!(done > 150, "only {done} ran");
}

#[test]
fn sixteen_bits_to_other_types() {
    let mut rng = Rng::new(57);
    for round in 0..60 {
        let shape = [rng.range(0, 3), if round == 7 { 20_000 } else { rng.range(1, 300) }];
        let scale = 0.0004 * 8f32.powf(rng.float());
        let x = sixteens(&mut rng, &shape, scale);
        let mut floats: Vec<f32> = (0..shape[0] * shape[1]).map(|_| rng.float() * scale * 50_000.0).collect();
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, scale * 0.5, -scale * 1.5];
        floats.iter_mut().step_by(11).zip(special).for_each(|(f, s)| *f = s);
        let (f, out) = (T::new(&shape, &floats), sixteens(&mut rng, &shape, scale * 1.3));
        let (b, none) = (bytes(&mut rng, &shape, true, scale * 200.0), Params::None);
        assert!(check_optimized(BuiltinOp::DEQUANTIZE, 3, &none, &[Some(x.clone())], from_ref(&f)));
        assert!(check_optimized(BuiltinOp::QUANTIZE, 2, &none, &[Some(f)], from_ref(&out)));
        assert!(check_optimized(BuiltinOp::QUANTIZE, 2, &none, &[Some(x.clone())], from_ref(&b)));
        assert!(check_optimized(BuiltinOp::QUANTIZE, 2, &none, &[Some(b)], from_ref(&out)));
        assert!(check_optimized(BuiltinOp::QUANTIZE, 2, &none, &[Some(x)], &[out]));
    }
}
