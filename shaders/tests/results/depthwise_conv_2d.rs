//! Depthwise convolutions on the adapter, against plain Rust.

use delegraph_shaders::depthwise_conv_2d::Spec;
use delegraph_shaders::{Activation, Binding, Caps, Epilogue, Shader};

use crate::gpu::{assert_close, bytes, count, flat, gpu, indices, noise};

fn spec(input: [u32; 4], multiplier: u32, window: [u32; 2], stride: u32, dilation: u32, same: bool) -> Spec {
    let mut output = [input[0], 0, 0, input[3] * multiplier];
    let mut padding = [0; 2];
    for d in 0..2 {
        let reach = (window[d] - 1) * dilation + 1;
        output[1 + d] =
            if same { input[1 + d].div_ceil(stride) } else { (input[1 + d] - reach) / stride + 1 };
        let needed = ((output[1 + d] - 1) * stride + reach).saturating_sub(input[1 + d]);
        padding[d] = (needed / 2) as i32;
    }
    Spec {
        input,
        output,
        window,
        stride: [stride; 2],
        dilation: [dilation; 2],
        padding,
        epilogue: Epilogue::default(),
    }
}

fn reference(spec: &Spec, input: &[f32], filter: &[f32], bias: &[f32], residual: &[f32]) -> Vec<f32> {
    let channels = spec.output[3];
    let multiplier = channels / spec.input[3];
    let outputs = indices(&spec.output);
    let sum = |i: &[u32]| -> f64 {
        let taps = indices(&spec.window);
        let products = taps.iter().filter_map(|k| {
            let at = |d: usize| {
                let at = i[1 + d] * spec.stride[d] + k[d] * spec.dilation[d];
                u32::try_from(at as i32 - spec.padding[d]).ok().filter(|at| *at < spec.input[1 + d])
            };
            let v = input[flat(&spec.input, &[i[0], at(0)?, at(1)?, i[3] / multiplier])];
            let w = filter[flat(&[spec.window[0], spec.window[1], channels], &[k[0], k[1], i[3]])];
            Some(f64::from(v) * f64::from(w))
        });
        products.sum()
    };
    outputs
        .iter()
        .zip(residual)
        .map(|(i, residual)| {
            let v = (sum(i) + f64::from(bias[i[3] as usize])) as f32;
            let v = if spec.epilogue.activation == Activation::RELU6 { v.clamp(0.0, 6.0) } else { v };
            if spec.epilogue.residual.is_some() { v + residual } else { v }
        })
        .collect()
}

#[track_caller]
fn check(spec: &Spec) {
    let Some(gpu) = gpu() else { return };
    let channels = spec.output[3] as usize;
    let input = noise(count(&spec.input), 1);
    let filter = noise((spec.window[0] * spec.window[1]) as usize * channels, 2);
    let (bias, residual) = (noise(channels, 3), noise(count(&spec.output), 4));
    let packed = spec.pack_weights(&filter, Some(&bias));
    let operands = [
        (Binding::Input(0), bytes(&input)),
        (Binding::Weights, bytes(&packed)),
        (Binding::Residual, bytes(&residual)),
    ];
    let expected = reference(spec, &input, &filter, &bias, &residual);
    for caps in [gpu.caps, Caps::WEBGPU] {
        let kernel = spec.kernel(&caps).unwrap();
        let actual = gpu.run(&kernel, &operands, expected.len());
        assert_close(&format!("{} {spec:?}", kernel.variant.key), &actual, &expected);
    }
}

#[test]
fn windows_and_strides() {
    for window in [[3, 3], [5, 5], [3, 1], [1, 5], [1, 1], [7, 7]] {
        for stride in [1, 2, 3] {
            for same in [true, false] {
                check(&spec([1, 14, 13, 8], 1, window, stride, 1, same));
            }
        }
    }
}

#[test]
fn dilations() {
    for dilation in [2, 3, 4] {
        check(&spec([1, 13, 14, 8], 1, [3, 3], 1, dilation, true));
        check(&spec([2, 13, 14, 4], 1, [3, 3], 1, dilation, false));
        check(&spec([1, 13, 14, 4], 1, [3, 3], 2, dilation, true));
        check(&spec([1, 13, 14, 3], 1, [3, 3], 1, dilation, true));
    }
}

/// There are fewer outputs than phases of the dilation, and products of the dilation exceed 32 bits.
#[test]
fn dilations_beyond_the_input() {
    for dilation in [14, 40, 1 << 30, i32::MAX as u32] {
        for channels in [8, 3] {
            let plain = spec([2, 9, 13, channels], 1, [3, 1], 1, 1, true);
            check(&Spec { dilation: [1, dilation], ..plain });
            let plain = spec([1, 9, 13, channels], 1, [1, 3], 1, 1, true);
            check(&Spec { dilation: [dilation, 1], ..plain });
            // Windows of which only the first, the middle or the last column meets the input.
            for padding in [0, dilation.min(1 << 29) as i32, 7] {
                let plain = spec([1, 9, 13, channels], 1, [1, 2], 1, 1, true);
                check(&Spec { dilation: [1, dilation.min(1 << 30)], padding: [0, padding], ..plain });
            }
        }
    }
}

#[test]
fn odd_channels_and_multipliers() {
    for (channels, multiplier) in [(5, 1), (1, 8), (3, 2), (4, 2), (8, 3)] {
        check(&spec([2, 7, 6, channels], multiplier, [3, 3], 1, 1, true));
        check(&spec([1, 7, 6, channels], multiplier, [3, 3], 2, 1, true));
    }
}

#[test]
fn long_strips() {
    check(&spec([1, 70, 66, 16], 1, [3, 3], 1, 1, true));
    check(&spec([1, 70, 66, 16], 1, [5, 5], 2, 1, true));
    check(&spec([3, 50, 3, 4], 1, [3, 3], 1, 2, true));
}

#[test]
fn epilogues() {
    for channels in [8, 3] {
        let plain = spec([1, 9, 9, channels], 1, [3, 3], 1, 1, true);
        let epilogue =
            Epilogue { residual: Some(Activation::None), ..Epilogue::activation(Activation::RELU6) };
        check(&Spec { epilogue, ..plain.clone() });
        check(&Spec { epilogue: Epilogue::activation(Activation::RELU6), ..plain });
    }
}

#[test]
fn shapes_that_contradict_each_other_are_errors() {
    let mut wrong = spec([1, 5, 5, 8], 1, [3, 3], 1, 1, true);
    wrong.output[3] = 12;
    assert!(wrong.kernel(&Caps::WEBGPU).is_err());
}
