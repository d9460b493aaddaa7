//! Single-precision products and convolutions compared with plain loops, on every instruction set of the processor.

use super::*;
use crate::random::Rng;
use crate::testing::{close, pairs, random_geometry};

/// A convolution by its definition.
fn naive_conv(
    geo: &ConvGeometry,
    f: &Filter,
    input: &[f32],
    weights: &[f32],
    bias: &[f32],
    clamp: Clamp,
) -> Vec<f32> {
    let mut out = Vec::new();
    let per_group = f.out_channels / f.groups;
    for b in 0..geo.batch {
        for (y, x) in pairs(geo.output[0], geo.output[1]) {
            for oc in 0..f.out_channels {
                let mut sum = f64::from(bias[oc]);
                for (ky, kx) in pairs(f.height, f.width) {
                    let iy = (y * geo.stride[0] + ky * geo.dilation[0]) as isize - geo.padding[0] as isize;
                    let ix = (x * geo.stride[1] + kx * geo.dilation[1]) as isize - geo.padding[1] as isize;
                    if iy < 0 || ix < 0 || iy >= geo.input[0] as isize || ix >= geo.input[1] as isize {
                        continue;
                    }
                    for ic in 0..f.in_channels {
                        let at =
                            ((b * geo.input[0] + iy as usize) * geo.input[1] + ix as usize) * geo.in_channels;
                        let x = input[at + oc / per_group * f.in_channels + ic];
                        let w = weights[((oc * f.height + ky) * f.width + kx) * f.in_channels + ic];
                        sum += f64::from(x) * f64::from(w);
                    }
                }
                out.push((sum as f32).max(clamp.low).min(clamp.high));
            }
        }
    }
    out
}

fn clamps(rng: &mut Rng) -> Clamp {
    [Clamp::NONE, Clamp::RELU, Clamp::RELU6, Clamp::RELU_N1_TO_1][rng.range(0, 3)]
}

#[test]
fn products_of_every_tail() {
    let mut rng = Rng::new(1);
    let pool = ThreadPool::new(3);
    for &isa in Isa::available() {
        for (m, k, n) in (1..=26).map(|m| (m, 5, 33)).chain((1..=131).map(|n| (11, 7, n))).chain([
            (1, 0, 9),
            (0, 3, 4),
            (3, 4, 0),
            (1, 1153, 1001),
            (97, 300, 70),
            (200, 64, 24),
        ]) {
            let (a, b, bias) = (rng.floats(m * k), rng.floats(k * n), rng.floats(n));
            let clamp = clamps(&mut rng);
            let gemm = GemmF32::pack(isa, (k, n), &b, MatrixLayout::ColumnsContiguous, Some(&bias)).unwrap();
            let filter = Filter { out_channels: n, height: 1, width: 1, in_channels: k, groups: 1 };
            let geo = ConvGeometry {
                batch: 1,
                input: [1, m],
                in_channels: k,
                output: [1, m],
                window: [1, 1],
                stride: [1, 1],
                dilation: [1, 1],
                padding: [0, 0],
            };
            let expected = naive_conv(&geo, &filter, &a, &b, &bias, clamp);
            for par in [&pool as &dyn Parallel, &Serial] {
                let mut out = vec![f32::NAN; m * n];
                let mut scratch = vec![0; gemm.scratch_len(m, par.threads()).unwrap()];
                gemm.run(m, &a, &mut out, clamp, &mut scratch, par).unwrap();
                close(&out, &expected, k, || format!("{} {m}x{k}x{n}", isa.name()));
            }
        }
    }
}

