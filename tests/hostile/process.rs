//! Runs the command in a separate process and measures its time and memory.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::common;

/// A process that uses more processor time is killed, so that a regression is a failing test.
const MAX_PROCESSOR_SECONDS: u64 = 30;
/// A process that takes longer is killed.
const MAX_TIME: Duration = Duration::from_secs(90);

/// A run of the command.
pub(crate) struct Measured {
    pub(crate) status: ExitStatus,
    pub(crate) processor_time: Duration,
    /// The largest resident size in bytes.
    pub(crate) peak: usize,
    pub(crate) stderr: String,
}

/// Runs the command and measures it.
#[allow(clippy::zombie_processes)] // `wait` waits for the process.
pub(crate) fn measure(arguments: &[&str]) -> Measured {
    let folder = tempfile::tempdir().unwrap();
    let errors = folder.path().join("stderr");
    let mut command = common::command(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&errors).unwrap());
    let limit = || {
        let limit = libc::rlimit { rlim_cur: MAX_PROCESSOR_SECONDS, rlim_max: MAX_PROCESSOR_SECONDS };
        // SAFETY: the structure is valid for the call.
        match unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between `fork` and `exec` the closure makes one system call and does not allocate.
    unsafe { command.pre_exec(limit) };
    let child = command.spawn().unwrap();
    let (status, usage) = wait(libc::pid_t::try_from(child.id()).unwrap());
    let time = |t: libc::timeval| Duration::new(t.tv_sec.unsigned_abs(), t.tv_usec as u32 * 1000);
    Measured {
        status,
        processor_time: time(usage.ru_utime) + time(usage.ru_stime),
        peak: usize::try_from(usage.ru_maxrss).unwrap() * 1024,
        stderr: std::fs::read_to_string(&errors).unwrap(),
    }
}

/// Waits for the end of a child, and kills it if it takes too long.
fn wait(pid: libc::pid_t) -> (ExitStatus, libc::rusage) {
    let start = Instant::now();
    let mut status = 0;
    // SAFETY: `rusage` is a structure of numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut killed = false;
    loop {
        // SAFETY: both pointers are valid for the call; `pid` is a child that nothing else waits for.
        let ended = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
        assert!(ended >= 0, "{}", std::io::Error::last_os_error());
        if ended == pid {
            return (ExitStatus::from_raw(status), usage);
        }
        if start.elapsed() > MAX_TIME && !killed {
            // SAFETY: `pid` is a child that was not waited for, so the number is not another process's.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            killed = true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
