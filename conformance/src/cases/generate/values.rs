//! Values for which otherwise correct kernels fail, and shapes that allow several interpretations. Each is an error
//! that a delegate had despite passing all other cases:
//!
//! - powers computed with logarithms do not support negative bases; powers with a constant exponent are often separate
//!   products;
//! - integers wrap around, also on hardware that saturates;
//! - quantized operands of different scales are compared by their real values, with and without broadcasting;
//! - a 64-bit bias may need more than 32 bits;
//! - sines need a range reduction;
//! - a vector next to a square matrix, or a kernel with equal width and number of channels, can be applied along the
//!   wrong dimension without a shape error;
//! - errors in the distribution of random numbers are visible only in thousands of them.

use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::cumsum::CumsumParams;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::random::RandomParams;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::softmax::SoftmaxParams;

use super::super::prelude::*;
use super::elementwise;

/// The ends of each integer type, to which these values are clamped.
const ENDS: &[f64] = &[-1e300, 1e300];

fn plain(op: Op) -> Params {
    elementwise::params(op, Activation::None)
}

pub(super) fn cases(out: &mut Vec<Case>) {
    let mut push = |case: Case, detail: &str| out.push(case.detail(detail.to_owned()).seeded(31));
    powers(&mut push);
    around(&mut push);
    rescaled(&mut push);
    wide_bias(&mut push);
    far(&mut push);
    squares(&mut push);
    chance(&mut push);
}

/// Negative bases and zeros with finite results: with exponents of the same shape, and with constant ones.
fn powers(push: &mut impl FnMut(Case, &str)) {
    let bases = [-2.5f32, -2.0, -1.5, -1.0, -0.5, -0.25, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0];
    let exponents = [3.0f32, 2.0, -1.0, -3.0, 2.0, 3.0, 2.0, 0.5, 7.0, -1.5, 4.0, 0.0];
    let any = || given(&[3, 4], &bases);
    push(Case::new(Op::POW, Params::None, [any(), given(&[3, 4], &exponents)]), "bases");
    let whole = [2.0f32, 3.0, 0.0, 1.0];
    push(Case::new(Op::POW, Params::None, [any(), known(&[4], &whole)]), "bases_constants");
    for exponent in [0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0] {
        let inputs = [any(), known(&[], &[exponent])];
        push(Case::new(Op::POW, Params::None, inputs), &format!("to_{exponent}"));
    }
    for exponent in [-1.0f32, -2.0, -3.0] {
        // Zero has no negative powers.
        let inputs = [given(&[3, 2], &bases[..6]), known(&[], &[exponent])];
        push(Case::new(Op::POW, Params::None, inputs), &format!("to_{exponent}"));
    }
    for exponent in [0.5f32, -0.5, 1.5, 2.25] {
        let inputs = [x(Float32, &[3, 4]).range(0.1, 9.0), known(&[1], &[exponent])];
        push(Case::new(Op::POW, Params::None, inputs), &format!("to_{exponent}"));
    }
    for base in [2.0f32, 0.5, 10.0] {
        let inputs = [known(&[], &[base]), x(Float32, &[3, 4]).range(-3.0, 3.0)];
        push(Case::new(Op::POW, Params::None, inputs), &format!("of_{base}"));
    }
}

/// Integers that overflow their type wrap around.
fn around(push: &mut impl FnMut(Case, &str)) {
    for ty in [Int32, Int64] {
        for op in [Op::ADD, Op::SUB, Op::MUL] {
            for (shapes, name) in [([&[17][..], &[17]], "around"), ([&[1, 13], &[11, 1]], "around_broadcast")]
            {
                let inputs = shapes.map(|shape| x(ty, shape).range(-9.0, 9.0).mixed(ENDS));
                push(Case::new(op, plain(op), inputs), name);
            }
            let inputs = [x(ty, &[17]).mixed(ENDS), x(ty, &[]).range(3.0, 7.0).constant()];
            push(Case::new(op, plain(op), inputs), "around_constant");
        }
    }
    let ends = || x(Int32, &[4, 7]).mixed(ENDS);
    push(Case::new(Op::SQUARED_DIFFERENCE, Params::None, [ends(), ends()]), "around");
    push(Case::new(Op::SUM, ReducerParams::default().keep_dims(false), [ends(), list(&[1])]), "around");
    let params = CumsumParams::default().exclusive(false).reverse(false);
    push(Case::new(Op::CUMSUM, params, [ends(), list(&[1]).reshaped(&[])]), "around");
}

