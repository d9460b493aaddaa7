//! The GPU delegate.

use delegraph::core::error::{Error, Result};
use delegraph::delegate_wgpu::{AdapterChoice, WgpuDelegate, WgpuOptions};

/// Opens the GPU with options by name: `adapter` (a part of its name), `max_gpu_bytes`, `fusion` (`on` or `off`),
/// `precision` (`f32`, `f16` or `auto`), `matrix_units` (`on` or `off`).
///
/// # Errors
/// [`Error::InvalidInput`] for other options; those of the GPU.
pub fn open(options: Vec<(String, String)>) -> Result<WgpuDelegate> {
    let mut chosen = WgpuOptions::default();
    for (key, value) in options {
        let unknown = || {
            Error::InvalidInput(format!(
                "wgpu has no option {key}={value}; it has adapter, max_gpu_bytes, fusion=on|off, \
                 precision=f32|f16|auto and matrix_units=on|off"
            ))
        };
        chosen = match (key.as_str(), value.as_str()) {
            ("adapter", name) => chosen.with_adapter(AdapterChoice::named(name)),
            ("fusion", "on" | "off") => chosen.with_fusion(value == "on"),
            ("matrix_units", "on" | "off") => chosen.with_matrix_units(value == "on"),
            ("precision", name) => chosen.with_precision(name.parse().map_err(|_| unknown())?),
            ("max_gpu_bytes", number) => chosen.with_max_gpu_bytes(number.parse::<u64>().map_err(|_| {
                Error::InvalidInput(format!("max_gpu_bytes is a number of bytes, not {number}"))
            })?),
            _ => return Err(unknown()),
        };
    }
    WgpuDelegate::new(chosen)
        .map_err(|error| Error::delegate_caused_by("wgpu", "the GPU cannot be used", error))
}
