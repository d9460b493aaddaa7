//! Files made to do harm: whatever is wrong with one, the answer is an error or a result, never a panic, a hang or an
//! absurd allocation.

#![allow(clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod budgets;
mod damaged;
mod models;
#[cfg(target_os = "linux")]
mod process;
