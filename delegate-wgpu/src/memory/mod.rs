//! Device memory: values that share a buffer, data that is uploaded once, and tensors that stay on the device.

mod buffer;
mod layout;
mod plan;
mod stored_value;
mod texture;
mod upload;

pub use buffer::GpuBuffer;
pub use texture::TextureInput;

pub(crate) use layout::{Dispatch, Layout, Memory};
pub(crate) use plan::plan;
pub(crate) use stored_value::StoredValue;
pub(crate) use upload::{Uploaded, uploads};
