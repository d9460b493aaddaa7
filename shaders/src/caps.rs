//! The capabilities of a device, and the language features of a kernel.

/// Limits and features of the device that a kernel is made for. The default is WebGPU's guaranteed minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caps {
    /// Maximum number of workgroups in each dimension of a dispatch.
    pub max_workgroups_per_dimension: u32,
    /// Maximum number of invocations in a workgroup.
    pub max_invocations_per_workgroup: u32,
    /// Maximum number of storage buffers of a kernel.
    pub max_storage_buffers: u32,
    /// Maximum size of a storage binding, in bytes.
    pub max_storage_binding: u64,
    /// Size of workgroup memory, in bytes.
    pub max_workgroup_storage: u32,
    /// Shaders may use 16-bit floats.
    pub f16: bool,
    /// Shaders may use subgroup operations.
    pub subgroups: bool,
    /// Number of invocations in a subgroup; 0 if it is unknown or not constant.
    pub subgroup_size: u32,
    /// The device has matrix units, and the input and the weights of the kernel have 16 bits: shaders may multiply
    /// cooperative matrices of 16 by 16 16-bit floats with 32-bit sums.
    pub matrices: bool,
    /// The device is a CPU: register tiles are efficient, workgroup memory and barriers are not, and a few workgroups
    /// occupy all cores.
    pub software: bool,
    /// Maximum number of iterations of all loops of an invocation together. Mesa's llvmpipe ends loops silently after
    /// 65,535 of them.
    pub max_iterations: u64,
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
        matrices: false,
        software: false,
        max_iterations: u64::MAX,
    };

    /// Sets [`Caps::software`], and with it [`Caps::max_iterations`].
    #[must_use]
    pub const fn with_software(mut self, software: bool) -> Self {
        self.software = software;
        self.max_iterations = if software { 65_535 } else { u64::MAX };
        self
    }

    /// Sets [`Caps::matrices`].
    #[must_use]
    pub const fn with_matrices(mut self, matrices: bool) -> Self {
        self.matrices = matrices;
        self
    }

    /// Enables subgroup operations, with the number of invocations in a subgroup; 0 if it is unknown or not constant.
    #[must_use]
    pub const fn with_subgroups(mut self, size: u32) -> Self {
        self.subgroups = true;
        self.subgroup_size = size;
        self
    }

    /// Disables subgroup operations.
    #[must_use]
    pub const fn without_subgroups(mut self) -> Self {
        self.subgroups = false;
        self.subgroup_size = 0;
        self
    }
}

impl Default for Caps {
    fn default() -> Self {
        Self::WEBGPU
    }
}

/// Language features that a kernel's source uses beyond plain WGSL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Features {
    /// `enable f16;`
    pub f16: bool,
    /// Subgroup built-ins.
    pub subgroups: bool,
    /// `enable wgpu_cooperative_matrix;`
    pub matrices: bool,
    /// `unpack2x16float`, which needs no WebGPU feature.
    pub halves: bool,
}
