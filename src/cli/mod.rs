//! The command line: verbs, shared code, and exit codes.

use std::ffi::OsString;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use delegraph::core::{printable, printable_lines};
use log::LevelFilter;

mod bench;
mod budgets;
mod conformance;
mod delegates;
#[cfg(feature = "wgpu")]
mod devices;
mod diff;
mod explain;
mod failure;
mod files;
mod fuse;
mod graph;
mod inputs;
mod inspect;
mod journal;
mod kernels;
mod limits;
mod mapped;
mod model;
mod new_delegate;
mod numbers;
mod ops;
mod output;
mod profile;
mod program;
mod run;
mod selective;
mod text;
mod values;

use failure::{Exit, Failure};
use output::Output;

/// Runs .tflite models, and lets any hardware take over any part of a model.
#[derive(Parser)]
#[command(name = "delegraph", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    common: Common,
}

const EXIT_CODES: &str = "Exit codes: 0 fine · 1 ran, but failed or mismatched · 2 usage · 3 the model or a request \
                          is not supported · 4 the model or an input file is invalid";

/// The options of all verbs.
#[derive(Args)]
struct Common {
    /// Print one JSON document on standard output, and nothing else there
    #[arg(long, global = true)]
    json: bool,
    /// Log more; twice for debugging
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Log errors only, and show no progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

#[derive(Subcommand)]
enum Verb {
    Run(run::Arguments),
    Bench(bench::Arguments),
    Profile(profile::Arguments),
    Diff(diff::Arguments),
    Explain(explain::Arguments),
    Graph(graph::Arguments),
    Inspect(inspect::Arguments),
    Fuse(fuse::Arguments),
    Ops(ops::Arguments),
    #[cfg(feature = "wgpu")]
    Devices(devices::Arguments),
    Conformance(conformance::Arguments),
    NewDelegate(new_delegate::Arguments),
    #[command(hide = true)]
    ConformanceWorker(conformance::worker::Arguments),
}

impl Verb {
    fn run(self, out: &Output) -> Result<Exit, Failure> {
        match self {
            Verb::Run(arguments) => run::run(&arguments, out),
            Verb::Bench(arguments) => bench::run(&arguments, out),
            Verb::Profile(arguments) => profile::run(&arguments, out),
            Verb::Diff(arguments) => diff::run(&arguments, out),
            Verb::Explain(arguments) => explain::run(&arguments, out),
            Verb::Graph(arguments) => graph::run(&arguments, out),
            Verb::Inspect(arguments) => inspect::run(&arguments, out),
            Verb::Fuse(arguments) => fuse::run(&arguments, out),
            Verb::Ops(arguments) => ops::run(&arguments, out),
            #[cfg(feature = "wgpu")]
            Verb::Devices(arguments) => devices::run(&arguments, out),
            Verb::Conformance(arguments) => conformance::run(&arguments, out),
            Verb::NewDelegate(arguments) => new_delegate::run(&arguments, out),
            Verb::ConformanceWorker(arguments) => conformance::worker::run(&arguments),
        }
    }
}

/// Runs the command and returns one of the documented exit codes, also after a panic.
pub(crate) fn run(arguments: Vec<OsString>, program: Option<Vec<OsString>>) -> u8 {
    failure::silence_panics();
    if let Some(program) = program {
        program::set(program);
    }
    let arguments = match Arguments::try_parse_from(&arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let error = with_odd_arguments(without_hidden_verbs(error), &arguments);
            let error = with_printable_values(error);
            return Output::usage(&error, &arguments) as u8;
        }
    };
    let Common { json, verbose, quiet } = arguments.common;
    start_logging(verbose, quiet);
    let out = Output { json, quiet };
    budgets::set_json(json);
    mapped::report_truncation();
    let result = catch_unwind(AssertUnwindSafe(|| arguments.verb.run(&out)));
    let result = result.unwrap_or_else(|_| Err(Failure::internal()));
    while !budgets::end() {
        // The thread that watches the budgets reports and ends the process.
        std::thread::park();
    }
    match result {
        Ok(exit) => exit as u8,
        Err(failure) => out.failure(failure) as u8,
    }
}

/// Removes hidden verbs from the list in an error.
fn without_hidden_verbs(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::Strings(verbs)) = error.remove(ContextKind::ValidSubcommand) {
        let command = Arguments::command();
        let is_shown = |verb: &String| command.find_subcommand(verb).is_none_or(|verb| !verb.is_hide_set());
        let shown = verbs.into_iter().filter(is_shown).collect();
        error.insert(ContextKind::ValidSubcommand, ContextValue::Strings(shown));
    }
    error
}

/// Escapes the arguments that an error repeats.
fn with_printable_values(mut error: clap::Error) -> clap::Error {
    let escaped = |text: &String| printable(text).into_owned();
    let values = error.context().filter_map(|(kind, value)| match value {
        ContextValue::String(text) => Some((kind, ContextValue::String(escaped(text)))),
        ContextValue::Strings(texts) => {
            Some((kind, ContextValue::Strings(texts.iter().map(escaped).collect())))
        }
        _ => None,
    });
    let values: Vec<_> = values.collect();
    for (kind, value) in values {
        error.insert(kind, value);
    }
    error
}

/// Names the arguments of an error about arguments that are not UTF-8.
fn with_odd_arguments(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    if error.kind() != ErrorKind::InvalidUtf8 {
        return error;
    }
    let odd = arguments.iter().skip(1).filter(|argument| argument.to_str().is_none());
    let odd: Vec<String> = odd.map(|argument| format!("{argument:?}")).collect();
    let text = format!(
        "not valid UTF-8: {}\n\nPaths may have other bytes, except those of inputs and plugins; try '--help'.\n",
        odd.join(", ")
    );
    clap::Error::raw(ErrorKind::InvalidUtf8, text)
}

/// Logs are written to standard error. `RUST_LOG` takes precedence.
fn start_logging(verbose: u8, quiet: bool) {
    let (ours, drivers) = match (quiet, verbose) {
        (true, _) => (LevelFilter::Error, LevelFilter::Off),
        // GPU libraries warn about every driver they find, used or not.
        (false, 0) => (LevelFilter::Warn, LevelFilter::Error),
        (false, 1) => (LevelFilter::Info, LevelFilter::Warn),
        (false, 2) => (LevelFilter::Debug, LevelFilter::Info),
        (false, _) => (LevelFilter::Trace, LevelFilter::Debug),
    };
    let mut builder = env_logger::Builder::new();
    builder.filter_level(ours).format_timestamp(None);
    for library in ["wgpu_core", "wgpu_hal", "naga", "wgpu"] {
        builder.filter_module(library, drivers);
    }
    // Messages contain names from files.
    builder.format(|line, record| {
        let (level, style) = (record.level(), line.default_level_style(record.level()));
        let message = record.args().to_string();
        writeln!(line, "[{style}{level:<5}{style:#} {}] {}", record.target(), printable_lines(&message))
    });
    builder.parse_default_env().init();
}
