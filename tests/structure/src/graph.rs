//! Cycles of imports among the children of a folder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use crate::modules::{Import, Modules};
use crate::path::ModulePath;

/// Files and folders of one folder that import each other in a cycle.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cycle {
    /// The folder.
    pub folder: ModulePath,
    /// The children on the cycle. Each imports the next, and the last imports the first.
    pub children: Vec<String>,
    /// The place of each of these imports.
    pub places: Vec<String>,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {}: ", self.folder)?;
        for (child, place) in self.children.iter().zip(&self.places) {
            write!(f, "{child} -> ({place}) ")?;
        }
        write!(f, "{}", self.children.first().map_or("", String::as_str))
    }
}

/// The first place of each import, by importing child and imported child.
type Edges<'a> = BTreeMap<&'a str, BTreeMap<&'a str, &'a str>>;

/// The imports among the children of `folder`.
pub(crate) fn edges<'a>(imports: &'a BTreeSet<Import>, folder: &ModulePath) -> Edges<'a> {
    let mut edges = Edges::new();
    for import in imports {
        if let (Some(from), Some(to)) = (import.from.child_of(folder), import.to.child_of(folder))
            && from != to
        {
            edges.entry(from).or_default().entry(to).or_insert(&import.place);
        }
    }
    edges
}

/// Returns a shortest cycle of imports through each child of every folder. Of the cycles of the same children, only one
/// is returned.
pub fn cycles(modules: &Modules) -> BTreeSet<Cycle> {
    let imports = modules.imports();
    let mut found = BTreeMap::new();
    for folder in modules.folders() {
        let edges = edges(&imports, &folder);
        for start in edges.keys() {
            let Some(children) = circle(&edges, start) else { continue };
            let next = children.iter().cycle().skip(1);
            let places = children.iter().zip(next).map(|(from, to)| edges[from][to].to_owned()).collect();
            let members: BTreeSet<&str> = children.iter().copied().collect();
            let children = children.into_iter().map(str::to_owned).collect();
            found.entry((folder.clone(), members)).or_insert(Cycle {
                folder: folder.clone(),
                children,
                places,
            });
        }
    }
    found.into_values().collect()
}

/// The shortest cycle through `start`.
fn circle<'a>(edges: &Edges<'a>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut reached_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(at) = waiting.pop_front() {
        for &next in edges.get(at).into_iter().flat_map(BTreeMap::keys) {
            if next == start {
                let mut back = vec![at];
                while let Some(&previous) = back.last().and_then(|child| reached_from.get(child)) {
                    back.push(previous);
                }
                back.reverse();
                return Some(back);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = reached_from.entry(next) {
                entry.insert(at);
                waiting.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let files = files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        let found: Vec<String> =
            cycles(&Modules::parse(&files).unwrap()).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn circles_of_files_and_folders_are_found_at_any_depth() {
        check(
            &[
                ("a/mod.rs", "mod x; mod y;"),
                ("a/x.rs", "use super::y::Y; pub struct X(Y);"),
                ("a/y.rs", "pub struct Y(Box<crate::a::x::X>);"),
            ],
            &["in a: x -> (a/x.rs:1) y -> (a/y.rs:1) x"],
        );
        check(
            &[
                ("a/mod.rs", "mod x;"),
                ("a/x.rs", "use crate::b::B;"),
                ("b.rs", "use crate::c::C; pub struct B(C);"),
                ("c.rs", "pub struct C;\npub fn f() { crate::a::x::g() }"),
            ],
            &["in crate: a -> (a/x.rs:1) b -> (b.rs:1) c -> (c.rs:2) a"],
        );
    }

    #[test]
    fn imports_through_parents_lead_to_the_file_that_defines_the_name() {
        check(
            &[
                ("a/mod.rs", "mod x; mod y; pub use x::*; pub use self::y::Y as Z; pub struct Own;"),
                ("a/x.rs", "use super::{Own, Z}; pub struct X(Z, Own);"),
                ("a/y.rs", "pub struct Y(Box<super::X>);"),
            ],
            &["in a: x -> (a/x.rs:1) y -> (a/y.rs:1) x"],
        );
    }

    #[test]
    fn items_of_a_parent_and_imports_of_tests_make_no_circle() {
        check(
            &[
                ("lib.rs", "mod a; mod b; #[cfg(test)] mod testing; pub fn f() { a::f() }"),
                ("a.rs", "use crate::b::B; pub fn f() { crate::f() }"),
                ("b.rs", "pub struct B;\n#[cfg(test)] mod tests { use crate::a::f; }"),
                ("testing.rs", "use crate::a::f;"),
            ],
            &[],
        );
    }

    #[test]
    fn macros_import_what_their_tokens_name() {
        check(
            &[
                ("a.rs", "macro_rules! one { () => { $crate::b::B } }\npub fn f() { println!(\"{}\", 1) }"),
                ("b.rs", "pub struct B;\nfn g() { one!() }"),
            ],
            &["in crate: a -> (a.rs:1) b -> (b.rs:2) a"],
        );
        check(
            &[
                ("a.rs", "pub struct A;\nfn f() { vec![crate::b::B] }"),
                ("b.rs", "pub struct B;\nfn g() { assert!(crate::a::A == 1) }"),
            ],
            &["in crate: a -> (a.rs:2) b -> (b.rs:2) a"],
        );
    }
}
