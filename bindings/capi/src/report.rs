//! The runners of nodes, and the cost of runs.

use std::ffi::c_char;

use delegraph::core::Op;
use delegraph::core::error::absent;
use delegraph::delegate_api::{NodeReport, Report, Runner};
use delegraph::documents::{self, Runners, understated};

use crate::error::{Failure, Out, call, dg_status};
use crate::interpreter::{dg_interpreter, session, with};
use crate::profile::Steps;
use crate::state::State;
use crate::text::give;

/// The runner of a node.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum dg_runner {
    /// A CPU kernel.
    DG_RUNNER_CPU = 0,
    /// Nothing: its inputs are constant, and `dg_interpreter_prepare` computed it.
    DG_RUNNER_FOLDED = 1,
    /// A delegate.
    DG_RUNNER_DELEGATE = 2,
}

/// The report on the selected subgraph.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct dg_report {
    /// The number of nodes.
    pub nodes: usize,
    /// Nodes that delegates run.
    pub delegated_nodes: usize,
    /// Nodes that `dg_interpreter_prepare` computed.
    pub folded_nodes: usize,
    /// Nodes that CPU kernels run.
    pub cpu_nodes: usize,
    /// The number of delegates.
    pub delegates: usize,
    /// The number of partitions: sets of nodes that a delegate runs at once.
    pub partitions: usize,
    /// The number of delegates that failed and were removed.
    pub failures: usize,
    /// Bytes of the memory that tensors share.
    pub arena_bytes: usize,
    /// Bytes of constants, of the file and computed from them, without those that kernels packed and released.
    pub weights_bytes: usize,
    /// Bytes of memory of devices.
    pub device_bytes: u64,
}

/// The report on a node.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dg_node {
    /// The runner of the node.
    pub runner: dg_runner,
    /// The version of its op.
    pub version: u32,
    /// The delegate that runs it: an index for `dg_interpreter_delegate`; 0 if none runs it.
    pub delegate: usize,
    /// The number of the delegate's partition; 0 if none runs it.
    pub partition: usize,
    /// The number of delegates that rejected it: see `dg_interpreter_rejection`.
    pub rejections: usize,
    /// Multiply-adds of one run.
    pub multiply_adds: u64,
}

/// Returns the report of the prepared subgraph.
fn prepared(state: &mut State) -> Result<&Report, Failure> {
    state.interpreter.prepare()?;
    Ok(state.interpreter.report())
}

/// Summarizes the runners of the nodes, and the memory of the model. Prepares it if necessary.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_report(
    interpreter: *mut dg_interpreter,
    report: *mut dg_report,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(report, dg_report::default()) }?;
        let summary = session(interpreter)?.with(|state| {
            let report = prepared(state)?;
            let count = |wanted: Runner| report.nodes.iter().filter(|node| node.runner == wanted).count();
            let summary = dg_report {
                nodes: report.nodes.len(),
                delegated_nodes: report.delegated_nodes(),
                folded_nodes: count(Runner::Folded),
                cpu_nodes: count(Runner::Cpu),
                delegates: report.delegates.len(),
                partitions: report.partitions.len(),
                failures: report.failures.len(),
                ..dg_report::default()
            };
            let memory = state.interpreter.memory();
            let stats = state.interpreter.delegate_stats();
            Ok(dg_report {
                arena_bytes: memory.arena_bytes,
                weights_bytes: memory.weights_bytes,
                device_bytes: stats.iter().fold(0, |sum, stats| sum.saturating_add(stats.device_bytes)),
                ..summary
            })
        })?;
        out.set(summary);
        Ok(())
    })
}

fn node_of(report: &Report, node: usize) -> Result<&NodeReport, Failure> {
    let count = report.nodes.len();
    let missing = || Failure::argument(absent("node", node, "the subgraph", count));
    report.nodes.get(node).ok_or_else(missing)
}

/// Reports the runner of a node of the selected subgraph, by its number from 0 on. `op`, which may be null, receives
/// the name of the op: a text to be freed with `dg_text_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_node(
    interpreter: *mut dg_interpreter,
    node: usize,
    report: *mut dg_node,
    op: *mut *mut c_char,
) -> dg_status {
    call(|| {
        let none = dg_node {
            runner: dg_runner::DG_RUNNER_CPU,
            version: 0,
            delegate: 0,
            partition: 0,
            rejections: 0,
            multiply_adds: 0,
        };
        // SAFETY: the interface requires null or valid pointers for the results.
        let (out, op) = unsafe {
            let op = if op.is_null() { None } else { Some(Out::new(op, std::ptr::null_mut())?) };
            (Out::new(report, none)?, op)
        };
        session(interpreter)?.with(|state| {
            let subgraph = state.subgraph_index()?;
            let line = node_of(prepared(state)?, node)?.clone();
            let (runner, delegate, partition) = match line.runner {
                Runner::Delegate { delegate, partition } => {
                    (dg_runner::DG_RUNNER_DELEGATE, delegate, partition)
                }
                Runner::Folded => (dg_runner::DG_RUNNER_FOLDED, 0, 0),
                _ => (dg_runner::DG_RUNNER_CPU, 0, 0),
            };
            let graph = state.interpreter.graph(subgraph);
            let multiply_adds = graph.map_or(0, |graph| graph.node(line.node).cost().multiply_adds);
            let (version, rejections) = (line.version, line.rejections.len());
            out.set(dg_node { runner, version, delegate, partition, rejections, multiply_adds });
            if let Some(op) = op {
                let name = match &line.op {
                    Op::Custom(name) => name.to_string(),
                    builtin => builtin.to_string(),
                };
                op.set(give(name.as_bytes()));
            }
            Ok(())
        })
    })
}

