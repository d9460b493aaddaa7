//! Finding an adapter, opening it, and what all kernels on one device share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use delegraph_shaders::{Access, Caps, Kernel};

use crate::options::{AdapterChoice, WgpuOptions};

/// Why no device could be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WgpuError {
    /// The machine offers nothing to run on.
    #[error(
        "no GPU adapter found: install a Vulkan driver (on Debian or Ubuntu, `apt install mesa-vulkan-drivers` gives \
         a software one), or run without this delegate"
    )]
    NoAdapter,
    /// There are adapters, but none is the one asked for.
    #[error("no GPU adapter matches {wanted}; there are: {}", .available.join("; "))]
    NoMatch {
        /// What was asked for.
        wanted: String,
        /// The adapters that there are.
        available: Vec<String>,
    },
    /// The adapter refused to be opened.
    #[error("{adapter} cannot be opened: {message}")]
    Device {
        /// The adapter.
        adapter: String,
        /// What it says.
        message: String,
    },
}

impl From<WgpuError> for delegraph_core::Error {
    fn from(error: WgpuError) -> Self {
        delegraph_core::Error::Delegate { delegate: crate::NAME.into(), message: error.to_string() }
    }
}

/// An adapter of this machine.
#[derive(Debug, Clone)]
pub struct AdapterDescription {
    /// Name, driver, backend, kind of device.
    pub info: wgpu::AdapterInfo,
    /// The limits that it offers.
    pub limits: wgpu::Limits,
    /// The features that it offers.
    pub features: wgpu::Features,
}

impl AdapterDescription {
    fn of(adapter: &wgpu::Adapter) -> Self {
        AdapterDescription {
            info: adapter.get_info(),
            limits: adapter.limits(),
            features: adapter.features(),
        }
    }

    /// Name and backend, as messages show them.
    pub fn title(&self) -> String {
        title(&self.info)
    }
}

fn title(info: &wgpu::AdapterInfo) -> String {
    format!("{} ({})", info.name, info.backend)
}

/// Every adapter of this machine that can compute.
pub fn adapters() -> Vec<AdapterDescription> {
    enumerate().iter().map(AdapterDescription::of).collect()
}

fn enumerate() -> Vec<wgpu::Adapter> {
    let descriptor = wgpu::InstanceDescriptor {
        // Validation layers are for wgpu's own developers: what we ask of the API is validated by wgpu itself.
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    };
    let instance = wgpu::Instance::new(descriptor);
    let mut adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    let computes = wgpu::DownlevelFlags::COMPUTE_SHADERS;
    adapters.retain(|a| a.get_downlevel_capabilities().flags.contains(computes));
    adapters
}

/// How well an adapter fits the power preference; lower is better.
fn rank(kind: wgpu::DeviceType, choice: &AdapterChoice) -> u8 {
    use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu, Other, VirtualGpu};
    let low_power = choice.power == wgpu::PowerPreference::LowPower;
    match kind {
        DiscreteGpu => u8::from(low_power),
        IntegratedGpu => u8::from(!low_power),
        VirtualGpu => 2,
        Other => 3,
        Cpu => 4,
    }
}

fn choose(adapters: Vec<wgpu::Adapter>, choice: &AdapterChoice) -> Result<wgpu::Adapter, WgpuError> {
    if adapters.is_empty() {
        return Err(WgpuError::NoAdapter);
    }
    let available = adapters.iter().map(|a| title(&a.get_info())).collect();
    adapters
        .into_iter()
        .filter(|a| choice.matches(&a.get_info()))
        .min_by_key(|a| rank(a.get_info().device_type, choice))
        .ok_or_else(|| WgpuError::NoMatch { wanted: choice.to_string(), available })
}

/// Opens the adapter that `options` choose: WebGPU's default limits, larger buffers where the adapter has them.
pub(crate) fn open(
    options: &WgpuOptions,
) -> Result<(wgpu::Device, wgpu::Queue, wgpu::AdapterInfo), WgpuError> {
    let adapter = choose(enumerate(), &options.adapter)?;
    let info = adapter.get_info();
    let offered = adapter.limits();
    let wanted = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::SHADER_F16 | wgpu::Features::SUBGROUP;
    let descriptor = wgpu::DeviceDescriptor {
        label: Some(crate::NAME),
        required_features: adapter.features() & wanted,
        required_limits: wgpu::Limits {
            max_storage_buffer_binding_size: offered.max_storage_buffer_binding_size,
            max_buffer_size: offered.max_buffer_size,
            ..wgpu::Limits::default().or_worse_values_from(&offered)
        },
        ..Default::default()
    };
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
        .map_err(|e| WgpuError::Device { adapter: title(&info), message: e.to_string() })?;
    Ok((device, queue, info))
}

/// A device with what all kernels on it share.
pub(crate) struct Context {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub caps: Caps,
    pub limits: wgpu::Limits,
    /// Nanoseconds per tick, where the device measures time.
    pub timestamp_period: Option<f32>,
    /// Leave bounds and loop checks out of shaders.
    trusted: bool,
    /// Why the device was lost, once it is.
    lost: Arc<Mutex<Option<String>>>,
    pipelines: Mutex<HashMap<String, Arc<wgpu::ComputePipeline>>>,
}

