//! The model as a graph of typed, versioned ops.

pub(crate) mod archive;
mod callees;
mod composite;
mod control;
mod extension;
mod inferred;
mod model;
mod node;
mod op_use;
pub(crate) mod strings;
mod subgraph;
mod tensor;
mod verify;

pub use crate::types::{Backing, ModelBytes, NodeId, TensorId};
pub use composite::Composite;
pub(crate) use inferred::{InferredShapes, inferred_shapes};
pub use model::{Model, ModelDraft};
pub use node::Node;
pub(crate) use op_use::inferred_min_version;
pub use op_use::{check_versions, cost, min_version, min_versions, understated_versions};
pub use strings::{Strings, StringsError};
pub use subgraph::{Signature, Subgraph};
pub(crate) use tensor::writes;
pub use tensor::{IntoQuantization, Tensor, VariantType};
pub(crate) use verify::{Invalid, at_node, in_subgraph, invalid};
