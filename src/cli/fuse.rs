//! `fuse`: rewriting a model file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use delegraph::core::error::ErrorKind;
use delegraph::core::writer::{Restamped, RestampedOp};
use delegraph::core::{OpResolver, printable};
use delegraph::fusion::{Change, Comparison, Difference, FusionReport, ModelPair, Pipeline, Unchanged};
use delegraph::{Error, Model, TensorType};
use serde::Serialize;

use super::budgets;
use super::failure::{Exit, Failure};
use super::files;
use super::kernels::{Kernels, LibraryPath};
use super::model::ModelArgument;
use super::numbers::{ANY, whole};
use super::output::{Document, Output, bytes, scaled, table, work};
use super::text::{plural, raw_name, short_number};

/// Rewrite a model file so that it does the same with fewer, larger ops, each at the lowest sufficient version
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArgument,
    /// The file for the rewritten model, which may be MODEL itself
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Change only versions, not ops and tensors
    #[arg(long, conflicts_with_all = REWRITING)]
    versions_only: bool,
    /// Also fuse into custom ops of Delegraph's own, which other runtimes do not have
    #[arg(long)]
    allow_custom: bool,
    /// Also fuse recurrent layers of int8 weights into ops that quantize their inputs at run time, and allow outputs to
    /// differ by what such ops make of a difference in rounding
    #[arg(long)]
    allow_hybrid: bool,
    /// Keep composites that no fusion replaces, for delegates that support them, instead of inlining their bodies
    #[arg(long)]
    keep_composites: bool,
    /// Put fused recurrent ops into the graph itself: their state lasts until it is reset
    #[arg(long)]
    stateful: bool,
    /// Leave out a pass or a fusion; its name is in the report
    #[arg(long, value_name = "NAME")]
    skip: Vec<String>,
    /// Show every rewriting
    #[arg(long)]
    report: bool,
    /// A library of fusions, which come before those that are built in; may be repeated
    #[arg(long = "fusion", value_name = "plugin:PATH")]
    fusions: Vec<LibraryPath>,
    #[command(flatten)]
    kernels: Kernels,
    /// The number of random inputs on which both models are compared before OUT is written
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole::<usize>(0..=ANY), allow_negative_numbers = true)]
    samples: usize,
}

/// The options of passes and fusions, which do not apply to changing versions only.
const REWRITING: [&str; 9] = [
    "allow_custom",
    "allow_hybrid",
    "keep_composites",
    "stateful",
    "skip",
    "report",
    "fusions",
    "libraries",
    "samples",
];

#[derive(Serialize)]
struct Rewritten {
    model: String,
    output: String,
    output_bytes: usize,
    nodes: Numbers<usize>,
    multiply_adds: Numbers<u64>,
    /// All rewritings, in order.
    changes: Vec<ChangeLine>,
    /// Composites with the name of a fusion that were not replaced.
    left: Vec<LeftLine>,
    /// Patterns that would change the model further, after the maximum number of rounds.
    unsettled: Vec<String>,
    /// The greatest difference of each output on random inputs; empty if the models were not run.
    differences: Vec<DifferenceLine>,
    /// The reason why the models were not run.
    not_compared: Option<String>,
    /// Ops whose version changed.
    versions: Vec<VersionLine>,
    /// Ops whose version is newer than this build knows; they keep it.
    unknown_versions: Vec<VersionLine>,
    min_runtime_version: RuntimeLine,
    #[serde(skip)]
    all: bool,
}

#[derive(Serialize)]
struct Numbers<T> {
    before: T,
    after: T,
}

#[derive(Serialize)]
struct ChangeLine {
    pass: String,
    subgraph: usize,
    tensor: String,
    from: Vec<String>,
    to: Vec<String>,
}

#[derive(Serialize)]
struct LeftLine {
    composite: String,
    subgraph: usize,
    tensor: String,
    /// The index of the tensor, where it is known.
    tensor_index: Option<usize>,
    reason: String,
}

#[derive(Serialize)]
struct DifferenceLine {
    output: String,
    greatest: f64,
    allowed: f64,
}

#[derive(Serialize)]
struct VersionLine {
    op: String,
    from: u32,
    to: u32,
    nodes: Vec<NodeLine>,
}

