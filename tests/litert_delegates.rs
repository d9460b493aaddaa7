//! Delegates that were built for LiteRT, with `--delegate litert:PATH?KEY=VALUE`. `bindings/litert/tests/external.rs`
//! tests their runs.

#![cfg(all(unix, target_pointer_width = "64"))]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use std::path::Path;
use std::process::Command;

use common::{delegraph, path};
use delegraph::core::ops::binary::AddParams;
use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder};
use delegraph::{Model, TensorType};

/// `(x + x) + x`.
fn model() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [5]);
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("sum");
    let last = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([sum, x]).output("last");
    graph.outputs([last]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

#[test]
fn verbs_take_delegates_for_litert() {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("left out: there is no `cc`");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("adder.so");
    let bindings = Path::new(env!("CARGO_MANIFEST_DIR")).join("bindings");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-shared", "-fPIC", "-I"]).arg(bindings.join("c/include"));
    let cc = cc.arg("-o").arg(&library).arg(bindings.join("litert/tests/delegate/adder.c")).status();
    assert!(cc.unwrap().success());
    let file = folder.path().join("model.tflite");
    model().save(&file).unwrap();
    let delegate = format!("litert:{}", library.display());
    let outputs = |delegate: &str| {
        let run = delegraph(&["run", path(&file), "--delegate", delegate, "--json"]).expect(0, "").json();
        assert_eq!(run["delegate"], delegate);
        run["outputs"].clone()
    };
    assert_eq!(outputs(&delegate), outputs("cpu"));
    assert_eq!(outputs(&format!("{delegate}?as=%74emporary")), outputs("cpu"));
    let explained = delegraph(&["explain", path(&file), "--delegate", &delegate, "--json"]).json();
    assert_eq!(explained["delegated_nodes"], 2);
    delegraph(&["bench", path(&file), "--delegate", &delegate, "--runs", "1", "--warmup", "0"]).expect(0, "");
    // Results are compared. The checks of the contract require versions and reasons, which the interface does not have.
    let numbers = ["conformance", "--delegate", &delegate, "--filter", "binary/add_", "--checks", "none"];
    delegraph(&numbers).expect(0, "");
    delegraph(&["run", path(&file), "--delegate", &format!("{delegate}?speed=9")])
        .expect(1, "the options as and log");
    delegraph(&["run", path(&file), "--delegate", &format!("plugin:{}", library.display())])
        .expect(4, "`--delegate litert:PATH` takes it");
    delegraph(&["run", path(&file), "--delegate", "litert:none.so"]).expect(4, "none.so");
}
