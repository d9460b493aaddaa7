//! The subcommands, on the embedded models.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;
#[path = "../interpreter/tests/fusion/recurrent.rs"]
#[allow(dead_code)] // the layers of the fusion tests
mod recurrent;

use common::{DIGITS, delegraph, digits, path};
use delegraph::core::ops::Activation;
use delegraph::core::ops::binary::AddParams;
use delegraph::core::{BuiltinOp, ModelBuilder, Params, SubgraphBuilder};
use delegraph::{Model, TensorType};
use serde_json::Value;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// The class of the largest of the first outputs.
fn best(output: &Value) -> usize {
    let first = numbers(&output["first"]);
    (0..first.len()).max_by(|&a, &b| first[a].total_cmp(&first[b])).unwrap()
}

#[test]
fn run_classifies_a_digit() {
    let seven = digits("seven.npy");
    for model in ["digits_float32.tflite", "digits_float16.tflite", "digits_dynamic_range.tflite"] {
        for delegate in ["cpu", "reference"] {
            let model = digits(model);
            let arguments = ["run", path(&model), "--input", path(&seven), "--delegate", delegate, "--json"];
            let run = delegraph(&arguments).expect(0, "").json();
            assert_eq!(run["outputs"][0]["shape"], serde_json::json!([1, 10]));
            assert_eq!(run["delegate"], delegate);
            // The first eight of ten outputs are shown; the digit 7 is the last of them.
            assert_eq!(best(&run["outputs"][0]), 7, "{run}");
        }
    }
}

/// The sum of a column and a row whose lengths are the number of true elements of the input.
fn square_of_trues() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let input = graph.input("mask", TensorType::Bool, [8]);
    let column = graph.tensor("column", TensorType::Int64, [1, 1]);
    graph.node(BuiltinOp::WHERE, Params::None).inputs([input]).writes([column]);
    let order = graph.constant("order", [2], &[1i32, 0]);
    let row = graph.node(BuiltinOp::TRANSPOSE, Params::None).inputs([column, order]).output("row");
    let add = AddParams::default().fused_activation_function(Activation::None).pot_scale_int16(false);
    let sum = graph.node(BuiltinOp::ADD, add).inputs([column, row]).output("sum");
    graph.outputs([sum]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

#[test]
fn memory_that_only_a_run_knows_is_blamed_on_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("square.tflite");
    std::fs::write(&file, square_of_trues().to_bytes().unwrap()).unwrap();
    let run = |more: &[&str]| delegraph(&[&["run", path(&file), "--max-memory", "64M"], more].concat());
    run(&[]).expect(0, "");
    let blamed = "--resize mask=100000: the model cannot run with this shape";
    let ran = run(&["--resize", "mask=100000"]).expect(1, blamed);
    assert!(ran.stderr.contains("--max-memory"), "{}", ran.stderr);
}

#[test]
fn run_writes_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let (model, seven) = (digits("digits_float32.tflite"), digits("digits.npy"));
    let input = format!("image={}", seven.display());
    let arguments = [
        "run",
        path(&model),
        "--signature",
        "serving_default",
        "--input",
        &input,
        "--output-dir",
        path(folder.path()),
    ];
    let ran = delegraph(&arguments).expect(0, "");
    assert!(ran.stdout.contains("output_0.npy"), "{}", ran.stdout);
    let file = std::fs::read(folder.path().join("output_0.npy")).unwrap();
    let header = String::from_utf8_lossy(&file[..128]);
    // Twenty digits: the input's file resizes the batch.
    let resized =
        format!("image has the shape of {}: [20, 8, 8, 1] instead of [1, 8, 8, 1]", seven.display());
    assert!(ran.stdout.contains(&resized), "{}", ran.stdout);
    assert!(header.contains("'<f4'") && header.contains("(20, 10,)"), "{header}");
    let values: Vec<f32> = file[128..].as_chunks::<4>().0.iter().map(|c| f32::from_le_bytes(*c)).collect();
    let labels = std::fs::read(digits("labels.npy")).unwrap();
    let labels = &labels[labels.len() - 20..];
    for (row, &label) in values.chunks(10).zip(labels) {
        let best = (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        assert_eq!(best, usize::from(label));
    }
}

#[test]
fn random_inputs_follow_the_seed() {
    let model = digits("digits_float32.tflite");
    let first = |seed: &str| {
        let run = delegraph(&["run", path(&model), "--seed", seed, "--json"]).expect(0, "").json();
        numbers(&run["outputs"][0]["first"])
    };
    assert_eq!(first("1"), first("1"));
    assert_ne!(first("1"), first("2"));
}