#[derive(Serialize)]
struct NodeLine {
    subgraph: usize,
    node: usize,
}

/// The oldest TFLite release that runs the model, as declared in its metadata.
#[derive(Serialize)]
struct RuntimeLine {
    from: Option<String>,
    to: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    files::check_replaceable(&arguments.output)?;
    let original = arguments.model.load()?;
    let resolver: Arc<dyn OpResolver> = Arc::new(arguments.kernels.resolver(false)?);
    let mut tolerance = 1.0;
    let mut authors = String::new();
    let (model, report) = if arguments.versions_only {
        let mut model = original.clone();
        let versions = model.restamp()?;
        let mut report = FusionReport::default();
        report.versions = versions;
        (model, report)
    } else {
        let pipeline = pipeline(arguments)?;
        tolerance = pipeline.tolerance();
        let model = Arc::new(original.clone());
        let fused = pipeline.run_keeping(&model, &resolver, &|_| false).map_err(not_rewritten)?;
        authors = authors_of(&fused.report, &pipeline);
        (fused.model, fused.report)
    };
    let quantizes = quantizes_on_the_fly(&original);
    let compared = if arguments.versions_only || arguments.samples == 0 {
        Err("it was not asked for".to_owned())
    } else {
        differences(original, &model, &resolver, arguments.samples, &authors)?
    };
    if let Ok(differences) = &compared
        && let Some(worst) = differences.iter().find(|d| !d.within(tolerance))
    {
        let Difference { output, greatest, allowed, .. } = worst;
        let message = format!(
            "the rewritten model computes something else: output \"{}\" differs by {}; \
            at most {} is allowed{authors}",
            printable(output),
            short_number(*greatest),
            short_number(*allowed * tolerance)
        );
        let mut help =
            "nothing was written; `--report --samples 0` shows the rewritten nodes, `--skip NAME` disables a fusion"
                .to_owned();
        if quantizes && !arguments.allow_hybrid {
            help += "; ops of this model quantize what they get on the fly, where a difference in rounding may become a \
                     step: `--allow-hybrid` allows that";
        }
        return Err(Failure::new(Exit::Failed, message).with_help(help));
    }
    model.save(&arguments.output).map_err(|error| match error {
        Error::Write { path, source, .. } => files::cannot_write(&path, &source),
        error => error.into(),
    })?;
    let (differences, not_compared) = match compared {
        Ok(differences) => (differences, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    let FusionReport { changes, unchanged, unsettled, before, after, versions, .. } = report;
    let Restamped { ops, unknown, old_runtime, new_runtime, .. } = versions;
    out.print(&Rewritten {
        model: arguments.model.name(),
        output: arguments.output.display().to_string(),
        output_bytes: model.bytes().len(),
        nodes: Numbers { before: before.nodes, after: after.nodes },
        multiply_adds: Numbers { before: before.multiply_adds, after: after.multiply_adds },
        changes: changes.into_iter().map(change).collect(),
        left: unchanged.into_iter().map(left_line).collect(),
        unsettled,
        differences: differences.into_iter().map(difference).collect(),
        not_compared: not_compared.filter(|_| !arguments.versions_only),
        versions: ops.into_iter().map(version).collect(),
        unknown_versions: unknown.into_iter().map(version).collect(),
        min_runtime_version: RuntimeLine { from: old_runtime, to: new_runtime },
        all: arguments.report,
    })?;
    Ok(Exit::Fine)
}

fn pipeline(arguments: &Arguments) -> Result<Pipeline, Failure> {
    let mut pipeline = Pipeline::new().limits(budgets::limits());
    for path in &arguments.fusions {
        pipeline = add_library(path, pipeline)?;
    }
    if arguments.allow_custom {
        pipeline = pipeline.allow_custom();
    }
    if arguments.allow_hybrid {
        pipeline = pipeline.allow_hybrid();
    }
    if arguments.keep_composites {
        pipeline = pipeline.keep_composites();
    }
    if arguments.stateful {
        pipeline = pipeline.stateful();
    }
    if arguments.samples == 0 {
        pipeline = pipeline.allow_unresolved();
    }
    let names = pipeline.names();
    for name in &arguments.skip {
        if !names.contains(name) {
            let failure = Failure::new(Exit::Usage, format!("there is no pass or fusion \"{name}\""));
            return Err(failure.with_help(format!("there are: {}", names.join(", "))));
        }
        pipeline = pipeline.skip(name);
    }
    Ok(pipeline)
}

#[cfg(feature = "plugins")]
fn add_library(path: &LibraryPath, pipeline: Pipeline) -> Result<Pipeline, Failure> {
    // SAFETY: the user named the library on the command line, and so trusts it.
    let library = unsafe { delegraph::delegate_api::plugin::FusionLibrary::open(path.path()) }?;
    Ok(pipeline.library(&library))
}

#[cfg(not(feature = "plugins"))]
fn add_library(path: &LibraryPath, _: Pipeline) -> Result<Pipeline, Failure> {
    let text = format!("{}: this command was built without the Cargo feature `plugins`", path.path());
    Err(Failure::new(Exit::Unsupported, text))
}

/// Whether memory could not be allocated. A limit is another error.
fn is_out_of_memory(error: &Error) -> bool {
    match error {
        Error::OutOfMemory(_) => true,
        Error::AtNode { source, .. } => is_out_of_memory(source),
        _ => false,
    }
}

/// Whether the message of an error names a pass or a fusion. A kernel that fails while the model is prepared has no part
/// in the rewriting.
fn names_pass(error: &Error) -> bool {
    match error {
        // A pass that fails or makes an invalid model; a fusion of a library; a composite that does not match its name.
        Error::State(text) | Error::InvalidNode(text) => {
            text.starts_with("the pass \"")
                || text.contains(": fusion \"")
                || text.starts_with("composite \"")
        }
        Error::AtNode { source, .. } => names_pass(source),
        _ => false,
    }
}

/// Whether a fusion created an op without a kernel, so that its result cannot be compared.
fn lacks_kernel(error: &Error) -> bool {
    match error {
        Error::State(text) => {
            text.contains("the rewritten model cannot be run: ") && text.contains(" no kernel")
        }
        Error::AtNode { source, .. } => lacks_kernel(source),
        _ => false,
    }
}

/// Advice on a rewritten model that cannot be run.
const NOT_RUN: &str = "nothing was written; `--ops plugin:PATH` adds the kernels of custom ops that a fusion creates, \
                       `--skip NAME` disables a fusion, `--samples 0` writes without comparing";

/// Returns the failure of rewriting the model. The option `--skip` helps if a pass or a fusion is the cause.
fn not_rewritten(error: Error) -> Failure {
    if lacks_kernel(&error) {
        return Failure::from(error).with_help(NOT_RUN);
    }
    let of_pass = names_pass(&error);
    let out_of_memory = is_out_of_memory(&error);
    let failure = Failure::from(error);
    match (of_pass, out_of_memory) {
        (true, _) => {
            failure.with_help("`--skip NAME` leaves out the pass or the fusion that the message names")
        }
        // The advice for other verbs is to resize inputs.
        (_, true) => failure.with_help("preparing this model needs more memory than is free on this machine"),
        _ => failure,
    }
}

/// Returns the passes and fusions that changed the model, with the libraries of the fusions, as the end of a message.
fn authors_of(report: &FusionReport, pipeline: &Pipeline) -> String {
    let mut authors: Vec<String> = Vec::new();
    for Change { pass, .. } in &report.changes {
        let mut author = format!("\"{}\"", printable(pass));
        if let Some(library) = pipeline.library_of(pass) {
            author += &format!(" of {}", library.display());
        }
        if !authors.contains(&author) {
            authors.push(author);
        }
    }
    if authors.is_empty() { String::new() } else { format!("; it was rewritten by {}", authors.join(", ")) }
}

/// Whether the model has ops of float activations and 8-bit weights.
fn quantizes_on_the_fly(model: &Model) -> bool {
    model.subgraphs().iter().any(|graph| {
        graph.nodes().iter().any(|node| {
            let is = |i: usize, types: &[TensorType]| {
                node.input(i)
                    .and_then(|id| graph.tensors().get(id.0))
                    .is_some_and(|t| types.contains(&t.ty()))
            };
            is(0, &[TensorType::Float32]) && is(1, &[TensorType::Int8, TensorType::UInt8, TensorType::Int4])
        })
    })
}

/// Returns the differences of the outputs, or the reason why the original cannot be run. Exceeding a limit on time or
/// memory is a failure, because the models may differ; so is a rewritten model that cannot be run, and an original that is
/// found to be invalid before it runs. `authors` ends the message about the rewritten model.
fn differences(
    original: Model,
    model: &Model,
    resolver: &Arc<dyn OpResolver>,
    samples: usize,
    authors: &str,
) -> Result<Result<Vec<Difference>, String>, Failure> {
    let (original, model) = (Arc::new(original), Arc::new(model.clone()));
    let models = ModelPair { original: &original, fused: &model };
    let comparison = match Comparison::new(models, resolver, budgets::limits()) {
        // Random inputs are not the cause.
        Err(error) if error.kind() == ErrorKind::Invalid => return Err(error.into()),
        comparison => comparison,
    };
    match comparison.and_then(|comparison| comparison.run(samples)) {
        Ok(differences) => Ok(Ok(differences)),
        Err(error) if is_limit(&error) => {
            let help = "nothing was written, as the models could not be compared within the limit; `--samples 0` writes \
                        without comparing";
            Err(Failure::from(error).about(&format!("comparing the models{authors}")).with_help(help))
        }
        // The original was prepared, and was run on the same inputs, so the rewritten model is the cause.
        Err(error @ Error::State(_)) => {
            Err(Failure::new(Exit::Failed, format!("{error}{authors}")).with_help(NOT_RUN))
        }
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Whether a limit of the command line ended the work.
fn is_limit(error: &Error) -> bool {
    match error {
        Error::LimitExceeded(_) => true,
        Error::AtNode { source, .. } => is_limit(source),
        error => error.is_interruption(),
    }
}

fn change(Change { pass, subgraph, tensor, from, to, .. }: Change) -> ChangeLine {
    ChangeLine { pass, subgraph, tensor, from, to }
}

fn left_line(Unchanged { composite, subgraph, tensor, id, reason, .. }: Unchanged) -> LeftLine {
    LeftLine { composite, subgraph, tensor, tensor_index: id.map(|id| id.0), reason }
}

fn difference(Difference { output, greatest, allowed, .. }: Difference) -> DifferenceLine {
    DifferenceLine { output, greatest, allowed }
}

fn version(op: RestampedOp) -> VersionLine {
    let nodes = op.nodes.into_iter().map(|(subgraph, node)| NodeLine { subgraph, node: node.0 });
    VersionLine { op: raw_name(&op.op), from: op.from, to: op.to, nodes: nodes.collect() }
}

impl Document for Rewritten {
    fn text(&self) -> String {
        let mut text = format!("{}: {}\n\n", printable(&self.output), bytes(self.output_bytes));
        text += &self.fused();
        if self.versions.is_empty() && self.unknown_versions.is_empty() {
            text += "Every op already had the lowest sufficient version.\n";
        }
        let rows = self.versions.iter().map(|line| {
            vec![line.op.clone(), format!("{} → {}", line.from, line.to), line.nodes.len().to_string()]
        });
        text += &table(&["op", "version", "nodes"], &[2], rows);
        for line in &self.unknown_versions {
            let (op, nodes) = (printable(&line.op), plural(line.nodes.len(), "node"));
            text +=
                &format!("{op} version {} is newer than this build knows: {nodes} unchanged\n", line.from);
        }
        let runtime = &self.min_runtime_version;
        match (&runtime.from, &runtime.to) {
            (_, None) => {}
            (Some(from), _) if !self.unknown_versions.is_empty() => {
                text += &format!("\nIts metadata still declares TFLite {}.\n", printable(from));
            }
            (Some(from), Some(to)) if from == to => {
                text += &format!("\nIt still needs TFLite {}.\n", printable(to));
            }
            (Some(from), Some(to)) => {
                text +=
                    &format!("\nIt needs TFLite {to}; its metadata declared {} before.\n", printable(from))
            }
            (None, Some(to)) => {
                text += &format!("\nIt needs TFLite {to}; its metadata declared no release before.\n")
            }
        }
        text
    }
}

impl Rewritten {
    /// The fusions; empty if only versions were rewritten.
    fn fused(&self) -> String {
        if self.nodes.before == 0 {
            return String::new();
        }
        let mut text = String::new();
        if self.all {
            let rows = self
                .changes
                .iter()
                .map(|c| vec![c.pass.clone(), c.from.join(" + "), c.to.join(" + "), short(&c.tensor)]);
            text += &table(&["pass", "from", "to", "what it computes"], &[], rows);
        } else {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for change in &self.changes {
                *counts.entry(&change.pass).or_default() += 1;
            }
            let rows = counts.iter().map(|(pass, count)| vec![(*pass).to_owned(), count.to_string()]);
            text += &table(&["pass", "rewritings"], &[1], rows);
        }
        for left in &self.left {
            text += &left.text();
        }
        if !self.unsettled.is_empty() {
            let names = self.unsettled.join(", ");
            let names = printable(&names);
            text += &format!("Stopped after the maximum number of rounds, still changed by: {names}\n");
        }
        text += &format!(
            "{}, before: {}; {}, before: {}\n",
            plural(self.nodes.after, "node"),
            self.nodes.before,
            work(self.multiply_adds.after),
            scaled(self.multiply_adds.before)
        );
        match &self.not_compared {
            Some(reason) => text += &format!("Outputs were not compared: {reason}\n"),
            None => {
                let worst = self.differences.iter().map(|d| d.greatest).fold(0.0, f64::max);
                let worst = short_number(worst);
                text += &format!("On random inputs outputs differ by {worst} at most\n");
            }
        }
        text + "\n"
    }
}

impl LeftLine {
    fn text(&self) -> String {
        let (composite, tensor, reason) =
            (printable(&self.composite), printable(&self.tensor), printable(&self.reason));
        let writes = match self.tensor_index {
            Some(index) if tensor.is_empty() => format!(" (writes tensor {index})"),
            None if tensor.is_empty() => String::new(),
            _ => format!(" (writes \"{tensor}\")"),
        };
        format!("composite \"{composite}\"{writes} is not fused: {reason}\n")
    }
}

/// Names of tensors may be very long.
fn short(name: &str) -> String {
    match name.char_indices().nth_back(39) {
        Some((start, _)) if start > 0 => format!("…{}", name.get(start..).unwrap_or(name)),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skip_is_advised_where_a_pass_is_named() {
        let check = |error: Error, is_advised: bool| {
            let text = error.chain();
            let failure = not_rewritten(error);
            let (_, _, help) = failure.parts();
            assert_eq!(
                help.is_some_and(|help| help.contains("`--skip NAME`")),
                is_advised,
                "{text}: {help:?}"
            );
        };
        check(Error::State("the pass \"inline\" failed: a reason".into()), true);
        check(Error::State("a.so: fusion \"acme.f\": a reason".into()), true);
        check(Error::InvalidNode("composite \"acme.f\" version 1: argument 0 (x) is missing".into()), true);
        check(Error::InvalidNode("k.so: operands are wrong".into()), false);
        check(Error::State("k.so: it panicked: a reason".into()), false);
    }

    #[test]
    fn a_fusion_into_an_op_without_a_kernel_names_the_option_for_kernels() {
        let text = "a.so: fusion \"acme.f\": it failed: the rewritten model cannot be run: 1 op has no kernel: custom op";
        let failure = not_rewritten(Error::State(text.into()));
        let (_, _, help) = failure.parts();
        assert!(
            help.is_some_and(|help| help.contains("`--ops plugin:PATH`") && help.contains("--samples 0"))
        );
    }

    #[test]
    fn a_composite_that_is_left_names_its_tensor() {
        let check = |tensor: &str, tensor_index: Option<usize>, want: &str| {
            let (composite, reason) = ("acme.f".to_owned(), "a reason".to_owned());
            let left = LeftLine { composite, subgraph: 0, tensor: tensor.into(), tensor_index, reason };
            assert_eq!(left.text(), format!("composite \"acme.f\"{want} is not fused: a reason\n"));
        };
        check("y", Some(2), " (writes \"y\")");
        check("y", None, " (writes \"y\")");
        check("", Some(2), " (writes tensor 2)");
        check("", None, "");
    }
}
