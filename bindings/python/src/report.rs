//! The report on delegation as plain Python objects.

use delegraph::core::Op;
use delegraph::delegate_api::{CompositeRunner, Report, Runner};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Returns a report as a dictionary of lists and dictionaries.
pub(crate) fn to_python<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let nodes = PyList::empty(py);
    for node in &report.nodes {
        let entry = PyDict::new(py);
        let (runner, delegate, partition) = match node.runner {
            Runner::Delegate { delegate, partition } => {
                ("delegate", Some(name(report, delegate)), Some(partition))
            }
            Runner::Folded => ("folded", None, None),
            _ => ("cpu", None, None),
        };
        entry.set_item("index", node.node.0)?;
        entry.set_item("op", op_name(&node.op))?;
        entry.set_item("version", node.version)?;
        entry.set_item("runner", runner)?;
        entry.set_item("delegate", delegate)?;
        entry.set_item("partition", partition)?;
        let reasons = PyList::empty(py);
        for (delegate, reason) in &node.rejections {
            reasons.append((name(report, *delegate), reason.kind(), reason.to_string()))?;
        }
        entry.set_item("rejections", reasons)?;
        nodes.append(entry)?;
    }
    let partitions = PyList::empty(py);
    for partition in &report.partitions {
        let entry = PyDict::new(py);
        entry.set_item("delegate", name(report, partition.delegate))?;
        entry.set_item("nodes", partition.nodes.iter().map(|id| id.0).collect::<Vec<_>>())?;
        entry.set_item("inputs", partition.inputs.iter().map(|id| id.0).collect::<Vec<_>>())?;
        entry.set_item("outputs", partition.outputs.iter().map(|id| id.0).collect::<Vec<_>>())?;
        entry.set_item("multiply_adds", partition.multiply_adds)?;
        entry.set_item("boundary_bytes", partition.boundary_bytes)?;
        partitions.append(entry)?;
    }
    let composites = PyList::empty(py);
    for composite in &report.composites {
        let entry = PyDict::new(py);
        let runner = match composite.runner {
            CompositeRunner::Delegate(delegate) => name(report, delegate),
            CompositeRunner::Kernel => "kernel".into(),
            CompositeRunner::Inlined => "inlined".into(),
            _ => "called".into(),
        };
        entry.set_item("name", &composite.name)?;
        entry.set_item("version", composite.version)?;
        entry.set_item("runner", runner)?;
        entry.set_item("nodes", composite.nodes.iter().map(|id| id.0).collect::<Vec<_>>())?;
        composites.append(entry)?;
    }
    let result = PyDict::new(py);
    result.set_item("delegates", &report.delegates)?;
    result.set_item("nodes", nodes)?;
    result.set_item("partitions", partitions)?;
    result.set_item("composites", composites)?;
    let failures = report.failures.iter().map(|f| (f.delegate.clone(), f.message.clone()));
    result.set_item("failures", failures.collect::<Vec<_>>())?;
    Ok(result)
}

/// Returns an op's name without quotes.
pub(crate) fn op_name(op: &Op) -> String {
    match op {
        Op::Custom(name) => name.to_string(),
        op => op.to_string(),
    }
}

fn name(report: &Report, delegate: usize) -> String {
    report.delegates.get(delegate).cloned().unwrap_or_else(|| format!("delegate {delegate}"))
}
