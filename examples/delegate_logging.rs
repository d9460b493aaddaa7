//! A delegate that prints its arguments and forwards all calls to another delegate, which may claim nothing. Run it
//! with `cargo run --example delegate_logging -- MODEL.tflite`.

use delegraph::core::NodeId;
use delegraph::delegate_api::{
    Capabilities, Delegate, DelegateContext, NodeView, Policy, Rejection, TensorInfo, VersionTable,
};
use delegraph::{Interpreter, Result};

/// The sink of printed lines.
pub(crate) type Log = fn(&str);

/// Prints the calls of `inner` and their results.
pub(crate) struct Logging<D> {
    pub(crate) inner: D,
    pub(crate) log: Log,
}

impl<D: Delegate> Delegate for Logging<D> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn max_versions(&self) -> &VersionTable {
        self.inner.max_versions()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let (graph, log) = (cx.graph(), self.log);
        let subgraph = graph.subgraph();
        log(&format!("subgraph {} \"{}\": {} nodes", graph.index(), subgraph.name(), subgraph.nodes().len()));
        for node in graph.nodes() {
            log(&describe(&node));
        }
        // The partitions if all nodes were claimed.
        let claimable: Vec<NodeId> =
            graph.nodes().filter(|n| cx.may_claim(n).is_ok()).map(|n| n.id()).collect();
        let partitions = cx.preview_partitions(&claimable);
        log(&format!(
            "within the table of versions: {} nodes; partitions: {}",
            claimable.len(),
            partitions.len()
        ));
        for partition in partitions {
            let nodes: Vec<usize> = partition.nodes.iter().map(|n| n.0).collect();
            let (inputs, outputs) = (partition.inputs.len(), partition.outputs.len());
            log(&format!("  nodes {nodes:?}: inputs {inputs}, outputs {outputs}"));
        }
        self.inner.prepare(cx)
    }
}

/// Returns a node as a line: op, version, state and operands.
pub(crate) fn describe(node: &NodeView<'_>) -> String {
    let state = node.state();
    let facts = [
        (state.folded, "folded"),
        (state.dynamic, "dynamic"),
        (state.side_effects, "side effects"),
        (state.overridden, "overridden"),
        (state.taken, "taken"),
    ];
    let facts: Vec<&str> = facts.into_iter().filter(|(is, _)| *is).map(|(_, fact)| fact).collect();
    let inputs: Vec<String> =
        (0..node.input_count()).map(|i| node.input(i).map_or("-".into(), |t| tensor(&t))).collect();
    let outputs: Vec<String> = node.outputs().map(|t| tensor(&t)).collect();
    let facts = if facts.is_empty() { String::new() } else { format!(" [{}]", facts.join(", ")) };
    let (number, op, version) = (node.id().0, node.op(), node.version());
    format!("  node {number} {op} v{version}{facts}: {} -> {}", inputs.join(", "), outputs.join(", "))
}

fn tensor(t: &TensorInfo<'_>) -> String {
    let shape = t.shape().map_or("[?]".into(), |shape| shape.to_string());
    let kind = if t.is_constant() { " constant" } else { "" };
    let kind = if t.is_variable() { " variable" } else { kind };
    format!("{} {shape}{kind}", t.ty())
}

/// Claims nothing.
pub(crate) struct Nothing(pub(crate) VersionTable);

impl Delegate for Nothing {
    fn name(&self) -> &str {
        "logging"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.0
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let graph = cx.graph();
        graph.nodes().for_each(|n| cx.reject(n.id(), Rejection::Other("only looked at".into())));
        Ok(())
    }
}

pub(crate) fn main() -> Result<()> {
    let embedded = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/digits/digits_float32.tflite");
    let path = std::env::args().nth(1).unwrap_or_else(|| embedded.into());
    let model = delegraph::load(path)?;
    // With a table of every op of the model at its version, the preview shows the largest possible partitions.
    let ops = model.subgraphs().iter().flat_map(|s| s.nodes());
    let versions = ops.fold(VersionTable::default(), |table, node| {
        let highest = table.max_version(node.op()).map_or(node.version(), |v| v.max(node.version()));
        table.with_op(node.op().clone(), highest)
    });
    let delegate = Logging { inner: Nothing(versions), log: |line| println!("{line}") };
    Interpreter::builder(model).delegate(delegate).policy(Policy::Report).build()?;
    Ok(())
}
