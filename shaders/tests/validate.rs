//! All variants of all shaders are valid with exactly the features, bindings and uniform block that they declare, and can
//! be written for Vulkan, Metal and DirectX. No adapter is needed.
//!
//! Epilogues do not interact with the rest of a source, so every epilogue is tried with one shape and every shape with a
//! few epilogues.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod text;

use delegraph_shaders::batch_matmul::{self, Steps};
use delegraph_shaders::binary::{self, Binary};
use delegraph_shaders::binary_quantized::{self, Operator};
use delegraph_shaders::depth_to_space::{self, Direction as Shuffle};
use delegraph_shaders::pad::{self, Fill};
use delegraph_shaders::pool_2d::{self, Pool};
use delegraph_shaders::quantize::{self, Affine, Direction};
use delegraph_shaders::reduce::{self, Reduce};
use delegraph_shaders::reduce_ordered::{self, Ordered};
use delegraph_shaders::resample::Positions;
use delegraph_shaders::rescale::{self, By, Factor};
use delegraph_shaders::resize::{self, Resize};
use delegraph_shaders::unary::{self, Unary};
use delegraph_shaders::{
    Activation, Caps, Element, Epilogue, IntegerResult, Integers, Scaling, Shader, Sums, arg_min_max,
    batch_matmul_wide, bitcast, cast,
    check::{self, Condition},
    complex, concatenation, conv_2d, conv_3d, cumsum, depthwise_conv_2d, dynamic_update_slice,
    embedding_lookup, fully_connected, gather, gather_nd, l2_normalization, landmarks,
    local_response_normalization, long, lstm, lstm_basic, lstm_quantized, max_pooling, one_hot, resample,
    rnn, row_scales, row_steps, scatter, select, slice, softmax, softmax_quantized, softmax_wide, table,
    texture, tile, topk, transpose, transpose_conv,
};
use text::kernels::{DEVICES, Kernels};

/// Every operator on 64-bit integers, and one with a range.
const LONG: [(long::Operator, Option<[i64; 2]>); 12] = [
    (long::Operator::Add, None),
    (long::Operator::Add, Some([0, 6])),
    (long::Operator::Sub, None),
    (long::Operator::Mul, None),
    (long::Operator::Maximum, None),
    (long::Operator::Minimum, None),
    (long::Operator::Equal, None),
    (long::Operator::NotEqual, None),
    (long::Operator::Less, None),
    (long::Operator::LessEqual, None),
    (long::Operator::Greater, None),
    (long::Operator::GreaterEqual, None),
];

/// The functions that other kernels can apply to their results.
fn following() -> impl Iterator<Item = Unary> {
    Unary::EVERY.iter().copied().filter(|unary| unary.follows())
}

fn few_epilogues() -> Vec<Epilogue> {
    let [prelu, tanh] = [Activation::Prelu, Activation::Unary(Unary::Tanh)];
    vec![
        Epilogue::default(),
        Epilogue { residual: Some(tanh), ..Epilogue::activation(prelu) },
        Epilogue { residual: Some(prelu), ..Epilogue::activation(tanh) },
        Epilogue { halves: true, ..Epilogue::default() },
    ]
}

fn integer_epilogues() -> Vec<Epilogue> {
    let integers = |bits, sums, result| {
        let integers = Integers { input_zero: -3, weight_zero: 0, bits, sums, result };
        Epilogue::of_integers(Activation::None, integers)
    };
    let fixed =
        |scaling| IntegerResult::Fixed { scaling, zero: 1, low: -128, high: 127, tail: [u32::MAX, 0] };
    let mut all = Vec::new();
    let scalings = [Scaling::Narrow, Scaling::Wide, Scaling::Double].map(fixed);
    for result in [IntegerResult::Real { row: 0 }, IntegerResult::Real { row: 25 }].iter().chain(&scalings) {
        all.push(integers(4, Sums::Floats, *result));
        for sums in
            [Sums::Floats, Sums::Blocks(2), Sums::Words { halved: false }, Sums::Words { halved: true }]
        {
            all.push(integers(8, sums, *result));
        }
    }
    let prelu = Epilogue {
        activation: Activation::Prelu,
        ..integers(8, Sums::Floats, IntegerResult::Real { row: 25 })
    };
    all.push(Epilogue { residual: Some(Activation::RELU), ..prelu });
    all
}

