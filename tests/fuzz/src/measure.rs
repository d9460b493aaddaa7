//! Processor time and memory of this process; zeros where the system does not count them.

use std::time::Duration;

/// Processor time of this process.
#[cfg(target_os = "linux")]
pub fn processor_time() -> Duration {
    // SAFETY: `rusage` is a structure of numbers, for which zeros are valid; the pointer is valid for the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec.unsigned_abs(), t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Resets the largest resident size, without the memory that the heap keeps from making the mutant.
#[cfg(target_os = "linux")]
pub fn reset_peak() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function has no preconditions.
    unsafe {
        libc::malloc_trim(0)
    };
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The largest resident size since the reset, in bytes.
#[cfg(target_os = "linux")]
pub fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Processor time of this process.
#[cfg(not(target_os = "linux"))]
pub fn processor_time() -> Duration {
    Duration::ZERO
}

/// Resets the largest resident size.
#[cfg(not(target_os = "linux"))]
pub fn reset_peak() {}

/// The largest resident size since the reset, in bytes.
#[cfg(not(target_os = "linux"))]
pub fn peak() -> usize {
    0
}
