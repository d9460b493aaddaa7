//! `diff`: the differences between a delegate's results and those of the reference kernels, and the node that causes
//! them.

use std::sync::Arc;

use delegraph::core::kernel::RuntimeTensor;
use delegraph::core::{NodeId, Subgraph, TensorId, printable};
use delegraph::delegate_api::PartitionOptions;
use delegraph::interpreter::InterpreterBuilder;
use delegraph::{Interpreter, Model};
use delegraph_conformance::compare::{Tolerance, compare, numbers};
use serde::Serialize;

use super::budgets;
use super::delegates::{Delegation, Engine};
use super::failure::{Exit, Failure};
use super::inputs::{Entry, InputFile, Resize};
use super::model::ModelArgument;
use super::numbers::{ANY, whole};
use super::output::{Document, Output, table};
use super::text::{plural, raw_name, short_number};

/// Compare a delegate's results with those of the reference kernels
///
/// A tensor is good where it is within the tolerance of `conformance`: float32 1e-5 + 1e-4 of the largest expected
/// magnitude, float16 5e-3 of it, quantized ones one step, everything else exactly.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArgument,
    /// Run this entry point
    #[arg(long, value_name = "KEY")]
    signature: Option<String>,
    /// Data of an input, as for `run`
    #[arg(long = "input", value_name = "[NAME=]FILE.npy")]
    inputs: Vec<InputFile>,
    /// Give an input another shape
    #[arg(long = "resize", value_name = "NAME=1x224x224x3")]
    resizes: Vec<Resize>,
    /// Seed of the random data
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>(0..=ANY), allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    engine: Engine,
    /// Compare the results of each node. Neighbours are delegated apart from each other, so that nothing is fused
    #[arg(long)]
    per_node: bool,
    /// Delegate more and more of the first nodes, the rest on the reference kernels, and find the first one with which
    /// an output goes wrong
    #[arg(long)]
    bisect: bool,
}

#[derive(Serialize)]
struct Diff {
    model: String,
    delegate: String,
    outputs: Vec<Line>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<NodeLine>>,
    /// With `--per-node`: the first node whose result is outside of the tolerance and whose inputs are all within it.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_bad: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bisect: Option<Bisected>,
    #[serde(flatten)]
    delegation: Delegation,
    ok: bool,
}

/// A tensor of both runs.
#[derive(Serialize)]
struct Line {
    tensor: String,
    r#type: &'static str,
    shape: Vec<usize>,
    #[serde(flatten)]
    difference: Difference,
}

#[derive(Serialize)]
struct NodeLine {
    node: usize,
    op: String,
    runner: String,
    #[serde(flatten)]
    line: Line,
    /// All inputs match the reference.
    inputs_ok: bool,
}

#[derive(Serialize)]
struct Difference {
    /// Infinite (null) where one side is NaN or infinite and the other is not.
    max_abs: f64,
    max_rel: f64,
    /// In units of the last place, for floats.
    max_ulp: Option<f64>,
    /// The cosine of the angle between the two, as vectors.
    cosine: f64,
    /// The number of NaN in the result, and in the expected one.
    nan: [usize; 2],
    allowed: f64,
    ok: bool,
}

/// The node that causes wrong outputs.
#[derive(Serialize)]
struct Bisected {
    /// The outputs are within the tolerance without this node, and outside of it with this node.
    node: Option<usize>,
    op: Option<String>,
    /// Whether they are also outside of the tolerance with only this node. Otherwise errors accumulate, or several fused
    /// nodes are needed.
    alone: bool,
    /// The number of runs.
    runs: usize,
}