#[test]
fn products_of_one_row_in_place() {
    let mut rng = Rng::new(12);
    let pool = ThreadPool::new(3);
    for &isa in Isa::available() {
        let depths = (0..=70).map(|k| (k, 9)).chain((0..=13).map(|n| (128, n)));
        // Matrices and scratch that begin at any place of a vector.
        let places = (1..16).map(|place| (128, place));
        for (k, n) in depths.chain(places).chain([(1153, 1001), (64, 4099)]) {
            let (a, all, bias) = (rng.floats(k), rng.floats(k * n + n), rng.floats(n));
            let b = &all[n..];
            let clamp = clamps(&mut rng);
            for bias in [None, Some(&bias[..])] {
                let sum = |j: usize| {
                    (0..k).map(|x| a[x] * b[j * k + x]).sum::<f32>() + bias.map_or(0.0, |bias| bias[j])
                };
                let expected: Vec<f32> = (0..n).map(|j| sum(j).max(clamp.low).min(clamp.high)).collect();
                for par in [&pool as &dyn Parallel, &Serial] {
                    let mut out = vec![f32::NAN; n];
                    let mut scratch = vec![f32::NAN; row_product_scratch(k) + 3];
                    row_product(isa, (&a, b, bias), &mut out, clamp, &mut scratch[n % 4..], par).unwrap();
                    close(&out, &expected, k, || format!("{} {k}x{n}", isa.name()));
                }
            }
        }
        let mut out = [0.0; 2];
        let mut run = |a: &[f32], b: &[f32], bias: Option<&[f32]>, scratch: usize| {
            row_product(isa, (a, b, bias), &mut out, Clamp::RELU6, &mut vec![0.0; scratch], &Serial)?;
            Ok::<_, ComputeError>(out)
        };
        let nan = run(&[f32::NAN, 1.0], &[1.0; 4], None, 18).unwrap();
        assert!(nan.iter().all(|x| x.is_nan()), "{}: {nan:?}", isa.name());
        assert!(run(&[1.0; 3], &[0.0; 5], None, 19).is_err());
        assert!(run(&[1.0; 3], &[0.0; 6], Some(&[0.0]), 19).is_err());
        assert!(run(&[1.0; 16], &[0.0; 32], None, 15).is_err());
    }
}

#[test]
fn products_of_two_variables() {
    let mut rng = Rng::new(2);
    let pool = ThreadPool::new(2);
    for &isa in Isa::available() {
        for round in 0..60 {
            let (m, k, n) = (rng.range(1, 40), rng.range(1, 70), rng.range(1, 150));
            let (a, b) = (rng.floats(m * k), rng.floats(k * n));
            let mut expected = vec![0.0; m * n];
            for (i, j) in pairs(m, n) {
                expected[i * n + j] = (0..k).map(|x| a[i * k + x] * b[x * n + j]).sum();
            }
            let flip = |v: &[f32], rows: usize, columns: usize| -> Vec<f32> {
                pairs(columns, rows).map(|(c, r)| v[r * columns + c]).collect()
            };
            for (adj_x, adj_y) in [(false, false), (false, true), (true, false), (true, true)] {
                let layout =
                    if adj_y { MatrixLayout::ColumnsContiguous } else { MatrixLayout::RowsContiguous };
                let product = BatchMatMulF32::new(isa, (m, k, n), adj_x, layout).unwrap();
                let a = if adj_x { flip(&a, m, k) } else { a.clone() };
                let b = if adj_y { flip(&b, k, n) } else { b.clone() };
                let mut scratch = vec![0xFF; product.scratch_len(2).unwrap()];
                let mut out = vec![f32::NAN; m * n];
                product.run(&a, &b, &mut out, Clamp::NONE, &mut scratch, &pool).unwrap();
                close(&out, &expected, k, || format!("{} round {round} {adj_x} {adj_y}", isa.name()));
            }
        }
    }
}

