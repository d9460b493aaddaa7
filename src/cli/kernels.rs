//! `--ops`: libraries of kernels for custom ops.

use std::str::FromStr;

use delegraph::delegate_api::plugin::KernelLibrary;
use delegraph::{BuiltinOpResolver, MutableOpResolver, ReferenceOpResolver};

use super::failure::Failure;

/// Where kernels come from besides those that are built in.
#[derive(Debug, clap::Args)]
pub(crate) struct Kernels {
    /// A library of kernels for custom ops; may be repeated, and the last one that has an op wins
    #[arg(long = "ops", value_name = "plugin:PATH")]
    libraries: Vec<LibraryPath>,
}

/// `plugin:PATH`, without `plugin:`.
#[derive(Debug, Clone)]
struct LibraryPath(String);

impl FromStr for LibraryPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("plugin:") {
            Some("") | None => Err("plugin:PATH is wanted, with the path of a library of kernels".into()),
            Some(path) if path.contains('?') => Err("a library of kernels takes no options".into()),
            Some(path) => Ok(LibraryPath(path.into())),
        }
    }
}

impl Kernels {
    /// What resolves ops: the builtin kernels, optimized or the plain ones, and those of the libraries.
    pub(crate) fn resolver(&self, reference: bool) -> Result<MutableOpResolver, Failure> {
        let mut resolver = match reference {
            true => MutableOpResolver::extending(ReferenceOpResolver::new()),
            false => MutableOpResolver::extending(BuiltinOpResolver::new()),
        };
        for LibraryPath(path) in &self.libraries {
            // SAFETY: whoever calls the command says with the path that the library is to be trusted.
            unsafe { KernelLibrary::open(path) }?.register(&mut resolver);
        }
        for (op, versions) in resolver.registered() {
            log::info!("{op} version {} to {}: from a library", versions.start(), versions.end());
        }
        Ok(resolver)
    }

    /// The same options as arguments of another process.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = String> {
        self.libraries.iter().map(|LibraryPath(path)| format!("--ops=plugin:{path}"))
    }
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
