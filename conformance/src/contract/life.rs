//! The life of a delegate: invoked again, resized, taken away and given back, dropped, and in several threads.

use std::thread;

use delegraph_core::{Error, Result};
use delegraph_delegate_api::PartitionOptions;

use super::{Found, Outputs, Trial, differ};
use crate::engine::{Backend, Kernels, Problem};
use crate::engine::{feed, outputs, prepare};

/// The same data, with others in between, give the very same result.
pub(super) fn repeat(trial: &Trial<'_>) -> Found {
    let Some(first) = trial.problem.steps.first().filter(|_| !trial.keeps_state()) else { return Ok(None) };
    let mut interpreter = trial.interpreter(Some(trial.make()?))?;
    let mut results = Outputs::new();
    for run in 0..3 {
        if run == 2 {
            feed(&mut interpreter, &trial.other_feeds())?;
            // What these data are may be an error; it is the next run that counts.
            let _ = interpreter.invoke();
        }
        feed(&mut interpreter, &first.feeds)?;
        interpreter.invoke()?;
        results.push(outputs(&interpreter)?);
    }
    for (run, what) in [(1, "the same data again"), (2, "the same data again after others")] {
        if let (Some(a), Some(b)) = (results.first(), results.get(run))
            && a != b
        {
            let problem = differ(trial.problem, what, &vec![b.clone()], &vec![a.clone()]);
            return Ok(Some(
                problem.unwrap_or_else(|| format!("{what} give another result in the last digits")),
            ));
        }
    }
    Ok(None)
}

/// One more in the first dimension of all inputs that share it, and back.
pub(super) fn resize(trial: &Trial<'_>) -> Found {
    let Some(larger) = larger(trial.problem).filter(|_| !trial.keeps_state()) else { return Ok(None) };
    // Not every model can be resized, and not all data fit another shape: the reference kernels decide.
    let reference = || -> Result<Outputs> {
        let mut interpreter = Backend::kernels(Kernels::Reference).build(&larger, None, None)?;
        prepare(&mut interpreter, &larger)?;
        Trial { problem: &larger, ..*trial }.run(&mut interpreter)
    };
    let Ok(wanted) = reference() else { return Ok(None) };
    let mut interpreter = trial.interpreter(Some(trial.make()?))?;
    trial.run(&mut interpreter)?;
    for (problem, wanted, what) in
        [(&larger, &wanted, "after a resize"), (trial.problem, trial.got, "resized back")]
    {
        prepare(&mut interpreter, problem)?;
        if let Some((name, message)) = interpreter.report().failures.first() {
            return Ok(Some(format!("{what}, delegate {name} failed: {message}")));
        }
        let got = Trial { problem, ..*trial }.run(&mut interpreter)?;
        if let Some(problem) = differ(trial.problem, what, &got, wanted) {
            return Ok(Some(problem));
        }
    }
    Ok(None)
}

fn larger(problem: &Problem) -> Option<Problem> {
    let feeds = &problem.steps.first()?.feeds;
    let size = *feeds.iter().find_map(|f| f.shape.first())?;
    let mut larger = problem.clone();
    for step in &mut larger.steps {
        for feed in step.feeds.iter_mut().filter(|f| f.shape.first() == Some(&size)) {
            let bytes = feed.bytes.len().checked_div(size)?;
            // Elements of less than a byte may share one with the next row.
            if bytes * size != feed.bytes.len() || bytes == 0 {
                return None;
            }
            feed.shape[0] += 1;
            let more = feed.bytes[..bytes].to_vec();
            feed.bytes.extend(more);
        }
    }
    Some(larger)
}

/// Taken away and given back; dropped and made anew.
pub(super) fn again(trial: &Trial<'_>) -> Found {
    let mut interpreter = trial.interpreter(Some(trial.make()?))?;
    trial.run(&mut interpreter)?;
    let delegates = interpreter.remove_delegates();
    for delegate in delegates {
        interpreter.add_delegate(delegate, PartitionOptions::default());
    }
    interpreter.reset_variables()?;
    prepare(&mut interpreter, trial.problem)?;
    let got = trial.run(&mut interpreter)?;
    if let Some(problem) = differ(trial.problem, "taken away and given back", &got, trial.got) {
        return Ok(Some(problem));
    }
    drop(interpreter);
    let mut interpreter = trial.interpreter(Some(trial.make()?))?;
    let got = trial.run(&mut interpreter)?;
    Ok(differ(trial.problem, "dropped and made anew", &got, trial.got))
}

/// Two interpreters at once, each with a delegate of its own.
pub(super) fn threads(trial: &Trial<'_>) -> Found {
    let work = || -> Result<Option<String>> {
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
