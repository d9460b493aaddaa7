//! Quantized ops on the GPU return exactly the integers of the reference kernels, for all cases of the generated suite,
//! and for nodes with random scales and data. Skipped with a message on machines without an adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

#[path = "common/gpu.rs"]
mod gpu;

use std::collections::BTreeMap;
use std::sync::Arc;

use delegraph::core::ops::binary::{AddParams, DivParams, MulParams, SubParams};
use delegraph::core::ops::concatenation::ConcatenationParams;
use delegraph::core::ops::l2_normalization::L2NormParams;
use delegraph::core::ops::pool_2d::Pool2DParams;
use delegraph::core::ops::reduce::ReducerParams;
use delegraph::core::ops::resize::{ResizeBilinearParams, ResizeNearestNeighborParams};
use delegraph::core::ops::softmax::SoftmaxParams;
use delegraph::core::ops::unary::{GeluParams, LeakyReluParams};
use delegraph::core::ops::{Activation, Padding};
use delegraph::core::{BuiltinOp, ModelBuilder, Params, Quantization, SubgraphBuilder, TensorId};
use delegraph::delegate_api::{Policy, Runner};
use delegraph::delegate_wgpu::WgpuDelegate;
use delegraph::{Interpreter, Model, ReferenceOpResolver, TensorType};
use delegraph_conformance::cases::{DEFAULT_SEED, suite};
use delegraph_conformance::compare::Arithmetic;
use delegraph_conformance::engine::{Backend, Outcome, Problem};
use delegraph_conformance::runner::{ContractChecks, Engine};
use delegraph_conformance::seeded::SplitMix64;

/// Ops whose results may differ by one quantization step, and why.
const NOT_EXACT: &[(&str, &str)] =
    &[("LOG_SOFTMAX", "of the logarithm of a sum, devices know fewer bits than a CPU")];

/// Prints the reason and returns `None` if there is no adapter.
#[test]
fn every_quantized_case_has_the_integers_of_the_reference_kernels() {
    let Some(delegate) = gpu::delegate() else { return };
    let make = Arc::new(move || -> delegraph::core::Result<_> { Ok(Box::new(delegate.clone()) as _) });
    let engine = Engine::new(Backend::delegate("wgpu", make).with_arithmetic(Arithmetic::Gpu)).untimed();
    let (mut wrong, mut exact) = (Vec::new(), 0);
    for case in suite(DEFAULT_SEED) {
        let problem = Problem::of_case(&case, Arithmetic::Gpu).unwrap();
        let graph = &problem.model.subgraphs()[0];
        let tensor = |id: &TensorId| &graph.tensors()[id.0];
        let outputs = || graph.outputs().iter().map(tensor);
        let quantized =
            graph.inputs().iter().map(tensor).chain(outputs()).any(|t| t.quantization().is_some());
        let floats = outputs().any(|t| t.ty().is_float());
        let inexact = |op: &str| NOT_EXACT.iter().any(|(name, _)| *name == op);
        let excepted =
            problem.model.subgraphs().iter().flat_map(|s| s.nodes()).any(|n| inexact(&n.op().to_string()));
        if !quantized || floats || excepted || !problem.undemanded.is_empty() {
            continue;
        }
        let result = engine.run(&problem, ContractChecks::Skip);
        match &result.errors {
            _ if result.claimed == 0 => {}
            Some(errors) if errors.off > 0 => wrong.push(format!(
                "{}: {} of {} are off, at most by {} ({:?} to {:?})",
                result.case, errors.off, errors.elements, errors.max_abs, result.inputs, result.outputs
            )),
            _ if result.outcome == Outcome::Pass => exact += 1,
            _ => wrong.push(format!("{}: {}", result.case, result.detail)),
        }
    }
    assert!(wrong.is_empty(), "{} are not exact, {exact} are:\n{}", wrong.len(), wrong.join("\n"));
    assert!(exact > 500, "only {exact} cases");
}

/// A tensor of a node.
#[derive(Debug, Clone)]
struct Operand {
    ty: TensorType,
    shape: Vec<usize>,
    scale: f32,
    zero: i64,
    bytes: Vec<u8>,
    constant: bool,
}

