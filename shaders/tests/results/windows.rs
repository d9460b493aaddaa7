//! Reductions, pools, resizes and softmax on the adapter, against plain Rust.

use delegraph_shaders::pool_2d::{self, Pool};
use delegraph_shaders::reduce::{self, Reduce};
use delegraph_shaders::resize::{self, Resize};
use delegraph_shaders::{Activation, Binding, Caps, Element, Shader, softmax};

use crate::gpu::{assert_close, bytes, count, flat, gpu, indices, noise};

/// A device whose invocations share outputs, and one whose invocations do not.
const BOTH: [Caps; 2] = [Caps::WEBGPU, Caps::WEBGPU.with_software(true)];

#[track_caller]
fn check_reduce(op: Reduce, input: &[u32], axes: &[usize]) {
    let Some(gpu) = gpu() else { return };
    let spec = reduce::Spec {
        op,
        element: Element::F32,
        input: input.to_vec(),
        axes: axes.to_vec(),
        activation: Activation::None,
    };
    // Near one, so that long products are finite.
    let values: Vec<f32> = noise(count(input), 1).iter().map(|x| 1.0 + x * 0.1).collect();
    let kept: Vec<u32> =
        input.iter().enumerate().map(|(d, n)| if axes.contains(&d) { 1 } else { *n }).collect();
    let mut groups: Vec<Vec<f64>> = vec![Vec::new(); count(&kept)];
    for index in indices(input) {
        let own: Vec<u32> = index.iter().zip(&kept).map(|(i, n)| i % n).collect();
        groups[flat(&kept, &own)].push(f64::from(values[flat(input, &index)]));
    }
    let expected: Vec<f32> = groups
        .iter()
        .map(|group| match op {
            Reduce::Sum => group.iter().sum::<f64>(),
            Reduce::Mean => group.iter().sum::<f64>() / group.len() as f64,
            Reduce::Max => group.iter().copied().fold(f64::MIN, f64::max),
            Reduce::Min => group.iter().copied().fold(f64::MAX, f64::min),
            Reduce::Prod => group.iter().product(),
        })
        .map(|v| v as f32)
        .collect();
    for caps in BOTH {
        let kernel = spec.kernel(&caps).unwrap();
        let actual = gpu.run(&kernel, &[(Binding::Input(0), bytes(&values))], expected.len());
        assert_close(&format!("{} {input:?} {axes:?}", kernel.variant.key), &actual, &expected);
    }
}

#[test]
fn reductions() {
    for op in [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min, Reduce::Prod] {
        check_reduce(op, &[2, 9, 11, 8], &[1, 2]);
        check_reduce(op, &[2, 9, 11, 5], &[1, 2]);
        check_reduce(op, &[3, 64], &[1]);
        check_reduce(op, &[3, 67], &[1]);
    }
    check_reduce(Reduce::Sum, &[2, 3, 4, 3, 2, 3], &[0, 2, 4]);
    check_reduce(Reduce::Sum, &[2, 3, 4, 3, 2, 4], &[1, 3, 5]);
    check_reduce(Reduce::Mean, &[7, 3], &[0]);
    check_reduce(Reduce::Mean, &[5000], &[0]);
    check_reduce(Reduce::Max, &[1, 1, 3], &[0, 1]);
    check_reduce(Reduce::Max, &[4, 5], &[]);
    check_reduce(Reduce::Sum, &[33, 33, 320], &[0, 1]);
}

