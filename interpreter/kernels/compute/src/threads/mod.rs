//! The thread pool, and the division of work over threads.

pub(super) mod pool;
pub(super) mod share;