/// A model with its inputs, to be run in different ways.
struct Subject<'a> {
    arguments: &'a Arguments,
    model: Arc<Model>,
    expected: Interpreter,
    /// The run with delegates. Its model numbers nodes as delegates see them: bodies may have replaced composites.
    got: Interpreter,
    /// The subgraph that is run.
    entry: usize,
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    if arguments.bisect && !arguments.engine.delegates_anything() {
        let text = "--bisect needs a delegate: there is nothing to take nodes from";
        return Err(Failure::new(Exit::Usage, text).with_help("--per-node compares CPU kernels"));
    }
    let model = Arc::new(arguments.model.load()?);
    arguments.engine.check(&model)?;
    let mut builder =
        Interpreter::builder(model.clone()).resolver(arguments.engine.reference()?).limits(budgets::limits());
    if arguments.per_node {
        builder = builder.preserve_all_tensors();
    }
    let entry = match arguments.signature.as_deref().and_then(|key| model.signature(key)) {
        Some(signature) => signature.subgraph(),
        None => 0,
    };
    let expected = invoke(arguments, builder)?;
    let builder = arguments.engine.configure_limited(Interpreter::builder(model.clone()), |_| {})?;
    let got = invoke(arguments, builder)?;
    let subject = Subject { arguments, model, expected, got, entry };
    let outputs = subject.outputs(&subject.got)?;
    let mut diff = Diff {
        model: arguments.model.name(),
        delegate: arguments.engine.label(),
        ok: outputs.iter().all(|line| line.difference.ok),
        outputs,
        nodes: None,
        first_bad: None,
        bisect: None,
        delegation: arguments.engine.delegation(&subject.got, subject.entry),
    };
    if arguments.per_node {
        let nodes = subject.per_node()?;
        diff.first_bad = nodes.iter().find(|n| n.inputs_ok && !n.line.difference.ok).map(|n| n.node);
        diff.ok &= nodes.iter().all(|n| n.line.difference.ok);
        diff.nodes = Some(nodes);
    }
    if arguments.bisect {
        diff.bisect = Some(subject.bisect()?);
    }
    let exit = if diff.ok { Exit::Fine } else { Exit::Failed };
    out.print(&diff)?;
    Ok(exit)
}

/// Builds an interpreter and runs it on the requested inputs.
fn invoke(arguments: &Arguments, builder: InterpreterBuilder) -> Result<Interpreter, Failure> {
    let mut interpreter = builder.build()?;
    let entry = Entry::select(&mut interpreter, arguments.signature.as_deref())?;
    let filled = entry.fill(&mut interpreter, &arguments.inputs, &arguments.resizes, arguments.seed)?;
    filled.invoke(&mut interpreter)?;
    Ok(interpreter)
}