#[test]
fn resizing() {
    let model = digits("digits_float32.tflite");
    let run = delegraph(&["run", path(&model), "--resize", "image=3x8x8x1", "--json"]).expect(0, "").json();
    assert_eq!(run["inputs"][0]["shape"], serde_json::json!([3, 8, 8, 1]));
    assert_eq!(run["outputs"][0]["shape"], serde_json::json!([3, 10]));
}

#[test]
fn bench_has_the_fields_of_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let model = digits("digits_int8.tflite");
    let ran =
        delegraph(&["bench", path(&model), "--seconds", "0.05", "--threads", "2", "--json"]).expect(0, "");
    let bench = ran.json();
    for field in ["load_ms", "prepare_ms", "first_ms", "median_ms", "p90_ms", "min_ms"] {
        assert!(bench[field].as_f64().unwrap() > 0.0, "{field}: {bench}");
    }
    assert!(bench["min_ms"].as_f64() <= bench["median_ms"].as_f64());
    assert!(bench["median_ms"].as_f64() <= bench["p90_ms"].as_f64());
    assert_eq!((&bench["delegate"], &bench["threads"]), (&Value::from("cpu"), &Value::from(2)));
    assert!(bench["runs"].as_u64().unwrap() >= 5);
    let memory = |field: &str| bench["memory"][field].as_u64().unwrap();
    assert!(memory("lower_bound_bytes") <= memory("arena_bytes"));
    assert!(memory("arena_bytes") <= memory("naive_bytes"));
    assert!(memory("weights_bytes") > 10_000);
    assert_eq!(memory("gpu_bytes"), 0);
    assert!(!cfg!(target_os = "linux") || memory("peak_rss_bytes") > 1 << 20);
    assert_eq!(bench["delegated_nodes"], 0);
    assert_eq!(bench["partitions"], 0);
    assert!(bench["total_nodes"].as_u64().unwrap() > 5);
    for field in ["upload_ms", "gpu_ms", "readback_ms"] {
        assert!(bench.get(field).unwrap().is_null(), "{field}");
    }

    let other = folder.path().join("other.json");
    std::fs::write(&other, &ran.stdout).unwrap();
    let ran = delegraph(&["bench", path(&model), "--runs", "7", "--compare", path(&other)]).expect(0, "");
    for text in ["ratio to other", "arena, naive", "arena, planned", "arena, lower bound", "7 runs"] {
        assert!(ran.stdout.contains(text), "\"{text}\" is not in: {}", ran.stdout);
    }
    delegraph(&["bench", path(&model), "--compare", path(&model)])
        .expect(4, "not a result of `bench --json`");
    std::fs::write(&other, "[]").unwrap();
    let ran = delegraph(&["bench", path(&model), "--compare", path(&other)]).expect(4, "--compare ");
    assert!(ran.stderr.contains("expected a JSON object"), "{}", ran.stderr);
    // There is no ratio to a time of 0.
    let zeros = r#"{"load_ms": 0, "prepare_ms": 0, "first_ms": 0, "median_ms": 0, "min_ms": 0}"#;
    std::fs::write(&other, zeros).unwrap();
    let arguments = ["bench", path(&model), "--runs", "1", "--compare", path(&other)];
    let text = delegraph(&arguments).expect(0, "").stdout;
    assert!(!text.contains("inf"), "{text}");
    let of_another = zeros.replacen('{', r#"{"model": "some/other.tflite", "#, 1);
    std::fs::write(&other, of_another).unwrap();
    delegraph(&arguments).expect(0, "the ratios are to the times of another model: some/other.tflite");
    let found = delegraph(&[&arguments[..], &["--json"]].concat()).expect(0, "").json();
    assert_eq!(found["compare"]["median"], Value::Null);
}

/// Checks a profile: the times of the ops add up to those of the nodes.
#[track_caller]
fn check_profile(profile: &Value) {
    let list = |field: &str| profile[field].as_array().unwrap().clone();
    let total = profile["total_ms"].as_f64().unwrap();
    let sum = |field: &str| list(field).iter().filter_map(|line| line["ms"].as_f64()).sum::<f64>();
    assert!(total > 0.0 && sum("nodes") > 0.0, "{profile}");
    assert!(approx::abs_diff_eq!(sum("ops"), sum("nodes"), epsilon = 1e-6 * total), "{profile}");
    assert!(list("nodes").iter().any(|node| node["multiply_adds"].as_u64().unwrap() > 10_000));
    assert!(list("nodes").iter().all(|node| node["op"].is_string() && node["bytes"].as_u64().unwrap() > 0));
}

