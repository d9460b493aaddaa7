//! The memory that a delegate may read and write.

use delegraph_core::kernel::{AlignedBuffer, Placement};
use delegraph_core::{TensorId, TensorType};
use delegraph_interpreter::Interpreter;

use super::watch::Watch;
use super::{Found, Outputs, Trial, differ};
use crate::engine::{feed, outputs};

/// Requires that a claimed case runs on the delegate's kernels.
pub(super) fn ran(trial: &Trial<'_>) -> Found {
    let (watch, log) = Watch::new(trial.make()?, None);
    let mut interpreter = trial.interpreter(Some(Box::new(watch)))?;
    let got = trial.run(&mut interpreter)?;
    if let Some(problem) = log.problems().into_iter().next() {
        return Ok(Some(problem));
    }
    // A node with known inputs may be computed in advance, and a branch may not be taken.
    let called = trial.problem.model.subgraphs().len() > 1;
    if log.invocations() == 0 && !called && interpreter.report().delegated_nodes() > 0 {
        let partitions = &interpreter.report().partitions;
        let empty = partitions.iter().all(|p| p.outputs.is_empty());
        if !empty && !all_constant(&interpreter) {
            return Ok(Some("nodes are claimed, but none of its kernels was run".into()));
        }
    }
    Ok(differ(trial.problem, "run again", &got, trial.got))
}

fn all_constant(interpreter: &Interpreter) -> bool {
    (0..interpreter.output_count()).all(|i| {
        let constant = [Placement::Constant, Placement::Released];
        interpreter.output_tensor(i).is_ok_and(|t| constant.contains(&t.placement()))
    })
}

/// Runs with inputs and outputs between guards. The outputs are filled with one byte first, then with another, to
/// detect elements that are not written.
pub(super) fn bounds(trial: &Trial<'_>) -> Found {
    for fill in [0x5A, 0xA5] {
        let mut interpreter = trial.interpreter(Some(trial.make()?))?;
        let mut all = Outputs::new();
        for step in &trial.problem.steps {
            for input in 0..interpreter.input_count() {
                let tensor = interpreter.input_tensor(input)?;
                let Some(buffer) = guarded(tensor.ty, tensor.byte_size().ok(), 0) else { continue };
                let _ = interpreter.bind_input(input, buffer);
            }
            let mut bound = Vec::new();
            for output in 0..interpreter.output_count() {
                let tensor = interpreter.output_tensor(output)?;
                let Some(buffer) = guarded(tensor.ty, tensor.byte_size().ok(), fill) else { continue };
                // Constant and variable outputs, and outputs of unknown shape, cannot be bound.
                if interpreter.bind_output(output, buffer).is_ok() {
                    bound.push(output);
                }
            }
            feed(&mut interpreter, &step.feeds)?;
            interpreter.invoke()?;
            all.push(outputs(&interpreter)?);
            for input in 0..interpreter.input_count() {
                let tensor = interpreter.input_tensor(input)?;
                if tensor.placement() != Placement::Bound {
                    continue;
                }
                let fresh = AlignedBuffer::guarded(tensor.byte_size()?)?;
                if interpreter.bind_input(input, fresh)?.is_some_and(|b| !b.guards_hold()) {
                    return Ok(Some(format!("it wrote outside of its memory, next to input {input}")));
                }
            }
            for output in bound {
                let tensor = interpreter.output_tensor(output)?;
                // An output with a data-dependent shape has its own memory now.
                if tensor.placement() != Placement::Bound {
                    continue;
                }
                let fresh = AlignedBuffer::guarded(tensor.byte_size()?)?;
                if interpreter.bind_output(output, fresh)?.is_some_and(|b| !b.guards_hold()) {
                    return Ok(Some(format!("it wrote outside of its memory, next to output {output}")));
                }
            }
        }
        if let Some(problem) =
            differ(trial.problem, "with outputs that held something else before", &all, trial.got)
        {
            return Ok(Some(problem));
        }
    }
    Ok(None)
}

fn guarded(ty: TensorType, size: Option<usize>, fill: u8) -> Option<AlignedBuffer> {
    if matches!(ty, TensorType::String | TensorType::Resource | TensorType::Variant) {
        return None;
    }
    let mut buffer = AlignedBuffer::guarded(size?).ok()?;
    buffer.bytes_mut().fill(fill);
    Some(buffer)
}

/// Requires that inputs and constants are unchanged.
pub(super) fn inputs(trial: &Trial<'_>) -> Found {
    let model = &trial.problem.model;
    let constants = || -> Vec<Vec<u8>> {
        let tensors = model.subgraphs().iter().flat_map(|s| s.tensors());
        tensors.map(|t| model.constant(t).map_or_else(Vec::new, <[u8]>::to_vec)).collect()
    };
    let before = constants();
    let mut interpreter = trial.interpreter(Some(trial.make()?))?;
    for step in &trial.problem.steps {
        feed(&mut interpreter, &step.feeds)?;
        interpreter.invoke()?;
        for feed in &step.feeds {
            if interpreter.input_tensor(feed.input)?.bytes() != feed.bytes {
                return Ok(Some(format!("input {} has changed", feed.input)));
            }
        }
    }
    let changed = constants() != before || copies_differ(trial, &interpreter);
    Ok(changed.then(|| "a constant of the model has changed".into()))
}

/// Returns whether the interpreter's memory of a constant, which may be a copy, differs from the model's.
fn copies_differ(trial: &Trial<'_>, interpreter: &Interpreter) -> bool {
    let model = &trial.problem.model;
    let tensors = model.subgraphs().first().map_or(&[][..], |s| s.tensors());
    tensors.iter().enumerate().any(|(i, tensor)| {
        let kept = interpreter.tensor(TensorId(i)).ok().filter(|t| t.placement() == Placement::Constant);
        kept.zip(model.constant(tensor)).is_some_and(|(kept, bytes)| kept.bytes() != bytes)
    })
}
