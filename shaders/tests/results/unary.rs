//! Unary functions on the adapter, against plain Rust.

use delegraph_shaders::unary::{Spec, Unary};
use delegraph_shaders::{Binding, Shader};

use crate::gpu::{assert_close, bytes, gpu, noise};

fn reference(op: Unary, x: f32) -> f32 {
    // In f64 where the usual formula loses digits.
    let d = f64::from(x);
    match op {
        Unary::Abs => x.abs(),
        Unary::Affine { scale, offset } => x * scale + offset,
        Unary::Cbrt => d.cbrt() as f32,
        Unary::Ceil => x.ceil(),
        Unary::Clamp { min, max } => {
            if x.is_nan() {
                x
            } else {
                x.max(min).min(max)
            }
        }
        Unary::Cos => d.cos() as f32,
        Unary::Elu => {
            if x > 0.0 {
                x
            } else {
                d.exp_m1() as f32
            }
        }
        Unary::Exp => d.exp() as f32,
        Unary::Floor => x.floor(),
        Unary::Gelu => (0.5 * d * (1.0 + erf(d / 2.0_f64.sqrt()))) as f32,
        Unary::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (d + 0.044715 * d * d * d);
            (0.5 * d * (1.0 + inner.tanh())) as f32
        }
        Unary::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Unary::LeakyRelu { alpha } => {
            if x > 0.0 {
                x
            } else {
                x * alpha
            }
        }
        Unary::Log => d.ln() as f32,
        Unary::Logistic => (1.0 / (1.0 + (-d).exp())) as f32,
        Unary::Neg => -x,
        Unary::Round => x.round_ties_even(),
        Unary::Rsqrt => (1.0 / d.sqrt()) as f32,
        Unary::Sign => {
            if x == 0.0 {
                0.0
            } else {
                x.signum()
            }
        }
        Unary::Sin => d.sin() as f32,
        Unary::Sqrt => x.sqrt(),
        Unary::Square => x * x,
        Unary::Tanh => d.tanh() as f32,
    }
}

/// The error function by its Taylor series (|x| <= 5) or its limit.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[track_caller]
fn check(steps: &[Unary], input: &[f32]) {
    let Some(gpu) = gpu() else { return };
    let spec = Spec { steps: steps.to_vec(), elements: input.len() as u32 };
    let expected: Vec<f32> = input.iter().map(|x| steps.iter().fold(*x, |x, op| reference(*op, x))).collect();
    for caps in [gpu.caps, gpu.caps.with_software(false)] {
        let kernel = spec.kernel(&caps).unwrap();
        let actual = gpu.run(&kernel, &[(Binding::Input(0), bytes(input))], input.len());
        assert_close(kernel.variant.key.as_str(), &actual, &expected);
    }
}

#[test]
fn functions_near_zero() {
    let input: Vec<f32> = noise(1024, 1).iter().map(|x| x * 8.0).collect();
    let positive: Vec<f32> = input.iter().map(|x| x.abs() + 1e-3).collect();
    for &op in Unary::EVERY {
        let defined = if matches!(op, Unary::Log | Unary::Sqrt | Unary::Rsqrt) { &positive } else { &input };
        check(&[op], defined);
        check(&[op], &defined[..77]);
    }
}

#[test]
fn several_items_of_an_invocation() {
    // Two items of most invocations, and one item or none of the last ones.
    let input = noise(2 * 128 * 8192 + 301, 3);
    check(&[Unary::Abs], &input);
}

#[test]
fn halves_round_to_even() {
    check(&[Unary::Round], &[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 0.49999997]);
}

#[test]
fn far_values_saturate() {
    let input = [-1e30, -1e4, -100.0, -89.0, 89.0, 100.0, 1e4, 1e30];
    for op in [Unary::Tanh, Unary::Logistic, Unary::Gelu, Unary::Elu, Unary::HardSwish, Unary::RELU6] {
        check(&[op], &input);
    }
    check(&[Unary::GeluTanh], &[-100.0, -30.0, 30.0, 100.0]);
    check(&[Unary::Exp], &[-200.0, -88.0, -20.0, 0.0]);
}

#[test]
fn angles_far_from_zero() {
    let input: Vec<f32> = noise(512, 2).iter().map(|x| x * 1000.0).collect();
    check(&[Unary::Sin], &input);
    check(&[Unary::Cos], &input);
    // All magnitudes of floats, as scalars and as vectors of four.
    let mut far: Vec<f32> = (0..=1000).map(|i| 10f32.powf(4.0 + 34.5 * i as f32 / 1000.0)).collect();
    far.extend([16_367.173, 1e22, f32::MAX, -f32::MAX, -1e10]);
    far.retain(|x| x.is_finite());
    for op in [Unary::Sin, Unary::Cos] {
        check(&[op], &far);
        check(&[op], &far[..1000]);
        check(&[op, Unary::Abs], &[f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    }
}

#[test]
fn clamping_keeps_nan() {
    let Some(gpu) = gpu() else { return };
    let numbers = [f32::INFINITY, f32::NEG_INFINITY, 1.0, -1.0];
    check(&[Unary::RELU6], &numbers);
    check(&[Unary::RELU], &numbers);
    if !gpu.caps.software {
        // WGSL does not guarantee that NaN is kept: a compiler may assume that there is no NaN, and NVIDIA's does.
        return eprintln!("skipped: NaN on {}", gpu.adapter);
    }
    check(&[Unary::RELU6], &[f32::NAN]);
    check(&[Unary::RELU], &[f32::NAN]);
}

#[test]
fn chains_apply_in_order() {
    let input = noise(300, 3);
    check(&[], &input);
    check(&[Unary::Affine { scale: 3.0, offset: 1.0 }, Unary::RELU, Unary::Tanh, Unary::Neg], &input);
}

#[test]
fn tensors_longer_than_one_row_of_workgroups() {
    let input = noise(65_536 * 64 + 3, 4);
    check(&[Unary::RELU], &input);
}
