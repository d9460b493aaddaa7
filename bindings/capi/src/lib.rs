//! Delegraph's own C API.
//!
//! The documentation of the functions here is that of `include/delegraph.h`, which is generated from this crate
//! (`tests/header.rs`). It is written for C: types and functions have the names of C, and nothing links to Rust.
//!
//! Objects are numbers in tables (`delegraph_ffi::handle`), so that deleted ones are noticed. No panic leaves the library.
//! Pointers are checked for null and alignment before anything happens.

// The names are those of C. What callers must ensure for pointers is stated once, at the head of the header.
#![allow(non_camel_case_types, clippy::missing_safety_doc)]

pub mod buffers;
pub mod error;
pub mod interpreter;
pub mod invocation;
pub mod model;
pub mod options;
mod profile;
pub mod report;
mod session;
mod state;
pub mod tensors;
pub mod text;
mod worker;
