//! `fuse` with faulty libraries: messages name the library and the fusion, or the node, and nothing is
//! written. Skipped with a message on machines without a C compiler.

#![cfg(any(unix, windows))]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{delegraph, path};
use delegraph::core::ops::binary::AddParams;
use delegraph::core::ops::control_flow::CallOnceParams;
use delegraph::core::ops::svdf::SvdfParams;
use delegraph::core::ops::variables::VarHandleParams;
use delegraph::core::{BuiltinOp, ModelBuilder, Op, Params, SubgraphBuilder};
use delegraph::{Model, TensorType};
use serde_json::json;

/// A model of one op.
fn model(op: Op) -> Model {
    between(op, "x", "y")
}

/// The same with these names of the input and the output.
fn between(op: Op, input: &str, output: &str) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input(input, TensorType::Float32, [4]);
    let y = graph.tensor(output, TensorType::Float32, [4]);
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

    // The message does not name the original file: the library made the model.
    std::fs::write(&returned, "this is not a model").unwrap();
    fails("faulty.so: fusion \"faulty\": it made a model that cannot be prepared: invalid model");
    // Each fusion that changed the model may be the reason.
    model(BuiltinOp::NEG.into()).save(&returned).unwrap();
    fails("the rewritten model computes something else");
    fails(&format!("it was rewritten by \"faulty\" of {}", path(&library)));
    // The original can run, so a rewritten model that cannot be run, and thus not be compared, is not written.
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
    // The library returns no list of changes.
    let Some(library) = library(&at("silent.so"), &returned, &OF_COMPOSITE) else { return };
    let fusion = format!("plugin:{}", path(&library));
    for (output, writes) in [("y", "writes \"y\""), ("", "writes tensor 1")] {
        composite(output).save(&file).unwrap();
        between(BuiltinOp::ABS.into(), "x", output).save(&returned).unwrap();
        let ran = delegraph(&["fuse", path(&file), "-o", path(&out), "--fusion", &fusion]).expect(0, "");
        let text = format!("composite \"acme.f\" ({writes}) is not fused: its body does not compute");
        assert!(ran.stdout.contains(&text), "{}", ran.stdout);
    }
}

#[test]
fn the_same_model_in_other_bytes_is_not_reported() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (file, returned, out) = (at("model.tflite"), at("returned.tflite"), at("out.tflite"));
    model(BuiltinOp::ABS.into()).save(&file).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.extend([0; 8]);
    std::fs::write(&returned, bytes).unwrap();
    let Some(library) = library(&at("same.so"), &returned, &[]) else { return };
    let fusion = format!("plugin:{}", path(&library));
    let arguments = ["fuse", path(&file), "-o", path(&out), "--fusion", &fusion, "--json"];
    let found = delegraph(&arguments).expect(0, "").json();
    assert_eq!((&found["changes"], &found["unsettled"]), (&json!([]), &json!([])), "{found}");
}

#[test]
fn a_library_does_not_change_the_interface() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (file, returned, out) = (at("model.tflite"), at("returned.tflite"), at("out.tflite"));
    for (name, definitions) in [("pattern.so", &[][..]), ("composite.so", &OF_COMPOSITE[..])] {
        let Some(library) = library(&at(name), &returned, definitions) else { return };
        let fusion = format!("plugin:{}", path(&library));
        let fuse = || delegraph(&["fuse", path(&file), "-o", path(&out), "--fusion", &fusion]);
        composite("y").save(&file).unwrap();
        for (input, output, text) in [
            ("other", "y", "it changed the interface of the model: input 0 is \"other\", was \"x\""),
            ("x", "other", "it changed the interface of the model: output 0 is \"other\", was \"y\""),
        ] {
            between(BuiltinOp::NEG.into(), input, output).save(&returned).unwrap();
            let stderr = fuse().expect(1, text).stderr;
            assert!(stderr.contains(&format!("{}: fusion \"", path(&library))), "{stderr}");
            assert!(stderr.contains("--skip NAME") && !out.exists(), "{stderr}");
        }
    }
}

