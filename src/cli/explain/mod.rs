//! `explain`: the runner of each node, or the reason for a rejection, and advice on what to support next.

use delegraph::documents::{Runners, explain, understated};

use super::delegates::Engine;
use super::failure::{Exit, Failure};
use super::model::ModelArgument;
use super::output::Output;

mod text;

/// Show the runner of each node, or the reason why a delegate does not run it
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArgument,
    #[command(flatten)]
    engine: Engine,
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    let model = arguments.model.load()?;
    let understated = understated(&model);
    let (interpreter, missing) = arguments.engine.build_shown(model)?;
    let runners = Runners::new(arguments.engine.cpu_name()).with_unresolved(missing.as_ref());
    let explanation = explain(arguments.model.name(), runners, &interpreter, understated);
    out.print(&explanation.ok_or_else(|| Failure::invalid("the model has no subgraph"))?)?;
    Ok(Exit::Fine)
}
