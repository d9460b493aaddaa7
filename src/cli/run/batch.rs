//! `run --inputs`: runs many records through one model, each with its own row, independent of failures of others.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, UNIX_EPOCH};

use delegraph::Interpreter;
use delegraph::core::{Shape, printable};
use delegraph_conformance::report::quoted;
use serde::{Deserialize, Serialize};

use super::records::{Record, find};
use super::{Arguments, write_output};
use crate::cli::delegates::{DelegateLine, Delegation};
use crate::cli::failure::{Exit, Failure};
use crate::cli::files::{self, cannot_write};
use crate::cli::inputs::{Entry, InputFile, Resize};
use crate::cli::journal::{Journal, Named};
use crate::cli::numbers::milliseconds;
use crate::cli::output::{Document, Output, Progress, table};
use crate::cli::text::{plural, shown};

/// The rows so far, from which an interrupted batch is resumed.
const JOURNAL: &str = "journal.jsonl";
/// All rows, in the order of the records.
const RESULTS: &str = "results.csv";

/// Failed records that are printed; all of them are in the results.
const SHOWN: usize = 10;

/// The outcome of a record.
#[derive(Serialize, Deserialize)]
struct Row {
    record: String,
    /// The reason why there are no outputs.
    error: Option<String>,
    outputs: usize,
    ms: f64,
}

impl Named for Row {
    fn name(&self) -> &str {
        &self.record
    }
}

#[derive(Serialize)]
struct Batch {
    model: String,
    signature: Option<String>,
    delegate: String,
    threads: usize,
    jobs: usize,
    records: usize,
    /// Records with outputs, including those of an earlier run.
    ran: usize,
    resumed: usize,
    failed: usize,
    seconds: f64,
    results: String,
    delegates: Vec<DelegateLine>,
    /// The first failed records.
    failures: Vec<Failed>,
}

#[derive(Serialize)]
struct Failed {
    record: String,
    error: String,
}

pub(super) fn run(arguments: &Arguments, inputs: &str, out: &Output) -> Result<Exit, Failure> {
    let start = Instant::now();
    let model = Arc::new(arguments.model.load()?);
    let folder = arguments.output_dir.as_deref().unwrap_or(Path::new("."));
    let records = find(inputs, &[RESULTS, JOURNAL])?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.map_or(cores / arguments.engine.threads, usize::from).min(records.len()).max(1);
    let make = arguments.engine.factory(model, jobs)?;
    // An invalid model or option is an error of the command, not of each record.
    let first = Runner::new(arguments, &make)?;
    if let Some(record) = records.first() {
        first.entry.check_all_given(&first.files(record))?;
    }
    let (threads, delegates) = (first.interpreter.threads(), arguments.engine.label());

    let (journal, mut rows) =
        Journal::open::<Row>(folder.join(JOURNAL), &identity(arguments), arguments.resume)?;
    rows.retain(|name, row| row.error.is_none() && (row.outputs == 0 || output(folder, name, 0).is_file()));
    let waiting: Vec<&Record> = records.iter().filter(|record| !rows.contains_key(&record.name)).collect();
    let resumed = records.len() - waiting.len();
    let bar = out.progress(records.len() as u64, "{wide_bar} {pos}/{len} {per_sec} {eta}");
    bar.set_position(resumed as u64);
    let work = Work {
        folder,
        journal,
        waiting,
        next: AtomicUsize::new(0),
        rows: Mutex::new(rows),
        delegations: Mutex::default(),
        bar,
    };
    let summary = work.run(first, jobs, || Runner::new(arguments, &make))?;
    work.bar.finish_and_clear();

    let mut rows = work.rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    let rows: Vec<Row> = records.iter().filter_map(|record| rows.remove(&record.name)).collect();
    let results = folder.join(RESULTS);
    files::write(&results, csv(&rows).as_bytes()).map_err(|e| cannot_write(&results, &e))?;
    let failed = rows.iter().filter(|row| row.error.is_some()).count();
    let failures =
        rows.iter().filter_map(|row| Some(Failed { record: row.record.clone(), error: row.error.clone()? }));
    out.print(&Batch {
        model: arguments.model.name(),
        signature: arguments.signature.clone(),
        delegate: delegates,
        threads,
        jobs,
        records: records.len(),
        ran: rows.len() - failed,
        resumed,
        failed,
        seconds: start.elapsed().as_nanos() as f64 / 1e9,
        results: shown(&results),
        delegates: summary,
        failures: failures.take(SHOWN).collect(),
    })?;
    Ok(if failed == 0 { Exit::Fine } else { Exit::Failed })
}

