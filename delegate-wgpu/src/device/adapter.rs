//! Finding an adapter, and opening a device on it.

use super::options::{AdapterChoice, WgpuOptions};

/// The reason why no device is available.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WgpuError {
    /// The machine has no adapter that supports compute shaders.
    #[error(
        "no GPU adapter found: install a Vulkan driver (on Debian or Ubuntu, `apt install mesa-vulkan-drivers` gives \
         a software one), or run without this delegate"
    )]
    NoAdapter,
    /// No adapter of the machine matches the choice.
    #[error("no GPU adapter matches {wanted}; available: {}", .available.join("; "))]
    NoMatch {
        /// The choice.
        wanted: String,
        /// The adapters of the machine.
        available: Vec<String>,
    },
    /// The adapter did not open a device.
    #[error("{adapter} cannot be opened")]
    Device {
        /// The adapter.
        adapter: String,
        /// The error that the adapter returned.
        source: wgpu::RequestDeviceError,
    },
}

impl From<WgpuError> for delegraph_core::Error {
    fn from(error: WgpuError) -> Self {
        let message = error.to_string();
        match error {
            WgpuError::Device { source, .. } => {
                delegraph_core::Error::delegate_caused_by(super::NAME, message, source)
            }
            _ => super::failed(message),
        }
    }
}

/// An adapter of this machine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AdapterDescription {
    /// Name, driver, backend, kind of device.
    pub info: wgpu::AdapterInfo,
    /// The limits that the adapter offers.
    pub limits: wgpu::Limits,
    /// The features that the adapter offers.
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

    /// Returns the name and backend, as shown in messages.
    pub fn title(&self) -> String {
        title(&self.info)
    }
}

fn title(info: &wgpu::AdapterInfo) -> String {
    format!("{} ({})", info.name, info.backend)
}

/// Returns every adapter of this machine that supports compute shaders. Blocks until the drivers have returned; on the
/// web, use [`adapters_async`].
pub fn adapters() -> Vec<AdapterDescription> {
    pollster::block_on(adapters_async())
}

/// Returns every adapter of this machine that supports compute shaders.
pub async fn adapters_async() -> Vec<AdapterDescription> {
    enumerate().await.iter().map(AdapterDescription::of).collect()
}

async fn enumerate() -> Vec<wgpu::Adapter> {
    let descriptor = wgpu::InstanceDescriptor {
        // Validation layers check wgpu's own calls; wgpu validates the calls of this crate without them.
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    };
    let instance = wgpu::Instance::new(descriptor);
    let mut adapters = instance.enumerate_adapters(wgpu::Backends::all()).await;
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

/// Returns the adapter that `options` choose.
pub(crate) async fn find(options: &WgpuOptions) -> Result<wgpu::Adapter, WgpuError> {
    choose(enumerate().await, &options.adapter)
}

/// Returns whether kernels can use the adapter's matrix units: subgroups of 32 invocations multiply cooperative
/// matrices of 16 by 16 16-bit floats, with 32-bit sums.
pub(crate) fn has_matrix_units(adapter: &wgpu::Adapter) -> bool {
    let needed = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
        | wgpu::Features::SHADER_F16
        | wgpu::Features::SUBGROUP;
    let info = adapter.get_info();
    let multiplies = |p: &wgpu::CooperativeMatrixProperties| {
        [p.m_size, p.n_size, p.k_size] == [16; 3]
            && p.ab_type == wgpu::CooperativeScalarType::F16
            && p.cr_type == wgpu::CooperativeScalarType::F32
    };
    adapter.features().contains(needed)
        && [info.subgroup_min_size, info.subgroup_max_size] == [32; 2]
        && adapter.cooperative_matrix_properties().iter().any(multiplies)
}

/// Opens a device on `adapter` with WebGPU's default limits, and larger buffers and workgroup memory if the adapter
/// supports them. `matrix_units`: with cooperative matrices, which the adapter must have.
pub(crate) async fn request(
    adapter: &wgpu::Adapter,
    matrix_units: bool,
) -> Result<(wgpu::Device, wgpu::Queue), WgpuError> {
    let offered = adapter.limits();
    let mut wanted = wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::SHADER_F16
        | wgpu::Features::SUBGROUP
        | wgpu::Features::PIPELINE_CACHE;
    let mut experimental_features = wgpu::ExperimentalFeatures::disabled();
    if matrix_units {
        wanted |= wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        // SAFETY: wgpu does not guarantee that experimental features are sound. The kernels that use cooperative
        // matrices come from `delegraph_shaders`, whose tests run them where an adapter has the feature.
        experimental_features = unsafe { wgpu::ExperimentalFeatures::enabled() };
    }
    let descriptor = wgpu::DeviceDescriptor {
        label: Some(super::NAME),
        required_features: adapter.features() & wanted,
        required_limits: wgpu::Limits {
            max_storage_buffer_binding_size: offered.max_storage_buffer_binding_size,
            max_buffer_size: offered.max_buffer_size,
            max_compute_workgroup_storage_size: offered.max_compute_workgroup_storage_size,
            ..wgpu::Limits::default().or_worse_values_from(&offered)
        },
        experimental_features,
        ..Default::default()
    };
    let opened = adapter.request_device(&descriptor).await;
    opened.map_err(|source| WgpuError::Device { adapter: title(&adapter.get_info()), source })
}

/// Returns the adapter that tests run on.
#[cfg(test)]
pub(crate) fn any_adapter() -> Option<wgpu::Adapter> {
    let chosen = choose(pollster::block_on(enumerate()), &AdapterChoice::default());
    chosen.inspect_err(|e| eprintln!("skipped: {e}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_adapter_the_error_names_what_to_install() {
        let error = choose(Vec::new(), &AdapterChoice::default()).map(drop).unwrap_err();
        assert!(matches!(error, WgpuError::NoAdapter), "{error}");
        assert!(delegraph_core::Error::from(error).to_string().contains("apt install mesa-vulkan-drivers"));
    }

    #[test]
    fn the_source_of_an_error_is_kept() {
        let Some(adapter) = any_adapter() else { return };
        let limits = wgpu::Limits { max_bind_groups: u32::MAX, ..Default::default() };
        let descriptor = wgpu::DeviceDescriptor { required_limits: limits, ..Default::default() };
        let refused = pollster::block_on(adapter.request_device(&descriptor)).unwrap_err();
        let expected = refused.to_string();
        let error = WgpuError::Device { adapter: "one".into(), source: refused };
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), expected);
        let error = delegraph_core::Error::from(error);
        let sources = std::iter::successors(std::error::Error::source(&error), |error| error.source());
        assert!(sources.map(ToString::to_string).any(|text| text == expected), "{error:?}");
    }

    #[test]
    fn a_missing_adapter_lists_the_available_ones() {
        let adapters = pollster::block_on(enumerate());
        let Some(one) = adapters.first().map(|a| a.get_info().name) else {
            return eprintln!("skipped: {}", WgpuError::NoAdapter);
        };
        let error = choose(adapters, &AdapterChoice::named("no such adapter")).map(drop).unwrap_err();
        assert!(error.to_string().contains(&one), "{error}");
    }

    #[test]
    fn discrete_adapters_come_first_and_software_adapters_last() {
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
