//! `fuse` with a library of fusions that returns wrong models: messages name the library and the fusion, and nothing is
//! written. Skipped with a message on machines without a C compiler.

#![cfg(any(unix, windows))]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{delegraph, path};
use delegraph::core::{BuiltinOp, ModelBuilder, Op, Params, SubgraphBuilder};
use delegraph::{Model, TensorType};

/// A model of one op.
fn model(op: Op) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let y = graph.tensor("y", TensorType::Float32, [4]);
    match op {
        Op::Builtin(op) => graph.node(op, Params::None).inputs([x]).writes([y]),
        Op::Custom(name) => graph.custom(&name).inputs([x]).writes([y]),
    };
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

/// The library, whose fusion returns the file `returned`; `None` without a compiler.
fn library(out: &Path, returned: &Path, definitions: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-std=c11"]).args(definitions);
    cc.arg(format!("-DMODEL=\"{}\"", path(returned))).arg("-I").arg(root.join("delegate-api/include"));
    match cc.arg("-o").arg(out).arg(root.join("tests/fusion_faults.c")).output() {
        Ok(built) => {
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            Some(out.to_owned())
        }
        Err(e) => {
            eprintln!("skipped: no C compiler: {e}");
            None
        }
    }
}

#[test]
fn models_of_a_faulty_library_are_its_fault() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (file, returned, out) = (at("original.tflite"), at("returned.tflite"), at("out.tflite"));
    model(BuiltinOp::ABS.into()).save(&file).unwrap();
    let Some(library) = library(&at("faulty.so"), &returned, &[]) else { return };
    let fusion = format!("plugin:{}", path(&library));
    let arguments = ["fuse", path(&file), "-o", path(&out), "--fusion", &fusion];
    let fails = |text: &str| {
        let stderr = delegraph(&arguments).expect(1, text).stderr;
        assert!(stderr.contains("--skip NAME") && !stderr.contains("original.tflite"), "{stderr}");
        assert!(!out.exists());
    };

    // The path of the original is not that of what the library returns.
    std::fs::write(&returned, "this is not a model").unwrap();
    fails("faulty.so: fusion \"faulty\": it made a model that cannot be prepared: invalid model");
    // Each fusion that changed the model may be the reason.
    model(BuiltinOp::NEG.into()).save(&returned).unwrap();
    fails("the rewritten model computes something else");
    fails(&format!("it was rewritten by \"faulty\" of {}", path(&library)));
    // The original can run, so that a rewritten model that cannot is not written without a comparison.
    model(Op::custom("Unknown")).save(&returned).unwrap();
    fails("the rewritten model cannot be run: 1 op has no kernel: custom op \"Unknown\"");
    fails("`--ops plugin:PATH` adds the kernels of custom ops");
    delegraph(&[&arguments[..], &["--samples", "0"]].concat()).expect(0, "");
    assert!(out.exists());
}

#[test]
fn a_library_that_cannot_be_opened_has_no_fusions() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("model.tflite"), folder.path().join("out.tflite"));
    model(BuiltinOp::ABS.into()).save(&file).unwrap();
    let definitions = ["-DOPEN_STATUS=DELEGRAPH_FAILED"];
    let Some(library) = library(&folder.path().join("closed.so"), &file, &definitions) else { return };
    let fusion = format!("plugin:{}", path(&library));
    delegraph(&["fuse", path(&file), "-o", path(&out), "--fusion", &fusion])
        .expect(1, "closed.so: its delegate, kernels or fusions cannot be created: it gave no reason");
}
