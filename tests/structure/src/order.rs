//! The order of the children of one folder.

use crate::graph::edges;
use crate::modules::Modules;
use crate::path::ModulePath;

/// A row of a table: the children of a folder, low to high. A child imports only children to its left. `*` stands for
/// all files that are not listed; they may import each other, but not in a cycle.
pub struct Order {
    folder: ModulePath,
    listed: Vec<String>,
}

impl Order {
    /// The order of the children of `folder`, by the names of their modules.
    pub fn new(folder: ModulePath, listed: Vec<String>) -> Self {
        Order { folder, listed }
    }

    /// The differences between the order and the modules: children that are not listed, are listed twice or do not
    /// exist, and imports of a child further right.
    pub fn violations(&self, modules: &Modules) -> Vec<String> {
        let folder = &self.folder;
        let children = modules.children(folder);
        let mut wrong = Vec::new();
        for (index, name) in self.listed.iter().enumerate() {
            if name != "*" && !children.contains(name.as_str()) {
                wrong.push(format!("{folder}: {name} is listed, but does not exist"));
            }
            if self.listed[..index].contains(name) {
                wrong.push(format!("{folder}: {name} is listed twice"));
            }
        }
        for child in &children {
            let named = self.listed.iter().any(|name| name == child);
            if !named && (modules.is_folder(folder, child) || self.rank(child).is_none()) {
                wrong.push(format!("{folder}: {child} is not listed"));
            }
        }
        for (from, imported) in edges(&modules.imports(), folder) {
            for (to, place) in imported {
                if let (Some(low), Some(high)) = (self.rank(from), self.rank(to))
                    && low < high
                {
                    wrong.push(format!("{folder}: {from} imports {to}, which is further right ({place})"));
                }
            }
        }
        wrong
    }

    /// The place of a child in the order.
    fn rank(&self, child: &str) -> Option<usize> {
        let place = |name: &str| self.listed.iter().position(|listed| listed == name);
        place(child).or_else(|| place("*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listed: &str, expected: &[&str]) {
        let files = [
            ("lib.rs", "mod low; mod middle; mod high;"),
            ("low.rs", "pub struct Low;"),
            ("middle/mod.rs", "mod inner;"),
            ("middle/inner.rs", "use crate::low::Low;"),
            ("high.rs", "fn f() {\n    crate::middle::g(crate::low::Low);\n}"),
        ];
        let files = files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        let listed = listed.split(' ').map(str::to_owned).collect();
        let order = Order::new(ModulePath::default(), listed);
        assert_eq!(order.violations(&Modules::parse(&files).unwrap()), expected);
    }

    #[test]
    fn imports_go_to_the_left() {
        check("low middle high", &[]);
        check("low high middle", &["crate: high imports middle, which is further right (high.rs:2)"]);
        check("middle low high", &["crate: middle imports low, which is further right (middle/inner.rs:1)"]);
    }

    #[test]
    fn every_child_is_listed_once_and_exists() {
        check("low middle", &["crate: high is not listed"]);
        check("low middle high gone", &["crate: gone is listed, but does not exist"]);
        check("low middle low high", &["crate: low is listed twice"]);
    }

    #[test]
    fn a_star_stands_for_files_alone() {
        check("low middle *", &[]);
        check("* middle", &["crate: high imports middle, which is further right (high.rs:2)"]);
        check("low * high", &["crate: middle is not listed"]);
    }
}
