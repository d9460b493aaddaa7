//! `--delegate wgpu[?key=value&…]`.

use std::fmt;
use std::str::FromStr;
#[cfg(feature = "wgpu")]
use std::sync::Arc;

use delegraph::Delegate;
#[cfg(feature = "wgpu")]
use delegraph::delegate_wgpu::{InvalidOption, Precision, WgpuDelegate, WgpuError, WgpuOptions};
use delegraph_conformance::engine::MakeDelegate;

use super::plugin::pairs;
#[cfg(feature = "wgpu")]
use crate::cli::budgets;
use crate::cli::failure::{Exit, Failure};

/// The delegate's name on the command line and in results.
pub(super) const NAME: &str = "wgpu";

/// `wgpu[?key=value&…]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WgpuChoice {
    /// The text on the command line, after the question mark; empty without options.
    text: String,
    /// Percent-decoded.
    #[cfg_attr(not(feature = "wgpu"), allow(dead_code))]
    options: Vec<(String, String)>,
}

impl FromStr for WgpuChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let choice = WgpuChoice { text: text.into(), options: pairs(text)? };
        #[cfg(feature = "wgpu")]
        choice.options().map_err(|e| e.to_string())?;
        Ok(choice)
    }
}

impl fmt::Display for WgpuChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.text.is_empty() { "" } else { "?" };
        write!(f, "{NAME}{mark}{}", self.text)
    }
}

#[cfg(feature = "wgpu")]
impl WgpuChoice {
    fn options(&self) -> Result<WgpuOptions, InvalidOption> {
        WgpuOptions::from_pairs(self.options.iter().map(|(name, value)| (name, value)))
    }

    /// Returns whether floats have 16 bits on some adapters.
    pub(super) fn stores_halves(&self) -> bool {
        self.options().is_ok_and(|options| options.precision != Precision::F32)
    }

    /// Creates the delegate; with `profile`, it measures each of its kernels.
    fn open(&self, profile: bool) -> Result<WgpuDelegate, Failure> {
        let options = self.options().map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        let bytes = options.max_gpu_bytes.or_else(budgets::max_memory);
        let options = options.with_profile(profile).with_max_gpu_bytes(bytes);
        WgpuDelegate::new(options).map_err(|error| match error {
            WgpuError::NoAdapter | WgpuError::NoMatch { .. } => {
                Failure::new(Exit::Unsupported, format!("delegate wgpu: {error}"))
                    .with_help("`delegraph devices` lists the adapters; `--delegate cpu` runs without one")
            }
            error => delegraph::Error::from(error).into(),
        })
    }

    /// Returns the delegate; with `profile`, it measures each of its kernels.
    pub(super) fn delegate(&self, profile: bool) -> Result<Box<dyn Delegate>, Failure> {
        Ok(Box::new(self.open(profile)?))
    }

    /// Returns a function that creates delegates on one device, and the device's name.
    pub(super) fn maker(&self) -> Result<(MakeDelegate, String), Failure> {
        let delegate = self.open(false)?;
        let info = delegate.adapter_info();
        let parts =
            [info.name.clone(), info.backend.to_string(), info.driver.clone(), info.driver_info.clone()];
        let known = parts.into_iter().filter(|part| !part.is_empty());
        let device = known.collect::<Vec<_>>().join(", ");
        Ok((Arc::new(move || Ok(Box::new(delegate.clone()) as Box<dyn Delegate>)), device))
    }
}

#[cfg(not(feature = "wgpu"))]
impl WgpuChoice {
    pub(super) fn stores_halves(&self) -> bool {
        false
    }

    pub(super) fn delegate(&self, _profile: bool) -> Result<Box<dyn Delegate>, Failure> {
        Err(missing())
    }

    pub(super) fn maker(&self) -> Result<(MakeDelegate, String), Failure> {
        Err(missing())
    }
}

#[cfg(not(feature = "wgpu"))]
fn missing() -> Failure {
    let text = "delegate wgpu: this command was built without the Cargo feature `wgpu`";
    Failure::new(Exit::Unsupported, text).with_help("`--delegate cpu` runs the model on the CPU")
}
