//! Special values: NaN, infinities, denormals, zeros of either sign, and the ends of a type's range.
//!
//! [`Value::demanded`](crate::compare::Value::demanded) determines which arithmetic must handle a class. A case
//! contains one class only, so that a class that is not compared does not hide errors in another one.
//!
//! The maximum of NaN and a number depends on their order: LiteRT's own kernels use comparisons, and a comparison with
//! NaN is false. Whether an op with a fused activation propagates infinity is not tested: LiteRT's own kernels clamp to
//! finite numbers, XNNPACK's kernels do not.

use delegraph_core::ops::concatenation::ConcatenationParams;
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::gather::GatherParams;
use delegraph_core::ops::pack::PackParams;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::reshape::ReshapeParams;
use delegraph_core::ops::resize::ResizeNearestNeighborParams;
use delegraph_core::ops::softmax::SoftmaxParams;

use super::super::prelude::*;
use super::{elementwise, unary};

/// Classes of special floats.
const FLOATS: [(&str, &[f64]); 4] = [
    ("nan", &[f64::NAN, 0.0]),
    ("inf", &[f64::INFINITY, f64::NEG_INFINITY]),
    ("denormal", &[1e-40, -3e-41, 1e-45]),
    ("zeros", &[-0.0, 0.0]),
];
/// The largest finite numbers, for ops that copy and compare.
const LARGE: &[f64] = &[3.402_823_466_385_288_6e38, -3.402_823_466_385_288_6e38, 1.175_494_4e-38];
/// The largest finite 16-bit floats.
const LARGE_HALF: &[f64] = &[65504.0, -65504.0, 6.2e-5];
/// The ends of each integer type, to which these values are clamped.
const ENDS: &[f64] = &[-1e300, 1e300];

/// Returns each op that copies elements, with its other operands.
fn movers(ty: TensorType) -> Vec<(Op, Params, Vec<Operand>)> {
    let other = || x(ty, &[2, 3, 5]).auto();
    let concatenation = ConcatenationParams::default().axis(1).fused_activation_function(Activation::None);
    vec![
        (Op::TRANSPOSE, Params::None, vec![list(&[1, 2, 0])]),
        (Op::REVERSE_V2, Params::None, vec![list(&[1])]),
        (Op::TILE, Params::None, vec![list(&[1, 2, 2])]),
        (Op::SLICE, Params::None, vec![list(&[0, 1, 1]), list(&[2, 2, 3])]),
        (Op::PAD, Params::None, vec![known(&[3, 2], &[0i32, 1, 1, 0, 2, 1])]),
        (Op::EXPAND_DIMS, Params::None, vec![list(&[1])]),
        (Op::RESHAPE, ReshapeParams::default().new_shape(vec![5, 6]).into(), vec![list(&[5, 6])]),
        (Op::CONCATENATION, concatenation.into(), vec![other()]),
        (Op::PACK, PackParams::default().axis(1).values_count(2).into(), vec![other()]),
        (Op::GATHER, GatherParams::default().axis(1).batch_dims(0).into(), vec![list(&[2, 0, 1, 1])]),
    ]
}

/// Creates an operand in which every third element is special.
fn mixed(shape: &[usize], values: &'static [f64]) -> Operand {
    x(Float32, shape).mixed(values)
}

