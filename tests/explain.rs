//! `explain` and the limits on delegates, through the command.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use std::path::Path;

use common::{delegraph, digits, path};
use delegraph::Model;
use delegraph::TensorType::{Float32, Int32};
use delegraph::core::ops::Params;
use delegraph::core::ops::binary::AddParams;
use delegraph::core::ops::control_flow::WhileParams;
use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder};
use serde_json::{Value, json};

/// `explain --json` with the GPU delegate; `None` if there is no adapter.
fn explain(model: &Path, options: &[&str]) -> Option<Value> {
    let adapters = delegraph(&["devices", "--json"]).expect(0, "").json();
    if adapters["adapters"].as_array().unwrap().is_empty() {
        eprintln!("left out: no GPU adapter");
        return None;
    }
    let arguments = ["explain", path(model), "--delegate", "wgpu", "--json"];
    Some(delegraph(&[&arguments[..], options].concat()).expect(0, "").json())
}

fn len(value: &Value) -> usize {
    value.as_array().unwrap().len()
}

#[test]
fn without_a_delegate_everything_is_on_the_cpu() {
    let found =
        delegraph(&["explain", path(&digits("digits_float32.tflite")), "--json"]).expect(0, "").json();
    assert_eq!((len(&found["nodes"]), &found["cpu_nodes"]), (9, &json!(9)));
    assert_eq!((&found["fix_first"], &found["fix_all"]), (&json!([]), &Value::Null));
    assert_eq!((&found["subgraphs"], &found["called_nodes"]), (&json!([]), &json!(0)));
    let sum: u64 =
        found["nodes"].as_array().unwrap().iter().map(|n| n["multiply_adds"].as_u64().unwrap()).sum();
    assert!(sum > 10_000 && found["multiply_adds"] == sum, "{found}");
}

