//! Transposes, slices, concatenations, tiles and block moves on the adapter, against plain Rust.

use delegraph_shaders::depth_to_space::{self, Direction};
use delegraph_shaders::{Binding, Caps, Kernel, Shader, ShaderError, concatenation, slice, tile, transpose};

use crate::gpu::{count, flat, gpu, indices};

/// Distinct words, many of which are not ordinary floats.
fn words(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect()
}

/// A device whose invocations compute one item each, and one with several items per invocation.
const BOTH: [Caps; 2] = [Caps::WEBGPU, Caps::WEBGPU.with_software(true)];

/// Runs the kernel on `words` shaped like `input`, and expects the word at `source(index)` at every index of `output`.
#[track_caller]
fn check(
    kernel: impl Fn(&Caps) -> Result<Kernel, ShaderError>,
    input: &[u32],
    output: &[u32],
    source: impl Fn(&[u32]) -> Vec<u32>,
) {
    let Some(gpu) = gpu() else { return };
    let values = words(count(input));
    for kernel in BOTH.map(|caps| kernel(&caps).unwrap()) {
        let actual: Vec<u32> =
            gpu.run(&kernel, &[(Binding::Input(0), bytemuck::cast_slice(&values))], count(output));
        for (index, actual) in indices(output).iter().zip(actual) {
            let from = source(index);
            assert_eq!(
                actual,
                values[flat(input, &from)],
                "{}: {index:?} should be {from:?}",
                kernel.variant.key
            );
        }
    }
}

fn check_transpose(input: &[u32], permutation: &[usize]) {
    let spec = transpose::Spec { input: input.to_vec(), permutation: permutation.to_vec() };
    let output: Vec<u32> = permutation.iter().map(|d| input[*d]).collect();
    check(
        |caps| spec.kernel(caps),
        input,
        &output,
        |index| {
            let mut from = vec![0; index.len()];
            permutation.iter().zip(index).for_each(|(d, i)| from[*d] = *i);
            from
        },
    );
}

#[test]
fn transposes() {
    check_transpose(&[2, 3, 5, 8], &[0, 3, 1, 2]);
    check_transpose(&[2, 3, 5, 8], &[0, 2, 1, 3]);
    check_transpose(&[2, 3, 5, 7], &[3, 2, 1, 0]);
    check_transpose(&[2, 3, 2, 3, 2, 3], &[5, 3, 1, 0, 2, 4]);
    check_transpose(&[7], &[0]);
    check_transpose(&[1, 9, 1], &[2, 1, 0]);
    check_transpose(&[300, 301], &[1, 0]);
    check_transpose(&[30, 7, 11, 5], &[2, 0, 3, 1]);
    check_transpose(&[30, 20, 11, 8], &[2, 0, 1, 3]);
}

/// Permutations that move the innermost dimension, with sizes around those of tiles.
#[test]
fn transposes_in_tiles() {
    for sides in [[15, 40], [16, 16], [17, 19], [31, 33], [32, 32], [33, 65], [36, 68], [64, 16], [100, 30]] {
        let [a, b] = sides;
        check_transpose(&[a, b], &[1, 0]);
        check_transpose(&[3, a, b], &[0, 2, 1]);
        check_transpose(&[a, 3, b], &[2, 1, 0]);
        check_transpose(&[a, b, 3], &[1, 2, 0]);
        check_transpose(&[b, a, 2, 3], &[1, 2, 3, 0]);
    }
    // Neighbours that stay together are one dimension.
    check_transpose(&[2, 5, 7, 18], &[0, 3, 1, 2]);
    check_transpose(&[2, 18, 5, 7], &[0, 2, 3, 1]);
    check_transpose(&[2, 6, 6, 20], &[0, 3, 1, 2]);
    check_transpose(&[2, 20, 6, 6], &[0, 2, 3, 1]);
    check_transpose(&[3, 18, 20, 5], &[0, 2, 1, 3]);
    check_transpose(&[3, 18, 5, 20], &[3, 1, 2, 0]);
    check_transpose(&[18, 3, 5, 20], &[3, 1, 2, 0]);
    check_transpose(&[18, 3, 5, 20], &[3, 2, 1, 0]);
    check_transpose(&[1, 18, 1, 20], &[3, 1, 2, 0]);
    // Matrices of two and more dimensions, some of which change places.
    check_transpose(&[2, 3, 18, 2, 20], &[1, 4, 0, 3, 2]);
    check_transpose(&[2, 17, 3, 2, 19], &[3, 0, 4, 2, 1]);
    check_transpose(&[2, 16, 3, 2, 36], &[3, 0, 4, 2, 1]);
    check_transpose(&[16, 2, 3, 2, 3, 17], &[5, 4, 3, 2, 1, 0]);
    check_transpose(&[2, 3, 20, 2, 3, 16], &[4, 1, 3, 5, 0, 2]);
}

