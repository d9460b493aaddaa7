//! LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM.

use delegraph_core::ops::LstmKernelType;
use delegraph_core::ops::lstm::inputs::{BACKWARD, CELL, Cell, FORWARD};
use delegraph_core::ops::lstm::{
    BidirectionalSequenceLstmParams, LstmParams, UnidirectionalSequenceLstmParams,
};

use super::prelude::*;

const BY_CHANCE: Verdict = Verdict::NotCompared(
    "LiteRT leaves elements unwritten where both directions share an output with the batch outermost; \
    Delegraph writes all",
);

const BATCH: usize = 2;
const TIME: usize = 3;
const FEATURES: usize = 5;
const CELLS: usize = 4;
const PROJECTED: usize = 3;

/// The optional parts of a cell.
#[derive(Debug, Clone, Copy, Default)]
struct Has {
    hybrid: bool,
    asymmetric: bool,
    coupled: bool,
    peephole: bool,
    projection: bool,
    norm: bool,
}

impl Has {
    fn name(self) -> std::string::String {
        let mut name = std::string::String::from(if self.hybrid { "hybrid" } else { "float" });
        for (has, what) in [
            (self.asymmetric, "_asymmetric"),
            (self.coupled, "_coupled"),
            (self.peephole, "_peephole"),
            (self.projection, "_projection"),
            (self.norm, "_norm"),
        ] {
            name += if has { what } else { "" };
        }
        name
    }

    fn outputs(self) -> usize {
        if self.projection { PROJECTED } else { CELLS }
    }
}

const KINDS: &[Has] = {
    let plain = Has {
        hybrid: false,
        asymmetric: false,
        coupled: false,
        peephole: false,
        projection: false,
        norm: false,
    };
    let hybrid = Has { hybrid: true, ..plain };
    &[
        plain,
        Has { coupled: true, peephole: true, ..plain },
        Has { peephole: true, projection: true, ..plain },
        Has { norm: true, ..plain },
        hybrid,
        Has { asymmetric: true, ..hybrid },
        Has { coupled: true, projection: true, ..hybrid },
        Has { peephole: true, asymmetric: true, ..hybrid },
    ]
};

/// Writes the operands of a cell to their indices.
fn fill(inputs: &mut [Option<Operand>], cell: &Cell, has: Has) {
    let matrix = |shape: &[usize]| match has.hybrid {
        false => Some(x(Float32, shape).constant().range(-0.5, 0.5)),
        true => Some(x(Int8, shape).constant().q(0.004, 0)),
    };
    let vector = |n: usize| x(Float32, &[n]).constant().range(-0.5, 0.5);
    let outputs = has.outputs();
    for gate in if has.coupled { 1..4 } else { 0..4 } {
        inputs[cell.weights[gate]] = matrix(&[CELLS, FEATURES]);
        inputs[cell.recurrent[gate]] = matrix(&[CELLS, outputs]);
        inputs[cell.bias[gate]] = Some(vector(CELLS));
        if let (true, Some(at)) = (has.peephole, cell.peephole[gate]) {
            inputs[at] = if has.hybrid { matrix(&[CELLS]) } else { Some(vector(CELLS)) };
        }
        if let (true, Some(at)) = (has.norm, cell.norm[gate]) {
            inputs[at] = Some(vector(CELLS));
        }
    }
    if has.projection {
        inputs[cell.projection] = matrix(&[outputs, CELLS]);
        inputs[cell.projection_bias] = Some(vector(outputs));
    }
    inputs[cell.output_state] = Some(x(Float32, &[BATCH, outputs]).variable());
    inputs[cell.cell_state] = Some(x(Float32, &[BATCH, CELLS]).variable());
}

