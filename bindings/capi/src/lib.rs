//! Delegraph's own C API.
//!
//! The doc comments here are the documentation in `include/delegraph.h`, which is generated from this crate
//! (`tests/capi_header.rs`). They are written for C: types and functions have their C names, without links to Rust
//! items.
//!
//! Objects are numbers in tables (`delegraph_ffi::handle`), so that deleted ones are detected. No panic leaves the
//! library. Pointers are checked for null and alignment before anything happens.

// The names are those of C. The requirements for pointers are stated once, at the beginning of the header.
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
