//! The worker process: reads folders of cases, one a line, and answers each with a line of JSON.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

use delegraph::Model;
use delegraph::core::ModelBytes;
use delegraph_conformance::corpus::{self, Outcome};

use super::super::delegates::Engine;
use super::super::failure::{Exit, Failure};
use super::CaseResult;

/// The verb that starts a worker.
pub(super) const VERB: &str = "conformance-worker";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engine: Engine,
}

/// The command line of a worker that runs cases as `engine` says.
pub(super) fn options(engine: &Engine) -> Vec<String> {
    let mut options = vec![VERB.to_owned(), "--quiet".into()];
    options.extend(engine.options());
    options
}

pub(crate) fn run(arguments: &Arguments) -> Result<Exit, Failure> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let result = run_case(Path::new(&line?), &arguments.engine);
        serde_json::to_writer(&mut out, &result).map_err(io::Error::from)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(Exit::Fine)
}

fn run_case(folder: &Path, engine: &Engine) -> CaseResult {
    let start = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| match engine.configure() {
        Ok(configure) => corpus::run(folder, configure),
        Err(failure) => Outcome::Error(failure.to_string()),
    }));
    let outcome = outcome.unwrap_or_else(|_| Outcome::Error(Failure::internal().to_string()));
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let (ops, types) = catch_unwind(|| describe(folder)).ok().flatten().unwrap_or_default();
    let (outcome, detail) = (outcome.name().to_owned(), outcome.detail().to_owned());
    CaseResult { case: String::new(), outcome, detail, ops, types, ms }
}

/// The ops of a case's model with their versions, and the types of its inputs and outputs.
fn describe(folder: &Path) -> Option<(Vec<String>, Vec<String>)> {
    let model = Model::from_bytes(ModelBytes::new(std::fs::read(folder.join("model.tflite")).ok()?)).ok()?;
    let nodes = model.subgraphs.iter().flat_map(|s| &s.nodes);
    let ops: BTreeSet<String> = nodes.map(|n| format!("{}:{}", n.op, n.version)).collect();
    let main = model.subgraphs.first()?;
    let types: BTreeSet<&str> =
        main.inputs.iter().chain(&main.outputs).map(|id| main.tensor(*id).ty.name()).collect();
    Some((ops.into_iter().collect(), types.into_iter().map(Into::into).collect()))
}
