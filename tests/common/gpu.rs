//! The device of tests on the GPU.
#![allow(dead_code, unreachable_pub)] // each test binary uses its part
#![allow(clippy::panic)] // Only tests call this.

use delegraph::delegate_wgpu::{WgpuDelegate, WgpuError, WgpuOptions};

/// Opens the machine's adapter; `None`, with the reason printed, where the machine has none.
pub fn delegate() -> Option<WgpuDelegate> {
    opened(WgpuDelegate::new(WgpuOptions::default()))
}

/// Returns an opened device; `None`, with the reason printed, where the machine has no adapter.
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
