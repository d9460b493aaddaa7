//! Each class of error: its message, its help and its exit code.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

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
    // The files that the other tests damage are valid before.
    let folder = tempfile::tempdir().unwrap();
    let model = Tiny::default().write(folder.path());
    delegraph(&["run", path(&model)]).expect(0, "");
}

#[test]
fn a_truncated_file() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(digits(FLOAT32)).unwrap();
    for (length, text) in
        [(whole.len() / 2, "damaged FlatBuffer"), (6, "is too short for a model"), (0, "empty")]
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
    let ran = delegraph(&["run", path(readme.parent().unwrap())]).expect(4, "it is a directory, not a file");
    assert!(!ran.stderr.contains("damaged"), "{}", ran.stderr);
}

#[test]
#[cfg(unix)]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, model) = (folder.path().join("pipe"), digits(FLOAT32));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let plugin = format!("plugin:{}", pipe.display());
    for verb in ["run", "bench", "inspect", "explain", "graph", "profile", "diff"] {
        delegraph(&[verb, path(&pipe)]).expect(4, "it is a pipe, a socket or a device, not a file");
    }
    for option in ["--input", "--delegate", "--ops"] {
        let value = if option == "--input" { path(&pipe) } else { &plugin };
        delegraph(&["run", path(&model), option, value]).expect(4, "not a file");
    }
    delegraph(&["bench", path(&model), "--compare", path(&pipe)]).expect(4, "not a file");
    delegraph(&["run", "/dev/zero"]).expect(4, "not a file");
    delegraph(&["run", path(&model), "--input", "/dev/zero"]).expect(4, "not a file");
}

#[test]
fn a_shape_that_cannot_be_is_not_the_models_fault() {
    let folder = tempfile::tempdir().unwrap();
    let model = digits(FLOAT32);
    for (option, code) in [
        ("image=100000000x8x8x1", 1),
        ("image=100000000000000000x8x8x1", 1),
        ("image=18446744073709551615x8x8x1", 1),
        ("image=1x9x8x1", 4),
    ] {
        let ran = delegraph(&["run", path(&model), "--resize", option]);
        assert!(ran.code == code || ran.code == 4, "{}: {}", ran.code, ran.stderr);
        assert!(ran.stderr.contains(&format!("--resize {option}: ")), "{}", ran.stderr);
        assert!(!ran.stderr.contains("exporting the model again"), "{}", ran.stderr);
    }
    // The same for an array.
    let file = write(folder.path(), "large.npy", &zeros("(100000000, 8, 8, 1)", 1));
    delegraph(&["run", path(&model), "--input", &file]).expect(4, "large.npy");
    let file = write(folder.path(), "shape.npy", &zeros("(1, 9, 9, 1)", 81));
    let text = format!("{file}: input 0 (\"image\"): ");
    let ran = delegraph(&["run", path(&model), "--input", &file]).expect(4, &text);
    assert!(ran.stderr.contains("[1, 9, 9, 1]"), "{}", ran.stderr);
    delegraph(&["diff", path(&model), "--input", &format!("image={file}")]).expect(4, &text);
}

#[test]
fn what_the_model_does_not_have_is_not_an_empty_list() {
    let folder = tempfile::tempdir().unwrap();
    let model = Tiny::default().write(folder.path());
    for verb in ["run", "diff"] {
        let ran =
            delegraph(&[verb, path(&model), "--signature", "foo"]).expect(4, "the model has no signatures");
        assert!(ran.stderr.contains("run the model without `--signature`"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("lists the inputs"), "{}", ran.stderr);
    }
}

#[test]
fn advice_on_a_wrong_signature_lists_the_signatures() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = tree::read(&std::fs::read(digits(FLOAT32)).unwrap());
    tree::set(&mut model, "/signature_defs/0/signature_key", "classify");
    let file = write(folder.path(), "model.tflite", &tree::write(&model));
    for verb in ["run", "diff"] {
        let ran = delegraph(&[verb, &file, "--signature", "train"]).expect(4, "no signature \"train\"");
        assert!(ran.stderr.contains("the names for `--signature` are: classify"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("lists the inputs"), "{}", ran.stderr);
    }
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
    // The model can be read, but not run.
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
        "its metadata (min_runtime_version) declares 99.0.0; that is newer than",
        "CONV_2D version 99: newer than any version that this build knows (1 to 8); registered here: 1 to 8",
        "at node 8 (writes \"StatefulPartitionedCall_1:0\")",
        "options: 3 B",
    ] {
        assert!(text.contains(line), "\"{line}\" is not in: {text}");
    }

    // The same metadata is only a warning if every op has a kernel.
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
    // An int8 model rejects floats.
    let floats = write(folder.path(), "type.npy", &zeros("(1, 8, 8, 1)", 64));
    let quantized = digits("digits_int8.tflite");
    delegraph(&["run", path(&quantized), "--input", &floats]).expect(4, "FLOAT32, the input INT8");
    run(&write(folder.path(), "short.npy", &zeros("(1, 8, 8, 1)", 3))).expect(4, "shorter than its shape");
    run(&write(folder.path(), "text.npy", b"hello")).expect(4, "not a usable .npy file");
    run("/no/such.npy").expect(4, "check the path");
    run(&format!("pixels={floats}")).expect(4, "there is no input \"pixels\"; the model has: image");
    delegraph(&["run", path(&model), "--input", &floats, "--input", &floats])
        .expect(4, "2 input files given, but the model has 1 input\n");
    delegraph(&["run", path(&model), "--resize", "image=1x9x9x1"]).expect(4, "[1, 9, 9, 1]");
    delegraph(&["run", path(&model), "--signature", "train"]).expect(4, "serving_default");
}