#[test]
fn profile_shows_times_of_nodes_and_ops() {
    let folder = tempfile::tempdir().unwrap();
    let (model, trace) = (digits("digits_float32.tflite"), folder.path().join("trace.json"));
    let arguments = ["profile", path(&model), "--runs", "3", "--no-peak", "--trace", path(&trace), "--json"];
    let profile = delegraph(&arguments).expect(0, "").json();
    check_profile(&profile);
    assert!(profile["kernels"].as_array().unwrap().is_empty());
    let trace: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let steps = events.iter().filter(|e| e["cat"] == "step").count();
    assert_eq!(steps, profile["nodes"].as_array().unwrap().len());
    let text = delegraph(&["profile", path(&model), "--delegate", "reference", "--runs", "1"]).expect(0, "");
    for text in [" at most", "Nodes", "CONV_2D", "of roofline"].map(|want| (want, text.stdout.contains(want)))
    {
        assert!(text.1, "{text:?}");
    }
    // Integers are multiplied faster than floats.
    let quantized = digits("digits_int8.tflite");
    let profile = delegraph(&["profile", path(&quantized), "--runs", "5", "--json"]).expect(0, "").json();
    let peak = &profile["peaks"][0];
    assert!(peak["integer_multiply_adds_per_s"].as_f64() > Some(0.0), "{peak}");
    for node in profile["nodes"].as_array().unwrap() {
        assert!(node["roofline"].as_f64() <= Some(1.0), "{node}");
    }
    delegraph(&["profile", path(&model), "--no-peak", "--trace", "/nowhere/at/all"])
        .expect(1, "cannot write");
}

#[test]
fn profile_maps_gpu_kernels_to_nodes() {
    let adapters = delegraph(&["devices", "--json"]).expect(0, "").json();
    if adapters["adapters"].as_array().unwrap().is_empty() {
        eprintln!("left out: no GPU adapter");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (model, trace) = (digits("digits_float32.tflite"), folder.path().join("trace.json"));
    let arguments = [
        "profile",
        path(&model),
        "--delegate",
        "wgpu",
        "--runs",
        "2",
        "--no-peak",
        "--trace",
        path(&trace),
        "--json",
    ];
    let profile = delegraph(&arguments).expect(0, "").json();
    let kernels = profile["kernels"].as_array().unwrap();
    let timed = kernels.iter().all(|kernel| kernel["ms"].as_f64().is_some());
    assert!(timed || !profile["notes"].as_array().unwrap().is_empty(), "{profile}");
    if timed {
        check_profile(&profile);
    }
    // Every node on the GPU is in a kernel.
    let mut covered: Vec<u64> = Vec::new();
    for kernel in kernels {
        assert!(kernel["bytes"].as_u64().unwrap() > 0);
        covered.extend(kernel["nodes"].as_array().unwrap().iter().filter_map(Value::as_u64));
    }
    let partition = &profile["partitions"][0];
    assert_eq!(partition["kernels"].as_u64().unwrap() as usize, kernels.len());
    assert!(
        partition["upload_ms"].as_f64().unwrap() > 0.0 && partition["readback_ms"].as_f64().unwrap() > 0.0
    );
    let nodes = profile["nodes"].as_array().unwrap().iter().filter(|node| node["runner"] == "wgpu");
    for node in nodes.filter(|node| node["multiply_adds"].as_u64() > Some(0)) {
        assert!(covered.contains(&node["node"].as_u64().unwrap()), "{node}");
    }
    let trace: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    let drawn = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["cat"] == "device").count();
    assert!(!timed || drawn == kernels.len() + 2, "{trace}");
}

#[test]
fn diff_compares_outputs_and_nodes() {
    let model = digits("digits_float32.tflite");
    let diff = delegraph(&["diff", path(&model), "--per-node", "--json"]).expect(0, "").json();
    let output = &diff["outputs"][0];
    assert!(output["max_abs"].as_f64() <= output["allowed"].as_f64() && diff["ok"] == true, "{diff}");
    assert!(output["cosine"].as_f64().unwrap() > 0.999_999 && output["nan"] == serde_json::json!([0, 0]));
    assert!(diff["nodes"].as_array().unwrap().len() > 5);
    let text = delegraph(&["diff", path(&model), "--delegate", "reference"]).expect(0, "").stdout;
    assert!(text.contains("good") && !text.contains("BAD"), "{text}");
    // The allowed difference is one step.
    let text = delegraph(&["diff", path(&digits("digits_int8.tflite"))]).expect(0, "").stdout;
    assert!(!text.contains("0e0"), "{text}");
}

