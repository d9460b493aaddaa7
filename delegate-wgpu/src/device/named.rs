//! The options of the delegate by name, as the command, the bindings and the plugin take them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::str::FromStr;

use super::options::{Precision, WgpuOptions};

/// An option that is set by name, as in `wgpu?precision=f16`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct NamedOption {
    /// The name.
    pub name: &'static str,
    /// The values, with `|` between them, or in capitals the kind of value: `NAME`, or `N` for a number.
    pub values: &'static str,
    /// The meaning.
    pub meaning: &'static str,
    set: fn(&mut WgpuOptions, &str) -> Result<(), String>,
}

/// The error of an option that is set by name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOption {
    /// No option has this name.
    #[error("wgpu has no option \"{name}\"; it has {}", listed())]
    #[non_exhaustive]
    Unknown {
        /// The name.
        name: String,
    },
    /// An option occurs twice.
    #[error("option \"{name}\" is given twice")]
    #[non_exhaustive]
    Twice {
        /// The name of the option.
        name: String,
    },
    /// An option does not have this value.
    #[error("option \"{name}\": \"{value}\" is {reason}")]
    #[non_exhaustive]
    Value {
        /// The name of the option.
        name: String,
        /// The value.
        value: String,
        /// The values that the option has, as in "none of: on, off".
        reason: String,
    },
}

impl WgpuOptions {
    /// Every option that is set by name. Options that only Rust code can set, such as custom ops, are not among them.
    pub const NAMED: &'static [NamedOption] = &[
        NamedOption {
            name: "adapter",
            values: "NAME",
            meaning: "a part of the name of the adapter or its driver",
            set: |options, value| {
                options.adapter.name = Some(value.into());
                Ok(())
            },
        },
        NamedOption {
            name: "backend",
            values: "vulkan|metal|dx12|webgpu",
            meaning: "the API through which the adapter is accessed",
            set: |options, value| {
                let backends = [
                    ("vulkan", wgpu::Backend::Vulkan),
                    ("metal", wgpu::Backend::Metal),
                    ("dx12", wgpu::Backend::Dx12),
                    ("webgpu", wgpu::Backend::BrowserWebGpu),
                ];
                options.adapter.backend = Some(one_of(value, &backends)?);
                Ok(())
            },
        },
        NamedOption {
            name: "power",
            values: "high|low",
            meaning: "the preference among matching adapters",
            set: |options, value| {
                let powers = [
                    ("high", wgpu::PowerPreference::HighPerformance),
                    ("low", wgpu::PowerPreference::LowPower),
                ];
                options.adapter.power = one_of(value, &powers)?;
                Ok(())
            },
        },
        NamedOption {
            name: "max_partitions",
            values: "N",
            meaning: "the largest number of partitions in each subgraph; the partitions with the most nodes are kept",
            set: |options, value| {
                options.partitions.max_partitions = Some(number(value, 0, usize::MAX)?);
                Ok(())
            },
        },
        NamedOption {
            name: "min_nodes",
            values: "N",
            meaning: "partitions with fewer nodes stay on the CPU",
            set: |options, value| {
                options.partitions.min_nodes = number(value, 0, usize::MAX)?;
                Ok(())
            },
        },
        NamedOption {
            name: "max_gpu_bytes",
            values: "N",
            meaning: "the largest number of bytes of device memory for a model",
            set: |options, value| {
                options.max_gpu_bytes = Some(number(value, 0, u64::MAX)?);
                Ok(())
            },
        },
        NamedOption {
            name: "fusion",
            values: "on|off",
            meaning: "`off`: every node runs by itself, for finding faults",
            set: |options, value| {
                options.fusion = switch(value)?;
                Ok(())
            },
        },
        NamedOption {
            name: "precision",
            values: "f32|f16|auto",
            meaning: "the format of floats on the device",
            set: |options, value| {
                let precisions = [Precision::F32, Precision::F16, Precision::Auto];
                options.precision =
                    one_of(value, &precisions.map(|precision| (precision.name(), precision)))?;
                Ok(())
            },
        },
        NamedOption {
            name: "matrix_units",
            values: "on|off",
            meaning: "`off`: products of 16-bit operands do not use the adapter's matrix units",
            set: |options, value| {
                options.matrix_units = switch(value)?;
                Ok(())
            },
        },
        NamedOption {
            name: "trusted_shaders",
            values: "on|off",
            meaning: "`on`: shaders are compiled without the bounds checks that wgpu adds",
            set: |options, value| {
                options.trusted_shaders = switch(value)?;
                Ok(())
            },
        },
    ];

    /// Returns options with these names and values; the others have their defaults.
    ///
    /// ```
    /// use delegraph_delegate_wgpu::{Precision, WgpuOptions};
    ///
    /// let options = WgpuOptions::from_pairs([("precision", "f16"), ("fusion", "off")])?;
    /// assert_eq!((options.precision, options.fusion), (Precision::F16, false));
    /// # Ok::<(), delegraph_delegate_wgpu::InvalidOption>(())
    /// ```
    ///
    /// # Errors
    /// As [`WgpuOptions::set`], and [`InvalidOption::Twice`] if a name occurs twice.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidOption> {
        let (mut options, mut seen) = (WgpuOptions::default(), BTreeSet::new());
        for (name, value) in pairs {
            options.set(name.as_ref(), value.as_ref())?;
            if !seen.insert(name.as_ref().to_owned()) {
                return Err(InvalidOption::Twice { name: name.as_ref().into() });
            }
        }
        Ok(options)
    }

    /// Sets the option of [`WgpuOptions::NAMED`] with this name.
    ///
    /// # Errors
    /// [`InvalidOption::Unknown`] if no option has this name, [`InvalidOption::Value`] if it does not have this value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), InvalidOption> {
        let option = Self::NAMED.iter().find(|option| option.name == name);
        let option = option.ok_or_else(|| InvalidOption::Unknown { name: name.into() })?;
        (option.set)(self, value).map_err(|reason| InvalidOption::Value {
            name: name.into(),
            value: value.into(),
            reason,
        })
    }
}

