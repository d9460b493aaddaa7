//! Each class of error: its message, its help and its exit code.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy knows only `#[test]` functions as tests.

mod common;

use std::path::Path;

use common::{Tiny, delegraph, digits, path, tree};
use serde_json::{Value, json};

const FLOAT32: &str = "digits_float32.tflite";

fn write(folder: &Path, name: &str, bytes: &[u8]) -> String {
    let file = folder.join(name);
    std::fs::write(&file, bytes).unwrap();
    file.to_str().unwrap().to_owned()
}

/// A `.npy` file of float32 zeros.
fn zeros(shape: &str, elements: usize) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend(format!("{header:<117}\n").bytes());
    file.resize(128 + 4 * elements, 0);
    file
}

#[test]
fn a_tiny_model_is_fine() {
    // What the other tests break is right before it is broken.
    let folder = tempfile::tempdir().unwrap();
    let model = Tiny::default().write(folder.path());
    delegraph(&["run", path(&model)]).expect(0, "");
}

#[test]
fn a_truncated_file() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(digits(FLOAT32)).unwrap();
    for (length, text) in [(whole.len() / 2, "damaged FlatBuffer"), (6, "too few for a model"), (0, "empty")]
    {
        let file = write(folder.path(), "cut.tflite", &whole[..length]);
        for verb in ["run", "inspect", "bench", "explain", "graph"] {
            let ran = delegraph(&[verb, &file]).expect(4, text);
            assert!(ran.stderr.contains("cut.tflite") && ran.stderr.contains("help:"), "{}", ran.stderr);
            assert_eq!(ran.stdout, "");
        }
    }
}

#[test]
fn not_a_flatbuffer() {
    let readme = digits("README.md");
    delegraph(&["run", path(&readme)]).expect(4, "not a .tflite file");
    delegraph(&["run", "/no/such.tflite"]).expect(4, "check the path");
    delegraph(&["run", path(readme.parent().unwrap())]).expect(4, "not a file");
}

#[test]
fn an_index_out_of_range() {
    let folder = tempfile::tempdir().unwrap();
    let tensor = Tiny { inputs: [0, 99], ..Tiny::default() }.write(folder.path());
    let ran = delegraph(&["run", path(&tensor)]).expect(4, "99");
    assert!(ran.stderr.contains("node 0"), "{}", ran.stderr);
    let code = Tiny { opcode_index: 7, ..Tiny::default() }.write(folder.path());
    delegraph(&["run", path(&code)]).expect(4, "7");
}

#[test]
fn an_unknown_op() {
    let folder = tempfile::tempdir().unwrap();
    let model = Tiny { code: 250, ..Tiny::default() }.write(folder.path());
    let ran = delegraph(&["run", path(&model)]).expect(3, "no such operator is known");
    assert!(
        ran.stderr.contains("builtin operator 250") && ran.stderr.contains("at node 0"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("help: "), "{}", ran.stderr);
}

#[test]
fn a_version_too_high() {
    let folder = tempfile::tempdir().unwrap();
    let model = Tiny { version: 99, ..Tiny::default() }.write(folder.path());
    let ran = delegraph(&["run", path(&model)]).expect(3, "ADD version 99");
    assert!(ran.stderr.contains("registered here: 1 to 6"), "{}", ran.stderr);
    let error = &delegraph(&["run", path(&model), "--json"]).json()["error"];
    assert_eq!(error["exit_code"], 3);
    assert_eq!(error["unresolved"][0]["reason"], "Version");
    assert_eq!(error["unresolved"][0]["nodes"][0]["node"], 0);
    // Only running it is impossible.
    let ran = delegraph(&["inspect", path(&model), "--json"]).expect(0, "");
    assert_eq!(ran.json()["unresolved"][0]["version"], 99);
}

#[test]
fn a_missing_custom_op() {
    let folder = tempfile::tempdir().unwrap();
    let model = Tiny { code: 32, custom_name: Some("Frobnicate"), ..Tiny::default() }.write(folder.path());
    let ran = delegraph(&["run", path(&model)]).expect(3, "custom op \"Frobnicate\" version 1: no custom op");
    assert!(ran.stderr.contains("add_custom"), "{}", ran.stderr);
    let ran = delegraph(&["inspect", path(&model), "--json"]).expect(0, "");
    assert_eq!(ran.json()["custom_ops"][0], "Frobnicate");
}

#[test]
fn inspect_shows_what_is_missing_and_does_not_fail() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = tree::read(&std::fs::read(digits("digits_int8.tflite")).unwrap());
    tree::set(&mut model, "/operator_codes/0/version", 99);
    let custom = json!({ "deprecated_builtin_code": 32, "custom_code": "Frobnicate" });
    tree::set(&mut model, "/operator_codes/5", custom);
    tree::set(&mut model, "/subgraphs/0/operators/8/custom_options", json!([1, 2, 3]));
    tree::set(&mut model, "/buffers/24/data", json!(b"99.0.0\0"));
    let file = write(folder.path(), "missing.tflite", &tree::write(&model));

    let found = delegraph(&["inspect", &file, "--json"]).expect(0, "").json();
    let op =
        |name: &str| found["ops"].as_array().unwrap().iter().find(|op| op["op"] == name).unwrap().clone();
    assert_eq!(op("FULLY_CONNECTED")["resolved"], true);
    assert_eq!(op("FULLY_CONNECTED")["why"], Value::Null);
    let conv = op("CONV_2D");
    assert_eq!((&conv["resolved"], &conv["registered"]), (&json!(false), &json!([[1, 8]])));
    assert_eq!(conv["why"], "newer than any version that this build knows (1 to 8); registered here: 1 to 8");
    let custom = op("custom op \"Frobnicate\"");
    assert_eq!(
        (&custom["custom_option_bytes"], &custom["why"]),
        (&json!(3), &json!("no custom op of this name is registered"))
    );
    let runtime = &found["runtime"];
    assert_eq!((&runtime["metadata"], &runtime["newer_than_known"]), (&json!("99.0.0"), &json!(true)));
    assert_eq!(runtime["required"], "1.14.0", "of the ops that are known");
    assert_eq!(runtime["complete"], false);
    let nodes: Vec<_> =
        found["unresolved"][0]["nodes"].as_array().unwrap().iter().map(|n| &n["node"]).collect();
    assert_eq!(nodes, [0, 2, 4]);

    let text = delegraph(&["inspect", &file]).expect(0, "").stdout;
    for line in [
        "its ops need TFLite 1.14.0 at least; this build does not know all of them",
        "its metadata (min_runtime_version) says 99.0.0; that is newer than",
        "CONV_2D version 99: newer than any version that this build knows (1 to 8); registered here: 1 to 8",
        "at node 8 (writes \"StatefulPartitionedCall_1:0\")",
        "options: 3 B",
    ] {
        assert!(text.contains(line), "\"{line}\" is not in: {text}");
    }

    // Of the same metadata, there is but a warning where every op has a kernel.
    let mut model = tree::read(&std::fs::read(digits(FLOAT32)).unwrap());
    tree::set(&mut model, "/buffers/24/data", json!(b"99.0.0\0"));
    let file = write(folder.path(), "newer.tflite", &tree::write(&model));
    delegraph(&["run", &file]).expect(0, "the model's metadata asks for TFLite 99.0.0");
}