/// Comparisons of 8-bit operands with two scales: equal shapes, either operand smaller, either operand constant.
fn rescaled(push: &mut impl FnMut(Case, &str)) {
    let ops = [Op::EQUAL, Op::NOT_EQUAL, Op::LESS, Op::LESS_EQUAL, Op::GREATER, Op::GREATER_EQUAL];
    let shapes: [(&[usize], &[usize]); 4] =
        [(&[5, 13], &[5, 13]), (&[13], &[5, 13]), (&[5, 13], &[]), (&[5, 1], &[1, 13])];
    for op in ops {
        for (ty, zero) in [(Int8, 0), (UInt8, 128)] {
            for (i, (a, b)) in shapes.into_iter().enumerate() {
                let (left, right) = (x(ty, a).q(0.05, zero - 3), x(ty, b).q(0.08, zero + 9));
                let inputs = if i % 2 == 0 { [left, right] } else { [left, right.constant()] };
                let case = Case::new(op, Params::None, inputs).outputs([Output::of(Bool)]);
                push(case, &format!("rescaled_shapes{i}"));
            }
        }
    }
}

/// Biases of 16-bit data that need more than 32 bits.
fn wide_bias(push: &mut impl FnMut(Case, &str)) {
    let bias = [5_000_000_000i64, -7_000_000_000, 2_147_483_648, -2_147_483_649, 3_000_000];
    let data = |shape: &[usize]| x(Int16, shape).range(-3000.0, 3000.0).q(1e-4, 0);
    let weights = |shape: &[usize]| x(Int8, shape).range(-127.0, 127.0).constant().q(0.02, 0);
    let bias = || known(&[5], &bias).q(2e-6, 0);
    let inputs = [data(&[3, 9]), weights(&[5, 9]), bias()];
    push(Case::new(Op::FULLY_CONNECTED, FullyConnectedParams::default(), inputs).q(0.5, 0), "wide_bias");
    let inputs = [data(&[1, 4, 5, 2]), weights(&[5, 3, 2, 2]), bias()];
    push(Case::new(Op::CONV_2D, conv(Padding::Same), inputs).q(0.5, 0), "wide_bias");
}

fn conv(padding: Padding) -> Params {
    let params = Conv2DParams::default()
        .padding(padding)
        .stride_w(1)
        .stride_h(1)
        .fused_activation_function(Activation::None)
        .dilation_w_factor(1)
        .dilation_h_factor(1)
        .quantized_bias_type(Float32);
    params.into()
}

/// Angles far from zero, within the range in which shaders are precise.
fn far(push: &mut impl FnMut(Case, &str)) {
    for op in [Op::SIN, Op::COS] {
        push(Case::new(op, Params::None, [x(Float32, &[7, 29]).range(-110.0, 110.0)]), "far");
    }
}

