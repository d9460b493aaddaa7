//! One subgraph at run time.
//!
//! Preparing is a sequence of types. Each step consumes the previous type, and a failing step returns the [`Parts`]:
//!
//! 1. [`Parts`]: tensors and kernels, which are kept between preparations.
//! 2. [`Inferred`]: shapes are known, and nodes over constants are computed ("folded"), except large weights that a
//!    kernel packs: these are converted one by one in step 4.
//! 3. [`Claimed`](claimed::Claimed): delegates have claimed nodes, and the order of execution is fixed.
//! 4. [`Prepared`](prepared::Prepared): kernels have packed their constants and requested temporaries.
//! 5. [`Planned`]: memory is planned. Only this can be invoked.
//!
//! Nodes whose shapes depend on data are deferred: they are prepared in the invocation, when their inputs hold their
//! data, and own their memory.

mod claimed;
mod composites;
mod empty;
mod folding;
mod inferred;
mod invoke;
mod parts;
mod planned;
mod prepared;
mod residency;
mod waiting;

pub(crate) use claimed::Role;
pub(crate) use composites::unclaimed;
pub(crate) use inferred::{FoldedValues, Inferred};
pub(crate) use invoke::{Cursor, Progress};
pub(crate) use parts::{Failed, Parts};
pub use planned::MemoryReport;
pub(crate) use planned::Planned;
pub(crate) use waiting::Conversions;
