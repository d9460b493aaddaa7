//! Convolutions on the adapter, against plain Rust.

use delegraph_shaders::conv_2d::Spec;
use delegraph_shaders::unary::Unary;
use delegraph_shaders::{
    Activation, Binding, Caps, Epilogue, FixedChannel, IntegerResult, Integers, Scaling, Shader, Sums, Terms,
    are_halves, halves,
};

use crate::gpu::{assert_close, bytes, gpu, noise};

fn spec(input: [u32; 4], filter: [u32; 4], stride: u32, dilation: u32, same: bool) -> Spec {
    let mut output = [input[0], 0, 0, filter[0]];
    let mut padding = [0; 2];
    for d in 0..2 {
        let reach = (filter[1 + d] - 1) * dilation + 1;
        output[1 + d] =
            if same { input[1 + d].div_ceil(stride) } else { (input[1 + d] - reach) / stride + 1 };
        let needed = ((output[1 + d] - 1) * stride + reach).saturating_sub(input[1 + d]);
        padding[d] = (needed / 2) as i32;
    }
    Spec {
        input,
        output,
        filter,
        stride: [stride; 2],
        dilation: [dilation; 2],
        padding,
        epilogue: Epilogue::default(),
    }
}

fn activate(activation: Activation, v: f32, slope: f32) -> f32 {
    match activation {
        Activation::None => v,
        Activation::Unary(Unary::Clamp { min, max }) => v.max(min).min(max),
        Activation::Unary(Unary::Tanh) => v.tanh(),
        Activation::Prelu if v > 0.0 => v,
        Activation::Prelu => v * slope,
        other => panic!("no reference for {other:?}"),
    }
}

fn reference(
    spec: &Spec,
    input: &[f32],
    filter: &[f32],
    bias: &[f32],
    residual: &[f32],
    slope: &[f32],
) -> Vec<f32> {
    let [batch, in_h, in_w, in_c] = spec.input.map(|n| n as usize);
    let [_, out_h, out_w, out_c] = spec.output.map(|n| n as usize);
    let [_, kernel_h, kernel_w, group_c] = spec.filter.map(|n| n as usize);
    let group_out = out_c / (in_c / group_c);
    let mut output = Vec::new();
    for (n, y, x, o) in (0..batch * out_h * out_w * out_c)
        .map(|i| (i / (out_h * out_w * out_c), i / (out_w * out_c) % out_h, i / out_c % out_w, i % out_c))
    {
        let mut sum = f64::from(bias[o]);
        for (ky, kx) in (0..kernel_h * kernel_w).map(|k| (k / kernel_w, k % kernel_w)) {
            let at = |i: usize, k: usize, d: usize, size: usize| {
                let at = i as i64 * i64::from(spec.stride[d]) + k as i64 * i64::from(spec.dilation[d])
                    - i64::from(spec.padding[d]);
                usize::try_from(at).ok().filter(|at| *at < size)
            };
            let (Some(iy), Some(ix)) = (at(y, ky, 0, in_h), at(x, kx, 1, in_w)) else { continue };
            for c in 0..group_c {
                let v = input[((n * in_h + iy) * in_w + ix) * in_c + o / group_out * group_c + c];
                sum += f64::from(v) * f64::from(filter[((o * kernel_h + ky) * kernel_w + kx) * group_c + c]);
            }
        }
        let mut v = activate(spec.epilogue.activation, sum as f32, slope[o]);
        if let Some(after) = spec.epilogue.residual {
            v = activate(after, v + residual[output.len()], slope[o]);
        }
        output.push(v);
    }
    output
}

/// Compares the kernels of all devices.
#[track_caller]
fn check(spec: &Spec) {
    check_kernels(spec, false);
}

/// Compares the kernels of all tiles, too.
#[track_caller]
fn check_tiles(spec: &Spec) {
    check_kernels(spec, true);
}

