//! `conformance`: runs a folder of cases, each isolated from the others, and counts what came of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use delegraph_conformance::corpus;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::delegates::Engine;
use super::failure::{Exit, Failure};
use super::output::{Document, Output, table};

mod process;
pub(crate) mod worker;

use process::Worker;

/// Run a folder of cases that others made
///
/// Each folder below DIR that holds a model.tflite, input_0.npy, … and expected_0.npy, … is a case.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder of cases
    #[arg(long, value_name = "DIR")]
    corpus: PathBuf,
    #[command(flatten)]
    engine: Engine,
    /// Only cases whose path below DIR matches
    #[arg(long, value_name = "RE")]
    filter: Option<Regex>,
    /// Write results.csv and results.json there
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// A case that takes longer, in seconds, is ended and counted as `timeout`
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// How many processes run cases [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

/// One case's result.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct CaseResult {
    /// Its folder, below the corpus.
    case: String,
    /// `pass`, `mismatch`, `unsupported`, `invalid`, `error` or `timeout`.
    outcome: String,
    /// What went wrong.
    detail: String,
    /// Op and version of each node, `ADD:1`, without repetitions.
    ops: Vec<String>,
    /// The types of inputs and outputs, without repetitions.
    types: Vec<String>,
    ms: f64,
}

#[derive(Serialize)]
struct Conformance {
    corpus: PathBuf,
    delegate: String,
    total: usize,
    counts: BTreeMap<String, usize>,
    results: Vec<CaseResult>,
}

/// Every outcome, in the order in which reports show them.
const OUTCOMES: [&str; 6] = ["pass", "mismatch", "unsupported", "invalid", "error", "timeout"];

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    let root = &arguments.corpus;
    let found = corpus::find(root).map_err(|e| Failure::invalid(format!("{}: {e}", root.display())))?;
    let name = |case: &Path| case.strip_prefix(root).unwrap_or(case).display().to_string();
    let wanted = |case: &PathBuf| arguments.filter.as_ref().is_none_or(|re| re.is_match(&name(case)));
    let cases: Vec<PathBuf> = found.into_iter().filter(wanted).collect();
    if cases.is_empty() {
        return Err(Failure::invalid(format!("{}: no case there", root.display()))
            .with_help("a case is a folder that holds model.tflite, input_0.npy, … and expected_0.npy, …"));
    }
    // Where a request cannot be met at all, say so once instead of once per case.
    for choice in &arguments.engine.delegates {
        choice.open()?;
    }
    arguments.engine.kernels.resolver(false)?;
    let results = run_all(arguments, &cases, &name, out)?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for result in &results {
        *counts.entry(result.outcome.clone()).or_default() += 1;
    }
    let conformance = Conformance {
        corpus: root.clone(),
        delegate: arguments.engine.label(),
        total: results.len(),
        counts,
        results,
    };
    if let Some(folder) = &arguments.report {
        let failed = |e: std::io::Error| {
            Failure::new(Exit::Failed, format!("{}: cannot write: {e}", folder.display()))
        };
        conformance.write(folder).map_err(failed)?;
    }
    out.print(&conformance)?;
    let fine = conformance.counts.keys().all(|outcome| outcome == "pass" || outcome == "unsupported");
    Ok(if fine { Exit::Fine } else { Exit::Failed })
}

/// Runs every case in one of several worker processes; results are in the order of `cases`.
fn run_all(
    arguments: &Arguments,
    cases: &[PathBuf],
    name: &(impl Fn(&Path) -> String + Sync),
    out: &Output,
) -> Result<Vec<CaseResult>, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.map_or(cores, usize::from).min(cases.len());
    let timeout = Duration::from_secs(arguments.timeout);
    let options = worker::options(&arguments.engine);
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<CaseResult>>> = cases.iter().map(|_| Mutex::new(None)).collect();
    let bar = out.progress(cases.len() as u64, "{wide_bar} {pos}/{len} {eta}");
    let work = || -> std::io::Result<()> {
        let mut worker = Worker::new(&options);
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(i) else { return Ok(()) };
            let mut result = worker.run(case, timeout)?;
            result.case = name(case);
            if let Some(mut slot) = results.get(i).and_then(|slot| slot.lock().ok()) {
                *slot = Some(result);
            }
            bar.inc(1);
        }
    };
    let failed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|t| t.join().ok()?.err()).next()
    });
    bar.finish_and_clear();
    if let Some(error) = failed {
        return Err(Failure::new(Exit::Failed, format!("cannot start a worker process: {error}")));
    }
    Ok(results.into_iter().filter_map(|slot| slot.into_inner().ok().flatten()).collect())
}

impl Conformance {
    fn write(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut json = BufWriter::new(File::create(folder.join("results.json"))?);
        serde_json::to_writer_pretty(&mut json, self)?;
        json.flush()?;
        let mut csv = BufWriter::new(File::create(folder.join("results.csv"))?);
        writeln!(csv, "case,delegate,outcome,ops,types,ms,detail")?;
        for r in &self.results {
            let fields = [&r.case, &self.delegate, &r.outcome, &r.ops.join(" "), &r.types.join(" ")];
            let fields: Vec<String> = fields.into_iter().map(|f| quoted(f)).collect();
            writeln!(csv, "{},{:.3},{}", fields.join(","), r.ms, quoted(&r.detail))?;
        }
        csv.flush()
    }
}

/// A field of a CSV file.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.into()
    }
}

impl Document for Conformance {
    fn text(&self) -> String {
        let mut text = String::new();
        let bad = |r: &&CaseResult| !matches!(r.outcome.as_str(), "pass" | "unsupported");
        for r in self.results.iter().filter(bad) {
            text +=
                &format!("{:11} {}  {}\n", r.outcome, r.case, r.detail.lines().next().unwrap_or_default());
        }
        let rows = OUTCOMES.iter().filter_map(|outcome| {
            let count = self.counts.get(*outcome)?;
            let share = *count as f64 * 100.0 / self.total as f64;
            Some(vec![(*outcome).to_owned(), count.to_string(), format!("{share:.1}%")])
        });
        text += &table(&["outcome", "cases", ""], &[1, 2], rows);
        text + &format!("{} cases on {}\n", self.total, self.delegate)
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(quoted("a b"), "a b");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
