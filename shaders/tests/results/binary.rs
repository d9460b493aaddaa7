//! Binary operators on the adapter, against plain Rust.

use delegraph_shaders::binary::{Binary, Spec};
use delegraph_shaders::{Activation, Binding, Element, Shader};

use crate::gpu::{assert_close, bytes, gpu, indices, noise};

fn reference(op: Binary, a: f32, b: f32) -> f32 {
    let truth = |t: bool| f32::from(u8::from(t));
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::FloorDiv => (a / b).floor(),
        Binary::FloorMod => a - b * (a / b).floor(),
        Binary::Minimum => a.min(b),
        Binary::Maximum => a.max(b),
        Binary::Pow => a.powf(b),
        Binary::SquaredDifference => (a - b) * (a - b),
        Binary::Prelu => {
            if a > 0.0 {
                a
            } else {
                a * b
            }
        }
        Binary::Atan2 => a.atan2(b),
        Binary::BitwiseXor => (a as i32 ^ b as i32) as f32,
        Binary::BitwiseAnd => (a as i32 & b as i32) as f32,
        Binary::BitwiseOr => (a as i32 | b as i32) as f32,
        Binary::ShiftRight => (a as i32 >> (b as i32).clamp(0, 31)) as f32,
        Binary::ShiftLeft => u32::try_from(b as i32).map_or(0.0, |b| (a as i32).unbounded_shl(b) as f32),
        Binary::Remainder => a % b,
        Binary::Equal => truth(a == b),
        Binary::NotEqual => truth(a != b),
        Binary::Less => truth(a < b),
        Binary::LessEqual => truth(a <= b),
        Binary::Greater => truth(a > b),
        Binary::GreaterEqual => truth(a >= b),
        Binary::LogicalAnd => truth(a != 0.0 && b != 0.0),
        Binary::LogicalOr => truth(a != 0.0 || b != 0.0),
    }
}

const FLOAT: [Binary; 19] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::FloorDiv,
    Binary::FloorMod,
    Binary::Remainder,
    Binary::Minimum,
    Binary::Maximum,
    Binary::Pow,
    Binary::Atan2,
    Binary::SquaredDifference,
    Binary::Prelu,
    Binary::Equal,
    Binary::NotEqual,
    Binary::Less,
    Binary::LessEqual,
    Binary::Greater,
    Binary::GreaterEqual,
];

/// Element of an operand at a multi-index of the output, by NumPy's broadcasting.
fn at(values: &[f32], shape: &[u32], index: &[u32]) -> f32 {
    let skip = index.len() - shape.len();
    let flat = shape.iter().zip(&index[skip..]).fold(0, |flat, (extent, i)| flat * extent + (i % extent));
    values[flat as usize]
}

#[track_caller]
fn check(op: Binary, element: Element, a: &[u32], b: &[u32], output: &[u32]) {
    let Some(gpu) = gpu() else { return };
    let spec = Spec {
        op,
        element,
        a: a.to_vec(),
        b: b.to_vec(),
        output: output.to_vec(),
        activation: Activation::None,
    };
    let kernel = spec.kernel(&gpu.caps).unwrap();
    let value = |x: f32| match element {
        Element::F32 => (x * 5.0).round() / 2.0,
        Element::I32 | Element::U32 => (x * 9.0).round(),
        Element::Bool => f32::from(u8::from(x > 0.0)),
    };
    let values = |shape: &[u32], seed| -> Vec<f32> {
        noise(shape.iter().product::<u32>() as usize, seed).into_iter().map(value).collect()
    };
    let (x, mut y) = (values(a, 1), values(b, 2));
    if (op, element) == (Binary::Pow, Element::I32) {
        y.iter_mut().for_each(|y| *y = (y.abs() / 2.0).floor());
    }
    if matches!(op, Binary::Div | Binary::FloorDiv | Binary::FloorMod | Binary::Remainder) {
        y.iter_mut().filter(|y| **y == 0.0).for_each(|y| *y = 3.0);
    }
    let words = |values: &[f32]| -> Vec<u8> {
        let word = |v: &f32| match element {
            Element::F32 => v.to_le_bytes(),
            Element::I32 | Element::U32 => (*v as i32).to_le_bytes(),
            Element::Bool => (*v as u32).to_le_bytes(),
        };
        values.iter().flat_map(word).collect()
    };
    let operands = [(Binding::Input(0), words(&x)), (Binding::Input(1), words(&y))];
    let operands = operands.each_ref().map(|(at, bytes)| (*at, bytes.as_slice()));
    let count = output.iter().product::<u32>() as usize;
    let raw: Vec<u32> = gpu.run(&kernel, &operands, count);
    let actual: Vec<f32> = raw
        .iter()
        .map(|word| match element {
            _ if op.compares() => *word as f32,
            Element::F32 => f32::from_bits(*word),
            Element::I32 | Element::U32 => *word as i32 as f32,
            Element::Bool => *word as f32,
        })
        .collect();
    let expected: Vec<f32> = indices(output)
        .iter()
        .map(|index| {
            let v = reference(op, at(&x, a, index), at(&y, b, index));
            // Integer division rounds towards zero.
            if (op, element) == (Binary::Div, Element::I32) { v.trunc() } else { v }
        })
        .collect();
    assert_close(&format!("{} {a:?} {b:?}", kernel.variant.key), &actual, &expected);
}

