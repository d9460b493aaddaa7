//! `--delegate wgpu[?key=value&…]`.

use std::fmt;
use std::str::FromStr;
#[cfg(feature = "wgpu")]
use std::sync::Arc;

use delegraph::Delegate;
#[cfg(feature = "wgpu")]
use delegraph::delegate_wgpu::{AdapterChoice, WgpuDelegate, WgpuError, WgpuOptions};
use delegraph_conformance::engine::MakeDelegate;

#[cfg(feature = "wgpu")]
use crate::cli::budgets;
use crate::cli::failure::{Exit, Failure};

/// The delegate's name on the command line and in results.
pub(super) const NAME: &str = "wgpu";

/// `wgpu[?key=value&…]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WgpuChoice {
    /// Part of the adapter's name.
    pub(super) adapter: Option<String>,
    pub(super) max_gpu_bytes: Option<u64>,
    /// `fusion=off`: every node runs by itself.
    pub(super) unfused: bool,
    /// `matrix_units=off`: products of 16-bit operands do not use them.
    pub(super) without_matrix_units: bool,
    /// `precision=f16` and others: the storage of floats.
    pub(super) precision: Option<&'static str>,
}

/// The values of `precision`.
const PRECISIONS: [&str; 3] = ["f32", "f16", "auto"];

impl FromStr for WgpuChoice {
    type Err = String;

    fn from_str(options: &str) -> Result<Self, String> {
        let mut choice = WgpuChoice::default();
        for option in options.split('&') {
            match option.split_once('=') {
                Some(("adapter", name)) => choice.adapter = Some(name.into()),
                Some(("max_gpu_bytes", n)) => {
                    let number = n.parse().map_err(|_| format!("max_gpu_bytes: `{n}` is not a number"))?;
                    choice.max_gpu_bytes = Some(number);
                }
                Some(("fusion", "on")) => choice.unfused = false,
                Some(("fusion", "off")) => choice.unfused = true,
                Some(("matrix_units", "on")) => choice.without_matrix_units = false,
                Some(("matrix_units", "off")) => choice.without_matrix_units = true,
                Some(("precision", name)) if PRECISIONS.contains(&name) => {
                    choice.precision = PRECISIONS.into_iter().find(|known| *known == name);
                }
                _ => {
                    let all = "`wgpu?adapter=NAME&max_gpu_bytes=N&fusion=on|off&precision=f32|f16|auto&matrix_units=on|off`";
                    return Err(format!("wgpu accepts {all}, or some of them"));
                }
            }
        }
        Ok(choice)
    }
}

impl fmt::Display for WgpuChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)?;
        let adapter = self.adapter.as_ref().map(|name| format!("adapter={name}"));
        let bytes = self.max_gpu_bytes.map(|n| format!("max_gpu_bytes={n}"));
        let unfused = self.unfused.then(|| "fusion=off".to_owned());
        let precision = self.precision.map(|name| format!("precision={name}"));
        let matrix_units = self.without_matrix_units.then(|| "matrix_units=off".to_owned());
        adapter
            .iter()
            .chain(&bytes)
            .chain(&unfused)
            .chain(&precision)
            .chain(&matrix_units)
            .zip(["?", "&", "&", "&", "&"])
            .try_for_each(|(option, mark)| write!(f, "{mark}{option}"))
    }
}

#[cfg(feature = "wgpu")]
impl WgpuChoice {
    /// Creates the delegate; with `profile`, it measures each of its kernels.
    fn open(&self, profile: bool) -> Result<WgpuDelegate, Failure> {
        let adapter = self.adapter.as_ref().map_or_else(AdapterChoice::default, AdapterChoice::named);
        let precision = self.precision.and_then(|name| name.parse().ok()).unwrap_or_default();
        let options = WgpuOptions::default()
            .with_adapter(adapter)
            .with_fusion(!self.unfused)
            .with_profile(profile)
            .with_precision(precision)
            .with_matrix_units(!self.without_matrix_units)
            .with_max_gpu_bytes(self.max_gpu_bytes.or_else(budgets::max_memory));
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

    /// Creates delegates on one device, and returns the device's name.
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
