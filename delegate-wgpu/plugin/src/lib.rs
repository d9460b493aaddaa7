//! The wgpu delegate as a shared library, for applications that load delegates at run time through this project's
//! plugin interface, or that of LiteRT / TensorFlow Lite.
//!
//! The options are those of [`WgpuOptions::NAMED`], which `docs/gpu.md` lists.

use delegraph_core::Error;
use delegraph_delegate_api::export_delegate;
use delegraph_delegate_api::plugin::{CreateError, OptionError, PluginOptions};
use delegraph_delegate_wgpu::{WgpuDelegate, WgpuError, WgpuOptions};
use delegraph_litert::export_litert_delegate;

export_delegate!(create);
export_litert_delegate!(create);

/// Returns the delegate with these options.
///
/// # Errors
/// [`CreateError::Option`] for an invalid option; [`CreateError::Failed`] with [`Error::Unsupported`] if no adapter
/// matches, and with [`Error::Delegate`] if the adapter cannot be opened.
pub fn create(options: &PluginOptions) -> Result<WgpuDelegate, CreateError> {
    let wanted = read(options)?;
    // Checked first: opening a device takes long.
    options.check_all_used()?;
    let delegate = WgpuDelegate::new(wanted).map_err(|error| match error {
        WgpuError::NoAdapter | WgpuError::NoMatch { .. } => Error::Unsupported(error.to_string()),
        error => error.into(),
    });
    Ok(delegate?)
}

fn read(options: &PluginOptions) -> Result<WgpuOptions, OptionError> {
    let mut wanted = WgpuOptions::default();
    for option in WgpuOptions::NAMED {
        if let Some(value) = options.get(option.name) {
            wanted.set(option.name, value).map_err(|error| OptionError::new(error.to_string()))?;
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_the_delegate() {
        let value = |values: &'static str| match values {
            "NAME" => "Radeon",
            "N" => "3",
            choices => choices.rsplit('|').next().unwrap_or_default(),
        };
        let given: Vec<_> =
            WgpuOptions::NAMED.iter().map(|option| (option.name, value(option.values))).collect();
        let wanted = read(&PluginOptions::new(given.iter().copied()).unwrap()).unwrap();
        assert_eq!(wanted, WgpuOptions::from_pairs(given).unwrap());
        assert_eq!((wanted.adapter.name.as_deref(), wanted.fusion), (Some("Radeon"), false));
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
        check("min_nodes", "many", "not a number from 0 to ");
    }
}
