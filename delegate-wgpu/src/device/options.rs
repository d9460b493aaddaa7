//! The options of the delegate.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use delegraph_delegate_api::PartitionOptions;

use crate::custom::WgpuOp;

/// The adapter to run on. A criterion that is not set matches every adapter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AdapterChoice {
    /// A part of the name of the adapter or its driver, compared without case.
    pub name: Option<String>,
    /// The graphics API through which the adapter is accessed.
    pub backend: Option<wgpu::Backend>,
    /// The order of preference among matching adapters. Without a preference, and for high performance, discrete GPUs
    /// come before integrated ones; for low power, integrated ones come first. Software adapters come last.
    pub power: wgpu::PowerPreference,
}

impl AdapterChoice {
    /// Selects the adapter whose name, or whose driver's name, contains `name`.
    pub fn named(name: impl Into<String>) -> Self {
        AdapterChoice { name: Some(name.into()), ..Default::default() }
    }

    /// Sets the graphics API through which the adapter is accessed.
    #[must_use]
    pub fn with_backend(mut self, backend: wgpu::Backend) -> Self {
        self.backend = Some(backend);
        self
    }

    /// Sets the order of preference among matching adapters.
    #[must_use]
    pub fn with_power(mut self, power: wgpu::PowerPreference) -> Self {
        self.power = power;
        self
    }

    pub(crate) fn matches(&self, info: &wgpu::AdapterInfo) -> bool {
        let named = self.name.as_ref().is_none_or(|name| {
            let name = name.to_lowercase();
            [&info.name, &info.driver, &info.driver_info]
                .iter()
                .any(|text| text.to_lowercase().contains(&name))
        });
        named && self.backend.is_none_or(|backend| backend == info.backend)
    }
}

impl fmt::Display for AdapterChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.backend) {
            (Some(name), Some(backend)) => write!(f, "\"{name}\" on {backend}"),
            (Some(name), None) => write!(f, "\"{name}\""),
            (None, Some(backend)) => write!(f, "backend {backend}"),
            (None, None) => f.write_str("any adapter"),
        }
    }
}

/// The format in which activations and weights are stored on the device. Kernels compute and accumulate in `f32` in
/// every format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Precision {
    /// 32-bit floats for every float type of the model. Constant weights that are exact in 16 bits are stored in 16
    /// bits, which does not change results.
    #[default]
    F32,
    /// 16-bit floats for values between the kernels of a partition, and for weights. The inputs and outputs of a
    /// partition have 32 bits, as have values on which integers depend, results that may exceed the range of 16 bits
    /// (sums, squares, exponentials, quotients, spectra), and constants that are added. Finite results stay finite. An
    /// adapter without `SHADER_F16` is an error of `prepare`.
    F16,
    /// [`Precision::F16`] on hardware adapters with `SHADER_F16`; [`Precision::F32`] on all others.
    Auto,
}

impl Precision {
    const ALL: &'static [Precision] = &[Precision::F32, Precision::F16, Precision::Auto];

    /// Returns the name of the format, as in `wgpu?precision=NAME`: `f32`, `f16` or `auto`.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::Auto => "auto",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = UnknownPrecision;

    fn from_str(name: &str) -> Result<Self, UnknownPrecision> {
        let found = Precision::ALL.iter().copied().find(|precision| precision.name() == name);
        found.ok_or_else(|| UnknownPrecision(name.into()))
    }
}

/// The error for a name that no [`Precision`] has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a precision; the precisions are f32, f16 and auto")]
pub struct UnknownPrecision(String);

/// The place where compiled shaders are stored between processes, on backends that support it (Vulkan). A file that
/// cannot be read or written is reported by a warning and has no other effect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PipelineCache {
    /// The user's cache folder of the system, under `delegraph/pipelines`, or `pipelines` in the folder that the
    /// environment variable `DELEGRAPH_CACHE` names.
    #[default]
    User,
    /// This folder.
    Folder(PathBuf),
    /// No files are read or written.
    Off,
}