/// Sums that depthwise convolutions do not support.
fn largest_sums() -> Vec<Epilogue> {
    let integers = |halved, scaling| {
        let result = IntegerResult::Fixed { scaling, zero: 0, low: -9, high: 9, tail: [0; 2] };
        let sums = Sums::Pairs { halved };
        let integers = Integers { input_zero: 0, weight_zero: 3, bits: 8, sums, result };
        Epilogue::of_integers(Activation::None, integers)
    };
    vec![integers(false, Scaling::Wide), integers(true, Scaling::Double)]
}

fn every_epilogue() -> Vec<Epilogue> {
    let all: Vec<Activation> =
        following().map(Activation::Unary).chain([Activation::None, Activation::Prelu]).collect();
    let afterwards =
        |activation| Epilogue { residual: Some(activation), ..Epilogue::activation(Activation::None) };
    all.iter().map(|a| Epilogue::activation(*a)).chain(all.iter().map(|a| afterwards(*a))).collect()
}

fn conv(channels: [u32; 2], groups: u32, side: u32, epilogue: Epilogue) -> conv_2d::Spec {
    let [from, to] = channels;
    conv_2d::Spec {
        input: [1, side, side, from],
        output: [1, side, side, to],
        filter: [to, 3, 3, from / groups],
        stride: [1; 2],
        dilation: [1; 2],
        padding: [1; 2],
        epilogue,
    }
}

#[test]
fn convolutions() {
    let mut kernels = Kernels::default();
    for epilogue in every_epilogue() {
        kernels.add(|caps| conv([8, 24], 1, 5, epilogue).kernel(caps));
    }
    for epilogue in few_epilogues().into_iter().chain(integer_epilogues()).chain(largest_sums()) {
        for from in [8, 6] {
            for to in [24, 12, 10, 7] {
                for side in [5, 1] {
                    kernels.add(|caps| conv([from, to], 1, side, epilogue).kernel(caps));
                }
            }
            kernels.add(|caps| conv([from, 24], 2, 5, epilogue).kernel(caps));
        }
        kernels.add(|caps| fully_connected::Spec { rows: 3, inputs: 8, outputs: 24, epilogue }.kernel(caps));
    }
    kernels.check();
}

#[test]
fn convolutions_in_blocks() {
    // A device with matrix units and more workgroup memory than WebGPU's minimum.
    let mut matrices = Caps::WEBGPU.with_subgroups(32).with_matrices(true);
    matrices.max_workgroup_storage = 48 << 10;
    let mut kernels = Kernels::default();
    for epilogue in few_epilogues().into_iter().chain(integer_epilogues()) {
        for (channels, side) in [([8, 24], 5), ([6, 24], 5), ([3, 7], 5), ([8, 24], 1)] {
            for mut spec in [conv(channels, 1, side, epilogue), conv([channels[0], 10], 1, side, epilogue)] {
                for caps in [Caps::WEBGPU, matrices] {
                    spec.candidates(&caps).unwrap().into_iter().for_each(|kernel| kernels.insert(kernel));
                }
                // Pointwise convolutions.
                spec.filter[1..3].fill(1);
                spec.padding = [0; 2];
                spec.candidates(&matrices).unwrap().into_iter().for_each(|kernel| kernels.insert(kernel));
            }
        }
    }
    kernels.check_within(&matrices);
}

#[test]
fn transposed_convolutions() {
    let mut kernels = Kernels::default();
    for epilogue in few_epilogues().into_iter().chain(integer_epilogues()).chain(largest_sums()) {
        for from in [8, 6] {
            for to in [24, 12, 7] {
                for side in [5, 1] {
                    let spec = transpose_conv::Spec {
                        input: [1, side, side, from],
                        output: [1, 2 * side, 2 * side, to],
                        filter: [to, 3, 3, from],
                        stride: [2; 2],
                        padding: [0; 2],
                        epilogue,
                    };
                    kernels.add(|caps| spec.kernel(caps));
                }
            }
        }
    }
    kernels.check();
}