impl Subject<'_> {
    fn subgraph(&self) -> &Subgraph {
        &self.got.model().subgraphs()[self.entry]
    }

    fn run(
        &self,
        configure: impl FnOnce(InterpreterBuilder) -> Result<InterpreterBuilder, Failure>,
    ) -> Result<Interpreter, Failure> {
        invoke(self.arguments, configure(Interpreter::builder(self.model.clone()))?)
    }

    /// A run in which delegates get the nodes within the limits of `adjust`, and the reference kernels run the rest.
    fn run_limited(
        &self,
        adjust: impl Fn(&mut PartitionOptions),
        preserve: bool,
    ) -> Result<Interpreter, Failure> {
        let limited = |mut builder: InterpreterBuilder| {
            if preserve {
                builder = builder.preserve_all_tensors();
            }
            let builder = self.arguments.engine.configure_limited(builder, adjust)?;
            // The bisection searches for the delegate's share of the difference.
            let delegated = self.arguments.engine.delegates_anything();
            Ok(if delegated {
                builder.resolver(self.arguments.engine.reference()?).limits(budgets::limits())
            } else {
                builder
            })
        };
        self.run(limited)
    }

    fn outputs(&self, got: &Interpreter) -> Result<Vec<Line>, Failure> {
        (0..got.output_count())
            .map(|i| Ok(Line::new(got.output_tensor(i)?, self.expected.output_tensor(i)?)))
            .collect()
    }

    /// Compares the tensors that nodes compute, in the order of the nodes.
    fn per_node(&self) -> Result<Vec<NodeLine>, Failure> {
        let colours = self.colours();
        let count = colours.iter().max().map_or(0, |most| most + 1);
        let engine = &self.arguments.engine;
        // A delegate for each colour, so that no partition has two neighbouring nodes.
        let apart = |mut builder: InterpreterBuilder| {
            for colour in 0..count {
                let others = (0..colours.len()).filter(|&n| colours[n] != colour).map(NodeId);
                let others: Vec<NodeId> = others.collect();
                let exclude = |limits: &mut PartitionOptions| limits.excluded_nodes.extend(&others);
                builder = engine.configure_limited(builder, exclude)?;
            }
            if engine.delegates_anything() {
                builder = builder.resolver(engine.reference()?).limits(budgets::limits());
            }
            Ok(builder.preserve_all_tensors())
        };
        let got =
            if engine.delegates_anything() { self.run(apart)? } else { self.run_limited(|_| {}, true)? };
        let (report, subgraph) = (got.report(), &got.model().subgraphs()[self.entry]);
        let mut bad = vec![false; subgraph.tensors().len()];
        let mut lines = Vec::new();
        for node in &report.nodes {
            use delegraph::delegate_api::Runner;
            let runner = match node.runner {
                Runner::Folded => continue,
                Runner::Delegate { delegate, .. } => {
                    report.delegates.get(delegate).cloned().unwrap_or_default()
                }
                _ if engine.delegates_anything() => "reference".into(),
                _ => engine.cpu_name().to_owned(),
            };
            let own = subgraph.node(node.node);
            let inputs_ok = !own.inputs().iter().flatten().any(|id| bad.get(id.0) == Some(&true));
            for id in own.outputs() {
                let (Ok(g), Ok(e)) = (got.tensor(*id), self.expected.tensor(*id)) else { continue };
                // A composite that a delegate rejected is inlined later than in `expected`, so that its tensors have
                // other numbers.
                if g.name != e.name {
                    continue;
                }
                let line = Line::new(g, e);
                if let Some(bad) = bad.get_mut(id.0) {
                    *bad = !line.difference.ok;
                }
                let (node, op, runner) = (node.node.0, raw_name(&node.op), runner.clone());
                lines.push(NodeLine { node, op, runner, line, inputs_ok });
            }
        }
        Ok(lines)
    }

    /// A number for each node that differs from the numbers of the producers of its inputs.
    fn colours(&self) -> Vec<usize> {
        let subgraph = self.subgraph();
        let mut writers = vec![None; subgraph.tensors().len()];
        let mut colours: Vec<usize> = Vec::new();
        for (i, node) in subgraph.nodes().iter().enumerate() {
            let writer = |id: &TensorId| writers.get(id.0).copied().flatten();
            let taken: Vec<usize> = node
                .inputs()
                .iter()
                .flatten()
                .filter_map(writer)
                .filter_map(|n: usize| colours.get(n).copied())
                .collect();
            colours.push((0..).find(|colour| !taken.contains(colour)).unwrap_or(0));
            node.outputs().iter().filter_map(|id| writers.get_mut(id.0).map(|w| *w = Some(i))).for_each(drop);
        }
        colours
    }

    fn bisect(&self) -> Result<Bisected, Failure> {
        let mut runs = 0;
        let mut good = |from: usize, to: usize| -> Result<bool, Failure> {
            runs += 1;
            let within = |limits: &mut PartitionOptions| {
                let asked = limits.nodes.clone().unwrap_or(0..usize::MAX);
                limits.nodes = Some(asked.start.max(from)..asked.end.min(to));
            };
            let got = self.run_limited(within, false)?;
            Ok(self.outputs(&got)?.iter().all(|line| line.difference.ok))
        };
        let count = self.subgraph().nodes().len();
        // Outputs match when the first `without` nodes are delegated, and differ with the first `with`.
        let (mut without, mut with) = (0, count);
        if good(0, count)? {
            return Ok(Bisected { node: None, op: None, alone: false, runs });
        }
        while without + 1 < with {
            let middle = without.midpoint(with);
            if good(0, middle)? { without = middle } else { with = middle }
        }
        let alone = !good(without, with)?;
        let op = self.subgraph().nodes().get(without).map(|node| raw_name(node.op()));
        Ok(Bisected { node: Some(without), op, alone, runs })
    }
}

impl Line {
    fn new(got: &RuntimeTensor, expected: &RuntimeTensor) -> Self {
        Line {
            tensor: expected.name.to_string(),
            r#type: expected.ty.name(),
            shape: expected.shape.to_vec(),
            difference: Difference::between(got, expected),
        }
    }
}

