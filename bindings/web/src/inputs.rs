//! Inputs of a model that are on a device.

use std::collections::HashMap;

use delegraph::delegate_wgpu::{TextureInput, WgpuDelegate, wgpu};

/// Inputs of a model that are on its device, by their indices.
#[derive(Default)]
pub(crate) struct Inputs {
    /// `None` for a model on the CPU.
    pub(crate) delegate: Option<WgpuDelegate>,
    pub(crate) pictures: HashMap<usize, Picture>,
    pub(crate) buffers: HashMap<usize, wgpu::Buffer>,
}

/// An input created from textures.
pub(crate) struct Picture {
    pub(crate) input: TextureInput,
    pub(crate) shape: [usize; 4],
    /// Factors and summands of the components.
    pub(crate) range: [f32; 8],
}
