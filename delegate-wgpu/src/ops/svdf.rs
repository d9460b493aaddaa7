//! SVDF in floats with constant weights.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::svdf::SVDFParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::binary::{self, Binary};
use delegraph_shaders::reduce::{self, Reduce};
use delegraph_shaders::{Activation, Epilogue, concatenation, fully_connected, slice};

use super::{GpuOp, activation};
use crate::graph::{Element, Join};
use crate::lower::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[GpuOp { op: BuiltinOp::SVDF, max_version: 4, lower }];

const INPUT: usize = 0;
const FEATURE: usize = 1;
const TIME: usize = 2;
const BIAS: usize = 3;
const STATE: usize = 4;

/// The state moves on by one, its last column becomes what the filters make of the input, and each unit sums its
/// filters over time.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &SVDFParams = cx.params()?;
    [INPUT, FEATURE, TIME, BIAS, STATE].into_iter().try_for_each(|i| cx.expect(i, TensorType::Float32))?;
    let shapes = [cx.input_shape(INPUT)?, cx.input_shape(TIME)?];
    let [&[batch, inputs], &[filters, memory]] = shapes.each_ref().map(Vec::as_slice) else {
        return Err(unsupported(format!("an input and time weights of shapes {shapes:?}")));
    };
    let rank = u32::try_from(p.rank).ok().filter(|&rank| rank > 0 && filters.is_multiple_of(rank));
    let rank = rank.ok_or_else(|| unsupported(format!("{filters} filters of rank {}", p.rank)))?;
    let activation = activation(p.fused_activation_function)?;
    let units = filters / rank;
    let latest = cx.temporary(&[batch, filters]);
    let product =
        fully_connected::Spec { rows: batch, inputs, outputs: filters, epilogue: Epilogue::default() };
    let (input, feature) = (cx.input(INPUT)?, cx.constant(FEATURE)?);
    cx.push_weighted(product, input, feature, None, latest)?;
    let mut state = latest;
    if memory > 1 {
        let before = cx.state(STATE)?;
        let rows = batch.checked_mul(filters).ok_or_else(|| unsupported("that many filters"))?;
        let kept = cx.temporary(&[rows, memory - 1]);
        let cut = slice::Spec {
            input: vec![rows, memory],
            output: vec![rows, memory - 1],
            begin: vec![0, 1],
            step: vec![1, 1],
        };
        cx.push(cut, &[before], kept)?;
        state = cx.temporary(&[rows, memory]);
        let sides = concatenation::Spec { inputs: vec![vec![rows, memory - 1], vec![rows, 1]], axis: 1 };
        cx.push(Join { spec: sides.clone(), part: 0 }, &[kept], state)?;
        cx.push(Join { spec: sides, part: 1 }, &[latest], state)?;
    }
    let (time, weighted) = (cx.input(TIME)?, cx.temporary(&[batch, filters, memory]));
    let weigh = binary::Spec {
        op: Binary::Mul,
        element: Element::F32,
        a: vec![batch, filters, memory],
        b: vec![filters, memory],
        output: vec![batch, filters, memory],
        activation: Activation::None,
    };
    cx.push(weigh, &[state, time], weighted)?;
    let output = cx.output(0)?;
    let biased = cx.has_input(BIAS);
    let sum = reduce::Spec {
        op: Reduce::Sum,
        element: Element::F32,
        input: vec![batch, units, rank * memory],
        axes: vec![2],
        activation: if biased { Activation::None } else { activation },
    };
    let summed = if biased { cx.temporary(&[batch, units]) } else { output };
    cx.push(sum, &[weighted], summed)?;
    if biased {
        let bias = cx.input(BIAS)?;
        let add = binary::Spec {
            op: Binary::Add,
            element: Element::F32,
            a: vec![batch, units],
            b: vec![units],
            output: vec![batch, units],
            activation,
        };
        cx.push(add, &[summed, bias], output)?;
    }
    cx.set_state(STATE, state, 0)
}
