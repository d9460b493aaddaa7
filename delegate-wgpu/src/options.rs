//! What an application can choose.

use std::fmt;
use std::path::PathBuf;

use delegraph_delegate_api::PartitionOptions;

use crate::custom::WgpuOp;

/// Which adapter to run on. What is not given matches every adapter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdapterChoice {
    /// Part of the adapter's name or of its driver's, in upper or lower case.
    pub name: Option<String>,
    /// The API to reach it by.
    pub backend: Option<wgpu::Backend>,
    /// Which one to take where several match. Without a preference, and for high performance, discrete GPUs come
    /// before integrated ones; for low power it is the other way round. Software adapters come last.
    pub power: wgpu::PowerPreference,
}

impl AdapterChoice {
    /// The adapter of this name.
    pub fn named(name: impl Into<String>) -> Self {
        AdapterChoice { name: Some(name.into()), ..Default::default() }
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

/// How activations and weights are stored on the device. Accumulation is `f32` always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Precision {
    /// As the model has them.
    #[default]
    F32,
}

/// Where compiled shaders are kept from one start to the next, on backends that let them be kept (Vulkan). A file that
/// cannot be read or written is a warning, and nothing else changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PipelineCache {
    /// In the folder that the system has for users' caches, under `delegraph/pipelines`, or in `pipelines` in the folder
    /// that the environment variable `DELEGRAPH_CACHE` names.
    #[default]
    User,
    /// In this folder.
    Folder(PathBuf),
    /// Nowhere.
    Off,
}

/// Options of the delegate.
#[derive(Debug, Clone, PartialEq)]
pub struct WgpuOptions {
    /// Which adapter to run on.
    pub adapter: AdapterChoice,
    /// How values are stored on the device.
    pub precision: Precision,
    /// Limits on what is delegated.
    pub partitions: PartitionOptions,
    /// Compile shaders without the bounds and loop checks that wgpu adds for shaders of unknown origin. Ours are
    /// tested with the checks on.
    pub trusted_shaders: bool,
    /// Where compiled shaders are kept. Of several delegates on one device, the first decides.
    pub pipeline_cache: PipelineCache,
    /// At most so many bytes of device memory for the delegated parts of a model. Nodes for which there is no room stay
    /// on the CPU. `None`: no limit but the device's.
    pub max_gpu_bytes: Option<u64>,
    /// Merge what nodes do into fewer kernels, which is to be left. Without it every node runs by itself: to find out
    /// whether a wrong result comes from merging, and what merging is worth.
    pub fusion: bool,
    /// Measure each kernel's time on the device, where it can. Costs a little, and tensors no longer stay on the device
    /// between partitions.
    pub profile: bool,
    /// Custom ops that the application has shaders for; of several for one name, the last one counts.
    pub custom_ops: Vec<WgpuOp>,
}

impl WgpuOptions {
    /// Adds a custom op.
    #[must_use]
    pub fn custom_op(mut self, op: WgpuOp) -> Self {
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
}
