//! Recurrent ops of integers on the GPU, of random shapes, values and scales, match the reference kernels bit by bit
//! over several steps. Skipped with a message on machines without an adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

use std::collections::BTreeSet;

use delegraph::core::ops::lstm::inputs::CELL;
use delegraph::core::ops::lstm::{LstmParams, UnidirectionalSequenceLstmParams};
use delegraph::core::ops::svdf::SvdfParams;
use delegraph::core::ops::{Activation, LstmKernelType};
use delegraph::core::{BuiltinOp, Model, ModelBuilder, Quantization, SubgraphBuilder, TensorId};
use delegraph::delegate_wgpu::{WgpuDelegate, WgpuOptions};
use delegraph::{Interpreter, Policy, ReferenceOpResolver, TensorType};
use delegraph_conformance::seeded::SplitMix64;

use TensorType::{Int8, Int16, UInt8};

fn delegate() -> Option<Box<WgpuDelegate>> {
    let opened = WgpuDelegate::new(WgpuOptions::default());
    opened.inspect_err(|e| eprintln!("skipped: {e}")).ok().map(Box::new)
}

struct Draw(SplitMix64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        (self.0.draw() % n.max(1) as u64) as usize
    }

    fn within(&mut self, low: i64, high: i64) -> i64 {
        low + (self.0.draw() % (high - low + 1).unsigned_abs()).cast_signed()
    }

    fn pick(&mut self, from: &[usize]) -> usize {
        from[self.below(from.len())]
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 0
    }

    fn scale(&mut self, about: f64) -> f32 {
        (about * (0.5 + f64::from(self.0.draw_f32().abs()))) as f32
    }

    fn bytes(&mut self, count: usize) -> Vec<i8> {
        // In a quarter of the calls, all values are large.
        let large = self.below(4) == 0;
        (0..count).map(|_| if large { self.within(120, 127) } else { self.within(-128, 127) } as i8).collect()
    }
}

/// A graph under construction.
struct Case {
    draw: Draw,
    graph: SubgraphBuilder,
}

impl Case {
    fn new(seed: u64) -> Self {
        Case { draw: Draw(SplitMix64::new(seed).for_input(7)), graph: SubgraphBuilder::new("main") }
    }

    fn quantized(&mut self, id: TensorId, scale: f32, zero: i64) -> TensorId {
        self.graph.quantize(id, Quantization::per_tensor(scale, zero));
        id
    }

    fn weights(&mut self, shape: [usize; 2], about: f64) -> TensorId {
        let values = self.draw.bytes(shape.iter().product());
        let id = self.graph.constant("weights", shape, &values);
        let scale = self.draw.scale(about);
        self.quantized(id, scale, 0)
    }

    fn halves(&mut self, count: usize, about: f64) -> TensorId {
        let values: Vec<i16> = (0..count).map(|_| self.draw.0.draw() as i16).collect();
        let id = self.graph.constant("halves", [count], &values);
        let scale = self.draw.scale(about);
        self.quantized(id, scale, 0)
    }

    fn bias(&mut self, count: usize, most: i64) -> TensorId {
        let values: Vec<i32> = (0..count).map(|_| self.draw.within(-most, most) as i32).collect();
        self.graph.constant("bias", [count], &values)
    }
}

/// Several invocations on CPU and GPU, whose outputs must be the same. Adds the values of the first output to `seen`.
fn check(name: &str, model: &Model, draw: &mut Draw, seen: &mut BTreeSet<u8>) {
    let Some(delegate) = delegate() else { return seen.extend(0..=255) };
    let build = Interpreter::builder(model.clone()).resolver(ReferenceOpResolver::new()).build();
    let mut reference = build.unwrap_or_else(|e| panic!("{name}: {e}"));
    let delegated = Interpreter::builder(model.clone()).delegate(delegate).policy(Policy::Require).build();
    let mut delegated = delegated.unwrap_or_else(|e| panic!("{name}: {e}"));
    for time in 0..3 {
        for i in 0..reference.input_count() {
            let bytes = reference.input_bytes_mut(i).unwrap();
            bytes.iter_mut().for_each(|to| *to = draw.0.draw() as u8);
            let bytes = bytes.to_vec();
            delegated.set_input_bytes(i, &bytes).unwrap();
        }
        reference.invoke().unwrap();
        delegated.invoke().unwrap();
        for i in 0..reference.output_count() {
            let (want, got) =
                (reference.output_tensor(i).unwrap().bytes(), delegated.output_tensor(i).unwrap().bytes());
            assert!(want == got, "{name}, output {i}, invocation {time}\n{want:?}\n{got:?}");
            seen.extend(want.iter().filter(|_| i == 0));
        }
    }
}

/// The features of an LSTM.
#[derive(Debug, Clone, Copy)]
struct Has {
    sequence: bool,
    time_major: bool,
    coupled: bool,
    peephole: bool,
    norm: bool,
    projection: bool,
    narrow: bool,
    clip: bool,
}