/// The body of a composite has more nodes than the graph of the file.
#[test]
fn diff_numbers_the_nodes_of_composites_as_explain_does() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("composite.tflite");
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [4]);
    let y = body.node(BuiltinOp::ABS, Params::None).inputs([x]).output("y");
    let y = body.node(BuiltinOp::SQRT, Params::None).inputs([y]).output("z");
    body.outputs([y]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let y = graph.composite("test.root", body).inputs([x]).output("y");
    let y = graph.node(BuiltinOp::NEG, Params::None).inputs([y]).output("z");
    graph.outputs([y]);
    let bytes = ModelBuilder::new().subgraph(graph).build().unwrap().to_bytes().unwrap();
    std::fs::write(&model, bytes).unwrap();
    let nodes = |options: &[&str]| {
        let arguments = [&["diff", path(&model), "--per-node", "--json"], options].concat();
        let diff = delegraph(&arguments).expect(0, "").json();
        let name = |node: &Value| node["op"].as_str().unwrap().to_owned();
        diff["nodes"].as_array().unwrap().iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(nodes(&[]), ["ABS", "SQRT", "NEG"]);
    assert_eq!(nodes(&["--delegate", "reference"]), ["ABS", "SQRT", "NEG"]);
}

#[test]
#[cfg(target_os = "linux")]
fn bench_draws_no_progress_bar_in_the_background() {
    // `script` (util-linux) creates a terminal, which here stops background jobs that write to it; `timeout` creates a
    // background job.
    let (exe, model) = (env!("CARGO_BIN_EXE_delegraph"), digits("digits_int8.tflite"));
    let bench = format!("'{exe}' bench '{}' --seconds 0.3 >/dev/null; echo code $?", model.display());
    let in_terminal = |shell: &str| {
        let mut script = std::process::Command::new("script");
        script.args(["-qec", shell, "/dev/null"]).stdin(std::process::Stdio::null());
        script.output().ok().map(|out| String::from_utf8(out.stdout).unwrap())
    };
    let Some(foreground) = in_terminal(&bench) else {
        eprintln!("left out: there is no `script`");
        return;
    };
    assert!(foreground.contains('░') && foreground.contains("code 0"), "{foreground}");
    let background = in_terminal(&format!("stty tostop; timeout 20 {bench}")).unwrap();
    assert_eq!(background.trim(), "code 0");
}

/// A terminal that does not know its size reports 0 columns.
#[test]
#[cfg(target_os = "linux")]
fn tables_are_readable_on_a_terminal_of_any_width() {
    let (exe, model) = (env!("CARGO_BIN_EXE_delegraph"), digits("digits_int8.tflite"));
    for columns in [0, 1, 20, 40, 79] {
        let shell = format!("stty cols {columns}; '{exe}' explain '{}'", model.display());
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &shell, "/dev/null"]).stdin(std::process::Stdio::null());
        let Ok(out) = script.output() else {
            eprintln!("left out: there is no `script`");
            return;
        };
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(
            text.lines().any(|line| line.contains("CONV_2D") && line.contains("cpu")),
            "{columns}: {text}"
        );
        assert!(columns < 40 || text.split_whitespace().any(|word| word == "FULLY_CONNECTED"), "{text}");
    }
}