/// Identifies a batch: a journal of another one is not resumed.
fn identity(arguments: &Arguments) -> String {
    let path = &arguments.model.path;
    let file = fs::metadata(path).ok();
    let changed = file.as_ref().and_then(|file| file.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    let version = format!("{} bytes, {:?}", file.map_or(0, |f| f.len()), changed.unwrap_or_default());
    let Arguments { signature, inputs, resizes, .. } = arguments;
    let mut words = vec![shown(path)];
    words.extend(signature.iter().map(|key| format!("--signature {key}")));
    words.extend(inputs.iter().map(InputFile::option));
    words.extend(resizes.iter().map(Resize::option));
    words.extend(arguments.engine.options());
    // One line without tabs for any names.
    format!("{}\t{version}", printable(&words.join(" ")))
}

fn output(folder: &Path, record: &str, i: usize) -> PathBuf {
    folder.join(record).join(format!("output_{i}.npy"))
}

/// Returns the rows as a table with a header.
fn csv(rows: &[Row]) -> String {
    let mut text = String::from("record,status,outputs,ms,error\n");
    for Row { record, error, outputs, ms } in rows {
        let (status, error) = error.as_ref().map_or(("ok", ""), |error| ("failed", error));
        let _ = writeln!(text, "{},{status},{outputs},{ms:.3},{}", quoted(&printable(record)), quoted(error));
    }
    text
}

/// An interpreter with its entry point.
struct Runner<'a> {
    arguments: &'a Arguments,
    interpreter: Interpreter,
    entry: Entry,
}

impl<'a> Runner<'a> {
    fn new(
        arguments: &'a Arguments,
        make: impl Fn() -> Result<Interpreter, Failure>,
    ) -> Result<Self, Failure> {
        let mut interpreter = make()?;
        let entry = Entry::select(&mut interpreter, arguments.signature.as_deref())?;
        Ok(Runner { arguments, interpreter, entry })
    }

    /// Returns the files of a record and those of all records.
    fn files(&self, record: &Record) -> Vec<InputFile> {
        record.files.iter().chain(&self.arguments.inputs).cloned().collect()
    }

    /// Returns the nodes of each delegate, for the shapes of the last record.
    fn delegation(&self) -> Delegation {
        self.arguments.engine.delegation(&self.interpreter, self.entry.subgraph)
    }

    /// Runs the model, writes its outputs, and returns their number.
    fn run(&mut self, record: &Record, folder: &Path) -> Result<usize, Failure> {
        let files = self.files(record);
        self.entry.check_all_given(&files)?;
        let Arguments { resizes, seed, .. } = self.arguments;
        let filled = self.entry.fill(&mut self.interpreter, &files, resizes, *seed)?;
        // Records are independent: state is reset.
        self.interpreter.reset_variables()?;
        filled.invoke(&mut self.interpreter)?;
        let count = self.entry.outputs.len();
        for i in 0..count {
            write_output(self.interpreter.output_tensor(i)?, &output(folder, &record.name, i))?;
        }
        Ok(count)
    }
}

/// The waiting records, and the rows of the others.
struct Work<'a> {
    folder: &'a Path,
    journal: Journal,
    waiting: Vec<&'a Record>,
    /// The first of the waiting records that no job has taken.
    next: AtomicUsize,
    rows: Mutex<HashMap<String, Row>>,
    delegations: Mutex<Delegations>,
    bar: Progress,
}

/// The nodes of each delegate in the records that ran, and the number of these records, for each combination of shapes of
/// inputs and number of failures of delegates.
#[derive(Default)]
struct Delegations(HashMap<(Vec<Shape>, usize), (usize, Vec<DelegateLine>)>);

impl Delegations {
    /// Counts the record that ran last.
    fn count(&mut self, runner: &Runner<'_>) -> Result<(), Failure> {
        let interpreter = &runner.interpreter;
        let shape = |i| interpreter.input_tensor(i).map(|input| input.shape.clone());
        let shapes = (0..interpreter.input_count()).map(shape).collect::<delegraph::Result<Vec<_>>>()?;
        let failures = interpreter.subgraph_report(runner.entry.subgraph).map_or(0, |r| r.failures.len());
        let found = self.0.entry((shapes, failures)).or_insert_with(|| (0, runner.delegation().delegates));
        found.0 += 1;
        Ok(())
    }

    /// Returns the lines; with the number of records each if they differ. `None` if no record ran.
    fn lines(self) -> Option<Vec<DelegateLine>> {
        let mut groups: BTreeMap<String, (usize, Vec<DelegateLine>)> = BTreeMap::new();
        for (records, lines) in self.0.into_values() {
            let text = lines.iter().map(DelegateLine::text).collect();
            groups.entry(text).or_insert((0, lines)).0 += records;
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|(records, _)| std::cmp::Reverse(*records));
        if groups.len() > 1 {
            for (records, lines) in &mut groups {
                lines.iter_mut().for_each(|line| line.records = Some(*records));
            }
        }
        (!groups.is_empty()).then(|| groups.into_iter().flat_map(|(_, lines)| lines).collect())
    }
}

