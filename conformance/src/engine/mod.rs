//! Problems, the backends that run them, and the results.
//!
//! A [`Problem`] is a model with data, created from [a built-in case](Problem::of_case) or read from [a
//! folder](crate::corpus::load). The expected outputs are those of the folder, or those of the reference kernels for a
//! built-in case; a folder without expected outputs passes if it runs. [`Engine::run`](crate::runner::Engine::run) returns
//! the same [`CaseResult`] for both.

mod backend;
mod describe;
pub(crate) mod durations;
mod problem;
mod result;
mod statistics;

pub use backend::{Backend, Kernels, MakeDelegate};
pub(crate) use backend::{failed, feed, invalid, outcome_of, outputs, panic_text, prepare, ran};
pub(crate) use describe::describe;
pub use problem::{Answers, Feed, GivenTolerance, Problem, Step};
pub use result::{BINS, Bad, CaseFailure, CaseResult, ContractCheck, ErrorStats, Outcome};
pub use statistics::{Rule, judge};