#[test]
fn convolutions_of_every_kind() {
    let mut rng = Rng::new(3);
    let pool = ThreadPool::new(3);
    for round in 0..400 {
        let groups = [1, 1, 1, 2, 3][rng.range(0, 4)];
        let filter = Filter {
            out_channels: groups * rng.range(1, 40),
            height: rng.range(1, 5),
            width: rng.range(1, 5),
            in_channels: rng.range(1, 20),
            groups,
        };
        let geo = random_geometry(&mut rng, groups * filter.in_channels, [filter.height, filter.width]);
        let k = filter.height * filter.width * filter.in_channels;
        let input = rng.floats(geo.input_len().unwrap());
        let (weights, bias) = (rng.floats(filter.out_channels * k), rng.floats(filter.out_channels));
        let clamp = clamps(&mut rng);
        let expected = naive_conv(&geo, &filter, &input, &weights, &bias, clamp);
        for &isa in Isa::available() {
            let conv = ConvF32::pack(isa, filter, &weights, Some(&bias)).unwrap();
            for par in [&pool as &dyn Parallel, &Serial] {
                let mut scratch = vec![0xFF; conv.scratch_len(&geo, par.threads()).unwrap()];
                let mut out = vec![f32::NAN; expected.len()];
                conv.run(&geo, &input, &mut out, clamp, &mut scratch, par).unwrap();
                let what = || format!("{} round {round} {filter:?} {geo:?}", isa.name());
                close(&out, &expected, k, what);
                // Addresses that are kept must follow the input to other memory.
                let inputs = [input.clone(), input.clone()];
                let mut plan = conv.plan(&geo, par.threads()).unwrap().keep_addresses().unwrap();
                for input in [&inputs[0], &inputs[0], &inputs[1], &inputs[0]] {
                    out.fill(f32::NAN);
                    conv.run_planned(&mut plan, input, &mut out, clamp, &mut scratch, par).unwrap();
                    close(&out, &expected, k, what);
                }
            }
        }
    }
}

#[test]
fn depthwise_convolutions_of_every_kind() {
    let mut rng = Rng::new(4);
    let pool = ThreadPool::new(3);
    for round in 0..600 {
        let channels = if rng.range(0, 4) == 0 { 1 } else { rng.range(1, 50) };
        let square = rng.range(1, 5);
        let window = if rng.range(0, 1) == 0 { [square, square] } else { [rng.range(1, 5), rng.range(1, 7)] };
        // Several output channels may read each input channel.
        let (inputs, channels) = match round % 4 {
            0 => (1, channels),
            1 => (channels.div_ceil(16), channels.div_ceil(16) * 16),
            _ => (channels, channels),
        };
        let geo = random_geometry(&mut rng, inputs, window);
        let taps = window[0] * window[1];
        let input = rng.floats(geo.input_len().unwrap());
        let (weights, bias) = (rng.floats(taps * channels), rng.floats(channels));
        let clamp = clamps(&mut rng);
        // As a grouped convolution, whose filter has the output channel first.
        let filter = Filter {
            out_channels: channels,
            height: window[0],
            width: window[1],
            in_channels: 1,
            groups: inputs,
        };
        let grouped: Vec<f32> = pairs(channels, taps).map(|(c, t)| weights[t * channels + c]).collect();
        let expected = naive_conv(&geo, &filter, &input, &grouped, &bias, clamp);
        for &isa in Isa::available() {
            let conv = DepthwiseF32::pack(isa, [inputs, channels], window, &weights, Some(&bias)).unwrap();
            for par in [&pool as &dyn Parallel, &Serial] {
                let mut out = vec![f32::NAN; expected.len()];
                conv.run(&geo, &input, &mut out, clamp, par).unwrap();
                close(&out, &expected, taps, || format!("{} round {round} {geo:?}", isa.name()));
            }
        }
    }
}

#[test]
fn depthwise_convolutions_of_groups_and_halves() {
    let mut rng = Rng::new(14);
    let pool = ThreadPool::new(3);
    for &isa in Isa::available() {
        let lanes = crate::simd::lanes(isa);
        for round in 0..300 {
            let window = [rng.range(1, 5), rng.range(1, 9)];
            let inputs = rng.range(1, 9);
            let (inputs, channels) = match round % 4 {
                // Two input channels per vector, of which the last one may be missing.
                0 => (inputs, inputs * lanes / 2),
                // Several pixels per vector.
                1 | 2 => (inputs.min(lanes / 2), inputs.min(lanes / 2)),
                // All channels of a pixel before the next pixel.
                _ => (256, 256),
            };
            let mut geo = random_geometry(&mut rng, inputs, window);
            if round % 4 == 2 {
                // As many columns of outputs as of inputs.
                (geo.stride[1], geo.dilation[1]) = (1, 1);
                (geo.output[1], geo.padding[1]) = (geo.input[1], window[1] / 2);
            }
            if channels == 256 {
                geo.output = geo.output.map(|size| size.min(7));
            }
            let taps = window[0] * window[1];
            let input = rng.floats(geo.input_len().unwrap());
            let (weights, bias) = (rng.floats(taps * channels), rng.floats(channels));
            let clamp = clamps(&mut rng);
            let filter = Filter {
                out_channels: channels,
                height: window[0],
                width: window[1],
                in_channels: 1,
                groups: inputs,
            };
            let grouped: Vec<f32> = pairs(channels, taps).map(|(c, t)| weights[t * channels + c]).collect();
            let expected = naive_conv(&geo, &filter, &input, &grouped, &bias, clamp);
            assert!(inputs == channels || DepthwiseF32::reads_repeatedly(isa, [inputs, channels]));
            let conv = DepthwiseF32::pack(isa, [inputs, channels], window, &weights, Some(&bias)).unwrap();
            let runs = [&pool as &dyn Parallel, &Serial].map(|par| {
                let mut out = vec![f32::NAN; expected.len()];
                conv.run(&geo, &input, &mut out, clamp, par).unwrap();
                close(&out, &expected, taps, || format!("{} round {round} {geo:?}", isa.name()));
                out
            });
            assert_eq!(runs[0], runs[1], "{} round {round} {geo:?}", isa.name());
        }
    }
}

