//! Products of matrices and fully connected layers on the adapter, against plain Rust.

use delegraph_shaders::{Activation, Binding, Caps, Epilogue, Shader, batch_matmul, fully_connected};

use crate::gpu::{assert_close, bytes, count, flat, gpu, indices, noise};

#[track_caller]
fn check(batch_a: &[u32], batch_b: &[u32], [rows, columns, depth]: [u32; 3]) {
    let Some(gpu) = gpu() else { return };
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let a = [batch_a, &if transpose_a { [depth, rows] } else { [rows, depth] }].concat();
        let b = [batch_b, &if transpose_b { [columns, depth] } else { [depth, columns] }].concat();
        let spec = batch_matmul::Spec {
            a: a.clone(),
            b: b.clone(),
            transpose_a,
            transpose_b,
            activation: Activation::RELU,
            integers: None,
        };
        let output = spec.output().unwrap();
        let (x, y) = (noise(count(&a), 1), noise(count(&b), 2));
        // Element of an operand: its own batch, then row and column, swapped where it is transposed.
        let at = |values: &[f32], shape: &[u32], batch: &[u32], i: u32, j: u32, swap: bool| {
            let own = shape.len() - 2;
            let tail =
                batch[batch.len() - own..].iter().zip(shape).map(|(i, n)| if *n == 1 { 0 } else { *i });
            let index: Vec<u32> = tail.chain(if swap { [j, i] } else { [i, j] }).collect();
            f64::from(values[flat(shape, &index)])
        };
        let expected: Vec<f32> = indices(&output)
            .iter()
            .map(|index| {
                let (batch, [i, j]) = index.split_last_chunk::<2>().unwrap();
                let sum: f64 = (0..depth)
                    .map(|k| at(&x, &a, batch, *i, k, transpose_a) * at(&y, &b, batch, k, *j, transpose_b))
                    .sum();
                sum.max(0.0) as f32
            })
            .collect();
        let operands = [(Binding::Input(0), bytes(&x)), (Binding::Input(1), bytes(&y))];
        let hardware = gpu.caps.with_software(false);
        for caps in [gpu.caps, gpu.caps.without_subgroups(), Caps::WEBGPU, hardware] {
            for kernel in spec.candidates(&caps).unwrap().into_iter().chain(spec.kernel(&caps)) {
                let actual = gpu.run(&kernel, &operands, expected.len());
                assert_close(&format!("{} {spec:?}", kernel.variant.key), &actual, &expected);
            }
        }
    }
}

#[test]
fn products() {
    check(&[], &[], [16, 32, 8]);
    check(&[], &[], [17, 33, 9]);
    check(&[], &[], [1, 20, 12]);
    check(&[], &[], [5, 1, 6]);
    check(&[], &[], [40, 10, 7]);
}

/// Sums of outer products, which devices that are not CPUs compute in blocks.
#[test]
fn blocks() {
    check(&[], &[], [140, 132, 12]);
    check(&[2, 1], &[3], [36, 40, 20]);
}

#[test]
fn batches() {
    check(&[3], &[3], [9, 8, 4]);
    check(&[2, 3], &[3], [5, 6, 7]);
    check(&[2, 1], &[1, 3], [4, 5, 8]);
    check(&[1], &[2, 2], [3, 12, 5]);
}

#[test]
fn shapes_that_contradict_each_other_are_errors() {
    let spec = |a: &[u32], b: &[u32]| batch_matmul::Spec {
        a: a.to_vec(),
        b: b.to_vec(),
        transpose_a: false,
        transpose_b: false,
        activation: Activation::None,
        integers: None,
    };
    for (a, b) in
        [(&[2_u32, 3][..], &[2_u32, 3][..]), (&[3], &[3, 2]), (&[2, 4, 3], &[3, 3, 2]), (&[0, 3], &[3, 2])]
    {
        assert!(spec(a, b).kernel(&Caps::WEBGPU).is_err(), "{a:?} {b:?}");
    }
}

#[test]
fn fully_connected_layers() {
    let Some(gpu) = gpu() else { return };
    for (rows, inputs, outputs) in [(1, 32, 20), (1, 33, 7), (5, 16, 48), (100, 12, 3)] {
        let spec = fully_connected::Spec {
            rows,
            inputs,
            outputs,
            epilogue: Epilogue::activation(Activation::RELU_N1_TO_1),
        };
        let (x, w) = (noise((rows * inputs) as usize, 1), noise((inputs * outputs) as usize, 2));
        let bias = noise(outputs as usize, 3);
        let expected: Vec<f32> = x
            .chunks(inputs as usize)
            .flat_map(|x| {
                w.chunks(inputs as usize).zip(&bias).map(move |(w, bias)| {
                    let sum: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                    (sum + f64::from(*bias)).clamp(-1.0, 1.0) as f32
                })
            })
            .collect();
        let packed = spec.pack_weights(&w, Some(&bias));
        let operands = [(Binding::Input(0), bytes(&x)), (Binding::Weights, bytes(&packed))];
        for caps in [gpu.caps, Caps::WEBGPU] {
            let kernel = spec.kernel(&caps).unwrap();
            let actual = gpu.run(&kernel, &operands, expected.len());
            assert_close(&format!("{} {spec:?}", kernel.variant.key), &actual, &expected);
        }
    }
}
