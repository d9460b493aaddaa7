//! SELECT, GATHER and CAST on the adapter, against plain Rust.

use delegraph_shaders::check::{self, Condition};
use delegraph_shaders::{Binding, Caps, Element, Shader, cast, gather, select};

use crate::gpu::{count, flat, gpu, indices};

/// Position in an operand that broadcasts to the output.
fn broadcast(shape: &[u32], index: &[u32]) -> usize {
    let own: Vec<u32> = shape
        .iter()
        .zip(&index[index.len() - shape.len()..])
        .map(|(n, i)| if *n == 1 { 0 } else { *i })
        .collect();
    flat(shape, &own)
}

#[track_caller]
fn check_select(condition: &[u32], a: &[u32], b: &[u32], output: &[u32]) {
    let Some(gpu) = gpu() else { return };
    let spec =
        select::Spec { condition: condition.to_vec(), a: a.to_vec(), b: b.to_vec(), output: output.to_vec() };
    let truths: Vec<u32> =
        (0..count(condition) as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 31).collect();
    let xs: Vec<u32> = (0..count(a) as u32).map(|i| 1000 + i).collect();
    let ys: Vec<u32> = (0..count(b) as u32).map(|i| 2_000_000 + i).collect();
    let operands = [(Binding::Input(0), &truths), (Binding::Input(1), &xs), (Binding::Input(2), &ys)];
    let operands = operands.map(|(at, words)| (at, bytemuck::cast_slice(words)));
    let kernel = spec.kernel(&gpu.caps).unwrap();
    let actual: Vec<u32> = gpu.run(&kernel, &operands, count(output));
    for (index, actual) in indices(output).iter().zip(actual) {
        let expected = if truths[broadcast(condition, index)] != 0 {
            xs[broadcast(a, index)]
        } else {
            ys[broadcast(b, index)]
        };
        assert_eq!(actual, expected, "{} {spec:?} at {index:?}", kernel.variant.key);
    }
}

#[test]
fn selects() {
    check_select(&[3, 8], &[3, 8], &[3, 8], &[3, 8]);
    check_select(&[3, 7], &[3, 7], &[3, 7], &[3, 7]);
    check_select(&[3, 1], &[3, 8], &[8], &[3, 8]);
    check_select(&[1], &[2, 3, 5], &[2, 3, 5], &[2, 3, 5]);
    check_select(&[2, 3, 5, 8], &[], &[8], &[2, 3, 5, 8]);
    check_select(&[20, 1, 31, 1], &[8], &[20, 7, 1, 8], &[20, 7, 31, 8]);
    check_select(&[2, 1, 5, 1], &[1, 3, 1, 4], &[3, 5, 1], &[2, 3, 5, 4]);
}

#[track_caller]
fn check_gather(input: &[u32], indices_shape: &[u32], axis: usize, batch_dims: usize) {
    let Some(gpu) = gpu() else { return };
    let spec = gather::Spec { input: input.to_vec(), indices: indices_shape.to_vec(), axis, batch_dims };
    let extent = input[axis] as i32;
    let values: Vec<u32> = (1..=count(input) as u32).collect();
    // Every third index counts from the end.
    let picks: Vec<i32> = (0..count(indices_shape) as i32)
        .map(|i| (i * 7 + 3) % extent - if i % 3 == 0 { extent } else { 0 })
        .collect();
    let picked = &indices_shape[batch_dims..];
    let output = [&input[..axis], picked, &input[axis + 1..]].concat();
    let kernel = spec.kernel(&gpu.caps).unwrap();
    let operands = [
        (Binding::Input(0), bytemuck::cast_slice(&values)),
        (Binding::Input(1), bytemuck::cast_slice(&picks)),
    ];
    let actual: Vec<u32> = gpu.run(&kernel, &operands, count(&output));
    for (index, actual) in indices(&output).iter().zip(actual) {
        let (outer, rest) = index.split_at(axis);
        let (which, inner) = rest.split_at(picked.len());
        let pick = picks[flat(indices_shape, &[&index[..batch_dims], which].concat())];
        let from = [outer, &[pick.rem_euclid(extent) as u32], inner].concat();
        assert_eq!(actual, values[flat(input, &from)], "{} {spec:?} at {index:?}", kernel.variant.key);
    }
}