#[track_caller]
fn check_kernels(spec: &Spec, tiles: bool) {
    let Some(gpu) = gpu() else { return };
    let count = |shape: [u32; 4]| shape.iter().product::<u32>() as usize;
    let (input, filter) = (noise(count(spec.input), 1), noise(count(spec.filter), 2));
    let channels = spec.output[3] as usize;
    let (bias, slope) = (noise(channels, 3), noise(channels, 4));
    let residual = noise(count(spec.output), 5);
    let packed = spec.pack_weights(&filter, Some(&bias));
    let operands = [
        (Binding::Input(0), bytes(&input)),
        (Binding::Weights, bytes(&packed)),
        (Binding::Residual, bytes(&residual)),
        (Binding::Slope, bytes(&slope)),
    ];
    let expected = reference(spec, &input, &filter, &bias, &residual, &slope);
    let caps = [gpu.caps, gpu.caps.without_subgroups(), Caps::WEBGPU];
    let chosen = caps.iter().map(|caps| spec.kernel(caps).unwrap());
    let tiles = if tiles { spec.candidates(&gpu.caps.with_software(false)).unwrap() } else { Vec::new() };
    for kernel in chosen.chain(tiles) {
        let actual = gpu.run(&kernel, &operands, count(spec.output));
        assert_close(&format!("{} {spec:?}", kernel.variant.key), &actual, &expected);
    }
}

#[test]
fn weights_of_16_bits() {
    let Some(gpu) = gpu() else { return };
    for (input, filter) in
        [([1, 5, 5, 8], [24, 3, 3, 8]), ([1, 4, 4, 7], [5, 1, 1, 7]), ([1, 1, 1, 64], [10, 1, 1, 64])]
    {
        let plain = spec(input, filter, 1, 1, true);
        let count = |shape: [u32; 4]| shape.iter().product::<u32>() as usize;
        let input = noise(count(plain.input), 1);
        // Multiples of 1/16, which are exact in 16 bits.
        let filter: Vec<f32> =
            noise(count(plain.filter), 2).iter().map(|w| (w * 16.0).round() / 16.0).collect();
        let channels = plain.output[3] as usize;
        let (bias, zeros) = (noise(channels, 3), vec![0.0; channels]);
        assert!(are_halves(&filter));
        let packed = halves(&plain.pack_weights(&filter, Some(&bias)), channels.next_multiple_of(4));
        let packed: Vec<u8> = packed.iter().flat_map(|word| word.to_le_bytes()).collect();
        let expected = reference(&plain, &input, &filter, &bias, &[], &zeros);
        let halved = Spec { epilogue: Epilogue { halves: true, ..plain.epilogue }, ..plain };
        for caps in [gpu.caps, Caps::WEBGPU] {
            let kernel = halved.kernel(&caps).unwrap();
            let operands = [(Binding::Input(0), bytes(&input)), (Binding::Weights, packed.as_slice())];
            let actual = gpu.run(&kernel, &operands, count(halved.output));
            assert_close(kernel.variant.key.as_str(), &actual, &expected);
        }
    }
}

/// Products of 16-bit operands by matrix units, where the device has them.
#[test]
fn matrices() {
    let Some(gpu) = gpu() else { return };
    if !gpu.matrices {
        return eprintln!("skipped: {} has no matrix units that kernels can use", gpu.adapter);
    }
    let count = |shape: [u32; 4]| shape.iter().product::<u32>() as usize;
    // Multiples of 1/16, which are exact in 16 bits.
    let coarse =
        |count, seed| -> Vec<f32> { noise(count, seed).iter().map(|v| (v * 16.0).round() / 16.0).collect() };
    let narrow = |values: &[f32]| -> Vec<u8> {
        let pairs = halves(values, 0);
        pairs.iter().flat_map(|word| word.to_le_bytes()).collect()
    };
    for (input, filter, stride) in [
        ([1, 13, 11, 40], [150, 1, 1, 40], 1),
        ([2, 9, 8, 20], [70, 3, 3, 20], 1),
        ([1, 9, 8, 6], [34, 3, 3, 6], 2),
        ([1, 24, 25, 64], [200, 3, 3, 64], 1),
    ] {
        let plain = spec(input, filter, stride, 1, true);
        let (input, filter) = (coarse(count(plain.input), 1), coarse(count(plain.filter), 2));
        let channels = plain.output[3] as usize;
        let bias = coarse(channels, 3);
        let expected = reference(&plain, &input, &filter, &bias, &[], &vec![0.0; channels]);
        let (input, weights) = (narrow(&input), narrow(&plain.pack_weights(&filter, Some(&bias))));
        let operands = [(Binding::Input(0), input.as_slice()), (Binding::Weights, weights.as_slice())];
        let mut ran = 0;
        for mut kernel in plain.candidates(&gpu.caps.with_matrices(true)).unwrap() {
            ran += u32::from(kernel.variant.features.matrices);
            // The first two bindings: input and weights.
            kernel.variant = kernel.variant.with_halves(0b11);
            let actual = gpu.run(&kernel, &operands, count(plain.output));
            assert_close(&format!("{} {plain:?}", kernel.variant.key), &actual, &expected);
        }
        assert!(ran > 0, "no kernel uses matrix units");
    }
}

