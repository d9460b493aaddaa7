//! One model on one backend: times, where each node runs, and outputs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use delegraph::core::kernel::RuntimeTensor;
use delegraph::delegate_api::{Report, Runner};
use delegraph::delegate_wgpu::{WgpuDelegate, WgpuOptions};
use delegraph::{Interpreter, Result, TensorType};

use crate::verdict::Comparison;

/// A backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// The GPU delegate, and CPU kernels for the nodes that it rejects.
    Gpu,
    /// CPU kernels with this number of threads.
    Cpu(usize),
}

/// Times, report and outputs of a model.
pub(crate) struct Ran {
    /// Reading and verifying the file.
    pub(crate) load: Duration,
    /// Preparation of the interpreter: shapes, memory, weights, shaders.
    pub(crate) prepare: Duration,
    /// The first run.
    pub(crate) first: Duration,
    /// The median of the runs after it.
    pub(crate) median: Duration,
    /// The outputs of the last run.
    pub(crate) outputs: Vec<Output>,
    /// Where each node ran.
    pub(crate) report: Report,
}

/// An output tensor.
pub(crate) struct Output {
    /// As floats; quantized values are dequantized.
    pub(crate) values: Vec<f32>,
    /// The quantization step of the tensor, if it is quantized.
    step: Option<f32>,
}

/// Returns the interpreter of a model, with the time that loading and preparing took.
pub(crate) fn prepare(model: &Path, backend: Backend) -> Result<(Interpreter, Duration, Duration)> {
    let start = Instant::now();
    let model = delegraph::load(model)?;
    let load = start.elapsed();
    let start = Instant::now();
    let builder = Interpreter::builder(model);
    let builder = match backend {
        Backend::Gpu => builder.delegate(WgpuDelegate::new(WgpuOptions::default())?),
        Backend::Cpu(threads) => builder.threads(threads),
    };
    let interpreter = builder.build()?;
    Ok((interpreter, load, start.elapsed()))
}

/// Runs a model on `input` for about a second.
pub(crate) fn run(model: &Path, input: &[f32], backend: Backend) -> Result<Ran> {
    let (mut interpreter, load, prepare) = prepare(model, backend)?;
    let mut once = || {
        let start = Instant::now();
        set_input(&mut interpreter, input)?;
        interpreter.invoke()?;
        Ok::<_, delegraph::Error>(start.elapsed())
    };
    let first = once()?;
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < 5 || start.elapsed() < Duration::from_secs(1) {
        times.push(once()?);
    }
    times.sort();
    let outputs = (0..interpreter.output_count()).map(|i| output(&interpreter, i)).collect::<Result<_>>()?;
    let report = interpreter.report().clone();
    Ok(Ran { load, prepare, first, median: times[times.len() / 2], outputs, report })
}

/// Writes input 0, quantized if the tensor is.
pub(crate) fn set_input(interpreter: &mut Interpreter, values: &[f32]) -> Result<()> {
    let (scale, zero_point) = steps(interpreter.input_tensor(0)?);
    if interpreter.input_tensor(0)?.ty == TensorType::Int8 {
        let quantized = values.iter().map(|v| (v / scale).round() + zero_point);
        // `as` clamps to the type's range.
        interpreter.input_mut::<i8>(0)?.iter_mut().zip(quantized).for_each(|(q, v)| *q = v as i8);
    } else {
        interpreter.input_mut::<f32>(0)?.iter_mut().zip(values).for_each(|(x, v)| *x = *v);
    }
    Ok(())
}

/// Returns output `i` as floats.
pub(crate) fn output(interpreter: &Interpreter, i: usize) -> Result<Output> {
    let tensor = interpreter.output_tensor(i)?;
    let (scale, zero_point) = steps(tensor);
    let values = if tensor.ty == TensorType::Int8 {
        let real = |q: &i8| (f32::from(*q) - zero_point) * scale;
        interpreter.output::<i8>(i)?.iter().map(real).collect()
    } else {
        interpreter.output::<f32>(i)?.to_vec()
    };
    Ok(Output { values, step: (tensor.ty == TensorType::Int8).then_some(scale) })
}

/// Compares every output of a backend with the expected output; returns the worst comparison relative to its tolerance.
pub(crate) fn compare(got: &[Output], expected: &[Output]) -> Option<Comparison> {
    let pairs = got.iter().zip(expected);
    let all = pairs.map(|(got, expected)| Comparison::of(&got.values, &expected.values, expected.step));
    all.max_by(|a, b| (a.max_abs / a.allowed).total_cmp(&(b.max_abs / b.allowed)))
}

/// Where the nodes run: a line for each partition and each reason.
pub(crate) fn explain(report: &Report) -> String {
    let count = |wanted: Runner| report.nodes.iter().filter(|n| n.runner == wanted).count();
    let mut text = format!("  {} nodes: {} on the GPU", report.nodes.len(), report.delegated_nodes());
    for (n, whose) in [(count(Runner::Cpu), "on the CPU"), (count(Runner::Folded), "constant, computed once")]
    {
        if n > 0 {
            _ = write!(text, ", {n} {whose}");
        }
    }
    text.push('\n');
    for (i, partition) in report.partitions.iter().enumerate() {
        let ops = tally(
            report.nodes.iter().filter(|n| partition.nodes.contains(&n.node)).map(|n| n.op.to_string()),
        );
        _ = writeln!(text, "  partition {i}, {} nodes: {ops}", partition.nodes.len());
    }
    let left = tally(report.rejected().map(|(node, reason)| format!("{} ({reason})", node.op)));
    if !left.is_empty() {
        _ = writeln!(text, "  left to the CPU: {left}");
    }
    for failure in &report.failures {
        let (delegate, message) = (&failure.delegate, &failure.message);
        _ = writeln!(text, "  {delegate} failed, everything runs on the CPU: {message}");
    }
    text
}

/// `12 × A, 3 × B`, in alphabetical order.
fn tally(names: impl Iterator<Item = String>) -> String {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_insert(0) += 1);
    let parts: Vec<String> = counts.into_iter().map(|(name, n): (_, u32)| format!("{n} × {name}")).collect();
    parts.join(", ")
}

/// Scale and zero point of a tensor that is quantized as a whole; 1 and 0 of any other.
fn steps(tensor: &RuntimeTensor) -> (f32, f32) {
    tensor.scale_zero_point().map_or((1.0, 0.0), |(scale, zero_point)| (scale, zero_point as f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(values: &[f32]) -> Output {
        Output { values: values.to_vec(), step: None }
    }

    #[test]
    fn the_worst_output_decides() {
        let expected = [output(&[155.0, -3.0]), output(&[0.5, 0.25])];
        let passes = |got: &[Output]| compare(got, &expected).unwrap().passes();
        assert!(passes(&[output(&[155.01, -3.0]), output(&[0.5, 0.250_05])]));
        // The difference of the first output is the larger one, but small relative to its values.
        assert!(!passes(&[output(&[155.01, -3.0]), output(&[0.5, 0.2502])]));
        assert!(!passes(&[output(&[59.0, -3.0]), output(&[0.5, 0.25])]));
        assert!(!passes(&[output(&[155.0, f32::NAN]), output(&[0.5, 0.25])]));
        assert!(!passes(&[output(&[155.0]), output(&[0.5, 0.25])]));
    }
}
