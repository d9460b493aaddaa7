//! Partitions, and limits on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{BuiltinOp, Error, NodeId, Op, Result, SubgraphBuilder, TensorType};
use delegraph_delegate_api::{
    CostModel, Delegate, DelegateContext, DelegateKernel, DelegateParams, GraphView, NodeView,
    PartitionOptions, Policy, Rates, Rejection, Simple, SimpleDelegate, VersionTable,
};
use delegraph_interpreter::{Interpreter, ResourceLimits};

use crate::support::{
    ABS, ADD, MUL, NEG, Scripted, X, build, chain, on_cpu, partitions, reasons, run, step, with,
};

/// Partitions of 1, 2 and 3 nodes, separated by CPU nodes.
fn three() -> delegraph_core::Model {
    chain(&[NEG, ABS, NEG, ADD, ABS, NEG, ADD, MUL])
}

fn limited(limits: PartitionOptions) -> Interpreter {
    let delegate = Scripted::new("d", &[NEG, ADD, MUL]);
    let model = three();
    let mut interpreter =
        Interpreter::builder(model.clone()).delegate_with(delegate, limits).build().unwrap();
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    interpreter
}

#[test]
fn as_few_partitions_as_the_order_allows() {
    assert_eq!(partitions(&limited(PartitionOptions::default())), [vec![0], vec![2, 3], vec![5, 6, 7]]);
    // Two branches, each with a CPU node at a different place: the claimed nodes still form two partitions.
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let mut ends = Vec::new();
    for (branch, ops) in [[NEG, ABS, NEG], [NEG, NEG, ABS]].iter().enumerate() {
        let mut value = x;
        for (i, &op) in ops.iter().enumerate() {
            value = step(&mut graph, op, value, &format!("{branch}.{i}"));
        }
        ends.push(value);
    }
    let sum = graph.node(ADD, crate::support::params(ADD)).inputs(ends).output("sum");
    graph.outputs([sum]);
    let model = build(graph);
    let mut interpreter = with(&model, [Scripted::new("d", &[NEG, ADD])]).build().unwrap();
    assert_eq!(partitions(&interpreter), [vec![0, 3, 4], vec![2, 6]]);
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
}

#[test]
fn the_largest_partitions_up_to_the_limit() {
    let limits = PartitionOptions::default().with_max_partitions(2);
    let interpreter = limited(limits);
    assert_eq!(partitions(&interpreter), [vec![2, 3], vec![5, 6, 7]]);
    assert!(reasons(&interpreter).contains(&(0, "TooManyPartitions")));
}

#[test]
fn small_partitions_are_left() {
    let interpreter = limited(PartitionOptions::default().with_min_nodes(3));
    assert_eq!(partitions(&interpreter), [[5, 6, 7]]);
    assert!(reasons(&interpreter).contains(&(2, "PartitionTooSmall")));
}

/// Supports no node, and takes 20 ms for each.
struct Slow {
    versions: VersionTable,
    asked: Arc<AtomicUsize>,
}

impl SimpleDelegate for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn supports(&self, _node: &NodeView<'_>) -> Result<(), Rejection> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
        Err(Rejection::Other("slow".into()))
    }

    fn create_kernel(
        &mut self,
        _params: &DelegateParams,
        _graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        Err(Error::Kernel("no node was claimed".into()))
    }
}

#[test]
fn a_delegate_is_interrupted_between_nodes() {
    let asked = Arc::new(AtomicUsize::new(0));
    let delegate = || Slow { versions: VersionTable::new(&[(NEG, 1)]), asked: Arc::clone(&asked) };
    let model = chain(&[NEG; 100]);
    let limits = ResourceLimits::default().with_time(Duration::from_millis(200));
    let built = Interpreter::builder(model.clone()).delegate(Simple(delegate())).limits(limits).build();
    assert!(matches!(built, Err(Error::LimitExceeded(_))), "{built:?}");
    let before = asked.load(Ordering::Relaxed);
    assert!((1..100).contains(&before), "{before}");
    // Without a limit all nodes are asked, and the delegate has not failed.
    let mut interpreter = Interpreter::builder(model).delegate(Simple(delegate())).build().unwrap();
    assert_eq!(asked.load(Ordering::Relaxed) - before, 100);
    assert!(interpreter.report().failures.is_empty());
    assert!(run(&mut interpreter, &X).is_ok());
}

#[test]
fn a_range_of_nodes_halves_the_search_for_the_one_that_goes_wrong() {
    let interpreter = limited(PartitionOptions::default().with_nodes(3..7));
    assert_eq!(partitions(&interpreter), [vec![3], vec![5, 6]]);
    assert!(reasons(&interpreter).contains(&(7, "Excluded")));
}

