//! The delegates of `examples/`, run and compared.

#![allow(clippy::unwrap_used, dead_code)] // Only tests call this, and only a part of it.

#[path = "../examples/delegate_add_mul.rs"]
mod add_mul;
#[path = "../examples/delegate_logging.rs"]
mod logging;

use std::sync::Mutex;

use delegraph::core::ops::Activation;
use delegraph::core::ops::binary::{AddParams, MulParams};
use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder};
use delegraph::delegate_api::{Simple, VersionTable};
use delegraph::{Model, TensorType};
use delegraph_conformance::author::{agree, claims_of};

use add_mul::AddMul;
use logging::{Logging, Nothing};

fn versions() -> VersionTable {
    VersionTable::new(&[(BuiltinOp::ADD, 1), (BuiltinOp::MUL, 1)])
}

/// Two chains that join, with constants (one of them computed), a result used twice, and nodes that are not claimed.
fn chains() -> Model {
    let add = AddParams::default();
    let clamped = MulParams::default().fused_activation_function(Activation::Relu);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2, 3]);
    let w = graph.constant("w", [2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let row = graph.constant("row", [3], &[1f32, 2.0, 3.0]);
    let folded = graph.node(BuiltinOp::ADD, add.clone()).inputs([w, w]).output("folded");
    let a = graph.node(BuiltinOp::ADD, add.clone()).inputs([x, folded]).output("a");
    let b = graph.node(BuiltinOp::MUL, MulParams::default()).inputs([a, a]).output("b");
    let c = graph.node(BuiltinOp::MUL, clamped).inputs([b, w]).output("c");
    let d = graph.node(BuiltinOp::ADD, add.clone()).inputs([c, b]).output("d");
    let y = graph.node(BuiltinOp::ADD, add).inputs([d, row]).output("y");
    graph.outputs([a, y, d]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

#[test]
fn add_and_mul_are_claimed_and_right() {
    add_mul::main().unwrap();
    claims_of(&add_mul::model().unwrap(), Simple(AddMul(versions()))).unwrap().assert_partitions(&[&[0, 1]]);
    agree(&add_mul::model().unwrap(), Simple(AddMul(versions())), 1).unwrap();
    let claims = claims_of(&chains(), Simple(AddMul(versions()))).unwrap();
    claims.assert_claims(&[0, 1, 2, 4]);
    claims.assert_rejects(3, "UnsupportedParam");
    claims.assert_rejects(5, "UnsupportedParam");
    for seed in 0..3 {
        agree(&chains(), Simple(AddMul(versions())), seed).unwrap();
    }
}

#[test]
fn the_whole_delegate_has_less_than_a_hundred_lines() {
    let source = include_str!("../examples/delegate_add_mul.rs");
    let delegate = source.split("/// `y = ").next().unwrap();
    assert!(delegate.lines().count() < 100, "{} lines", delegate.lines().count());
}

#[test]
fn logging_shows_every_node_and_changes_nothing() {
    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let log = |line: &str| LINES.lock().unwrap().push(line.to_owned());
    let alone = Logging { inner: Nothing(versions()), log };
    let offered = claims_of(&chains(), alone).unwrap();
    offered.assert_claims(&[]);
    offered.assert_rejects(0, "Other");
    let lines = std::mem::take(&mut *LINES.lock().unwrap());
    let expected = [
        "subgraph 0 \"main\": 6 nodes",
        "  node 0 ADD v1 [folded]: FLOAT32 [2, 3] constant, FLOAT32 [2, 3] constant -> FLOAT32 [2, 3] constant",
        "  node 1 ADD v1: FLOAT32 [2, 3], FLOAT32 [2, 3] constant -> FLOAT32 [2, 3]",
        "within the table of versions: 6 nodes; partitions: 1",
        "  nodes [0, 1, 2, 3, 4, 5]: inputs 1, outputs 3",
    ];
    for line in expected {
        assert!(lines.iter().any(|l| l == line), "\"{line}\" is not in: {lines:#?}");
    }
    let around = || Logging { inner: Simple(AddMul(versions())), log };
    claims_of(&chains(), around()).unwrap().assert_claims(&[0, 1, 2, 4]);
    agree(&chains(), around(), 0).unwrap();
}
