//! The committed FlatBuffer code against the schema it is generated from: every table, slot, enum value and union
//! member, in both directions. (`make test` also runs the generator itself, where it can be installed.)

#![allow(clippy::unwrap_used)] // Only tests call this.

use std::collections::BTreeSet;

const SCHEMA: &str = include_str!("../schema.fbs");
const GENERATED: &str = include_str!("../src/schema_generated.rs");

/// `enum`, `union` and `table` declarations: keyword, name, lines of the body.
fn declarations() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let mut found = Vec::new();
    for block in SCHEMA.split('}') {
        let Some((head, body)) = block.split_once('{') else { continue };
        let mut words = head.lines().last().unwrap().split([' ', ':']).filter(|w| !w.is_empty());
        let (keyword, name) = (words.next().unwrap(), words.next().unwrap());
        found.push((
            keyword,
            name,
            body.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("//")).collect(),
        ));
    }
    found
}

/// The slots and values that the generated code should have, as (owner, constant, value).
fn expected() -> BTreeSet<(String, String, i64)> {
    let declarations = declarations();
    let is_union =
        |ty: &str| declarations.iter().any(|(keyword, name, _)| *keyword == "union" && *name == ty);
    let mut expected = BTreeSet::new();
    for (keyword, name, body) in &declarations {
        if *keyword == "union" {
            expected.insert((name.to_string(), "NONE".into(), 0));
        }
        let mut slot = 4;
        for line in body {
            let line = line.trim_end_matches([',', ';']);
            if *keyword == "table" {
                let (field, ty) = line.split_once(':').unwrap();
                let ty = ty.split([' ', '=', '(']).next().unwrap();
                // A field that is a keyword of Rust gets an underscore; a deprecated one keeps its slot alone.
                let keyword = if field.trim() == "type" { "_" } else { "" };
                let constant = format!("VT_{}{keyword}", field.trim().to_uppercase());
                if is_union(ty) {
                    expected.insert((name.to_string(), format!("{constant}_TYPE"), slot));
                    slot += 2;
                }
                if !line.contains("(deprecated)") {
                    expected.insert((name.to_string(), constant, slot));
                }
                slot += 2;
            } else {
                let (member, value) = line.split_once(" = ").unwrap();
                expected.insert((name.to_string(), member.to_owned(), value.parse().unwrap()));
            }
        }
    }
    expected
}

fn generated() -> BTreeSet<(String, String, i64)> {
    let mut found = BTreeSet::new();
    let mut owner = "";
    for line in GENERATED.lines() {
        if let Some(rest) = line.strip_prefix("impl<'a> ").or_else(|| line.strip_prefix("impl ")) {
            owner = rest.split([' ', '<']).next().unwrap();
        }
        let Some((name, value)) = line.trim().strip_prefix("pub const ").and_then(|l| l.split_once(": "))
        else {
            continue;
        };
        let Some((ty, value)) = value.trim_end_matches(';').split_once(" = ") else { continue };
        let value = match ty {
            "::flatbuffers::VOffsetT" => value,
            "Self" => value.trim_start_matches("Self(").trim_end_matches(')'),
            _ => continue,
        };
        if let Ok(value) = value.parse() {
            found.insert((owner.to_owned(), name.to_owned(), value));
        }
    }
    found.retain(|(_, name, _)| !name.starts_with("ENUM_"));
    found
}

#[test]
fn the_generated_code_is_that_of_the_schema() {
    let (expected, generated) = (expected(), generated());
    assert!(expected.len() > 700, "only {} constants were found in the schema", expected.len());
    let missing: Vec<_> = expected.difference(&generated).collect();
    let stale: Vec<_> = generated.difference(&expected).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "run `make schema`: not in the generated code: {missing:?}; only there: {stale:?}"
    );
}
