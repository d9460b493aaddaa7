//! What a `.tflite` model *is*: the loader and verifier, the graph of typed, versioned ops, the op definitions,
//! and the traits that kernels and resolvers implement.
//!
//! This crate defines ops, it does not run them: no kernels, no threads, no GPU. Delegates depend on it (and on
//! `delegraph-delegate-api`) only.
//!
//! ```text
//! bytes ──loader──▶ Model { Subgraph { Tensor…, Node { op, version, Params }… } } ──OpResolver──▶ Registration ──▶ Kernel
//! ```

mod archive;
mod attributes;
mod composite;
mod control;
mod ensure;
pub mod error;
pub mod fixed_point;
pub mod flex;
pub mod graph;
pub mod kernel;
mod loader;
pub mod op;
pub mod ops;
pub mod quantization;
pub mod quantized;
pub mod resolver;
#[allow(missing_docs, warnings, clippy::all, clippy::undocumented_unsafe_blocks)]
#[rustfmt::skip]
pub(crate) mod schema_generated;
pub mod shape;
pub mod sparsity;
pub mod types;
mod unresolved;
pub mod writer;

pub use attributes::{Attribute, Attributes};
pub use composite::Composite;
pub use error::{Error, Result};
pub use graph::{Model, ModelBytes, Node, NodeId, Signature, Subgraph, Tensor, TensorId};
pub use kernel::{InvokeContext, Kernel, PrepareContext};
pub use op::{BuiltinOp, Op};
pub use ops::Params;
pub use quantization::Quantization;
pub use resolver::{MutableOpResolver, OpResolver, Registration};
pub use shape::Shape;
pub use types::{Bool, Element, TensorType};
pub use writer::{ModelBuilder, SubgraphBuilder};

pub(crate) use schema_generated::tflite as schema;
