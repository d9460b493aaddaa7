//! The variants and thresholds that shaders declare for other sizes cover the variants of all sizes. No adapter is needed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeSet, HashSet};

use delegraph_shaders::batch_matmul::{self, Steps};
use delegraph_shaders::binary::{self, Binary};
use delegraph_shaders::pad::{self, Fill};
use delegraph_shaders::pool_2d::{self, Pool};
use delegraph_shaders::quantize::{self, Affine, Direction};
use delegraph_shaders::reduce::{self, Reduce};
use delegraph_shaders::reduce_ordered::{self, Ordered};
use delegraph_shaders::resize::{self, Resize};
use delegraph_shaders::unary::{self, Unary};
use delegraph_shaders::{
    Activation, Caps, Element, Epilogue, OtherSizes, Shader, Sums, Terms, Threshold, VariantKey, arg_min_max,
    cast, conv_2d, conv_3d, depth_to_space, depthwise_conv_2d, fully_connected, gather, gather_nd,
    l2_normalization, long, select, slice, softmax, table, tile, transpose, transpose_conv,
};

const SOFTWARE: Caps = Caps::WEBGPU.with_software(true).with_subgroups(8);
const RANDOM_SIZES: usize = 4000;

/// Sizes of each magnitude up to 2^14, in an order that is equal on all machines.
struct Random(u64);

impl Random {
    fn size(&mut self) -> u32 {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as u32
        };
        let magnitude = next() % 15;
        1 + next() % (1 << magnitude)
    }
}

/// The keys at all combinations of samples of `dims` sizes, and those that the shaders declare as variants. Thresholds that
/// only some sizes declare are sampled as well.
fn declared<S: Shader>(caps: &Caps, dims: u32, spec: &impl Fn(&[u32]) -> S) -> HashSet<VariantKey> {
    let (mut keys, mut thresholds) = (HashSet::new(), BTreeSet::new());
    loop {
        let samples = Threshold::samples(&thresholds.iter().copied().collect::<Vec<_>>());
        let before = thresholds.len();
        for i in 0..samples.len().pow(dims) {
            let sizes: Vec<u32> =
                (0..dims).map(|d| samples[i / samples.len().pow(d) % samples.len()]).collect();
            let spec = spec(&sizes);
            let Ok(kernel) = spec.kernel(caps) else { continue };
            keys.insert(kernel.variant.key);
            match spec.other_sizes(caps) {
                OtherSizes::Variants(variants) => keys.extend(variants.into_iter().map(|v| v.key)),
                OtherSizes::Thresholds(found) => thresholds.extend(found),
            }
        }
        if thresholds.len() == before {
            return keys;
        }
    }
}

/// Checks that random sizes have no variant that is not declared.
#[track_caller]
fn check<S: Shader>(dims: u32, spec: impl Fn(&[u32]) -> S) {
    for caps in [Caps::WEBGPU, SOFTWARE] {
        let keys = declared(&caps, dims, &spec);
        let (mut random, mut kernels) = (Random(1), 0);
        for _ in 0..RANDOM_SIZES {
            let sizes: Vec<u32> = (0..dims).map(|_| random.size()).collect();
            let Ok(kernel) = spec(&sizes).kernel(&caps) else { continue };
            kernels += 1;
            assert!(keys.contains(&kernel.variant.key), "{sizes:?}: {} in {keys:#?}", kernel.variant.key);
        }
        assert!(kernels > RANDOM_SIZES / 10, "{kernels} sizes have kernels");
    }
}

/// Checks that the variants declared at one size include those of all sizes.
#[track_caller]
fn check_variants<S: Shader>(dims: u32, spec: impl Fn(&[u32]) -> S) {
    for caps in [Caps::WEBGPU, SOFTWARE] {
        let OtherSizes::Variants(variants) = spec(&vec![1; dims as usize]).other_sizes(&caps) else {
            panic!("variants are expected");
        };
        let keys: HashSet<VariantKey> = variants.into_iter().map(|variant| variant.key).collect();
        let (mut random, mut seen) = (Random(1), HashSet::new());
        for _ in 0..RANDOM_SIZES {
            let sizes: Vec<u32> = (0..dims).map(|_| random.size()).collect();
            let Ok(kernel) = spec(&sizes).kernel(&caps) else { continue };
            assert!(keys.contains(&kernel.variant.key), "{sizes:?}: {} in {keys:#?}", kernel.variant.key);
            seen.insert(kernel.variant.key);
        }
        assert_eq!(seen.len(), keys.len(), "some declared variants have no sizes: {keys:#?}");
    }
}