pub(super) const OP_KINDS: OpKinds =
    &[(OpKind::RECURRENT, &[Op::LSTM, Op::UNIDIRECTIONAL_SEQUENCE_LSTM, Op::BIDIRECTIONAL_SEQUENCE_LSTM])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for &has in KINDS {
        let (clip, tanh) = (if has.projection { 0.4 } else { 0.0 }, Activation::Tanh);
        let mut inputs = vec![None; 24];
        fill(&mut inputs, &CELL, has);
        inputs[0] = Some(x(Float32, &[BATCH, FEATURES]).range(-1.0, 1.0));
        let params = LstmParams::default()
            .fused_activation_function(tanh)
            .cell_clip(clip)
            .proj_clip(clip)
            .kernel_type(LstmKernelType::Full)
            .asymmetric_quantize_inputs(has.asymmetric);
        out.push(Case::optional(Op::LSTM, params, inputs.clone()).steps(3).detail(has.name()));
        for time_major in [false, true] {
            let shape = if time_major { [TIME, BATCH, FEATURES] } else { [BATCH, TIME, FEATURES] };
            inputs[0] = Some(x(Float32, &shape).range(-1.0, 1.0));
            let name = format!("{}{}", has.name(), if time_major { "_time_major" } else { "" });
            let params = UnidirectionalSequenceLstmParams::default()
                .fused_activation_function(tanh)
                .cell_clip(clip)
                .proj_clip(clip)
                .time_major(time_major)
                .asymmetric_quantize_inputs(has.asymmetric)
                .diagonal_recurrent_tensors(false);
            let case = Case::optional(Op::UNIDIRECTIONAL_SEQUENCE_LSTM, params, inputs.clone()).steps(2);
            out.push(case.detail(name.clone()));
            if has.norm {
                continue;
            }
            for merge_outputs in [false, true] {
                let mut both = vec![None; 48];
                fill(&mut both, &FORWARD, has);
                fill(&mut both, &BACKWARD, has);
                both[0] = Some(x(Float32, &shape).range(-1.0, 1.0));
                let params = BidirectionalSequenceLstmParams::default()
                    .fused_activation_function(tanh)
                    .cell_clip(clip)
                    .proj_clip(clip)
                    .merge_outputs(merge_outputs)
                    .time_major(time_major)
                    .asymmetric_quantize_inputs(has.asymmetric);
                let outputs = vec![Output::of(Float32); if merge_outputs { 1 } else { 2 }];
                let case =
                    Case::optional(Op::BIDIRECTIONAL_SEQUENCE_LSTM, params, both).outputs(outputs).steps(2);
                let case = match merge_outputs && !time_major {
                    true => case.verdict(BY_CHANCE),
                    false => case,
                };
                let merged = if merge_outputs { "_merged" } else { "" };
                out.push(case.detail(format!("{name}{merged}")));
            }
        }
    }
    diagonal(out);
    basic(out);
    for (projection, peephole, norm) in
        [(false, false, false), (true, false, false), (false, true, false), (false, false, true)]
    {
        integer(out, Has { projection, peephole, norm, ..Has::default() });
    }
}

/// Each cell reads only its own last output.
fn diagonal(out: &mut Vec<Case>) {
    let mut inputs = vec![None; 24];
    fill(&mut inputs, &CELL, Has::default());
    for at in CELL.recurrent {
        inputs[at] = Some(x(Float32, &[CELLS]).constant().range(-0.5, 0.5));
    }
    inputs[0] = Some(x(Float32, &[BATCH, TIME, FEATURES]).range(-1.0, 1.0));
    let params = UnidirectionalSequenceLstmParams::default()
        .fused_activation_function(Activation::Tanh)
        .cell_clip(0.0)
        .proj_clip(0.0)
        .time_major(false)
        .asymmetric_quantize_inputs(false)
        .diagonal_recurrent_tensors(true);
    out.push(Case::optional(Op::UNIDIRECTIONAL_SEQUENCE_LSTM, params, inputs).steps(2).detail("diagonal"));
}

