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
    // The model is loaded before the machine is measured, which opens delegates.
    delegraph(&["profile", "/no/such.tflite", "--delegate", "plugin:/no/such.so"])
        .expect(4, "/no/such.tflite");
    let ran = delegraph(&["run", path(readme.parent().unwrap())]).expect(4, "it is a directory, not a file");
    assert!(!ran.stderr.contains("damaged"), "{}", ran.stderr);
    assert!(ran.stderr.contains("help: pass the path of a .tflite file"), "{}", ran.stderr);
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

/// A pipe in `folder`.
#[cfg(unix)]
fn pipe(folder: &Path, name: &str) -> String {
    let pipe = folder.join(name);
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    path(&pipe).to_owned()
}

#[test]
#[cfg(unix)]
fn a_pipe_is_not_written_either() {
    const TEXT: &str = "it is a pipe, a socket or a device, not a file";
    const UNREAD: &str = "it is a pipe that nothing reads";
    let folder = tempfile::tempdir().unwrap();
    let model = digits(FLOAT32);
    let (model, root) = (path(&model), folder.path());
    let fifo = pipe(root, "pipe");
    delegraph(&["conformance", "--compare", &fifo, &fifo]).expect(4, TEXT);
    let expectations = ["conformance", "--filter", "^unary/abs", "--expectations", &fifo];
    delegraph(&expectations).expect(4, &format!("--expectations {fifo}: cannot be read: {TEXT}"));
    delegraph(&["graph", model, "-o", &pipe(root, "g.svg")]).expect(1, UNREAD);
    let trace = |file: &str| delegraph(&["profile", model, "--runs", "1", "--no-peak", "--trace", file]);
    trace(&fifo).expect(1, UNREAD);
    trace("/dev/null").expect(0, "");
    // The test reads the pipe of the standard output.
    assert!(trace("/dev/stdout").expect(0, "").stdout.contains("traceEvents"));
    pipe(root, "output_0.npy");
    delegraph(&["run", model, "--output-dir", path(root)]).expect(1, UNREAD);
    let seven = digits("seven.npy");
    let batch = ["run", model, "--inputs", path(&seven), "--output-dir", path(root), "--resume"];
    pipe(root, "journal.jsonl");
    delegraph(&batch).expect(1, TEXT);
    std::fs::remove_file(root.join("journal.jsonl")).unwrap();
    pipe(root, "results.csv");
    delegraph(&batch).expect(1, UNREAD);
}

#[test]
#[cfg(unix)]
fn paths_need_not_be_unicode() {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;

    let folder = tempfile::tempdir().unwrap();
    let odd = |name: &[u8]| folder.path().join(OsStr::from_bytes(name)).into_os_string();
    let text = |arguments: &[&str]| arguments.iter().map(OsString::from).collect::<Vec<_>>();
    let run = |arguments: &[&str], last: OsString, more: &[&str]| {
        let mut command = common::command(&[]);
        common::run(command.args(text(arguments)).arg(last).args(text(more)))
    };
    for arguments in [&["run"][..], &["inspect"], &["ops", "--resolver-for"]] {
        run(arguments, odd(b"\xff.tflite"), &[]).expect(4, "No such file");
        let ran = run(arguments, odd(b"\xff.tflite"), &["--json"]).expect(4, "No such file");
        let file = ran.json()["error"]["model"].as_str().unwrap().to_owned();
        assert!(file.ends_with("\u{fffd}.tflite"), "{file}");
    }
    let model = digits(FLOAT32);
    let model = path(&model);
    let input = ["run", model, "--signature"];
    run(&input, odd(b"\xfb"), &["--json"]).expect(2, "not valid UTF-8: \"");
    run(&input, odd(b"\xfb"), &[]).expect(2, "/\\xFB\"");
    run(&["graph", model, "--output"], odd(b"\xfa.svg"), &[]).expect(0, "");
    run(&["graph", model, "--output"], odd(b"\xfa"), &[]).expect(2, "its name ends in .svg, .html or .dot");
    let check = |ran: common::Ran, field: &str| {
        let ran = ran.expect(0, "").json();
        let path = ran.pointer(field).and_then(Value::as_str).unwrap();
        assert!(path.contains('\u{fffd}'), "{path}");
    };
    check(run(&["run", model, "--json", "--output-dir"], odd(b"\xff"), &[]), "/outputs/0/file");
    let profile = ["profile", model, "--runs", "1", "--no-peak", "--json", "--trace"];
    check(run(&profile, odd(b"\xfe.json"), &[]), "/trace");
    let made = ["new-delegate", "npu", "--delegraph", env!("CARGO_MANIFEST_DIR"), "--json", "--path"];
    check(run(&made, odd(b"\xfd"), &[]), "/path");
    let seven = digits("seven.npy");
    let batch = ["run", model, "--inputs", path(&seven), "--json", "--output-dir"];
    check(run(&batch, odd(b"\xfc"), &[]), "/results");
}