fn lstm(seed: u64, has: Has, seen: &mut BTreeSet<u8>) {
    let mut case = Case::new(seed);
    let d = &mut case.draw;
    let (batch, steps) = (d.pick(&[1, 2, 5]), if has.sequence { d.pick(&[1, 2, 7]) } else { 1 });
    let (features, cells) = (d.pick(&[1, 3, 8, 40]), d.pick(&[1, 4, 7, 20, 300]));
    let outputs = if has.projection { d.pick(&[1, 4, 9]).min(cells) } else { cells };
    let clip = if has.clip { 0.5 } else { 0.0 };
    let shape = match (has.sequence, has.time_major) {
        (false, _) => vec![batch, features],
        (true, true) => vec![steps, batch, features],
        (true, false) => vec![batch, steps, features],
    };
    let (input_zero, last_zero) = (d.within(-128, 127), d.within(-60, 60));
    let (input_scale, last_scale) = (d.scale(0.02), d.scale(0.006));
    let x = case.graph.input("x", Int8, shape.as_slice());
    let x = case.quantized(x, input_scale, input_zero);
    let mut inputs = vec![None; 24];
    inputs[0] = Some(x);
    // The sums of gates are around 1.
    let about = |count: usize| 1.5 / (0.02 * 74.0 * 74.0 * (count as f64).sqrt());
    for gate in if has.coupled { 1..4 } else { 0..4 } {
        inputs[CELL.weights[gate]] = Some(case.weights([cells, features], about(features)));
        inputs[CELL.recurrent[gate]] = Some(case.weights([cells, outputs], about(outputs)));
        inputs[CELL.bias[gate]] = Some(case.bias(cells, if has.norm { 1 << 20 } else { 9000 }));
        if let (true, Some(at)) = (has.peephole, CELL.peephole[gate]) {
            inputs[at] = Some(case.halves(cells, 3e-5));
        }
        if let (true, Some(at)) = (has.norm, CELL.norm[gate]) {
            inputs[at] = Some(case.halves(cells, 4e-5));
        }
    }
    let exponent = if has.narrow { -15 } else { -15 + case.draw.below(7) as i32 };
    let hidden_scale = case.draw.scale(0.006);
    if has.projection {
        inputs[CELL.projection] = Some(case.weights([outputs, cells], 0.01 / (cells as f64).sqrt()));
        if case.draw.yes() {
            inputs[CELL.projection_bias] = Some(case.bias(outputs, 9000));
        }
    }
    // Without a projection, hidden values are the outputs.
    let hidden_zero = if has.projection { case.draw.within(-60, 60) } else { last_zero };
    let last = case.graph.variable("last", Int8, [batch, outputs]);
    inputs[CELL.output_state] = Some(case.quantized(last, last_scale, last_zero));
    let state = case.graph.variable("state", Int16, [batch, cells]);
    inputs[CELL.cell_state] = Some(case.quantized(state, 2f32.powi(exponent), 0));
    let mut between = Vec::new();
    for i in 0..if has.narrow { 12 } else { 4 } {
        let scale = if has.narrow && i % 3 > 0 { 0.02 } else { 3e-4 };
        let (scale, zero) = (case.draw.scale(scale), case.draw.within(-20, 20));
        let id = case.graph.tensor("between", Int16, [1]);
        between.push(Some(case.quantized(id, scale, if has.narrow { zero } else { 0 })));
    }
    if !has.narrow {
        let id = case.graph.tensor("hidden", Int8, [1]);
        between.push(Some(case.quantized(id, hidden_scale, hidden_zero)));
    }
    let node = match has.sequence {
        true => {
            let params = UnidirectionalSequenceLstmParams::default()
                .fused_activation_function(Activation::Tanh)
                .cell_clip(clip)
                .proj_clip(clip)
                .time_major(has.time_major)
                .asymmetric_quantize_inputs(false)
                .diagonal_recurrent_tensors(false);
            case.graph.node(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM, params)
        }
        false => {
            let params = LstmParams::default()
                .fused_activation_function(Activation::Tanh)
                .cell_clip(clip)
                .proj_clip(clip)
                .kernel_type(LstmKernelType::Full)
                .asymmetric_quantize_inputs(false);
            case.graph.node(BuiltinOp::LSTM, params)
        }
    };
    let node = node.optional_inputs(inputs).intermediates(between).output_type(Int8);
    let y = node.output_quantization(Quantization::per_tensor(last_scale, last_zero)).output("y");
    case.graph.outputs([y]);
    let model = ModelBuilder::new().subgraph(case.graph).build().unwrap();
    let name = format!("{seed}: {has:?}, {batch} sequences, {steps} steps, {features}, {cells}, {outputs}");
    check(&name, &model, &mut case.draw, seen);
}

