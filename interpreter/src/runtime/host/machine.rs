//! The memory of the machine.

/// Bytes of memory of the machine, or of the process's control group if its limit is lower. `None` if the system does
/// not report it.
pub(super) fn memory() -> Option<usize> {
    static MEMORY: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    *MEMORY.get_or_init(|| [physical(), control_group()].into_iter().flatten().min())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn physical() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(target_vendor = "apple")]
fn physical() -> Option<usize> {
    let (mut bytes, mut len) = (0u64, size_of::<u64>());
    // SAFETY: the name ends with a zero, and the result is written to `bytes`, whose size is `len`.
    let status = unsafe {
        libc::sysctlbyname(
            c"hw.memsize".as_ptr(),
            (&raw mut bytes).cast(),
            &raw mut len,
            std::ptr::null_mut(),
            0,
        )
    };
    (status == 0 && bytes > 0).then(|| usize::try_from(bytes).unwrap_or(usize::MAX))
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn physical() -> Option<usize> {
    None
}

/// The lowest limit of the control groups of the process.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn control_group() -> Option<usize> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    limits(&groups).filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok()).min()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn control_group() -> Option<usize> {
    None
}

/// The files that hold limits of the groups in `groups` (`/proc/self/cgroup`): a group also has the limits of its
/// parent groups.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn limits(groups: &str) -> impl Iterator<Item = std::path::PathBuf> {
    use std::path::{Path, PathBuf};

    groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next(), parts.next().unwrap_or_default());
        let (root, file) = match controllers {
            Some("") => (Some("/sys/fs/cgroup"), "memory.max"),
            Some(c) if c.split(',').any(|c| c == "memory") => {
                (Some("/sys/fs/cgroup/memory"), "memory.limit_in_bytes")
            }
            _ => (None, ""),
        };
        let group = Path::new(path.trim_start_matches('/'));
        let ancestors: Vec<PathBuf> = root
            .map(|root| group.ancestors().map(|a| Path::new(root).join(a).join(file)).collect())
            .unwrap_or_default();
        ancestors
    })
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn limits_of_all_enclosing_groups_count() {
        let check = |groups: &str, wanted: &[&str]| {
            let found: Vec<String> = limits(groups).map(|p| p.display().to_string()).collect();
            assert_eq!(found, wanted, "{groups}");
        };
        let second =
            ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"];
        check("0::/a/b\n", &second);
        let first =
            ["/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
        check("5:cpu,cpuacct:/y\n4:memory:/x\n", &first);
        check("garbage\n", &[]);
    }
}
