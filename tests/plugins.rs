//! Shared libraries: `--delegate plugin:PATH?KEY=VALUE`, `--ops` and `--fusion` in the verbs that accept them, and
//! their errors.

#![cfg(any(unix, windows))]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;
#[path = "../interpreter/tests/libraries/mod.rs"]
mod libraries;

use std::path::Path;

use common::{delegraph, path};
use delegraph::core::ops::binary::{AddParams, MulParams};
use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder};
use delegraph::{Model, TensorType};
use serde_json::json;

/// `(x + x) * x`.
fn model() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [5]);
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("sum");
    let product = graph.node(BuiltinOp::MUL, MulParams::default()).inputs([sum, x]).output("product");
    graph.outputs([product]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

#[test]
fn verbs_take_plugins() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.tflite");
    model().save(&file).unwrap();
    let plugin = format!("plugin:{}", libraries::library("example_plugin").display());
    let with_option = format!("{plugin}?min_nodes=%33");

    let outputs = |delegate: &str| {
        let run = delegraph(&["run", path(&file), "--delegate", delegate, "--json"]).expect(0, "").json();
        assert_eq!(run["delegate"], delegate);
        run["outputs"].clone()
    };
    assert_eq!(outputs(&plugin), outputs("cpu"));
    assert_eq!(outputs(&with_option), outputs("cpu"));

    let explain =
        |delegate: &str| delegraph(&["explain", path(&file), "--delegate", delegate, "--json"]).json();
    let explained = explain(&plugin);
    assert_eq!((&explained["delegated_nodes"], &explained["delegates"][0]), (&json!(2), &json!("chains")));
    let explained = explain(&with_option);
    assert_eq!(explained["delegated_nodes"], 0);
    assert_eq!(explained["nodes"][0]["rejections"][0]["kind"], "PartitionTooSmall");

    let bench =
        delegraph(&["bench", path(&file), "--delegate", &plugin, "--runs", "1", "--warmup", "0", "--json"]);
    assert_eq!(bench.expect(0, "").json()["delegated_nodes"], 2);
    let ops = delegraph(&["ops", "--delegate", &plugin, "--json"]).expect(0, "").json();
    let add = ops["ops"].as_array().unwrap().iter().find(|op| op["op"] == "ADD").unwrap();
    assert_eq!(add["versions"][&plugin], json!([[1, 1]]));
    delegraph(&["run", path(&file), "--delegate", &plugin, "--policy", "require"]).expect(0, "");
}

fn write_npy(path: &std::path::Path, values: &[f32]) {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.len());
    let mut npy = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    npy.extend(format!("{header:<117}\n").bytes());
    npy.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    std::fs::write(path, npy).unwrap();
}

