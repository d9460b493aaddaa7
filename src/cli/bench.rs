//! `bench`: the time and memory of loading, preparing and running.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use delegraph::Interpreter;
use delegraph::core::types::read_regular;
use delegraph::core::{NodeId, TensorId, printable};
use delegraph::delegate_api::DelegateStats;
use serde::{Deserialize, Serialize};

use super::delegates::{Delegation, Engine};
use super::failure::{Exit, Failure};
use super::inputs::Entry;
use super::model::ModelArgument;
use super::numbers::{self, ANY, milliseconds, whole};
use super::output::{Document, Output, bytes, table};
use super::text::{milliseconds as ms, plural, printable_path, shown};

/// Measure a model's times and memory
///
/// A timed run writes the inputs, runs the model and reads the outputs.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArgument,
    #[command(flatten)]
    engine: Engine,
    /// Warm-up runs after the first run, which are not measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<usize>(0..=ANY), allow_negative_numbers = true)]
    warmup: usize,
    /// The number of runs; with --seconds, the maximum
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=ANY), allow_negative_numbers = true)]
    runs: Option<u64>,
    /// The time to run, in seconds [default: 2, unless --runs is given]; at least 5 runs are made
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// Print ratios to an earlier result of `bench --json`
    #[arg(long, value_name = "OTHER.json")]
    compare: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    Ok(numbers::seconds(text, 0.0..=86_400.0)?.as_secs_f64())
}

/// The JSON document.
#[derive(Serialize)]
struct Bench {
    model: String,
    delegate: String,
    threads: usize,
    load_ms: f64,
    prepare_ms: f64,
    first_ms: f64,
    runs: usize,
    median_ms: f64,
    p90_ms: f64,
    min_ms: f64,
    memory: Memory,
    #[serde(flatten)]
    delegation: Delegation,
    /// Kernels that one run starts on devices.
    dispatches: usize,
    /// Bytes that one run reads back from delegates, for the caller or a CPU node.
    read_back_bytes: usize,
    /// Medians over the runs of the delegates' own measurements.
    upload_ms: Option<f64>,
    gpu_ms: Option<f64>,
    readback_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compare: Option<Ratios>,
}

#[derive(Serialize)]
struct Memory {
    arena_bytes: usize,
    naive_bytes: usize,
    lower_bound_bytes: usize,
    weights_bytes: usize,
    gpu_bytes: u64,
    peak_rss_bytes: Option<u64>,
}

/// The compared values of another result.
#[derive(Deserialize)]
#[serde(expecting = "a JSON object")]
struct Other {
    model: Option<String>,
    load_ms: f64,
    prepare_ms: f64,
    first_ms: f64,
    median_ms: f64,
    min_ms: f64,
}

/// The ratios of this result to the other; below 1, this one is faster. `None` if the other time is 0.
#[derive(Serialize)]
struct Ratios {
    file: String,
    /// The model of the other result.
    model: Option<String>,
    load: Option<f64>,
    prepare: Option<f64>,
    first: Option<f64>,
    median: Option<f64>,
    min: Option<f64>,
}