#[test]
fn depthwise_convolutions() {
    let mut kernels = Kernels::default();
    let spec = |channels: [u32; 2], window: [u32; 2], stride: [u32; 2], epilogue| depthwise_conv_2d::Spec {
        input: [1, 20, 20, channels[0]],
        output: [1, 20_u32.div_ceil(stride[0]), 20_u32.div_ceil(stride[1]), channels[1]],
        window,
        stride,
        dilation: [1; 2],
        padding: [1; 2],
        epilogue,
    };
    for epilogue in few_epilogues().into_iter().chain(integer_epilogues()) {
        // Windows of up to 25 weights have variants of their own.
        for h in 1..=25 {
            let plain = epilogue == Epilogue::default();
            for w in (1..=25).filter(|w| h * w <= 25 && (plain || h == *w)) {
                kernels.add(|caps| spec([8, 8], [h, w], [1, 1], epilogue).kernel(caps));
            }
        }
        for stride in [[1, 2], [2, 1], [2, 2], [3, 3]] {
            for window in [[3, 3], [5, 5], [4, 2], [7, 7]] {
                kernels.add(|caps| spec([8, 8], window, stride, epilogue).kernel(caps));
            }
        }
        for channels in [[6, 6], [4, 8], [1, 3]] {
            kernels.add(|caps| spec(channels, [3, 3], [1, 1], epilogue).kernel(caps));
        }
    }
    kernels.check();
}

#[test]
fn products() {
    let mut kernels = Kernels::default();
    for (rows, columns, depth) in [(9, 24, 8), (9, 7, 6), (9, 10, 8), (1, 24, 8), (9, 12, 7), (2052, 1024, 8)]
    {
        for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
            for batch in [&[2_u32, 3][..], &[]] {
                let steps = |bias, sums| {
                    let (multiplier, shift, up, zero, low, high) = (1 << 30, -3, true, 1, -128, 127);
                    Some(Steps { zeros: [1, 2], bias, multiplier, shift, up, zero, low, high, sums })
                };
                for integers in [None, steps(false, Sums::Floats), steps(true, Sums::Blocks(64))] {
                    let spec = batch_matmul::Spec {
                        a: [batch, &if transpose_a { [depth, rows] } else { [rows, depth] }].concat(),
                        b: if transpose_b { vec![3, columns, depth] } else { vec![3, depth, columns] },
                        transpose_a,
                        transpose_b,
                        activation: Activation::RELU,
                        integers,
                    };
                    kernels.add(|caps| spec.kernel(caps));
                }
            }
        }
    }
    kernels.check();
}

#[test]
fn element_by_element() {
    let mut kernels = Kernels::default();
    for elements in [64, 63] {
        for &op in Unary::EVERY {
            kernels.add(|caps| unary::Spec { steps: vec![op], elements }.kernel(caps));
        }
        kernels.add(|caps| unary::Spec { steps: Unary::EVERY.to_vec(), elements }.kernel(caps));
        kernels.add(|caps| unary::Spec { steps: vec![], elements }.kernel(caps));
        for input in [Element::F32, Element::I32, Element::U32, Element::Bool] {
            for output in [Element::F32, Element::I32, Element::U32, Element::Bool] {
                kernels.add(|caps| cast::Spec { input, output, narrow: None, elements }.kernel(caps));
            }
        }
        for narrows in [false, true] {
            kernels.add(|caps| long::Convert { narrows, elements }.kernel(caps));
        }
        for input in [Element::F32, Element::I32, Element::U32, Element::Bool] {
            for narrow in [(8, true), (8, false), (16, true), (16, false)] {
                let (narrow, output) = (Some(narrow), Element::I32);
                kernels.add(|caps| cast::Spec { input, output, narrow, elements }.kernel(caps));
            }
        }
        for asymmetric in [false, true] {
            kernels.add(|caps| row_scales::Spec { rows: 3, depth: elements, asymmetric }.kernel(caps));
        }
        kernels.add(|caps| row_steps::Spec { rows: 3, depth: elements, low: -127 }.kernel(caps));
        for direction in [Direction::ToReal, Direction::ToEven, Direction::Away] {
            let affine = Affine { scale: 0.5, zero: 3, low: -128, high: 127 };
            kernels.add(|caps| quantize::Spec { affine, direction, elements }.kernel(caps));
        }
    }
    kernels.check();
}

