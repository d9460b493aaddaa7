//! REDUCE_WINDOW, STABLEHLO_REDUCE_WINDOW.

use delegraph_core::SubgraphBuilder;
use delegraph_core::ops::ReduceWindowFunction;
use delegraph_core::ops::reduce_window::{ReduceWindowParams, StablehloReduceWindowParams};

use super::prelude::*;

/// Returns a subgraph that applies `op` to two scalars.
pub(super) fn body(op: Op, ty: TensorType) -> SubgraphBuilder {
    let mut graph = SubgraphBuilder::new("body");
    let (a, b) = (graph.input("a", ty, []), graph.input("b", ty, []));
    let c = graph.node(op, Params::None).inputs([a, b]).output("c");
    graph.outputs([c]);
    graph
}

pub(super) const OP_KINDS: OpKinds = &[];

pub(super) fn cases(out: &mut Vec<Case>) {
    use ReduceWindowFunction::{Add, All, Any, Maximum, Minimum, Mul};
    for function in [Add, Mul, Minimum, Maximum, All, Any] {
        let types: &[TensorType] = match function {
            All | Any => &[Bool],
            _ => &[Float32, Float64, Int8, Int16, Int32, Int64, UInt8],
        };
        for &ty in types {
            for (window, stride, dilation) in [([2, 2], [1, 1], [1, 1]), ([2, 3], [2, 1], [1, 2])] {
                let inputs = [
                    x(ty, &[4, 6]).range(0.0, if ty == Bool { 1.0 } else { 3.0 }),
                    x(ty, &[]).range(1.0, 1.0).constant(),
                ];
                let wide = |v: [i32; 2]| known(&[2], &v.map(i64::from));
                let inputs = inputs.into_iter().chain([wide(window), wide(stride), wide(dilation)]);
                let case = Case::new(
                    Op::REDUCE_WINDOW,
                    ReduceWindowParams::default().reduce_function(function),
                    inputs,
                );
                out.push(case.detail(format!("{function:?}").to_lowercase()));
            }
        }
    }
    for op in [
        Op::STABLEHLO_ADD,
        Op::STABLEHLO_MULTIPLY,
        Op::STABLEHLO_MINIMUM,
        Op::STABLEHLO_MAXIMUM,
        Op::STABLEHLO_AND,
    ] {
        let types: &[TensorType] = if op == Op::STABLEHLO_AND {
            &[Bool]
        } else {
            &[Float32, Float64, Int8, UInt8, Int16, Int32, Int64]
        };
        for &ty in types {
            let params = StablehloReduceWindowParams::default()
                .window_dimensions(vec![2, 3])
                .window_strides(vec![1, 2])
                .base_dilations(vec![2, 1])
                .window_dilations(vec![1, 1])
                .padding(vec![1, 0, 0, 1])
                .body_subgraph_index(1);
            let inputs = [
                x(ty, &[3, 5]).range(0.0, if ty == Bool { 1.0 } else { 3.0 }),
                x(ty, &[]).range(1.0, 1.0).constant(),
            ];
            let case = Case::new(Op::STABLEHLO_REDUCE_WINDOW, params, inputs).calls([body(op, ty)]);
            out.push(case.detail(op.variant_name().unwrap_or_default().to_lowercase()));
        }
    }
}