#[test]
fn no_gpu_adapter() {
    let model = digits(FLOAT32);
    for verb in ["run", "bench", "explain", "graph"] {
        let mut command = common::command(&[verb, path(&model), "--delegate", "wgpu"]);
        // The variables in which old and new Vulkan loaders look for drivers. Other systems use other APIs.
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
    check(&["run", path(&model), "--nodes", "5..2"]);
    check(&["explain", path(&model), "--nodes", "3..3"]);
    check(&["explain", path(&model), "--nodes", "100..200"]);
    check(&["run", path(&model), "--exclude-node", "9"]);
    check(&["diff", path(&model), "--exclude-op", "CONF_2D"]);
    assert_eq!(delegraph(&["--help"]).code, 0);
    assert_eq!(delegraph(&["--version"]).code, 0);
}

#[test]
fn usage_is_json_where_json_is_asked_for() {
    let model = digits(FLOAT32);
    let check = |arguments: &[&str], message: &str| {
        let ran = delegraph(arguments).expect(2, "");
        let error = &ran.json()["error"];
        assert_eq!((&error["kind"], &error["exit_code"]), (&json!("usage"), &json!(2)));
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
        assert!(error["help"].is_string(), "{error}");
    };
    check(&["--json"], "subcommand");
    check(&["fly", "--json"], "fly");
    check(&["--json", "run"], "<MODEL>");
    check(&["run", path(&model), "--threads", "0", "--json"], "--threads");
    check(&["run", "--json", path(&model), "--nodes", "5..2"], "contains no node");
    check(&["run", path(&model), "--exclude-op", "CONF_2D", "--json"], "CONF_2D");
    // After `--` it is a file.
    let ran = delegraph(&["run", "--no-such-option", "--", "--json"]).expect(2, "");
    assert_eq!(ran.stdout, "");
}

#[test]
fn names_from_a_file_cannot_reach_the_terminal() {
    const NAME: &str = "\u{1b}]0;owned\u{7}\u{9b}31m\nline\u{202e}";
    let folder = tempfile::tempdir().unwrap();
    let mut model = tree::read(&std::fs::read(digits("digits_int8.tflite")).unwrap());
    let custom = json!({ "deprecated_builtin_code": 32, "custom_code": NAME });
    tree::set(&mut model, "/operator_codes/5", custom);
    tree::set(&mut model, "/description", NAME);
    tree::set(&mut model, "/subgraphs/0/name", NAME);
    tree::set(&mut model, "/metadata/0/name", NAME);
    tree::set(&mut model, "/signature_defs/0/signature_key", NAME);
    tree::set(&mut model, "/signature_defs/0/inputs/0/name", NAME);
    let tensors = model["subgraphs"][0]["tensors"].as_array().unwrap().len();
    for i in 0..tensors {
        tree::set(&mut model, &format!("/subgraphs/0/tensors/{i}/name"), format!("{i}{NAME}"));
    }
    let unresolved = write(folder.path(), "unresolved.tflite", &tree::write(&model));
    let reshape = json!({ "deprecated_builtin_code": 22, "version": 1 });
    tree::set(&mut model, "/operator_codes/5", reshape);
    let file = write(folder.path(), "names.tflite", &tree::write(&model));
    let (html, dot) = (folder.path().join("g.html"), folder.path().join("g.dot"));
    let out = folder.path().join("out.tflite");

    let mut escaped = 0;
    for model in [&file, &unresolved] {
        for arguments in [
            &["run", model][..],
            &["run", model, "-vv"],
            &["run", model, "--signature", "x"],
            &["run", model, "--input", "nothing=/dev/null"],
            &["run", model, "--exclude-op", "x"],
            &["bench", model, "--runs", "1", "--warmup", "0"],
            &["inspect", model],
            &["explain", model],
            &["diff", model, "--per-node"],
            &["profile", model, "--no-peak", "--runs", "1"],
            &["graph", model],
            &["graph", model, "-o", path(&html)],
            &["graph", model, "-o", path(&dot)],
            &["fuse", model, "-o", path(&out), "--report"],
            &["ops", "--resolver-for", model],
        ] {
            for arguments in [arguments.to_vec(), [arguments, &["--json"]].concat()] {
                let ran = delegraph(&arguments);
                for text in [&ran.stdout, &ran.stderr] {
                    let acts = |c: char| (c.is_control() && !"\n\t".contains(c)) || c == '\u{202e}';
                    assert!(!text.contains(acts), "{arguments:?}: {text:?}");
                    assert!(!text.lines().any(|line| line.starts_with("line")), "{arguments:?}: {text}");
                    escaped += usize::from(text.contains("owned"));
                }
            }
        }
    }
    assert!(escaped > 20, "names are shown {escaped} times");
    for picture in [&html, &dot] {
        let text = std::fs::read_to_string(picture).unwrap();
        assert!(
            text.contains("owned") && !text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']),
            "{text}"
        );
    }
    // In JSON they are as in the file.
    let found = delegraph(&["inspect", &unresolved, "--json"]).expect(0, "").json();
    assert_eq!(found["inputs"][0]["name"].as_str().unwrap().trim_start_matches(char::is_numeric), NAME);
    let (key, custom) = (&found["signatures"][0]["key"], &found["custom_ops"][0]);
    assert_eq!((key, custom, &found["description"]), (&json!(NAME), &json!(NAME), &json!(NAME)));
    let name = format!("custom op \"{NAME}\"");
    assert!(found["ops"].as_array().unwrap().iter().any(|op| op["op"] == name.as_str()), "{found}");
}

#[test]
#[cfg(unix)]
fn a_closed_pipe_ends_the_command() {
    use std::process::Stdio;
    let model = digits(FLOAT32);
    let mut command = common::command(&["inspect", path(&model)]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
