//! Kernels on the machine's adapter, against plain Rust: one file per group of families.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../gpu/mod.rs"]
mod gpu;

mod binary;
mod conv_2d;
mod copies;
mod depthwise_conv_2d;
mod lookups;
mod matmul;
mod pad;
mod roofline;
mod transpose_conv;
mod unary;
mod windows;