#[test]
fn integers_in_their_order_and_bits() {
    let mut kernels = Kernels::default();
    let rescaled =
        Ordered::Product { input_zero: 3, multiplier: 16_384, right: 15, output_zero: 0, range: [-128, 127] };
    for op in [Ordered::Mean, rescaled, Ordered::Wrapped { bits: 8, signed: true }] {
        for axes in [vec![0], vec![1], vec![0, 2]] {
            let spec = reduce_ordered::Spec { op, input: vec![2, 3, 5], axes };
            kernels.add(|caps| spec.kernel(caps));
        }
    }
    for (from, to) in [(8, 32), (32, 8), (16, 16), (16, 8)] {
        kernels.add(|caps| bitcast::Spec { from, to, signed: true, elements: 12 }.kernel(caps));
    }
    for bits in [2, 4, 8] {
        let spec = embedding_lookup::Spec { bits, rows: 4, columns: 6, ids: 3, scale_per_row: true };
        kernels.add(|caps| spec.kernel(caps));
    }
    for (a, b) in [(vec![3, 4], vec![4, 5]), (vec![2, 1, 3, 4], vec![7, 4, 5])] {
        let spec = batch_matmul_wide::Spec {
            a,
            b,
            transpose_a: false,
            transpose_b: false,
            multiplier: 16_384,
            right: 20,
        };
        kernels.add(|caps| spec.kernel(caps));
    }
    kernels.check();
}

#[test]
fn recurrent_cells() {
    let mut kernels = Kernels::default();
    for flags in 0_u32..32 {
        let flag = |bit: u32| flags >> bit & 1 == 1;
        for activation in [Activation::None, Activation::RELU, Activation::Unary(Unary::Tanh)] {
            let spec = lstm::Spec {
                sequences: 2,
                steps: 3,
                time_major: flag(0),
                backward: flag(1),
                cells: 40,
                outputs: if flag(0) { 24 } else { 40 },
                coupled: flag(1),
                diagonal: flag(2) && !flag(0),
                peephole: flag(3),
                norm: flag(4),
                projection: flag(0),
                cell_clip: f32::INFINITY,
                output_clip: 1.0,
                activation,
                hybrid: None,
                alignment: 64,
            };
            kernels.add(|caps| spec.kernel(caps));
            let hybrid = lstm::Hybrid { asymmetric: flag(4), recurrent: [0.1; 4], projection: 0.2 };
            kernels.add(|caps| lstm::Spec { hybrid: Some(hybrid), ..spec }.kernel(caps));
            let hybrid = flag(2).then_some(rnn::Hybrid { asymmetric: flag(1), scale: 0.1 });
            let spec = rnn::Spec {
                sequences: 2,
                steps: 3,
                time_major: flag(0),
                backward: flag(3),
                units: 40,
                activation,
                hybrid,
                alignment: 64,
            };
            kernels.add(|caps| spec.kernel(caps));
        }
        let narrow = flags == 31;
        let spec = lstm_quantized::Spec {
            sequences: 2,
            steps: 3,
            time_major: flag(0),
            cells: 40,
            outputs: if flag(0) { 24 } else { 40 },
            coupled: flag(1),
            peephole: flag(3) && !narrow,
            norm: flag(4),
            narrow,
            hidden: (Factor { multiplier: 1 << 30, shift: -3 }, 5),
            projection: flag(0).then_some(Factor { multiplier: 1 << 30, shift: -3 }),
            output_zero: -3,
            state_exponent: -12,
            cell_clip: 32768,
            output_clip: 100,
            alignment: 64,
        };
        kernels.add(|caps| spec.kernel(caps));
    }
    kernels.add(|caps| lstm_basic::Spec { sequences: 2, cells: 40, alignment: 64 }.kernel(caps));
    kernels.check();
}