/// `y = x + v` of a variable that begins with 0 and keeps `y`.
fn counter() -> Model {
    let handle = |graph: &mut SubgraphBuilder| {
        let id = graph.tensor("handle", TensorType::Resource, []);
        let params = VarHandleParams::default().container(String::new()).shared_name("v".into());
        graph.node(BuiltinOp::VAR_HANDLE, params).writes([id]);
        id
    };
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let once = CallOnceParams::default().init_subgraph_index(1);
    graph.node(BuiltinOp::CALL_ONCE, once).writes([]);
    let v = handle(&mut graph);
    let value = graph.tensor("value", TensorType::Float32, [4]);
    graph.node(BuiltinOp::READ_VARIABLE, Params::None).inputs([v]).writes([value]);
    let y = graph.tensor("y", TensorType::Float32, [4]);
    graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, value]).writes([y]);
    graph.node(BuiltinOp::ASSIGN_VARIABLE, Params::None).inputs([v, y]).writes([]);
    graph.outputs([y]);
    let mut init = SubgraphBuilder::new("init");
    let v = handle(&mut init);
    let zeros = init.constant("zeros", [4], &[0f32; 4]);
    init.node(BuiltinOp::ASSIGN_VARIABLE, Params::None).inputs([v, zeros]).writes([]);
    ModelBuilder::new().subgraph(graph).subgraph(init).build().unwrap()
}

#[test]
fn a_library_adds_state_only_where_that_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (file, returned, out) = (at("model.tflite"), at("returned.tflite"), at("out.tflite"));
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let zeros = graph.constant("zeros", [4], &[0f32; 4]);
    let y = graph.tensor("y", TensorType::Float32, [4]);
    graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, zeros]).writes([y]);
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&file).unwrap();
    counter().save(&returned).unwrap();
    let Some(library) = library(&at("counts.so"), &returned, &[]) else { return };
    let fusion = format!("plugin:{}", path(&library));
    let arguments = ["fuse", path(&file), "-o", path(&out), "--fusion", &fusion];
    let text = format!("{}: fusion \"faulty\": it added resource variable \"v\"", path(&library));
    let stderr = delegraph(&arguments).expect(1, &text).stderr;
    assert!(stderr.contains("`stateful`") && stderr.contains("--skip NAME") && !out.exists(), "{stderr}");
    delegraph(&[&arguments[..], &["--stateful"]].concat()).expect(0, "");
    // State of the model itself may stay.
    counter().save(&file).unwrap();
    delegraph(&arguments).expect(0, "");
}

#[test]
fn a_composite_of_an_op_without_a_kernel_is_written_without_comparing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (file, returned, out) = (at("model.tflite"), at("returned.tflite"), at("out.tflite"));
    composite("y").save(&file).unwrap();
    model(Op::custom("Unknown")).save(&returned).unwrap();
    let Some(library) = library(&at("custom.so"), &returned, &OF_COMPOSITE) else { return };
    let fusion = format!("plugin:{}", path(&library));
    let arguments = ["fuse", path(&file), "-o", path(&out), "--fusion", &fusion];
    let text = "fusion \"acme.f\": it failed: the rewritten model cannot be run: 1 op has no kernel";
    let stderr = delegraph(&arguments).expect(1, text).stderr;
    assert!(stderr.contains("`--ops plugin:PATH` adds the kernels") && !out.exists(), "{stderr}");
    let unseen = [&arguments[..], &["--samples", "0"]].concat();
    delegraph(&unseen).expect(0, "");
    assert!(out.exists());
    // What can be run is still compared: the body negates.
    model(BuiltinOp::ABS.into()).save(&returned).unwrap();
    let ran = delegraph(&unseen).expect(0, "");
    assert!(ran.stdout.contains("composite \"acme.f\" (writes \"y\") is not fused"), "{}", ran.stdout);
}

#[test]
fn a_state_that_is_not_a_variable_is_a_defect_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("model.tflite"), folder.path().join("out.tflite"));
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 2]);
    let state = graph.input("state", TensorType::Float32, [1, 2]);
    let features = graph.constant("features", [2, 2], &[1f32, 2.0, 3.0, 4.0]);
    let steps = graph.constant("steps", [2, 1], &[1f32, 1.0]);
    let y = graph.tensor("y", TensorType::Float32, [1, 2]);
    let inputs = [Some(x), Some(features), Some(steps), None, Some(state)];
    graph.node(BuiltinOp::SVDF, SvdfParams::default().rank(1)).optional_inputs(inputs).writes([y]);
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&file).unwrap();
    let arguments = ["fuse", path(&file), "-o", path(&out)];
    let text = format!(
        "{}: node 0 (SVDF v1, writes \"y\"): invalid node: input 4 (\"state\") must be a variable tensor",
        path(&file)
    );
    for more in [&[] as &[&str], &["--stateful"]] {
        delegraph(&[&arguments[..], more].concat()).expect(4, &text);
        assert!(!out.exists());
    }
    delegraph(&["run", path(&file)]).expect(4, "must be a variable tensor");
    delegraph(&[&arguments[..], &["--samples", "0"]].concat()).expect(0, "");
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
            let text = "faulty.so: the plugin is wrong: set_output_shape: the shape has 1000 dimensions";
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
