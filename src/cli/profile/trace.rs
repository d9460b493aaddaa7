//! A run as a trace in Chrome's format: <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use delegraph::Interpreter;
use serde_json::{Value, json};

use super::Run;
use crate::cli::files::create;
use crate::cli::text::{plural, raw_name};

/// Threads of the trace.
const STEPS: u32 = 1;
const DEVICE: u32 = 2;

pub(super) fn write(path: &Path, run: &Run, interpreter: &Interpreter) -> io::Result<()> {
    let mut file = BufWriter::new(create(path)?);
    serde_json::to_writer(
        &mut file,
        &json!({ "displayTimeUnit": "ms", "traceEvents": events(run, interpreter) }),
    )?;
    file.flush()
}

fn events(run: &Run, interpreter: &Interpreter) -> Vec<Value> {
    let name = |thread: u32, name: &str| json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": thread, "args": { "name": name } });
    let mut events = vec![name(STEPS, "interpreter"), name(DEVICE, "device")];
    let Some(begin) = run.steps.iter().map(|s| s.start).min() else { return events };
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    let mut add = |name: String, thread: u32, at: f64, length: f64, args: Value| {
        events.push(json!({
            "ph": "X", "name": name, "cat": if thread == STEPS { "step" } else { "device" },
            "pid": 1, "tid": thread, "ts": at, "dur": length, "args": args,
        }));
    };
    let report = interpreter.report();
    for step in &run.steps {
        let at = micros(step.start - begin);
        let nodes: Vec<usize> = step.nodes.iter().map(|n| n.0).collect();
        let args = json!({ "subgraph": step.subgraph, "nodes": nodes });
        let Some(delegate) = &step.delegate else {
            let op = |id| interpreter.graph(step.subgraph).map(|graph| raw_name(graph.node(id).op()));
            let op = step.nodes.first().and_then(|id| op(*id)).unwrap_or_default();
            add(format!("{op} {}", nodes.first().unwrap_or(&0)), STEPS, at, micros(step.duration), args);
            continue;
        };
        add(format!("{delegate}: {}", plural(nodes.len(), "node")), STEPS, at, micros(step.duration), args);
        let own = |p: &delegraph::delegate_api::PartitionReport| p.nodes == step.nodes;
        let Some(p) = report.partitions.iter().position(own).filter(|_| step.subgraph == 0) else { continue };
        let Some(stats) = run.stats.get(p) else { continue };
        // Device and CPU have separate clocks, so kernels are drawn to end at the start of the read-back.
        let [upload, device, readback] = [stats.upload_time, stats.device_time, stats.readback_time]
            .map(|t| micros(t.unwrap_or_default()));
        let end = at + micros(step.duration);
        add("upload".into(), DEVICE, at, upload, json!({}));
        let mut now = (end - readback - device).max(at + upload);
        for kernel in run.kernels.get(p).into_iter().flatten() {
            let Some(time) = kernel.time.map(micros) else { continue };
            let nodes: Vec<usize> = kernel.nodes.iter().map(|n| n.0).collect();
            add(kernel.name.clone(), DEVICE, now, time, json!({ "nodes": nodes, "bytes": kernel.bytes }));
            now += time;
        }
        add("read back".into(), DEVICE, (end - readback).max(now), readback, json!({}));
    }
    events
}
