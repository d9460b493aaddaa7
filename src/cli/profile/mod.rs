//! `profile`: the time per node, per op and per kernel on a device.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use delegraph::core::NodeId;
use delegraph::delegate_api::{Cost, DelegateStats, DeviceKernel, NodeView};
use delegraph::{Interpreter, TensorType};
use serde::Serialize;

use super::delegates::{DelegateLine, Engine};
use super::failure::{Exit, Failure};
use super::files::cannot_write;
use super::inputs::Entry;
use super::model::ModelArgument;
use super::numbers::{ANY, milliseconds as ms, whole};
use super::output::{Output, bytes};
use super::text::{raw_name, shown};
use peak::Peak;
use record::{Recorder, StepTime};

mod peak;
mod record;
mod text;
mod trace;

/// Show where the time goes: per node and op, and per kernel on a device
///
/// Times are medians over the runs. A kernel that runs several nodes counts for the one with most arithmetic. The
/// roofline is the least time that the arithmetic and the bytes of a kernel need at the rates that a matrix product of
/// 1024 x 1024 x 1024, in float32 or in 8-bit integers, and a copy reach here; its share shows how close a kernel is to
/// it. "cached" is a kernel that takes less, because its operands are in caches, which are faster than memory.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArgument,
    #[command(flatten)]
    engine: Engine,
    /// Runs before those that count
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<usize>(0..=ANY), allow_negative_numbers = true)]
    warmup: usize,
    /// Runs that count
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<u32>(1..=1000), allow_negative_numbers = true)]
    runs: u32,
    /// Write the last run as a trace that chrome://tracing and Perfetto show
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Do not measure the limits of the machine
    #[arg(long)]
    no_peak: bool,
    /// Show all nodes and kernels, not only those that take longest
    #[arg(long)]
    all: bool,
}

#[derive(Serialize)]
struct Profile {
    model: String,
    delegate: String,
    threads: usize,
    runs: u32,
    /// One run, without reading inputs and outputs.
    total_ms: f64,
    /// The measured maximum rates of the machine.
    peaks: Vec<Peak>,
    /// The nodes of each delegate.
    delegates: Vec<DelegateLine>,
    /// Delegates that failed, with reasons; their nodes run on the CPU.
    failures: Vec<String>,
    partitions: Vec<PartitionTime>,
    nodes: Vec<NodeTime>,
    ops: Vec<OpTime>,
    kernels: Vec<KernelTime>,
    trace: Option<String>,
    notes: Vec<String>,
    #[serde(skip)]
    all: bool,
}

/// A delegate's partition as a whole.
#[derive(Serialize)]
struct PartitionTime {
    partition: usize,
    delegate: String,
    nodes: usize,
    ms: f64,
    upload_ms: Option<f64>,
    /// From the beginning of the first kernel to the end of the last one.
    gpu_ms: Option<f64>,
    readback_ms: Option<f64>,
    gpu_bytes: u64,
    kernels: usize,
}

#[derive(Serialize)]
struct NodeTime {
    subgraph: usize,
    node: usize,
    op: String,
    runner: String,
    /// `None` if only the partition's time is known, or if the node runs in another node's kernel.
    ms: Option<f64>,
    share: Option<f64>,
    multiply_adds: u64,
    bytes: u64,
    #[serde(flatten)]
    roofline: Roofline,
    /// The node whose kernel runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fused_into: Option<usize>,
}

#[derive(Serialize, Default)]
struct OpTime {
    op: String,
    nodes: usize,
    /// The sum of the times of its nodes; `None` if none was measured by itself.
    ms: Option<f64>,
    share: Option<f64>,
    multiply_adds: u64,
}

/// A kernel on a device.
#[derive(Serialize)]
struct KernelTime {
    partition: usize,
    kernel: String,
    nodes: Vec<usize>,
    ops: Vec<String>,
    ms: Option<f64>,
    share: Option<f64>,
    multiply_adds: u64,
    bytes: u64,
    #[serde(flatten)]
    roofline: Roofline,
}

