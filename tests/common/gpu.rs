//! The device of GPU tests.
#![allow(dead_code, unreachable_pub)] // each test binary uses its part
#![allow(clippy::panic)] // Only tests call this.

use delegraph::delegate_wgpu::{WgpuDelegate, WgpuError, WgpuOptions};

/// Opens the machine's adapter; prints the reason and returns `None` if there is none.
pub fn delegate() -> Option<WgpuDelegate> {
    opened(WgpuDelegate::new(WgpuOptions::default()))
}

/// Returns an opened device; prints the reason and returns `None` if the machine has no adapter.
pub fn opened(result: Result<WgpuDelegate, WgpuError>) -> Option<WgpuDelegate> {
    match result {
        Ok(delegate) => Some(delegate),
        Err(error @ WgpuError::NoAdapter) => {
            eprintln!("left out: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
