//! The guarantees of delegation, row by row: `docs/delegation.md` has the table.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

mod buffers;
mod composites;
mod failure;
mod graphs;
mod lifecycle;
mod limits;
mod pending;
mod support;
