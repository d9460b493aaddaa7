//! The GPU delegate.

use delegraph::core::error::{Error, Result};
use delegraph::delegate_wgpu::{AdapterChoice, Precision, WgpuDelegate, WgpuOptions};

/// Opens the GPU with options by name: `adapter` (a part of its name), `max_gpu_bytes`, `fusion` (`on` or `off`),
/// `precision` (`f32`, `f16` or `auto`).
///
/// # Errors
/// [`Error::InvalidInput`] for other options; those of the GPU.
pub fn open(options: Vec<(String, String)>) -> Result<WgpuDelegate> {
    let mut chosen = WgpuOptions::default();
    for (key, value) in options {
        chosen = match (key.as_str(), value.as_str()) {
            ("adapter", _) => chosen.adapter(AdapterChoice::named(value)),
            ("fusion", "on" | "off") => chosen.fusion(value == "on"),
            ("precision", "f32") => chosen.precision(Precision::F32),
            ("precision", "f16") => chosen.precision(Precision::F16),
            ("precision", "auto") => chosen.precision(Precision::Auto),
            ("max_gpu_bytes", _) => {
                let bytes = value.parse().map_err(|_| {
                    Error::InvalidInput(format!("max_gpu_bytes is a number of bytes, not {value}"))
                })?;
                chosen.max_gpu_bytes = Some(bytes);
                chosen
            }
            _ => {
                return Err(Error::InvalidInput(format!(
                    "wgpu has no option {key}={value}; it has adapter, max_gpu_bytes, fusion=on|off and \
                     precision=f32|f16|auto"
                )));
            }
        };
    }
    WgpuDelegate::new(chosen)
        .map_err(|error| Error::delegate_caused_by("wgpu", "the GPU cannot be used", error))
}