pub(super) fn cases(out: &mut Vec<Case>) {
    let mut push = |case: Case, name: &str| out.push(case.detail(format!("special_{name}")).seeded(11));
    for (name, values) in FLOATS.into_iter().chain([("large", LARGE)]) {
        for (op, params, rest) in movers(Float32) {
            let inputs = [mixed(&[2, 3, 5], values)].into_iter().chain(rest);
            push(Case::new(op, params, inputs), name);
        }
        let params = ResizeNearestNeighborParams::default().align_corners(false).half_pixel_centers(true);
        let inputs = [mixed(&[1, 3, 5, 2], values), list(&[6, 4])];
        push(Case::new(Op::RESIZE_NEAREST_NEIGHBOR, params, inputs), name);
        let inputs = [x(Bool, &[2, 1, 5]), mixed(&[2, 3, 5], values), x(Float32, &[5])];
        push(Case::new(Op::SELECT_V2, Params::None, inputs).outputs_of(Float32), name);
        for op in [Op::EQUAL, Op::NOT_EQUAL, Op::LESS, Op::LESS_EQUAL, Op::GREATER, Op::GREATER_EQUAL] {
            let inputs = [mixed(&[1, 13], values), mixed(&[11, 1], values)];
            push(Case::new(op, Params::None, inputs).outputs([Output::of(Bool)]), name);
        }
        for op in [Op::MAXIMUM, Op::MINIMUM] {
            let inputs = [mixed(&[1, 13], values), mixed(&[11, 1], values)];
            push(Case::new(op, Params::None, inputs), name);
        }
        for op in [Op::REDUCE_MAX, Op::REDUCE_MIN] {
            let inputs = [mixed(&[7, 11], values), list(&[1])];
            push(Case::new(op, ReducerParams::default().keep_dims(false), inputs), name);
        }
    }
    // Functions and sums of special values are special in some cases and not in others; both are tested.
    for (name, values) in FLOATS {
        for row in unary::TABLE {
            push(Case::new(row.0, unary::params(row.0, 0), [mixed(&[31], values)]), name);
        }
        for op in [Op::SUM, Op::MEAN] {
            let inputs = [mixed(&[7, 2], values), list(&[1])];
            push(Case::new(op, ReducerParams::default().keep_dims(false), inputs), name);
        }
        let inputs = [mixed(&[1, 13], values), mixed(&[11, 1], values)];
        push(Case::new(Op::SQUARED_DIFFERENCE, Params::None, inputs), name);
        if name == "inf" {
            continue;
        }
        for op in [Op::ADD, Op::SUB, Op::MUL, Op::DIV] {
            let inputs = [mixed(&[1, 13], values), mixed(&[11, 1], values)];
            push(Case::new(op, elementwise::params(op, Activation::None), inputs.clone()), name);
            if matches!(op, Op::ADD | Op::MUL) {
                let case = Case::new(op, elementwise::params(op, Activation::Relu6), inputs);
                push(case, &format!("{name}_relu6"));
            }
        }
        let pool = Pool2DParams::default()
            .padding(Padding::Same)
            .stride_w(1)
            .stride_h(2)
            .filter_width(2)
            .filter_height(3)
            .fused_activation_function(Activation::None);
        push(Case::new(Op::AVERAGE_POOL_2D, pool.clone(), [mixed(&[1, 5, 4, 2], values)]), name);
        push(Case::new(Op::MAX_POOL_2D, pool, [mixed(&[1, 5, 4, 2], values)]), name);
        if name != "nan" {
            push(Case::new(Op::SOFTMAX, SoftmaxParams::default().beta(1.0), [mixed(&[5, 7], values)]), name);
        }
        let conv = Conv2DParams::default()
            .padding(Padding::Same)
            .stride_w(1)
            .stride_h(1)
            .fused_activation_function(Activation::Relu)
            .dilation_w_factor(1)
            .dilation_h_factor(1)
            .quantized_bias_type(Float32);
        let inputs = [
            mixed(&[1, 6, 5, 1], values),
            x(Float32, &[3, 2, 3, 1]).range(0.1, 1.0).constant(),
            x(Float32, &[3]).constant(),
        ];
        push(Case::new(Op::CONV_2D, conv, inputs), name);
    }
    // Maxima of negative numbers, for kernels that start at zero or at the smallest positive number.
    for (op, low, high) in [(Op::REDUCE_MAX, -3e38, -1e38), (Op::REDUCE_MIN, 1e38, 3e38)] {
        let inputs = [x(Float32, &[5, 9]).range(low, high), list(&[0])];
        push(Case::new(op, ReducerParams::default().keep_dims(true), inputs), "far");
    }
    for ty in [Int8, UInt8, Int16, Int32, Int64] {
        for (op, params, rest) in movers(ty) {
            let inputs = [x(ty, &[2, 3, 5]).auto().mixed(ENDS)].into_iter().chain(rest);
            push(Case::new(op, params, inputs).auto(ty), "ends");
        }
    }
    for (op, params, rest) in movers(Float16) {
        let inputs = [x(Float16, &[2, 3, 5]).mixed(LARGE_HALF)].into_iter().chain(rest);
        push(Case::new(op, params, inputs), "large");
    }
    for (name, values) in [("large", LARGE_HALF), ("denormal", &[6e-8, -3e-6, 5.9e-5][..])] {
        let case = Case::new(Op::DEQUANTIZE, Params::None, [x(Float16, &[5, 7]).mixed(values)]);
        push(case.outputs([Output::of(Float32)]), name);
    }
    wrapping(&mut push);
    saturating(&mut push);
}