#[test]
fn only_large_matrices_are_transposed_in_tiles() {
    let variant = |input: &[u32], permutation: &[usize], caps: &Caps| {
        let spec = transpose::Spec { input: input.to_vec(), permutation: permutation.to_vec() };
        let variant = spec.kernel(caps).unwrap().variant;
        let is_vec4 = variant.source().unwrap().contains("alias T = vec4");
        (variant.key.as_str().starts_with("transpose:"), is_vec4)
    };
    let [hardware, software] = BOTH;
    assert_eq!(variant(&[16, 17], &[1, 0], &hardware), (true, false));
    assert_eq!(variant(&[16, 20], &[1, 0], &hardware), (true, true));
    assert_eq!(variant(&[16, 20], &[1, 0], &software), (false, false));
    assert_eq!(variant(&[15, 20], &[1, 0], &hardware), (false, false));
    assert_eq!(variant(&[20, 15], &[1, 0], &hardware), (false, false));
    // Height and width together are large, three channels are not.
    assert_eq!(variant(&[2, 5, 7, 16], &[0, 3, 1, 2], &hardware), (true, false));
    assert_eq!(variant(&[2, 4, 7, 16], &[0, 3, 1, 2], &hardware), (true, true));
    assert_eq!(variant(&[2, 99, 99, 3], &[0, 3, 1, 2], &hardware), (false, false));
    // The innermost dimension stays.
    assert_eq!(variant(&[2, 32, 32, 32], &[0, 2, 1, 3], &hardware), (false, true));
}

/// The dispatch of more tiles than the limit has a second dimension, and workgroups without a tile.
#[test]
fn tiles_continue_in_the_second_dimension() {
    let Some(gpu) = gpu() else { return };
    let mut caps = Caps::WEBGPU;
    caps.max_workgroups_per_dimension = 3;
    for (rows, columns) in [(40, 105), (35, 105)] {
        let spec = transpose::Spec { input: vec![rows, columns], permutation: vec![1, 0] };
        assert_eq!(spec.kernel(&Caps::WEBGPU).unwrap().dispatch, [8, 1, 1]);
        let kernel = spec.kernel(&caps).unwrap();
        assert_eq!(kernel.dispatch, [3, 3, 1]);
        let values = words(count(&[rows, columns]));
        let operands = [(Binding::Input(0), bytemuck::cast_slice(&values))];
        let actual: Vec<u32> = gpu.run(&kernel, &operands, values.len());
        let from = |i: usize| i % rows as usize * columns as usize + i / rows as usize;
        assert!((0..values.len()).all(|i| actual[i] == values[from(i)]), "{rows} x {columns}");
    }
}

#[test]
fn transposes_of_halves() {
    let Some(gpu) = gpu().filter(|gpu| gpu.caps.f16) else { return };
    for (rows, columns) in [(40, 33), (33, 40), (36, 68), (16, 15), (3, 8)] {
        let spec = transpose::Spec { input: vec![2, rows, columns], permutation: vec![0, 2, 1] };
        // Normal numbers, which all devices keep.
        let half = |i: u32| (i.wrapping_mul(0x9e37_79b9) >> 16) as u16 & 0xbfff | 0x0400;
        let values: Vec<u16> = (0..2 * rows * columns).map(half).collect();
        for kernel in BOTH.map(|caps| spec.kernel(&caps).unwrap()) {
            let kernel = Kernel { variant: kernel.variant.with_halves(0b11), ..kernel };
            let operands = [(Binding::Input(0), bytemuck::cast_slice(&values))];
            let words: Vec<u32> = gpu.run(&kernel, &operands, values.len() / 2);
            let actual: &[u16] = bytemuck::cast_slice(&words);
            for (index, actual) in indices(&[2, columns, rows]).iter().zip(actual) {
                let from = flat(&[2, rows, columns], &[index[0], index[2], index[1]]);
                assert_eq!(*actual, values[from], "{}: {index:?}", kernel.variant.key);
            }
        }
    }
}

#[test]
fn lists_that_are_not_permutations_are_errors() {
    for permutation in [vec![0, 0], vec![0], vec![0, 2]] {
        assert!(transpose::Spec { input: vec![2, 3], permutation }.kernel(&Caps::WEBGPU).is_err());
    }
}

fn check_slice(input: &[u32], begin: &[u32], step: &[i32], output: &[u32]) {
    let spec = slice::Spec {
        input: input.to_vec(),
        output: output.to_vec(),
        begin: begin.to_vec(),
        step: step.to_vec(),
    };
    check(
        |caps| spec.kernel(caps),
        input,
        output,
        |index| (0..index.len()).map(|d| (begin[d] as i32 + index[d] as i32 * step[d]) as u32).collect(),
    );
}

#[test]
fn slices() {
    check_slice(&[4, 6, 8], &[1, 2, 4], &[1, 1, 1], &[2, 3, 4]);
    check_slice(&[4, 6, 8], &[1, 2, 3], &[1, 1, 1], &[2, 3, 4]);
    check_slice(&[4, 6, 8], &[0, 0, 0], &[2, 3, 1], &[2, 2, 8]);
    check_slice(&[4, 6, 8], &[3, 5, 7], &[-1, -2, -3], &[4, 3, 3]);
    check_slice(&[9], &[8], &[-1], &[9]);
    check_slice(&[2, 3, 2, 3, 2, 4], &[0, 1, 0, 1, 0, 1], &[1; 6], &[2, 2, 1, 2, 2, 2]);
    check_slice(&[4, 6], &[1, 6], &[1, 1], &[2, 0]);
}

