//! Models whose values and weights have 16 bits on the GPU, compared with the CPU's results in 32 bits.
//!
//! Models that are not in the cache (`make models` fetches them) are skipped with a message, as is everything without
//! an adapter that supports 16-bit floats.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use delegraph_core::{Model, ModelBytes};
use delegraph_delegate_api::DelegateStats;
use delegraph_delegate_wgpu::wgpu::Features;
use delegraph_delegate_wgpu::{Precision, WgpuDelegate, WgpuOptions, adapters};
use delegraph_interpreter::Interpreter;

/// Models, with the maximum difference relative to the largest element of an output, and the largest share of the device
/// memory of 32 bits. One rounding to 16 bits is 0.0005; a network of 100 layers adds up to 0.01.
const MODELS: [(&str, f64, f64); 5] = [
    ("face_detection_short_range.tflite", 0.01, 0.6),
    ("hand_landmark_full.tflite", 0.01, 0.6),
    ("iris_landmark.tflite", 0.01, 0.6),
    // The sigmoid of logits around -4, of noise: an error of 0.1 in a logit is 10% of such a result.
    ("selfie_segmentation.tflite", 0.15, 0.6),
    // Two thirds of the memory with 16 bits are the output and its read-back buffer, which have 32 bits.
    ("deeplabv3.tflite", 0.01, 0.85),
];

fn has_halves() -> bool {
    let has = adapters().first().is_some_and(|adapter| adapter.features.contains(Features::SHADER_F16));
    if !has {
        eprintln!("left out: no adapter with 16-bit floats (SHADER_F16)");
    }
    has
}

fn models() -> PathBuf {
    let home = || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".cache/delegraph");
    let cache = std::env::var_os("DELEGRAPH_CACHE").filter(|c| !c.is_empty());
    cache.map_or_else(home, PathBuf::from).join("models")
}

fn delegate(precision: Precision) -> WgpuDelegate {
    WgpuDelegate::new(WgpuOptions::default().with_precision(precision)).unwrap()
}

/// The outputs for inputs in [0, 1), the same in every run.
fn outputs(interpreter: &mut Interpreter) -> Vec<Vec<f32>> {
    for i in 0..interpreter.input_count() {
        let mut state = 1_u32;
        for element in interpreter.input_mut::<f32>(i).unwrap() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *element = (state >> 8) as f32 / 16_777_216.0;
        }
    }
    interpreter.invoke().unwrap();
    (0..interpreter.output_count()).map(|i| interpreter.output::<f32>(i).unwrap().to_vec()).collect()
}

fn device_bytes(interpreter: &Interpreter) -> u64 {
    interpreter.delegate_stats().iter().map(|stats: &DelegateStats| stats.device_bytes).sum()
}

/// Returns the largest relative error, and the share of device memory.
fn compare(model: &Model) -> (f64, f64) {
    let build =
        |precision| Interpreter::builder(model.clone()).delegate(delegate(precision)).build().unwrap();
    let mut cpu = Interpreter::builder(model.clone()).build().unwrap();
    let (single, mut half) = (build(Precision::F32), build(Precision::F16));
    assert!(half.report().failures.is_empty(), "{:?}", half.report().failures);
    assert!(single.half_tensors().iter().all(Vec::is_empty));
    assert!(half.half_tensors().iter().any(|tensors| !tensors.is_empty()));
    let mut error = 0.0_f64;
    for (want, got) in outputs(&mut cpu).iter().zip(outputs(&mut half)) {
        let largest = want.iter().fold(1e-6_f32, |m, v| m.max(v.abs()));
        for (w, g) in want.iter().zip(got) {
            assert!(g.is_finite() || !w.is_finite(), "{g} instead of {w}");
            error = error.max(f64::from((w - g).abs() / largest));
        }
    }
    (error, device_bytes(&half) as f64 / device_bytes(&single) as f64)
}

#[test]
fn real_models_keep_the_precision_of_16_bits_in_half_of_the_memory() {
    if !has_halves() {
        return;
    }
    let mut failed = Vec::new();
    for (name, max_error, max_share) in MODELS {
        let path = models().join(name);
        let Ok(bytes) = std::fs::read(&path) else {
            eprintln!("left out: {name} is not in the cache");
            continue;
        };
        let model = Model::from_bytes_named(ModelBytes::new(bytes), path).unwrap();
        let (error, share) = compare(&model);
        println!("{name}: error {error:.5}, {share:.2} of the memory");
        if error > max_error || share > max_share {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
