//! The worker process: reads cases, a line of JSON each, and answers each with a line of JSON.

use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use delegraph_conformance::cases::DEFAULT_SEED;
use delegraph_conformance::engine::{CaseResult, Outcome};
use delegraph_conformance::runner::{ContractChecks, Engine};
use serde::{Deserialize, Serialize};

use super::source::Source;
use crate::cli::budgets;
use crate::cli::delegates::{self, Promise};
use crate::cli::failure::{Exit, Failure};

/// The verb that starts a worker.
pub(super) const VERB: &str = "conformance-worker";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engine: delegates::Engine,
    #[arg(long)]
    corpus: Option<PathBuf>,
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, value_enum)]
    arithmetic: Option<Promise>,
}

/// Returns the command line of a worker that runs cases with the options of `engine`.
pub(super) fn options(
    engine: &delegates::Engine,
    arithmetic: Option<Promise>,
    source: &Source,
) -> Vec<String> {
    let mut options = vec![VERB.to_owned(), "--quiet".into()];
    options.extend(engine.options());
    options.extend(arithmetic.map(Promise::option));
    match source {
        Source::Suite { seed, .. } => options.push(format!("--seed={seed}")),
        Source::Corpus { root, .. } => options.push(format!("--corpus={}", root.display())),
    }
    options
}

/// A case to run.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) case: String,
    /// Whether to check the contract, too.
    pub(super) checks: bool,
}

/// The first message of a worker.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Hello {
    /// The worker waits for cases; the tested delegate runs on this device.
    Ready { name: String, device: String },
    /// The backend cannot be created; the worker ends.
    Failed { exit: u8, message: String, help: Option<String> },
}

pub(crate) fn run(arguments: &Arguments) -> Result<Exit, Failure> {
    let mut out = private_output().map_err(Failure::of_stdout)?;
    let arithmetic = arguments.engine.arithmetic(arguments.arithmetic);
    let source = match (&arguments.corpus, arguments.seed) {
        (Some(root), _) => Source::Corpus { root: root.clone(), arithmetic, folders: Vec::new() },
        (None, seed) => Source::suite(seed.unwrap_or(DEFAULT_SEED), arithmetic),
    };
    let engine = match arguments.engine.backend(arguments.corpus.is_some()) {
        Ok(backend) => Engine::new(backend),
        Err(failure) => {
            say(&mut out, &Hello::from(failure)).map_err(Failure::of_stdout)?;
            return Ok(Exit::Failed);
        }
    };
    let (name, device) = (engine.backend.name.clone(), engine.backend.device.clone());
    say(&mut out, &Hello::Ready { name, device }).map_err(Failure::of_stdout)?;
    for line in orders() {
        let order = line.and_then(|line| Ok(serde_json::from_str(&line)?)).map_err(of_stdin);
        let order: Order = order?;
        let checks = if order.checks { ContractChecks::Run } else { ContractChecks::Skip };
        let run = || source.run(&order.case, &engine, checks);
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            CaseResult::new(order.case.as_str(), Outcome::Error, Failure::internal().to_string())
        });
        say(&mut out, &result).map_err(Failure::of_stdout)?;
    }
    Ok(Exit::Fine)
}

fn of_stdin(error: io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot read standard input: {error}"))
}

/// Returns the lines of standard input as they arrive. At its end the parent has ended, so the process ends, even
/// during a case that may never end.
fn orders() -> Receiver<io::Result<String>> {
    let (sender, orders) = channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let _ = sender.send(line);
        }
        budgets::exit()
    });
    orders
}

impl From<Failure> for Hello {
    fn from(failure: Failure) -> Self {
        let (exit, message, help) = failure.parts();
        Hello::Failed { exit: exit as u8, message: message.into(), help: help.map(Into::into) }
    }
}

impl From<Hello> for Failure {
    fn from(hello: Hello) -> Self {
        match hello {
            Hello::Failed { exit, message, help } => {
                let failure = Failure::new(Exit::of(exit), message);
                match help {
                    Some(help) => failure.with_help(help),
                    None => failure,
                }
            }
            Hello::Ready { .. } => Failure::internal(),
        }
    }
}

fn say(out: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// Reserves standard output for results: output of a plugin is redirected to standard error.
#[cfg(unix)]
fn private_output() -> io::Result<impl Write> {
    let answers = rustix::io::dup(io::stdout())?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(std::fs::File::from(answers))
}

#[cfg(not(unix))]
fn private_output() -> io::Result<impl Write> {
    Ok(io::stdout())
}
