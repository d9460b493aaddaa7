//! Partitions, and limits on them.

use delegraph_core::{BuiltinOp, Error, NodeId, Op, SubgraphBuilder, TensorType};
use delegraph_delegate_api::{CostModel, PartitionOptions, Policy, Rates};
use delegraph_interpreter::Interpreter;

use crate::support::{
    ABS, ADD, MUL, NEG, Scripted, X, build, chain, on_cpu, partitions, reasons, run, step, with,
};

/// Partitions of 1, 2 and 3 nodes with one of the CPU's between each.
fn three() -> delegraph_core::Model {
    chain(&[NEG, ABS, NEG, ADD, ABS, NEG, ADD, MUL])
}

fn limited(limits: PartitionOptions) -> Interpreter {
    let delegate = Scripted::new("d", &[NEG, ADD, MUL]);
    let model = three();
    let mut interpreter =
        Interpreter::builder(model.clone()).delegate_within(Box::new(delegate), limits).build().unwrap();
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    interpreter
}

#[test]
fn as_few_partitions_as_the_order_allows() {
    assert_eq!(partitions(&limited(PartitionOptions::default())), [vec![0], vec![2, 3], vec![5, 6, 7]]);
    // Two branches, each with a node of the CPU's at another place: all that is claimed still falls into two parts.
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let mut ends = Vec::new();
    for (branch, ops) in [[NEG, ABS, NEG], [NEG, NEG, ABS]].iter().enumerate() {
        let mut value = x;
        for (i, &op) in ops.iter().enumerate() {
            value = step(&mut graph, op, value, &format!("{branch}.{i}"));
        }
        ends.push(value);
    }
    let sum = graph.node(ADD, crate::support::params(ADD)).inputs(ends).output("sum");
    graph.outputs([sum]);
    let model = build(graph);
    let mut interpreter = with(&model, [Scripted::new("d", &[NEG, ADD])]).build().unwrap();
    assert_eq!(partitions(&interpreter), [vec![0, 3, 4], vec![2, 6]]);
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
}

#[test]
fn at_most_so_many_partitions_the_largest_ones() {
    let limits = PartitionOptions { max_partitions: Some(2), ..Default::default() };
    let interpreter = limited(limits);
    assert_eq!(partitions(&interpreter), [vec![2, 3], vec![5, 6, 7]]);
    assert!(reasons(&interpreter).contains(&(0, "TooManyPartitions")));
}

#[test]
fn small_partitions_are_left() {
    let interpreter = limited(PartitionOptions { min_nodes: 3, ..Default::default() });
    assert_eq!(partitions(&interpreter), [[5, 6, 7]]);
    assert!(reasons(&interpreter).contains(&(2, "PartitionTooSmall")));
}

#[test]
fn a_range_of_nodes_halves_the_search_for_the_one_that_goes_wrong() {
    let interpreter = limited(PartitionOptions { nodes: Some(3..7), ..Default::default() });
    assert_eq!(partitions(&interpreter), [vec![3], vec![5, 6]]);
    assert!(reasons(&interpreter).contains(&(7, "Excluded")));
}

#[test]
fn excluded_nodes_and_ops_are_left() {
    let limits = PartitionOptions {
        excluded_nodes: vec![NodeId(5)],
        excluded_ops: vec![Op::Builtin(BuiltinOp::MUL)],
        ..Default::default()
    };
    let interpreter = limited(limits);
    assert_eq!(partitions(&interpreter), [vec![0], vec![2, 3], vec![6]]);
    assert!(
        reasons(&interpreter).contains(&(7, "Excluded")) && reasons(&interpreter).contains(&(5, "Excluded"))
    );
}

#[test]
fn a_partition_must_gain_more_than_its_copies_cost() {
    // One node takes 4 µs on the CPU and 1 with the delegate; what goes over the border takes 32 bytes' time.
    let rates = |multiply_adds| Rates { multiply_adds, bytes: 1e12 };
    let model = CostModel { cpu: rates(1e6), delegate: rates(4e6), copies: 16e6, overhead: 3.5e-6 };
    let interpreter = limited(PartitionOptions { cost: Some(model), ..Default::default() });
    // 2 µs of copies and 3.5 of overhead: one node loses 2.5 µs, two gain 0.5.
    assert_eq!(partitions(&interpreter), [vec![2, 3], vec![5, 6, 7]]);
    let reason = interpreter.report().rejected().find(|(n, _)| n.node == NodeId(0)).unwrap().1.to_string();
    assert_eq!(
        reason,
        "not worth its copies: its partition would take 6.5 µs with its copies, 4.0 µs on the CPU"
    );
}

#[test]
fn a_delegate_that_cannot_be_measured_says_why() {
    let error = delegraph_interpreter::measure(1, || Ok(Box::new(Scripted::new("d", &[NEG])))).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("cannot be measured: AVERAGE_POOL_2D: AVERAGE_POOL_2D is not supported"), "{text}");
}

#[test]
fn policies_report_prefer_and_require() {
    let model = three();
    let delegate = || Scripted::new("d", &[NEG, ADD]);
    let reported = delegate();
    let seen = reported.seen.clone();
    let mut interpreter = with(&model, [reported]).policy(Policy::Report).build().unwrap();
    assert_eq!(partitions(&interpreter).len(), 3);
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    assert_eq!(seen.log(), ["prepare 0"]);
    let error = with(&model, [delegate()]).policy(Policy::Require).build().err().unwrap();
    assert!(matches!(error, Error::Unsupported(_)));
    let text = error.to_string();
    assert!(
        text.contains("3 of 8 nodes are not delegated")
            && text.contains("node 1 (ABS v1): ABS is not supported"),
        "{text}"
    );
    let all = Scripted::new("d", &[NEG, ADD, ABS, MUL]);
    assert_eq!(partitions(&with(&model, [all]).policy(Policy::Require).build().unwrap()).len(), 1);
}

#[test]
fn two_delegates_choose_in_their_order() {
    let model = three();
    let (first, second) = (Scripted::new("first", &[NEG]), Scripted::new("second", &[NEG, ADD, ABS, MUL]));
    let mut interpreter = with(&model, [first, second]).policy(Policy::Require).build().unwrap();
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    let owners: Vec<_> = interpreter.report().partitions.iter().map(|p| (p.delegate, p.nodes[0].0)).collect();
    assert_eq!(owners, [(0, 0), (1, 1), (0, 2), (1, 3), (0, 5), (1, 6)]);
}

#[test]
fn a_delegate_that_claims_nothing_changes_nothing() {
    let model = three();
    let mut interpreter = with(&model, [Scripted::new("idle", &[])]).build().unwrap();
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    assert!(reasons(&interpreter).iter().all(|(_, kind)| *kind == "UnsupportedOp"));
}
