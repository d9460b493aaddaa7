//! The FlatBuffers code of the `.tflite` format, generated from `schema.fbs` by `make schema`.
//!
//! A private part of `delegraph-core`: as a separate crate it is compiled once, and core rebuilds in seconds.
//! Its API may change in any release.

#[allow(missing_docs, unreachable_pub, warnings, clippy::all, clippy::undocumented_unsafe_blocks)]
#[rustfmt::skip]
mod schema_generated;

pub use schema_generated::tflite::*;

/// The schema that the code is generated from.
pub const SCHEMA: &str = include_str!("../schema.fbs");
