//! Runs claimed subgraphs as WGSL compute kernels on Vulkan, Metal, DX12 or WebGPU.
//!
//! ```text
//! nodes ──ops::lower──▶ graph of values and steps ──passes──▶ fewer steps ──plan──▶ buffers ──kernel──▶ one pass
//! ```
//!
//! The delegate depends on [`delegraph_delegate_api`] and on the op definitions of `delegraph_core`, like any other
//! delegate. `RECIPE.md` describes how to add an op.

mod compile;
mod custom;
mod deferred;
mod delegate;
mod device;
mod graph;
mod kernel;
mod memory;
mod ops;
#[cfg(test)]
mod testing;

pub use custom::{WgpuDispatch, WgpuNode, WgpuOp, WgpuOpError, WgpuOperand, WgpuPlan, WgpuTensor};
pub use delegate::WgpuDelegate;
pub use device::adapter::{AdapterDescription, WgpuError, adapters, adapters_async};
pub use device::named::{InvalidOption, NamedOption};
pub use device::options::{AdapterChoice, PipelineCache, Precision, UnknownPrecision, WgpuOptions};
pub use memory::{GpuBuffer, TextureInput};
pub use wgpu;