/// Equal sizes: only the op's rule determines the dimension.
fn squares(push: &mut impl FnMut(Case, &str)) {
    let square = || x(Float32, &[5, 5]);
    for shape in [&[5][..], &[5, 1], &[1, 5]] {
        let name = format!("square_{}", shape.len() * 10 + shape[0]);
        let inputs = [x(Bool, shape), square(), square()];
        push(Case::new(Op::SELECT_V2, Params::None, inputs).outputs_of(Float32).of(Float32), &name);
        for op in [Op::ADD, Op::SUB, Op::MUL] {
            push(Case::new(op, plain(op), [square(), x(Float32, shape)]), &name);
            push(Case::new(op, plain(op), [x(Float32, shape).constant(), square()]), &name);
        }
        let to = list(&[5, 5]);
        push(Case::new(Op::BROADCAST_TO, Params::None, [x(Float32, shape), to]), &name);
    }
    // The vector of the older op selects rows.
    let inputs = [x(Bool, &[5]), square(), square()];
    push(Case::new(Op::SELECT, Params::None, inputs).outputs_of(Float32).of(Float32), "square");
    let cube = || x(Float32, &[2, 3, 3, 3]);
    for shape in [&[3][..], &[3, 1], &[3, 1, 1], &[1, 3, 1], &[2, 1, 1, 1]] {
        let name = format!("cube_{}", shape.len());
        push(Case::new(Op::ADD, plain(Op::ADD), [cube(), x(Float32, shape)]), &name);
        push(Case::new(Op::MUL, plain(Op::MUL), [cube(), x(Float32, shape).constant()]), &name);
    }
    push(Case::new(Op::PRELU, Params::None, [cube(), x(Float32, &[3, 1, 1]).constant()]), "cube_rows");
    push(Case::new(Op::PRELU, Params::None, [cube(), x(Float32, &[1, 1, 3]).constant()]), "cube_channels");
    for axis in [0, 1] {
        let params = ReducerParams::default().keep_dims(false);
        push(Case::new(Op::SUM, params.clone(), [square(), list(&[axis])]), &format!("square_{axis}"));
        push(Case::new(Op::REDUCE_MAX, params, [square(), list(&[axis])]), &format!("square_{axis}"));
        let params = CumsumParams::default().exclusive(false).reverse(false);
        let inputs = [square(), list(&[axis]).reshaped(&[])];
        push(Case::new(Op::CUMSUM, params, inputs), &format!("square_{axis}"));
    }
    push(Case::new(Op::SOFTMAX, SoftmaxParams::default().beta(1.0), [square()]), "square");
    push(Case::new(Op::TRANSPOSE, Params::None, [square(), list(&[1, 0])]), "square");
    push(Case::new(Op::TRANSPOSE, Params::None, [cube(), list(&[0, 3, 1, 2])]), "cube");
    let inputs = [square(), square().constant(), x(Float32, &[5]).constant()];
    push(Case::new(Op::FULLY_CONNECTED, FullyConnectedParams::default(), inputs), "square");
    for (adj_x, adj_y) in [(false, false), (true, false), (false, true), (true, true)] {
        let params = BatchMatMulParams::default().adj_x(adj_x).adj_y(adj_y).asymmetric_quantize_inputs(false);
        let name = format!("square_{}{}", u8::from(adj_x), u8::from(adj_y));
        push(Case::new(Op::BATCH_MATMUL, params, [square(), square()]), &name);
    }
    for padding in [Padding::Same, Padding::Valid] {
        let weights = x(Float32, &[3, 3, 3, 3]).constant();
        let inputs = [cube(), weights, x(Float32, &[3]).constant()];
        push(Case::new(Op::CONV_2D, conv(padding), inputs), &format!("cube_{padding:?}").to_lowercase());
    }
}

/// Enough random numbers to detect a wrong mean, deviation or distribution.
fn chance(push: &mut impl FnMut(Case, &str)) {
    for (seed, seed2) in [(1, 2), (31, 0)] {
        for op in [Op::RANDOM_STANDARD_NORMAL, Op::RANDOM_UNIFORM] {
            let case = Case::new(op, RandomParams::default().seed(seed).seed2(seed2), [list(&[120, 200])]);
            push(case.outputs([Output::of(Float32)]).of(Float32), "many");
        }
        for ty in [Int32, Int64] {
            let logits = x(Float32, &[1, 7]).range(-1.0, 1.0);
            let inputs = [logits, list(&[24_000]).reshaped(&[])];
            let case = Case::new(Op::MULTINOMIAL, RandomParams::default().seed(seed).seed2(seed2), inputs);
            push(case.outputs([Output::of(ty)]), &format!("to_{}_many", ty.name().to_lowercase()));
        }
    }
}
