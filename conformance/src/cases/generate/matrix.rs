//! FULLY_CONNECTED, BATCH_MATMUL.

use delegraph_core::ops::WeightsFormat;
use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::ops::fully_connected::FullyConnectedParams;

use super::super::prelude::*;
use super::draw::{Draw, out_scale, spread};
use super::finish;
use super::weights::{Mode, Weighted};

/// Depths of sums: remainders of every vector width, and long sums.
const DEPTHS: [usize; 20] = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 200, 513];

/// A matrix of weights.
#[derive(Debug, Clone)]
struct Dense {
    input: Vec<usize>,
    depth: usize,
    units: usize,
    activation: Activation,
    keep_num_dims: bool,
    biased: bool,
}

impl Dense {
    fn random(draw: &mut Draw) -> Self {
        let (depth, mut units) = (draw.pick(&DEPTHS), draw.channels());
        let rank = draw.pick(&[2, 2, 2, 3, 4]);
        let mut input: Vec<usize> = (1..rank).map(|_| draw.pick(&[1, 1, 2, 3, 5])).collect();
        units = units.min(40_000 / (depth * input.iter().product::<usize>())).max(1);
        input.push(depth);
        // Some inputs are flattened to the depth.
        let flat = draw.chance(15) && depth % 4 == 0;
        if flat {
            input.splice(rank - 1.., [depth / 4, 4]);
        }
        let keep_num_dims = !flat && draw.chance(30);
        Dense { input, depth, units, activation: draw.activation(), keep_num_dims, biased: draw.chance(75) }
    }

    fn case(&self, draw: &mut Draw, mode: Mode, packed: Option<TensorType>) -> Case {
        let filter = [self.units, self.depth];
        let mut w = Weighted::new(draw, mode, &self.input, &filter, 0);
        if let Some(ty) = packed {
            let (low, high) = if ty == Int2 { (-1.0, 1.0) } else { (-7.0, 7.0) };
            let scale = draw.real(0.04, 0.2);
            let weights = x(ty, &filter).constant().range(low, high);
            w.weights = if draw.chance(50) { weights.q(scale, 0) } else { weights.channels(scale, 0) };
        }
        let deviation = (self.depth as f32).sqrt() * w.unit * spread(mode.data()) * spread(mode.weights());
        let params = FullyConnectedParams::default()
            .fused_activation_function(self.activation)
            .weights_format(WeightsFormat::Default)
            .keep_num_dims(self.keep_num_dims)
            .asymmetric_quantize_inputs(
                mode.declared_bias() == Float32
                    && packed.is_none()
                    && draw.chance(50)
                    && matches!(mode, Mode::Hybrid | Mode::HybridChannels),
            )
            .quantized_bias_type(mode.declared_bias());
        let bias = (self.biased || mode.needs_bias()).then(|| w.bias(self.units, deviation));
        let inputs = [Some(w.input), Some(w.weights), bias];
        let case = Case::optional(Op::FULLY_CONNECTED, params, inputs);
        let (scale, zero) = (out_scale(draw, mode.data(), deviation), draw.zero(mode.data()));
        if mode.is_integer() { case.q(scale, zero) } else { case }
    }
}

/// A product of two matrices, neither of which needs to be constant.
#[derive(Debug, Clone)]
struct Product {
    left: Vec<usize>,
    right: Vec<usize>,
    adj_x: bool,
    adj_y: bool,
}