#[test]
fn binary_operators() {
    use Binary::*;
    let ops = [
        Add,
        Sub,
        Mul,
        Div,
        FloorDiv,
        FloorMod,
        Minimum,
        Maximum,
        Pow,
        SquaredDifference,
        Prelu,
        Atan2,
        BitwiseXor,
        BitwiseAnd,
        BitwiseOr,
        ShiftRight,
        ShiftLeft,
        Remainder,
        Equal,
        NotEqual,
        Less,
        LessEqual,
        Greater,
        GreaterEqual,
        LogicalAnd,
        LogicalOr,
    ];
    let mut kernels = Kernels::default();
    let mut accepted = 0;
    for op in ops {
        for element in [Element::F32, Element::I32, Element::U32, Element::Bool] {
            for last in [8, 5] {
                for (a, b) in [(vec![3, last], vec![last]), (vec![3, 1], vec![3, last])] {
                    let activation = Activation::None;
                    let spec = binary::Spec { op, element, a, b, output: vec![3, last], activation };
                    if spec.kernel(&Caps::WEBGPU).is_ok() {
                        accepted += 1;
                        kernels.add(|caps| spec.kernel(caps));
                    }
                }
            }
        }
    }
    // 13 for floats, 16 for integers, 12 for unsigned ones, 6 comparisons of each of these, and 4 for booleans.
    assert_eq!(accepted, 4 * (13 + 16 + 12 + 6 + 6 + 6 + 2 + 2));
    for op in following() {
        let activation = Activation::Unary(op);
        kernels.add(|caps| {
            let (a, b, output) = (vec![8], vec![8], vec![8]);
            binary::Spec { op: Add, element: Element::F32, a, b, output, activation }.kernel(caps)
        });
    }
    // All ranks after merging, and operands that repeat.
    for rank in 1..=6 {
        for last in [4, 3] {
            let mut output = vec![2; rank];
            output[rank - 1] = last;
            let striped = |odd: usize| -> Vec<u32> {
                output.iter().enumerate().map(|(d, n)| if d % 2 == odd { 1 } else { *n }).collect()
            };
            for (a, b) in [(striped(0), striped(1)), (striped(1), striped(0)), (output.clone(), vec![1])] {
                let (output, activation) = (output.clone(), Activation::None);
                let spec = binary::Spec { op: Add, element: Element::F32, a, b, output, activation };
                kernels.add(|caps| spec.kernel(caps));
            }
        }
    }
    kernels.check();
}

#[test]
fn movements() {
    let mut kernels = Kernels::default();
    for rank in 1..=6 {
        for last in [8, 5] {
            let mut shape = vec![3; rank];
            shape[rank - 1] = last;
            let output: Vec<u32> =
                shape.iter().enumerate().map(|(d, n)| if d + 1 == rank { *n } else { 2 }).collect();
            let (begin, step) = (vec![0; rank], vec![1; rank]);
            kernels.add(|caps| {
                let (begin, step) = (begin.clone(), step.clone());
                slice::Spec { input: shape.clone(), output: output.clone(), begin, step }.kernel(caps)
            });
            let mut padding = vec![[1, 1]; rank];
            for inner in [[0, 0], [1, 0]] {
                padding[rank - 1] = inner;
                for fill in [Fill::Value(0), Fill::Reflect, Fill::Symmetric] {
                    let padding = padding.clone();
                    kernels.add(|caps| {
                        pad::Spec { input: shape.clone(), padding: padding.clone(), fill }.kernel(caps)
                    });
                }
            }
            let ones = |odd: usize| -> Vec<u32> {
                shape.iter().enumerate().map(|(d, n)| if d % 2 == odd { 1 } else { *n }).collect()
            };
            for (op, range) in LONG {
                kernels.add(|caps| {
                    let (a, b, output) = (ones(0), ones(1), shape.clone());
                    long::Spec { op, range, a, b, output }.kernel(caps)
                });
            }
            for condition in [ones(0), ones(1), vec![1], shape.clone()] {
                kernels.add(|caps| {
                    let (condition, output) = (condition.clone(), shape.clone());
                    select::Spec { condition, a: ones(0), b: ones(1), output }.kernel(caps)
                });
            }
            kernels.add(|caps| {
                gather::Spec { input: shape.clone(), indices: vec![2], axis: 0, batch_dims: 0 }.kernel(caps)
            });
        }
    }
    kernels.add(|caps| transpose::Spec { input: vec![2, 3, 4], permutation: vec![2, 0, 1] }.kernel(caps));
    // Matrices in up to four dimensions, none of which are neighbours in both orders.
    for rank in 2..=6 {
        for last in [20, 17] {
            let mut input = vec![3; rank];
            (input[0], input[rank - 1]) = (20, last);
            let permutation = (0..rank).rev().collect();
            let spec = transpose::Spec { input, permutation };
            kernels.add(|caps| spec.kernel(caps));
        }
    }
    kernels.add(|caps| tile::Spec { input: vec![2, 3], multiples: vec![2, 2] }.kernel(caps));
    kernels.add(|caps| {
        let direction = Shuffle::DepthToSpace;
        depth_to_space::Spec { direction, input: [1, 2, 2, 8], block: 2 }.kernel(caps)
    });
    for caps in DEVICES {
        let spec = concatenation::Spec { inputs: vec![vec![2, 3], vec![2, 5]], axis: 1 };
        spec.kernels(&caps).unwrap().into_iter().for_each(|kernel| kernels.insert(kernel));
    }
    kernels.check();
}

