//! The lifecycle of a delegate: repeated invocations, resizes, removal and addition, drop, and several threads.

use std::thread;

use delegraph_core::{Error, Result};
use delegraph_delegate_api::{DelegateFailure, PartitionOptions};
use delegraph_interpreter::Interpreter;

use super::{Found, Outputs, Trial, differ, failed};
use crate::engine::{Backend, Kernels, Problem};
use crate::engine::{feed, outputs, prepare};

/// The number of runs with the same data. Counter overflows, full pools and alternating buffers show after a few runs.
const RUNS: usize = 18;

/// Runs the same data repeatedly, with other data in between. Results must be identical.
pub(super) fn repeat(trial: &Trial<'_>) -> Found {
    let Some(first) = trial.problem.steps.first().filter(|_| !trial.keeps_state()) else { return Ok(None) };
    let mut interpreter = trial.interpreter(Some(trial.make()?))?;
    let mut wanted = None;
    for run in 0..RUNS {
        let others = run % 2 == 0 && run > 1;
        if others {
            feed(&mut interpreter, &trial.other_feeds())?;
            // Other data may be an error; only the next run is compared.
            let _ = interpreter.invoke();
        }
        feed(&mut interpreter, &first.feeds)?;
        interpreter.invoke()?;
        let got = outputs(&interpreter)?;
        let wanted = wanted.get_or_insert_with(|| got.clone());
        if got != *wanted {
            let what = if others { "the same data again after others" } else { "the same data again" };
            let problem = differ(trial.problem, what, &vec![got], &vec![wanted.clone()]);
            return Ok(Some(
                problem.unwrap_or_else(|| format!("{what} return results that differ in the last digits")),
            ));
        }
    }
    Ok(None)
}

/// The resizes, in their order: dimension, and whether it grows.
const RESIZES: [(usize, bool); 6] = [(0, true), (1, true), (2, true), (1, false), (0, false), (3, true)];

/// Resets variables, which must then have their initial values.
pub(super) fn reset(trial: &Trial<'_>) -> Found {
    if !trial.keeps_state() || trial.is_random() {
        return Ok(None);
    }
    let mut interpreter = trial.interpreter(Some(trial.make()?))?;
    let first = trial.run(&mut interpreter)?;
    interpreter.reset_variables()?;
    let again = trial.run(&mut interpreter)?;
    Ok(differ(trial.problem, "after its state was reset", &again, &first))
}

/// Resizes each dimension of all inputs that share its size by one element, in both directions, and back.
pub(super) fn resize(trial: &Trial<'_>) -> Found {
    if trial.keeps_state() {
        return Ok(None);
    }
    let mut interpreter = None;
    for (dimension, more) in RESIZES {
        let Some(other) = resized(trial.problem, dimension, more) else { continue };
        // Some models cannot be resized, and some data do not fit another shape: the reference kernels decide.
        let reference = || -> Result<Outputs> {
            let mut interpreter = Backend::kernels(Kernels::Reference).build(&other, None, None)?;
            prepare(&mut interpreter, &other)?;
            Trial { problem: &other, ..*trial }.run(&mut interpreter)
        };
        let Ok(wanted) = reference() else { continue };
        let interpreter = match &mut interpreter {
            Some(interpreter) => interpreter,
            None => {
                let mut made = trial.interpreter(Some(trial.make()?))?;
                trial.run(&mut made)?;
                interpreter.insert(made)
            }
        };
        let what = format!("after dimension {dimension} was {}", if more { "grown" } else { "shrunk" });
        if let Some(problem) = resized_to(trial, interpreter, &other, &wanted, &what)? {
            return Ok(Some(problem));
        }
    }
    match &mut interpreter {
        Some(interpreter) => resized_to(trial, interpreter, trial.problem, trial.got, "resized back"),
        None => Ok(None),
    }
}

fn resized_to(
    trial: &Trial<'_>,
    interpreter: &mut Interpreter,
    problem: &Problem,
    wanted: &Outputs,
    what: &str,
) -> Found {
    prepare(interpreter, problem)?;
    if let Some(DelegateFailure { delegate: name, message, .. }) = interpreter.report().failures.first() {
        return Ok(Some(format!("{what}, a resize, delegate {name} failed: {message}")));
    }
    let got = Trial { problem, ..*trial }.run(interpreter)?;
    Ok(differ(trial.problem, &format!("{what}, a resize"), &got, wanted))
}

/// Returns the problem with one element more or less in `dimension`, in every input that has the first one's size
/// there. Added elements repeat the last one.
fn resized(problem: &Problem, dimension: usize, more: bool) -> Option<Problem> {
    let feeds = &problem.steps.first()?.feeds;
    let size = *feeds.iter().find_map(|f| f.shape.get(dimension))?;
    if size == 0 || (!more && size < 2) {
        return None;
    }
    let mut other = problem.clone();
    for step in &mut other.steps {
        for feed in step.feeds.iter_mut().filter(|f| f.shape.get(dimension) == Some(&size)) {
            let outer = feed.shape.get(..dimension)?.iter().product::<usize>();
            let (block, rest) = (feed.bytes.len().checked_div(outer)?, feed.bytes.len().checked_rem(outer)?);
            let slice = block / size;
            // Packed elements may share a byte with the next row, and strings have no rows.
            if rest != 0 || slice * size != block || slice == 0 {
                return None;
            }
            let mut bytes = Vec::with_capacity(outer * (block + slice));
            for block in feed.bytes.chunks(block) {
                match more {
                    true => bytes.extend(block.iter().chain(&block[block.len() - slice..])),
                    false => bytes.extend(&block[..block.len() - slice]),
                }
            }
            feed.bytes = bytes;
            feed.shape[dimension] = if more { size + 1 } else { size - 1 };
        }
    }
    Some(other)
}

/// Removes the delegate and adds it again, and creates a new one.
pub(super) fn again(trial: &Trial<'_>) -> Found {
    let mut interpreter = trial.interpreter(Some(trial.make()?))?;
    trial.run(&mut interpreter)?;
    let delegates = interpreter.remove_delegates();
    for delegate in delegates {
        interpreter.add_delegate(delegate, PartitionOptions::default());
    }
    interpreter.reset_variables()?;
    prepare(&mut interpreter, trial.problem)?;
    if let Some(error) = failed(&interpreter) {
        return Ok(Some(format!("removed and added again: {error}")));
    }
    let got = trial.run(&mut interpreter)?;
    if let Some(problem) = differ(trial.problem, "removed and added again", &got, trial.got) {
        return Ok(Some(problem));
    }
    drop(interpreter);
    let mut interpreter = trial.interpreter(Some(trial.make()?))?;
    let got = trial.run(&mut interpreter)?;
    Ok(differ(trial.problem, "dropped and created again", &got, trial.got))
}

/// Runs two interpreters at the same time, each with its own delegate.
pub(super) fn threads(trial: &Trial<'_>) -> Found {
    let together = std::sync::Barrier::new(2);
    let work = || -> Result<Option<String>> {
        together.wait();
        for _ in 0..2 {
            let mut interpreter = trial.interpreter(Some(trial.make()?))?;
            let got = trial.run(&mut interpreter)?;
            if let Some(problem) = differ(trial.problem, "in two threads at once", &got, trial.got) {
                return Ok(Some(problem));
            }
        }
        Ok(None)
    };
    thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        let mut found = Ok(None);
        for thread in threads {
            let panicked = |_| Err(Error::State("a thread panicked".into()));
            let result = thread.join().unwrap_or_else(panicked);
            if !matches!(found, Ok(None)) {
                continue;
            }
            found = result;
        }
        found
    })
}
