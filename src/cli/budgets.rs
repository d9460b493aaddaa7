//! `--max-memory` and `--timeout`: limits of the command.
//!
//! The interpreters of the command apply these limits. A thread also watches the process, for work that an interpreter
//! cannot end: a driver, a library, the reading of a file.

use std::num::IntErrorKind;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use delegraph::Error;
use delegraph::core::error::LimitExceeded;
use delegraph::interpreter::ResourceLimits;

use super::failure::Failure;
use super::numbers;
use super::output::Output;

/// Options of the verbs that take a model.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Budgets")]
pub(crate) struct Budgets {
    /// The memory that the model may use in addition to its file, on the CPU and on a GPU each [default: three quarters
    /// of the machine's]
    #[arg(long, value_name = "BYTES[K|M|G]", allow_hyphen_values = true)]
    max_memory: Option<Bytes>,
    /// End after this time, or after this much processor time per thread of `--threads` [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,
}

const NEEDED: &str = "a whole number of bytes is needed, or one with K, M or G: 512M";

static TOO_MANY: LazyLock<String> = LazyLock::new(|| format!("at most {} bytes are possible", usize::MAX));

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bytes(usize);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = match text.char_indices().last() {
            Some((at, unit)) if !unit.is_ascii_digit() => (&text[..at], unit.to_ascii_uppercase()),
            _ => (text, 'B'),
        };
        let shift = match unit {
            'B' => 0,
            'K' => 10,
            'M' => 20,
            'G' => 30,
            _ => return Err(NEEDED.into()),
        };
        let number: Result<usize, _> = number.parse();
        let number = number.map_err(|e| match e.kind() {
            IntErrorKind::PosOverflow => TOO_MANY.clone(),
            _ => NEEDED.into(),
        });
        number?.checked_mul(1 << shift).map(Bytes).ok_or_else(|| TOO_MANY.clone())
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    numbers::seconds(text, 0.001..=1e9)
}

/// Resident memory above the limit at which the process ends; it covers the command itself, drivers and the graph.
const MEMORY_ALLOWANCE: usize = 512 << 20;

/// Time after the limit in which the interpreters can end.
const TIME_ALLOWANCE: Duration = Duration::from_millis(700);

/// The interval at which the process is checked.
const INTERVAL: Duration = Duration::from_millis(10);

static LIMITS: OnceLock<ResourceLimits> = OnceLock::new();
/// `--max-memory`; 0 without it.
static MAX_MEMORY: AtomicUsize = AtomicUsize::new(0);
static THREADS: AtomicUsize = AtomicUsize::new(1);
static JSON: AtomicBool = AtomicBool::new(false);
/// Whether a thread ends the process, with the result or because a limit is exceeded.
static ENDED: AtomicBool = AtomicBool::new(false);

impl Budgets {
    /// Sets the limits, which count time from this call, and watches the process if there is a limit.
    pub(crate) fn start(&self) {
        let mut limits = ResourceLimits::default();
        if let Some(Bytes(bytes)) = self.max_memory {
            limits = limits.with_memory(bytes);
            MAX_MEMORY.store(bytes.max(1), Ordering::Relaxed);
        }
        if let Some(timeout) = self.timeout {
            limits = limits.with_total_time(timeout);
        }
        if LIMITS.set(limits).is_ok() && (self.max_memory.is_some() || self.timeout.is_some()) {
            let watch = Watch {
                start: Instant::now(),
                timeout: self.timeout,
                memory: self.max_memory.map(|Bytes(bytes)| bytes),
            };
            let spawned = std::thread::Builder::new().name("budgets".into()).spawn(move || watch.run());
            spawned
                .map(drop)
                .unwrap_or_else(|e| log::warn!("the process is not checked against its limits: {e}"));
        }
    }
}

/// The limits of the command's interpreters.
pub(crate) fn limits() -> ResourceLimits {
    LIMITS.get().cloned().unwrap_or_default()
}