#[test]
fn reductions() {
    for axes in [vec![0], vec![1], vec![2], vec![0, 2], vec![0, 1, 2]] {
        check(3, |sizes| reduce::Spec {
            op: Reduce::Mean,
            element: Element::F32,
            input: sizes.to_vec(),
            axes: axes.clone(),
            activation: Activation::None,
        });
        let axes = axes.clone();
        check(3, |sizes| reduce_ordered::Spec {
            op: Ordered::Mean,
            input: sizes.to_vec(),
            axes: axes.clone(),
        });
    }
    check(3, |sizes| arg_min_max::Spec {
        element: Element::F32,
        outer: sizes[0],
        size: sizes[1],
        inner: sizes[2],
        largest: true,
    });
    check(4, |sizes| {
        let [n, h, w, c] = *sizes else { unreachable!() };
        let output = [n, h.div_ceil(2), w.div_ceil(2), c];
        pool_2d::Spec {
            op: Pool::Max,
            input: [n, h, w, c],
            output,
            window: [2, 2],
            stride: [2, 2],
            padding: [0, 0],
            activation: Activation::None,
            integers: None,
        }
    });
}

#[test]
fn rows() {
    check(2, |sizes| softmax::Spec { rows: sizes[0], depth: sizes[1], beta: 1.0, log: false });
    check(2, |sizes| l2_normalization::Spec { rows: sizes[0], depth: sizes[1], integers: None });
}

#[test]
fn products() {
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let spec = |sizes: &[u32], integers: Option<Steps>| {
            let [batch, rows, columns, depth] = *sizes else { unreachable!() };
            batch_matmul::Spec {
                a: if transpose_a { vec![batch, depth, rows] } else { vec![batch, rows, depth] },
                b: if transpose_b { vec![1, columns, depth] } else { vec![1, depth, columns] },
                transpose_a,
                transpose_b,
                activation: Activation::None,
                integers,
            }
        };
        check(4, |sizes| spec(sizes, None));
        for magnitude in [128, 255] {
            check(4, |sizes| {
                let depth = u64::from(sizes[3]);
                let weights = depth * u64::from(magnitude);
                let (input, weight) = (magnitude, magnitude);
                let sums = Sums::of(Terms { count: depth, input, weight, weights, wraps: true }).unwrap();
                let steps = Steps {
                    zeros: [0, 0],
                    bias: false,
                    multiplier: 1 << 30,
                    shift: -8,
                    up: false,
                    zero: 0,
                    low: -128,
                    high: 127,
                    sums,
                };
                spec(sizes, Some(steps))
            });
        }
    }
}

#[test]
fn broadcasting() {
    check(3, |sizes| binary::Spec {
        op: Binary::Add,
        element: Element::F32,
        a: sizes.to_vec(),
        b: vec![1, sizes[1], 1],
        output: sizes.to_vec(),
        activation: Activation::None,
    });
    check(3, |sizes| long::Spec {
        op: long::Operator::Add,
        range: None,
        a: sizes.to_vec(),
        b: vec![1, sizes[1], 1],
        output: sizes.to_vec(),
    });
    check(1, |sizes| long::Convert { narrows: true, elements: sizes[0] });
    check(3, |sizes| select::Spec {
        condition: vec![sizes[0], 1, 1],
        a: sizes.to_vec(),
        b: vec![sizes[2]],
        output: sizes.to_vec(),
    });
}

#[test]
fn copies() {
    for permutation in [[2, 0, 3, 1], [0, 3, 1, 2], [0, 2, 3, 1], [0, 2, 1, 3], [3, 2, 1, 0]] {
        check(4, |sizes| transpose::Spec { input: sizes.to_vec(), permutation: permutation.to_vec() });
    }
    // Dimensions that cannot change, and are merged with others that can.
    check(2, |sizes| transpose::Spec {
        input: vec![sizes[0], 5, 6, sizes[1]],
        permutation: vec![2, 3, 0, 1],
    });
    check(3, |sizes| tile::Spec { input: sizes.to_vec(), multiples: vec![2, 1, 3] });
    check(3, |sizes| slice::Spec {
        input: sizes.iter().map(|n| n + 4).collect(),
        output: sizes.to_vec(),
        begin: vec![4, 0, 4],
        step: vec![1; 3],
    });
    check(3, |sizes| depth_to_space::Spec {
        direction: depth_to_space::Direction::DepthToSpace,
        input: [1, sizes[0], sizes[1], sizes[2] * 4],
        block: 2,
    });
    check(3, |sizes| pad::Spec {
        input: sizes.to_vec(),
        padding: vec![[1, 0], [0, 0], [4, 4]],
        fill: Fill::Value(0),
    });
    let declared: HashSet<_> = slice::variants(&Caps::WEBGPU, 3).map(|variant| variant.key).collect();
    for rank in 1..=3 {
        for size in [3, 4] {
            let spec = slice::Spec {
                input: vec![size + 4; rank],
                output: vec![size; rank],
                begin: vec![0; rank],
                step: vec![1; rank],
            };
            assert!(declared.contains(&spec.kernel(&Caps::WEBGPU).unwrap().variant.key));
        }
    }
}

