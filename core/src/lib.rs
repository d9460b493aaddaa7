//! What a `.tflite` model *is*: the loader and verifier, the graph of typed, versioned ops, the op definitions,
//! and the traits that kernels and resolvers implement.
//!
//! This crate defines ops, it does not run them: no kernels, no threads, no GPU. Delegates depend on it (and on
//! `delegraph-delegate-api`) only.
//!
//! ```text
//! bytes ──loader──▶ Model { Subgraph { Tensor…, Node { op, version, Params }… } } ──OpResolver──▶ Registration ──▶ Kernel
//! ```
//!
//! The modules in their order; each imports those before it alone:
//!
//! | module | its part |
//! |---|---|
//! | [`types`] | element types, shapes, quantization, sparse storage, operators, indices |
//! | [`error`](mod@error) | errors, where they happened, and what to do about them |
//! | [`flex`] | FlexBuffers: options of custom ops and attributes of composites |
//! | [`ops`] | definitions of ops: params, inference, versions, costs |
//! | [`quantized`] | arithmetic of single quantized values |
//! | [`graph`] | models, and the verification that makes them of drafts |
//! | [`kernel`] | what runs a node |
//! | [`resolver`] | kernels by op and version |
//! | `loader` | models of the bytes of files |
//! | [`writer`] | files of models, and models made from scratch |

pub mod error;
pub mod flex;
pub mod graph;
pub mod kernel;
mod loader;
pub mod ops;
pub mod quantized;
pub mod resolver;
pub mod types;
pub mod writer;

pub use error::{Error, Result};
pub use flex::{Attribute, Attributes};
pub use graph::{
    Composite, Model, ModelBytes, ModelDraft, Node, NodeId, Signature, Subgraph, Tensor, TensorId,
};
pub use kernel::{InvokeContext, Kernel, PrepareContext};
pub use ops::Params;
pub use quantized::fixed_point;
pub use resolver::{MutableOpResolver, OpResolver, Registration};
pub use types::{Bool, BuiltinOp, Element, Op, Quantization, Shape, TensorType, printable, printable_lines};
pub use types::{op, quantization, shape, sparsity};
pub use writer::{ModelBuilder, SubgraphBuilder};

pub(crate) use delegraph_schema as schema;