#[test]
fn pointwise() {
    check(&spec([1, 7, 9, 16], [24, 1, 1, 16], 1, 1, true));
    check(&spec([2, 5, 3, 8], [4, 1, 1, 8], 1, 1, true));
    check(&spec([1, 1, 1, 32], [20, 1, 1, 32], 1, 1, true));
    check(&spec([1, 9, 9, 16], [24, 1, 1, 16], 2, 1, true));
    check(&spec([1, 9, 9, 16], [16, 1, 1, 16], 1, 1, true));
    check(&spec([1, 9, 9, 16], [100, 1, 1, 16], 1, 1, true));
}

#[test]
fn single_pixels() {
    check(&spec([1, 1, 1, 300], [40, 1, 1, 300], 1, 1, true));
    check(&spec([1, 3, 3, 8], [24, 3, 3, 8], 1, 1, false));
    check(&spec([1, 3, 3, 7], [5, 3, 3, 7], 1, 1, false));
    check(&spec([1, 5, 5, 8], [16, 3, 3, 4], 3, 1, false));
}

#[test]
fn tiles() {
    check_tiles(&spec([1, 13, 11, 40], [150, 1, 1, 40], 1, 1, true));
    check_tiles(&spec([2, 9, 8, 20], [70, 3, 3, 20], 1, 1, true));
    check_tiles(&spec([1, 9, 8, 7], [33, 3, 3, 7], 2, 1, true));
    check_tiles(&spec([1, 4, 5, 3], [7, 3, 3, 3], 1, 2, true));
    let epilogue = Epilogue { residual: Some(Activation::RELU6), ..Epilogue::activation(Activation::Prelu) };
    check_tiles(&Spec { epilogue, ..spec([1, 6, 7, 12], [20, 1, 1, 12], 1, 1, true) });
}

#[test]
fn tiles_of_integers_agree() {
    let Some(gpu) = gpu() else { return };
    let integer =
        |seed, count| -> Vec<i32> { noise(count, seed).iter().map(|v| (v * 128.0) as i32).collect() };
    // Sums of up to 2^24 are exact in floats; larger ones are added block by block.
    for (filter, blocks) in [([20, 3, 3, 6], false), ([20, 3, 3, 128], true)] {
        let plain = spec([1, 7, 6, filter[3]], filter, 1, 1, true);
        let depth = filter[1..].iter().product::<u32>();
        let weights = u64::from(depth) * 127;
        let terms = Terms { count: depth.into(), input: 131, weight: 127, weights, wraps: true };
        let sums = Sums::of(terms).unwrap();
        assert_eq!(matches!(sums, Sums::Blocks(_)), blocks);
        let scaling = Scaling::Narrow;
        let result = IntegerResult::Fixed { scaling, zero: 0, low: -128, high: 127, tail: [u32::MAX, 0] };
        let integers = Integers { input_zero: 3, weight_zero: 0, bits: 8, sums, result };
        let whole = Spec { epilogue: Epilogue::of_integers(Activation::None, integers), ..plain };
        let count = |shape: [u32; 4]| shape.iter().product::<u32>() as usize;
        let filter: Vec<i8> = integer(2, count(whole.filter)).iter().map(|v| *v as i8).collect();
        let channel = FixedChannel { bias: 77, multiplier: 1 << 30, shift: -9, up: true };
        let channels: Vec<u32> = (0..whole.output[3]).flat_map(|_| channel.words()).collect();
        let packed = whole.pack_integers(&filter, &channels);
        let input = integer(1, count(whole.input));
        let bytes = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
        let (input, packed) = (bytes(bytemuck::cast_slice(&input)), bytes(&packed));
        let operands = [(Binding::Input(0), input.as_slice()), (Binding::Weights, packed.as_slice())];
        let kernels = whole.candidates(&gpu.caps.with_software(false)).unwrap();
        let results: Vec<Vec<i32>> =
            kernels.iter().map(|kernel| gpu.run(kernel, &operands, count(whole.output))).collect();
        assert!(results.len() > 4 && results[0].iter().any(|v| *v > -128 && *v < 127 && *v != 0));
        for (kernel, result) in kernels.iter().zip(&results) {
            assert_eq!(result, &results[0], "{}", kernel.variant.key);
        }
    }
}