#[test]
fn searches() {
    let mut kernels = Kernels::default();
    for element in [Element::F32, Element::I32, Element::Bool] {
        for (outer, size, inner) in [(2, 9, 3), (2, 9, 1), (2, 900, 3), (2, 900, 1)] {
            for largest in [false, true] {
                let spec = arg_min_max::Spec { element, outer, size, inner, largest };
                kernels.add(|caps| spec.kernel(caps));
            }
        }
        kernels.add(|caps| topk::Spec { element, rows: 3, size: 9, wanted: 2 }.kernel(caps));
        for depth in 0..=6 {
            let spec = scatter::Spec { element, output: vec![3; 6], tuples: 4, depth };
            kernels.add(|caps| spec.kernel(caps));
        }
    }
    kernels.add(|caps| complex::Abs { elements: 9 }.kernel(caps));
    for lengths in [[1, 1], [1, 2], [2, 4], [16, 4096]] {
        for lines in [complex::Lines::Rows, complex::Lines::Columns] {
            let spec = complex::Transform { images: 2, input: [3, 5], lengths, lines };
            kernels.add(|caps| spec.kernel(caps));
        }
    }
    for (exclusive, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
        for element in [Element::F32, Element::I32] {
            let spec = cumsum::Spec { element, outer: 2, size: 9, inner: 3, exclusive, reverse };
            kernels.add(|caps| spec.kernel(caps));
        }
    }
    for last in [8, 5] {
        for depth in 1..=6 {
            let mut input = vec![3; 6];
            input.push(last);
            kernels.add(|caps| gather_nd::Spec { input: input.clone(), tuples: 4, depth }.kernel(caps));
        }
        kernels.add(|caps| l2_normalization::Spec { rows: 3, depth: last, integers: None }.kernel(caps));
        kernels
            .add(|caps| l2_normalization::Spec { rows: 3, depth: 100 * last, integers: None }.kernel(caps));
        for range in [[-128, 127], [0, 255]] {
            let integers = Some(l2_normalization::Bytes { input_zero: 3, zero: 0, range });
            for depth in [last, 100 * last] {
                kernels.add(|caps| l2_normalization::Spec { rows: 3, depth, integers }.kernel(caps));
            }
        }
    }
    for rank in 1..=6 {
        let (input, update) = (vec![3; rank], vec![2; rank]);
        kernels.add(|caps| {
            dynamic_update_slice::Spec { input: input.clone(), update: update.clone() }.kernel(caps)
        });
    }
    kernels.add(|caps| one_hot::Spec { outer: 2, depth: 3, inner: 4 }.kernel(caps));
    for condition in [Condition::Within(vec![[0, 3], [0, 5]]), Condition::Differs(0), Condition::NotZero] {
        kernels.add(|caps| check::Spec { elements: 6, condition: condition.clone() }.kernel(caps));
    }
    kernels.add(|caps| {
        let (pixels, channels, radius) = (4, 5, 2);
        let (bias, alpha, beta) = (1.0, 0.5, 0.75);
        local_response_normalization::Spec { pixels, channels, radius, bias, alpha, beta }.kernel(caps)
    });
    kernels.check();
}