/// The share of the roofline.
#[derive(Serialize, Clone, Copy, Default)]
struct Roofline {
    /// `None` if the time is not known, or the operands are in caches.
    roofline: Option<f64>,
    /// Whether the time is less than the bytes need in memory: the operands are in caches.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cached: bool,
}

/// The work of a node or kernel, for the roofline.
#[derive(Clone, Copy)]
struct Work {
    cost: Cost,
    /// Whether integers are multiplied, which is faster than float32.
    integers: bool,
}

/// Returns whether a node multiplies quantized values, at least quantized weights.
fn multiplies_integers(node: &NodeView<'_>) -> bool {
    use TensorType::{Int2, Int4, Int8, Int16, UInt8};
    node.inputs().any(|tensor| [Int2, Int4, Int8, Int16, UInt8].contains(&tensor.ty()))
}

/// The measurements of one run.
struct Run {
    steps: Vec<StepTime>,
    stats: Vec<DelegateStats>,
    kernels: Vec<Vec<DeviceKernel>>,
    total: Duration,
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    // A path that is not a file is reported before the peaks are measured. Limits do not apply to that measurement.
    if !arguments.model.path.is_file() {
        arguments.model.load()?;
    }
    let peaks = if arguments.no_peak { Vec::new() } else { peak::measure(&arguments.engine)? };
    let model = arguments.model.load()?;
    let mut interpreter = arguments.engine.build_profiled(model)?;
    let entry = Entry::select(&mut interpreter, None)?;
    entry.fill(&mut interpreter, &[], &[], 0)?;
    let inputs: Vec<Vec<u8>> = (0..interpreter.input_count())
        .map(|i| Ok(interpreter.input_bytes_mut(i)?.to_vec()))
        .collect::<Result<_, Failure>>()?;
    let recorder = Recorder::default();
    interpreter.set_profiler(Some(Box::new(recorder.clone())));
    let mut runs = Vec::new();
    let bar = out.progress(arguments.runs.into(), "{wide_bar} {pos}/{len}");
    for i in 0..arguments.warmup + arguments.runs as usize {
        for (i, input) in inputs.iter().enumerate() {
            interpreter.set_input_bytes(i, input)?;
        }
        let start = std::time::Instant::now();
        interpreter.invoke()?;
        let total = start.elapsed();
        let steps = recorder.take();
        if i >= arguments.warmup {
            let (stats, kernels) = (interpreter.delegate_stats(), interpreter.device_kernels());
            runs.push(Run { steps, stats, kernels, total });
            bar.inc();
        }
    }
    bar.finish_and_clear();
    let profile = Profile::new(arguments, &interpreter, &runs, peaks);
    if let (Some(path), Some(last)) = (&arguments.trace, runs.last()) {
        trace::write(path, last, &interpreter).map_err(|e| cannot_write(path, &e))?;
    }
    out.print(&profile)?;
    Ok(Exit::Fine)
}

