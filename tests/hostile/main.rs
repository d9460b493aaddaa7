//! Malicious files. Each must cause an error or return a result, never a panic, a hang or a very large allocation.

#![allow(clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod budgets;
mod damaged;
mod models;
#[cfg(target_os = "linux")]
mod process;
