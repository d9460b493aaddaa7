//! Runs claimed subgraphs as WGSL compute kernels on Vulkan, Metal, DX12 or WebGPU.
//!
//! ```text
//! nodes ──ops::lower──▶ graph of values and steps ──passes──▶ fewer steps ──plan──▶ buffers ──kernel──▶ one pass
//! ```
//!
//! The delegate uses what any delegate has: [`delegraph_delegate_api`] and the op definitions of `delegraph_core`.
//! How to add an op: `RECIPE.md`.

mod ahead;
mod buffer;
mod cache;
mod context;
mod custom;
mod delegate;
mod device;
mod dims;
mod graph;
mod kernel;
mod later;
mod lower;
mod memory;
mod ops;
mod options;
mod passes;
mod pipelines;
mod plan;
mod sizes;
mod table;
#[cfg(test)]
mod testing;
mod texture;
mod timer;
mod twins;
mod upload;
mod words;

pub use buffer::GpuBuffer;
pub use custom::{WgpuDispatch, WgpuNode, WgpuOp, WgpuOpError, WgpuOperand, WgpuPlan, WgpuTensor};
pub use delegate::WgpuDelegate;
pub use device::{AdapterDescription, WgpuError, adapters};
pub use options::{AdapterChoice, PipelineCache, Precision, WgpuOptions};
pub use texture::TextureInput;
pub use wgpu;

/// The delegate's name in reports and messages.
pub const NAME: &str = "wgpu";