/// Returns the median; `None` for an empty iterator.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl Profile {
    fn new(arguments: &Arguments, interpreter: &Interpreter, runs: &[Run], peaks: Vec<Peak>) -> Self {
        let total_ms = median(runs.iter().map(|r| ms(r.total))).unwrap_or(f64::NAN);
        let delegation = arguments.engine.delegation(interpreter, 0);
        let mut profile = Profile {
            model: arguments.model.name(),
            delegate: arguments.engine.label(),
            threads: interpreter.threads(),
            runs: arguments.runs,
            total_ms,
            peaks,
            delegates: delegation.delegates,
            failures: delegation.failures,
            partitions: Vec::new(),
            nodes: Vec::new(),
            ops: Vec::new(),
            kernels: Vec::new(),
            trace: arguments.trace.as_deref().map(shown),
            notes: Vec::new(),
            all: arguments.all,
        };
        profile.add_partitions(interpreter, runs);
        profile.add_kernels(interpreter, runs);
        profile.add_nodes(interpreter, runs, arguments.engine.cpu_name());
        profile.add_ops();
        if !profile.kernels.is_empty() && profile.kernels.iter().all(|k| k.ms.is_none()) {
            profile.notes.push(
                "this adapter has no time stamps: the time of single kernels is not known, gpu_ms is from \
                 submitting to the end"
                    .into(),
            );
        }
        profile
    }

    /// Returns the ratio of the minimum time that the work needs to `ms`.
    fn roofline(&self, runner: &str, work: Work, ms: Option<f64>) -> Roofline {
        let peak = self.peaks.iter().find(|p| p.runner == runner);
        let Some((peak, ms)) = peak.zip(ms.filter(|&ms| ms > 0.0)) else { return Roofline::default() };
        let integers = peak.integer_multiply_adds_per_s.filter(|_| work.integers).unwrap_or(0.0);
        let multiply_adds_per_s = peak.multiply_adds_per_s.max(integers);
        let arithmetic = work.cost.multiply_adds as f64 / multiply_adds_per_s;
        let bytes = work.cost.bytes as f64 / peak.bytes_per_s;
        let share = arithmetic.max(bytes) * 1e3 / ms;
        // Arithmetic is at most as fast as the measured product, up to noise.
        let cached = share > 1.0 && bytes > arithmetic;
        Roofline { roofline: (share > 0.0 && !cached).then_some(share.min(1.0)), cached }
    }

    fn add_partitions(&mut self, interpreter: &Interpreter, runs: &[Run]) {
        let report = interpreter.report();
        for (i, partition) in report.partitions.iter().enumerate() {
            let of = |get: fn(&DelegateStats) -> Option<Duration>| {
                median(runs.iter().filter_map(|r| get(r.stats.get(i)?)).map(ms))
            };
            let steps = |r: &Run| {
                let own =
                    |s: &&StepTime| s.subgraph == 0 && s.delegate.is_some() && s.nodes == partition.nodes;
                ms(r.steps.iter().filter(own).map(|s| s.duration).sum())
            };
            let stats = runs.last().and_then(|r| r.stats.get(i)).copied().unwrap_or_default();
            self.partitions.push(PartitionTime {
                partition: i,
                delegate: report.delegates.get(partition.delegate).cloned().unwrap_or_default(),
                nodes: partition.nodes.len(),
                ms: median(runs.iter().map(steps)).unwrap_or(f64::NAN),
                upload_ms: of(|s| s.upload_time),
                gpu_ms: of(|s| s.device_time),
                readback_ms: of(|s| s.readback_time),
                gpu_bytes: stats.device_bytes,
                kernels: stats.dispatches,
            });
        }
    }

    fn add_kernels(&mut self, interpreter: &Interpreter, runs: &[Run]) {
        let Some((last, graph)) = runs.last().zip(interpreter.graph(0)) else { return };
        for (p, kernels) in last.kernels.iter().enumerate() {
            let runner = self.partitions.get(p).map(|p| p.delegate.clone()).unwrap_or_default();
            for (k, kernel) in kernels.iter().enumerate() {
                let time = |r: &Run| Some(ms(r.kernels.get(p)?.get(k)?.time?));
                let time = median(runs.iter().filter_map(time));
                let each = kernel.nodes.iter().map(|&id| graph.node(id).cost().multiply_adds);
                let multiply_adds = each.fold(0, u64::saturating_add);
                let cost = Cost { multiply_adds, bytes: kernel.bytes };
                let integers = kernel.nodes.iter().any(|&id| multiplies_integers(&graph.node(id)));
                self.kernels.push(KernelTime {
                    partition: p,
                    kernel: kernel.name.clone(),
                    nodes: kernel.nodes.iter().map(|n| n.0).collect(),
                    ops: kernel.nodes.iter().map(|&id| raw_name(graph.node(id).op())).collect(),
                    ms: time,
                    share: time.map(|t| t / self.total_ms),
                    multiply_adds: cost.multiply_adds,
                    bytes: cost.bytes,
                    roofline: self.roofline(&runner, Work { cost, integers }, time),
                });
            }
        }
    }

    fn add_nodes(&mut self, interpreter: &Interpreter, runs: &[Run], cpu: &str) {
        // Times of nodes that are separate steps, or that a delegate measures.
        let mut times: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
        let mut runners: BTreeMap<(usize, usize), String> = BTreeMap::new();
        for run in runs {
            let mut sums: BTreeMap<(usize, usize), Duration> = BTreeMap::new();
            for step in &run.steps {
                let runner = step.delegate.as_deref().unwrap_or(cpu);
                for id in &step.nodes {
                    runners.entry((step.subgraph, id.0)).or_insert_with(|| runner.into());
                }
                match (&step.delegate, step.nodes.as_slice()) {
                    (None, [id]) => *sums.entry((step.subgraph, id.0)).or_default() += step.duration,
                    // Measurements of a delegate; those of its kernels follow below.
                    _ if step.subgraph == 0 && !self.kernels.is_empty() => {}
                    _ => {
                        for time in &step.node_times {
                            *sums.entry((step.subgraph, time.node.0)).or_default() += time.time;
                        }
                    }
                }
            }
            sums.into_iter().for_each(|(key, time)| times.entry(key).or_default().push(ms(time)));
        }
        let mut medians: BTreeMap<_, f64> =
            times.into_iter().filter_map(|(key, all)| Some((key, median(all.into_iter())?))).collect();
        let mut fused = BTreeMap::new();
        for kernel in &self.kernels {
            let cost = |node: &usize| {
                interpreter.graph(0).map_or(0, |graph| graph.node(NodeId(*node)).cost().multiply_adds)
            };
            // The first of several equal ones.
            let Some(&main) = kernel.nodes.iter().rev().max_by_key(|node| cost(node)) else { continue };
            if let Some(time) = kernel.ms {
                *medians.entry((0, main)).or_default() += time;
            }
            fused.extend(kernel.nodes.iter().filter(|n| **n != main).map(|&n| (n, main)));
        }
        for ((subgraph, node), runner) in runners {
            let Some(graph) = interpreter.graph(subgraph) else { continue };
            let view = graph.node(NodeId(node));
            let (cost, time) = (view.cost(), medians.get(&(subgraph, node)).copied());
            let work = Work { cost, integers: multiplies_integers(&view) };
            self.nodes.push(NodeTime {
                subgraph,
                node,
                op: raw_name(view.op()),
                ms: time,
                share: time.map(|t| t / self.total_ms),
                multiply_adds: cost.multiply_adds,
                bytes: cost.bytes,
                roofline: self.roofline(&runner, work, time),
                fused_into: fused.get(&node).copied().filter(|_| subgraph == 0 && time.is_none()),
                runner,
            });
        }
    }

    fn add_ops(&mut self) {
        let mut ops: BTreeMap<&str, OpTime> = BTreeMap::new();
        for node in &self.nodes {
            let op =
                ops.entry(&node.op).or_insert_with(|| OpTime { op: node.op.clone(), ..OpTime::default() });
            op.nodes += 1;
            op.ms = op.ms.into_iter().chain(node.ms).reduce(|sum, ms| sum + ms);
            op.multiply_adds = op.multiply_adds.saturating_add(node.multiply_adds);
        }
        let mut ops: Vec<OpTime> = ops.into_values().collect();
        ops.iter_mut().for_each(|op| op.share = op.ms.map(|ms| ms / self.total_ms));
        ops.sort_by(|a, b| b.ms.unwrap_or(0.0).total_cmp(&a.ms.unwrap_or(0.0)));
        self.ops = ops;
    }
}
