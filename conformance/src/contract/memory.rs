//! Memory that is never given back.

use std::time::{Duration, Instant};

use delegraph_core::Result;

use super::{Found, Trial};
use crate::engine::feed;

/// How often something is done before memory is measured, and between measurements.
const TIMES: usize = 8;

/// Growth that counts, for each time that something is done: what a small allocation takes.
const BYTES: usize = 16;

/// How many measurements are made. Tables that double now and then, and what is freed late, stand still in most of them; a
/// leak never does.
const ROUNDS: usize = 12;

/// In so many of them memory may stand still all the same: another thread may give some back.
const STILL: usize = 2;

/// Neither invoking nor making everything anew takes ever more memory.
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
        return Ok(Some(format!("every invocation takes about {bytes} bytes more, and keeps them")));
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
    let mut anew = || -> Result<()> { trial.run(&mut trial.interpreter(Some(trial.make()?))?).map(drop) };
    let mut rest = || {
        // What a delegate does in the background may end with the delegate.
        let mut interpreter = trial.interpreter(Some(trial.make()?))?;
        trial.run(&mut interpreter)?;
        settle();
        Ok(())
    };
    let growth = growth(&mut anew, &mut rest)?;
    Ok(growth.map(|bytes| format!("every new delegate takes about {bytes} bytes more, and keeps them")))
}

/// How often all of it is measured: what drivers and allocators keep for themselves grows for some hundred runs, and then no
/// more.
const PASSES: usize = 6;

/// Bytes that each run adds, where nearly every round adds some, however often it is measured. Between measurements there
/// is a `rest`, so that what goes on in the background is not taken for what the runs leave behind.
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

/// For how long memory stands still when nothing goes on in the background.
const STANDS_STILL: Duration = Duration::from_millis(500);

/// What goes on for longer is not waited for.
const LONGEST: Duration = Duration::from_secs(30);

/// Waits until nobody takes memory or gives some back.
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

/// Bytes of the C library's heap that are in use, in which the heaps of Rust and of most plugins live.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn in_use() -> Option<usize> {
    // SAFETY: `mallinfo2` reads the allocator's own counters, under its locks.
    let info = unsafe { libc::mallinfo2() };
    Some(info.uordblks + info.hblkhd)
}

/// No other C library tells.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn in_use() -> Option<usize> {
    None
}