/// The basic cell: one matrix for all gates; the states are operands.
fn basic(out: &mut Vec<Case>) {
    let params = LstmParams::default()
        .fused_activation_function(Activation::Tanh)
        .cell_clip(0.0)
        .proj_clip(0.0)
        .kernel_type(LstmKernelType::Basic)
        .asymmetric_quantize_inputs(false);
    let float = [
        x(Float32, &[BATCH, FEATURES]).range(-1.0, 1.0),
        x(Float32, &[BATCH, CELLS]).variable(),
        x(Float32, &[4 * CELLS, FEATURES + CELLS]).constant().range(-0.5, 0.5),
        x(Float32, &[4 * CELLS]).constant().range(-0.5, 0.5),
        x(Float32, &[BATCH, CELLS]).variable(),
    ];
    let outputs = vec![Output::of(Float32); 4];
    out.push(Case::new(Op::LSTM, params.clone(), float).outputs(outputs).steps(3).detail("basic"));
    let bytes = [
        x(UInt8, &[BATCH, FEATURES]).q(1.0 / 128.0, 128),
        x(UInt8, &[BATCH, CELLS]).variable().q(1.0 / 128.0, 128),
        x(UInt8, &[4 * CELLS, FEATURES + CELLS]).constant().q(0.004, 128),
        x(Int32, &[4 * CELLS]).constant().range(-9000.0, 9000.0).q(0.004 / 128.0, 0),
        x(Int16, &[BATCH, CELLS]).variable().q(1.0 / 2048.0, 0),
    ];
    let wide = Output::of(Int16).q(1.0 / 2048.0, 0);
    let byte = Output::of(UInt8).q(1.0 / 128.0, 128);
    let gates = Output::of(Int16).q(1.0 / 4096.0, 0);
    let outputs = [byte.clone(), wide, byte, gates];
    out.push(Case::new(Op::LSTM, params, bytes).outputs(outputs).steps(3).detail("basic"));
}

/// 8-bit activations and weights, a 16-bit cell state.
fn integer(out: &mut Vec<Case>, has: Has) {
    let outputs = has.outputs();
    let matrix = |shape: &[usize]| Some(x(Int8, shape).constant().q(0.004, 0));
    let mut inputs = vec![None; 24];
    for gate in 0..4 {
        inputs[CELL.weights[gate]] = matrix(&[CELLS, FEATURES]);
        inputs[CELL.recurrent[gate]] = matrix(&[CELLS, outputs]);
        inputs[CELL.bias[gate]] = Some(x(Int32, &[CELLS]).constant().range(-9000.0, 9000.0).q(0.00003, 0));
        if let (true, Some(at)) = (has.peephole, CELL.peephole[gate]) {
            inputs[at] = Some(x(Int16, &[CELLS]).constant().range(-20_000.0, 20_000.0).q(0.00002, 0));
        }
        if let (true, Some(at)) = (has.norm, CELL.norm[gate]) {
            inputs[at] = Some(x(Int16, &[CELLS]).constant().range(1000.0, 20_000.0).q(0.00003, 0));
        }
    }
    if has.projection {
        inputs[CELL.projection] = matrix(&[outputs, CELLS]);
        inputs[CELL.projection_bias] =
            Some(x(Int32, &[outputs]).constant().range(-900.0, 900.0).q(0.00003, 0));
    }
    inputs[CELL.output_state] = Some(x(Int8, &[BATCH, outputs]).variable().q(0.008, 3));
    inputs[CELL.cell_state] = Some(x(Int16, &[BATCH, CELLS]).variable().q(1.0 / 8192.0, 0));
    let gate = || Some(x(Int16, &[1]).q(1.0 / 4096.0, 0));
    let intermediates = [gate(), gate(), gate(), gate(), Some(x(Int8, &[1]).q(0.008, 3))];
    inputs[0] = Some(x(Int8, &[BATCH, FEATURES]).q(0.008, -5));
    let params = LstmParams::default()
        .fused_activation_function(Activation::Tanh)
        .cell_clip(0.0)
        .proj_clip(0.0)
        .kernel_type(LstmKernelType::Full)
        .asymmetric_quantize_inputs(false);
    let name = format!("integer{}", has.name().trim_start_matches("float"));
    let case =
        Case::optional(Op::LSTM, params, inputs.clone()).q(0.008, 3).intermediates(intermediates.clone());
    out.push(case.steps(3).detail(name.clone()));
    inputs[0] = Some(x(Int8, &[BATCH, TIME, FEATURES]).q(0.008, -5));
    let params = UnidirectionalSequenceLstmParams::default()
        .fused_activation_function(Activation::Tanh)
        .cell_clip(0.0)
        .proj_clip(0.0)
        .time_major(false)
        .asymmetric_quantize_inputs(false)
        .diagonal_recurrent_tensors(false);
    let case = Case::optional(Op::UNIDIRECTIONAL_SEQUENCE_LSTM, params, inputs).q(0.008, 3);
    out.push(case.intermediates(intermediates).steps(2).detail(name));
}
