//! Forms in which frameworks express normalizations.

use super::*;

const LAYER: &str = "custom op \"delegraph.layer_norm\"";
const RMS: &str = "custom op \"delegraph.rms_norm\"";
const CHANNELS: usize = 6;

/// The form of scaling and shifting `x` and its mean.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// `x · s + (β - mean · s)`: TensorFlow, Keras 2.
    Shifted,
    /// `x · s + (-mean · s + β)`: Keras 3.
    Negated,
    /// `x · s + (β + -(mean · s))`.
    NegatedProduct,
    /// `β + (x · s - mean · s)`.
    Difference,
    /// `(x - mean) · r · γ + β`: PyTorch, ONNX.
    Centered,
    /// `β - (mean - x) · s`.
    Reversed,
}

const FORMS: [Form; 6] =
    [Form::Shifted, Form::Negated, Form::NegatedProduct, Form::Difference, Form::Centered, Form::Reversed];

/// The form of squaring the differences and computing the root.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Squaring {
    Difference,
    Product,
    Square,
    Power,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Root {
    Reciprocal,
    Divisor,
    One,
    Power,
}

/// Adds the root of the variance, as a factor or as a divisor.
fn root(g: &mut SubgraphBuilder, squares: TensorId, root: Root) -> TensorId {
    let variance = reduce(g, B::MEAN, squares, -1);
    let sum = scalar(g, B::ADD, variance, 1e-3);
    match root {
        Root::Reciprocal => unary(g, B::RSQRT, sum),
        Root::Divisor => unary(g, B::SQRT, sum),
        Root::One => {
            let (one, root) = (g.constant("", [1, 1], &[1f32]), unary(g, B::SQRT, sum));
            binary(g, B::DIV, one, root)
        }
        Root::Power => scalar(g, B::POW, sum, -0.5),
    }
}

fn scale(g: &mut SubgraphBuilder, x: TensorId, by: TensorId, how: Root) -> TensorId {
    binary(g, if how == Root::Divisor { B::DIV } else { B::MUL }, x, by)
}

fn parameter(g: &mut SubgraphBuilder, first: f32) -> TensorId {
    let values: Vec<f32> = (0..CHANNELS).map(|i| first + i as f32 / 4.0).collect();
    g.constant("", [1, 1, CHANNELS], &values)
}

fn input(g: &mut SubgraphBuilder) -> TensorId {
    let x = g.input("x", TensorType::Float32, [2, 3, CHANNELS]);
    // The normalization reads the output of a node, not an input of the graph.
    unary(g, B::TANH, x)
}

fn layer_norm(form: Form, square: Squaring, how: Root, gamma: bool, beta: bool) -> SubgraphBuilder {
    let mut graph = SubgraphBuilder::new("main");
    let g = &mut graph;
    let x = input(g);
    let mean = reduce(g, B::MEAN, x, 2);
    let difference = match form {
        Form::Reversed => binary(g, B::SUB, mean, x),
        _ if form == Form::Centered || square != Squaring::Difference => binary(g, B::SUB, x, mean),
        _ => x,
    };
    let squares = match square {
        Squaring::Difference => binary(g, B::SQUARED_DIFFERENCE, mean, x),
        Squaring::Product => binary(g, B::MUL, difference, difference),
        Squaring::Square => unary(g, B::SQUARE, difference),
        Squaring::Power => scalar(g, B::POW, difference, 2.0),
    };
    let r = root(g, squares, how);
    let mut s = r;
    let mut by = how;
    if gamma && form != Form::Centered {
        let gamma = parameter(g, 0.5);
        s = if how == Root::Divisor { binary(g, B::DIV, gamma, r) } else { binary(g, B::MUL, r, gamma) };
        by = Root::Reciprocal;
    }
    let beta = beta.then(|| parameter(g, -0.5));
    let y = match form {
        Form::Centered => {
            let y = scale(g, difference, r, how);
            let y = if gamma {
                let gamma = parameter(g, 0.5);
                binary(g, B::MUL, gamma, y)
            } else {
                y
            };
            beta.map_or(y, |beta| binary(g, B::ADD, y, beta))
        }
        Form::Reversed => {
            let y = scale(g, difference, s, by);
            match beta {
                Some(beta) => binary(g, B::SUB, beta, y),
                None => unary(g, B::NEG, y),
            }
        }
        Form::Difference => {
            let (x, mean) = (scale(g, x, s, by), scale(g, mean, s, by));
            let y = binary(g, B::SUB, x, mean);
            beta.map_or(y, |beta| binary(g, B::ADD, beta, y))
        }
        _ => {
            let x = scale(g, x, s, by);
            let mean = if form == Form::Negated { unary(g, B::NEG, mean) } else { mean };
            let mean = scale(g, mean, s, by);
            let mean = if form == Form::NegatedProduct { unary(g, B::NEG, mean) } else { mean };
            let rest = match (form, beta) {
                (Form::Shifted, Some(beta)) => binary(g, B::SUB, beta, mean),
                (Form::Shifted, None) => unary(g, B::NEG, mean),
                (_, Some(beta)) => binary(g, B::ADD, mean, beta),
                (_, None) => mean,
            };
            binary(g, B::ADD, x, rest)
        }
    };
    let y = unary(g, B::ABS, y);
    graph.outputs([y]);
    graph
}