struct Draw(SplitMix64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        (self.0.draw() % n.max(1) as u64) as usize
    }

    /// Over five orders of magnitude, with some powers of two.
    fn scale(&mut self) -> f32 {
        let exponent = self.below(9) as i32 - 8;
        match self.below(4) {
            0 => 2f32.powi(exponent),
            _ => 2f32.powi(exponent) * (1.0 + self.0.draw_f32().abs()),
        }
    }

    fn zero(&mut self, ty: TensorType) -> i64 {
        match ty {
            TensorType::Int8 => self.below(256) as i64 - 128,
            TensorType::UInt8 => self.below(256) as i64,
            _ => 0,
        }
    }

    fn operand(&mut self, ty: TensorType, shape: &[usize]) -> Operand {
        let count: usize = shape.iter().product();
        let width = ty.bits().unwrap() / 8;
        let bytes = match ty {
            TensorType::Float32 => {
                (0..count).flat_map(|_| (self.0.draw_f32() * 40.0).to_le_bytes()).collect()
            }
            _ => (0..count * width).map(|_| self.0.draw() as u8).collect(),
        };
        let (scale, zero) = (self.scale(), self.zero(ty));
        Operand { ty, shape: shape.to_vec(), scale, zero, bytes, constant: false }
    }
}

fn axes(axes: &[i32]) -> Operand {
    let bytes = axes.iter().flat_map(|axis| axis.to_le_bytes()).collect();
    Operand { ty: TensorType::Int32, shape: vec![axes.len()], scale: 0.0, zero: 0, bytes, constant: true }
}

fn model(
    op: BuiltinOp,
    params: &Params,
    inputs: &[Operand],
    output: (TensorType, f32, i64),
) -> Option<Model> {
    let mut graph = SubgraphBuilder::new("main");
    let mut ids = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        let id = match input.constant {
            true => {
                graph.constant_bytes(&format!("input_{i}"), input.ty, input.shape.as_slice(), &input.bytes)
            }
            false => graph.input(&format!("input_{i}"), input.ty, input.shape.as_slice()),
        };
        if input.scale > 0.0 && input.ty != TensorType::Float32 {
            graph.quantize(id, Quantization::per_tensor(input.scale, input.zero));
        }
        ids.push(id);
    }
    let node = graph.node(op, params.clone()).inputs(ids).output_type(output.0);
    let id = match output.1 > 0.0 {
        true => node.output_quantization(Quantization::per_tensor(output.1, output.2)).output("output"),
        false => node.output("output"),
    };
    graph.outputs([id]);
    ModelBuilder::new().subgraph(graph).build().ok()
}

/// The bytes of output 0 of a model, and whether a delegate ran a node; `None` if it cannot be built or run.
fn run(model: &Model, inputs: &[Operand], delegate: Option<&WgpuDelegate>) -> Option<(Vec<u8>, bool)> {
    let mut builder = Interpreter::builder(model.clone()).resolver(ReferenceOpResolver::new());
    if let Some(delegate) = delegate {
        builder = builder.delegate(delegate.clone()).policy(Policy::Prefer);
    }
    let mut interpreter = builder.build().ok()?;
    let fed = inputs.iter().filter(|input| !input.constant).enumerate();
    fed.for_each(|(i, input)| interpreter.set_input_bytes(i, &input.bytes).unwrap());
    interpreter.invoke().ok()?;
    let claimed = interpreter.report().nodes.iter().any(|n| matches!(n.runner, Runner::Delegate { .. }));
    Some((interpreter.output_tensor(0).unwrap().bytes().to_vec(), claimed))
}