#[test]
fn nan_passes_the_clamp() {
    for &isa in Isa::available() {
        let gemm = GemmF32::pack(isa, (1, 3), &[1.0; 3], MatrixLayout::ColumnsContiguous, None).unwrap();
        let mut scratch = vec![0; gemm.scratch_len(2, 1).unwrap()];
        let mut out = [0.0; 6];
        gemm.run(2, &[f32::NAN, -3.0], &mut out, Clamp::RELU6, &mut scratch, &Serial).unwrap();
        assert!(out[..3].iter().all(|x| x.is_nan()), "{}", isa.name());
        assert_eq!(out[3..], [0.0; 3]);
    }
}

#[test]
fn operands_that_do_not_fit_are_errors() {
    let isa = Isa::best();
    assert!(GemmF32::pack(isa, (3, 2), &[0.0; 5], MatrixLayout::ColumnsContiguous, None).is_err());
    assert!(GemmF32::pack(isa, (3, 2), &[0.0; 6], MatrixLayout::ColumnsContiguous, Some(&[0.0])).is_err());
    assert!(GemmF32::pack(isa, (usize::MAX, 2), &[], MatrixLayout::ColumnsContiguous, None).is_err());
    let filter = Filter { out_channels: 2, height: 1, width: 1, in_channels: 1, groups: 1 };
    assert!(ConvF32::pack(isa, Filter { groups: 0, ..filter }, &[], None).is_err());
    assert!(ConvF32::pack(isa, Filter { groups: 3, ..filter }, &[0.0; 2], None).is_err());
    let conv = ConvF32::pack(isa, filter, &[0.0; 2], None).unwrap();
    let geo = ConvGeometry {
        batch: 1,
        input: [2, 2],
        in_channels: 1,
        output: [2, 2],
        window: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        padding: [0, 0],
    };
    let mut scratch = vec![0; conv.scratch_len(&geo, 1).unwrap()];
    let run = |geo: &ConvGeometry, input: usize, out: usize, scratch: &mut [u8]| {
        conv.run(geo, &vec![0.0; input], &mut vec![0.0; out], Clamp::NONE, scratch, &Serial)
    };
    assert_eq!(run(&geo, 4, 8, &mut scratch), Ok(()));
    assert!(run(&geo, 3, 8, &mut scratch).is_err());
    assert!(run(&geo, 4, 9, &mut scratch).is_err());
    assert!(run(&geo, 4, 8, &mut []).is_err());
    for bad in [
        ConvGeometry { window: [1, 2], ..geo },
        ConvGeometry { stride: [0, 1], ..geo },
        ConvGeometry { dilation: [1, 0], ..geo },
        ConvGeometry { in_channels: 2, ..geo },
        ConvGeometry { batch: usize::MAX, ..geo },
        ConvGeometry { stride: [usize::MAX, 1], ..geo },
        ConvGeometry { padding: [0, usize::MAX], ..geo },
        ConvGeometry { output: [1 << 30, 1 << 30], ..geo },
    ] {
        assert!(run(&bad, 4, 8, &mut scratch).is_err(), "{bad:?}");
    }
}