#[test]
fn verbs_say_what_each_delegate_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.tflite");
    model().save(&file).unwrap();
    let plugin = format!("plugin:{}", libraries::library("example_plugin").display());
    let few = format!("{plugin}?min_nodes=3");
    let verbs: [&[&str]; 4] = [
        &["run"],
        &["bench", "--runs", "1", "--warmup", "0"],
        &["profile", "--runs", "1", "--no-peak"],
        &["diff"],
    ];
    let check = |delegate: &str, options: &[&str], line: &str, nodes: usize| {
        for verb in verbs {
            let arguments =
                [&[verb[0], path(&file)], &verb[1..], &["--delegate", delegate], options].concat();
            let text = delegraph(&arguments).expect(0, "").stdout;
            assert!(text.contains(&format!("chains: {line}\n")), "{line}: {text}");
            let found = delegraph(&[&arguments[..], &["--json"]].concat()).expect(0, "").json();
            let [line] = &found["delegates"].as_array().unwrap()[..] else { panic!("{found}") };
            assert_eq!((&line["delegate"], &line["nodes"]), (&json!("chains"), &json!(nodes)));
            assert_eq!(line["total"], 2);
        }
    };
    check(&plugin, &[], "2 of 2 nodes in 1 partition", 2);
    let small = "0 of 2 nodes; its partition has 2 nodes, fewer than the minimum of 3 (2 nodes)";
    check(&few, &[], small, 0);
    check(&plugin, &["--exclude-op", "MUL"], "1 of 2 nodes in 1 partition; MUL is excluded (1 node)", 1);
    let report = "0 of 2 nodes; would run 2 nodes, but the policy is `report`";
    check(&plugin, &["--policy", "report"], report, 0);
    let fails = format!("plugin:{}?at=prepare", libraries::library("faulty_plugin").display());
    let ran = delegraph(&["run", path(&file), "--delegate", &fails]).expect(0, "");
    assert!(ran.stdout.contains(": 0 of 2 nodes; it failed: "), "{}", ran.stdout);
    // Two delegates: the second cannot claim nodes of the first.
    let ran = delegraph(&["run", path(&file), "--delegate", &plugin, "--delegate", &few]).expect(0, "");
    let text =
        "chains: 2 of 2 nodes in 1 partition\nchains: 0 of 2 nodes; another delegate runs it (2 nodes)\n";
    assert!(ran.stdout.ends_with(text), "{}", ran.stdout);
    // Nodes of constants are computed while preparing, and a model may have no nodes.
    let other = folder.path().join("other.tflite");
    let mut graph = SubgraphBuilder::new("main");
    let (x, c) = (graph.input("x", TensorType::Float32, [2]), graph.constant("c", [2], &[1f32, 2.0]));
    let c = graph.node(BuiltinOp::NEG, delegraph::core::Params::None).inputs([c]).output("negative");
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, c]).output("sum");
    graph.outputs([sum]);
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&other).unwrap();
    let ran = delegraph(&["run", path(&other), "--delegate", &plugin]).expect(0, "");
    let text = "chains: 1 of 2 nodes in 1 partition; computed while preparing (1 node)\n";
    assert!(ran.stdout.ends_with(text), "{}", ran.stdout);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2]);
    graph.outputs([x]);
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&other).unwrap();
    let ran = delegraph(&["run", path(&other), "--delegate", &plugin]).expect(0, "");
    assert!(ran.stdout.ends_with("chains: 0 of 0 nodes; there are no nodes\n"), "{}", ran.stdout);
    // The reason of each delegate.
    let arguments = ["run", path(&file), "--delegate", &plugin, "--delegate", &few, "--exclude-op", "MUL"];
    let ran = delegraph(&[&arguments[..], &["--policy", "require"]].concat());
    let reasons = "node 1 (MUL v1): chains: MUL is excluded; chains: its partition has 1 node";
    assert!(ran.stderr.contains(reasons), "{}", ran.stderr);
    // CPU kernels are not delegates.
    let found = delegraph(&["run", path(&file), "--delegate", "reference", "--json"]).expect(0, "").json();
    assert_eq!(found["delegates"], json!([]));
}