/// The memory limit, if one is set.
#[cfg(feature = "wgpu")]
pub(crate) fn max_memory() -> Option<u64> {
    let limit = MAX_MEMORY.load(Ordering::Relaxed);
    (limit > 0).then(|| u64::try_from(limit).unwrap_or(u64::MAX))
}

/// Records the number of threads that may use processor time.
pub(crate) fn set_threads(threads: usize) {
    THREADS.store(threads, Ordering::Relaxed);
}

/// Records the format in which failures are reported.
pub(crate) fn set_json(json: bool) {
    JSON.store(json, Ordering::Relaxed);
}

/// Whether failures are reported as JSON.
pub(crate) fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Records that the process ends. Returns whether the caller is the first to end it.
pub(crate) fn end() -> bool {
    !ENDED.swap(true, Ordering::AcqRel)
}

struct Watch {
    start: Instant,
    timeout: Option<Duration>,
    memory: Option<usize>,
}

impl Watch {
    fn run(&self) {
        let exceeded = loop {
            std::thread::sleep(INTERVAL);
            if let Some(exceeded) = self.exceeded() {
                break exceeded;
            }
        };
        if end() {
            Output { json: is_json(), quiet: false }.failure(Failure::from(Error::from(exceeded)));
            exit();
        }
    }

    fn exceeded(&self) -> Option<LimitExceeded> {
        if let Some(limit) = self.timeout {
            let threads = u32::try_from(THREADS.load(Ordering::Relaxed)).unwrap_or(1);
            let late = self.start.elapsed() > limit.saturating_add(TIME_ALLOWANCE);
            let busy = limit.saturating_mul(threads).saturating_add(TIME_ALLOWANCE);
            if late || process::processor_time().is_some_and(|time| time > busy) {
                return Some(LimitExceeded::Time { allowed: limit });
            }
        }
        let limit = self.memory?;
        let resident = process::resident_bytes()?;
        (resident > limit.saturating_add(MEMORY_ALLOWANCE))
            .then_some(LimitExceeded::Memory { needed: resident as u64, allowed: limit as u64 })
    }
}

/// Ends the process without running exit handlers of libraries, whose threads are still running.
pub(crate) fn exit() -> ! {
    #[cfg(unix)]
    // SAFETY: `_exit` ends the process immediately, and accepts any number.
    unsafe {
        libc::_exit(1)
    }
    #[cfg(not(unix))]
    std::process::exit(1)
}

/// The resources that the process uses, if the system reports them.
#[cfg(target_os = "linux")]
mod process {
    use std::time::Duration;

    pub(super) fn processor_time() -> Option<Duration> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Some(Duration::new(u64::try_from(now.tv_sec).ok()?, u32::try_from(now.tv_nsec).ok()?))
    }

    pub(super) fn resident_bytes() -> Option<usize> {
        let text = std::fs::read_to_string("/proc/self/statm").ok()?;
        text.split(' ').nth(1)?.parse::<usize>().ok()?.checked_mul(rustix::param::page_size())
    }
}

#[cfg(not(target_os = "linux"))]
mod process {
    use std::time::Duration;

    pub(super) fn processor_time() -> Option<Duration> {
        None
    }

    pub(super) fn resident_bytes() -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let check = |text: &str, want: Option<usize>| {
            assert_eq!(text.parse::<Bytes>().ok(), want.map(Bytes), "{text}");
        };
        check("1000", Some(1000));
        check("2K", Some(2048));
        check("3m", Some(3 << 20));
        check("1G", Some(1 << 30));
        check("1B", Some(1));
        for wrong in ["", "G", "1.5G", "-1", "1T", "1GB", "99999999999999999999", "20000000000G", "1é"] {
            check(wrong, None);
        }
    }

    #[test]
    fn times() {
        assert_eq!(seconds("8"), Ok(Duration::from_secs(8)));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["", "-1", "0", "1e-9", "nan", "inf", "1e40", "8s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