#[test]
fn pictures_as_tensors() {
    let mut kernels = Kernels::default();
    let spec = |channels| texture::Spec {
        output: [5, 9, channels],
        region: [0.0, 0.0, 1.0, 1.0],
        scale: [2.0; 4],
        offset: [-1.0; 4],
    };
    for channels in [1, 3, 4] {
        kernels.add(|caps| spec(channels).kernel(caps));
    }
    assert!(spec(2).kernel(&Caps::WEBGPU).is_err() && spec(0).kernel(&Caps::WEBGPU).is_err());
    kernels.check();
}

#[test]
fn landmarks_and_what_is_cropped_around_them() {
    let mut kernels = Kernels::default();
    for positions in
        [Positions::Each, Positions::Matrix { centered: true }, Positions::Matrix { centered: false }]
    {
        let spec = resample::Spec { positions, input: [1, 4, 5, 3], size: [2, 3] };
        kernels.add(|caps| spec.kernel(caps));
    }
    for dimensions in [2, 3] {
        kernels.add(|caps| landmarks::Transform { count: 5, dimensions, scale: 1.0 }.kernel(caps));
    }
    for (angle, count) in [(None, 1), (Some(1.0), 4), (None, 5)] {
        let crop = landmarks::Crop {
            subset: (0..count).collect(),
            line: [0, 1],
            angle,
            scale: [1.0; 2],
            unit: [1.0, 0.0],
            half: [1.0; 2],
            columns: [1.0; 2],
            rows: [1.0; 2],
            ends: [0.0; 2],
        };
        kernels.add(|caps| crop.kernel(caps));
    }
    let windows = max_pooling::Windows { window: [2; 2], stride: [2; 2], padding: [0; 2] };
    let (large, small) = ([1, 4, 4, 3], [1, 2, 2, 3]);
    for bounds in [None, Some([0.0, 6.0])] {
        kernels.add(|caps| max_pooling::Pool { input: large, output: small, windows, bounds }.kernel(caps));
    }
    kernels.add(|caps| max_pooling::Unpool { input: small, output: large, windows }.kernel(caps));
    kernels.check();
}

#[test]
fn convolutions_in_three_dimensions() {
    let mut kernels = Kernels::default();
    for activation in following().map(Activation::Unary).chain([Activation::None]) {
        for (transposed, bias, channels) in
            [(false, true, 8), (false, false, 5), (true, true, 8), (true, false, 5)]
        {
            let spec = conv_3d::Spec {
                transposed,
                input: [1, 4, 4, 4, 3],
                output: [1, 4, 4, 4, channels],
                window: [3; 3],
                stride: [1; 3],
                dilation: [1; 3],
                padding: [1; 3],
                bias,
                activation,
            };
            kernels.add(|caps| spec.kernel(caps));
        }
    }
    kernels.check();
}