#[test]
fn reductions_of_integers_and_booleans() {
    let Some(gpu) = gpu() else { return };
    let run = |op, element, words: &[u32]| -> Vec<u32> {
        let spec =
            reduce::Spec { op, element, input: vec![2, 3], axes: vec![1], activation: Activation::None };
        let kernel = spec.kernel(&Caps::WEBGPU).unwrap();
        gpu.run(&kernel, &[(Binding::Input(0), bytemuck::cast_slice(words))], 2)
    };
    let words = [-5_i32, 2, 3, 7, -1, 1].map(|i| i as u32);
    assert_eq!(run(Reduce::Sum, Element::I32, &words), [0, 7]);
    assert_eq!(run(Reduce::Max, Element::I32, &words), [3, 7]);
    assert_eq!(run(Reduce::Min, Element::I32, &words), [-5_i32 as u32, -1_i32 as u32]);
    assert_eq!(run(Reduce::Max, Element::Bool, &[0, 1, 0, 0, 0, 0]), [1, 0]);
    assert_eq!(run(Reduce::Min, Element::Bool, &[1, 1, 1, 1, 0, 1]), [1, 0]);
}

#[track_caller]
fn check_pool(input: [u32; 4], window: [u32; 2], stride: [u32; 2], padding: [i32; 2], size: [u32; 2]) {
    let Some(gpu) = gpu() else { return };
    let output = [input[0], size[0], size[1], input[3]];
    let values = noise(count(&input), 1);
    for (op, activation) in
        [(Pool::Average, Activation::None), (Pool::Max, Activation::None), (Pool::Average, Activation::RELU)]
    {
        let integers = None;
        let spec = pool_2d::Spec { op, input, output, window, stride, padding, activation, integers };
        let expected: Vec<f32> = indices(&output)
            .iter()
            .map(|i| {
                let inside: Vec<f32> = indices(&window)
                    .iter()
                    .filter_map(|k| {
                        let at = |d: usize| {
                            let at = (i[1 + d] * stride[d] + k[d]) as i32 - padding[d];
                            u32::try_from(at).ok().filter(|at| *at < input[1 + d])
                        };
                        Some(values[flat(&input, &[i[0], at(0)?, at(1)?, i[3]])])
                    })
                    .collect();
                let pooled = match op {
                    Pool::Average => inside.iter().sum::<f32>() / inside.len() as f32,
                    Pool::Max => inside.iter().copied().fold(f32::MIN, f32::max),
                };
                if activation == Activation::RELU { pooled.max(0.0) } else { pooled }
            })
            .collect();
        for caps in BOTH {
            let kernel = spec.kernel(&caps).unwrap();
            let actual = gpu.run(&kernel, &[(Binding::Input(0), bytes(&values))], expected.len());
            assert_close(&format!("{} {spec:?}", kernel.variant.key), &actual, &expected);
        }
    }
}

#[test]
fn pools() {
    check_pool([2, 6, 8, 8], [2, 2], [2, 2], [0, 0], [3, 4]);
    check_pool([1, 7, 5, 3], [3, 3], [2, 2], [1, 1], [4, 3]);
    check_pool([1, 7, 5, 4], [3, 2], [1, 1], [1, 0], [7, 5]);
    check_pool([1, 30, 40, 21], [3, 3], [1, 1], [1, 1], [30, 40]);
    check_pool([1, 33, 33, 20], [33, 33], [1, 1], [0, 0], [1, 1]);
    check_pool([2, 5, 6, 3], [5, 6], [5, 6], [0, 0], [1, 1]);
}

/// Coordinate, and the two input indices around it.
fn coordinate(i: u32, from: u32, to: u32, align: bool, half: bool) -> (f32, u32, u32) {
    let scale = if align && to > 1 { (from - 1) as f32 / (to - 1) as f32 } else { from as f32 / to as f32 };
    let at = if half { (i as f32 + 0.5) * scale - 0.5 } else { i as f32 * scale };
    (at, at.floor().max(0.0) as u32, (at.ceil() as u32).min(from - 1))
}