#[test]
fn layer_normalization_is_recognised_in_all_forms() {
    let allowed = Pipeline::new().allow_custom();
    let mut count = 0;
    for form in FORMS {
        for square in [Squaring::Difference, Squaring::Product, Squaring::Square, Squaring::Power] {
            for how in [Root::Reciprocal, Root::Divisor, Root::One, Root::Power] {
                for (gamma, beta) in [(true, true), (true, false), (false, true), (false, false)] {
                    let model = build(layer_norm(form, square, how, gamma, beta));
                    let fused = allowed.run(&model).unwrap().model;
                    let ops: Vec<String> =
                        fused.subgraphs()[0].nodes().iter().map(|n| n.op().to_string()).collect();
                    assert_eq!(ops, ["TANH", LAYER, "ABS"], "{form:?} {square:?} {how:?} {gamma} {beta}");
                    same(&model, &fused);
                    count += 1;
                }
            }
        }
    }
    assert_eq!(count, 384);
    // Custom ops are produced only if they are allowed.
    let plain = ops_after(
        &Pipeline::new(),
        &build(layer_norm(Form::Negated, Squaring::Difference, Root::Reciprocal, true, true)),
    );
    assert!(plain.len() > 9 && plain.iter().all(|op| !op.contains("custom")), "{plain:?}");
}

#[test]
fn near_misses_of_layer_normalization_are_left() {
    let allowed = Pipeline::new().allow_custom();
    for fault in 0..5 {
        let mut graph = SubgraphBuilder::new("main");
        let g = &mut graph;
        let x = input(g);
        let mean = reduce(g, B::MEAN, x, if fault == 0 { 1 } else { 2 });
        let squares = binary(g, B::SQUARED_DIFFERENCE, x, mean);
        let r = root(g, squares, Root::Reciprocal);
        let gamma = parameter(g, 0.5);
        let s = binary(g, B::MUL, r, gamma);
        let scaled = binary(g, B::MUL, x, s);
        // Faults 1 and 2: the mean is multiplied by different factors, or by the root squared.
        let other = match fault {
            1 => {
                let gamma = parameter(g, 0.75);
                binary(g, B::MUL, r, gamma)
            }
            2 => binary(g, B::MUL, s, r),
            _ => s,
        };
        let moved = binary(g, B::MUL, mean, other);
        // Fault 3: a term per row instead of per channel.
        let beta = if fault == 3 { g.constant("", [1, 3, 1], &[1f32, 2.0, 3.0]) } else { parameter(g, 0.0) };
        let rest = binary(g, B::SUB, beta, moved);
        let y = binary(g, B::ADD, scaled, rest);
        // Fault 4: the root is an output.
        graph.outputs(if fault == 4 { vec![y, r] } else { vec![y] });
        let ops = ops_after(&allowed, &build(graph));
        assert!(ops.len() > 8 && ops.iter().all(|op| op != LAYER && op != RMS), "{fault}: {ops:?}");
    }
}

#[test]
fn normalization_by_the_root_of_the_mean_square_is_recognised() {
    let allowed = Pipeline::new().allow_custom();
    for square in [Squaring::Product, Squaring::Square, Squaring::Power] {
        for how in [Root::Reciprocal, Root::Divisor, Root::One, Root::Power] {
            for gamma in [false, true] {
                let mut graph = SubgraphBuilder::new("main");
                let g = &mut graph;
                let x = input(g);
                let squares = match square {
                    Squaring::Product => binary(g, B::MUL, x, x),
                    Squaring::Square => unary(g, B::SQUARE, x),
                    _ => scalar(g, B::POW, x, 2.0),
                };
                let r = root(g, squares, how);
                let mut y = scale(g, x, r, how);
                if gamma {
                    let gamma = parameter(g, 0.5);
                    y = binary(g, B::MUL, gamma, y);
                }
                // Terms are not part of this normalization.
                let beta = parameter(g, -0.5);
                let y = binary(g, B::SUB, y, beta);
                graph.outputs([y]);
                let ops = ops_after(&allowed, &build(graph));
                assert_eq!(ops, ["TANH", RMS, "SUB"], "{square:?} {how:?} {gamma}");
            }
        }
    }
}

/// Parameters that a converter stored in 16 bits.
#[test]
fn parameters_of_16_bits_are_unpacked() {
    let mut graph = SubgraphBuilder::new("main");
    let g = &mut graph;
    let x = input(g);
    let half = |g: &mut SubgraphBuilder, first: f32| {
        let values: Vec<half::f16> =
            (0..CHANNELS).map(|i| half::f16::from_f32(first + i as f32 / 4.0)).collect();
        let packed = g.constant("", [CHANNELS], &values);
        let node = g.node(B::DEQUANTIZE, Params::None).inputs([packed]);
        node.output_type(TensorType::Float32).output("")
    };
    let (gamma, beta) = (half(g, 0.5), half(g, -0.5));
    let mean = reduce(g, B::MEAN, x, -1);
    let difference = binary(g, B::SUB, x, mean);
    let squares = unary(g, B::SQUARE, difference);
    let r = root(g, squares, Root::Reciprocal);
    let y = binary(g, B::MUL, difference, r);
    let y = binary(g, B::MUL, y, gamma);
    let y = binary(g, B::ADD, y, beta);
    graph.outputs([y]);
    assert_eq!(ops_after(&Pipeline::new().allow_custom(), &build(graph)), ["TANH", LAYER]);
}