#[test]
fn an_excluded_op_in_the_middle_keeps_two_partitions_apart() {
    let model = digits("digits_float32.tflite");
    let options = ["--exclude-op", "max_pool_2d"];
    let Some(found) = explain(&model, &options) else { return };
    let partitions = found["partitions"].as_array().unwrap();
    assert_eq!(partitions.len(), 2);
    for partition in partitions {
        let tensors = ["inputs", "outputs"].map(|side| partition[side].as_array().unwrap().clone()).concat();
        let bytes = |t: &Value| {
            let elements: u64 = t["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).product();
            assert_eq!((&t["bytes"], &t["type"]), (&json!(4 * elements), &json!("FLOAT32")));
            4 * elements
        };
        assert_eq!(tensors.iter().map(bytes).sum::<u64>(), partition["boundary_bytes"].as_u64().unwrap());
        assert!(partition["multiply_adds"].as_u64().unwrap() > 0);
    }
    let [blocker] = &found["fix_first"].as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!((&blocker["op"], &blocker["kind"]), (&json!("MAX_POOL_2D"), &json!("Excluded")));
    let gain = &blocker["gain"];
    assert_eq!((&gain["partitions_before"], &gain["partitions_after"]), (&json!(2), &json!(1)));
    assert_eq!(gain["nodes"], 1);
    // The copies around the pool, one out and one in.
    let around = [&partitions[0]["outputs"][0]["bytes"], &partitions[1]["inputs"][0]["bytes"]];
    let around: u64 = around.map(|b| b.as_u64().unwrap()).iter().sum();
    assert_eq!(gain["boundary_bytes_saved"], around);

    let arguments = [&["explain", path(&model), "--delegate", "wgpu"], &options[..]].concat();
    let text = delegraph(&arguments).expect(0, "").stdout;
    for line in
        ["what to fix first", "merge 2 partitions into 1 (1 node, ", "[1, 8, 8, 1]", "partition #1 on wgpu"]
    {
        assert!(text.contains(line), "\"{line}\" is not in: {text}");
    }
}

#[test]
fn limits_keep_nodes_from_delegates() {
    let model = digits("digits_float32.tflite");
    let Some(all) = explain(&model, &[]) else { return };
    assert_eq!(all["delegated_nodes"], 9);
    let check = |options: &[&str], partitions: usize, delegated: usize, kinds: &[&str]| {
        let found = explain(&model, options).unwrap();
        assert_eq!(
            (len(&found["partitions"]), &found["delegated_nodes"]),
            (partitions, &json!(delegated)),
            "{options:?}"
        );
        for node in found["nodes"].as_array().unwrap().iter().filter(|n| n["partition"].is_null()) {
            let kind = node["rejections"][0]["kind"].as_str().unwrap();
            assert!(kinds.contains(&kind), "{options:?}: {node}");
        }
    };
    check(&["--nodes", "2..5"], 1, 3, &["Excluded"]);
    check(&["--exclude-node", "3", "--exclude-node", "8"], 2, 7, &["Excluded"]);
    check(&["--exclude-node", "3", "--max-partitions", "1"], 1, 5, &["Excluded", "TooManyPartitions"]);
    check(&["--exclude-node", "3", "--min-nodes", "4"], 1, 5, &["Excluded", "PartitionTooSmall"]);
    check(&["--exclude-node", "3", "--min-nodes", "6"], 0, 0, &["Excluded", "PartitionTooSmall"]);
    // Other verbs accept these options, too.
    let run = ["run", path(&model), "--delegate", "wgpu", "--exclude-op", "CONV_2D", "--json"];
    delegraph(&run).expect(0, "");
    delegraph(&["explain", path(&model), "--nodes", "5"])
        .expect(2, "write A..B for nodes A to B - 1: 0..5 is the first five");
    let arguments = ["explain", path(&model), "--exclude-op", "CONF_2D"];
    let ran = delegraph(&arguments).expect(2, "no builtin op has this name");
    assert!(ran.stderr.contains("the model has: CONV_2D"), "{}", ran.stderr);
    let arguments = ["run", path(&model), "--exclude-op", "LSTM"];
    delegraph(&arguments).expect(2, "--exclude-op LSTM: the model does not have this op");
}

#[test]
fn limits_of_conformance_name_ops_and_nodes_of_the_cases() {
    let conformance = |more: &[&str]| delegraph(&[&["conformance", "--filter", "^unary/abs"], more].concat());
    conformance(&["--exclude-op", "CONV_2"])
        .expect(2, "--exclude-op CONV_2: no builtin op has this name, and no custom op of the cases");
    conformance(&["--exclude-node", "99999"]).expect(2, "--exclude-node 99999: there is no such node");
    conformance(&["--exclude-op", "CONV_2D"]).expect(2, "--exclude-op CONV_2D needs a delegate");
}

/// A loop, with a condition of one node and a body of two. It counts from an input, or from 0.
fn looping(from_zero: bool) -> Model {
    let counted = |name: &str| {
        let mut graph = SubgraphBuilder::new(name);
        let inputs = (graph.input("i", Int32, []), graph.input("x", Float32, [256]));
        (graph, inputs)
    };
    let (mut condition, (i, _)) = counted("condition");
    let limit = condition.constant("limit", [], &[3i32]);
    let more = condition.node(BuiltinOp::LESS, Params::None).inputs([i, limit]).output("more");
    condition.outputs([more]);
    let (mut body, (i, x)) = counted("body");
    let one = body.constant("one", [], &[1i32]);
    let next = body.node(BuiltinOp::ADD, AddParams::default()).inputs([i, one]).output("next");
    let root = body.node(BuiltinOp::SQRT, Params::None).inputs([x]).output("root");
    body.outputs([next, root]);
    let (mut main, (i, x)) = counted("main");
    let i = if from_zero { main.constant("zero", [], &[0i32]) } else { i };
    let (end, y) = (main.tensor("end", Int32, []), main.tensor("y", Float32, [256]));
    let params = WhileParams::default().cond_subgraph_index(1).body_subgraph_index(2);
    main.node(BuiltinOp::WHILE, params).inputs([i, x]).writes([end, y]);
    main.outputs([end, y]);
    ModelBuilder::new().subgraph(main).subgraph(condition).subgraph(body).build().unwrap()
}

#[test]
fn counts_are_of_all_subgraphs_that_are_reached() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("while.tflite");
    looping(true).save(&file).unwrap();
    let check = |arguments: &[&str]| {
        let found = delegraph(&[arguments, &["--json"]].concat());
        // A machine without any GPU driver.
        if arguments.contains(&"wgpu") && found.code == 3 {
            eprintln!("left out: {}", found.stderr);
            return;
        }
        let found = found.expect(0, "").json();
        assert_eq!(found["total_nodes"], 4, "{arguments:?}: {found}");
        let lines = found["delegates"].as_array().unwrap();
        for (count, of_line) in [("delegated_nodes", "nodes"), ("partitions", "partitions")] {
            let sum: u64 = lines.iter().map(|line| line[of_line].as_u64().unwrap()).sum();
            assert_eq!(found[count], sum, "{arguments:?}: {found}");
            let runs = arguments.contains(&"wgpu") && !arguments.contains(&"report");
            assert_eq!(sum > 0, runs, "{arguments:?}: {found}");
        }
        assert!(lines.iter().all(|line| line["total"] == 4), "{found}");
    };
    check(&["diff", path(&file)]);
    for verb in [&["run", path(&file)][..], &["bench", path(&file), "--runs", "1"]] {
        check(verb);
        check(&[verb, &["--delegate", "wgpu"]].concat());
        check(&[verb, &["--delegate", "wgpu", "--policy", "report"]].concat());
    }
}

