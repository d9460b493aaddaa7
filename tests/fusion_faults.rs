//! `fuse` with faulty libraries: messages name the library and the fusion, or the node, and nothing is
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
    let returned = format!("-DMODEL=\"{}\"", path(returned));
    in_c(out, "tests/fusion_faults.c", &[definitions, &[&returned]].concat())
}

/// The library of this source; `None` without a compiler.
fn in_c(out: &Path, source: &str, definitions: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-std=c11"]).args(definitions);
    cc.arg("-I").arg(root.join("delegate-api/include"));
    match cc.arg("-o").arg(out).arg(root.join(source)).output() {
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

/// A model of a composite, whose body negates.
fn composite(output: &str) -> Model {
    named("acme.f", output)
}

/// The same with this name of the composite.
fn named(name: &str, output: &str) -> Model {
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [4]);
    let y = body.node(BuiltinOp::NEG, Params::None).inputs([x]).output("y");
    body.outputs([y]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let y = graph.composite(name, body).inputs([x]).output(output);
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

const OF_COMPOSITE: [&str; 2] = ["-DNAME=\"acme.f\"", "-DFLAGS=DELEGRAPH_FUSION_COMPOSITE"];

#[test]
fn a_composite_that_a_library_rejects_is_named_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("model.tflite"), folder.path().join("out.tflite"));
    composite("y").save(&file).unwrap();
    let definitions = [&OF_COMPOSITE[..], &["-DSTATUS=DELEGRAPH_INVALID"]].concat();
    let Some(library) = library(&folder.path().join("strict.so"), &file, &definitions) else { return };
    let fusion = format!("plugin:{}", path(&library));
    let ran = delegraph(&["fuse", path(&file), "-o", path(&out), "--fusion", &fusion]);
    let place = format!("{}: node 0 (STABLEHLO_COMPOSITE v1, writes \"y\"): invalid node: ", path(&file));
    let text = format!("{place}{}: fusion \"acme.f\": it gave no reason", path(&library));
    let stderr = ran.expect(4, &text).stderr;
    assert!(stderr.contains("--skip NAME") && !out.exists(), "{stderr}");
}

#[test]
fn composites_that_a_library_makes_are_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (file, returned, out) = (at("model.tflite"), at("returned.tflite"), at("out.tflite"));
    // A layer of LSTM has six operands.
    named("keras.lstm", "y").save(&returned).unwrap();
    let Some(library) = library(&at("maker.so"), &returned, &OF_COMPOSITE) else { return };
    let fusion = format!("plugin:{}", path(&library));
    let fuse = || delegraph(&["fuse", path(&file), "-o", path(&out), "--fusion", &fusion]);
    composite("y").save(&file).unwrap();
    let of_library =
        format!("{}: fusion \"acme.f\": it made a model that cannot be prepared", path(&library));
    let stderr = fuse().expect(1, &of_library).stderr;
    assert!(stderr.contains("composite \"keras.lstm\" version 1: it has 1 argument"), "{stderr}");
    // The same composite in the file is a defect of the file.
    named("keras.lstm", "y").save(&file).unwrap();
    fuse().expect(4, &format!("{}: node 0 (STABLEHLO_COMPOSITE v1", path(&file)));
    assert!(!out.exists());
}

#[test]
fn a_composite_that_is_left_is_named_by_its_output() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (file, returned, out) = (at("model.tflite"), at("returned.tflite"), at("out.tflite"));
    model(BuiltinOp::ABS.into()).save(&returned).unwrap();
    // The library returns no list of changes.
    let Some(library) = library(&at("silent.so"), &returned, &OF_COMPOSITE) else { return };
    let fusion = format!("plugin:{}", path(&library));
    for (output, writes) in [("y", "writes \"y\""), ("", "writes tensor 1")] {
        composite(output).save(&file).unwrap();
        let ran = delegraph(&["fuse", path(&file), "-o", path(&out), "--fusion", &fusion]).expect(0, "");
        let text = format!("composite \"acme.f\" ({writes}) is left: its body does not give");
        assert!(ran.stdout.contains(&text), "{}", ran.stdout);
    }
}

#[test]
fn a_faulty_kernel_is_not_the_fault_of_the_file_or_a_pass() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("model.tflite"), folder.path().join("out.tflite"));
    let kernel = |name: &str, definition: &str| {
        let (library, source) = (folder.path().join(name), "interpreter/tests/libraries/wrong_kernels.c");
        let library = in_c(&library, source, &["-DOP_NAME=\"acme.f\"", definition])?;
        Some(format!("plugin:{}", path(&library)))
    };
    let Some(faulty) = kernel("faulty.so", "-DRANK=1000") else { return };
    let Some(strict) = kernel("strict.so", "-DCREATE_STATUS=DELEGRAPH_INVALID") else { return };
    for model in [composite("y"), model(Op::custom("acme.f"))] {
        model.save(&file).unwrap();
        for verb in [&["run", path(&file)][..], &["fuse", path(&file), "-o", path(&out)]] {
            let text = "faulty.so: the plugin is wrong: set_output_shape: a shape of 1000 dimensions";
            let stderr = delegraph(&[verb, &["--ops", &faulty]].concat()).expect(1, text).stderr;
            assert!(!stderr.contains("invalid node") && !stderr.contains("--skip NAME"), "{stderr}");
            assert!(stderr.contains("the library that the message names is faulty"), "{stderr}");
            // The kernel reports that the node is invalid.
            let text = "invalid node: strict.so: wrong on purpose";
            let stderr = delegraph(&[verb, &["--ops", &strict]].concat()).expect(4, text).stderr;
            assert!(!stderr.contains("--skip NAME"), "{stderr}");
        }
    }
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
