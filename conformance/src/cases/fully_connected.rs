//! FULLY_CONNECTED.

use delegraph_core::ops::WeightsFormat;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::sparsity::{Level, Sparsity};

use super::prelude::*;

fn params() -> FullyConnectedParams {
    FullyConnectedParams::default()
        .fused_activation_function(Activation::None)
        .weights_format(WeightsFormat::Default)
        .keep_num_dims(false)
        .asymmetric_quantize_inputs(false)
        .quantized_bias_type(Float32)
}

pub(super) const OP_KINDS: OpKinds = &[];

pub(super) fn cases(out: &mut Vec<Case>) {
    for (shape, depth, units) in
        [(&[1, 7][..], 7, 3), (&[3, 16], 16, 5), (&[2, 2, 9], 9, 4), (&[5, 33], 33, 8)]
    {
        let filter = [units, depth];
        let bias = |ty| x(ty, &[units]).constant();
        let large = |ty| bias(ty).range(-900.0, 900.0);
        for activation in [Activation::None, Activation::Relu, Activation::Relu6] {
            let p = params().fused_activation_function(activation);
            let op = |inputs: [Operand; 3]| {
                Case::new(Op::FULLY_CONNECTED, p.clone(), inputs)
                    .detail(format!("{depth}x{units}_{activation:?}").to_lowercase())
            };
            out.push(op([x(Float32, shape), x(Float32, &filter).constant(), bias(Float32)]));
            out.push(
                op([x(UInt8, shape).q(0.04, 121), x(UInt8, &filter).constant().q(0.02, 133), large(Int32)])
                    .q(0.11, 119),
            );
            out.push(
                op([x(Int8, shape).q(0.04, -9), x(Int8, &filter).constant().q(0.02, 0), large(Int32)])
                    .q(0.13, 7),
            );
            let wide = x(Int16, shape).range(-9000.0, 9000.0).q(0.0004, 0);
            out.push(op([wide, x(Int8, &filter).constant().q(0.02, 0), large(Int64)]).q(0.0009, 0));
        }
        let op = |p: FullyConnectedParams, inputs: Vec<Operand>, detail: &str| {
            Case::new(Op::FULLY_CONNECTED, p, inputs).detail(format!("{depth}x{units}_{detail}"))
        };
        let keep = params().keep_num_dims(true);
        out.push(op(
            keep,
            vec![x(Float32, shape), x(Float32, &filter).constant(), bias(Float32)],
            "keep_dims",
        ));
        out.push(op(params(), vec![x(Float32, shape), x(Float32, &filter)], "no_bias"));
        let channels = x(Int8, &filter).constant().channels(0.01, 0);
        out.push(
            op(params(), vec![x(Int8, shape).q(0.04, -9), channels.clone(), large(Int32)], "channels")
                .q(0.13, 7),
        );
        let wide = x(Int16, shape).range(-9000.0, 9000.0).q(0.0004, 0);
        out.push(op(params(), vec![wide.clone(), channels.clone(), large(Int64)], "channels").q(0.0009, 0));
        let narrow = params().quantized_bias_type(Int32);
        out.push(op(narrow, vec![wide, channels.clone(), large(Int32)], "bias_int32").q(0.0009, 0));
        for asymmetric_quantize_inputs in [false, true] {
            let p = params().asymmetric_quantize_inputs(asymmetric_quantize_inputs);
            for (per, weights) in [
                ("tensor", x(Int8, &filter).constant().q(0.02, 0)),
                ("channel", channels.clone()),
                ("tensor_int4", x(Int4, &filter).constant().q(0.1, 0)),
                ("channel_int4", x(Int4, &filter).constant().channels(0.1, 0)),
            ] {
                let detail = format!("hybrid_per_{per}_{asymmetric_quantize_inputs}");
                out.push(op(p.clone(), vec![x(Float32, shape), weights, bias(Float32)], &detail));
            }
        }
        for ty in [Int4, Int2] {
            let packed = x(ty, &filter).constant().channels(0.1, 0);
            let detail = format!("weights_{}", ty.name().to_lowercase());
            out.push(
                op(params(), vec![x(Int8, shape).q(0.04, -9), packed, large(Int32)], &detail).q(0.13, 7),
            );
        }
    }
    // Weights with a scale per block. With fewer than four units, LiteRT returns only the bias.
    for (shape, depth, units, block) in
        [(&[3, 64][..], 64, 5, 32), (&[1, 96], 96, 4, 32), (&[2, 2, 128], 128, 6, 64)]
    {
        let inputs = [
            x(Float32, shape),
            x(Int4, &[units, depth]).constant().blocks(0.05, block),
            x(Float32, &[units]).constant(),
        ];
        let case = Case::new(Op::FULLY_CONNECTED, params(), inputs);
        out.push(case.detail(format!("{depth}x{units}_blocks_of_{block}")));
    }
    // A third of the weights is stored.
    let sparsity = Sparsity {
        traversal_order: vec![0, 1],
        block_map: Vec::new(),
        levels: vec![Level::Dense { size: 3 }, Level::csr(&[0, 2, 3, 5], &[0, 3, 2, 1, 4])],
    };
    let stored = x(Float32, &[5]).data(0, 0);
    let weights = x(Float32, &[3, 5]).constant().bytes(stored).sparse(sparsity);
    let inputs = [x(Float32, &[2, 5]), weights, x(Float32, &[3]).constant()];
    out.push(Case::new(Op::FULLY_CONNECTED, params(), inputs).detail("sparse"));
    // Weights in the order that LiteRT's shuffled kernel requires.
    let shuffled = params().weights_format(WeightsFormat::Shuffled4x16Int8);
    let inputs = [
        x(UInt8, &[1, 32]).q(1.0 / 128.0, 128),
        x(UInt8, &[8, 32]).constant().q(1.0 / 128.0, 128),
        x(Int32, &[8]).constant().range(-9000.0, 9000.0).q(1.0 / 16384.0, 0),
    ];
    let outputs = [Output::of(Int16).q(1.0 / 512.0, 0), Output::new(UInt8, &[1, 32])];
    out.push(Case::new(Op::FULLY_CONNECTED, shuffled, inputs).outputs(outputs).detail("shuffled"));
}
