//! The `.tflite` model: the loader and verifier, the graph of typed, versioned ops, the op definitions, and the traits
//! that kernels and resolvers implement.
//!
//! This crate defines ops and does not run them: it has no kernels, no threads and no GPU. Delegates depend only on it
//! and on `delegraph-delegate-api`.
//!
//! ```text
//! bytes ──loader──▶ Model { Subgraph { Tensor…, Node { op, version, Params }… } } ──OpResolver──▶ Registration ──▶ Kernel
//! ```
//!
//! The modules in order; each imports only earlier ones:
//!
//! | module | its part |
//! |---|---|
//! | [`types`] | element types, shapes, quantization, sparse storage, operators, indices |
//! | [`error`](mod@error) | errors, their places in the model, and advice |
//! | [`flex`] | FlexBuffers: options of custom ops and attributes of composites |
//! | [`ops`] | definitions of ops: params, inference, versions, costs |
//! | [`quantized`] | arithmetic of single quantized values |
//! | [`graph`] | models, and the verification of drafts |
//! | [`kernel`] | the trait of kernels, which run nodes, and its contexts |
//! | [`resolver`] | kernels by op and version |
//! | `loader` | models from the bytes of files |
//! | [`writer`] | files from models, and models made from scratch |

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
pub use smallvec;
pub use types::{Bool, BuiltinOp, Element, Op, Quantization, Shape, TensorType, printable, printable_lines};
pub use types::{op, quantization, shape, sparsity};
pub use writer::{ModelBuilder, SubgraphBuilder};

pub(crate) use delegraph_schema as schema;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}

    #[test]
    fn threads_share_models_and_errors() {
        is_send::<Model>();
        is_sync::<Model>();
        is_send::<Error>();
        is_sync::<Error>();
        is_send::<Box<dyn Kernel>>();
    }
}