/// The options of a [`WgpuDelegate`](crate::WgpuDelegate).
///
/// ```
/// use delegraph_delegate_wgpu::{AdapterChoice, PipelineCache, WgpuOptions};
///
/// let options = WgpuOptions::default()
///     .with_adapter(AdapterChoice::named("llvmpipe"))
///     .with_max_gpu_bytes(256 << 20)
///     .with_pipeline_cache(PipelineCache::Off);
/// # assert_eq!(options.max_gpu_bytes, Some(256 << 20));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WgpuOptions {
    /// The adapter to run on.
    pub adapter: AdapterChoice,
    /// The format in which values are stored on the device.
    pub precision: Precision,
    /// Limits on delegated partitions.
    pub partitions: PartitionOptions,
    /// Whether shaders are compiled without the bounds and loop checks that wgpu adds. The tests of this crate's
    /// shaders run with the checks; shaders of custom ops always keep them.
    pub trusted_shaders: bool,
    /// The place where compiled shaders are stored. If several delegates share a device, the first one determines it.
    pub pipeline_cache: PipelineCache,
    /// Maximum device memory for the delegated parts of a model, in bytes. Nodes beyond it stay on the CPU. `None`: the
    /// memory limit of the interpreter, if it has one.
    pub max_gpu_bytes: Option<u64>,
    /// Whether nodes are merged into fewer dispatches. Without fusion every node runs by itself, which shows whether
    /// fusion causes a wrong result, and how much time fusion saves.
    pub fusion: bool,
    /// Whether products of 16-bit operands use the adapter's matrix units, where wgpu's experimental cooperative
    /// matrices support them (16 by 16 matrices with 32-bit sums, subgroups of 32 invocations). Has no effect with
    /// [`Precision::F32`], or on devices that the application opened.
    pub matrix_units: bool,
    /// Whether the time of each dispatch is measured, on devices that support it. Measuring costs some time, and
    /// tensors no longer stay on the device between partitions.
    pub profile: bool,
    /// Custom ops with shaders of the application. If several have the same name, the last one applies.
    pub custom_ops: Vec<WgpuOp>,
}

impl WgpuOptions {
    /// Sets the adapter to run on.
    #[must_use]
    pub fn with_adapter(mut self, adapter: AdapterChoice) -> Self {
        self.adapter = adapter;
        self
    }

    /// Sets the format in which values are stored on the device.
    #[must_use]
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Sets the limits on delegated partitions.
    #[must_use]
    pub fn with_partitions(mut self, partitions: PartitionOptions) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets whether shaders are compiled without runtime checks.
    #[must_use]
    pub fn with_trusted_shaders(mut self, trusted: bool) -> Self {
        self.trusted_shaders = trusted;
        self
    }

    /// Sets the place where compiled shaders are stored.
    #[must_use]
    pub fn with_pipeline_cache(mut self, cache: PipelineCache) -> Self {
        self.pipeline_cache = cache;
        self
    }

    /// Sets the largest number of bytes of device memory; `None` removes the limit.
    #[must_use]
    pub fn with_max_gpu_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.max_gpu_bytes = bytes.into();
        self
    }

    /// Sets whether nodes are merged into fewer dispatches.
    #[must_use]
    pub fn with_fusion(mut self, fusion: bool) -> Self {
        self.fusion = fusion;
        self
    }

    /// Sets whether products of 16-bit operands use matrix units.
    #[must_use]
    pub fn with_matrix_units(mut self, matrix_units: bool) -> Self {
        self.matrix_units = matrix_units;
        self
    }

    /// Sets whether each dispatch is measured.
    #[must_use]
    pub fn with_profile(mut self, profile: bool) -> Self {
        self.profile = profile;
        self
    }

    /// Adds a custom op.
    #[must_use]
    pub fn with_custom_op(mut self, op: WgpuOp) -> Self {
        self.custom_ops.push(op);
        self
    }
}

impl Default for WgpuOptions {
    fn default() -> Self {
        WgpuOptions {
            adapter: AdapterChoice::default(),
            precision: Precision::F32,
            partitions: PartitionOptions::default(),
            trusted_shaders: false,
            pipeline_cache: PipelineCache::User,
            max_gpu_bytes: None,
            fusion: true,
            matrix_units: true,
            profile: false,
            custom_ops: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_match_by_part_of_the_name() {
        let mut info = wgpu::AdapterInfo::new(wgpu::DeviceType::Cpu, wgpu::Backend::Vulkan);
        info.name = "llvmpipe (LLVM 15.0.6)".into();
        let check = |choice: AdapterChoice, expected| assert_eq!(choice.matches(&info), expected, "{choice}");
        check(AdapterChoice::default(), true);
        check(AdapterChoice::named("LLVMpipe"), true);
        check(AdapterChoice::named("Radeon"), false);
        check(AdapterChoice { backend: Some(wgpu::Backend::Metal), ..Default::default() }, false);
    }

    #[test]
    fn precisions_are_parsed_from_their_names() {
        for precision in Precision::ALL {
            assert_eq!(precision.name().parse(), Ok(*precision));
        }
        let error = "f64".parse::<Precision>().unwrap_err().to_string();
        assert!(Precision::ALL.iter().all(|precision| error.contains(precision.name())), "{error}");
    }
}
