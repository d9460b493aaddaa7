//! The contents of a picture of a graph, independent of the format.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use delegraph::core::{NodeId, TensorId, printable};
use delegraph::delegate_api::{GraphView, NodeReport, NodeView, PartitionReport, Report, Runner, TensorInfo};
use delegraph::documents::Runners;
use serde::Serialize;

use super::super::output::{bytes, work};
use super::super::text::plural;

/// A graph to draw. Every edge points from a vertex to a later one. All texts are printable.
#[derive(Serialize)]
pub(super) struct Scene {
    /// The index of the subgraph.
    pub(super) subgraph: usize,
    pub(super) title: String,
    pub(super) vertices: Vec<Vertex>,
    pub(super) edges: Vec<Edge>,
    pub(super) legend: Vec<Line>,
}

/// A line of the legend.
#[derive(Serialize)]
pub(super) struct Line {
    pub(super) look: Look,
    pub(super) text: String,
}

/// A node, or an input or output of the graph.
#[derive(Serialize)]
pub(super) struct Vertex {
    pub(super) look: Look,
    /// Computed while preparing, as all inputs are constant.
    pub(super) folded: bool,
    /// The node's number; none for inputs and outputs.
    pub(super) node: Option<usize>,
    /// The op.
    pub(super) label: String,
    /// The node's number and runner.
    pub(super) detail: String,
    /// The node's runner.
    #[serde(skip)]
    pub(super) runner: String,
    /// All details, in lines.
    pub(super) title: String,
    /// The subgraphs that it calls: the condition and the body of a loop, the body of a composite.
    pub(super) callees: Vec<usize>,
}

/// The runner of nodes that are on the CPU in the graph's own report.
pub(super) struct Rest<'a> {
    /// The name of the kernels, or of the partition that runs the whole subgraph.
    pub(super) name: &'a str,
    pub(super) look: Look,
    pub(super) runners: Runners<'a>,
}

impl Rest<'_> {
    /// Returns whether a node would run on the CPU, but has no kernel.
    fn lacks(&self, node: &NodeReport) -> bool {
        node.runner == Runner::Cpu && self.look == Look::Cpu && self.runners.lack(node)
    }
}

/// The properties that determine a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Look {
    /// An input or output of the graph.
    Border,
    /// Runs on the CPU.
    Cpu,
    /// Cannot run: no kernel is registered.
    None,
    /// Computed while preparing.
    Folded,
    /// Runs in the delegate's `number`th partition.
    Partition { delegate: usize, number: usize },
}

/// A tensor from its producer to a consumer.
#[derive(Serialize)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) tensor: usize,
    /// The shape in short form.
    pub(super) label: String,
    pub(super) title: String,
    /// Whether it crosses the border of a partition.
    pub(super) crosses: bool,
    /// Whether it is known before running.
    pub(super) constant: bool,
}