impl Product {
    fn random(draw: &mut Draw) -> Self {
        let (mut rows, mut columns) = (draw.channels(), draw.channels());
        let depth = draw.pick(&DEPTHS);
        let ranks = draw.pair(&[0, 0, 1, 1, 2, 3]);
        let longest = draw.shape(ranks[0].max(ranks[1]), 12);
        // Batches are broadcast: each dimension is equal, 1, or missing.
        let mut batch = |rank: usize| -> Vec<usize> {
            let tail = &longest[longest.len() - rank..];
            tail.iter().map(|&d| if draw.chance(25) { 1 } else { d }).collect()
        };
        let (mut left, mut right) = (batch(ranks[0]), batch(ranks[1]));
        let batches = longest.iter().product::<usize>().max(1);
        while batches * rows * columns * depth > 60_000 && rows * columns > 1 {
            (rows, columns) = (rows.div_ceil(2), columns.div_ceil(2));
        }
        let (adj_x, adj_y) = (draw.chance(50), draw.chance(50));
        left.extend(if adj_x { [depth, rows] } else { [rows, depth] });
        right.extend(if adj_y { [columns, depth] } else { [depth, columns] });
        Product { left, right, adj_x, adj_y }
    }

    fn case(&self, draw: &mut Draw, kind: &str) -> Case {
        let depth = self.left[self.left.len() - if self.adj_x { 2 } else { 1 }];
        let hybrid = kind == "hybrid";
        let params = BatchMatMulParams::default()
            .adj_x(self.adj_x)
            .adj_y(self.adj_y)
            .asymmetric_quantize_inputs(hybrid && draw.chance(50));
        let op = |inputs| Case::new(Op::BATCH_MATMUL, params, inputs);
        let (a, b) = (draw.real(0.005, 0.09), draw.real(0.005, 0.09));
        let deviation = |ty| (depth as f32).sqrt() * a * b * spread(ty) * spread(ty);
        match kind {
            "int8" => {
                let scale = out_scale(draw, Int8, deviation(Int8));
                let inputs =
                    [x(Int8, &self.left).q(a, draw.zero(Int8)), x(Int8, &self.right).q(b, draw.zero(Int8))];
                op(inputs).q(scale, draw.zero(Int8))
            }
            "int16" => {
                let scale = out_scale(draw, Int16, deviation(Int16));
                op([x(Int16, &self.left).q(a, 0), x(Int16, &self.right).q(b, 0)]).q(scale, 0)
            }
            "to_int32" => op([x(Int8, &self.left).q(1.0, 0), x(Int8, &self.right).q(1.0, 0)])
                .outputs([Output::of(Int32).q(1.0, 0)]),
            "hybrid" => {
                op([x(Float32, &self.left), x(Int8, &self.right).constant().range(-127.0, 127.0).q(b, 0)])
            }
            "constant" => op([x(Float32, &self.left), x(Float32, &self.right).constant()]),
            _ => op([x(Float32, &self.left), x(Float32, &self.right)]),
        }
    }
}

/// The number of cases of each kind.
const COUNT: usize = 30;
const PRODUCTS: usize = 48;

pub(super) fn cases(seed: u64, out: &mut Vec<Case>) {
    let plain = [
        Mode::Float,
        Mode::Fed,
        Mode::Half,
        Mode::UInt8,
        Mode::Int8,
        Mode::Channels,
        Mode::Wide,
        Mode::WideChannels,
        Mode::WideNarrowBias,
        Mode::Hybrid,
        Mode::HybridChannels,
    ];
    let packed = [
        (Mode::Channels, Int4, "weights_int4"),
        (Mode::Channels, Int2, "weights_int2"),
        (Mode::Hybrid, Int4, "hybrid_int4"),
    ];
    let modes = plain.map(|mode| (mode, None, mode.name())).into_iter();
    for (mode, ty, name) in modes.chain(packed.map(|(mode, ty, name)| (mode, Some(ty), name))) {
        for i in 0..COUNT {
            let mut draw = Draw::new(seed, &format!("dense{mode:?}{name}"), i);
            let case = Dense::random(&mut draw).case(&mut draw, mode, ty);
            out.push(finish(case, &mut draw, name, i));
        }
    }
    for kind in ["float", "constant", "int8", "int16", "to_int32", "hybrid"] {
        for i in 0..PRODUCTS {
            let mut draw = Draw::new(seed, &format!("product{kind}"), i);
            let case = Product::random(&mut draw).case(&mut draw, kind);
            out.push(finish(case, &mut draw, kind, i));
        }
    }
}
