//! `--ops`: libraries of kernels for custom ops.

use std::str::FromStr;

#[cfg(feature = "plugins")]
use delegraph::delegate_api::plugin::KernelLibrary;
use delegraph::{BuiltinOpResolver, MutableOpResolver, ReferenceOpResolver};

use super::failure::Failure;

/// Sources of kernels other than the builtin ones.
#[derive(Debug, clap::Args)]
pub(crate) struct Kernels {
    /// A library of kernels for custom ops; may be repeated, and the last one that has an op wins
    #[arg(long = "ops", value_name = "plugin:PATH")]
    libraries: Vec<LibraryPath>,
}

/// `plugin:PATH`, without `plugin:`.
#[derive(Debug, Clone)]
pub(crate) struct LibraryPath(String);

impl LibraryPath {
    /// Returns the path.
    pub(crate) fn path(&self) -> &str {
        &self.0
    }
}

impl FromStr for LibraryPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("plugin:") {
            Some("") | None => Err("it must be plugin:PATH, with the path of a library".into()),
            Some(path) if path.contains('?') => Err("such a library takes no options".into()),
            Some(path) => Ok(LibraryPath(path.into())),
        }
    }
}

impl Kernels {
    /// Returns the resolver: the builtin kernels, optimized or reference, and those of the libraries.
    pub(crate) fn resolver(&self, reference: bool) -> Result<MutableOpResolver, Failure> {
        let mut resolver = match reference {
            true => MutableOpResolver::extending(ReferenceOpResolver::new()),
            false => MutableOpResolver::extending(BuiltinOpResolver::new()),
        };
        for LibraryPath(path) in &self.libraries {
            add_library(path, &mut resolver)?;
        }
        for (op, versions) in resolver.registered() {
            log::info!("{op} version {} to {}: from a library", versions.start(), versions.end());
        }
        Ok(resolver)
    }

    /// Returns the options as arguments of another process.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = String> {
        self.libraries.iter().map(|LibraryPath(path)| format!("--ops=plugin:{path}"))
    }
}

#[cfg(feature = "plugins")]
fn add_library(path: &str, resolver: &mut MutableOpResolver) -> Result<(), Failure> {
    // SAFETY: the user named the library on the command line, and so trusts it.
    unsafe { KernelLibrary::open(path) }?.register(resolver);
    Ok(())
}

#[cfg(not(feature = "plugins"))]
fn add_library(path: &str, _: &mut MutableOpResolver) -> Result<(), Failure> {
    let text = format!("{path}: this command was built without the Cargo feature `plugins`");
    Err(Failure::new(super::failure::Exit::Unsupported, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_libraries() {
        let check = |text: &str, want: Option<&str>| {
            let path: Result<LibraryPath, _> = text.parse();
            assert_eq!(path.ok().map(|path| path.0).as_deref(), want, "{text}");
        };
        check("plugin:a b.so", Some("a b.so"));
        check("a.so", None);
        check("plugin:", None);
        check("plugin:a.so?x=1", None);
    }
}
