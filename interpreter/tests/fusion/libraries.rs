//! Fusions behind the table of a library. This program is the library.

use std::sync::atomic::{AtomicUsize, Ordering};

use delegraph_core::Error;
use delegraph_core::error::ErrorKind;
use delegraph_core::ops::binary::{AddParams, MulParams};
use delegraph_core::{
    BuiltinOp, Model, ModelBuilder, ModelBytes, Node, NodeId, Params, Result, SubgraphBuilder, TensorType,
};
use delegraph_delegate_api::plugin::FusionLibrary;
use delegraph_interpreter::fusion::{
    Call, CompositeFusion, Fusions, Outcome, PatternFusion, Pipeline, Rewriter,
};

delegraph_interpreter::export_fusions!(register);

fn register(fusions: &mut Fusions) {
    fusions.pattern(AbsOfNeg).composite(Double("my.double")).composite(Double("my.other"));
    fusions.composite(Broken).pattern(Panics).pattern(Endless);
    fusions.composite(Overreads).composite(Idle).pattern(Idle);
}

fn library() -> FusionLibrary {
    // SAFETY: `export_fusions!` defines the table in this program, and its functions follow the interface.
    unsafe { FusionLibrary::from_table("test", delegraph_fusion_library()) }.unwrap()
}

/// `|-x|` is `|x|`.
struct AbsOfNeg;

impl PatternFusion for AbsOfNeg {
    fn name(&self) -> &str {
        "abs-of-neg"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        let Some(abs) = graph.node_of(id, BuiltinOp::ABS).cloned() else { return Ok(false) };
        let Some((neg, x)) = abs.input(0).and_then(|n| graph.made_by(n, BuiltinOp::NEG)) else {
            return Ok(false);
        };
        let fused = Node::new(BuiltinOp::ABS, 1, Params::None, [x.input(0)], abs.outputs().to_vec());
        graph.replace(id, &[id, neg], fused);
        Ok(true)
    }
}

/// Replaces a composite by `x + x`.
struct Double(&'static str);

impl CompositeFusion for Double {
    fn name(&self) -> &str {
        self.0
    }

    fn verify_signature(&self, call: &Call, _: &Rewriter<'_>) -> Result<()> {
        call.arity(1..=1, 1)
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        let x = call.operand(0);
        let add = Node::new(BuiltinOp::ADD, 1, AddParams::default(), [x, x], [call.output(0)?]);
        graph.replace(call.id, &[call.id], add);
        Ok(Outcome::Fused)
    }
}

/// Writes an invalid node.
struct Broken;

impl CompositeFusion for Broken {
    fn name(&self) -> &str {
        "my.broken"
    }

    fn verify_signature(&self, _: &Call, _: &Rewriter<'_>) -> Result<()> {
        Ok(())
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        let inputs = [call.operand(0)];
        let add = Node::new(BuiltinOp::ADD, 1, AddParams::default(), inputs, [call.output(0)?]);
        graph.replace(call.id, &[call.id], add);
        Ok(Outcome::Fused)
    }
}

struct Panics;

impl PatternFusion for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        assert!(graph.node_of(id, BuiltinOp::EXP).is_none(), "scripted panic");
        match graph.node_of(id, BuiltinOp::COS) {
            Some(_) => Err(Error::InvalidNode("scripted error".into())),
            None => Ok(false),
        }
    }
}

/// Reads a result that its `verify_signature` does not require.
struct Overreads;

impl CompositeFusion for Overreads {
    fn name(&self) -> &str {
        "my.overreads"
    }

    fn verify_signature(&self, _: &Call, _: &Rewriter<'_>) -> Result<()> {
        Ok(())
    }

    fn rewrite(&self, call: &Call, _: &mut Rewriter<'_>) -> Result<Outcome> {
        call.output(7).map(|_| Outcome::Fused)
    }
}

/// Reports rewritings without changing anything.
struct Idle;

impl CompositeFusion for Idle {
    fn name(&self) -> &str {
        "my.idle"
    }

