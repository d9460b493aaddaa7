//! Finding an adapter, and opening it.

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

/// Opens the adapter that `options` choose.
pub(crate) fn open(options: &WgpuOptions) -> Result<(wgpu::Device, wgpu::Queue, wgpu::Adapter), WgpuError> {
    let adapter = choose(enumerate(), &options.adapter)?;
    let (device, queue) = request(&adapter)?;
    Ok((device, queue, adapter))
}

/// A device of `adapter`: WebGPU's default limits, larger buffers where the adapter has them.
pub(crate) fn request(adapter: &wgpu::Adapter) -> Result<(wgpu::Device, wgpu::Queue), WgpuError> {
    let offered = adapter.limits();
    let wanted = wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::SHADER_F16
        | wgpu::Features::SUBGROUP
        | wgpu::Features::PIPELINE_CACHE;
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
    pollster::block_on(adapter.request_device(&descriptor))
        .map_err(|e| WgpuError::Device { adapter: title(&adapter.get_info()), message: e.to_string() })
}

/// The adapter that tests run on.
#[cfg(test)]
pub(crate) fn any_adapter() -> Option<wgpu::Adapter> {
    let chosen = choose(enumerate(), &AdapterChoice::default());
    chosen.inspect_err(|e| eprintln!("skipped: {e}")).ok()
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
