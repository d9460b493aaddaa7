//! Memory that is not freed.

use std::time::{Duration, Instant};

use delegraph_core::Result;

use super::{Found, Trial};
use crate::engine::feed;

/// Number of repetitions before memory is measured, and between measurements.
const TIMES: usize = 8;

/// The growth per repetition that counts as a leak: the size of a small allocation.
const BYTES: usize = 16;

/// Number of measurements. Tables that double occasionally, and memory that is freed late, do not grow in most of them;
/// a leak grows in all.
const ROUNDS: usize = 12;

/// Number of measurements without growth that a leak may have, since another thread may free memory.
const STILL: usize = 2;

/// Repeats invocations, and the creation of delegate and interpreter. Memory must not grow without bound.
pub(super) fn check(trial: &Trial<'_>) -> Found {
    let mut interpreter = trial.interpreter(Some(trial.make()?))?;
    let step = trial.problem.steps.first();
    let mut invoke = || -> Result<()> {
        if let Some(step) = step {
            feed(&mut interpreter, &step.feeds)?;
        }
        interpreter.invoke()
    };
    let mut settled = || {
        settle();
        Ok(())
    };
    if let Some(bytes) = growth(&mut invoke, &mut settled)? {
        return Ok(Some(format!("every invocation leaks about {bytes} bytes")));
    }
    let device = |interpreter: &delegraph_interpreter::Interpreter| {
        interpreter.delegate_stats().iter().map(|s| s.device_bytes).sum::<u64>()
    };
    let before = device(&interpreter);
    for _ in 0..TIMES {
        interpreter.invoke()?;
    }
    let after = device(&interpreter);
    if after > before {
        return Ok(Some(format!("invoking grew its memory on the device from {before} to {after} bytes")));
    }
    drop(interpreter);
    let mut again = || -> Result<()> { trial.run(&mut trial.interpreter(Some(trial.make()?))?).map(drop) };
    let mut rest = || {
        // Background work of a delegate may end when the delegate is dropped.
        let mut interpreter = trial.interpreter(Some(trial.make()?))?;
        trial.run(&mut interpreter)?;
        settle();
        Ok(())
    };
    let growth = growth(&mut again, &mut rest)?;
    Ok(growth.map(|bytes| format!("every new delegate leaks about {bytes} bytes")))
}

/// Number of times that everything is measured: memory that drivers and allocators keep grows for some hundred runs,
/// and then stops.
const PASSES: usize = 6;

/// Returns the bytes that each run adds, if nearly every measurement of every pass grows. `rest` runs between
/// measurements, so that background work does not count as memory of the runs.
fn growth(
    run: &mut dyn FnMut() -> Result<()>,
    rest: &mut dyn FnMut() -> Result<()>,
) -> Result<Option<usize>> {
    for _ in 1..PASSES {
        if grows(run)?.is_none() {
            return Ok(None);
        }
        rest()?;
    }
    grows(run)
}

/// The time without a change of memory after which background work counts as finished.
const STANDS_STILL: Duration = Duration::from_millis(500);

/// Maximum wait for background work.
const LONGEST: Duration = Duration::from_secs(30);

/// Waits until no thread allocates or frees memory.
fn settle() {
    let start = Instant::now();
    let (mut before, mut since) = (in_use(), start);
    while since.elapsed() < STANDS_STILL && start.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_millis(5));
        let now = in_use();
        if now != before {
            (before, since) = (now, Instant::now());
        }
    }
}

fn grows(run: &mut dyn FnMut() -> Result<()>) -> Result<Option<usize>> {
    for _ in 0..TIMES {
        run()?;
    }
    let Some(mut before) = in_use() else { return Ok(None) };
    let (mut grown, mut still) = (Vec::new(), 0);
    while grown.len() + still < ROUNDS {
        for _ in 0..TIMES {
            run()?;
        }
        let after = in_use().unwrap_or(before);
        match after.saturating_sub(before) {
            more if more >= TIMES * BYTES => grown.push(more),
            _ if still < STILL => still += 1,
            _ => return Ok(None),
        }
        before = after;
    }
    grown.sort_unstable();
    Ok(grown.get(grown.len() / 2).map(|bytes| bytes / TIMES))
}

/// Returns the used bytes of the C library's heap, which Rust and most plugins allocate from.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn in_use() -> Option<usize> {
    // SAFETY: `mallinfo2` reads the allocator's own counters, under its locks.
    let info = unsafe { libc::mallinfo2() };
    Some(info.uordblks + info.hblkhd)
}

/// Returns `None`: other C libraries do not report the used bytes.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn in_use() -> Option<usize> {
    None
}
