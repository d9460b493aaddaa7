//! Pictures of graphs, through the command.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use std::path::Path;

use common::{delegraph, digits, path};
use delegraph::TensorType::Float32;
use delegraph::core::ops::Params;
use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder};
use roxmltree::{Document, Node};
use serde_json::{Value, json};

/// Draws a model into a file with this extension.
fn draw(model: &Path, ending: &str, options: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(format!("graph.{ending}"));
    let ran = delegraph(&[&["graph", path(model), "-o", path(&file)], options].concat()).expect(0, "");
    assert!(ran.stdout.contains(" node") && ran.stdout.contains(" edges\n"), "{}", ran.stdout);
    std::fs::read_to_string(file).unwrap()
}

/// Elements of this name and class.
fn all<'d>(document: &'d Document<'_>, name: &str, class: &str) -> Vec<Node<'d, 'd>> {
    let classes = |n: &Node<'_, '_>| n.attribute("class").is_some_and(|c| c.split(' ').any(|c| c == class));
    document.descendants().filter(|n| n.tag_name().name() == name && classes(n)).collect()
}

fn number(node: &Node<'_, '_>, attribute: &str) -> f64 {
    node.attribute(attribute).unwrap().parse().unwrap()
}

/// The box of a node: left, top, right, bottom.
fn frame(node: &Node<'_, '_>) -> [f64; 4] {
    let rect = node.children().find(|n| n.tag_name().name() == "rect").unwrap();
    let [x, y, width, height] = ["x", "y", "width", "height"].map(|a| number(&rect, a));
    [x, y, x + width, y + height]
}

/// Checks that the picture is well-formed, and that all boxes are inside of it and do not overlap. Returns the boxes'
/// fills.
fn check_svg(svg: &str, boxes: usize) -> Vec<String> {
    let document = Document::parse(svg).unwrap();
    let root = document.root_element();
    let (width, height) = (number(&root, "width"), number(&root, "height"));
    let nodes = all(&document, "g", "node");
    assert_eq!(nodes.len(), boxes);
    let frames: Vec<[f64; 4]> = nodes.iter().map(frame).collect();
    for (i, a) in frames.iter().enumerate() {
        assert!(a[0] >= 0.0 && a[1] >= 0.0 && a[2] <= width && a[3] <= height, "{a:?}");
        for b in &frames[..i] {
            let apart = a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
            assert!(apart, "{a:?} and {b:?}");
        }
    }
    let rects = nodes.iter().map(|n| n.children().find(|n| n.tag_name().name() == "rect").unwrap());
    rects.map(|r| r.attribute("fill").unwrap().to_owned()).collect()
}

#[test]
fn svg_of_the_embedded_models() {
    for (file, nodes) in
        [("digits_float32.tflite", 9), ("digits_float16.tflite", 21), ("digits_int8.tflite", 9)]
    {
        let svg = draw(&digits(file), "svg", &[]);
        let fills = check_svg(&svg, nodes + 2);
        assert!(fills.iter().all(|f| ["#ffffff", "#d4d4d4", "#fafafa"].contains(&f.as_str())), "{fills:?}");
        let document = Document::parse(&svg).unwrap();
        assert_eq!(all(&document, "path", "arrow").len(), nodes + 1, "{file}");
        let texts: Vec<&str> = document.descendants().filter_map(|n| n.text()).collect();
        for text in ["CONV_2D v", "8×8×1", "in: ", "out: ", "multiply-adds", file] {
            assert!(texts.iter().any(|t| t.contains(text)), "{file}: {text}");
        }
    }
    // Float16 weights are converted in preparation.
    let svg = draw(&digits("digits_float16.tflite"), "svg", &[]);
    assert_eq!(all(&Document::parse(&svg).unwrap(), "path", "constant").len(), 2 * 12);
    assert!(svg.contains("computed while preparing: 12 nodes") && svg.contains("cpu: 9 nodes"));
}

