//! Ops with state: LSTM, RNN, SVDF and their sequences, over several invocations.

use delegraph_core::ops::LstmKernelType;
use delegraph_core::ops::lstm::inputs::{BACKWARD, CELL, Cell, FORWARD};
use delegraph_core::ops::lstm::{
    BidirectionalSequenceLstmParams, LstmParams, UnidirectionalSequenceLstmParams,
};
use delegraph_core::ops::rnn::{BidirectionalSequenceRnnParams, RnnParams, SequenceRnnParams};
use delegraph_core::ops::svdf::SvdfParams;

use super::super::prelude::*;
use super::draw::Draw;
use super::finish;

/// Sizes and optional parts of a cell.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    time: usize,
    features: usize,
    cells: usize,
    outputs: usize,
    hybrid: bool,
    coupled: bool,
    peephole: bool,
    projection: bool,
    norm: bool,
}

impl Sizes {
    fn random(draw: &mut Draw, hybrid: bool) -> Self {
        let (features, cells) = (draw.pick(&[1, 3, 4, 5, 8, 13]), draw.pick(&[1, 2, 3, 5, 8, 9, 17]));
        let projection = draw.chance(30);
        Sizes {
            batch: draw.size(1, 3),
            time: draw.size(1, 5),
            features,
            cells,
            outputs: if projection { draw.size(1, 6) } else { cells },
            hybrid,
            coupled: draw.chance(25),
            peephole: draw.chance(25),
            projection,
            norm: !hybrid && draw.chance(20),
        }
    }

    fn matrix(&self, shape: &[usize]) -> Operand {
        match self.hybrid {
            false => x(Float32, shape).constant().range(-0.8, 0.8),
            true => x(Int8, shape).constant().range(-127.0, 127.0).q(0.006, 0),
        }
    }

    /// Writes a cell's operands to their indices.
    fn fill(&self, inputs: &mut [Option<Operand>], cell: &Cell) {
        let vector = |n: usize| Some(x(Float32, &[n]).constant().range(-0.5, 0.5));
        for gate in if self.coupled { 1..4 } else { 0..4 } {
            inputs[cell.weights[gate]] = Some(self.matrix(&[self.cells, self.features]));
            inputs[cell.recurrent[gate]] = Some(self.matrix(&[self.cells, self.outputs]));
            inputs[cell.bias[gate]] = vector(self.cells);
            if let (true, Some(at)) = (self.peephole, cell.peephole[gate]) {
                inputs[at] = if self.hybrid { Some(self.matrix(&[self.cells])) } else { vector(self.cells) };
            }
            if let (true, Some(at)) = (self.norm, cell.norm[gate]) {
                inputs[at] = vector(self.cells);
            }
        }
        if self.projection {
            inputs[cell.projection] = Some(self.matrix(&[self.outputs, self.cells]));
            inputs[cell.projection_bias] = vector(self.outputs);
        }
        inputs[cell.output_state] = Some(x(Float32, &[self.batch, self.outputs]).variable());
        inputs[cell.cell_state] = Some(x(Float32, &[self.batch, self.cells]).variable());
    }

    fn sequence(&self, time_major: bool) -> Operand {
        let shape = if time_major {
            [self.time, self.batch, self.features]
        } else {
            [self.batch, self.time, self.features]
        };
        x(Float32, &shape).range(-1.5, 1.5)
    }
}

fn lstm(draw: &mut Draw, hybrid: bool) -> Case {
    let sizes = Sizes::random(draw, hybrid);
    let asymmetric_quantize_inputs = hybrid && draw.chance(40);
    let clip = if draw.chance(30) { 0.4 } else { 0.0 };
    let fused_activation_function = Activation::Tanh;
    let mut inputs = vec![None; 24];
    sizes.fill(&mut inputs, &CELL);
    match draw.below(3) {
        0 => {
            inputs[0] = Some(x(Float32, &[sizes.batch, sizes.features]).range(-1.5, 1.5));
            let params = LstmParams::default()
                .fused_activation_function(fused_activation_function)
                .cell_clip(clip)
                .proj_clip(clip)
                .kernel_type(LstmKernelType::Full)
                .asymmetric_quantize_inputs(asymmetric_quantize_inputs);
            Case::optional(Op::LSTM, params, inputs)
        }
        1 => {
            let time_major = draw.chance(50);
            inputs[0] = Some(sizes.sequence(time_major));
            let params = UnidirectionalSequenceLstmParams::default()
                .fused_activation_function(fused_activation_function)
                .cell_clip(clip)
                .proj_clip(clip)
                .time_major(time_major)
                .asymmetric_quantize_inputs(asymmetric_quantize_inputs)
                .diagonal_recurrent_tensors(false);
            Case::optional(Op::UNIDIRECTIONAL_SEQUENCE_LSTM, params, inputs)
        }
        _ => {
            let sizes = Sizes { norm: false, ..sizes };
            let (time_major, merge_outputs) = (draw.chance(50), draw.chance(50));
            let mut both = vec![None; 48];
            sizes.fill(&mut both, &FORWARD);
            sizes.fill(&mut both, &BACKWARD);
            both[0] = Some(sizes.sequence(time_major));
            let params = BidirectionalSequenceLstmParams::default()
                .fused_activation_function(fused_activation_function)
                .cell_clip(clip)
                .proj_clip(clip)
                .merge_outputs(merge_outputs)
                .time_major(time_major)
                .asymmetric_quantize_inputs(asymmetric_quantize_inputs);
            let outputs = vec![Output::of(Float32); if merge_outputs { 1 } else { 2 }];
            Case::optional(Op::BIDIRECTIONAL_SEQUENCE_LSTM, params, both).outputs(outputs)
        }
    }
}