#[test]
fn windows() {
    let mut kernels = Kernels::default();
    let activations = following().map(Activation::Unary).chain([Activation::None]);
    for activation in activations {
        for op in [Pool::Average, Pool::Max] {
            for channels in [8, 5] {
                let spec = |input, output, window| pool_2d::Spec {
                    op,
                    input: [1, input, input, channels],
                    output: [1, output, output, channels],
                    window: [window; 2],
                    stride: [1; 2],
                    padding: [0; 2],
                    activation,
                    integers: None,
                };
                kernels.add(|caps| spec(5, 4, 2).kernel(caps));
                kernels.add(|caps| spec(9, 1, 9).kernel(caps));
                if activation == Activation::None {
                    let integers = Some([-128, 127]);
                    kernels.add(|caps| pool_2d::Spec { integers, ..spec(5, 4, 2) }.kernel(caps));
                }
            }
        }
    }
    for (op, element) in [
        (Reduce::Sum, Element::F32),
        (Reduce::Mean, Element::F32),
        (Reduce::Max, Element::F32),
        (Reduce::Min, Element::F32),
        (Reduce::Prod, Element::F32),
        (Reduce::Sum, Element::I32),
        (Reduce::Max, Element::I32),
        (Reduce::Min, Element::Bool),
    ] {
        for axes in [vec![0], vec![1], vec![0, 2], vec![1, 3], vec![0, 2, 4], vec![1, 3, 5]] {
            for last in [8, 5] {
                let spec = reduce::Spec {
                    op,
                    element,
                    input: vec![8, 9, 2, 9, 2, last],
                    axes: axes.clone(),
                    activation: Activation::None,
                };
                kernels.add(|caps| spec.kernel(caps));
            }
        }
        for last in [400, 401] {
            let (input, activation) = (vec![3, last], Activation::None);
            kernels.add(|caps| {
                reduce::Spec { op, element, input: input.clone(), axes: vec![1], activation }.kernel(caps)
            });
        }
    }
    for (depth, log) in [(8, false), (8, true), (7, false), (7, true), (1000, false), (1001, true)] {
        kernels.add(|caps| softmax::Spec { rows: 3, depth, beta: 1.0, log }.kernel(caps));
    }
    let bilinear = Resize::Bilinear { align_corners: false, half_pixel_centers: true };
    for op in [bilinear, Resize::Fixed, Resize::FixedWide, Resize::Unsigned, Resize::Nearest] {
        for channels in [8, 5] {
            let spec = resize::Spec { op, input: [1, 3, 3, channels], size: [5; 2] };
            kernels.add(|caps| spec.kernel(caps));
        }
    }
    kernels.check();
}

#[test]
fn integers_with_scales() {
    let mut kernels = Kernels::default();
    use Binary::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
    let comparisons = [Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual].map(Operator::Compare);
    let operators = [
        Operator::Add,
        Operator::Sub,
        Operator::SquaredDifference,
        Operator::AddShifted,
        Operator::SubShifted,
        Operator::Mul,
        Operator::MulFractions,
        Operator::Div,
        Operator::Prelu,
    ];
    let factor = Factor { multiplier: 1 << 30, shift: 0 };
    for op in operators.into_iter().chain(comparisons) {
        for (a, b, grouped) in
            [(vec![8], vec![8], true), (vec![32], vec![32], true), (vec![3, 5], vec![5], false)]
        {
            let spec = binary_quantized::Spec {
                op,
                zeros: [1, 2],
                left: 15,
                inputs: [factor; 2],
                factor,
                zero: 0,
                range: [-128, 127],
                grouped,
                output: a.clone(),
                a,
                b,
            };
            kernels.add(|caps| spec.kernel(caps));
        }
    }
    for elements in [48, 15] {
        kernels.add(|caps| table::Spec { entries: 256, elements }.kernel(caps));
        let fixed = By::Fixed { before: 1, factor, up: [elements, 0] };
        for by in [fixed, By::Real { scale: 0.5, bias: 1.0 }] {
            for saturates in [false, true] {
                let spec = rescale::Spec { by, after: 3, saturates, low: -128, high: 127, elements };
                kernels.add(|caps| spec.kernel(caps));
            }
        }
        for depth in [elements, 2 * elements] {
            kernels.add(|caps| softmax_wide::Spec { rows: 3, depth, to_table: factor }.kernel(caps));
        }
        for zero in [None, Some(-128)] {
            let spec =
                softmax_quantized::Spec { rows: 3, depth: elements, scale: 0.5, zero, range: [-128, 127] };
            kernels.add(|caps| spec.kernel(caps));
        }
        let affine = Affine { scale: 0.5, zero: 1, low: -128, high: 127 };
        for elements in [elements, elements + 12] {
            let spec = quantize::Spec { affine, direction: Direction::ToEven, elements };
            kernels.add(|caps| spec.kernel(caps));
        }
    }
    kernels.check();
}