/// Returns the ratio of two times; `None` if the other one is 0.
fn ratio(time: f64, other: f64) -> Option<f64> {
    (other > 0.0).then(|| time / other)
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    let other = arguments.compare.as_ref().map(read).transpose()?;
    let start = Instant::now();
    let model = arguments.model.load()?;
    let loaded = Instant::now();
    let mut interpreter = arguments.engine.build(model)?;
    let prepared = Instant::now();

    let entry = Entry::select(&mut interpreter, None)?;
    entry.fill(&mut interpreter, &[], &[], 0)?;
    let mut buffers = Buffers::new(&mut interpreter)?;
    let first_ms = milliseconds(buffers.run(&mut interpreter)?);
    for _ in 0..arguments.warmup {
        buffers.run(&mut interpreter)?;
    }
    let (mut times, stats) = measure(arguments, &mut interpreter, &mut buffers, out)?;
    times.sort_by(f64::total_cmp);

    let memory = interpreter.memory();
    let mut bench = Bench {
        model: arguments.model.name(),
        delegate: arguments.engine.label(),
        threads: interpreter.threads(),
        load_ms: milliseconds(loaded - start),
        prepare_ms: milliseconds(prepared - loaded),
        first_ms,
        runs: times.len(),
        median_ms: quantile(&times, 0.5),
        p90_ms: quantile(&times, 0.9),
        min_ms: quantile(&times, 0.0),
        memory: Memory {
            arena_bytes: memory.arena_bytes,
            naive_bytes: memory.naive_bytes,
            lower_bound_bytes: memory.lower_bound_bytes,
            weights_bytes: memory.weights_bytes,
            gpu_bytes: interpreter.delegate_stats().iter().map(|s| s.device_bytes).sum(),
            peak_rss_bytes: peak_rss(),
        },
        delegation: arguments.engine.delegation(&interpreter, entry.subgraph),
        dispatches: interpreter.delegate_stats().iter().map(|s| s.dispatches).sum(),
        read_back_bytes: read_back(&interpreter),
        upload_ms: median_of(&stats, |s| s.upload_time),
        gpu_ms: median_of(&stats, |s| s.device_time),
        readback_ms: median_of(&stats, |s| s.readback_time),
        compare: None,
    };
    if let Some(other) = other.as_ref().and_then(|other| other.model.as_deref())
        && Path::new(other).file_name() != arguments.model.path.file_name()
    {
        log::warn!("the ratios are to the times of another model: {}", printable(other));
    }
    bench.compare = other.zip(arguments.compare.as_ref()).map(|(other, file)| Ratios {
        file: shown(file),
        model: other.model,
        load: ratio(bench.load_ms, other.load_ms),
        prepare: ratio(bench.prepare_ms, other.prepare_ms),
        first: ratio(bench.first_ms, other.first_ms),
        median: ratio(bench.median_ms, other.median_ms),
        min: ratio(bench.min_ms, other.min_ms),
    });
    out.print(&bench)?;
    Ok(Exit::Fine)
}

/// Inputs to write and buffers for outputs, so that a timed run does the work of an application and does not allocate.
struct Buffers {
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
}

impl Buffers {
    fn new(interpreter: &mut Interpreter) -> Result<Self, Failure> {
        let inputs = (0..interpreter.input_count())
            .map(|i| Ok(interpreter.input_bytes_mut(i)?.to_vec()))
            .collect::<Result<_, Failure>>()?;
        let outputs = vec![Vec::new(); interpreter.output_count()];
        Ok(Buffers { inputs, outputs })
    }

    fn run(&mut self, interpreter: &mut Interpreter) -> Result<Duration, Failure> {
        let start = Instant::now();
        for (i, input) in self.inputs.iter().enumerate() {
            interpreter.set_input_bytes(i, input)?;
        }
        interpreter.invoke()?;
        for (i, output) in self.outputs.iter_mut().enumerate() {
            output.clear();
            output.extend_from_slice(interpreter.output_tensor(i)?.bytes());
        }
        Ok(start.elapsed())
    }
}

/// The measured runs: their times in milliseconds, and per run the sums of the delegates' measurements.
fn measure(
    arguments: &Arguments,
    interpreter: &mut Interpreter,
    buffers: &mut Buffers,
    out: &Output,
) -> Result<(Vec<f64>, Vec<DelegateStats>), Failure> {
    let seconds = arguments.seconds.or(arguments.runs.is_none().then_some(2.0));
    let most = arguments.runs.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let least = most.min(5);
    let length = seconds.map_or(1, |s| (s * 1e3) as u64);
    let bar = out.progress(length, "{wide_bar} {msg} {elapsed}");
    let delegated = !interpreter.report().partitions.is_empty();
    let (mut times, mut stats) = (Vec::new(), Vec::new());
    let start = Instant::now();
    loop {
        times.push(milliseconds(buffers.run(interpreter)?));
        if delegated {
            stats.push(sum(&interpreter.delegate_stats()));
        }
        bar.set_position(start.elapsed().as_millis() as u64);
        let over = seconds.is_some_and(|s| start.elapsed().as_secs_f64() >= s);
        if times.len() >= most || (over && times.len() >= least) {
            break;
        }
    }
    bar.finish_and_clear();
    Ok((times, stats))
}