#[test]
fn gathers() {
    check_gather(&[5, 8], &[3], 0, 0);
    check_gather(&[5, 7], &[3, 2], 0, 0);
    check_gather(&[2, 5, 4], &[6], 1, 0);
    check_gather(&[2, 5], &[6], 1, 0);
    check_gather(&[2, 5, 3], &[2, 4], 1, 1);
    check_gather(&[2, 3, 5, 4], &[2, 6], 2, 1);
    check_gather(&[6], &[], 0, 0);
    check_gather(&[2, 3, 50, 7], &[2, 60], 2, 1);
}

#[test]
fn indices_outside_give_zero() {
    let Some(gpu) = gpu() else { return };
    let spec = gather::Spec { input: vec![3], indices: vec![4], axis: 0, batch_dims: 0 };
    let (values, picks) = ([5_u32, 6, 7], [3_i32, -4, i32::MAX, i32::MIN]);
    let operands = [
        (Binding::Input(0), bytemuck::cast_slice(&values)),
        (Binding::Input(1), bytemuck::cast_slice(&picks)),
    ];
    let actual: Vec<u32> = gpu.run(&spec.kernel(&Caps::WEBGPU).unwrap(), &operands, 4);
    assert_eq!(actual, [0; 4]);
}

#[track_caller]
fn check_condition(condition: Condition, words: &[u32], first: Option<usize>) {
    let Some(gpu) = gpu() else { return };
    for caps in [Caps::WEBGPU, Caps::WEBGPU.with_software(true)] {
        let spec = check::Spec { elements: words.len() as u32, condition: condition.clone() };
        let [groups, _] = spec.output(&caps);
        let operands = [(Binding::Input(0), bytemuck::cast_slice(words))];
        let found: Vec<u32> = gpu.run(&spec.kernel(&caps).unwrap(), &operands, groups as usize * 2);
        let found = found.chunks(2).find(|pair| pair[0] != 0).map(|pair| (pair[0] as usize - 1, pair[1]));
        assert_eq!(found, first.map(|at| (at, words[at])), "{spec:?} in {groups} groups");
    }
}

#[test]
fn elements_that_fail_a_check_are_found_in_order() {
    let within = || Condition::Within(vec![[0, 2], [-1, 5]]);
    let words = |values: &[i32]| values.iter().map(|v| v.cast_unsigned()).collect::<Vec<_>>();
    check_condition(within(), &words(&[0, 5, 2, -1]), None);
    check_condition(within(), &words(&[0, 5, 3, -1]), Some(2));
    check_condition(within(), &words(&[0, -2, 3, -1]), Some(1));
    check_condition(within(), &words(&[i32::MIN, i32::MAX]), Some(0));
    let mut many = vec![1; 100_000];
    check_condition(Condition::Differs(0), &many, None);
    many[70_001] = 0;
    check_condition(Condition::Differs(0), &many, Some(70_001));
    many[65] = 0;
    check_condition(Condition::Differs(0), &many, Some(65));
    let floats = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    check_condition(Condition::NotZero, &floats(&[1.0, f32::NAN, f32::from_bits(1)]), None);
    check_condition(Condition::NotZero, &floats(&[1.0, -0.0, 0.0]), Some(1));
}

#[test]
fn casts() {
    let Some(gpu) = gpu() else { return };
    let floats = [0.0_f32, -0.0, 1.5, -1.5, 7.99, -7.99, 1e6];
    let integers = [0_i32, 0, 1, -1, 7, -7, 1_000_000];
    let whole = integers.map(|i| i as f32);
    let truths = [0_u32, 0, 1, 1, 1, 1, 1];
    let units = truths.map(|t| t as f32);
    let of_truths = truths.map(|t| t as i32);
    let run = |input, output, words: &[u8]| -> Vec<u32> {
        let spec = cast::Spec { input, output, narrow: None, elements: 7 };
        gpu.run(&spec.kernel(&Caps::WEBGPU).unwrap(), &[(Binding::Input(0), words)], 7)
    };
    use Element::{Bool, F32, I32};
    let (f, i, b) =
        (bytemuck::cast_slice(&floats), bytemuck::cast_slice(&integers), bytemuck::cast_slice(&truths));
    assert_eq!(run(F32, I32, f), bytemuck::cast_slice::<_, u32>(&integers));
    assert_eq!(run(I32, F32, i), bytemuck::cast_slice::<_, u32>(&whole));
    assert_eq!(run(F32, Bool, f), truths);
    assert_eq!(run(I32, Bool, i), truths);
    assert_eq!(run(Bool, F32, b), bytemuck::cast_slice::<_, u32>(&units));
    assert_eq!(run(Bool, I32, b), bytemuck::cast_slice::<_, u32>(&of_truths));
    assert_eq!(run(F32, F32, f), bytemuck::cast_slice::<_, u32>(&floats));
}
