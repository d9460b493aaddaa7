//! `conformance`: checks the results of a delegate; each case is isolated from the others.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use delegraph::core::printable;
use delegraph_conformance::cases::DEFAULT_SEED;
use delegraph_conformance::corpus;
use delegraph_conformance::engine::{CaseResult, Outcome};
use delegraph_conformance::expectations::{Coverage, Expectations};
use delegraph_conformance::report::{Report, markdown, shell};
use regex::Regex;

use super::delegates::{Engine, Promise};
use super::failure::{Exit, Failure};
use super::files::{cannot_write, check_folder, check_readable};
use super::journal::{Journal, Named};
use super::numbers::{ANY, whole};
use super::output::{Document, Output, table};
use super::text::{plural, printable_path};

mod compare;
mod process;
mod source;
pub(crate) mod worker;

use process::{About, Worker};
use source::Source;
use worker::Order;

impl Named for CaseResult {
    fn name(&self) -> &str {
        &self.case
    }
}

/// The results so far, from which an interrupted run is resumed.
const JOURNAL: &str = "partial.jsonl";

/// Maximum number of cases in a batch of a worker.
const BATCH: usize = 8;

/// Check the results of a delegate, and report every wrong one
///
/// Runs thousands of generated cases, or a folder of cases (--corpus: each folder below DIR that holds a
/// model.tflite, input_0.npy, … and expected_0.npy, …), and compares with the reference kernels, or with what is
/// expected; a folder without expected outputs passes if it runs. A case that crashes or hangs is a result, and the
/// remaining cases run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engine: Engine,
    /// Only cases whose name, or path below DIR, matches
    #[arg(long, value_name = "RE")]
    filter: Option<Regex>,
    /// The folder of cases
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// The seed of the generated cases [default: 2026]
    #[arg(long, value_name = "N", conflicts_with = "corpus", value_parser = whole::<u64>(0..=ANY), allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Write index.html with a page for each failure, results.csv, results.json, junit.xml, support.md and badge.svg there
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Resume an interrupted run with the same report folder
    #[arg(long, requires = "report")]
    resume: bool,
    /// A file of known failures, and of cases that must be delegated
    #[arg(long, value_name = "FILE")]
    expectations: Option<PathBuf>,
    /// The guarantees of its arithmetic: ieee, or gpu, which may flush denormals and assume that there are neither NaN
    /// nor infinities [default: gpu for wgpu, gpu-halves for its precision f16, otherwise ieee]
    #[arg(long, value_enum, value_name = "WHAT")]
    arithmetic: Option<Promise>,
    /// Which cases are also tried on the delegate's contract beyond numbers
    #[arg(long, value_enum, default_value_t = Checks::Sample)]
    checks: Checks,
    /// A case that takes longer, in seconds, is ended and counted as `timeout`
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = whole::<u64>(1..=86_400), allow_negative_numbers = true)]
    timeout: u64,
    /// How many processes run cases [default: one per core]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024), allow_negative_numbers = true)]
    jobs: Option<u16>,
    /// Print the names of the cases, and run none
    #[arg(long)]
    list: bool,
    /// Write a case as a folder that --corpus runs, to share it, and run none
    #[arg(long, num_args = 2, value_names = ["NAME", "DIR"])]
    write_case: Option<Vec<String>>,
    /// Compare two results.json: what fails now, is fixed, is slower; nothing is run
    #[arg(long, num_args = 2, value_names = ["BEFORE", "NOW"])]
    compare: Option<Vec<PathBuf>>,
    /// Print the support matrix as Markdown
    #[arg(long)]
    markdown: bool,
}