fn rnn(draw: &mut Draw, hybrid: bool) -> Case {
    let sizes = Sizes { projection: false, ..Sizes::random(draw, hybrid) };
    let asymmetric_quantize_inputs = hybrid && draw.chance(40);
    let fused_activation_function = draw.pick(&[Activation::None, Activation::Relu, Activation::Tanh]);
    let cell = || {
        let inputs = sizes.matrix(&[sizes.cells, sizes.features]);
        // Small recurrent weights, so that states do not grow without bound.
        let shape = [sizes.cells, sizes.cells];
        let recurrent = match hybrid {
            false => x(Float32, &shape).constant().range(-0.3, 0.3),
            true => x(Int8, &shape).constant().range(-127.0, 127.0).q(0.002, 0),
        };
        let bias = x(Float32, &[sizes.cells]).constant().range(-0.5, 0.5);
        [inputs, recurrent, bias, x(Float32, &[sizes.batch, sizes.cells]).variable()]
    };
    let time_major = draw.chance(50);
    match draw.below(3) {
        0 => {
            let params = RnnParams::default()
                .fused_activation_function(fused_activation_function)
                .asymmetric_quantize_inputs(asymmetric_quantize_inputs);
            let one = x(Float32, &[sizes.batch, sizes.features]).range(-1.5, 1.5);
            Case::new(Op::RNN, params, [one].into_iter().chain(cell()))
        }
        1 => {
            let params = SequenceRnnParams::default()
                .time_major(time_major)
                .fused_activation_function(fused_activation_function)
                .asymmetric_quantize_inputs(asymmetric_quantize_inputs);
            let inputs = [sizes.sequence(time_major)].into_iter().chain(cell());
            Case::new(Op::UNIDIRECTIONAL_SEQUENCE_RNN, params, inputs)
        }
        _ => {
            let merge_outputs = draw.chance(50);
            let params = BidirectionalSequenceRnnParams::default()
                .time_major(time_major)
                .fused_activation_function(fused_activation_function)
                .merge_outputs(merge_outputs)
                .asymmetric_quantize_inputs(asymmetric_quantize_inputs);
            let cells = cell().into_iter().chain(cell()).map(Some);
            let inputs =
                [Some(sizes.sequence(time_major))].into_iter().chain(cells).chain([None, None, None]);
            let outputs = vec![Output::of(Float32); if merge_outputs { 1 } else { 2 }];
            Case::optional(Op::BIDIRECTIONAL_SEQUENCE_RNN, params, inputs).outputs(outputs)
        }
    }
}

fn svdf(draw: &mut Draw, hybrid: bool) -> Case {
    let (batch, inputs) = (draw.size(1, 3), draw.pick(&[1, 3, 5, 8, 17]));
    let (units, rank, memory) = (draw.size(1, 7), draw.size(1, 3), draw.size(1, 8));
    let filters = units * rank;
    let matrix = |shape: &[usize]| match hybrid {
        false => x(Float32, shape).constant().range(-1.0, 1.0),
        true => x(Int8, shape).constant().range(-127.0, 127.0).q(0.01, 0),
    };
    let params = SvdfParams::default()
        .rank(rank as i32)
        .fused_activation_function(draw.pick(&[Activation::None, Activation::Relu]))
        .asymmetric_quantize_inputs(hybrid && draw.chance(40));
    let operands = [
        Some(x(Float32, &[batch, inputs]).range(-1.0, 1.0)),
        Some(matrix(&[filters, inputs])),
        Some(matrix(&[filters, memory])),
        draw.chance(60).then(|| x(Float32, &[units]).constant()),
        Some(x(Float32, &[batch, memory * filters]).variable()),
    ];
    Case::optional(Op::SVDF, params, operands)
}

fn integer_svdf(draw: &mut Draw) -> Case {
    let (batch, inputs) = (draw.size(1, 3), draw.pick(&[1, 3, 5, 8, 17]));
    let (units, rank, memory) = (draw.size(1, 7), draw.size(1, 3), draw.size(1, 8));
    let filters = units * rank;
    let operands = [
        x(Int8, &[batch, inputs]).q(0.02, draw.int(-20, 20)),
        x(Int8, &[filters, inputs]).constant().range(-127.0, 127.0).q(0.01, 0),
        x(Int16, &[filters, memory]).constant().range(-20_000.0, 20_000.0).q(0.00003, 0),
        x(Int32, &[units]).constant().range(-9000.0, 9000.0).q(0.00003 * 0.001, 0),
        x(Int16, &[batch, memory * filters]).variable().q(0.001, 0),
    ];
    let params = SvdfParams::default()
        .rank(rank as i32)
        .fused_activation_function(Activation::Relu)
        .asymmetric_quantize_inputs(false);
    Case::new(Op::SVDF, params, operands).q(0.02, draw.int(-20, 20))
}

pub(super) fn cases(seed: u64, out: &mut Vec<Case>) {
    type Make = fn(&mut Draw, bool) -> Case;
    let table: [(&str, Make, bool, usize); 7] = [
        ("lstm", lstm, false, 60),
        ("lstm_hybrid", lstm, true, 30),
        ("rnn", rnn, false, 40),
        ("rnn_hybrid", rnn, true, 20),
        ("svdf", svdf, false, 30),
        ("svdf_hybrid", svdf, true, 20),
        ("svdf_integer", |draw, _| integer_svdf(draw), false, 24),
    ];
    for (name, make, hybrid, count) in table {
        for i in 0..count {
            let mut draw = Draw::new(seed, name, i);
            let steps = draw.size(2, 5);
            let case = make(&mut draw, hybrid).steps(steps);
            // The seed determines the op, so names must not contain the op.
            out.push(finish(case, &mut draw, name, i));
        }
    }
}