impl Scene {
    /// Creates the picture of `graph`; `rest` runs unclaimed nodes.
    pub(super) fn new(title: String, graph: &GraphView<'_>, report: &Report, rest: &Rest<'_>) -> Self {
        let subgraph = graph.subgraph();
        let looks = looks(report, rest);
        let border = |what: &str, i: usize, id: TensorId| {
            let tensor = graph.tensor(id);
            let (label, title) = (format!("{what} {i} · {}", tensor.ty()), describe(&tensor));
            let detail = short(&printable(tensor.name()), 32);
            let (runner, callees) = (String::new(), Vec::new());
            Vertex { look: Look::Border, folded: false, node: None, label, detail, runner, title, callees }
        };
        let inputs = subgraph.inputs().iter().enumerate().map(|(i, &id)| border("input", i, id));
        let composites = composites(report);
        let nodes = report.nodes.iter().zip(&looks);
        let nodes = nodes.map(|(n, &look)| node(graph, report, n, look, rest, &composites));
        let outputs = subgraph.outputs().iter().enumerate().map(|(i, &id)| border("output", i, id));
        let vertices: Vec<Vertex> = inputs.chain(nodes).chain(outputs).collect();

        // The producer of each tensor among the nodes visited so far.
        let mut source: Vec<Option<usize>> = vec![None; graph.tensor_count()];
        subgraph.inputs().iter().enumerate().for_each(|(i, id)| source[id.0] = Some(i));
        let mut edges = Vec::new();
        let mut known = HashSet::new();
        let look = |vertex: usize| vertices.get(vertex).map_or(Look::Border, |v| v.look);
        let mut connect = |source: &[Option<usize>], id: TensorId, to: usize| {
            let Some(from) = source[id.0].filter(|&from| known.insert((from, to, id))) else { return };
            let tensor = graph.tensor(id);
            let constant = tensor.is_constant();
            let partition = |vertex| Some(look(vertex)).filter(|l| matches!(l, Look::Partition { .. }));
            let dims = tensor.shape().map(|s| s.iter().map(usize::to_string).collect::<Vec<_>>().join("×"));
            edges.push(Edge {
                from,
                to,
                tensor: id.0,
                label: dims
                    .map_or_else(|| "?".into(), |dims| if dims.is_empty() { "scalar".into() } else { dims }),
                title: describe(&tensor),
                crosses: !constant && partition(from) != partition(to),
                constant,
            });
        };
        for (i, node) in subgraph.nodes().iter().enumerate() {
            let own = subgraph.inputs().len() + i;
            node.inputs().iter().flatten().for_each(|&id| connect(&source, id, own));
            node.outputs().iter().for_each(|id| source[id.0] = Some(own));
        }
        for (i, &id) in subgraph.outputs().iter().enumerate() {
            connect(&source, id, subgraph.inputs().len() + subgraph.nodes().len() + i);
        }
        let folded = vertices.iter().filter(|v| v.folded).count();
        let legend = legend(report, &looks, folded, rest);
        Scene { subgraph: graph.index(), title: printable(&title).into_owned(), legend, vertices, edges }
    }
}

/// Returns the style of each node.
fn looks(report: &Report, rest: &Rest<'_>) -> Vec<Look> {
    let look = |n: &NodeReport| match n.runner {
        Runner::Folded => Look::Folded,
        Runner::Delegate { delegate, partition } => {
            let earlier = report.partitions.iter().take(partition);
            Look::Partition { delegate, number: earlier.filter(|p| p.delegate == delegate).count() }
        }
        _ if rest.lacks(n) => Look::None,
        _ => rest.look,
    };
    report.nodes.iter().map(look).collect()
}

fn legend(report: &Report, looks: &[Look], folded: usize, rest: &Rest<'_>) -> Vec<Line> {
    const PARTITIONS: usize = 12;
    let name = |delegate: usize| printable(report.delegates.get(delegate).map_or("", String::as_str));
    let line = |(i, p): (usize, &PartitionReport)| {
        let look = *looks.get(p.nodes.first()?.0)?;
        let (nodes, work) = (plural(p.nodes.len(), "node"), work(p.multiply_adds));
        let border = bytes(p.boundary_bytes);
        let text = format!("{} #{i}: {nodes}, {work}, {border} over its borders", name(p.delegate));
        Some(Line { look, text })
    };
    let mut lines: Vec<Line> =
        report.partitions.iter().enumerate().take(PARTITIONS).filter_map(line).collect();
    if let Some(more) = report.partitions.len().checked_sub(PARTITIONS).filter(|&more| more > 0) {
        lines.push(Line { look: Look::Border, text: format!("and {}", plural(more, "more partition")) });
    }
    let lacking = report.nodes.iter().filter(|n| rest.lacks(n)).count();
    let unclaimed = report.nodes.iter().filter(|n| n.runner == Runner::Cpu).count() - lacking;
    let rows = [
        (rest.look, rest.name, unclaimed),
        (Look::None, "without a kernel", lacking),
        (Look::Folded, "computed while preparing", folded),
    ];
    for (look, what, count) in rows {
        if count > 0 {
            lines.push(Line { look, text: format!("{what}: {}", plural(count, "node")) });
        }
    }
    lines
}