#[test]
fn inspect_shows_the_options_of_custom_ops() {
    use delegraph::core::{ModelBuilder, SubgraphBuilder, TensorType};
    let mut writer = flexbuffers::Builder::default();
    let mut map = writer.start_map();
    map.push("axis", -1);
    map.push("mode", "near\u{1b}est");
    map.end_map();
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let mut last = x;
    for options in [writer.view(), b"\x01\x02\x03"] {
        let y = graph.tensor("", TensorType::Float32, [4]);
        graph.custom("Frobnicate").options(options).inputs([last]).writes([y]);
        last = y;
    }
    graph.outputs([last]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("custom.tflite");
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&file).unwrap();
    let found = delegraph(&["inspect", path(&file), "--json"]).expect(0, "").json();
    let options = &found["custom_options"];
    assert_eq!(options[0]["options"], serde_json::json!({ "axis": -1, "mode": "near\u{1b}est" }));
    assert_eq!(options[0]["nodes"], serde_json::json!([{ "subgraph": 0, "node": 0 }]));
    assert_eq!((&options[1]["options"], &options[1]["bytes"]), (&Value::Null, &3.into()));
    let text = delegraph(&["inspect", path(&file)]).expect(0, "").stdout;
    for line in [
        r#"options of custom op "Frobnicate" version 1 (node 0): axis: -1, mode: "near\u001best""#,
        "(node 1): 3 B, which are not a FlexBuffer map",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn inspect_shortens_long_options() {
    use delegraph::core::{ModelBuilder, SubgraphBuilder, TensorType};
    let mut writer = flexbuffers::Builder::default();
    let mut map = writer.start_map();
    map.push("", 1);
    map.push("a b", flexbuffers::Blob(&[1u8, 2, 3][..]));
    map.push("long", "x".repeat(1000).as_str());
    for i in 0..300 {
        map.push(&format!("n{i:03}"), i);
    }
    map.end_map();
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let y = graph.tensor("", TensorType::Float32, [4]);
    graph.custom("Frobnicate").options(writer.view()).inputs([x]).writes([y]);
    graph.outputs([y]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("options.tflite");
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&file).unwrap();
    let text = delegraph(&["inspect", path(&file)]).expect(0, "").stdout;
    let start = format!(r#": "": 1, "a b": <3 bytes>, long: "{}…", n000: 0, n001: 1, "#, "x".repeat(60));
    let line = text.lines().find(|line| line.starts_with("options of ")).unwrap();
    assert!(line.contains(&start), "{line}");
    let (shown, more) = line.rsplit_once(", and ").unwrap();
    let shown = shown.matches(": ").count() - 1;
    assert_eq!(more, format!("{} more keys", 303 - shown), "{line}");
    let found = delegraph(&["inspect", path(&file), "--json"]).expect(0, "").json();
    let options = &found["custom_options"][0];
    assert_eq!(options["options"]["a b"], serde_json::json!({ "blob_bytes": 3 }));
    assert_eq!(options["options"]["long"].as_str().unwrap().len(), 1000);
    assert_eq!((&options["keys"], &options["options"]["…"]), (&303.into(), &"and 47 more keys".into()));
}

#[test]
fn inspect_lists_ops_and_sizes() {
    for file in DIGITS {
        let model = digits(file);
        let found = delegraph(&["inspect", path(&model), "--json"]).expect(0, "").json();
        let convolution = found["ops"]
            .as_array()
            .unwrap()
            .iter()
            .find(|op| op["op"] == "CONV_2D")
            .unwrap_or_else(|| panic!("{found}"));
        assert!(convolution["count"].as_u64().unwrap() > 0 && convolution["version"].as_u64().unwrap() > 0);
        assert_eq!(found["signatures"][0]["key"], "serving_default");
        assert_eq!(found["signatures"][0]["inputs"][0]["name"], "image");
        assert_eq!(
            found["signatures"][0]["inputs"][0]["shape_signature"],
            serde_json::json!([null, 8, 8, 1])
        );
        let size = std::fs::metadata(&model).unwrap().len();
        assert_eq!(found["sizes"]["file_bytes"], size);
        assert!(found["sizes"]["constant_bytes"].as_u64().unwrap() < size);
        assert!(found["runtime"]["required"].is_string());
        assert_eq!(found["custom_ops"], serde_json::json!([]));
        assert_eq!(found["unresolved"], serde_json::json!([]));
    }
    let found = delegraph(&["inspect", path(&digits("digits_int8.tflite"))]).expect(0, "").stdout;
    for text in ["signature \"serving_default\"", "CONV_2D", "scale 0.00390625", "per channel"] {
        assert!(found.contains(text), "\"{text}\" is not in: {found}");
    }
}

#[test]
fn fuse_gives_ops_their_lowest_versions() {
    let folder = tempfile::tempdir().unwrap();
    let (original, file) = (digits("digits_int8.tflite"), folder.path().join("model.tflite"));
    let model = delegraph::load(&original).unwrap();
    let lowest = {
        let mut lowest = model.clone();
        lowest.restamp().unwrap();
        lowest
    };
    let mut raised = 0;
    let mut draft = model.into_draft();
    for node in draft.subgraphs[0].nodes_mut() {
        if node.op().to_string() == "CONV_2D" {
            node.set_version(7);
            raised += 1;
        }
    }
    draft.verify().unwrap().save(&file).unwrap();

    // Written over its input.
    let arguments = ["fuse", path(&file), "-o", path(&file), "--versions-only"];
    let found = delegraph(&[&arguments[..], &["--json"]].concat()).expect(0, "").json();
    let change = &found["versions"][0];
    assert_eq!((&change["op"], &change["from"], &change["to"]), (&"CONV_2D".into(), &7.into(), &3.into()));
    assert_eq!(change["nodes"].as_array().unwrap().len(), raised);
    assert_eq!(found["min_runtime_version"]["to"], lowest.min_runtime_version().unwrap());
    assert_eq!(found["output_bytes"], std::fs::metadata(&file).unwrap().len());
    assert_eq!(lowest.difference(&delegraph::load(&file).unwrap()), None);
    let text = delegraph(&arguments).expect(0, "").stdout;
    assert!(text.contains("already had the lowest sufficient version"), "{text}");
    let left: Vec<_> = folder.path().read_dir().unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");

    delegraph(&["fuse", path(&file), "-o", path(folder.path()), "--versions-only"])
        .expect(1, "it is a directory, not a file");
}

#[test]
fn fuse_rewrites_a_file_and_compares_the_outputs() {
    use delegraph::core::ops::fully_connected::FullyConnectedParams;
    use delegraph::core::{Attributes, BuiltinOp, ModelBuilder, Params, SubgraphBuilder, TensorType};
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("model.tflite"), folder.path().join("fused.tflite"));
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [1, 2]);
    let y = body.node(BuiltinOp::ABS, Params::None).inputs([x]).output("y");
    body.outputs([y]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 3]);
    let weights = graph.constant("weights", [2, 3], &[1f32, 2.0, 3.0, -1.0, 0.5, 0.0]);
    let y = graph.node(BuiltinOp::FULLY_CONNECTED, FullyConnectedParams::default()).inputs([x, weights]);
    let y = y.output("dense");
    let y = graph.node(BuiltinOp::RELU6, Params::None).inputs([y]).output("clamped");
    let attributes = Attributes::new().with("epsilon", 1e-6);
    let y = graph.composite("odml.l2_norm", body).attributes(&attributes).inputs([y]).output("y");
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&file).unwrap();

    let arguments = ["fuse", path(&file), "-o", path(&out)];
    let found = delegraph(&[&arguments[..], &["--json"]].concat()).expect(0, "").json();
    assert_eq!((&found["nodes"]["before"], &found["nodes"]["after"]), (&4.into(), &2.into()));
    assert_eq!(found["changes"][1]["pass"], "fuse-activation");
    assert_eq!(found["changes"][1]["from"], serde_json::json!(["FULLY_CONNECTED", "RELU6"]));
    assert!(
        found["left"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("does not compute the operation \"odml.l2_norm\"")
    );
    assert!(found["differences"][0]["greatest"].as_f64().unwrap() < 1e-6);
    let text = delegraph(&[&arguments[..], &["--report"]].concat()).expect(0, "").stdout;
    assert!(text.contains("fuse-activation") && text.contains("2 nodes, before: 4"), "{text}");
    assert!(text.contains("outputs differ by ") && !text.contains("0e0"), "{text}");
    // The composite stays for delegates if the option requires it.
    let kept = [&arguments[..], &["--keep-composites", "--json"]].concat();
    assert_eq!(delegraph(&kept).expect(0, "").json()["nodes"]["after"], 3);
    let skipped = [&arguments[..], &["--skip", "fuse-activation", "--json"]].concat();
    assert_eq!(delegraph(&skipped).expect(0, "").json()["nodes"]["after"], 3);
    delegraph(&[&arguments[..], &["--skip", "unknown"]].concat()).expect(2, "there is no pass or fusion");
    let text = delegraph(&["explain", path(&file)]).expect(0, "").stdout;
    assert!(text.contains("its body took its place"), "{text}");
}