#[test]
fn a_wrong_input() {
    let folder = tempfile::tempdir().unwrap();
    let model = digits(FLOAT32);
    let run = |file: &str| delegraph(&["run", path(&model), "--input", file]);
    let shape = write(folder.path(), "shape.npy", &zeros("(1, 9, 9, 1)", 81));
    let ran = run(&shape).expect(4, "[1, 9, 9, 1]");
    assert!(ran.stderr.contains("[?, 8, 8, 1]") && ran.stderr.contains("help: "), "{}", ran.stderr);
    // An int8 model does not take floats.
    let floats = write(folder.path(), "type.npy", &zeros("(1, 8, 8, 1)", 64));
    let quantized = digits("digits_int8.tflite");
    delegraph(&["run", path(&quantized), "--input", &floats]).expect(4, "FLOAT32, the input INT8");
    run(&write(folder.path(), "short.npy", &zeros("(1, 8, 8, 1)", 3))).expect(4, "shorter than its shape");
    run(&write(folder.path(), "text.npy", b"hello")).expect(4, "not a usable .npy file");
    run("/no/such.npy").expect(4, "check the path");
    run(&format!("pixels={floats}")).expect(4, "there is no input \"pixels\"; the model has: image");
    delegraph(&["run", path(&model), "--input", &floats, "--input", &floats]).expect(4, "1 inputs");
    delegraph(&["run", path(&model), "--resize", "image=1x9x9x1"]).expect(4, "[1, 9, 9, 1]");
    delegraph(&["run", path(&model), "--signature", "train"]).expect(4, "serving_default");
}

#[test]
fn no_gpu_adapter() {
    let model = digits(FLOAT32);
    for verb in ["run", "bench", "explain", "graph"] {
        let mut command = common::command(&[verb, path(&model), "--delegate", "wgpu"]);
        // The names under which Vulkan's loader, old and new, finds drivers; other APIs are other systems'.
        command.env("VK_ICD_FILENAMES", "/nonexistent").env("VK_DRIVER_FILES", "/nonexistent");
        let ran = common::run(&mut command);
        if cfg!(target_os = "linux") {
            ran.expect(3, "mesa-vulkan-drivers");
        }
    }
}

#[test]
fn a_library_of_kernels_that_is_not_there() {
    let model = digits(FLOAT32);
    let ran = delegraph(&["run", path(&model), "--ops", "plugin:libops.so"]);
    ran.expect(4, "libops.so: cannot be read");
}

#[test]
fn usage() {
    let model = digits(FLOAT32);
    let check = |arguments: &[&str]| {
        let ran = delegraph(arguments).expect(2, "");
        assert_eq!(ran.stdout, "");
    };
    check(&[]);
    check(&["fly"]);
    check(&["run"]);
    check(&["run", path(&model), "--delegate", "npu"]);
    check(&["run", path(&model), "--threads", "0"]);
    check(&["run", path(&model), "--resize", "image=big"]);
    check(&["bench", path(&model), "--seconds", "soon"]);
    assert_eq!(delegraph(&["--help"]).code, 0);
    assert_eq!(delegraph(&["--version"]).code, 0);
}

#[test]
#[cfg(unix)]
fn nobody_reads_the_output() {
    use std::process::Stdio;
    let model = digits(FLOAT32);
    let mut command = common::command(&["inspect", path(&model)]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
