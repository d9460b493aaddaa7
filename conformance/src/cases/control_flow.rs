//! IF, WHILE, CALL_ONCE, STABLEHLO_CASE, STABLEHLO_COMPOSITE.

use delegraph_core::ops::CustomOptionsFormat;
use delegraph_core::ops::binary::{AddParams, MulParams};
use delegraph_core::ops::control_flow::{
    CallOnceParams, IfParams, StableHloCompositeParams, StablehloCaseParams, WhileParams,
};
use delegraph_core::ops::variables::VarHandleParams;
use delegraph_core::{ModelBuilder, SubgraphBuilder};

use super::prelude::*;

const NONE: Activation = Activation::None;

/// Returns a subgraph that computes `x + x` or `x · x`.
fn branch(add: bool, ty: TensorType, shape: &[usize]) -> SubgraphBuilder {
    let mut graph = SubgraphBuilder::new(if add { "twice" } else { "square" });
    let x = graph.input("x", ty, shape);
    let y = match add {
        true => {
            graph.node(Op::ADD, AddParams::default().fused_activation_function(NONE).pot_scale_int16(false))
        }
        false => graph.node(Op::MUL, MulParams::default().fused_activation_function(NONE)),
    };
    let y = y.inputs([x, x]).output("y");
    graph.outputs([y]);
    graph
}

pub(super) const OP_KINDS: OpKinds = &[(
    OpKind::MOVED,
    &[
        Op::CALL_ONCE,
        Op::IF,
        Op::WHILE,
        Op::CALL,
        Op::STABLEHLO_WHILE,
        Op::STABLEHLO_CASE,
        Op::STABLEHLO_COMPOSITE,
    ],
)];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int32] {
        let shape = [2, 3];
        for condition in [false, true] {
            let params = IfParams::default().then_subgraph_index(1).else_subgraph_index(2);
            let inputs = [
                x(Bool, &[]).range(f64::from(u8::from(condition)), f64::from(u8::from(condition))),
                x(ty, &shape),
            ];
            let case = Case::new(Op::IF, params, inputs).outputs([Output::new(ty, &shape)]);
            let called = [branch(true, ty, &shape), branch(false, ty, &shape)];
            out.push(case.calls(called).detail(format!("{condition}")));
        }
        for index in [0, 1, 2, -1] {
            let params = StablehloCaseParams::default().branch_subgraph_indices(vec![1, 2, 3]);
            let inputs = [given(&[], &[index]), x(ty, &shape)];
            let case = Case::new(Op::STABLEHLO_CASE, params, inputs).outputs([Output::new(ty, &shape)]);
            let called = [branch(true, ty, &shape), branch(false, ty, &shape), branch(true, ty, &shape)];
            out.push(case.calls(called).detail(format!("{index}")));
        }
        let params = StableHloCompositeParams::default()
            .name("test.square".into())
            .decomposition_subgraph_index(1)
            .composite_attributes(Vec::new())
            .composite_attributes_format(CustomOptionsFormat::FlexBuffers)
            .version(1);
        let case =
            Case::new(Op::STABLEHLO_COMPOSITE, params, [x(ty, &shape)]).outputs([Output::new(ty, &shape)]);
        out.push(case.calls([branch(false, ty, &shape)]));
        out.push(while_loop(ty, &shape));
    }
    out.push(call_once());
}

/// Doubles the value three times.
fn while_loop(ty: TensorType, shape: &[usize]) -> Case {
    let mut condition = SubgraphBuilder::new("condition");
    let count = condition.input("count", Int32, []);
    condition.input("x", ty, shape);
    let limit = condition.constant("limit", [], &[3i32]);
    let more = condition.node(Op::LESS, Params::None).inputs([count, limit]).output("more");
    condition.outputs([more]);
    let add = || AddParams::default().fused_activation_function(NONE).pot_scale_int16(false);
    let mut body = SubgraphBuilder::new("body");
    let (count, data) = (body.input("count", Int32, []), body.input("x", ty, shape));
    let one = body.constant("one", [], &[1i32]);
    let next = body.node(Op::ADD, add()).inputs([count, one]).output("next");
    let twice = body.node(Op::ADD, add()).inputs([data, data]).output("twice");
    body.outputs([next, twice]);
    let params = WhileParams::default().cond_subgraph_index(1).body_subgraph_index(2);
    let case = Case::new(Op::WHILE, params, [given(&[], &[0i32]), x(ty, shape)]).of(ty);
    case.outputs([Output::new(Int32, &[]), Output::new(ty, shape)]).calls([condition, body])
}

/// Initializes a variable before the first step.
fn call_once() -> Case {
    let handle = || VarHandleParams::default().container("c".into()).shared_name("once".into());
    let mut main = SubgraphBuilder::new("main");
    let data = main.input("data", Float32, [3]);
    main.node(Op::CALL_ONCE, CallOnceParams::default().init_subgraph_index(1)).writes([]);
    let v = main.node(Op::VAR_HANDLE, handle()).output("handle");
    let read = main.tensor("read", Float32, [3]);
    main.node(Op::READ_VARIABLE, Params::None).inputs([v]).writes([read]);
    let sum = AddParams::default().fused_activation_function(NONE).pot_scale_int16(false);
    let sum = main.node(Op::ADD, sum).inputs([read, data]).output("sum");
    main.node(Op::ASSIGN_VARIABLE, Params::None).inputs([v, sum]).writes([]);
    main.outputs([sum]);
    let mut init = SubgraphBuilder::new("init");
    let v = init.node(Op::VAR_HANDLE, handle()).output("handle");
    let start = init.constant("start", [3], &[1f32, 2.0, 3.0]);
    init.node(Op::ASSIGN_VARIABLE, Params::None).inputs([v, start]).writes([]);
    let model = ModelBuilder::new().subgraph(main).subgraph(init);
    Case::model(Op::CALL_ONCE, model, [x(Float32, &[3])]).steps(3)
}