/// Returns for each node a line per rejection of a composite that contains the node.
fn composites(report: &Report) -> HashMap<NodeId, Vec<Rc<str>>> {
    let mut lines: HashMap<NodeId, Vec<Rc<str>>> = HashMap::new();
    for composite in &report.composites {
        for (delegate, reason) in &composite.rejections {
            let delegate = report.delegates.get(*delegate).map_or("", String::as_str);
            let text = composite.describe(reason);
            let line = format!(
                "not as a whole on {}: {} ({})",
                printable(delegate),
                printable(&text),
                reason.kind()
            );
            let line: Rc<str> = line.into();
            composite.nodes.iter().for_each(|node| lines.entry(*node).or_default().push(line.clone()));
        }
    }
    lines
}

fn node(
    graph: &GraphView<'_>,
    report: &Report,
    n: &NodeReport,
    look: Look,
    rest: &Rest<'_>,
    composites: &HashMap<NodeId, Vec<Rc<str>>>,
) -> Vertex {
    let delegate = |i: usize| printable(report.delegates.get(i).map_or("", String::as_str));
    let runner = match n.runner {
        Runner::Folded => "folded".into(),
        Runner::Delegate { delegate: d, partition } => format!("{} #{partition}", delegate(d)),
        _ if rest.lacks(n) => rest.runners.of(n).to_owned(),
        _ => rest.name.to_owned(),
    };
    let id = n.node.0;
    let view: NodeView<'_> = graph.node(n.node);
    let mut title = format!("node {id}: {} v{}\nruns on {runner}", n.op, n.version);
    let multiply_adds = view.cost().multiply_adds;
    if multiply_adds > 0 {
        title += &format!("\n{}", work(multiply_adds));
    }
    view.inputs().for_each(|t| title += &format!("\nin: {}", describe(&t)));
    view.outputs().for_each(|t| title += &format!("\nout: {}", describe(&t)));
    for (d, reason) in n.rejections.iter().filter(|_| n.runner == Runner::Cpu) {
        let text = reason.to_string();
        title += &format!("\nnot on {}: {} ({})", delegate(*d), printable(&text), reason.kind());
    }
    composites.get(&n.node).into_iter().flatten().for_each(|line| title += &format!("\n{line}"));
    let callees: Vec<usize> = graph.subgraph().node(n.node).callees().collect();
    for callee in &callees {
        let name = graph.model().subgraphs().get(*callee).map_or("", |subgraph| subgraph.name());
        title += &format!("\ncalls subgraph {callee} \"{}\"", printable(name));
    }
    Vertex {
        look,
        folded: view.state().folded,
        node: Some(id),
        label: format!("{} v{}", short(&n.op.to_string(), 36), n.version),
        detail: format!("{id} · {runner}"),
        runner,
        title,
        callees,
    }
}

/// Name, type, shape and size.
fn describe(tensor: &TensorInfo<'_>) -> String {
    let name = match tensor.name() {
        "" => format!("tensor {}", tensor.id().0),
        name => printable(name).into_owned(),
    };
    let size = tensor.shape().and_then(|_| tensor.tensor().byte_size().ok());
    match tensor.shape() {
        Some(shape) => {
            let size = size.map(|size| format!(", {}", bytes(size))).unwrap_or_default();
            let constant = if tensor.is_constant() { ", constant" } else { "" };
            format!("{name} {} {shape}{size}{constant}", tensor.ty())
        }
        None => format!("{name} {}, shape known while running", tensor.ty()),
    }
}

/// At most `length` characters.
fn short(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some((end, _)) => text[..end].to_owned() + "…",
        None => text.to_owned(),
    }
}
