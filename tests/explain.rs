//! `explain` and the limits on delegates, through the command.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy knows only `#[test]` functions as tests.

mod common;

use std::path::Path;

use common::{delegraph, digits, path};
use delegraph::TensorType::{Float32, Int32};
use delegraph::core::ops::Params;
use delegraph::core::ops::binary::AddParams;
use delegraph::core::ops::control_flow::WhileParams;
use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder};
use serde_json::{Value, json};

/// `explain --json` with the GPU delegate; `None` where there is no adapter.
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
    let [obstacle] = &found["fix_first"].as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!((&obstacle["op"], &obstacle["kind"]), (&json!("MAX_POOL_2D"), &json!("Excluded")));
    let gain = &obstacle["gain"];
    assert_eq!((&gain["partitions_before"], &gain["partitions_after"]), (&json!(2), &json!(1)));
    assert_eq!(gain["nodes"], 1);
    // What crosses the borders around the pool, once out and once in.
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
    // Other verbs take them, too.
    let run = ["run", path(&model), "--delegate", "wgpu", "--exclude-op", "CONV_2D", "--json"];
    delegraph(&run).expect(0, "");
    delegraph(&["explain", path(&model), "--nodes", "5"]).expect(2, "write A..B");
    let arguments = ["explain", path(&model), "--exclude-op", "CONF_2D"];
    let ran = delegraph(&arguments).expect(0, "");
    assert!(ran.stderr.contains("no builtin op has this name"), "{}", ran.stderr);
}

#[test]
fn called_subgraphs_are_sections_of_their_own() {
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
    let (end, y) = (main.tensor("end", Int32, []), main.tensor("y", Float32, [256]));
    let params = WhileParams { cond_subgraph_index: 1, body_subgraph_index: 2 };
    main.node(BuiltinOp::WHILE, params).inputs([i, x]).writes([end, y]);
    main.outputs([end, y]);
    let model = ModelBuilder::new().subgraph(main).subgraph(condition).subgraph(body).build().unwrap();
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
        // The loop stays on the CPU, and what its body computes goes to the GPU.
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
