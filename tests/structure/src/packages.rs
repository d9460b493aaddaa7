//! Dependencies between the packages of the workspace.

use std::collections::BTreeSet;

use toml::{Table, Value};

/// A package of the workspace, by its `Cargo.toml`.
#[derive(Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its dependencies, including optional and platform-specific ones, without dev-dependencies.
    pub dependencies: BTreeSet<String>,
    /// Whether it can be published to a registry.
    pub published: bool,
}

impl Package {
    /// Reads the text of a `Cargo.toml`.
    ///
    /// # Errors
    /// The text is not a manifest of a package.
    pub fn parse(manifest: &str) -> Result<Self, String> {
        let manifest: Table = manifest.parse().map_err(|e| format!("{e}"))?;
        let package = manifest.get("package").ok_or("the manifest has no package")?;
        let name = package.get("name").and_then(Value::as_str).ok_or("the package has no name")?;
        let mut dependencies = dependencies_of(&manifest);
        let targets = manifest.get("target").and_then(Value::as_table);
        for target in targets.into_iter().flat_map(Table::values).filter_map(Value::as_table) {
            dependencies.extend(dependencies_of(target));
        }
        let published = package.get("publish").and_then(Value::as_bool) != Some(false);
        Ok(Package { name: name.to_owned(), dependencies, published })
    }
}

fn dependencies_of(table: &Table) -> BTreeSet<String> {
    let tables =
        ["dependencies", "build-dependencies"].into_iter().filter_map(|key| table.get(key)?.as_table());
    tables
        .flatten()
        .map(|(key, value)| value.get("package").and_then(Value::as_str).unwrap_or(key).to_owned())
        .collect()
}

/// Compares the packages of a workspace with the rows of a table: package and dependencies, low to high. A package in
/// the table depends only on packages above it. Unpublished packages (examples, tools) need no row.
pub fn check_packages(packages: &[Package], table: &[(String, BTreeSet<String>)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let members: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    for (name, _) in table.iter().filter(|(name, _)| !members.contains(name.as_str())) {
        wrong.push(format!("{name} is listed, but is not a package of the workspace"));
    }
    for package in packages {
        let name = &package.name;
        let own: BTreeSet<String> = package
            .dependencies
            .iter()
            .filter(|dependency| members.contains(dependency.as_str()))
            .cloned()
            .collect();
        let Some(place) = table.iter().position(|(listed, _)| listed == name) else {
            if package.published {
                wrong.push(format!("{name} is not listed"));
            }
            continue;
        };
        if own != table[place].1 {
            wrong.push(format!("{name} depends on {own:?}, but {:?} are listed", table[place].1));
        }
        for dependency in &own {
            if !table[..place].iter().any(|(listed, _)| listed == dependency) {
                wrong.push(format!("{name} depends on {dependency}, which is not above it"));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(high: &str, table: &[(&str, &[&str])], expected: &[&str]) {
        let low =
            "[package]\nname = \"low\"\n[dependencies]\nlog = \"1\"\n[dev-dependencies]\nhigh.path = \"x\"";
        let tool = "[package]\nname = \"tool\"\npublish = false\n[dependencies]\nhigh.path = \"x\"";
        let high = format!("[package]\nname = \"high\"\n{high}");
        let packages: Vec<_> = [low, tool, &high].map(|text| Package::parse(text).unwrap()).into();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let table: Vec<_> = table.iter().map(|(name, below)| ((*name).to_owned(), names(below))).collect();
        assert_eq!(check_packages(&packages, &table), expected);
    }

    #[test]
    fn dependencies_are_those_listed_and_above() {
        let high = "[target.'cfg(unix)'.dependencies]\nlow = { path = \"x\", optional = true }";
        check(high, &[("low", &[]), ("high", &["low"])], &[]);
        check(high, &[("high", &["low"]), ("low", &[])], &["high depends on low, which is not above it"]);
        check(high, &[("low", &[]), ("high", &[])], &["high depends on {\"low\"}, but {} are listed"]);
    }

    #[test]
    fn published_packages_are_listed_and_do_not_depend_on_others() {
        check("", &[("low", &[])], &["high is not listed"]);
        check(
            "",
            &[("low", &[]), ("high", &[]), ("gone", &[])],
            &["gone is listed, but is not a package of the workspace"],
        );
        check(
            "[dependencies]\nrenamed = { package = \"tool\", path = \"x\" }",
            &[("low", &[]), ("high", &["tool"])],
            &["high depends on tool, which is not above it"],
        );
    }
}
