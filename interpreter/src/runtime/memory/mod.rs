//! Memory of a subgraph: the plan of its arena, temporaries of steps, and the release of constants.

mod constants;
mod greedy;
mod in_place;
mod planner;
mod request;
mod scratch;
mod sweep;

pub(crate) use constants::{ConstantReaders, copy_small_constants};
pub(crate) use in_place::{Lifetime, share};
pub(crate) use planner::plan;
pub(crate) use request::Request;
pub(crate) use scratch::Scratch;
