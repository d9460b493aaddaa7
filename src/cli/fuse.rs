//! `fuse`: rewriting a model file.

use std::path::PathBuf;

use delegraph::core::writer::{Restamped, RestampedOp};
use serde::Serialize;

use super::failure::{Exit, Failure};
use super::model::ModelArgument;
use super::output::{Document, Output, bytes, table};

/// Rewrite a model file so that its ops have the lowest versions that are enough
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArgument,
    /// Where the rewritten model goes; it may take the place of MODEL
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Change versions only, and leave ops and tensors as they are
    #[arg(long)]
    versions_only: bool,
}

#[derive(Serialize)]
struct Rewritten {
    model: String,
    output: String,
    output_bytes: usize,
    /// Ops that have another version now.
    versions: Vec<VersionLine>,
    min_runtime_version: RuntimeLine,
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

/// The oldest TFLite release that runs the model, as its metadata says.
#[derive(Serialize)]
struct RuntimeLine {
    from: Option<String>,
    to: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    if !arguments.versions_only {
        let failure = Failure::new(Exit::Unsupported, "there are no fusion passes yet");
        return Err(failure.with_help("`--versions-only` gives ops the lowest versions that are enough"));
    }
    let mut model = arguments.model.load()?;
    let Restamped { ops, old_runtime, new_runtime } = model.restamp()?;
    model.save(&arguments.output)?;
    out.print(&Rewritten {
        model: arguments.model.name(),
        output: arguments.output.display().to_string(),
        output_bytes: model.bytes().len(),
        versions: ops.into_iter().map(version).collect(),
        min_runtime_version: RuntimeLine { from: old_runtime, to: new_runtime },
    })?;
    Ok(Exit::Fine)
}

fn version(op: RestampedOp) -> VersionLine {
    let nodes = op.nodes.into_iter().map(|(subgraph, node)| NodeLine { subgraph, node: node.0 });
    VersionLine { op: op.op.to_string(), from: op.from, to: op.to, nodes: nodes.collect() }
}

impl Document for Rewritten {
    fn text(&self) -> String {
        let mut text = format!("{}: {}\n\n", self.output, bytes(self.output_bytes));
        if self.versions.is_empty() {
            text += "Every op had the lowest version that is enough already.\n";
        }
        let rows = self.versions.iter().map(|line| {
            vec![line.op.clone(), format!("{} → {}", line.from, line.to), line.nodes.len().to_string()]
        });
        text += &table(&["op", "version", "nodes"], &[2], rows);
        let runtime = &self.min_runtime_version;
        match (&runtime.from, &runtime.to) {
            (_, None) => {}
            (Some(from), Some(to)) if from == to => text += &format!("\nIt still needs TFLite {to}.\n"),
            (Some(from), Some(to)) => text += &format!("\nIt needs TFLite {to}; it said {from} before.\n"),
            (None, Some(to)) => text += &format!("\nIt needs TFLite {to}; it said nothing of that before.\n"),
        }
        text
    }
}
