//! The values that models, ops and kernels are described with: element types, shapes, quantization, sparse storage,
//! operators, and indices.

mod bytes;
mod element;
mod file;
mod id;
pub mod op;
mod printable;
pub mod quantization;
pub mod shape;
pub mod sparsity;

pub use bytes::{Backing, ModelBytes};
pub use element::{Bool, Element, TensorType};
pub use file::{open_regular, read_regular};
pub use id::{NodeId, TensorId};
pub use op::{BuiltinOp, Op};
pub(crate) use printable::{Printable, PrintableLines};
pub use printable::{counted, is_escaped, printable, printable_json, printable_lines, rounded, short_name};
pub use quantization::Quantization;
pub use shape::Shape;