/// The values of `--checks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Checks {
    /// None
    None,
    /// The first two of each op and type; none of a folder
    Sample,
    /// All; takes long
    All,
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    if let Some([before, now]) = arguments.compare.as_deref() {
        return compare::run(before, now, out);
    }
    if let Some(folder) = &arguments.report {
        check_folder("--report", folder)?;
    }
    let arithmetic = arguments.engine.arithmetic(arguments.arithmetic);
    let source = match &arguments.corpus {
        Some(root) => Source::corpus(root, arithmetic)?,
        None => Source::suite(arguments.seed.unwrap_or(DEFAULT_SEED), arithmetic),
    };
    if let Some([name, folder]) = arguments.write_case.as_deref() {
        let problem = source.problem(name).map_err(|failure| {
            Failure::new(Exit::Usage, format!("{name}: {failure}")).with_help("`--list` prints the names")
        })?;
        corpus::write(&problem, folder.as_ref())
            .map_err(|e| Failure::new(Exit::Failed, format!("{name} cannot be written: {e}")))?;
        return Ok(Exit::Fine);
    }
    let mut orders: Vec<Order> = Vec::new();
    let all = source.names();
    let count = all.len();
    for (case, sampled) in all {
        if arguments.filter.as_ref().is_none_or(|re| re.is_match(&case)) {
            let checks = match arguments.checks {
                Checks::None => false,
                Checks::Sample => sampled,
                Checks::All => true,
            };
            orders.push(Order { case, checks });
        }
    }
    if orders.is_empty() {
        return Err(no_case(arguments, count));
    }
    if arguments.list {
        return list(&orders, out);
    }
    arguments.engine.check_all(orders.iter().filter_map(|order| source.model(&order.case)))?;
    let coverage = if orders.len() == count { Coverage::Complete } else { Coverage::Partial };
    let expectations = match &arguments.expectations {
        Some(path) => {
            check_readable("--expectations", path)?;
            Expectations::read(path).map_err(|e| Failure::invalid(e.to_string()))?
        }
        None => Expectations::default(),
    };
    let start = Instant::now();
    let (results, about) = run_all(arguments, &source, orders, out)?;
    let mut report = Report::new(arguments.engine.label(), results);
    report.tool = concat!("delegraph ", env!("CARGO_PKG_VERSION")).into();
    report.baseline = if about.name == "cpu" { "reference" } else { "cpu" }.into();
    report.device = about.device;
    report.corpus = arguments.corpus.as_ref().map(|root| root.display().to_string());
    report.seed = match source {
        Source::Suite { seed, .. } => Some(seed),
        Source::Corpus { .. } => None,
    };
    report.elapsed = start.elapsed();
    report.command = command(arguments, &source);
    report.problems = expectations.apply(&mut report.results, &report.device, coverage);
    report.count();
    if let Some(folder) = &arguments.report {
        report.write(folder).map_err(|e| cannot_write(folder, &e))?;
    }
    match arguments.markdown && !out.json {
        true => out.text(&markdown(&report))?,
        false => out.print(&report)?,
    }
    Ok(if report.is_fine() { Exit::Fine } else { Exit::Failed })
}

/// Returns the failure of a run in which the filter excludes all of `count` cases, or the folder has none.
fn no_case(arguments: &Arguments, count: usize) -> Failure {
    let excluded = arguments.filter.as_ref().filter(|_| count > 0);
    match (excluded, &arguments.corpus) {
        (Some(filter), Some(root)) => {
            let has = plural(count, "case");
            let root = printable_path(root);
            let text = format!("--filter {filter}: no case has such a name; {root} has {has}");
            Failure::invalid(text).with_help("`--list` prints the names")
        }
        (Some(filter), None) => {
            Failure::new(Exit::Usage, format!("--filter {filter}: no case has such a name"))
                .with_help("`--list` prints the names")
        }
        (None, Some(root)) => {
            let root = printable_path(root);
            Failure::invalid(format!("--corpus {root}: no case there")).with_help(source::CASE)
        }
        (None, None) => Failure::internal(),
    }
}

fn list(orders: &[Order], out: &Output) -> Result<Exit, Failure> {
    let names: Vec<&str> = orders.iter().map(|o| o.case.as_str()).collect();
    match out.json {
        true => out.json(&names)?,
        false => out.text(&names.iter().map(|name| printable(name) + "\n").collect::<String>())?,
    }
    Ok(Exit::Fine)
}

/// The command line without the selection of cases and the destination of results.
fn command(arguments: &Arguments, source: &Source) -> String {
    let usual = ["--threads=1", "--policy=prefer"];
    let mut words = vec!["delegraph".to_owned(), "conformance".into()];
    words.extend(arguments.engine.options().into_iter().filter(|o| !usual.contains(&o.as_str())));
    words.extend(arguments.arithmetic.map(Promise::option));
    match source {
        Source::Suite { seed, .. } if *seed != DEFAULT_SEED => words.push(format!("--seed={seed}")),
        Source::Suite { .. } => {}
        Source::Corpus { root, .. } => words.push(format!("--corpus={}", root.display())),
    }
    if arguments.checks != Checks::Sample
        && let Some(value) = arguments.checks.to_possible_value()
    {
        words.push(format!("--checks={}", value.get_name()));
    }
    words.iter().map(|word| shell(word)).collect::<Vec<_>>().join(" ")
}