impl<'a> Work<'a> {
    /// Runs all records on `jobs` threads, the first of which uses `first`. Returns the nodes of each delegate.
    fn run(
        &self,
        first: Runner<'a>,
        jobs: usize,
        make: impl Fn() -> Result<Runner<'a>, Failure> + Sync,
    ) -> Result<Vec<DelegateLine>, Failure> {
        let make = &make;
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..jobs).map(|_| scope.spawn(move || self.job(None, make).map(drop))).collect();
            let runner = self.job(Some(first), make);
            let others: Result<Vec<()>, Failure> = others
                .into_iter()
                .map(|job| job.join().unwrap_or_else(|_| Err(Failure::internal())))
                .collect();
            others?;
            let runner = runner?;
            let counts =
                std::mem::take(&mut *self.delegations.lock().unwrap_or_else(PoisonError::into_inner));
            if let Some(lines) = counts.lines() {
                return Ok(lines);
            }
            // No record ran: the lines are those for the shapes of the file. If preparing fails, there are none.
            let mut runner = match runner {
                Some(runner) => runner,
                None => make()?,
            };
            if runner.arguments.engine.delegates_anything() {
                let _ = runner.interpreter.prepare();
            }
            Ok(runner.delegation().delegates)
        })
    }

    /// Runs records until none is waiting. An interpreter is replaced after a failed record.
    fn job(
        &self,
        mut runner: Option<Runner<'a>>,
        make: impl Fn() -> Result<Runner<'a>, Failure>,
    ) -> Result<Option<Runner<'a>>, Failure> {
        while let Some(record) = self.waiting.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            let mut current = match runner.take() {
                Some(runner) => runner,
                None => make()?,
            };
            let ran = catch_unwind(AssertUnwindSafe(|| current.run(record, self.folder)));
            let ran = ran.unwrap_or_else(|_| Err(Failure::internal()));
            if ran.is_ok() {
                self.delegations.lock().unwrap_or_else(PoisonError::into_inner).count(&current)?;
            }
            let outputs = *ran.as_ref().unwrap_or(&0);
            let error = ran.err().map(|failure| failure.parts().1.to_owned());
            runner = error.is_none().then_some(current);
            self.done(Row {
                record: record.name.clone(),
                error,
                outputs,
                ms: milliseconds(start.elapsed()),
            })?;
        }
        Ok(runner)
    }

    fn done(&self, row: Row) -> Result<(), Failure> {
        self.journal.add(&row).map_err(|e| cannot_write(&self.folder.join(JOURNAL), &e))?;
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).insert(row.record.clone(), row);
        self.bar.inc();
        Ok(())
    }
}

impl Document for Batch {
    fn text(&self) -> String {
        let Batch { ran, resumed, failed, seconds, .. } = self;
        let rate = (self.records - resumed) as f64 / seconds.max(1e-9);
        let mut text = format!("{}: {ran} ran", plural(self.records, "record"));
        if *resumed > 0 {
            text += &format!(", {resumed} of them in an earlier run");
        }
        let results = printable(&self.results);
        text += &format!(", {failed} failed; {seconds:.1} s, {rate:.1} records a second\n{results}\n");
        let rows = self.failures.iter().map(|f| vec![f.record.clone(), f.error.clone()]);
        text += &table(&["failed", "error"], &[], rows);
        if *failed > self.failures.len() {
            text += &format!("… and {} more\n", failed - self.failures.len());
        }
        self.delegates.iter().for_each(|line| text += &line.text());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_records_apart() {
        let line = |nodes: usize| DelegateLine {
            delegate: "npu".into(),
            nodes,
            total: 2,
            partitions: nodes.min(1),
            why: None,
            records: None,
        };
        let lines = |found: &[(usize, usize, usize)]| {
            let entry =
                |&(size, records, nodes)| ((vec![Shape::from([size])], 0), (records, vec![line(nodes)]));
            let lines = Delegations(found.iter().map(entry).collect()).lines()?;
            Some(lines.iter().map(DelegateLine::text).collect::<String>())
        };
        assert_eq!(lines(&[]), None);
        assert_eq!(lines(&[(4, 1, 2), (5, 9, 2)]).as_deref(), Some("npu: 2 of 2 nodes in 1 partition\n"));
        assert_eq!(
            lines(&[(4, 2, 2), (5, 1, 2), (0, 4, 0)]).as_deref(),
            Some("npu, 4 records: 0 of 2 nodes\nnpu, 3 records: 2 of 2 nodes in 1 partition\n")
        );
    }
}