    fn verify_signature(&self, _: &Call, _: &Rewriter<'_>) -> Result<()> {
        Ok(())
    }

    fn rewrite(&self, _: &Call, _: &mut Rewriter<'_>) -> Result<Outcome> {
        Ok(Outcome::Fused)
    }
}

impl PatternFusion for Idle {
    fn name(&self) -> &str {
        "idle"
    }

    fn rewrite(&self, _: &mut Rewriter<'_>, _: NodeId) -> Result<bool> {
        Ok(true)
    }
}

/// Rewrites its own result.
struct Endless;

static ROUNDS: AtomicUsize = AtomicUsize::new(0);

impl PatternFusion for Endless {
    fn name(&self) -> &str {
        "endless"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        let Some(node) = graph.node_of(id, BuiltinOp::SIN).cloned() else { return Ok(false) };
        ROUNDS.fetch_add(1, Ordering::Relaxed);
        graph.replace(id, &[id], node);
        Ok(true)
    }
}

fn chain(ops: &[BuiltinOp]) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let mut x = graph.input("x", TensorType::Float32, [4]);
    for &op in ops {
        x = graph.node(op, Params::None).inputs([x]).output("");
    }
    graph.outputs([x]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

/// A composite whose body multiplies by 2.
fn composite(name: &str, inputs: usize) -> Model {
    let mut body = SubgraphBuilder::new("body");
    let ids: Vec<_> = (0..inputs).map(|_| body.input("x", TensorType::Float32, [4])).collect();
    let two = body.constant("two", [], &[2f32]);
    let y = body.node(BuiltinOp::MUL, MulParams::default()).inputs([ids[0], two]).output("y");
    body.outputs([y]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let y = graph.composite(name, body).inputs(vec![x; inputs]).output("y");
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

#[test]
fn fusions_of_a_library_run_in_a_pipeline() {
    let pipeline = Pipeline::empty().library(&library());
    let names = pipeline.names();
    assert!(["my.double", "my.broken", "abs-of-neg"].iter().all(|n| names.contains(&(*n).to_owned())));
    let fused = pipeline.run(&chain(&[BuiltinOp::NEG, BuiltinOp::NEG, BuiltinOp::ABS])).unwrap();
    assert_eq!(super::ops(&fused.model), ["ABS"]);
    // Repeated until nothing changes: one rewriting for each NEG.
    let change = &fused.report.changes[0];
    assert_eq!(
        (fused.report.changes.len(), &*change.pass, &*change.from.join(" ")),
        (2, "abs-of-neg", "ABS NEG")
    );
    let fused = pipeline.run(&composite("my.double", 1)).unwrap();
    assert_eq!((super::ops(&fused.model), fused.report.unchanged.len()), (vec!["ADD".to_owned()], 0));
    let skipping = pipeline.skip("my.double").run(&composite("my.double", 1)).unwrap();
    assert_eq!(super::ops(&skipping.model), ["STABLEHLO_COMPOSITE", "MUL"]);
}

#[test]
fn a_composite_that_computes_something_else_is_left() {
    // A body that adds 2, under a name whose fusion doubles.
    let mut draft = composite("my.other", 1).into_draft();
    let nodes = draft.subgraphs[1].nodes_mut();
    nodes[0] = Node::new(
        BuiltinOp::ADD,
        1,
        AddParams::default(),
        nodes[0].inputs().to_vec(),
        nodes[0].outputs().to_vec(),
    );
    let model = draft.verify().unwrap();
    let fused = Pipeline::empty().library(&library()).run(&model).unwrap();
    assert_eq!(super::ops(&fused.model), ["ADD"]);
    assert!(
        fused.model.subgraphs()[0].nodes()[0].inputs()[0]
            != fused.model.subgraphs()[0].nodes()[0].inputs()[1]
    );
    let left = &fused.report.unchanged[0];
    assert!(
        left.composite == "my.other" && left.reason.contains("does not compute \"my.other\" of "),
        "{left:?}"
    );
    assert_eq!((left.subgraph, &*left.tensor, left.id), (0, "y", Some(model.subgraphs()[0].outputs()[0])));
}

#[test]
fn faults_of_a_library_are_its_own() {
    let run = |model: Model| Pipeline::empty().library(&library()).run(&model).unwrap_err();
    let check = |model: Model, kind: ErrorKind, text: &str| {
        let error = run(model);
        assert!(
            error.kind() == kind && error.chain().contains(text),
            "{:?}: {}",
            error.kind(),
            error.chain()
        );
    };
    let broken = "test: fusion \"my.broken\": it made a model that cannot be prepared: node 0 (ADD v1";
    check(composite("my.broken", 1), ErrorKind::Failed, broken);
    let panicked = "test: fusion \"panics\": it panicked: scripted panic";
    check(chain(&[BuiltinOp::EXP]), ErrorKind::Failed, panicked);
    // A fusion of patterns is called for every node, so its errors are not defects of the file.
    let cos = chain(&[BuiltinOp::COS]);
    check(cos.clone(), ErrorKind::Failed, "test: fusion \"panics\": node 0 (COS v1");
    check(cos, ErrorKind::Failed, "it failed: invalid node: scripted error");
    // `verify_signature` accepted the call: an invalid node of `rewrite` is not that of the file.
    check(composite("my.overreads", 1), ErrorKind::Failed, "test: fusion \"my.overreads\": node 0");
    let error = Pipeline::empty().composite(Overreads).run(&composite("my.overreads", 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(error.chain().contains("the pass \"my.overreads\" failed: invalid node"), "{}", error.chain());
    // The composite in the file does not match its name.
    check(composite("my.double", 2), ErrorKind::Invalid, "it has 2 arguments and 1 result");
    let signature = run(composite("my.double", 2)).chain();
    assert_eq!(signature.matches("invalid node").count(), 1, "{signature}");
    // The place is stated once, with the file.
    let file = ModelBytes::new(composite("my.double", 2).to_bytes().unwrap());
    let signature = run(Model::from_bytes_named(file, "original.tflite").unwrap()).chain();
    let place = "original.tflite: node 0 (STABLEHLO_COMPOSITE v1, writes \"y\"): invalid node: \
                 test: fusion \"my.double\": composite \"my.double\" version";
    assert!(signature.starts_with(place), "{signature}");
    // A fusion that never terminates is stopped.
    Pipeline::empty().library(&library()).run(&chain(&[BuiltinOp::SIN])).unwrap();
    assert!((2..1000).contains(&ROUNDS.load(Ordering::Relaxed)));
    let fused = Pipeline::empty().pattern(Endless).run(&chain(&[BuiltinOp::SIN])).unwrap();
    assert_eq!(fused.report.unsettled, ["endless"]);
}

#[test]
fn rewritings_that_change_nothing_are_not_counted() {
    // From a library, and in the program.
    for pipeline in [Pipeline::empty().library(&library()), Pipeline::empty().composite(Idle).pattern(Idle)] {
        let report = pipeline.skip("inline").run(&composite("my.idle", 1)).unwrap().report;
        assert!(report.changes.is_empty() && report.unsettled.is_empty(), "{report:?}");
        assert!(report.unchanged[0].reason.contains("changed nothing"), "{:?}", report.unchanged);
    }
}

/// The path is that of the original model, not of the rewritten one.
#[test]
fn errors_of_rewritten_models_name_the_library_and_not_the_file() {
    let file = ModelBytes::new(composite("my.broken", 1).to_bytes().unwrap());
    let model = Model::from_bytes_named(file, "original.tflite").unwrap();
    let pipelines = [Pipeline::empty().library(&library()), Pipeline::empty().composite(Broken)];
    let [library, program] = pipelines.map(|pipeline| pipeline.run(&model).unwrap_err().chain());
    assert!(!library.contains("original.tflite"), "{library}");
    // The place of the composite, and not the place in the rewritten model.
    assert_eq!(program.matches("original.tflite").count(), 1, "{program}");
    assert!(program.contains("the pass \"my.broken\" made a model that cannot be prepared"), "{program}");
}