/// Returns two texts through pointers of the application, each of which may be null.
///
/// # Safety
/// The pointers are null, or valid for writes.
unsafe fn set_texts(pointers: [*mut *mut c_char; 2], texts: [&str; 2]) -> Result<(), Failure> {
    for (pointer, text) in pointers.into_iter().zip(texts) {
        if !pointer.is_null() {
            // SAFETY: guaranteed by the caller.
            unsafe { Out::new(pointer, std::ptr::null_mut()) }?.set(give(text.as_bytes()));
        }
    }
    Ok(())
}

/// Returns the reason why a delegate rejected a node: the name of the delegate and the reason, texts to be freed with
/// `dg_text_free`. Either may be null.
///
/// `DG_INVALID_ARGUMENT` if there is no such node or rejection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_rejection(
    interpreter: *mut dg_interpreter,
    node: usize,
    rejection: usize,
    delegate: *mut *mut c_char,
    reason: *mut *mut c_char,
) -> dg_status {
    with(interpreter, |state| {
        let report = prepared(state)?;
        let line = node_of(report, node)?;
        let count = line.rejections.len();
        let missing = || Failure::argument(absent("rejection", rejection, &format!("node {node}"), count));
        let (number, why) = line.rejections.get(rejection).ok_or_else(missing)?;
        let name = report.delegates.get(*number).map_or("", String::as_str);
        // SAFETY: the interface requires null or valid pointers for the results.
        unsafe { set_texts([delegate, reason], [name, &why.to_string()]) }
    })
}

/// Returns the name of a delegate, in the order in which they were added: a text to be freed with `dg_text_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_delegate(
    interpreter: *mut dg_interpreter,
    delegate: usize,
    name: *mut *mut c_char,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(name, std::ptr::null_mut()) }?;
        session(interpreter)?.with(|state| {
            let delegates = &prepared(state)?.delegates;
            let count = delegates.len();
            let missing = || Failure::argument(absent("delegate", delegate, "the interpreter", count));
            out.set(give(delegates.get(delegate).ok_or_else(missing)?.as_bytes()));
            Ok(())
        })
    })
}

/// Returns a failure of a delegate, whose nodes then run on the CPU: the name of the delegate and the message, texts to
/// be freed with `dg_text_free`. Either may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_failure(
    interpreter: *mut dg_interpreter,
    failure: usize,
    delegate: *mut *mut c_char,
    message: *mut *mut c_char,
) -> dg_status {
    with(interpreter, |state| {
        let failures = &prepared(state)?.failures;
        let count = failures.len();
        let missing = || Failure::argument(absent("failure", failure, "the interpreter", count));
        let line = failures.get(failure).ok_or_else(missing)?;
        // SAFETY: the interface requires null or valid pointers for the results.
        unsafe { set_texts([delegate, message], [&line.delegate, &line.message]) }
    })
}

/// Explains the runner of each node of the model, the reasons of delegates, and what to support next. Returns the JSON
/// of `delegraph explain --json`, a text to be freed with `dg_text_free`. Prepares the model's first subgraph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_explain(
    interpreter: *mut dg_interpreter,
    json: *mut *mut c_char,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(json, std::ptr::null_mut()) }?;
        let session = session(interpreter)?;
        let text = session.with(|state| {
            let entry = state.subgraph_index()?;
            if entry != 0 {
                state.interpreter.select_subgraph(0)?;
            }
            let prepared = state.interpreter.prepare();
            let runners = Runners::new(if state.reference { "reference" } else { "cpu" });
            let versions = understated(&state.model);
            let document = documents::explain(session.name.clone(), runners, &state.interpreter, versions);
            if entry != 0 {
                state.interpreter.select_subgraph(entry)?;
            }
            prepared?;
            let none = || Failure::new(dg_status::DG_INVALID_MODEL, "the model has no subgraph");
            Ok(document.ok_or_else(none)?.to_json())
        })?;
        out.set(give(text.as_bytes()));
        Ok(())
    })
}

/// Sets whether runs measure their steps (not 0). Off by default.
#[unsafe(no_mangle)]
pub extern "C" fn dg_interpreter_set_profiling(
    interpreter: *mut dg_interpreter,
    profiling: i32,
) -> dg_status {
    with(interpreter, |state| {
        state.steps = Steps::default();
        let profiler = (profiling != 0).then(|| Box::new(state.steps.clone()) as Box<_>);
        state.interpreter.set_profiler(profiler);
        Ok(())
    })
}

/// Returns the steps of the last run, if it was measured, ordered by their ends: a JSON array of objects with
/// `subgraph`, `nodes` (numbers), `delegate` (a name, or null for a CPU kernel), `nanoseconds`, and `node_times` (of
/// nodes that a device measured: `node` and `nanoseconds`). A text to be freed with `dg_text_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_profile(
    interpreter: *mut dg_interpreter,
    json: *mut *mut c_char,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(json, std::ptr::null_mut()) }?;
        let text = session(interpreter)?.with(|state| state.steps.json())?;
        out.set(give(text.as_bytes()));
        Ok(())
    })
}