#[test]
fn lookups_and_windows() {
    check(3, |sizes| gather::Spec {
        input: vec![sizes[0], 7, sizes[1]],
        indices: vec![sizes[2]],
        axis: 1,
        batch_dims: 0,
    });
    for inner in [1, 3, 4] {
        check(2, |sizes| gather_nd::Spec {
            input: [vec![2; sizes[0] as usize % 7], vec![inner]].concat(),
            tuples: sizes[1],
            depth: sizes[0] as usize % 7,
        });
    }
    check(4, |sizes| {
        let [n, h, w, c] = *sizes else { unreachable!() };
        resize::Spec { op: Resize::Nearest, input: [n, h, w, c], size: [2 * h, 3] }
    });
    check(3, |sizes| conv_3d::Spec {
        transposed: false,
        input: [1, sizes[0], 3, 3, sizes[1]],
        output: [1, sizes[0], 3, 3, sizes[2]],
        window: [1; 3],
        stride: [1; 3],
        dilation: [1; 3],
        padding: [0; 3],
        bias: false,
        activation: Activation::None,
    });
}

#[test]
fn elementwise_functions() {
    check_variants(1, |sizes| unary::Spec { steps: vec![Unary::Exp, Unary::Neg], elements: sizes[0] });
    check_variants(1, |sizes| table::Spec { entries: 256, elements: sizes[0] });
    check_variants(1, |sizes| cast::Spec {
        input: Element::F32,
        output: Element::I32,
        narrow: Some((8, true)),
        elements: sizes[0],
    });
    let affine = Affine { scale: 0.5, zero: 3, low: -128, high: 127 };
    check_variants(1, |sizes| quantize::Spec { affine, direction: Direction::ToEven, elements: sizes[0] });
}

#[test]
fn convolutions_of_constant_filters() {
    for (channels, window) in [(3, 1), (8, 3), (24, 1), (2, 2)] {
        check_variants(3, |sizes| {
            let image = [sizes[0], sizes[1], sizes[2]];
            let shape = |c| [image[0], image[1], image[2], c];
            conv_2d::Spec {
                input: shape(4),
                output: shape(channels),
                filter: [channels, window, window, 4],
                stride: [1; 2],
                dilation: [1; 2],
                padding: [0; 2],
                epilogue: Epilogue::default(),
            }
        });
        check_variants(1, |sizes| fully_connected::Spec {
            rows: sizes[0],
            inputs: 5,
            outputs: channels,
            epilogue: Epilogue::default(),
        });
        check_variants(3, |sizes| transpose_conv::Spec {
            input: [sizes[0], sizes[1], sizes[2], 4],
            output: [sizes[0], sizes[1], sizes[2], channels],
            filter: [channels, window, window, 4],
            stride: [1; 2],
            padding: [0; 2],
            epilogue: Epilogue::default(),
        });
    }
}

/// Filters that the model computes, and inputs with other channels.
#[test]
fn convolutions_of_other_channels() {
    for caps in [Caps::WEBGPU, SOFTWARE] {
        let mut random = Random(1);
        let conv = |groups: u32, inputs: u32, outputs: u32, pixels: u32| conv_2d::Spec {
            input: [1, 1, pixels, inputs * groups],
            output: [1, 1, pixels, outputs * groups],
            filter: [outputs * groups, 1, 1, inputs],
            stride: [1; 2],
            dilation: [1; 2],
            padding: [0; 2],
            epilogue: Epilogue::default(),
        };
        let keys = |variants: Vec<delegraph_shaders::Variant>| -> HashSet<VariantKey> {
            variants.into_iter().map(|variant| variant.key).collect()
        };
        let any = keys(conv(1, 1, 1, 1).any_filter_variants(&caps));
        let depthwise = |inputs: u32, outputs: u32| depthwise_conv_2d::Spec {
            input: [1, 5, 5, inputs],
            output: [1, 5, 5, outputs],
            window: [3; 2],
            stride: [1; 2],
            dilation: [1; 2],
            padding: [1; 2],
            epilogue: Epilogue::default(),
        };
        let any_window = keys(depthwise(1, 1).any_window_variants(&caps));
        for _ in 0..RANDOM_SIZES {
            let [groups, inputs, outputs] = [(); 3].map(|()| random.size() % 64 + 1);
            let spec = conv(groups, inputs, outputs, random.size());
            assert!(any.contains(&spec.any_filter(&caps).unwrap().variant.key), "{spec:?}");
            let known = keys(conv(1, inputs, outputs * groups, 1).other_channels(&caps));
            assert!(known.contains(&spec.kernel(&caps).unwrap().variant.key), "{spec:?}");
            let spec = depthwise(inputs, inputs * outputs);
            assert!(any_window.contains(&spec.any_window(&caps).unwrap().variant.key), "{spec:?}");
            let known = keys(depthwise(inputs * outputs, inputs * outputs).other_channels(&caps));
            assert!(known.contains(&spec.kernel(&caps).unwrap().variant.key), "{spec:?}");
        }
    }
}