/// The body of a composite is prepared before a delegate can claim the composite, and does not run if one does.
#[test]
fn verbs_say_what_runs_composites() {
    let folder = tempfile::tempdir().unwrap();
    let save = |version: i32| {
        let mut body = SubgraphBuilder::new("body");
        let x = body.input("x", TensorType::Float32, [5]);
        let sum = body.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("sum");
        let y = body.node(BuiltinOp::NEG, delegraph::core::Params::None).inputs([sum]).output("y");
        body.outputs([y]);
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [5]);
        let y = graph.composite("acme.f", body).version(version).inputs([x]).output("y");
        graph.outputs([y]);
        let file = folder.path().join(format!("version_{version}.tflite"));
        ModelBuilder::new().subgraph(graph).build().unwrap().save(&file).unwrap();
        file
    };
    let (known, newer) = (save(1), save(3));
    let plugin = format!("plugin:{}?composite=acme.f", libraries::library("faulty_plugin").display());
    let check = |file: &Path, options: &[&str], line: &str| {
        let ran = delegraph(&[&["run", path(file), "--delegate", &plugin], options].concat()).expect(0, "");
        assert!(ran.stdout.ends_with(&format!("faulty: {line}\n")), "{line}: {}", ran.stdout);
    };
    check(&known, &[], "1 of 1 node in 1 partition");
    let would = "0 of 1 node; would run 1 node, but the policy is `report`";
    check(&known, &["--policy", "report"], would);
    // Nodes of the body whose op is not supported count for the composite's reason, other nodes for their own.
    let reason = "composite \"acme.f\" version 3 is above the highest supported, 2";
    check(&newer, &[], &format!("1 of 2 nodes in 1 partition; {reason} (1 node)"));
    let excluded = "ADD is excluded (1 node) and 1 other reason, which `delegraph explain` lists";
    check(&newer, &["--exclude-op", "ADD"], &format!("0 of 2 nodes; {excluded}"));
    let require = ["run", path(&newer), "--delegate", &plugin, "--policy", "require"];
    let text = format!("node 1 (NEG v1): NEG is not supported; {reason}");
    delegraph(&require).expect(3, &text);

    // The body has no section.
    let arguments = ["explain", path(&known), "--delegate", &plugin];
    let found = delegraph(&[&arguments[..], &["--json"]].concat()).expect(0, "").json();
    assert_eq!(found["composites"][0]["delegate"], "faulty");
    let body = &found["subgraphs"][0];
    assert_eq!((&body["node_count"], &body["prepared"]), (&json!(2), &json!(false)));
    assert_eq!((body.get("nodes"), body.get("partitions")), (None, None), "{body}");
    let text = delegraph(&arguments).expect(0, "").stdout;
    assert!(
        text.ends_with("\nsubgraph 1 \"body\": 2 nodes, which nothing that runs on cpu calls\n"),
        "{text}"
    );

    // The delegate fails for the body first. Neither the file nor the composite is the cause.
    for hook in ["prepare", "create_kernel"] {
        let fails = format!("{plugin}&at={hook}");
        let ran = delegraph(&["run", path(&known), "--delegate", &fails, "--policy", "require"]);
        let ran = ran.expect(1, &format!("delegate faulty: the test wants an error in {hook}"));
        let located = ["node 0", path(&known)].iter().any(|text| ran.stderr.contains(text));
        assert!(!located, "{}", ran.stderr);
    }
}

#[test]
fn batches_say_what_each_delegate_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.tflite");
    model().save(&file).unwrap();
    let (records, out) = (folder.path().join("records"), folder.path().join("out"));
    std::fs::create_dir(&records).unwrap();
    write_npy(&records.join("a.npy"), &[1.0, -1.0, 0.5, 2.0, 0.0]);
    let lines = |code: i32, delegate: &str, more: &[&str]| {
        let batch = ["run", path(&file), "--inputs", path(&records), "--output-dir", path(&out)];
        let ran = delegraph(&[&batch[..], &["--delegate", delegate, "--json"], more].concat());
        let found = ran.expect(code, "").json();
        found["delegates"].as_array().unwrap().iter().map(|line| line["nodes"].clone()).collect::<Vec<_>>()
    };
    let plugin = format!("plugin:{}", libraries::library("example_plugin").display());
    assert_eq!(lines(0, &plugin, &[]), [json!(2)]);
    // No record is left to be run.
    assert_eq!(lines(0, &plugin, &["--resume"]), [json!(2)]);
    assert_eq!(lines(0, "cpu", &[]), Vec::<serde_json::Value>::new());
    // Every record fails.
    let fails = format!("plugin:{}?at=invoke", libraries::library("faulty_plugin").display());
    assert_eq!(lines(1, &fails, &[]), [json!(1)]);
    // Records of other shapes, of which each job runs some or none.
    write_npy(&records.join("b.npy"), &[]);
    write_npy(&records.join("c.npy"), &[1.0]);
    for jobs in ["1", "3"] {
        assert_eq!(lines(0, &plugin, &["--jobs", jobs]), [json!(2)]);
    }
}