#[test]
fn counts_are_of_the_signature_that_runs() {
    let mut first = SubgraphBuilder::new("first");
    let x = first.input("x", Float32, [4]);
    let y = first.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("y");
    first.outputs([y]);
    let (from, to) = ([("x", x)], [("y", y)]);
    let mut second = SubgraphBuilder::new("second");
    let x = second.input("x", Float32, [4]);
    let positive = second.node(BuiltinOp::ABS, Params::None).inputs([x]).output("positive");
    let y = second.node(BuiltinOp::SQRT, Params::None).inputs([positive]).output("y");
    second.outputs([y]);
    let model = ModelBuilder::new().subgraph(first).subgraph(second);
    let model =
        model.signature("add", 0, from, to).signature("root", 1, [("x", x)], [("y", y)]).build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("signatures.tflite");
    model.save(&file).unwrap();
    for (key, nodes) in [("add", 1), ("root", 2)] {
        for verb in [&["run"][..], &["diff"], &["diff", "--per-node"]] {
            let found =
                delegraph(&[verb, &[path(&file), "--signature", key, "--json"]].concat()).expect(0, "");
            assert_eq!(found.json()["total_nodes"], nodes, "{key}: {}", found.stdout);
        }
    }
}

#[test]
fn called_subgraphs_are_sections_of_their_own() {
    let model = looping(false);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("while.tflite");
    model.save(&file).unwrap();

    let found = delegraph(&["explain", path(&file), "--json"]).expect(0, "").json();
    assert_eq!((&found["total_nodes"], &found["called_nodes"]), (&json!(1), &json!(3)));
    let [condition, body] = &found["subgraphs"].as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!((&condition["subgraph"], &condition["name"]), (&json!(1), &json!("condition")));
    assert_eq!(
        (&body["node_count"], &body["prepared"], &body["cpu_nodes"]),
        (&json!(2), &json!(true), &json!(2))
    );
    let text = delegraph(&["explain", path(&file)]).expect(0, "").stdout;
    assert!(text.contains("subgraph 2 \"body\"\n") && text.contains("SQRT"), "{text}");

    if let Some(found) = explain(&file, &[]) {
        // The loop stays on the CPU, and the nodes of its body run on the GPU.
        assert_eq!(found["delegated_nodes"], 0);
        let partition = &found["subgraphs"][1]["partitions"][0];
        let inputs = partition["inputs"].as_array().unwrap();
        let x = inputs.iter().find(|t| t["name"] == "x").unwrap();
        assert_eq!(
            (&partition["delegate"], &x["shape"], &x["bytes"]),
            (&json!("wgpu"), &json!([256]), &json!(1024))
        );
    }
}