#[test]
fn fuse_puts_recurrent_ops_into_the_graph() {
    use recurrent::{Framework, Layer};
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("model.tflite"), folder.path().join("fused.tflite"));
    for framework in [Framework::Keras, Framework::Onnx, Framework::Torch] {
        let layer = Layer { framework, batch: 2, time: 5, features: 3, cells: 4, hybrid: false };
        layer.model().save(&file).unwrap();
        // Persistent state, which the original does not have, is reset for each sample.
        let arguments = ["fuse", path(&file), "-o", path(&out), "--stateful", "--samples", "4", "--json"];
        let found = delegraph(&arguments).expect(0, "").json();
        assert!(found["differences"][0]["greatest"].as_f64().unwrap() < 1e-5, "{found}");
        assert_eq!(found["not_compared"], Value::Null);
        let fused = delegraph::load(&out).unwrap();
        let graph = &fused.subgraphs()[0];
        assert!(graph.nodes().iter().any(|n| n.op().to_string() == "UNIDIRECTIONAL_SEQUENCE_LSTM"));
        assert!(graph.tensors().iter().any(|t| t.is_variable()));
        // Again, with the same state before and after.
        let again = ["fuse", path(&out), "-o", path(&out), "--stateful"];
        let text = delegraph(&again).expect(0, "").stdout;
        assert!(text.contains("outputs differ by 0 at most"), "{text}");
    }
}