#[test]
fn conformance_takes_plugins() {
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("case");
    std::fs::create_dir(&case).unwrap();
    model().save(case.join("model.tflite")).unwrap();
    write_npy(&case.join("input_0.npy"), &[1.0, -1.0, 0.5, 2.0, 0.0]);
    write_npy(&case.join("expected_0.npy"), &[2.0, 2.0, 0.5, 8.0, 0.0]);
    let plugin = format!("plugin:{}", libraries::library("example_plugin").display());
    let ran =
        delegraph(&["conformance", "--corpus", path(folder.path()), "--delegate", &plugin]).expect(0, "");
    assert!(ran.stdout.contains("100.0%") && ran.stdout.contains(&plugin), "{}", ran.stdout);
}

#[test]
fn what_cannot_be_done_has_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.tflite");
    model().save(&file).unwrap();
    let library = libraries::library("example_plugin");
    let faulty = libraries::library("faulty_plugin");
    let cut = folder.path().join("cut.so");
    let whole = std::fs::read(&library).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    // A library for another machine: an ELF file has the machine's number at byte 18.
    let foreign = folder.path().join("foreign.so");
    let mut other = whole;
    other[18..20].copy_from_slice(&[22, 0]);
    std::fs::write(&foreign, &other).unwrap();

    let check = |what: String, code: i32, text: &str| {
        delegraph(&["run", path(&file), "--delegate", &what, "--json"]).expect(code, text)
    };
    check("plugin:".into(), 2, "plugin:PATH needs the path of a library");
    check("plugin:a.so?x=%4".into(), 2, "two hexadecimal digits must follow a %");
    check("plugin:a.so?x=1&x=2".into(), 2, "option \"x\" is given twice");
    let ran = check(
        format!("plugin:{}?nodes=2", library.display()),
        2,
        "\"nodes\" is not known; it takes: min_nodes",
    );
    assert_eq!(ran.json()["error"]["kind"], "usage");
    let plugin = format!("plugin:{}", library.display());
    let measured = ["run", path(&file), "--delegate", &plugin, "--cost-model", "--json"];
    let ran = delegraph(&measured)
        .expect(3, "the delegate chains cannot be measured: the measurement uses CONV_2D");
    assert_eq!(ran.json()["error"]["help"], "leave `--cost-model` out");
    check("plugin:absent.so".into(), 4, "absent.so: cannot be read");
    check(format!("plugin:{}", file.display()), 4, "not a shared library");
    check(format!("plugin:{}", cut.display()), 4, "truncated");
    if cfg!(target_os = "linux") {
        let ran = check(
            format!("plugin:{}", foreign.display()),
            3,
            "the library is for s390x, this process runs on",
        );
        assert_eq!(ran.json()["error"]["kind"], "unsupported");
    }
    let ran = check(format!("plugin:{}?at=create", faulty.display()), 1, "the test wants an error in create");
    assert_eq!(ran.json()["error"]["kind"], "failed");
    // After a later failure the CPU runs all nodes, unless the policy forbids it.
    let fails = format!("plugin:{}?at=prepare", faulty.display());
    check(fails.clone(), 0, "the test wants an error in prepare");
    delegraph(&["run", path(&file), "--delegate", &fails, "--policy", "require"])
        .expect(1, "the test wants an error");
}