/// Ops with their params, and the types of input 0 that are tested.
fn subjects() -> Vec<(BuiltinOp, Params, Vec<TensorType>)> {
    use TensorType::{Float32, Int8, Int16, UInt8};
    let (all, signed, bytes) = (vec![Int8, UInt8, Int16], vec![Int8, Int16], vec![Int8, UInt8]);
    let pool = |padding| {
        Params::Pool2D(
            Pool2DParams::default()
                .padding(padding)
                .stride_w(2)
                .stride_h(1)
                .filter_width(3)
                .filter_height(2)
                .fused_activation_function(Activation::Relu6),
        )
    };
    let bilinear = |align_corners, half_pixel_centers| {
        Params::ResizeBilinear(
            ResizeBilinearParams::default()
                .align_corners(align_corners)
                .half_pixel_centers(half_pixel_centers),
        )
    };
    let nearest = |align_corners, half_pixel_centers| {
        Params::ResizeNearestNeighbor(
            ResizeNearestNeighborParams::default()
                .align_corners(align_corners)
                .half_pixel_centers(half_pixel_centers),
        )
    };
    let plain = |op, types: &Vec<TensorType>| (op, Params::None, types.clone());
    let mut list = vec![
        plain(BuiltinOp::ABS, &signed),
        plain(BuiltinOp::ELU, &vec![Int8]),
        plain(BuiltinOp::EXP, &signed),
        plain(BuiltinOp::HARD_SWISH, &bytes),
        plain(BuiltinOp::LOG, &signed),
        plain(BuiltinOp::LOGISTIC, &all),
        plain(BuiltinOp::RELU, &all),
        plain(BuiltinOp::RELU6, &all),
        plain(BuiltinOp::RELU_N1_TO_1, &bytes),
        plain(BuiltinOp::RELU_0_TO_1, &bytes),
        plain(BuiltinOp::RSQRT, &signed),
        plain(BuiltinOp::SQRT, &signed),
        plain(BuiltinOp::TANH, &all),
        plain(BuiltinOp::PRELU, &bytes),
        plain(BuiltinOp::SQUARED_DIFFERENCE, &vec![Int8]),
        plain(BuiltinOp::MAXIMUM, &all),
        plain(BuiltinOp::EQUAL, &all),
        plain(BuiltinOp::LESS, &bytes),
        plain(BuiltinOp::GREATER_EQUAL, &bytes),
        (BuiltinOp::QUANTIZE, Params::None, vec![Int8, UInt8, Int16, Float32]),
        (BuiltinOp::ADD, AddParams::default().pot_scale_int16(false).into(), all.clone()),
        (BuiltinOp::ADD, AddParams::default().pot_scale_int16(true).into(), vec![Int16]),
        (BuiltinOp::SUB, SubParams::default().pot_scale_int16(false).into(), all.clone()),
        (BuiltinOp::SUB, SubParams::default().pot_scale_int16(true).into(), vec![Int16]),
        (
            BuiltinOp::MUL,
            MulParams::default().fused_activation_function(Activation::Relu).into(),
            all.clone(),
        ),
        (BuiltinOp::DIV, DivParams::default().into(), bytes.clone()),
        (BuiltinOp::CONCATENATION, ConcatenationParams::default().axis(1).into(), vec![UInt8]),
        (BuiltinOp::SOFTMAX, SoftmaxParams::default().beta(1.5).into(), all.clone()),
        (BuiltinOp::L2_NORMALIZATION, L2NormParams::default().into(), bytes.clone()),
        (BuiltinOp::AVERAGE_POOL_2D, pool(Padding::Same), all.clone()),
        (BuiltinOp::MAX_POOL_2D, pool(Padding::Valid), all.clone()),
    ];
    for alpha in [0.1, -0.3, 1.7] {
        list.push((BuiltinOp::LEAKY_RELU, LeakyReluParams::default().alpha(alpha).into(), all.clone()));
    }
    for flag in [false, true] {
        list.push((BuiltinOp::GELU, GeluParams::default().approximate(flag).into(), all.clone()));
        for op in [BuiltinOp::MEAN, BuiltinOp::SUM] {
            list.push((op, ReducerParams::default().keep_dims(flag).into(), all.clone()));
        }
        list.push((BuiltinOp::REDUCE_PROD, ReducerParams::default().keep_dims(flag).into(), signed.clone()));
        list.push((BuiltinOp::RESIZE_BILINEAR, bilinear(flag, false), vec![Int16]));
        list.push((BuiltinOp::RESIZE_BILINEAR, bilinear(flag, false), bytes.clone()));
        list.push((BuiltinOp::RESIZE_NEAREST_NEIGHBOR, nearest(flag, false), all.clone()));
        list.push((BuiltinOp::RESIZE_NEAREST_NEIGHBOR, nearest(false, flag), bytes.clone()));
    }
    list.push((BuiltinOp::RESIZE_BILINEAR, bilinear(false, true), all));
    list
}

/// The inputs of an op.
fn inputs(op: BuiltinOp, ty: TensorType, draw: &mut Draw) -> Vec<Operand> {
    let channels = [3, 16, 19][draw.below(3)];
    let shape = [1, 5, 7, channels];
    let mut first = draw.operand(ty, &shape);
    match op {
        BuiltinOp::SQRT | BuiltinOp::RSQRT => {
            // No negative values.
            first.zero = if ty == TensorType::Int16 { 0 } else { -128 };
            if ty == TensorType::Int16 {
                first.bytes.iter_mut().skip(1).step_by(2).for_each(|high| *high &= 0x7f);
            }
            vec![first]
        }
        BuiltinOp::PRELU => vec![first, draw.operand(ty, &[1, 1, channels])],
        BuiltinOp::DIV => {
            let mut divisor = draw.operand(ty, &shape);
            let zero = divisor.zero as u8;
            divisor.bytes.iter_mut().filter(|b| **b == zero).for_each(|b| *b = zero.wrapping_add(1));
            vec![first, divisor]
        }
        BuiltinOp::ADD
        | BuiltinOp::SUB
        | BuiltinOp::MUL
        | BuiltinOp::MAXIMUM
        | BuiltinOp::SQUARED_DIFFERENCE
        | BuiltinOp::EQUAL
        | BuiltinOp::LESS
        | BuiltinOp::GREATER_EQUAL
        | BuiltinOp::CONCATENATION => {
            let whole = op == BuiltinOp::CONCATENATION || draw.below(2) == 0;
            let second = if whole { shape.to_vec() } else { vec![channels] };
            vec![first, draw.operand(ty, &second)]
        }
        BuiltinOp::MEAN | BuiltinOp::SUM | BuiltinOp::REDUCE_PROD => {
            let along: &[i32] = [&[1, 2][..], &[3], &[0, 1, 2, 3], &[2]][draw.below(4)];
            vec![first, axes(along)]
        }
        BuiltinOp::RESIZE_BILINEAR | BuiltinOp::RESIZE_NEAREST_NEIGHBOR => {
            let size = [draw.below(14) as i32 + 1, draw.below(20) as i32 + 1];
            vec![first, axes(&size)]
        }
        BuiltinOp::SOFTMAX if draw.below(3) == 0 => vec![draw.operand(ty, &[2, 333])],
        _ => vec![first],
    }
}

