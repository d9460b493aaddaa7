//! What a device offers to kernels, and what a kernel asks of naga.

/// Limits and features of the adapter that a kernel is made for.
///
/// The default is what WebGPU promises everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Most workgroups in each dimension of one dispatch.
    pub max_workgroups_per_dimension: u32,
    /// Most invocations in one workgroup.
    pub max_invocations_per_workgroup: u32,
    /// Most storage buffers that one kernel may bind.
    pub max_storage_buffers: u32,
    /// Largest storage binding, in bytes.
    pub max_storage_binding: u64,
    /// Workgroup memory, in bytes.
    pub max_workgroup_storage: u32,
    /// 16-bit floats in shaders.
    pub f16: bool,
    /// Subgroup operations in shaders.
    pub subgroups: bool,
    /// Invocations in every subgroup, where the device has a single size; 0: unknown or several.
    pub subgroup_size: u32,
    /// The "GPU" is a CPU: register tiles pay, workgroup memory and barriers don't, and a handful of
    /// workgroups keeps all cores busy.
    pub software: bool,
}

impl Caps {
    /// WebGPU's default limits without any optional feature.
    pub const WEBGPU: Self = Self {
        max_workgroups_per_dimension: 65_535,
        max_invocations_per_workgroup: 256,
        max_storage_buffers: 8,
        max_storage_binding: 128 << 20,
        max_workgroup_storage: 16 << 10,
        f16: false,
        subgroups: false,
        subgroup_size: 0,
        software: false,
    };
}

impl Default for Caps {
    fn default() -> Self {
        Self::WEBGPU
    }
}

/// Language features that a kernel's text uses beyond plain WGSL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// `enable f16;`
    pub f16: bool,
    /// Subgroup built-ins.
    pub subgroups: bool,
    /// 16-bit floats that are unpacked from words, which WebGPU has everywhere.
    pub halves: bool,
}