#[test]
fn quotients_that_round_to_a_whole_number_are_rounded_down_all_the_same() {
    let Some(gpu) = gpu() else { return };
    // -9.9 / -3.3 is slightly below 3, but not as a float; 0.3 / 0.1 slightly above.
    let tenths = |n: i32| n as f32 / 10.0;
    let pairs: Vec<(f32, f32)> =
        (-60..60).flat_map(|n| [33, -33, 1, -1, 7].map(|d| (tenths(n * d), tenths(d)))).collect();
    let size = [pairs.len() as u32];
    for op in [Binary::FloorDiv, Binary::FloorMod] {
        let (a, b, output) = (size.to_vec(), size.to_vec(), size.to_vec());
        let spec = Spec { op, element: Element::F32, a, b, output, activation: Activation::None };
        let kernel = spec.kernel(&gpu.caps).unwrap();
        let bytes =
            |f: fn(&(f32, f32)) -> f32| pairs.iter().flat_map(|p| f(p).to_le_bytes()).collect::<Vec<u8>>();
        let (x, y) = (bytes(|p| p.0), bytes(|p| p.1));
        let actual: Vec<u32> =
            gpu.run(&kernel, &[(Binding::Input(0), &x), (Binding::Input(1), &y)], pairs.len());
        for ((x, y), actual) in pairs.iter().zip(actual) {
            let (wide_x, wide_y) = (f64::from(*x), f64::from(*y));
            let quotient = (wide_x / wide_y).floor();
            let expected = if op == Binary::FloorDiv { quotient } else { wide_x - quotient * wide_y };
            let (actual, allowed) = (f64::from(f32::from_bits(actual)), 1e-6 * wide_y.abs());
            let close = approx::abs_diff_eq!(actual, expected, epsilon = allowed);
            assert!(close, "{op:?} of {x} and {y}: {actual}, not {expected}");
        }
    }
}

#[test]
fn operators_on_floats() {
    for op in FLOAT {
        check(op, Element::F32, &[4, 4, 8], &[4, 4, 8], &[4, 4, 8]);
        check(op, Element::F32, &[5, 7], &[5, 7], &[5, 7]);
    }
}

#[test]
fn more_elements_than_fit_one_round() {
    check(Binary::Add, Element::F32, &[64, 64, 24], &[64, 64, 24], &[64, 64, 24]);
    check(Binary::Add, Element::F32, &[64, 64, 24], &[24], &[64, 64, 24]);
}

#[test]
fn operators_on_integers() {
    let floats_only = |op: &Binary| matches!(op, Binary::Atan2 | Binary::Prelu);
    let both = FLOAT.into_iter().filter(|op| !floats_only(op));
    use Binary::{BitwiseAnd, BitwiseOr, BitwiseXor, ShiftLeft, ShiftRight};
    for op in both.chain([BitwiseXor, BitwiseAnd, BitwiseOr, ShiftRight, ShiftLeft]) {
        check(op, Element::I32, &[4, 4, 8], &[4, 4, 8], &[4, 4, 8]);
        check(op, Element::I32, &[5, 7], &[5, 7], &[5, 7]);
    }
}

#[test]
fn operators_on_booleans() {
    for op in [Binary::LogicalAnd, Binary::LogicalOr, Binary::Equal, Binary::NotEqual] {
        check(op, Element::Bool, &[5, 8], &[5, 8], &[5, 8]);
        check(op, Element::Bool, &[5, 7], &[], &[5, 7]);
    }
}