#[test]
fn a_missing_kernel_is_shown_between_nodes_that_a_delegate_takes() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", Float32, [4]);
    let a = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("a");
    let b = graph.tensor("b", Float32, [4]);
    graph.custom("Frobnicate").version(3).inputs([a]).writes([b]);
    let y = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([b, a]).output("y");
    graph.outputs([y]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("custom.tflite");
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&file).unwrap();
    delegraph(&["run", path(&file)]).expect(3, "Frobnicate");
    let check = |found: &Value| {
        assert_eq!(found["unresolved"][0]["op"], "custom op \"Frobnicate\"");
        assert_eq!(
            (&found["nodes"][1]["runner"], &found["nodes"][1]["version"]),
            (&json!("none"), &json!(3))
        );
    };
    let found = delegraph(&["explain", path(&file), "--json"]).expect(0, "").json();
    check(&found);
    assert_eq!(found["nodes"][2]["runner"], "cpu");
    let text = delegraph(&["explain", path(&file)]).expect(0, "").stdout;
    assert!(
        text.contains("the model cannot run: ops without a kernel:\n  custom op \"Frobnicate\""),
        "{text}"
    );
    assert!(!text.contains("nodes that a delegate claims"), "{text}");
    delegraph(&["graph", path(&file)]).expect(0, "the model cannot run");
    if let Some(found) = explain(&file, &[]) {
        check(&found);
        assert_eq!((&found["delegated_nodes"], len(&found["partitions"])), (&json!(2), 2));
    }
    assert!(
        text.contains("0 of 3 nodes delegated, 2 on cpu, 0 computed while preparing, 1 without a kernel"),
        "{text}"
    );
    // A builtin op of a version without a kernel is shown in the same way.
    let file = common::Tiny { version: 99, ..Default::default() }.write(folder.path());
    let found = delegraph(&["explain", path(&file), "--json"]).expect(0, "").json();
    assert_eq!(
        (&found["nodes"][0]["runner"], &found["unresolved"][0]["version"]),
        (&json!("none"), &json!(99))
    );
}