#[test]
fn cells_of_integers() {
    let (mut draw, mut seen) = (Draw(SplitMix64::new(1).for_input(1).for_invocation(1)), BTreeSet::new());
    for seed in 0..48 {
        let narrow = seed % 8 == 0;
        let mut flag = || draw.yes();
        let has = Has {
            sequence: flag(),
            time_major: flag(),
            coupled: flag(),
            peephole: flag() && !narrow,
            norm: flag() || narrow,
            projection: flag() || narrow,
            narrow,
            clip: flag(),
        };
        lstm(seed, has, &mut seen);
    }
    assert!(seen.len() > 100, "only {} values", seen.len());
}

#[test]
fn filters_of_integers() {
    let mut seen = BTreeSet::new();
    for seed in 0..24 {
        let mut case = Case::new(seed);
        let d = &mut case.draw;
        let (batch, inputs, rank) = (d.pick(&[1, 3]), d.pick(&[1, 7, 40]), d.pick(&[1, 2]));
        let (units, memory) = (d.pick(&[1, 5, 32]), d.pick(&[1, 2, 10]));
        let filters = units * rank;
        let (zero, output_zero) = (d.within(-128, 127), d.within(-100, 100));
        let (scale, state_scale) = (d.scale(0.02), d.scale(3e-4));
        let x = case.graph.input("x", Int8, [batch, inputs]);
        case.quantized(x, scale, zero);
        let feature = case.weights([filters, inputs], 0.01 / (inputs as f64).sqrt());
        let time = case.halves(filters * memory, 3e-5);
        case.graph.change(time, |tensor| tensor.set_shape([filters, memory]));
        let bias = case.draw.yes().then(|| case.bias(units, 1 << 24));
        let state = case.graph.variable("state", Int16, [batch, filters * memory]);
        case.quantized(state, state_scale, 0);
        let scale = case.draw.scale(0.05);
        let params = SvdfParams::default()
            .rank(rank as i32)
            .fused_activation_function(Activation::None)
            .asymmetric_quantize_inputs(false);
        let node = case.graph.node(BuiltinOp::SVDF, params);
        let node =
            node.optional_inputs([Some(x), Some(feature), Some(time), bias, Some(state)]).output_type(Int8);
        let y = node.output_quantization(Quantization::per_tensor(scale, output_zero)).output("y");
        case.graph.outputs([y]);
        let model = ModelBuilder::new().subgraph(case.graph).build().unwrap();
        let name = format!("{seed}: {batch} of {inputs}, {units} units of rank {rank}, memory {memory}");
        check(&name, &model, &mut case.draw, &mut seen);
    }
    assert!(seen.len() > 100, "only {} values", seen.len());
}

#[test]
fn the_basic_cell_of_integers() {
    let mut seen = BTreeSet::new();
    for seed in 0..16 {
        let mut case = Case::new(seed);
        let d = &mut case.draw;
        let (batch, features, cells) = (d.pick(&[1, 2, 5]), d.pick(&[1, 3, 40]), d.pick(&[1, 4, 7, 200]));
        let (zero, scale) = (d.within(60, 200), d.scale(0.01));
        let weights: Vec<u8> =
            d.bytes(4 * cells * (features + cells)).into_iter().map(i8::cast_unsigned).collect();
        let x = case.graph.input("x", UInt8, [batch, features]);
        let last = case.graph.variable("last", UInt8, [batch, cells]);
        let state = case.graph.variable("state", Int16, [batch, cells]);
        let weights = case.graph.constant("weights", [4 * cells, features + cells], &weights);
        let bias = case.bias(4 * cells, 9000);
        let states = Quantization::per_tensor(1.0 / 2048.0, 0);
        case.quantized(x, 1.0 / 128.0, 128);
        case.quantized(last, 1.0 / 128.0, 128);
        case.quantized(weights, scale, zero);
        case.quantized(bias, scale / 128.0, 0);
        case.graph.quantize(state, states.clone());
        let mut outputs = Vec::new();
        for (ty, width, scale, zero) in [
            (UInt8, cells, 1.0 / 128.0, 128),
            (Int16, cells, 1.0 / 2048.0, 0),
            (UInt8, features + cells, 1.0 / 128.0, 128),
            (Int16, 4 * cells, 1.0 / 4096.0, 0),
        ] {
            let id = case.graph.tensor("y", ty, [batch, width]);
            outputs.push(case.quantized(id, scale, zero));
        }
        let params = LstmParams::default()
            .fused_activation_function(Activation::Tanh)
            .kernel_type(LstmKernelType::Basic);
        let node = case.graph.node(BuiltinOp::LSTM, params).inputs([x, last, weights, bias, state]);
        node.writes(outputs.clone());
        case.graph.outputs(outputs);
        let model = ModelBuilder::new().subgraph(case.graph).build().unwrap();
        let name = format!("{seed}: {batch} sequences, {features} features, {cells} cells");
        check(&name, &model, &mut case.draw, &mut seen);
    }
    assert!(seen.len() > 100, "only {} values", seen.len());
}