#[track_caller]
fn check_resize(input: [u32; 4], size: [u32; 2]) {
    let Some(gpu) = gpu() else { return };
    let values = noise(count(&input), 1);
    let output = [input[0], size[0], size[1], input[3]];
    for (align, half) in [(false, false), (true, false), (false, true)] {
        let bilinear: Vec<f32> = indices(&output)
            .iter()
            .map(|i| {
                let (y, y0, y1) = coordinate(i[1], input[1], size[0], align, half);
                let (x, x0, x1) = coordinate(i[2], input[2], size[1], align, half);
                let value = |y, x| values[flat(&input, &[i[0], y, x, i[3]])];
                let (dy, dx) = (y - y0 as f32, x - x0 as f32);
                let above = value(y0, x0) * (1.0 - dx) + value(y0, x1) * dx;
                let below = value(y1, x0) * (1.0 - dx) + value(y1, x1) * dx;
                above * (1.0 - dy) + below * dy
            })
            .collect();
        let op = Resize::Bilinear { align_corners: align, half_pixel_centers: half };
        let spec = resize::Spec { op, input, size };
        for caps in BOTH {
            let kernel = spec.kernel(&caps).unwrap();
            let actual = gpu.run(&kernel, &[(Binding::Input(0), bytes(&values))], bilinear.len());
            assert_close(&format!("{} {spec:?}", kernel.variant.key), &actual, &bilinear);
        }
    }
    // The nearest pixel by a table of rows and columns.
    let pick = |i: u32, from: u32| i * 7 % from;
    let rows = (0..size[0]).map(|i| pick(i, input[1]));
    let columns = (0..size[1]).map(|i| pick(i, input[2]));
    let taps: Vec<u32> = rows.chain(columns).flat_map(|at| [at, at, 0]).collect();
    let at = |i: &Vec<u32>| flat(&input, &[i[0], pick(i[1], input[1]), pick(i[2], input[2]), i[3]]);
    let expected: Vec<f32> = indices(&output).iter().map(|i| values[at(i)]).collect();
    for caps in BOTH {
        let kernel = resize::Spec { op: Resize::Nearest, input, size }.kernel(&caps).unwrap();
        let operands =
            [(Binding::Input(0), bytes(&values)), (Binding::Input(1), bytemuck::cast_slice(&taps))];
        assert_eq!(gpu.run::<f32>(&kernel, &operands, expected.len()), expected, "{}", kernel.variant.key);
    }
}

#[test]
fn resizes() {
    check_resize([1, 4, 5, 4], [8, 10]);
    check_resize([2, 4, 5, 3], [7, 9]);
    check_resize([1, 8, 6, 4], [4, 3]);
    check_resize([1, 1, 1, 8], [3, 2]);
    check_resize([1, 5, 5, 1], [1, 1]);
    check_resize([1, 9, 11, 21], [33, 35]);
}

#[test]
fn softmaxes() {
    let Some(gpu) = gpu() else { return };
    for (rows, depth) in [(1, 1000), (3, 21), (200, 8), (5, 257), (2, 512)] {
        // Far from zero, so that exponentials overflow unless the maximum is subtracted.
        let values: Vec<f32> = noise((rows * depth) as usize, 1).iter().map(|x| x * 20.0 + 300.0).collect();
        for (beta, log) in [(1.0, false), (0.5, false), (1.0, true)] {
            let expected: Vec<f32> = values
                .chunks(depth as usize)
                .flat_map(|row| {
                    let top = row.iter().copied().fold(f32::MIN, f32::max);
                    let total: f64 = row.iter().map(|x| f64::from((x - top) * beta).exp()).sum();
                    row.iter().map(move |x| {
                        let v = f64::from((x - top) * beta);
                        (if log { v - total.ln() } else { v.exp() / total }) as f32
                    })
                })
                .collect();
            for caps in BOTH {
                let kernel = softmax::Spec { rows, depth, beta, log }.kernel(&caps).unwrap();
                let actual = gpu.run(&kernel, &[(Binding::Input(0), bytes(&values))], expected.len());
                assert_close(&format!("{} {rows}x{depth}", kernel.variant.key), &actual, &expected);
            }
        }
    }
}