impl Difference {
    fn between(got: &RuntimeTensor, expected: &RuntimeTensor) -> Self {
        let ty = expected.ty;
        let both = numbers(ty, got.bytes()).zip(numbers(ty, expected.bytes()));
        let same = got.ty == ty && got.shape == expected.shape;
        let Some((g, e)) = both.filter(|_| same) else {
            // Strings, packed integers and similar types are either equal or not.
            let ok = same && got.bytes() == expected.bytes();
            let max_abs = if ok { 0.0 } else { f64::INFINITY };
            let cosine = if ok { 1.0 } else { 0.0 };
            return Difference {
                max_abs,
                max_rel: max_abs,
                max_ulp: None,
                cosine,
                nan: [0; 2],
                allowed: 0.0,
                ok,
            };
        };
        let comparison = compare(&g, &e, Tolerance::of(ty, expected.quantization.is_some()));
        let pairs = || g.iter().copied().zip(e.iter().copied());
        let finite = || pairs().filter(|(g, e)| g.is_finite() && e.is_finite());
        let product = |f: fn((f64, f64)) -> f64| finite().map(f).sum::<f64>();
        let (gg, ee) = (product(|(g, _)| g * g), product(|(_, e)| e * e));
        let cosine = if gg == 0.0 && ee == 0.0 { 1.0 } else { product(|(g, e)| g * e) / (gg * ee).sqrt() };
        let relative = |(g, e): (f64, f64)| if g == e { 0.0 } else { (g - e).abs() / e.abs() };
        let ulp = ulp_of(ty).map(|ulp| {
            finite().map(|(g, e)| if g == e { 0.0 } else { (g - e).abs() / ulp(e.abs()) }).fold(0.0, f64::max)
        });
        let nan = [&g, &e].map(|all| all.iter().filter(|v| v.is_nan()).count());
        Difference {
            max_abs: comparison.max_abs,
            max_rel: finite().map(relative).fold(0.0, f64::max),
            max_ulp: ulp,
            cosine: if cosine.is_nan() { 0.0 } else { cosine },
            nan,
            allowed: comparison.allowed,
            ok: comparison.passes(),
        }
    }
}

/// Returns the function from a magnitude to the unit in the last place of a float type; `None` for other types.
fn ulp_of(ty: delegraph::TensorType) -> Option<impl Fn(f64) -> f64> {
    use delegraph::TensorType as T;
    let (fraction, least) = match ty {
        T::Float32 | T::Complex64 => (23, -126),
        T::Float64 | T::Complex128 => (52, -1022),
        T::Float16 => (10, -14),
        T::BFloat16 => (7, -126),
        _ => return None,
    };
    Some(move |magnitude: f64| {
        let exponent = if magnitude > 0.0 { magnitude.log2().floor() as i32 } else { least };
        2f64.powi(exponent.max(least) - fraction)
    })
}

impl Line {
    fn row(&self) -> Vec<String> {
        let d = &self.difference;
        let number = short_number;
        let nan = if d.nan == [0, 0] { String::new() } else { format!("{} of {}", d.nan[0], d.nan[1]) };
        vec![
            self.tensor.clone(),
            self.r#type.into(),
            number(d.max_abs),
            number(d.allowed),
            number(d.max_rel),
            d.max_ulp.map_or_else(String::new, |v| number(v.round())),
            format!("{:.9}", d.cosine),
            nan,
            if d.ok { "good" } else { "BAD" }.into(),
        ]
    }
}

const HEADER: [&str; 9] =
    ["tensor", "type", "max abs", "allowed", "max rel", "max ulp", "cosine", "NaN (expected)", ""];

impl Document for Diff {
    fn text(&self) -> String {
        let model = printable(&self.model);
        let mut text = format!("{model} on {}, compared with the reference kernels\n", self.delegate);
        text += &self.delegation.text();
        text += &table(&HEADER, &[2, 3, 4, 5, 6, 7], self.outputs.iter().map(Line::row));
        if let Some(nodes) = &self.nodes {
            let row = |n: &NodeLine| {
                let own = [n.node.to_string(), n.op.clone(), n.runner.clone()];
                own.into_iter().chain(n.line.row()).collect()
            };
            let header = [&["node", "op", "on"], &HEADER[..]].concat();
            text += &format!("\n{}", table(&header, &[5, 6, 7, 8, 9, 10], nodes.iter().map(row)));
            text += &match self.first_bad {
                Some(node) => format!("\nthe first bad node is {node}: all that it reads is good\n"),
                None => "\nno node with good inputs is bad\n".into(),
            };
        }
        if let Some(Bisected { node, op, alone, runs }) = &self.bisect {
            text += &match (node, op) {
                (Some(node), Some(op)) => {
                    let alone = if *alone {
                        "it is bad alone, too"
                    } else {
                        "alone it is correct: errors add up, or it needs the nodes before it"
                    };
                    format!(
                        "\nwith node {node} ({}) the outputs go wrong; {alone} ({})\n",
                        printable(op),
                        plural(*runs, "run")
                    )
                }
                _ => "\nthe outputs are good with all nodes delegated: there is nothing to find\n".into(),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_the_last_place() {
        let ulp = ulp_of(delegraph::TensorType::Float32).unwrap();
        assert_eq!(ulp(1.0), f64::from(f32::EPSILON));
        assert_eq!(ulp(3.9), 2.0 * f64::from(f32::EPSILON));
        assert_eq!(ulp(0.0), f64::from(f32::from_bits(1)));
        assert!(ulp_of(delegraph::TensorType::Int32).is_none());
    }
}