/// Bytes of the partitions' outputs with a reader outside of delegates.
fn read_back(interpreter: &Interpreter) -> usize {
    let Some(graph) = interpreter.graph(0) else { return 0 };
    let report = interpreter.report();
    let delegated: HashSet<NodeId> = report.partitions.iter().flat_map(|p| p.nodes.iter().copied()).collect();
    let mut read: HashSet<TensorId> = graph.subgraph().outputs().iter().copied().collect();
    for node in graph.nodes().filter(|node| !delegated.contains(&node.id())) {
        read.extend(node.inputs().map(|tensor| tensor.id()));
    }
    let outputs = report.partitions.iter().flat_map(|p| &p.outputs).filter(|id| read.contains(id));
    outputs.map(|&id| graph.tensor(id).tensor().bytes().len()).sum()
}

fn sum(partitions: &[DelegateStats]) -> DelegateStats {
    let add =
        |get: fn(&DelegateStats) -> Option<Duration>| partitions.iter().filter_map(get).reduce(|a, b| a + b);
    let mut sum = DelegateStats::default();
    sum.upload_time = add(|s| s.upload_time);
    sum.device_time = add(|s| s.device_time);
    sum.readback_time = add(|s| s.readback_time);
    sum
}

fn median_of(stats: &[DelegateStats], get: impl Fn(&DelegateStats) -> Option<Duration>) -> Option<f64> {
    let mut values: Vec<f64> = stats.iter().filter_map(get).map(milliseconds).collect();
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| quantile(&values, 0.5))
}

/// The quantile `q` of the sorted `values`.
fn quantile(values: &[f64], q: f64) -> f64 {
    let i = (values.len() as f64 * q) as usize;
    values.get(i.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The peak resident memory of the process, where the system reports it.
fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn read(path: &PathBuf) -> Result<Other, Failure> {
    let invalid = |e: String| Failure::invalid(format!("--compare {}: {e}", printable_path(path)));
    let text = read_regular(path).map_err(|e| invalid(e.to_string()))?;
    serde_json::from_slice(&text).map_err(|e| invalid(format!("not a result of `bench --json`: {e}")))
}

impl Document for Bench {
    fn text(&self) -> String {
        let Bench { memory: m, runs, .. } = self;
        let threads = plural(self.threads, "thread");
        let mut text = format!("{} on {}, {threads}\n", printable(&self.model), self.delegate);
        text += &self.delegation.text();
        let ratio = |get: fn(&Ratios) -> Option<f64>| {
            let number = |r: Option<f64>| r.map_or_else(|| "-".to_owned(), |r| format!("{r:.3}"));
            self.compare.as_ref().map_or_else(String::new, |r| number(get(r)))
        };
        let mut rows = vec![
            vec!["load".into(), ms(self.load_ms), ratio(|r| r.load)],
            vec!["prepare".into(), ms(self.prepare_ms), ratio(|r| r.prepare)],
            vec!["first".into(), ms(self.first_ms), ratio(|r| r.first)],
            vec!["median".into(), ms(self.median_ms), ratio(|r| r.median)],
            vec!["90%".into(), ms(self.p90_ms), String::new()],
            vec!["min".into(), ms(self.min_ms), ratio(|r| r.min)],
        ];
        for (name, value) in
            [("upload", self.upload_ms), ("gpu", self.gpu_ms), ("readback", self.readback_ms)]
        {
            rows.extend(value.map(|v| vec![name.into(), ms(v), String::new()]));
        }
        let header = ["time", "ms", if self.compare.is_some() { "ratio to other" } else { "" }];
        text += &table(&header, &[1, 2], rows);
        text += &format!("{}\n\n", plural(*runs, "run"));
        let mut rows = vec![
            ("arena, naive", m.naive_bytes),
            ("arena, planned", m.arena_bytes),
            ("arena, lower bound", m.lower_bound_bytes),
            ("weights", m.weights_bytes),
        ];
        rows.extend(usize::try_from(m.gpu_bytes).ok().filter(|n| *n > 0).map(|n| ("GPU", n)));
        rows.extend(m.peak_rss_bytes.and_then(|n| usize::try_from(n).ok()).map(|n| ("peak resident", n)));
        let row = |(name, n): (&str, usize)| vec![name.to_owned(), n.to_string(), bytes(n)];
        text += &table(&["memory", "bytes", ""], &[1, 2], rows.into_iter().map(row));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&values, 0.5), 6.0);
        assert_eq!(quantile(&values, 0.9), 10.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
