//! `inspect`: the contents of a model file, and its requirements.

use delegraph::core::graph::check_versions;
use delegraph::core::resolver::check_resolved;
use delegraph::documents::inspect;

use super::failure::{Exit, Failure};
use super::kernels::Kernels;
use super::model::ModelArgument;
use super::output::Output;

mod text;

/// Show a model's inputs, outputs, ops and sizes, and missing requirements
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArgument,
    #[command(flatten)]
    kernels: Kernels,
    /// Refuse a model in which a node uses features of a newer version of its op than its own
    #[arg(long)]
    strict_versions: bool,
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    let model = arguments.model.load()?;
    let resolver = arguments.kernels.resolver(false)?;
    if arguments.strict_versions {
        check_versions(&model)?;
    }
    let unresolved = check_resolved(&model, &resolver).err();
    out.print(&inspect(arguments.model.name(), &model, &resolver, unresolved.as_ref()))?;
    Ok(Exit::Fine)
}
