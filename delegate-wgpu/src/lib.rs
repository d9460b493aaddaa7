//! Runs claimed subgraphs as WGSL compute kernels on Vulkan, Metal, DX12 or WebGPU.
