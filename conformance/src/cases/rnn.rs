//! RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN.

use delegraph_core::ops::rnn::{BidirectionalSequenceRnnParams, RnnParams, SequenceRnnParams};

use super::prelude::*;

const BATCH: usize = 2;
const TIME: usize = 3;
const FEATURES: usize = 5;
const UNITS: usize = 4;

const CRASHES: Verdict = Verdict::NotCompared(
    "LiteRT reads beyond the weights, and crashes or not by chance, where outputs are merged",
);

/// How the weights are stored.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Weights {
    Float,
    Hybrid { asymmetric: bool },
}

/// Weights, recurrent weights, bias and state of one direction.
fn cell(weights: Weights) -> [Option<Operand>; 4] {
    let matrix = |shape: &[usize]| match weights {
        Weights::Float => x(Float32, shape).constant().range(-0.5, 0.5),
        Weights::Hybrid { .. } => x(Int8, shape).constant().q(0.004, 0),
    };
    [
        Some(matrix(&[UNITS, FEATURES])),
        Some(matrix(&[UNITS, UNITS])),
        Some(x(Float32, &[UNITS]).constant().range(-0.5, 0.5)),
        Some(x(Float32, &[BATCH, UNITS]).variable()),
    ]
}

pub(super) const OP_KINDS: OpKinds =
    &[(OpKind::RECURRENT, &[Op::RNN, Op::UNIDIRECTIONAL_SEQUENCE_RNN, Op::BIDIRECTIONAL_SEQUENCE_RNN])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for weights in
        [Weights::Float, Weights::Hybrid { asymmetric: false }, Weights::Hybrid { asymmetric: true }]
    {
        let asymmetric_quantize_inputs = weights == Weights::Hybrid { asymmetric: true };
        for fused_activation_function in [Activation::None, Activation::Relu, Activation::Tanh] {
            let detail = |what: &str| {
                let weights = match weights {
                    Weights::Float => "float",
                    Weights::Hybrid { asymmetric: false } => "hybrid",
                    Weights::Hybrid { asymmetric: true } => "hybrid_asymmetric",
                };
                format!("{weights}_{fused_activation_function:?}{what}").to_lowercase()
            };
            let one = x(Float32, &[BATCH, FEATURES]).range(-1.0, 1.0);
            let inputs = [Some(one)].into_iter().chain(cell(weights));
            let params = RnnParams::default()
                .fused_activation_function(fused_activation_function)
                .asymmetric_quantize_inputs(asymmetric_quantize_inputs);
            out.push(Case::optional(Op::RNN, params, inputs).steps(3).detail(detail("")));
            for time_major in [false, true] {
                let shape = if time_major { [TIME, BATCH, FEATURES] } else { [BATCH, TIME, FEATURES] };
                let all = x(Float32, &shape).range(-1.0, 1.0);
                let major = if time_major { "_time_major" } else { "" };
                let inputs = [Some(all.clone())].into_iter().chain(cell(weights));
                let params = SequenceRnnParams::default()
                    .time_major(time_major)
                    .fused_activation_function(fused_activation_function)
                    .asymmetric_quantize_inputs(asymmetric_quantize_inputs);
                let case = Case::optional(Op::UNIDIRECTIONAL_SEQUENCE_RNN, params, inputs).steps(2);
                out.push(case.detail(detail(major)));
                for merge_outputs in [false, true] {
                    let cells = cell(weights).into_iter().chain(cell(weights));
                    let inputs = [Some(all.clone())].into_iter().chain(cells).chain([None, None, None]);
                    let params = BidirectionalSequenceRnnParams::default()
                        .time_major(time_major)
                        .fused_activation_function(fused_activation_function)
                        .merge_outputs(merge_outputs)
                        .asymmetric_quantize_inputs(asymmetric_quantize_inputs);
                    let case = Case::optional(Op::BIDIRECTIONAL_SEQUENCE_RNN, params, inputs).steps(2);
                    let merged = if merge_outputs { "_merged" } else { "" };
                    let outputs = vec![Output::of(Float32); if merge_outputs { 1 } else { 2 }];
                    let case = case.outputs(outputs).detail(detail(&format!("{major}{merged}")));
                    let crashes = time_major && merge_outputs && weights != Weights::Float;
                    out.push(if crashes { case.verdict(CRASHES) } else { case });
                }
            }
        }
    }
}