#[test]
fn a_version_too_low_for_what_is_used_is_a_warning_or_an_error() {
    use delegraph::core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
    let model = |version| {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", Float32, [1, 5, 5, 1]);
        let filter = graph.constant("filter", [1, 2, 2, 1], &[1f32; 4]);
        let bias = graph.constant("bias", [1], &[0f32]);
        let params = DepthwiseConv2DParams::default().stride_w(1).stride_h(1).depth_multiplier(1);
        let params = params.dilation_w_factor(2).dilation_h_factor(2);
        let conv = graph.node(BuiltinOp::DEPTHWISE_CONV_2D, params);
        let y = conv.inputs([x, filter, bias]).output("y");
        graph.outputs([y]);
        // The builder cannot write such a file.
        let mut draft = ModelBuilder::new().subgraph(graph).build().unwrap().into_draft();
        draft.subgraphs[0].nodes_mut()[0].set_version(version);
        draft.verify().unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let (low, right) = (folder.path().join("low.tflite"), folder.path().join("right.tflite"));
    model(1).save(&low).unwrap();
    model(2).save(&right).unwrap();
    const TEXT: &str = "DEPTHWISE_CONV_2D version 1 uses features of version 2: node 0";
    for verb in ["inspect", "explain"] {
        let ran = delegraph(&[verb, path(&low)]).expect(0, "");
        assert!(ran.stdout.contains(&format!("warning: {TEXT}\n")), "{}", ran.stdout);
        let found = delegraph(&[verb, path(&low), "--json"]).expect(0, "").json();
        let line = &found["understated_versions"][0];
        assert_eq!((&line["version"], &line["needed"]), (&json!(1), &json!(2)));
        assert_eq!(line["nodes"], json!([{ "subgraph": 0, "node": 0 }]));
        let found = delegraph(&[verb, path(&right), "--json"]).expect(0, "").json();
        assert_eq!(found["understated_versions"], json!([]));
    }
    for verb in ["inspect", "explain", "run", "bench", "graph", "diff", "profile"] {
        let ran = delegraph(&[verb, path(&low), "--strict-versions"]).expect(4, TEXT);
        assert!(ran.stderr.contains("--versions-only"), "{}", ran.stderr);
    }
    let refused = delegraph(&["inspect", path(&low), "--strict-versions", "--json"]).expect(4, "").json();
    assert_eq!(refused["error"]["model"], path(&low));
    delegraph(&["run", path(&right), "--strict-versions"]).expect(0, "");
    delegraph(&["run", path(&low)]).expect(0, "");
    // The advice of the help.
    delegraph(&["fuse", path(&low), "-o", path(&low), "--versions-only"]).expect(0, "");
    delegraph(&["run", path(&low), "--strict-versions"]).expect(0, "");
}

#[test]
fn versions_are_checked_with_inferred_shapes() {
    use delegraph::core::Shape;
    use delegraph::core::ops::binary::SubParams;
    use delegraph::core::ops::reshape::ReshapeParams;
    let mut graph = SubgraphBuilder::new("main");
    let (x, z) = (graph.input("x", Float32, [12]), graph.input("z", Float32, [3]));
    let shape = graph.constant("shape", [5], &[1i32, 1, 2, 2, 3]);
    let y = graph.node(BuiltinOp::RESHAPE, ReshapeParams::default()).inputs([x, shape]).output("y");
    let w = graph.node(BuiltinOp::SUB, SubParams::default()).inputs([y, z]).output("w");
    graph.outputs([w]);
    let mut draft = ModelBuilder::new().subgraph(graph).build().unwrap().into_draft();
    // The file does not declare the shapes that need the version.
    for id in [y, w] {
        draft.subgraphs[0].tensors_mut()[id.0].set_shape(Shape::default());
    }
    draft.subgraphs[0].nodes_mut()[1].set_version(1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("low.tflite");
    draft.verify().unwrap().save(&file).unwrap();
    const TEXT: &str = "SUB version 1 uses features of version 3: node 1";
    for verb in ["inspect", "explain"] {
        let ran = delegraph(&[verb, path(&file)]).expect(0, "");
        assert!(ran.stdout.contains(&format!("warning: {TEXT}\n")), "{}", ran.stdout);
    }
    for verb in ["inspect", "explain", "run"] {
        delegraph(&[verb, path(&file), "--strict-versions"]).expect(4, TEXT);
    }
    let fuse = ["fuse", path(&file), "-o", path(&file), "--versions-only", "--json"];
    let change = &delegraph(&fuse).expect(0, "").json()["versions"][0];
    assert_eq!((&change["op"], &change["from"], &change["to"]), (&json!("SUB"), &json!(1), &json!(3)));
    delegraph(&["run", path(&file), "--strict-versions"]).expect(0, "");
    assert_eq!(delegraph(&fuse).expect(0, "").json()["versions"], json!([]));
}

#[test]
fn composites_keep_the_reasons_of_delegates() {
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", Float32, [4]);
    let y = body.node(BuiltinOp::SQRT, Params::None).inputs([x]).output("y");
    body.outputs([y]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", Float32, [4]);
    let y = graph.composite("my.root", body).inputs([x]).output("y");
    graph.outputs([y]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("composite.tflite");
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&file).unwrap();
    // The number of nodes with the body in the place of the composite.
    delegraph(&["run", path(&file), "--exclude-node", "0"]).expect(2, "--exclude-node 0 needs a delegate");
    delegraph(&["run", path(&file), "--exclude-node", "1"])
        .expect(2, "--exclude-node 1: there is no such node");
    let Some(found) = explain(&file, &[]) else { return };
    let composite = &found["composites"][0];
    assert_eq!((&composite["name"], &composite["resolution"]), (&json!("my.root"), &json!("inlined")));
    let rejection = &composite["rejections"][0];
    assert_eq!(
        (&rejection["delegate"], &rejection["kind"]),
        (&json!("wgpu"), &json!("UnsupportedComposite"))
    );
    let text = delegraph(&["explain", path(&file), "--delegate", "wgpu"]).expect(0, "").stdout;
    assert!(text.contains("wgpu: composite \"my.root\" is not supported (UnsupportedComposite)"), "{text}");
    let body =
        "subgraph 1 \"body\": 1 node, which no node calls; those of inlined bodies are in the graphs that";
    assert!(text.contains(body), "{text}");
    let graph = delegraph(&["graph", path(&file), "--delegate", "wgpu", "--json"]).expect(0, "").json();
    let title = graph["vertices"][1]["title"].as_str().unwrap();
    let reason = "not as a whole on wgpu: composite \"my.root\" is not supported (UnsupportedComposite)";
    assert!(title.lines().any(|line| line == reason), "{title}");
}

#[test]
fn subgraphs_of_other_signatures_are_explained() {
    let graph = |name: &str, op: BuiltinOp| {
        let mut graph = SubgraphBuilder::new(name);
        let x = graph.input("x", Float32, [4]);
        let y = graph.node(op, Params::None).inputs([x]).output("y");
        graph.outputs([y]);
        (graph, x, y)
    };
    let ((first, x, y), (body, ..)) = (graph("first", BuiltinOp::NEG), graph("body", BuiltinOp::ABS));
    let mut second = SubgraphBuilder::new("second");
    let a = second.input("a", Float32, [4]);
    let b = second.composite("my.root", body).inputs([a]).output("b");
    second.outputs([b]);
    let model = ModelBuilder::new()
        .subgraph(first)
        .subgraph(second)
        .signature("p", 0, [("x", x)], [("y", y)])
        .signature("q", 1, [("x", a)], [("y", b)])
        .build()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.tflite");
    model.save(&file).unwrap();
    let found = delegraph(&["explain", path(&file), "--json"]).expect(0, "").json();
    assert_eq!(found["nodes"][0]["op"], "NEG");
    let other = &found["subgraphs"][0];
    assert_eq!((&other["prepared"], &other["nodes"][0]["op"]), (&json!(true), &json!("ABS")), "{found}");
    delegraph(&["graph", path(&file), "--subgraph", "1"]).expect(0, "");
    // The line of `run` points to a reason that `explain` has.
    let options = ["--signature", "q", "--delegate", "wgpu", "--exclude-op", "ABS"];
    let ran = delegraph(&[&["run", path(&file)], &options[..]].concat());
    if ran.code != 3 {
        assert!(ran.stdout.contains("wgpu: 0 of 1 node; ABS is excluded"), "{}", ran.stdout);
    }
    let Some(found) = explain(&file, &["--exclude-op", "ABS"]) else { return };
    let (first, other) = (&found["nodes"][0], &found["subgraphs"][0]);
    assert_eq!((&first["op"], &first["runner"]), (&json!("NEG"), &json!("wgpu")), "{found}");
    assert_eq!(other["nodes"][0]["rejections"][0]["kind"], "Excluded", "{found}");
    assert_eq!(other["composites"][0]["rejections"][0]["kind"], "UnsupportedComposite", "{found}");
}
