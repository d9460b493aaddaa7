//! The GPU delegate.

use delegraph::core::error::{Error, Result};
use delegraph::delegate_wgpu::{WgpuDelegate, WgpuOptions};

/// Opens the GPU with the options of [`WgpuOptions::NAMED`].
///
/// # Errors
/// [`Error::InvalidInput`] for other options; the errors of opening the GPU.
pub fn open(options: Vec<(String, String)>) -> Result<WgpuDelegate> {
    let options = WgpuOptions::from_pairs(options).map_err(|error| Error::InvalidInput(error.to_string()))?;
    WgpuDelegate::new(options)
        .map_err(|error| Error::delegate_caused_by("wgpu", "the GPU cannot be used", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_options_are_errors_before_a_device_is_opened() {
        let check = |name: &str, value: &str, text: &str| {
            let error = open(vec![(name.into(), value.into())]).map(drop).unwrap_err();
            assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
            assert!(error.to_string().contains(text), "{error}");
        };
        check(
            "speed",
            "9",
            "wgpu has no option \"speed\"; it has adapter=NAME, backend=vulkan|metal|dx12|webgpu, ",
        );
        check("backend", "cuda", "\"cuda\" is none of: vulkan, metal, dx12, webgpu");
        check("power", "medium", "none of: high, low");
        check("max_partitions", "few", "not a number");
        check("min_nodes", "-1", "not a number");
        check("trusted_shaders", "maybe", "none of: on, off");
    }
}