#[test]
fn explain_names_who_runs_each_node() {
    let model = digits("digits_float32.tflite");
    let found =
        delegraph(&["explain", path(&model), "--delegate", "reference", "--json"]).expect(0, "").json();
    let nodes = found["nodes"].as_array().unwrap();
    assert_eq!(found["total_nodes"], nodes.len());
    assert!(nodes.iter().all(|n| n["runner"] == "reference" || n["runner"] == "folded"), "{found}");
    assert_eq!(found["delegated_nodes"], 0);
    let text = delegraph(&["explain", path(&model)]).expect(0, "").stdout;
    assert!(text.contains("CONV_2D") && text.contains("0 of "), "{text}");
}

#[test]
fn explain_on_the_gpu() {
    let adapters = delegraph(&["devices", "--json"]).expect(0, "").json();
    if adapters["adapters"].as_array().unwrap().is_empty() {
        eprintln!("left out: no GPU adapter");
        return;
    }
    let model = digits("digits_float32.tflite");
    let found = delegraph(&["explain", path(&model), "--delegate", "wgpu", "--json"]).expect(0, "").json();
    let delegated = found["delegated_nodes"].as_u64().unwrap();
    assert!(delegated > 0, "{found}");
    let partitions = found["partitions"].as_array().unwrap();
    let counted: u64 = partitions.iter().map(|p| p["node_count"].as_u64().unwrap()).sum();
    assert_eq!(counted, delegated);
    assert!(partitions.iter().all(|p| p["boundary_bytes"].as_u64().unwrap() > 0));
    for node in found["nodes"].as_array().unwrap() {
        // Each node that is not on the GPU has a reason.
        let reasoned = node["rejections"]
            .as_array()
            .is_some_and(|r| r.iter().all(|r| r["kind"].is_string()) && !r.is_empty());
        assert!(node["runner"] == "wgpu" || reasoned, "{node}");
    }
    // The same outputs, too.
    let run = |delegate: &str| {
        let run = delegraph(&["run", path(&model), "--delegate", delegate, "--json"]).expect(0, "").json();
        numbers(&run["outputs"][0]["first"])
    };
    for (a, b) in run("wgpu").iter().zip(run("reference")) {
        approx::assert_abs_diff_eq!(*a, b, epsilon = 1e-5);
    }
}

#[test]
fn devices_have_limits() {
    let found = delegraph(&["devices", "--json"]).expect(0, "").json();
    for adapter in found["adapters"].as_array().unwrap() {
        assert!(adapter["name"].is_string() && adapter["driver"].is_string(), "{adapter}");
        assert!(adapter["limits"]["max_storage_buffer_binding_size"].as_u64().unwrap() > 0, "{adapter}");
    }
    let text = delegraph(&["devices"]).expect(0, "").stdout;
    assert!(text.contains("driver"), "{text}");
}

#[test]
fn devices_list_instruction_sets() {
    let found = delegraph(&["devices", "--json"]).expect(0, "").json();
    let sets = found["instruction_sets"].as_array().unwrap();
    let chosen: Vec<_> = sets.iter().filter(|set| set["chosen"] == true).collect();
    assert!(chosen.len() == 1 && chosen[0]["available"] == true, "{found}");
    assert!(sets.iter().all(|set| set["available"] == set["floats"].is_string()), "{found}");
    // Each available set can be forced.
    for set in sets.iter().filter(|set| set["available"] == true) {
        let name = set["name"].as_str().unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_delegraph"))
            .args(["devices", "--json"])
            .env("DELEGRAPH_ISA", name)
            .output()
            .unwrap();
        let forced: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let chosen = forced["instruction_sets"].as_array().unwrap().iter().find(|set| set["chosen"] == true);
        assert_eq!(chosen.unwrap()["name"], name);
    }
}

