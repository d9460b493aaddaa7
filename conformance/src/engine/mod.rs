//! Runs one case on a delegate, or on the optimized kernels, and says what came of it.
//!
//! A [`Problem`] is a model with data, made of one of [our cases](Problem::of_case) or read from [a
//! folder](crate::corpus::load). Its answers are those of the folder or, where it has none, what the reference kernels
//! compute. [`Engine::run`] gives the same [`CaseResult`] for both.

mod describe;
mod problem;
mod result;
mod run;
mod statistics;

pub use problem::{Answers, Feed, GivenTolerance, Problem, Step};
pub use result::{BINS, Bad, CaseResult, Check, ErrorStats, Outcome};
pub use run::{Backend, Engine, Kernels, MakeDelegate, answer};
pub(crate) use run::{feed, outcome_of, outputs, panic_text, prepare};
pub use statistics::{Output, Rule, judge};