#[test]
fn verbs_take_libraries_of_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let root = env!("CARGO_MANIFEST_DIR");
    let file = format!("{root}/assets/custom/sin.tflite");
    let library = format!("plugin:{}", libraries::library("example_kernels").display());
    let case = folder.path().join("corpus/case");
    std::fs::create_dir_all(&case).unwrap();
    std::fs::copy(&file, case.join("model.tflite")).unwrap();
    let x = [-8.0f32, 0.5, 2.0, 2.2, 201.0];
    write_npy(&case.join("input_0.npy"), &x);
    write_npy(&case.join("expected_0.npy"), &x.map(|x| (x + 1.0).sin()));
    let input = case.join("input_0.npy");
    let corpus = folder.path().join("corpus");

    // Every verb that runs the model needs the kernel.
    let verbs: [&[&str]; 3] = [
        &["run", &file, "--input", path(&input)],
        &["bench", &file, "--runs", "1", "--warmup", "0"],
        &["run", &file, "--delegate", "reference"],
    ];
    for verb in verbs {
        let missing = delegraph(verb).expect(3, "custom op \"Sin\" version 1");
        assert!(missing.stderr.contains("--ops plugin:PATH"), "{}", missing.stderr);
        delegraph(&[verb, &["--ops", &library]].concat()).expect(0, "");
    }
    let ran = delegraph(&["run", &file, "--input", path(&input), "--ops", &library, "--json"]).json();
    let first = ran["outputs"][0]["first"][0].as_f64().unwrap();
    approx::assert_abs_diff_eq!(first, (-7.0f64).sin(), epsilon = 1e-6);
    let conformance = ["conformance", "--corpus", path(&corpus), "--ops", &library];
    let passed = delegraph(&conformance).expect(0, "");
    assert!(passed.stdout.contains("100.0%"), "{}", passed.stdout);

    let inspected = delegraph(&["inspect", &file, "--ops", &library, "--json"]).json();
    assert_eq!(inspected["unresolved"], json!([]));
    let inspected = delegraph(&["inspect", &file, "--json"]).json();
    assert_eq!(inspected["unresolved"].as_array().unwrap().len(), 1);
    let ops = delegraph(&["ops", "--delegate", "cpu", "--ops", &library, "--json"]).json();
    let all = ops["ops"].as_array().unwrap();
    let moving = all.iter().find(|op| op["op"] == "custom op \"MovingAverage\"").unwrap();
    assert_eq!(moving["versions"]["cpu"], json!([[1, 2]]));

    // Files that cannot be loaded.
    let check = |ops: &str, code: i32, text: &str| {
        delegraph(&["run", &file, "--ops", ops, "--json"]).expect(code, text);
    };
    check("libmine.so", 2, "it must be plugin:PATH");
    check(&format!("{library}?x=1"), 2, "takes no options");
    check("plugin:absent.so", 4, "absent.so: cannot be read");
    let delegates = format!("plugin:{}", libraries::library("example_plugin").display());
    check(&delegates, 4, "it is a library of delegates: `--delegate` takes it");
}

#[test]
fn fuse_takes_libraries_of_fusions() {
    use delegraph::core::Params;
    use delegraph::core::ops::binary::SubParams;
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("model.tflite"), folder.path().join("out.tflite"));
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [5]);
    let y = body.node(BuiltinOp::MUL, MulParams::default()).inputs([x, x]).output("y");
    body.outputs([y]);
    let mut graph = SubgraphBuilder::new("main");
    let [a, b] = ["a", "b"].map(|name| graph.input(name, TensorType::Float32, [5]));
    let difference = graph.node(BuiltinOp::SUB, SubParams::default()).inputs([a, b]).output("difference");
    let square = graph.node(BuiltinOp::SQUARE, Params::None).inputs([difference]).output("square");
    let y = graph.composite("acme.square", body).inputs([square]).output("y");
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&file).unwrap();
    let library = format!("plugin:{}", libraries::library("example_fusions").display());

    let arguments = ["fuse", path(&file), "-o", path(&out), "--json"];
    let ops = || -> Vec<String> {
        let model = delegraph::load(&out).unwrap();
        model.subgraphs()[0].nodes().iter().map(|n| n.op().to_string()).collect()
    };
    delegraph(&arguments).expect(0, "");
    assert_eq!(ops(), ["SUB", "SQUARE", "MUL"]);
    let fused = delegraph(&[&arguments[..], &["--fusion", &library]].concat()).expect(0, "").json();
    assert_eq!(ops(), ["SQUARED_DIFFERENCE", "SQUARE"]);
    let passes: Vec<_> = fused["changes"].as_array().unwrap().iter().map(|c| &c["pass"]).collect();
    assert_eq!(passes, ["acme.square", "acme-squared-difference"]);
    approx::assert_abs_diff_eq!(fused["differences"][0]["greatest"].as_f64().unwrap(), 0.0, epsilon = 1e-6);
    delegraph(&[&arguments[..], &["--fusion", &library, "--skip", "acme.square"]].concat()).expect(0, "");
    assert_eq!(ops(), ["SQUARED_DIFFERENCE", "STABLEHLO_COMPOSITE"]);

    let check = |fusion: &str, code: i32, text: &str| {
        delegraph(&[&arguments[..], &["--fusion", fusion]].concat()).expect(code, text);
    };
    check("libmine.so", 2, "it must be plugin:PATH");
    check("plugin:absent.so", 4, "absent.so: cannot be read");
    let kernels = format!("plugin:{}", libraries::library("example_kernels").display());
    check(&kernels, 4, "it is a library of kernels: `--ops` takes it");
    delegraph(&["run", path(&file), "--ops", &library])
        .expect(4, "it is a library of fusions: `fuse --fusion` takes it");
}

