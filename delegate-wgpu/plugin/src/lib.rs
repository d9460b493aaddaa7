//! The wgpu delegate as a shared library, for applications that load delegates at run time: through this project's plugin
//! interface, or that of LiteRT / TensorFlow Lite.
//!
//! | option | meaning |
//! |---|---|
//! | `adapter` | a part of the name of the adapter or its driver |
//! | `backend` | the API to reach the adapter by: `vulkan`, `metal`, `dx12`, `webgpu` |
//! | `power` | the preference among matching adapters: `high` or `low` |
//! | `max_partitions` | the largest number of partitions; the partitions with the most nodes are kept |
//! | `min_nodes` | partitions with fewer nodes stay on the CPU |
//! | `max_gpu_bytes` | the largest number of bytes of device memory for a model |
//! | `fusion` | `off`: every node runs by itself, for finding faults |
//! | `precision` | the format of floats on the device: `f32`, `f16`, or `auto`, which is `f16` on hardware that has it |
//! | `matrix_units` | `off`: products of 16-bit operands do not use the adapter's matrix units |
//! | `trusted_shaders` | compile shaders without the bounds checks that wgpu adds |

use delegraph_core::Error;
use delegraph_delegate_api::export_delegate;
use delegraph_delegate_api::plugin::{CreateError, PluginOptions};
use delegraph_delegate_wgpu::wgpu::{Backend, PowerPreference};
use delegraph_delegate_wgpu::{Precision, WgpuDelegate, WgpuError, WgpuOptions};
use delegraph_litert::export_litert_delegate;

export_delegate!(create);
export_litert_delegate!(create);

/// Returns the delegate with these options.
///
/// # Errors
/// [`CreateError::Option`] for an invalid option, [`Error::Unsupported`] if no adapter matches.
pub fn create(options: &PluginOptions) -> Result<WgpuDelegate, CreateError> {
    let wanted = read(options)?;
    // Checked before a device is opened, which takes long.
    options.check_all_used()?;
    let delegate = WgpuDelegate::new(wanted).map_err(|error| match error {
        WgpuError::NoAdapter | WgpuError::NoMatch { .. } => Error::Unsupported(error.to_string()),
        error => error.into(),
    });
    Ok(delegate?)
}

fn read(options: &PluginOptions) -> Result<WgpuOptions, CreateError> {
    let backends = [
        ("vulkan", Backend::Vulkan),
        ("metal", Backend::Metal),
        ("dx12", Backend::Dx12),
        ("webgpu", Backend::BrowserWebGpu),
    ];
    let precisions =
        [Precision::F32, Precision::F16, Precision::Auto].map(|precision| (precision.name(), precision));
    let powers = [("high", PowerPreference::HighPerformance), ("low", PowerPreference::LowPower)];
    let mut wanted = WgpuOptions::default();
    wanted.adapter.name = options.get("adapter").map(str::to_owned);
    wanted.adapter.backend = options.choice("backend", &backends)?;
    wanted.adapter.power = options.choice("power", &powers)?.unwrap_or_default();
    wanted.partitions.max_partitions = options.parse("max_partitions")?;
    wanted.partitions.min_nodes = options.parse("min_nodes")?.unwrap_or(wanted.partitions.min_nodes);
    wanted.max_gpu_bytes = options.parse("max_gpu_bytes")?;
    wanted.fusion = options.choice("fusion", &[("on", true), ("off", false)])?.unwrap_or(wanted.fusion);
    wanted.precision = options.choice("precision", &precisions)?.unwrap_or_default();
    let matrix_units = options.choice("matrix_units", &[("on", true), ("off", false)])?;
    wanted.matrix_units = matrix_units.unwrap_or(wanted.matrix_units);
    wanted.trusted_shaders = options.flag("trusted_shaders")?;
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_the_delegate() {
        let given = [
            ("adapter", "Radeon"),
            ("backend", "vulkan"),
            ("fusion", "off"),
            ("precision", "f16"),
            ("matrix_units", "off"),
            ("max_gpu_bytes", "9"),
            ("min_nodes", "3"),
            ("trusted_shaders", "1"),
        ];
        let wanted = read(&PluginOptions::new(given).unwrap()).unwrap();
        assert_eq!(wanted.adapter.name.as_deref(), Some("Radeon"));
        assert_eq!(wanted.adapter.backend, Some(Backend::Vulkan));
        assert_eq!((wanted.max_gpu_bytes, wanted.partitions.min_nodes), (Some(9), 3));
        assert!(!wanted.matrix_units);
        assert!(wanted.trusted_shaders && !wanted.fusion && wanted.precision == Precision::F16);
        assert!(read(&PluginOptions::new([("fusion", "on")]).unwrap()).unwrap().fusion);
    }

    #[test]
    fn an_unknown_option_is_refused_before_a_device_is_opened() {
        let check = |key, value, want: &str| {
            let error = create(&PluginOptions::new([(key, value)]).unwrap()).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        check("adaptor", "x", "\"adaptor\" is not known; it takes: adapter, backend, ");
        check("backend", "cuda", "none of: vulkan, metal, dx12, webgpu");
        check("fusion", "none", "none of: on, off");
        check("min_nodes", "many", "invalid digit");
    }
}