#[test]
fn odd_channels() {
    for (in_c, out_c) in [(3, 8), (5, 7), (8, 1), (1, 4), (6, 21), (4, 2)] {
        check(&spec([1, 6, 7, in_c], [out_c, 1, 1, in_c], 1, 1, true));
        check(&spec([1, 6, 7, in_c], [out_c, 3, 3, in_c], 1, 1, true));
    }
}

#[test]
fn strides_dilations_and_paddings() {
    for (stride, dilation) in [(1, 1), (2, 1), (3, 1), (1, 2), (1, 5)] {
        for same in [true, false] {
            check(&spec([2, 13, 12, 4], [8, 3, 3, 4], stride, dilation, same));
            check(&spec([1, 13, 12, 3], [8, 3, 2, 3], stride, dilation, same));
        }
    }
}

#[test]
fn explicit_padding_beyond_the_kernel() {
    let mut wide = spec([1, 5, 5, 4], [4, 3, 3, 4], 1, 1, true);
    wide.padding = [4, 5];
    wide.output = [1, 11, 13, 4];
    check(&wide);
    let mut cropped = spec([1, 9, 9, 4], [4, 3, 3, 4], 1, 1, true);
    cropped.padding = [-2, -1];
    cropped.output = [1, 5, 6, 4];
    check(&cropped);
}

#[test]
fn groups() {
    check(&spec([1, 6, 5, 8], [8, 3, 3, 4], 1, 1, true));
    check(&spec([1, 6, 5, 6], [24, 3, 3, 1], 2, 1, true));
    check(&spec([1, 6, 5, 9], [12, 1, 1, 3], 1, 1, true));
    check(&spec([1, 6, 5, 8], [6, 3, 3, 4], 1, 1, true));
    check(&spec([1, 6, 5, 12], [9, 3, 3, 4], 1, 2, true));
    check(&spec([1, 6, 5, 4], [4, 3, 3, 1], 1, 1, true));
    check(&spec([1, 6, 5, 16], [40, 1, 1, 8], 1, 1, true));
}

#[test]
fn epilogues() {
    for channels in [8, 7] {
        let plain = spec([1, 5, 6, 8], [channels, 3, 3, 8], 1, 1, true);
        for activation in [Activation::RELU, Activation::Prelu, Activation::Unary(Unary::Tanh)] {
            for residual in [None, Some(Activation::None), Some(Activation::RELU6), Some(Activation::Prelu)] {
                check(&Spec {
                    epilogue: Epilogue { residual, ..Epilogue::activation(activation) },
                    ..plain.clone()
                });
            }
        }
    }
}

#[test]
fn shapes_that_contradict_each_other_are_errors() {
    let mut wrong = spec([1, 5, 5, 8], [8, 3, 3, 8], 1, 1, true);
    wrong.output[3] = 9;
    assert!(wrong.kernel(&delegraph_shaders::Caps::WEBGPU).is_err());
    let huge = spec([1, 1 << 15, 1 << 15, 8], [8, 1, 1, 8], 1, 1, true);
    assert!(huge.kernel(&delegraph_shaders::Caps::WEBGPU).is_err());
}
