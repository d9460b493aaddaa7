//! Processes that were forked from a process with interpreters.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

/// The number of forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Returns the number of forks between the first process and this one.
pub(crate) fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts a fork. Called in the child, by `os.register_at_fork`.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