#[test]
fn errors_of_options_name_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let (model, file) = (digits(FLOAT32), write(folder.path(), "file", b""));
    let model = path(&model);
    let run = |more: &[&str]| delegraph(&[&["run", model], more].concat());
    run(&["--output-dir", &file]).expect(1, &format!("--output-dir {file}: it is not a folder"));
    delegraph(&["conformance", "--filter", "^unary/abs", "--report", &file])
        .expect(1, &format!("--report {file}: it is not a folder"));
    run(&["--input", ""]).expect(2, "the file's name is missing");
    let missing = "there is no input \"pixels\"; the model has: \"image\"";
    run(&["--input", "pixels=a.npy"]).expect(2, &format!("--input pixels=a.npy: {missing}"));
    run(&["--resize", "pixels=1x2"]).expect(2, &format!("--resize pixels=1x2: {missing}"));
    let seven = digits("seven.npy");
    let (named, seven) = (format!("image={}", seven.display()), path(&seven));
    run(&["--input", &named, "--input", &named]).expect(2, "two files are given for input 0 (\"image\")");
    run(&["--input", seven, "--input", seven]).expect(2, "2 input files given, but the model has 1 input");
    run(&["--resize", "image=2x8x8x1", "--resize", "0=3x8x8x1"])
        .expect(2, "--resize 0=3x8x8x1: the shape of input 0 (\"image\") is already given");
    delegraph(&["graph", model, "--subgraph", "99"]).expect(2, "--subgraph 99: there is no such subgraph");
    for require in [
        &["run", model][..],
        &["explain", model],
        &["bench", model],
        &["conformance", "--filter", "^unary/abs"],
    ] {
        for option in
            [["--policy", "require"], ["--nodes", "0..1"], ["--min-nodes", "2"], ["--max-partitions", "1"]]
        {
            let ran = delegraph(&[require, &option[..]].concat());
            ran.expect(2, &format!("{} needs a delegate", option.join(" ")));
        }
        delegraph(&[require, &["--cost-model"]].concat()).expect(2, "--cost-model needs a delegate");
    }
}

#[test]
fn values_of_options_are_checked() {
    let model = digits(FLOAT32);
    let check = |arguments: &[&str], text: &str| {
        let verb = [&arguments[..1], &[path(&model)], &arguments[1..]].concat();
        let ran = delegraph(&verb).expect(2, text);
        assert!(!ran.stderr.contains("to pass '-"), "{}", ran.stderr);
    };
    check(&["run", "--seed", "-1"], "'-1' for '--seed <N>': a whole number of at least 0 is needed");
    check(&["run", "--threads", "1e3"], "a whole number from 1 to 1024 is needed");
    check(&["run", "--min-nodes", "0"], "a whole number of at least 1 is needed");
    check(&["run", "--exclude-node", "-1"], "a whole number of at least 0 is needed");
    check(&["run", "--nodes", "-1..3"], "`-1` is not a whole number of at least 0");
    check(&["run", "--nodes", "0..99999999999999999999"], "`99999999999999999999` is above ");
    for time in ["nan", "-1", "1e-9", "inf"] {
        check(&["run", "--timeout", time], "a number of seconds from 0.001 to 1000000000 is needed");
    }
    check(&["run", "--max-memory", "-1K"], "a whole number of bytes is needed, or one with K, M or G");
    check(&["run", "--max-memory", "99999999999999999999"], " bytes are possible");
    check(&["bench", "--seconds", "-1"], "a number of seconds from 0 to 86400 is needed");
    check(&["profile", "--runs", "1001"], "a whole number from 1 to 1000 is needed");
    check(&["fuse", "-o", "out.tflite", "--samples", "-2"], "a whole number of at least 0 is needed");
}