/// Runs every case in one of several worker processes; results are in the order of the cases.
fn run_all(
    arguments: &Arguments,
    source: &Source,
    orders: Vec<Order>,
    out: &Output,
) -> Result<(Vec<CaseResult>, About), Failure> {
    let timeout = Duration::from_secs(arguments.timeout);
    let options = worker::options(&arguments.engine, arguments.arithmetic, source);
    // If no case can run, the first worker reports the error once, instead of once per case.
    let mut first = Worker::new(&options, timeout);
    let about = first.start()?;
    let names: Vec<String> = orders.iter().map(|o| o.case.clone()).collect();
    let (journal, found) = match &arguments.report {
        Some(folder) => {
            let run = format!("{} {:?} on {}", command(arguments, source), arguments.checks, about.device);
            let (journal, found) = Journal::open(folder.join(JOURNAL), &printable(&run), arguments.resume)?;
            (Some(journal), found)
        }
        None => (None, HashMap::new()),
    };
    let folder = arguments.report.as_deref().unwrap_or(Path::new(""));
    let journal_failed = |e: &std::io::Error| cannot_write(&folder.join(JOURNAL), e);
    let waiting: Vec<Order> = orders.into_iter().filter(|o| !found.contains_key(&o.case)).collect();
    let bar = out.progress(names.len() as u64, "{wide_bar} {pos}/{len} {msg} {eta}");
    bar.set_position(found.len() as u64);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.map_or(cores, usize::from).min(waiting.len()).max(1);
    let batch = (waiting.len() / (jobs * 4)).clamp(1, BATCH);
    let waiting = Mutex::new(waiting.into_iter());
    let (results, failures) = (Mutex::new(found), AtomicUsize::new(0));
    let work = |mut worker: Worker<'_>| -> Result<(), Failure> {
        loop {
            let orders: Vec<Order> =
                waiting.lock().unwrap_or_else(PoisonError::into_inner).by_ref().take(batch).collect();
            if orders.is_empty() {
                return Ok(());
            }
            let mut written = Ok(());
            worker.run(orders, |result| {
                if let Some(journal) = &journal {
                    written = std::mem::replace(&mut written, Ok(())).and(journal.add(&result));
                }
                if !result.outcome.is_fine() {
                    let count = failures.fetch_add(1, Ordering::Relaxed) + 1;
                    bar.set_message(format!("{count} failed"));
                }
                bar.inc();
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                results.insert(result.case.clone(), result);
            })?;
            written.map_err(|e| journal_failed(&e))?;
        }
    };
    let ended = std::thread::scope(|scope| {
        let more = (1..jobs).map(|_| Worker::new(&options, timeout));
        let workers: Vec<Worker<'_>> = std::iter::once(first).chain(more).collect();
        let threads: Vec<_> = workers.into_iter().map(|w| scope.spawn(|| work(w))).collect();
        let internal = |_| Err(Failure::internal());
        threads.into_iter().map(|t| t.join().unwrap_or_else(internal)).collect::<Vec<_>>()
    });
    bar.finish_and_clear();
    ended.into_iter().collect::<Result<Vec<()>, Failure>>()?;
    if let Some(journal) = journal {
        journal.finish().map_err(|e| journal_failed(&e))?;
    }
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((names.iter().filter_map(|name| results.remove(name)).collect(), about))
}

/// The maximum number of printed failures; all are in the report.
const SHOWN: usize = 200;

impl Document for Report {
    fn text(&self) -> String {
        let mut text = String::new();
        let bad: Vec<&CaseResult> = self.failures().collect();
        for r in bad.iter().take(SHOWN) {
            let detail = r.detail.lines().next().unwrap_or_default();
            let _ = writeln!(text, "{:11} {}  {detail}", r.outcome.name(), printable(&r.case));
        }
        if bad.len() > SHOWN {
            let _ = writeln!(text, "… and {} more", bad.len() - SHOWN);
        }
        for problem in self.problems.iter().take(SHOWN) {
            let _ = writeln!(text, "{:11} {problem}", "expected");
        }
        let rows = Outcome::ALL.iter().filter(|outcome| self.of(**outcome) > 0).map(|outcome| {
            let count = self.of(*outcome);
            let share = count as f64 * 100.0 / self.total as f64;
            vec![outcome.name().to_owned(), count.to_string(), format!("{share:.1}%")]
        });
        text += &table(&["outcome", "cases", ""], &[1, 2], rows);
        let device = if self.device.is_empty() { String::new() } else { format!(" ({})", self.device) };
        let _ = writeln!(
            text,
            "{} on {}{device} in {:.1} s\n{}",
            plural(self.total, "case"),
            self.delegate,
            self.elapsed.as_secs_f64(),
            self.summary()
        );
        if let Some(first) = bad.first() {
            let _ = writeln!(text, "again: {}", self.reproduce(&first.case));
        }
        text
    }
}
