//! Transposed convolutions on the adapter, against plain Rust.

use delegraph_shaders::transpose_conv::Spec;
use delegraph_shaders::{Activation, Binding, Caps, Epilogue, Shader};

use crate::gpu::{assert_close, bytes, count, flat, gpu, indices, noise};

/// Scatters every input pixel, by definition.
fn reference(spec: &Spec, input: &[f32], filter: &[f32], bias: &[f32], residual: &[f32]) -> Vec<f32> {
    let channels = spec.output[3] as usize;
    let mut sums: Vec<f64> = (0..count(&spec.output)).map(|i| f64::from(bias[i % channels])).collect();
    for i in indices(&spec.input) {
        for k in indices(&spec.filter) {
            if k[3] != i[3] {
                continue;
            }
            let at = |d: usize| {
                let at = i64::from(i[1 + d] * spec.stride[d] + k[1 + d]) - i64::from(spec.padding[d]);
                u32::try_from(at).ok().filter(|at| *at < spec.output[1 + d])
            };
            let (Some(y), Some(x)) = (at(0), at(1)) else { continue };
            let product = f64::from(input[flat(&spec.input, &i)]) * f64::from(filter[flat(&spec.filter, &k)]);
            sums[flat(&spec.output, &[i[0], y, x, k[0]])] += product;
        }
    }
    let relu = spec.epilogue.activation == Activation::RELU;
    let add = spec.epilogue.residual.is_some();
    sums.iter()
        .zip(residual)
        .map(|(sum, residual)| {
            let v = if relu { sum.max(0.0) as f32 } else { *sum as f32 };
            if add { v + residual } else { v }
        })
        .collect()
}

#[track_caller]
fn check(input: [u32; 4], filter: [u32; 4], stride: [u32; 2], padding: [u32; 2], size: [u32; 2]) {
    let epilogue = Epilogue { residual: Some(Activation::None), ..Epilogue::activation(Activation::RELU) };
    let Some(gpu) = gpu() else { return };
    let output = [input[0], size[0], size[1], filter[0]];
    let spec = Spec { input, output, filter, stride, padding, epilogue };
    let (x, w) = (noise(count(&input), 1), noise(count(&filter), 2));
    let (bias, residual) = (noise(filter[0] as usize, 3), noise(count(&output), 4));
    let packed = spec.pack_weights(&w, Some(&bias));
    let operands = [
        (Binding::Input(0), bytes(&x)),
        (Binding::Weights, bytes(&packed)),
        (Binding::Residual, bytes(&residual)),
    ];
    let expected = reference(&spec, &x, &w, &bias, &residual);
    for caps in [gpu.caps, gpu.caps.without_subgroups(), Caps::WEBGPU] {
        let kernel = spec.kernel(&caps).unwrap();
        let actual = gpu.run(&kernel, &operands, expected.len());
        assert_close(&format!("{} {spec:?}", kernel.variant.key), &actual, &expected);
    }
}

#[test]
fn window_as_large_as_the_stride() {
    check([1, 5, 6, 16], [1, 2, 2, 16], [2, 2], [0, 0], [10, 12]);
    check([2, 3, 4, 8], [20, 2, 2, 8], [2, 2], [0, 0], [6, 8]);
}

#[test]
fn overlapping_windows() {
    check([1, 5, 6, 8], [12, 3, 3, 8], [2, 2], [0, 0], [11, 13]);
    check([1, 5, 6, 8], [12, 3, 3, 8], [2, 2], [1, 1], [9, 11]);
    check([1, 5, 6, 4], [8, 4, 4, 4], [2, 2], [1, 1], [10, 12]);
    check([1, 5, 6, 3], [5, 5, 4, 3], [3, 2], [2, 1], [15, 12]);
    check([1, 7, 6, 4], [6, 3, 3, 4], [1, 1], [1, 1], [7, 6]);
    check([1, 3, 3, 8], [6, 3, 3, 8], [1, 1], [2, 2], [1, 1]);
}

#[test]
fn strides_beyond_the_window() {
    check([1, 3, 4, 4], [8, 2, 1, 4], [3, 3], [0, 0], [9, 12]);
}

#[test]
fn shapes_that_contradict_each_other_are_errors() {
    let epilogue = Epilogue::default();
    let spec = Spec {
        input: [1, 2, 2, 4],
        output: [1, 4, 4, 8],
        filter: [8, 2, 2, 5],
        stride: [2, 2],
        padding: [0, 0],
        epilogue,
    };
    assert!(spec.kernel(&Caps::WEBGPU).is_err());
}
