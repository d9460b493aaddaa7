//! Delegates: their claims, partitions and failures.

mod claims;
mod delegates;
mod partition;

pub(crate) use claims::{Candidate, Claims, Unit, claim, report};
pub(crate) use delegates::{Delegates, Exclusion, contain_kernel};
pub(crate) use partition::{Partition, Preparation};