#[test]
fn broadcasts() {
    let sub = |a: &[u32], b: &[u32], output: &[u32]| check(Binary::Sub, Element::F32, a, b, output);
    sub(&[2, 3, 5, 8], &[8], &[2, 3, 5, 8]);
    sub(&[8], &[2, 3, 5, 8], &[2, 3, 5, 8]);
    sub(&[2, 3, 5, 7], &[7], &[2, 3, 5, 7]);
    sub(&[2, 3, 5, 8], &[], &[2, 3, 5, 8]);
    sub(&[1], &[3, 5], &[3, 5]);
    sub(&[2, 6, 5, 8], &[2, 1, 1, 8], &[2, 6, 5, 8]);
    sub(&[2, 6, 5, 8], &[2, 6, 5, 1], &[2, 6, 5, 8]);
    sub(&[2, 1, 5, 1], &[1, 6, 1, 8], &[2, 6, 5, 8]);
    sub(&[2, 1, 3, 1, 2, 1], &[1, 3, 1, 2, 1, 5], &[2, 3, 3, 2, 2, 5]);
    sub(&[2, 1, 3, 1, 2, 1], &[1, 3, 1, 2, 1, 4], &[2, 3, 3, 2, 2, 4]);
    sub(&[4, 1], &[1, 4], &[4, 4]);
    // Long enough for several items per invocation.
    sub(&[3, 50, 61, 8], &[8], &[3, 50, 61, 8]);
    sub(&[3, 50, 1, 5], &[1, 61, 5], &[3, 50, 61, 5]);
}

#[test]
fn activates() {
    let Some(gpu) = gpu() else { return };
    let (a, b) = (noise(33, 1), noise(33, 2));
    let spec = Spec {
        op: Binary::Add,
        element: Element::F32,
        a: vec![33],
        b: vec![33],
        output: vec![33],
        activation: Activation::RELU_0_TO_1,
    };
    let kernel = spec.kernel(&gpu.caps).unwrap();
    let operands = [(Binding::Input(0), bytes(&a)), (Binding::Input(1), bytes(&b))];
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| (a + b).clamp(0.0, 1.0)).collect();
    assert_close("add with an activation", &gpu.run(&kernel, &operands, 33), &expected);
}

#[test]
fn powers_of_zero_and_of_negative_bases() {
    let Some(gpu) = gpu() else { return };
    let a = [0.0, 0.0, -2.0, -2.0, -2.0, -0.5, 3.0, -3.0];
    let b = [0.0, 2.0, 2.0, 3.0, -3.0, 0.0, 0.5, 0.5];
    let spec = Spec {
        op: Binary::Pow,
        element: Element::F32,
        a: vec![8],
        b: vec![8],
        output: vec![8],
        activation: Activation::None,
    };
    let operands = [(Binding::Input(0), bytes(&a)), (Binding::Input(1), bytes(&b))];
    let actual = gpu.run(&spec.kernel(&gpu.caps).unwrap(), &operands, 8);
    assert_close("pow", &actual, &[1.0, 0.0, 4.0, -8.0, -0.125, 1.0, 3.0_f32.sqrt(), f32::NAN]);
}

#[test]
fn shapes_that_do_not_broadcast_are_errors() {
    let spec = Spec {
        op: Binary::Add,
        element: Element::F32,
        a: vec![2, 3],
        b: vec![2],
        output: vec![2, 3],
        activation: Activation::None,
    };
    let error = spec.kernel(&delegraph_shaders::Caps::WEBGPU).unwrap_err();
    assert_eq!(error.to_string(), "binary: [2] does not broadcast to [2, 3]");
}

#[test]
fn angles_keep_the_signs_of_zeros_and_infinities() {
    let Some(gpu) = gpu() else { return };
    let some = [0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, f32::INFINITY, f32::NEG_INFINITY, 0.4142, 2.5];
    let (x, y): (Vec<f32>, Vec<f32>) = some.iter().flat_map(|x| some.map(|y| (*x, y))).unzip();
    let shape = || vec![some.len() as u32 * some.len() as u32];
    let spec = Spec {
        op: Binary::Atan2,
        element: Element::F32,
        a: shape(),
        b: shape(),
        output: shape(),
        activation: Activation::None,
    };
    let kernel = spec.kernel(&gpu.caps).unwrap();
    let operands = [(Binding::Input(0), bytes(&x)), (Binding::Input(1), bytes(&y))];
    let actual: Vec<f32> = gpu.run(&kernel, &operands, x.len());
    for ((x, y), actual) in x.iter().zip(&y).zip(actual) {
        let expected = x.atan2(*y);
        let close = approx::abs_diff_eq!(actual, expected, epsilon = 1e-6);
        assert!(close, "atan2({x}, {y}) is {actual}, not {expected}");
    }
}
