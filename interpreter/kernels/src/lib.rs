//! CPU kernels of TFLite's builtin ops, and of some custom ops.
//!
//! - [`mod@reference`]: short and plain kernels, which define the expected results. One file per op family, named like
//!   the family's definition in `delegraph_core::ops`;
//! - [`optimized`]: fast kernels of the families whose nodes take most of the time, in files of the same names. Nodes
//!   that they do not support run on the reference kernels;
//! - [`custom`]: kernels of custom ops of well-known models, and of the ops that fusion creates.
//!
//! [`BuiltinOpResolver`] and [`ReferenceOpResolver`] find the kernel of an op and version. The inner loops of the
//! optimized kernels are in the crate `delegraph-compute`, which works on plain slices.
//!
//! The crate is an implementation detail of `delegraph-interpreter`: its API may change in any release.

// Some helpers are used only by optimized kernels.
#![cfg_attr(not(feature = "optimized"), allow(dead_code, unused_imports))]

mod common;
pub mod custom;
mod evaluate;
mod families;
#[cfg(feature = "optimized")]
pub mod optimized;
pub mod reference;
mod resolvers;
#[cfg(test)]
pub(crate) mod testing;

pub use delegraph_compute::{ComputeError, ISA_VARIABLE, Isa, ThreadPool};
pub use evaluate::{Environment, Evaluation, KnownInputs, OutputShapes, evaluate, infer_outputs};
pub use resolvers::{BuiltinOpResolver, ReferenceOpResolver};