#[test]
fn slices_beyond_the_input_are_errors() {
    let spec = |begin, step, output| slice::Spec {
        input: vec![5],
        output: vec![output],
        begin: vec![begin],
        step: vec![step],
    };
    for (begin, step, output) in [(0, 1, 6), (0, -1, 2), (5, 1, 1), (1, 2, 3)] {
        assert!(spec(begin, step, output).kernel(&Caps::WEBGPU).is_err(), "{begin} {step} {output}");
    }
}

fn check_concatenation(inputs: &[&[u32]], axis: usize) {
    let Some(gpu) = gpu() else { return };
    let spec = concatenation::Spec { inputs: inputs.iter().map(|i| i.to_vec()).collect(), axis };
    let output = spec.output().unwrap();
    let all = words(inputs.iter().map(|i| count(i)).sum());
    let mut parts = Vec::new();
    let mut rest = all.as_slice();
    for input in inputs {
        let (part, after) = rest.split_at(count(input));
        parts.push(part);
        rest = after;
    }
    let operands: Vec<(Binding, &[u8])> = parts
        .iter()
        .enumerate()
        .map(|(i, part)| (Binding::Input(i as u8), bytemuck::cast_slice(part)))
        .collect();
    let results: Vec<Vec<u32>> = spec
        .kernels(&Caps::WEBGPU)
        .unwrap()
        .iter()
        .map(|kernel| gpu.run(kernel, &operands, count(&output)))
        .collect();
    for index in indices(&output) {
        let (mut input, mut from) = (0, index.clone());
        while from[axis] >= inputs[input][axis] {
            from[axis] -= inputs[input][axis];
            input += 1;
        }
        let actual = results[input][flat(&output, &index)];
        assert_eq!(actual, parts[input][flat(inputs[input], &from)], "{inputs:?} along {axis} at {index:?}");
    }
}

#[test]
fn concatenations() {
    check_concatenation(&[&[2, 3, 8], &[2, 3, 4]], 2);
    check_concatenation(&[&[2, 3, 5], &[2, 3, 4], &[2, 3, 1]], 2);
    check_concatenation(&[&[2, 3, 8], &[2, 2, 8]], 1);
    check_concatenation(&[&[2, 3], &[1, 3], &[0, 3], &[4, 3]], 0);
    check_concatenation(&[&[5], &[7]], 0);
}

#[test]
fn inputs_that_contradict_each_other_are_errors() {
    let spec = |inputs: &[&[u32]], axis| concatenation::Spec {
        inputs: inputs.iter().map(|i| i.to_vec()).collect(),
        axis,
    };
    assert!(spec(&[&[2, 3], &[3, 3]], 1).output().is_err());
    assert!(spec(&[&[2, 3]], 2).output().is_err());
    assert!(spec(&[], 0).output().is_err());
}

#[test]
fn tiles() {
    let check_tile = |input: &[u32], multiples: &[u32]| {
        let spec = tile::Spec { input: input.to_vec(), multiples: multiples.to_vec() };
        let output: Vec<u32> = input.iter().zip(multiples).map(|(n, times)| n * times).collect();
        check(
            |caps| spec.kernel(caps),
            input,
            &output,
            |index| index.iter().zip(input).map(|(i, n)| i % n).collect(),
        );
    };
    check_tile(&[2, 3, 4], &[1, 2, 1]);
    check_tile(&[2, 3, 4], &[2, 1, 3]);
    check_tile(&[2, 1, 5], &[1, 7, 1]);
    check_tile(&[1, 1], &[3, 4]);
    check_tile(&[3], &[1]);
}

#[test]
fn block_moves() {
    for (direction, input, block) in [
        (Direction::DepthToSpace, [2, 3, 2, 16], 2),
        (Direction::DepthToSpace, [1, 2, 3, 27], 3),
        (Direction::SpaceToDepth, [2, 4, 6, 4], 2),
        (Direction::SpaceToDepth, [1, 3, 6, 5], 3),
    ] {
        let spec = depth_to_space::Spec { direction, input, block };
        let [n, h, w, c] = input;
        let deep = direction == Direction::DepthToSpace;
        let output = if deep {
            [n, h * block, w * block, c / block / block]
        } else {
            [n, h / block, w / block, c * block * block]
        };
        check(
            |caps| spec.kernel(caps),
            &input,
            &output,
            |i| {
                if deep {
                    let channel = (i[1] % block * block + i[2] % block) * output[3] + i[3];
                    vec![i[0], i[1] / block, i[2] / block, channel]
                } else {
                    let at = i[3] / c;
                    vec![i[0], i[1] * block + at / block, i[2] * block + at % block, i[3] % c]
                }
            },
        );
    }
    let odd = depth_to_space::Spec { direction: Direction::DepthToSpace, input: [1, 1, 1, 6], block: 2 };
    assert!(odd.kernel(&Caps::WEBGPU).is_err());
}