#[test]
fn excluded_nodes_and_ops_are_left() {
    let limits = PartitionOptions::default()
        .with_excluded_nodes([NodeId(5)])
        .with_excluded_ops([Op::Builtin(BuiltinOp::MUL)]);
    let interpreter = limited(limits);
    assert_eq!(partitions(&interpreter), [vec![0], vec![2, 3], vec![6]]);
    assert!(
        reasons(&interpreter).contains(&(7, "Excluded")) && reasons(&interpreter).contains(&(5, "Excluded"))
    );
}

#[test]
fn a_partition_must_gain_more_than_its_copies_cost() {
    // One node takes 4 µs on the CPU and 1 µs with the delegate; a partition copies 32 bytes.
    let rates = |multiply_adds| Rates { multiply_adds, bytes: 1e12 };
    let model = CostModel {
        cpu: rates(1e6),
        delegate: rates(4e6),
        copies: 16e6,
        overhead: Duration::from_nanos(3500),
    };
    let interpreter = limited(PartitionOptions::default().with_cost(model));
    // 2 µs of copies and 3.5 of overhead: one node loses 2.5 µs, two gain 0.5.
    assert_eq!(partitions(&interpreter), [vec![2, 3], vec![5, 6, 7]]);
    let reason = interpreter.report().rejected().find(|(n, _)| n.node == NodeId(0)).unwrap().1.to_string();
    assert_eq!(
        reason,
        "not worth its copies: its partition would take 6.5 µs with its copies, 4.0 µs on the CPU"
    );
}

#[test]
fn a_delegate_that_cannot_be_measured_says_why() {
    let error = delegraph_interpreter::measure(1, || Ok(Scripted::new("d", &[NEG]))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "not supported: the delegate d cannot be measured: the measurement uses CONV_2D and AVERAGE_POOL_2D of \
         FLOAT32, and the delegate runs none of them"
    );
    let versions = VersionTable::new(&[(BuiltinOp::AVERAGE_POOL_2D, 1)]);
    let slow = || Ok(Simple(Slow { versions: versions.clone(), asked: Arc::default() }));
    let text = delegraph_interpreter::measure(1, slow).unwrap_err().to_string();
    assert!(text.ends_with("the delegate runs none of them (AVERAGE_POOL_2D: slow)"), "{text}");
}

/// Claims one op, and computes nothing.
struct Idle(VersionTable);

impl SimpleDelegate for Idle {
    fn name(&self) -> &str {
        "idle"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.0
    }

    fn supports(&self, _node: &NodeView<'_>) -> Result<(), Rejection> {
        Ok(())
    }

    fn create_kernel(
        &mut self,
        _params: &DelegateParams,
        _graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        Ok(Box::new(IdleKernel))
    }
}

struct IdleKernel;

impl Kernel for IdleKernel {
    fn prepare(&mut self, _cx: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, _cx: &mut InvokeContext<'_>) -> Result<()> {
        Ok(())
    }
}

impl DelegateKernel for IdleKernel {}

#[test]
fn a_delegate_is_measured_with_the_ops_that_it_runs() {
    for op in [BuiltinOp::AVERAGE_POOL_2D, BuiltinOp::CONV_2D] {
        let idle = || Ok(Simple(Idle(VersionTable::new(&[(op, 1)]))));
        let model = delegraph_interpreter::measure(1, idle).unwrap();
        for rate in [model.cpu, model.delegate].iter().flat_map(|r| [r.multiply_adds, r.bytes]) {
            assert!(rate.is_finite() && rate > 0.0, "{op:?}: {model:?}");
        }
        assert!(model.copies.is_finite() && model.copies > 0.0, "{op:?}: {model:?}");
        // The other op is assumed to gain as much.
        let gain = |rate: fn(&Rates) -> f64| rate(&model.delegate) / rate(&model.cpu);
        approx::assert_relative_eq!(gain(|r| r.multiply_adds), gain(|r| r.bytes), max_relative = 1e-9);
    }
}

#[test]
fn policies_report_prefer_and_require() {
    let model = three();
    let delegate = || Scripted::new("d", &[NEG, ADD]);
    let reported = delegate();
    let seen = reported.seen.clone();
    let mut interpreter = with(&model, [reported]).policy(Policy::Report).build().unwrap();
    assert_eq!(partitions(&interpreter).len(), 3);
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    assert_eq!(seen.log(), ["prepare 0"]);
    let error = with(&model, [delegate()]).policy(Policy::Require).build().err().unwrap();
    assert!(matches!(error, Error::NotDelegated { .. }));
    let text = error.to_string();
    assert!(
        text.contains("3 of 8 nodes are not delegated")
            && text.contains("node 1 (ABS v1): ABS is not supported"),
        "{text}"
    );
    let all = Scripted::new("d", &[NEG, ADD, ABS, MUL]);
    assert_eq!(partitions(&with(&model, [all]).policy(Policy::Require).build().unwrap()).len(), 1);
}