impl Context {
    pub(crate) fn new(
        device: wgpu::Device,
        queue: wgpu::Queue,
        info: &wgpu::AdapterInfo,
        options: &WgpuOptions,
    ) -> Self {
        let (limits, features) = (device.limits(), device.features());
        let caps = Caps {
            max_workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
            max_invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_storage_binding: limits.max_storage_buffer_binding_size,
            max_workgroup_storage: limits.max_compute_workgroup_storage_size,
            f16: features.contains(wgpu::Features::SHADER_F16),
            subgroups: features.contains(wgpu::Features::SUBGROUP),
            subgroup_size: if info.subgroup_min_size == info.subgroup_max_size {
                info.subgroup_min_size
            } else {
                0
            },
            software: info.device_type == wgpu::DeviceType::Cpu,
        };
        let measures = features.contains(wgpu::Features::TIMESTAMP_QUERY);
        let timestamp_period = measures.then(|| queue.get_timestamp_period());
        let (lost, pipelines, trusted) = Default::default();
        Context {
            device,
            queue,
            caps,
            limits,
            timestamp_period,
            trusted: options.trusted_shaders || trusted,
            lost,
            pipelines,
        }
    }

    /// Notes when the device is lost. Only for a device that nobody else has: there is one callback per device.
    pub(crate) fn watch(&self) {
        let lost = Arc::clone(&self.lost);
        self.device.set_device_lost_callback(move |reason, message| {
            *lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{reason:?}: {message}"));
        });
    }

    /// Why the device was lost, if it is.
    pub(crate) fn lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs `f` and returns the first error that the device reports meanwhile.
    pub(crate) fn checked<T>(&self, f: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
        use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
        let scopes = [Internal, OutOfMemory, Validation].map(|filter| self.device.push_error_scope(filter));
        let result = f();
        let [internal, memory, validation] = scopes;
        // Innermost first.
        let errors = [validation, memory, internal].map(|scope| pollster::block_on(scope.pop()));
        errors.into_iter().flatten().next().map_or(Ok(result), Err)
    }

    /// The pipeline that runs `kernel`; compiled the first time that its key is seen.
    pub(crate) fn pipeline(&self, kernel: &Kernel) -> Result<Arc<wgpu::ComputePipeline>, wgpu::Error> {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = pipelines.get(&kernel.key) {
            return Ok(Arc::clone(pipeline));
        }
        let pipeline = Arc::new(self.checked(|| self.compile(kernel))?);
        pipelines.insert(kernel.key.clone(), Arc::clone(&pipeline));
        Ok(pipeline)
    }

    fn compile(&self, kernel: &Kernel) -> wgpu::ComputePipeline {
        let label = Some(kernel.key.as_str());
        let source = wgpu::ShaderSource::Wgsl(kernel.wgsl.as_str().into());
        let descriptor = wgpu::ShaderModuleDescriptor { label, source };
        let module = if self.trusted {
            // SAFETY: the text comes from our own shaders. Their loops are bounded by the uniform block, their
            // indices by shapes that specs check against each other, and both run with all checks on in the tests.
            unsafe {
                let checks = wgpu::ShaderRuntimeChecks::unchecked();
                self.device.create_shader_module_trusted(descriptor, checks)
            }
        } else {
            self.device.create_shader_module(descriptor)
        };
        let entry = |(binding, role): (u32, &delegraph_shaders::Binding)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: match role.access() {
                    Access::Read => wgpu::BufferBindingType::Storage { read_only: true },
                    Access::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
                    Access::Uniform => wgpu::BufferBindingType::Uniform,
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<_> = (0..).zip(&kernel.bindings).map(entry).collect();
        let group = wgpu::BindGroupLayoutDescriptor { label, entries: &entries };
        let group = self.device.create_bind_group_layout(&group);
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&group)],
            immediate_size: 0,
        });
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&layout),
            module: &module,
            entry_point: Some(kernel.entry),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: !self.trusted,
                ..Default::default()
            },
            cache: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_adapter_says_what_to_install() {
        let error = choose(Vec::new(), &AdapterChoice::default()).map(drop).unwrap_err();
        assert_eq!(error, WgpuError::NoAdapter);
        assert!(delegraph_core::Error::from(error).to_string().contains("apt install mesa-vulkan-drivers"));
    }

    #[test]
    fn an_adapter_that_is_not_there_lists_those_that_are() {
        let adapters = enumerate();
        let Some(one) = adapters.first().map(|a| a.get_info().name) else {
            return eprintln!("skipped: {}", WgpuError::NoAdapter);
        };
        let error = choose(adapters, &AdapterChoice::named("no such adapter")).map(drop).unwrap_err();
        assert!(error.to_string().contains(&one), "{error}");
    }

    #[test]
    fn discrete_first_software_last_unless_power_is_scarce() {
        use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu};
        let order = |power| {
            let choice = AdapterChoice { power, ..Default::default() };
            let mut kinds = [Cpu, IntegratedGpu, DiscreteGpu];
            kinds.sort_by_key(|kind| rank(*kind, &choice));
            kinds
        };
        assert_eq!(order(wgpu::PowerPreference::None), [DiscreteGpu, IntegratedGpu, Cpu]);
        assert_eq!(order(wgpu::PowerPreference::LowPower), [IntegratedGpu, DiscreteGpu, Cpu]);
    }
}
