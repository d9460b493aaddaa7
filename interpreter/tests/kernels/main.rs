//! Kernels in whole models: nodes that call subgraphs or share state, and the interpreter's services for them.

#![allow(clippy::unwrap_used, clippy::panic)] // Clippy recognizes only `#[test]` functions as tests.

mod control_flow;
mod hashtable;
mod region;
mod reshape;
mod stablehlo_compute;
mod weights;