#[test]
fn two_delegates_choose_in_their_order() {
    let model = three();
    let (first, second) = (Scripted::new("first", &[NEG]), Scripted::new("second", &[NEG, ADD, ABS, MUL]));
    let mut interpreter = with(&model, [first, second]).policy(Policy::Require).build().unwrap();
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    let owners: Vec<_> = interpreter.report().partitions.iter().map(|p| (p.delegate, p.nodes[0].0)).collect();
    assert_eq!(owners, [(0, 0), (1, 1), (0, 2), (1, 3), (0, 5), (1, 6)]);
}

#[test]
fn a_delegate_that_claims_nothing_changes_nothing() {
    let model = three();
    let mut interpreter = with(&model, [Scripted::new("idle", &[])]).build().unwrap();
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
    assert!(reasons(&interpreter).iter().all(|(_, kind)| *kind == "UnsupportedOp"));
}

/// A delegate that claims ABS, and gives no reasons for other nodes.
struct Silent(VersionTable);

impl Delegate for Silent {
    fn name(&self) -> &str {
        "silent"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.0
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> delegraph_core::Result<()> {
        let graph = cx.graph();
        let claimed: Vec<NodeId> =
            graph.nodes().filter(|n| n.op().builtin() == Some(ABS)).map(|n| n.id()).collect();
        cx.claim(&claimed, |_, _| Err(Error::State("not run".into())));
        Ok(())
    }
}

#[test]
fn a_node_that_a_delegate_skips_gets_the_reason_that_is_known() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let mut value = x;
    for (op, version) in [(NEG, 1), (ADD, 2), (MUL, 1)] {
        let inputs = if op == NEG { vec![value] } else { vec![value, value] };
        let node = graph.node(op, crate::support::params(op)).version(version);
        value = node.inputs(inputs).output(&format!("{op:?}"));
    }
    graph.outputs([value]);
    let model = build(graph);
    let silent = || Silent(VersionTable::new(&[(ABS, 1), (ADD, 1), (MUL, 1)]));
    let build = |policy| Interpreter::builder(model.clone()).delegate(silent()).policy(policy).build();
    let interpreter = build(Policy::Prefer).unwrap();
    // For a node that it may claim, the reason is unknown.
    let reasons = reasons(&interpreter);
    assert_eq!(reasons, [(0, "UnsupportedOp"), (1, "VersionTooHigh"), (2, "NotClaimed")]);
    let error = build(Policy::Require).err().unwrap().to_string();
    assert!(error.contains("ADD version 2 is above the highest supported, 1"), "{error}");
}

#[test]
fn a_version_below_that_of_the_features_is_rejected_where_these_are_unknown() {
    use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 5, 5, 1]);
    let filter = graph.constant("filter", [1, 2, 2, 1], &[1f32; 4]);
    let params = DepthwiseConv2DParams::default().stride_w(1).stride_h(1).depth_multiplier(1);
    // Dilation needs version 2.
    let params = params.dilation_w_factor(2).dilation_h_factor(2);
    let conv = graph.node(BuiltinOp::DEPTHWISE_CONV_2D, params);
    let y = conv.optional_inputs([Some(x), Some(filter), None]).output("y");
    graph.outputs([y]);
    // The builder does not write such a file.
    let mut draft = build(graph).into_draft();
    draft.subgraphs[0].nodes_mut()[0].set_version(1);
    let model = draft.verify().unwrap();
    let kinds = |max: u32| {
        let table = VersionTable::new(&[(BuiltinOp::DEPTHWISE_CONV_2D, max)]);
        let interpreter = Interpreter::builder(model.clone()).delegate(Silent(table)).build().unwrap();
        reasons(&interpreter)
    };
    assert_eq!(kinds(1), [(0, "UnderstatedVersion")]);
    assert_eq!(kinds(2), [(0, "NotClaimed")]);
    let strict = Interpreter::builder(model.clone()).strict_versions().build().err().unwrap();
    assert_eq!(
        strict.to_string(),
        "versions are too low: DEPTHWISE_CONV_2D version 1 uses features of version 2: node 0"
    );
    assert_eq!(strict.kind(), delegraph_core::error::ErrorKind::Invalid);
}
