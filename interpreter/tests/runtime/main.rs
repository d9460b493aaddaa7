//! The runtime through its public interface.

#![allow(clippy::unwrap_used, clippy::panic)] // Clippy recognizes only `#[test]` functions as tests.

mod constants;
mod in_place;
mod interpreter;