/// Integers of 32 and 64 bits at the ends of their ranges, beyond those that floats represent exactly, and with results
/// that wrap around.
fn wrapping(push: &mut impl FnMut(Case, &str)) {
    for ty in [Int32, Int64] {
        for op in [Op::MAXIMUM, Op::MINIMUM] {
            let inputs = [x(ty, &[1, 13]).mixed(ENDS), x(ty, &[11, 1]).mixed(ENDS)];
            push(Case::new(op, Params::None, inputs), "ends");
        }
        for op in [Op::LESS, Op::GREATER_EQUAL, Op::EQUAL] {
            let inputs = [x(ty, &[1, 13]).mixed(ENDS), x(ty, &[11, 1]).mixed(ENDS)];
            push(Case::new(op, Params::None, inputs).outputs([Output::of(Bool)]), "ends");
        }
    }
    // Integers beyond those that a float represents exactly.
    let near: Vec<i32> = (0..9).map(|i| 16_777_216 + i).collect();
    for op in [Op::ADD, Op::SUB, Op::MAXIMUM, Op::MINIMUM] {
        let params = elementwise::params(op, Activation::None);
        push(Case::new(op, params, [given(&[9], &near), given(&[1], &[16_777_217i32])]), "near");
    }
    for op in [Op::EQUAL, Op::LESS, Op::GREATER] {
        let inputs = [given(&[9], &near), given(&[1], &[16_777_217i32])];
        push(Case::new(op, Params::None, inputs).outputs([Output::of(Bool)]), "near");
    }
    let wide: Vec<i64> = (0..9).map(|i| (1i64 << 40) * i + i).collect();
    for op in [Op::ADD, Op::SUB, Op::MUL] {
        let params = elementwise::params(op, Activation::None);
        push(Case::new(op, params, [given(&[9], &wide), given(&[1], &[(1i64 << 33) + 1])]), "wide");
    }
}

/// Results far beyond both ends of the output's range, with each activation.
fn saturating(push: &mut impl FnMut(Case, &str)) {
    use Activation::{None as Plain, Relu, Relu6, ReluN1To1};
    for activation in [Plain, Relu, Relu6, ReluN1To1] {
        for (ty, zero) in [(Int8, -5), (UInt8, 131), (Int16, 0)] {
            let small = if ty == Int16 { 1.0 / 256.0 } else { 1.0 };
            for op in [Op::ADD, Op::SUB, Op::MUL] {
                let inputs = [
                    x(ty, &[9, 1]).mixed(ENDS).q(0.4 * small, zero),
                    x(ty, &[1, 13]).mixed(ENDS).q(0.3 * small, zero),
                ];
                let case = Case::new(op, elementwise::params(op, activation), inputs).q(0.06 * small, zero);
                push(case, &format!("saturated_{activation:?}").to_lowercase());
            }
        }
        let conv = Conv2DParams::default()
            .padding(Padding::Same)
            .stride_w(1)
            .stride_h(1)
            .fused_activation_function(activation)
            .dilation_w_factor(1)
            .dilation_h_factor(1)
            .quantized_bias_type(Float32);
        for ty in [Int8, UInt8] {
            let middle = if ty == UInt8 { 128 } else { 0 };
            let weights = if ty == UInt8 { 128 } else { 0 };
            let inputs = [
                x(ty, &[1, 4, 5, 3]).q(0.05, middle - 100),
                x(ty, &[5, 2, 3, 3]).constant().q(0.04, weights),
                x(Int32, &[5]).constant().range(-9000.0, 9000.0).q(0.002, 0),
            ];
            let case = Case::new(Op::CONV_2D, conv.clone(), inputs).q(0.07, middle + 20);
            push(case, &format!("saturated_{activation:?}").to_lowercase());
        }
    }
}
