//! The code of `docs/write-a-delegate.md`, compiled and run. A test compares the page with these files.

#![allow(clippy::unwrap_used)] // Only tests call this.
#![allow(clippy::new_without_default, missing_docs, unreachable_pub)] // As in the crate that the page makes.

mod application;
mod dense;
mod page;
mod pieces;
mod pieces_tests;
mod tests;
