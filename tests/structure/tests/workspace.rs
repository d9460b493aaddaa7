//! Checks that the workspace has the structure in ARCHITECTURE.md.

#![allow(clippy::unwrap_used, clippy::panic)] // Clippy recognizes only `#[test]` functions as tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use delegraph_structure::{
    ModulePath, Modules, Order, Package, check_packages, cycles, functions, rows, rust_files,
};

/// The exclusive limit of lines of a function, from `fn` to the closing brace.
const MAX_LINES: usize = 110;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// The rows of a table of ARCHITECTURE.md: a folder, and the names in another column of the table.
fn table(header: &str, column: usize) -> Vec<(String, Vec<String>)> {
    let rows = rows(&read("ARCHITECTURE.md"), header).unwrap();
    let names = |cell: &str| cell.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    rows.iter().map(|row| (row[0].trim_end_matches('/').to_owned(), names(&row[column]))).collect()
}

/// The folders of all crates; that of the facade is empty.
fn crates() -> Vec<String> {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    let members = members.iter().map(|member| member.as_str().unwrap().to_owned());
    members.chain([String::new()]).collect()
}

/// Crates by their names in ARCHITECTURE.md, with the folders of their sources. The facade is `src`, and examples of
/// several files have no `src`.
fn sources() -> BTreeMap<String, PathBuf> {
    let named = |folder: String| if folder.is_empty() { "src".to_owned() } else { folder };
    let mut sources: BTreeMap<String, PathBuf> =
        crates().into_iter().map(|folder| (named(folder.clone()), root().join(folder).join("src"))).collect();
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let folder = entry.unwrap().path();
        if folder.join("main.rs").exists() {
            sources.insert(format!("examples/{}", folder.file_name().unwrap().display()), folder);
        }
    }
    sources
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_depend_on_crates_above_them() {
    let packages: Vec<Package> = crates()
        .iter()
        .map(|folder| Package::parse(&read(format!("{folder}/Cargo.toml").trim_start_matches('/'))).unwrap())
        .collect();
    let header = "| folder | package | depends on | purpose |";
    let full = |name: &str| if name == "delegraph" { name.to_owned() } else { format!("delegraph-{name}") };
    let packages_of = |column| table(header, column).into_iter().map(|(_, names)| names);
    let listed = packages_of(1)
        .zip(packages_of(2))
        .map(|(package, below)| (package[0].clone(), below.iter().map(|name| full(name)).collect()));
    assert_none(&check_packages(&packages, &listed.collect::<Vec<_>>()));
}

/// Each package has its own copies of the licenses: packages are published without the folders above them, and not
/// every copy of a repository keeps symbolic links.
#[test]
fn packages_have_the_licenses() {
    let mut wrong = Vec::new();
    for folder in crates().iter().filter(|folder| !folder.is_empty()) {
        let package = Package::parse(&read(&format!("{folder}/Cargo.toml"))).unwrap();
        for file in ["LICENSE-APACHE", "LICENSE-MIT"].iter().filter(|_| package.published) {
            if fs::read_to_string(root().join(folder).join(file)).ok() != Some(read(file)) {
                wrong.push(format!("{folder}/{file} is not the file of the workspace"));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn modules_import_modules_to_their_left() {
    let sources = sources();
    let listed: BTreeMap<String, Vec<String>> =
        table("| crate | modules, low to high |", 1).into_iter().collect();
    let mut wrong: Vec<String> = listed
        .keys()
        .filter(|name| !sources.contains_key(*name))
        .map(|name| format!("{name} is listed, but is not a crate"))
        .collect();
    for (name, folder) in sources {
        let modules = Modules::read(&folder).unwrap();
        let order = Order::new(ModulePath::default(), listed.get(&name).cloned().unwrap_or_default());
        wrong.extend(order.violations(&modules).into_iter().map(|text| format!("{name}: {text}")));
    }
    assert_none(&wrong);
}

#[test]
fn folders_import_what_is_to_their_left() {
    let mut wrong = Vec::new();
    for (path, listed) in table("| folder | modules, low to high |", 1) {
        let (name, folder) = path.split_once("/src/").or(path.split_once('/')).unwrap();
        let modules = Modules::read(&sources()[name]).unwrap();
        let order = Order::new(ModulePath::of_folder(folder), listed);
        wrong.extend(order.violations(&modules).into_iter().map(|text| format!("{name}: {text}")));
    }
    assert_none(&wrong);
}

#[test]
fn no_folder_has_a_circle_of_imports() {
    let mut wrong = Vec::new();
    let mut imports = 0;
    for (name, folder) in sources() {
        let modules = Modules::read(&folder).unwrap();
        imports += modules.imports().len();
        wrong.extend(cycles(&modules).iter().map(|cycle| format!("{name}: {cycle}")));
    }
    assert_none(&wrong);
    assert!(imports > 10_000, "only {imports} imports are found");
}

#[test]
fn functions_are_short() {
    let files = rust_files(&root()).unwrap();
    let files = files.iter().filter(|file| !file.ends_with("schema_generated.rs"));
    let (mut wrong, mut count) = (BTreeSet::new(), 0);
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let found = functions(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        count += found.len();
        for function in found.iter().filter(|function| function.lines >= MAX_LINES) {
            let place = file.strip_prefix(root()).unwrap().display();
            wrong
                .insert(format!("{place}:{}: {} has {} lines", function.line, function.name, function.lines));
        }
    }
    assert_none(&wrong.into_iter().collect::<Vec<_>>());
    assert!(count > 5_000, "only {count} functions are found");
}
