//! Conformance tests for Delegraph delegates: cases of every op, comparison with the reference kernels, checks of the
//! contract, reports.

pub mod author;
pub mod cases;
pub mod compare;
pub mod contract;
pub mod corpus;
pub mod engine;
mod error;
pub mod expectations;
pub mod goldens;
pub mod harness;
pub mod npy;
pub mod output;
pub mod report;
pub mod runner;
pub mod seeded;

pub use error::Error;
