//! Kernels in whole models: nodes that call subgraphs or share state, and what they need of the interpreter.

#![allow(clippy::unwrap_used, clippy::panic)] // Clippy knows only `#[test]` functions as tests.

mod control_flow;
mod hashtable;
mod region;
mod reshape;
mod stablehlo_compute;
mod weights;