/// Type, scale and zero point of the output.
fn output(op: BuiltinOp, ty: TensorType, inputs: &[Operand], draw: &mut Draw) -> (TensorType, f32, i64) {
    use TensorType::{Bool, Int8, Int16, UInt8};
    let first = &inputs[0];
    match op {
        BuiltinOp::EQUAL | BuiltinOp::LESS | BuiltinOp::GREATER_EQUAL => (Bool, 0.0, 0),
        BuiltinOp::LOGISTIC | BuiltinOp::TANH | BuiltinOp::SOFTMAX if ty == Int16 => (ty, 1.0 / 32768.0, 0),
        BuiltinOp::LOGISTIC | BuiltinOp::SOFTMAX => (ty, 1.0 / 256.0, if ty == Int8 { -128 } else { 0 }),
        BuiltinOp::L2_NORMALIZATION => (ty, 1.0 / 128.0, if ty == UInt8 { 128 } else { 0 }),
        BuiltinOp::AVERAGE_POOL_2D
        | BuiltinOp::MAX_POOL_2D
        | BuiltinOp::MAXIMUM
        | BuiltinOp::RESIZE_BILINEAR
        | BuiltinOp::RESIZE_NEAREST_NEIGHBOR => (ty, first.scale, first.zero),
        BuiltinOp::QUANTIZE => {
            let to = [Int8, UInt8, Int16][draw.below(3)];
            (to, draw.scale(), draw.zero(to))
        }
        // Large enough for the products, small enough to show their rounding.
        BuiltinOp::MUL | BuiltinOp::SQUARED_DIFFERENCE => {
            let other = inputs[1].scale.max(first.scale);
            (ty, first.scale.max(other) * other * 2f32.powi(draw.below(9) as i32) * 1.3, draw.zero(ty))
        }
        BuiltinOp::ADD | BuiltinOp::SUB => {
            (ty, inputs[1].scale.max(first.scale) * [1.0, 2.0, 1.37][draw.below(3)], draw.zero(ty))
        }
        _ => (ty, draw.scale(), draw.zero(ty)),
    }
}

#[test]
fn nodes_with_random_scales_have_the_integers_of_the_reference_kernels() {
    let Some(delegate) = gpu::delegate() else { return };
    let rounds = std::env::var("DELEGRAPH_EXACT_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let mut wrong = Vec::new();
    let mut claims = BTreeMap::<String, usize>::new();
    for (subject, (op, params, types)) in subjects().into_iter().enumerate() {
        for ty in types {
            let of = format!("{op:?} {ty}");
            claims.entry(of.clone()).or_default();
            for round in 0..rounds {
                let mut draw = Draw(SplitMix64::new(2026).for_input(subject).for_invocation(round));
                let inputs = inputs(op, ty, &mut draw);
                let output = output(op, ty, &inputs, &mut draw);
                let Some(model) = model(op, &params, &inputs, output) else { continue };
                // The reference kernels reject some scales.
                let Some((want, _)) = run(&model, &inputs, None) else { continue };
                let Some((got, claimed)) = run(&model, &inputs, Some(&delegate)) else {
                    wrong.push(format!("{of} round {round}: does not run"));
                    continue;
                };
                *claims.entry(of.clone()).or_default() += usize::from(claimed);
                let off = got.iter().zip(&want).filter(|(a, b)| a != b).count();
                if off > 0 || got.len() != want.len() {
                    let scales: Vec<_> = inputs.iter().map(|i| (i.scale, i.zero, &i.shape)).collect();
                    let at = got.iter().zip(&want).position(|(a, b)| a != b);
                    wrong.push(format!(
                        "{of} {params:?} round {round}: {off} of {} bytes differ, first at {at:?}; {scales:?} to {output:?}",
                        got.len()
                    ));
                }
            }
        }
    }
    let unclaimed: Vec<_> = claims.iter().filter(|(_, n)| **n == 0).map(|(of, _)| of.as_str()).collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(unclaimed.is_empty(), "never claimed: {}", unclaimed.join(", "));
}