#[test]
fn limits_are_raised_by_options() {
    let folder = tempfile::tempdir().unwrap();
    let model = digits(FLOAT32);
    let out = folder.path().join("out.tflite");
    for arguments in [&["run", path(&model)][..], &["fuse", path(&model), "-o", path(&out)]] {
        let ran = delegraph(&[arguments, &["--max-memory", "1K"]].concat());
        let ran = ran.expect(1, "; `--max-memory BYTES` raises it");
        assert_eq!(ran.stderr.matches("--max-memory").count(), 1, "{}", ran.stderr);
        assert!(!ran.stderr.contains("ResourceLimits") && !ran.stderr.contains("--skip"), "{}", ran.stderr);
    }
    // The arena is not a node's: the error names the model all the same.
    delegraph(&["run", path(&model), "--max-memory", "60K"])
        .expect(1, "digits_float32.tflite: out of memory: ");
    let seven = digits("seven.npy");
    let batch = ["run", path(&model), "--inputs", path(&seven), "--output-dir", path(folder.path())];
    let ran = delegraph(&[&batch[..], &["--max-memory", "1K"]].concat());
    assert!(ran.code == 1, "{}", ran.stderr);
    assert!(format!("{}{}", ran.stdout, ran.stderr).contains("--max-memory BYTES"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("ResourceLimits"), "{}", ran.stdout);
}

/// A model without nodes, and with these inputs.
fn without_nodes(folder: &Path, inputs: &[&str]) -> String {
    use delegraph::core::{ModelBuilder, SubgraphBuilder, TensorType};
    let mut graph = SubgraphBuilder::new("main");
    let inputs: Vec<_> = inputs.iter().map(|name| graph.input(name, TensorType::Float32, [4])).collect();
    graph.outputs(inputs);
    let bytes = ModelBuilder::new().subgraph(graph).build().unwrap().to_bytes().unwrap();
    write(folder, "no_nodes.tflite", &bytes)
}

#[test]
fn a_model_without_nodes_is_described() {
    let folder = tempfile::tempdir().unwrap();
    let model = without_nodes(folder.path(), &["a"]);
    for option in [["--exclude-op", "ADD"], ["--nodes", "0..1"], ["--exclude-node", "0"]] {
        delegraph(&["run", &model, option[0], option[1]]).expect(2, "help: the model has no nodes");
    }
    let text = delegraph(&["inspect", &model]).expect(0, "").stdout;
    assert!(!text.contains("\n\n\n"), "{text}");
    let tiny = Tiny::default().write(folder.path());
    let number = "help: the largest graph of the model has 1 node, number 0";
    delegraph(&["run", path(&tiny), "--exclude-node", "1"]).expect(2, number);
    let model = without_nodes(folder.path(), &[]);
    let seven = digits("seven.npy");
    delegraph(&["run", &model, "--input", path(&seven)])
        .expect(2, "1 input file given, but the model has no inputs");
}

#[test]
fn advice_of_fuse_fits_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.tflite");
    let model = Tiny { code: 32, custom_name: Some("Frobnicate"), ..Tiny::default() }.write(folder.path());
    let ran = delegraph(&["fuse", path(&model), "-o", path(&out)]);
    assert!(!ran.stderr.contains("--skip"), "{}", ran.stderr);
    assert!(ran.code == 0 || ran.stderr.contains("--ops plugin:PATH"), "{}", ran.stderr);
    let model = digits(FLOAT32);
    for option in
        [&["--skip", "nonsense"][..], &["--fusion", "plugin:./nope.so"], &["--stateful"], &["--samples", "9"]]
    {
        let arguments = [&["fuse", path(&model), "-o", path(&out), "--versions-only"], option].concat();
        delegraph(&arguments).expect(2, &format!("'--versions-only' cannot be used with '{}", option[0]));
    }
}