#[test]
fn ops_of_each_backend() {
    let found =
        delegraph(&["ops", "--delegate", "cpu", "--delegate", "reference", "--json"]).expect(0, "").json();
    let ops = found["ops"].as_array().unwrap();
    let op = ops.iter().find(|op| op["op"] == "CONV_2D").unwrap();
    assert_eq!(op["family"], "conv_2d");
    // The optimized kernels fall back to the reference ones: nothing is missing from them.
    for op in ops {
        let (cpu, reference) = (&op["versions"]["cpu"], &op["versions"]["reference"]);
        assert!(
            cpu.as_array().unwrap().len() >= usize::from(reference.as_array().is_some_and(|r| !r.is_empty()))
        );
    }
    let text = delegraph(&["ops", "--delegate", "reference"]).expect(0, "").stdout;
    assert!(
        text.starts_with("| op | TFLite | reference | types on reference | |\n|---|---|---|---|---|\n"),
        "{text}"
    );
}

#[test]
fn conformance_counts_cases_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let case = |name: &str, model: &[u8], input: &str, expected: Option<&[u8]>| {
        let case = root.join("cases").join(name);
        std::fs::create_dir_all(&case).unwrap();
        std::fs::write(case.join("model.tflite"), model).unwrap();
        std::fs::copy(digits(input), case.join("input_0.npy")).unwrap();
        if let Some(expected) = expected {
            std::fs::write(case.join("expected_0.npy"), expected).unwrap();
        }
    };
    let model = std::fs::read(digits("digits_float32.tflite")).unwrap();
    let seven = digits("seven.npy");
    let arguments =
        ["run", path(&digits("digits_float32.tflite")), "--input", path(&seven), "--output-dir", path(root)]
            .map(str::to_owned);
    delegraph(&arguments.each_ref().map(String::as_str)).expect(0, "");
    let right = std::fs::read(root.join("output_0.npy")).unwrap();
    let mut wrong = right.clone();
    let end = wrong.len();
    wrong[end - 4..].copy_from_slice(&5f32.to_le_bytes());
    case("right", &model, "seven.npy", Some(&right));
    case("wrong", &model, "seven.npy", Some(&wrong));
    case("damaged", &model[..1000], "seven.npy", Some(&right));
    case("labels", &model, "labels.npy", Some(&right));
    let unknown = common::Tiny { code: 250, ..Default::default() }.bytes();
    case("unknown", &unknown, "seven.npy", Some(&right));
    std::fs::copy(digits("seven.npy"), root.join("cases/unknown/input_1.npy")).unwrap();

    let (cases, report) = (root.join("cases"), root.join("report"));
    let arguments = ["conformance", "--corpus", path(&cases), "--report", path(&report), "--json"];
    let found = delegraph(&arguments).expect(1, "").json();
    assert_eq!(found["total"], 5);
    let outcome = |case: &str| {
        let results = found["results"].as_array().unwrap();
        results.iter().find(|r| r["case"] == case).unwrap()["outcome"].as_str().unwrap().to_owned()
    };
    assert_eq!(outcome("right"), "pass");
    assert_eq!(outcome("wrong"), "mismatch");
    assert_eq!(outcome("damaged"), "invalid");
    assert_eq!(outcome("labels"), "invalid");
    assert_eq!(outcome("unknown"), "unsupported");
    let csv = std::fs::read_to_string(report.join("results.csv")).unwrap();
    assert_eq!(csv.lines().filter(|l| l.contains(",cpu,")).count(), 5, "{csv}");
    let json: Value = serde_json::from_slice(&std::fs::read(report.join("results.json")).unwrap()).unwrap();
    assert_eq!(json["counts"], found["counts"]);

    let arguments = ["conformance", "--corpus", path(&cases), "--filter", "^right$"];
    let ran = delegraph(&arguments).expect(0, "");
    assert!(ran.stdout.contains("1 case on cpu"), "{}", ran.stdout);
    assert!(ran.stdout.contains("1 of 1 case passes"), "{}", ran.stdout);
    delegraph(&["conformance", "--corpus", path(root), "--filter", "nothing"])
        .expect(4, "--filter nothing: no case has such a name");
    let empty = root.join("empty");
    std::fs::create_dir(&empty).unwrap();
    delegraph(&["conformance", "--corpus", path(&empty)]).expect(4, "empty: no case there");
    delegraph(&["conformance", "--corpus", path(&seven)]).expect(4, "seven.npy: it is not a folder");
}