/// Returns all options, as in `fusion=on|off`.
fn listed() -> String {
    let all: Vec<String> =
        WgpuOptions::NAMED.iter().map(|option| format!("{}={}", option.name, option.values)).collect();
    all.join(", ")
}

fn one_of<T: Copy>(value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == value);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        format!("none of: {}", names.join(", "))
    })
}

/// `on` and `off`, and the values of [`PluginOptions::flag`](delegraph_delegate_api::plugin::PluginOptions::flag).
fn switch(value: &str) -> Result<bool, String> {
    match value {
        "" | "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => one_of(value, &[("on", true), ("off", false)]),
    }
}

fn number<T: FromStr + Display>(value: &str, min: T, max: T) -> Result<T, String> {
    value.parse().map_err(|_| format!("not a number from {min} to {max}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_set_by_its_name() {
        let check = |name: &str, value: &str, is_set: fn(&WgpuOptions) -> bool| {
            assert!(!is_set(&WgpuOptions::default()), "{name}");
            assert!(is_set(&WgpuOptions::from_pairs([(name, value)]).unwrap()), "{name}={value}");
        };
        check("adapter", "Radeon", |o| o.adapter.name.as_deref() == Some("Radeon"));
        check("backend", "vulkan", |o| o.adapter.backend == Some(wgpu::Backend::Vulkan));
        check("power", "low", |o| o.adapter.power == wgpu::PowerPreference::LowPower);
        check("max_partitions", "2", |o| o.partitions.max_partitions == Some(2));
        check("min_nodes", "3", |o| o.partitions.min_nodes == 3);
        check("max_gpu_bytes", "9", |o| o.max_gpu_bytes == Some(9));
        check("fusion", "off", |o| !o.fusion);
        check("precision", "auto", |o| o.precision == Precision::Auto);
        check("matrix_units", "off", |o| !o.matrix_units);
        for on in ["on", "true", "1", ""] {
            check("trusted_shaders", on, |o| o.trusted_shaders);
        }
        assert_eq!(WgpuOptions::NAMED.len(), 10, "an option without a check");
    }

    #[test]
    fn options_have_the_listed_values() {
        for option in WgpuOptions::NAMED.iter().filter(|option| option.name != "adapter") {
            let set = |value: &str| WgpuOptions::default().set(option.name, value);
            let values: Vec<&str> = match option.values {
                "N" => vec!["0", "7"],
                values => values.split('|').collect(),
            };
            for value in &values {
                assert_eq!(set(value), Ok(()), "{}={value}", option.name);
            }
            let error = set("other").unwrap_err();
            assert!(matches!(&error, InvalidOption::Value { name, .. } if name == option.name), "{error:?}");
            let text = error.to_string();
            let known = if option.values == "N" { "from 0 to".to_owned() } else { values.join(", ") };
            assert!(text.starts_with(&format!("option \"{}\": \"other\" is ", option.name)), "{text}");
            assert!(text.contains(&known), "{text}");
        }
    }

    #[test]
    fn unknown_and_repeated_options_are_errors() {
        let error = WgpuOptions::from_pairs([("speed", "9")]).unwrap_err().to_string();
        assert!(error.starts_with("wgpu has no option \"speed\"; it has adapter=NAME, "), "{error}");
        assert!(WgpuOptions::NAMED.iter().all(|option| error.contains(option.name)), "{error}");
        let error = WgpuOptions::from_pairs([("fusion", "on"), ("fusion", "off")]).unwrap_err();
        assert_eq!(error.to_string(), "option \"fusion\" is given twice");
    }
}