#[test]
fn files_that_are_not_npy_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let model = digits(FLOAT32);
    for (bytes, text) in [
        (&b""[..], "the file is empty"),
        (&b"PK\x03\x04\x14\x00"[..], "it is a ZIP archive, such as .npz, which is not supported"),
        (&b"1.5 2.5\n"[..], "it does not begin with the bytes of the .npy format"),
        (&b"\x93NUMPY"[..], "the file ends within its header"),
    ] {
        let file = write(folder.path(), "input.npy", bytes);
        let text = format!("input.npy: not a usable .npy file: {text}");
        delegraph(&["run", path(&model), "--input", &file]).expect(4, &text);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_program_is_not_a_plugin() {
    let model = digits(FLOAT32);
    let program = concat!("plugin:", env!("CARGO_BIN_EXE_delegraph"));
    for option in ["--delegate", "--ops"] {
        delegraph(&["run", path(&model), option, program]).expect(4, "a program, not a shared library");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_device_is_named() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = common::command(&["devices"]);
    common::run(command.stdout(full)).expect(1, "cannot write to standard output: No space left");
    for option in ["--help", "--version"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = common::command(&[option]);
        common::run(command.stdout(full)).expect(1, "cannot write to standard output: No space left");
    }
    let model = digits(FLOAT32);
    delegraph(&["fuse", path(&model), "-o", "/dev/full"])
        .expect(1, "/dev/full: cannot write: it is a pipe, a socket or a device, not a file");
    delegraph(&["fuse", path(&model), "-o", "/proc/x", "--samples", "0"])
        .expect(1, "/proc/x: cannot write: ");
    delegraph(&["conformance", "--filter", "^unary/abs", "--report", "/proc/x"])
        .expect(1, "/proc/x/partial.jsonl: cannot write: ");
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
    let text = format!("{file}: invalid input: input 0 (\"image\") takes [?, 8, 8, 1], not [1, 9, 9, 1]");
    delegraph(&["run", path(&model), "--input", &file]).expect(4, &text);
    delegraph(&["diff", path(&model), "--input", &format!("image={file}")]).expect(4, &text);
}

#[test]
fn what_the_model_does_not_have_is_not_an_empty_list() {
    let folder = tempfile::tempdir().unwrap();
    let model = Tiny::default().write(folder.path());
    for verb in ["run", "diff"] {
        let ran =
            delegraph(&[verb, path(&model), "--signature", "foo"]).expect(2, "the model has no signatures");
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
        let ran = delegraph(&[verb, &file, "--signature", "train"]).expect(2, "--signature train: ");
        let has = "there is no such signature; the model has: \"classify\"";
        assert!(ran.stderr.contains(has), "{}", ran.stderr);
        assert_eq!(ran.stderr.matches("classify").count(), 1, "{}", ran.stderr);
        assert!(!ran.stderr.contains("lists the inputs"), "{}", ran.stderr);
    }
    tree::set(&mut model, "/signature_defs/0/signature_key", "");
    let file = write(folder.path(), "empty.tflite", &tree::write(&model));
    delegraph(&["run", &file, "--signature", "train"]).expect(2, "the model has: \"\"");
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
    // Its features are unknown, and so is the version that it needs.
    let (out, arguments) =
        (folder.path().join("out.tflite"), ["fuse", path(&model), "--versions-only", "-o"]);
    let ran = delegraph(&[&arguments[..], &[path(&out)]].concat()).expect(0, "");
    assert!(
        ran.stdout.contains("ADD version 99 is newer than this build knows: 1 node unchanged"),
        "{}",
        ran.stdout
    );
    let found = delegraph(&[&arguments[..], &[path(&out), "--json"]].concat()).json();
    assert_eq!((&found["versions"], &found["unknown_versions"][0]["to"]), (&json!([]), &json!(99)));
    assert_eq!(delegraph::load(&out).unwrap().subgraphs()[0].nodes()[0].version(), 99);
}

#[test]
fn lists_of_ops_and_names_are_short() {
    use delegraph::TensorType;
    use delegraph::core::{ModelBuilder, SubgraphBuilder};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.tflite");
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1]);
    for i in 0..500 {
        let y = graph.tensor("y", TensorType::Float32, [1]);
        graph.custom(&format!("{i}{}", "long".repeat(10_000))).inputs([x]).writes([y]);
    }
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&file).unwrap();
    let ran = delegraph(&["run", path(&file)]).expect(3, "500 ops have no kernel");
    assert!(ran.stderr.contains("and 468 more ops") && ran.stderr.len() < 16_000, "{}", ran.stderr);
    let unresolved = delegraph(&["run", path(&file), "--json"]).json()["error"]["unresolved"].clone();
    assert_eq!(unresolved.as_array().unwrap().len(), 500);
}