#[test]
fn partitions_have_colours() {
    let adapters = delegraph(&["devices", "--json"]).expect(0, "").json();
    if adapters["adapters"].as_array().unwrap().is_empty() {
        eprintln!("left out: no GPU adapter");
        return;
    }
    let options = ["--delegate", "wgpu", "--exclude-op", "MAX_POOL_2D"];
    let svg = draw(&digits("digits_float32.tflite"), "svg", &options);
    let fills = check_svg(&svg, 11);
    // The input, three nodes, the pool, five nodes, the output.
    assert!(fills[1] == fills[3] && fills[5] == fills[9] && fills[1] != fills[5], "{fills:?}");
    assert_eq!((&*fills[0], &*fills[4], &*fills[10]), ("#ffffff", "#d4d4d4", "#ffffff"));
    let document = Document::parse(&svg).unwrap();
    assert_eq!(
        all(&document, "path", "arrow")
            .iter()
            .filter(|n| n.attribute("class").unwrap().contains("crosses"))
            .count(),
        4
    );
    for text in ["wgpu #0: 3 nodes", "wgpu #1: 5 nodes", "MAX_POOL_2D is excluded (Excluded)"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn html_is_one_page_without_a_network() {
    let page = draw(&digits("digits_float32.tflite"), "html", &[]);
    let (start, end) = (page.find("<svg").unwrap(), page.find("</svg>").unwrap() + 6);
    check_svg(&page[start..end], 11);
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert!(page.contains("<script>") && page.contains("<title>digits_float32.tflite</title>"));
    let links = page.matches("://").count() - page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count();
    assert_eq!(links, 0);
    assert!(!page.contains(" src=") && !page.contains("import"));
}

#[test]
fn dot_goes_to_standard_output() {
    let model = digits("digits_float32.tflite");
    let dot = delegraph(&["graph", path(&model)]).expect(0, "").stdout;
    assert!(dot.starts_with("digraph \"digits_float32.tflite\" {\n") && dot.ends_with("}\n"), "{dot}");
    assert_eq!((dot.matches(" -> ").count(), dot.matches("fillcolor").count()), (10, 11));
    assert!(
        dot.contains("v1 [label=\"CONV_2D v1\\n0 · cpu\"") && dot.contains("v0 -> v1 [label=\"1×8×8×1\""),
        "{dot}"
    );
    assert_eq!(draw(&model, "dot", &[]), dot);
    let found = delegraph(&["graph", path(&model), "--json"]).expect(0, "").json();
    let len = |field: &str| found[field].as_array().unwrap().len();
    assert_eq!((len("vertices"), len("edges"), &found["file"]), (11, 10, &Value::Null));
    assert_eq!((&found["vertices"][1]["node"], &found["edges"][0]["label"]), (&json!(0), &json!("1×8×8×1")));
}

#[test]
fn names_of_tensors_stay_text() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("<script>\"&\u{1}]]>\\", Float32, [2]);
    // One tensor read twice by the same node, and once more later.
    let y = graph.node(BuiltinOp::MAXIMUM, Params::None).inputs([x, x]).output("y</title>");
    let z = graph.node(BuiltinOp::MAXIMUM, Params::None).inputs([y, x]).output("");
    graph.outputs([z, x]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("names.tflite");
    ModelBuilder::new().subgraph(graph).build().unwrap().save(&file).unwrap();
    let svg = draw(&file, "svg", &[]);
    check_svg(&svg, 5);
    assert_eq!(all(&Document::parse(&svg).unwrap(), "path", "arrow").len(), 5);
    assert!(!draw(&file, "html", &[]).contains("<script>\""));
    assert!(draw(&file, "dot", &[]).contains(r#"tooltip="<script>\"&\\u{1}]]>\\ FLOAT32 [2], 8 B""#));
}

#[test]
fn what_cannot_be_drawn() {
    let model = digits("digits_float32.tflite");
    delegraph(&["graph", path(&model), "-o", "graph.png"]).expect(2, ".svg, .html or .dot");
    delegraph(&["graph", path(&model), "--subgraph", "1"])
        .expect(2, "--subgraph 1: there is no such subgraph; the model has 1 subgraph");
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("missing").join("graph.svg");
    delegraph(&["graph", path(&model), "-o", path(&nowhere)]).expect(1, "cannot write");
}

#[test]
fn nodes_lead_to_the_subgraphs_that_they_call() {
    use delegraph::TensorType::Int32;
    use delegraph::core::ops::binary::AddParams;
    use delegraph::core::ops::control_flow::WhileParams;
    let counted = |name: &str| {
        let mut graph = SubgraphBuilder::new(name);
        let i = graph.input("i", Int32, []);
        (graph, i)
    };
    let (mut condition, i) = counted("condition");
    let limit = condition.constant("limit", [], &[3i32]);
    let more = condition.node(BuiltinOp::LESS, Params::None).inputs([i, limit]).output("more");
    condition.outputs([more]);
    let (mut body, i) = counted("body");
    let one = body.constant("one", [], &[1i32]);
    let next = body.node(BuiltinOp::ADD, AddParams::default()).inputs([i, one]).output("next");
    body.outputs([next]);
    let (mut main, i) = counted("main");
    let params = WhileParams::default().cond_subgraph_index(1).body_subgraph_index(2);
    let end = main.tensor("end", Int32, []);
    main.node(BuiltinOp::WHILE, params).inputs([i]).writes([end]);
    main.outputs([end]);
    let model = ModelBuilder::new().subgraph(main).subgraph(condition).subgraph(body).build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("while.tflite");
    model.save(&file).unwrap();

    let page = draw(&file, "html", &[]);
    assert_eq!(page.matches("<svg").count(), 3);
    for (subgraph, op) in [(1, "LESS"), (2, "ADD")] {
        assert!(page.contains(&format!("<a class=\"callee\" href=\"#subgraph{subgraph}\">")), "{subgraph}");
        let start = page.find(&format!("<div class=\"graph\" id=\"subgraph{subgraph}\"")).unwrap();
        let picture = &page[start + page[start..].find("<svg").unwrap()..];
        let picture = &picture[..picture.find("</svg>").unwrap() + 6];
        check_svg(picture, 3);
        assert!(picture.contains(op), "{picture}");
    }
    assert!(page.contains("calls subgraph 2 &quot;body&quot;"));
    // With a body selected, only the body is drawn.
    assert_eq!(draw(&file, "html", &["--subgraph", "2"]).matches("<svg").count(), 1);
    // A picture of one subgraph names the other subgraphs.
    let svg = draw(&file, "svg", &[]);
    check_svg(&svg, 3);
    assert!(svg.contains("→ 1 → 2") && !svg.contains("<a "), "{svg}");
    let found = delegraph(&["graph", path(&file), "--json"]).expect(0, "").json();
    assert_eq!(found["vertices"][1]["callees"], json!([1, 2]));
}
