//! Names of modules.

use std::fmt;

/// A module below the folder of its crate's sources. The root is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModulePath(pub Vec<String>);

impl ModulePath {
    /// The module of a file, by its path below the crate's sources: `graph/node.rs` is `graph::node`.
    pub fn of_file(file: &str) -> Self {
        let mut segments: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
        let root = segments.len() == 1 && matches!(segments[..], ["lib" | "main"]);
        if root || segments.last() == Some(&"mod") {
            segments.pop();
        }
        ModulePath(segments.into_iter().map(str::to_owned).collect())
    }

    /// The module of a folder below the crate's sources; "" is the root.
    pub fn of_folder(folder: &str) -> Self {
        ModulePath(folder.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    pub(crate) fn child(&self, name: &str) -> Self {
        let mut segments = self.0.clone();
        segments.push(name.to_owned());
        ModulePath(segments)
    }

    pub(crate) fn parent(&self) -> Self {
        ModulePath(self.0.split_last().map_or(&[][..], |(_, parent)| parent).to_vec())
    }

    /// The child of `folder` that this module is or is in.
    pub(crate) fn child_of(&self, folder: &ModulePath) -> Option<&str> {
        self.0.strip_prefix(&folder.0[..])?.first().map(String::as_str)
    }
}

impl fmt::Display for ModulePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("crate") } else { f.write_str(&self.0.join("::")) }
    }
}