#[test]
fn values_of_inputs_are_not_the_models_fault() {
    use delegraph::TensorType;
    use delegraph::core::ops::reshape::ReshapeParams;
    use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.tflite");
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let shape = graph.input("shape", TensorType::Int32, [2]);
    let y = graph.tensor("y", TensorType::Float32, [0, 0]);
    graph.node(BuiltinOp::RESHAPE, ReshapeParams::default()).inputs([x, shape]).writes([y]);
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&file).unwrap();
    let mut values = zeros("(2,)", 2);
    let at = values.windows(3).position(|bytes| bytes == b"<f4").unwrap();
    values[at + 1] = b'i';
    values[128] = 3;
    let data = write(folder.path(), "shape.npy", &values);
    let ran =
        delegraph(&["run", path(&file), "--input", &format!("shape={data}")]).expect(4, "node 0 (RESHAPE");
    assert!(ran.stderr.contains("follow from the values of its inputs"), "{}", ran.stderr);
}

#[test]
fn a_missing_custom_op() {
    let folder = tempfile::tempdir().unwrap();
    let model = Tiny { code: 32, custom_name: Some("Frobnicate"), ..Tiny::default() }.write(folder.path());
    let ran = delegraph(&["run", path(&model)]).expect(3, "custom op \"Frobnicate\" version 1: no custom op");
    // The option comes before the interface for programs.
    let option = "help: load a library that has a kernel for it: `--ops plugin:PATH`; in a program, `resolver.add_custom";
    assert!(ran.stderr.contains(option), "{}", ran.stderr);
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
        "its ops need TFLite 1.14.0 at least; the first release with CONV_2D version 99 is not known",
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

/// CALL has a kernel, but TFLite does not document the release that first ran it.
#[test]
fn inspect_names_ops_of_unknown_releases() {
    use delegraph::TensorType::Float32;
    use delegraph::core::ops::control_flow::CallParams;
    use delegraph::core::{BuiltinOp, ModelBuilder, Params, SubgraphBuilder};
    let folder = tempfile::tempdir().unwrap();
    let mut main = SubgraphBuilder::new("main");
    let (x, y) = (main.input("x", Float32, [4]), main.tensor("y", Float32, [4]));
    main.node(BuiltinOp::CALL, CallParams::default().subgraph(1)).inputs([x]).writes([y]);
    main.outputs([y]);
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", Float32, [4]);
    let y = body.node(BuiltinOp::NEG, Params::None).inputs([x]).output("y");
    body.outputs([y]);
    let file = folder.path().join("call.tflite");
    ModelBuilder::new().subgraph(main).subgraph(body).build().unwrap().save(&file).unwrap();
    let text = delegraph(&["inspect", path(&file)]).expect(0, "").stdout;
    let line = "its ops need TFLite 1.9.0 at least; the first release with CALL version 1 is not known;";
    assert!(text.contains(line), "{text}");
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
    delegraph(&["run", path(&quantized), "--input", &floats])
        .expect(4, "the array is FLOAT32, but the input is INT8; save it as INT8");
    run(&write(folder.path(), "short.npy", &zeros("(1, 8, 8, 1)", 3))).expect(4, "shorter than its shape");
    run(&write(folder.path(), "text.npy", b"hello")).expect(4, "not a usable .npy file");
    run("/no/such.npy").expect(4, "check the path");
    run(&format!("pixels={floats}")).expect(2, "there is no input \"pixels\"; the model has: \"image\"");
    delegraph(&["run", path(&model), "--input", &floats, "--input", &floats])
        .expect(2, "2 input files given, but the model has 1 input\n");
    delegraph(&["run", path(&model), "--resize", "image=1x9x9x1"]).expect(4, "[1, 9, 9, 1]");
    delegraph(&["run", path(&model), "--signature", "train"]).expect(2, "serving_default");
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
    check(&["explain", path(&model), "--delegate", "wgpu", "--nodes", "100..200"]);
    check(&["explain", path(&model), "--delegate", "wgpu", "--nodes", "0..10"]);
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
    let ran = delegraph(&["--json"]);
    assert!(!ran.stdout.contains("conformance-worker") && !ran.stderr.contains("conformance-worker"));
    check(&["fly", "--json"], "fly");
    check(&["--json", "run"], "<MODEL>");
    check(&["run", path(&model), "--threads", "0", "--json"], "--threads");
    check(&["run", "--json", path(&model), "--nodes", "5..2"], "contains no node");
    check(&["run", path(&model), "--exclude-op", "CONF_2D", "--json"], "CONF_2D");
    check(&["run", "--json=1", path(&model)], "--json");
    check(&["run", path(&model), "--json="], "--json");
    // After `--`, `--json` is a file.
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
    // In JSON, names are as in the file.
    let found = delegraph(&["inspect", &unresolved, "--json"]).expect(0, "").json();
    assert_eq!(found["inputs"][0]["name"].as_str().unwrap().trim_start_matches(char::is_numeric), NAME);
    let (key, custom) = (&found["signatures"][0]["key"], &found["custom_ops"][0]);
    assert_eq!((key, custom, &found["description"]), (&json!(NAME), &json!(NAME), &json!(NAME)));
    let name = format!("custom op \"{NAME}\"");
    assert!(found["ops"].as_array().unwrap().iter().any(|op| op["op"] == name.as_str()), "{found}");
}

#[test]
fn arguments_are_escaped_in_usage_errors() {
    const ODD: &str = "1\u{1b}[31m\u{9b}2J\r\u{202e}";
    let model = digits(FLOAT32);
    let model = path(&model);
    let option = format!("--{ODD}");
    for arguments in [
        &["run", model, "--seed", ODD][..],
        &["run", model, ODD],
        &["run", model, &option],
        &["run", model, "--delegate", ODD],
        &["conformance", "--filter", "(\r\u{9b}"],
        &["new-delegate", ODD],
        &["graph", model, "-o", ODD],
        &[ODD],
    ] {
        let ran = delegraph(&[arguments, &["--json"]].concat()).expect(2, "");
        for text in [&ran.stderr, &ran.stdout] {
            assert!(!text.contains(['\u{1b}', '\u{9b}', '\r', '\u{202e}']), "{arguments:?}: {text:?}");
        }
        assert!(ran.stderr.contains(r"\u{9b}"), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
#[cfg(unix)]
fn line_breaks_in_paths_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two\nlines.tflite");
    std::fs::copy(digits(FLOAT32), &file).unwrap();
    for verb in
        [&["inspect"][..], &["explain"], &["bench", "--runs", "1"], &["profile", "--no-peak"], &["diff"]]
    {
        let text = delegraph(&[verb, &[path(&file)]].concat()).expect(0, "").stdout;
        assert!(text.contains("two\\nlines.tflite"), "{text}");
    }
    let (model, missing) = (path(&file), "no\nfile");
    for (arguments, code) in [
        (&["run", model, "--input", missing][..], 4),
        (&["run", model, "--inputs", missing, "--output-dir", path(folder.path())], 4),
        (&["new-delegate", "zz", "--delegraph", missing], 2),
    ] {
        let ran = delegraph(arguments).expect(code, r"no\nfile");
        assert!(!ran.stderr.contains(missing), "{arguments:?}: {}", ran.stderr);
    }
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