#[test]
fn diff_finds_the_node_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.tflite");
    let chain = |name: &str| {
        let mut graph = SubgraphBuilder::new(name);
        let x = graph.input("x", TensorType::Float32, [5]);
        let mut y = x;
        for _ in 0..6 {
            y = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([y, x]).output("");
            y = graph.node(BuiltinOp::NEG, delegraph::core::Params::None).inputs([y]).output("");
        }
        graph.outputs([y]);
        graph
    };
    let save = |graph: SubgraphBuilder, file: &Path| {
        ModelBuilder::new().subgraph(graph).build().unwrap().save(file).unwrap();
    };
    save(chain("main"), &file);
    let plugin = |option: &str| format!("plugin:{}{option}", libraries::library("faulty_plugin").display());
    let diff_of = |file: &Path, code: i32, delegate: &str, more: &[&str]| {
        let arguments = [&["diff", path(file), "--delegate", delegate, "--json"], more].concat();
        delegraph(&arguments).expect(code, "").json()
    };
    // The body of a composite takes its place, with more nodes than the graph of the file has.
    let composite = folder.path().join("composite.tflite");
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [5]);
    let y = graph.composite("test.chain", chain("body")).inputs([x]).output("y");
    graph.outputs([y]);
    save(graph, &composite);
    let bad = diff_of(&composite, 1, &plugin("?wrong=4"), &["--per-node", "--bisect"]);
    assert_eq!((&bad["bisect"]["node"], &bad["first_bad"]), (&json!(4), &json!(4)), "{bad}");
    assert_eq!(bad["nodes"].as_array().unwrap().len(), 12);
    let diff = |code: i32, delegate: &str, more: &[&str]| diff_of(&file, code, delegate, more);
    let good = diff(0, &plugin(""), &["--per-node", "--bisect"]);
    assert_eq!((&good["ok"], &good["delegated_nodes"]), (&json!(true), &json!(6)));
    assert_eq!((&good["bisect"]["node"], &good["first_bad"]), (&json!(null), &json!(null)));
    assert_eq!(good["outputs"][0]["max_abs"], 0.0);
    assert_eq!(good["nodes"].as_array().unwrap().len(), 12);
    for node in [0, 4, 10] {
        let bad = diff(1, &plugin(&format!("?wrong={node}")), &["--per-node", "--bisect"]);
        assert_eq!((&bad["bisect"]["node"], &bad["bisect"]["alone"]), (&json!(node), &json!(true)));
        assert_eq!(bad["bisect"]["op"], "ADD");
        assert_eq!(bad["first_bad"], json!(node));
        let off = bad["outputs"][0]["max_abs"].as_f64().unwrap();
        approx::assert_abs_diff_eq!(off, 1.0, epsilon = 1e-5);
        assert!(bad["outputs"][0]["max_ulp"].as_f64().unwrap() > 1e3, "{bad}");
    }
    let text = delegraph(&["diff", path(&file), "--delegate", &plugin("?wrong=4"), "--bisect"]).expect(1, "");
    assert!(text.stdout.contains("with node 4 (ADD) the outputs go wrong"), "{}", text.stdout);
    delegraph(&["diff", path(&file), "--bisect"]).expect(2, "--bisect needs a delegate");
}
