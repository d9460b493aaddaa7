//! Compares the op definitions with the table extracted from LiteRT, and the resolvers with the definitions.
//!
//! Ops and versions of releases later than the table are not compared: a definition may be newer than the table.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

mod common;

use std::collections::BTreeMap;

use common::delegraph;
use delegraph::core::ops::{DEFS, definition};
use delegraph::core::{BuiltinOp, Op};
use delegraph::delegate_wgpu::{WgpuDelegate, WgpuError, WgpuOptions};
use delegraph_conformance::cases;

struct Line {
    code: i32,
    name: &'static str,
    options: &'static str,
    history: Vec<(u32, &'static str)>,
}

/// The table extracted from LiteRT.
fn table() -> Vec<Line> {
    let lines = include_str!("data/litert_ops.tsv").lines().filter(|l| !l.starts_with('#'));
    lines
        .map(|line| {
            let [code, name, options, history] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("not four columns: {line}");
            };
            let history = history.split(' ').filter(|h| *h != "-").map(|entry| {
                let (version, release) = entry.split_once(':').unwrap();
                (version.parse().unwrap(), release)
            });
            Line { code: code.parse().unwrap(), name, options, history: history.collect() }
        })
        .collect()
}

fn numbers(release: &str) -> Vec<u32> {
    release.split('.').map(|number| number.parse().unwrap()).collect()
}

#[test]
fn every_op_of_the_table_is_defined_with_its_code_options_and_history() {
    let table = table();
    // With fewer lines or versions, the table was not read. These are lower bounds, so that the table can grow without
    // a change here.
    assert!(table.len() >= 210 && table.iter().map(|line| line.history.len()).sum::<usize>() >= 441);
    let releases = table.iter().flat_map(|line| line.history.iter().map(|(_, release)| numbers(release)));
    let newest = releases.max().unwrap();
    for line in &table {
        let op = BuiltinOp(line.code);
        assert_eq!(op.variant_name(), Some(line.name));
        let def = definition(op).unwrap_or_else(|| panic!("{} has no definition", line.name));
        let options = def.codec.options_table().unwrap_or("-");
        assert_eq!(options, line.options, "{}", line.name);
        let (recorded, later): (Vec<_>, Vec<_>) =
            def.history.iter().copied().partition(|(_, release)| numbers(release) <= newest);
        assert_eq!(recorded, line.history, "{}", line.name);
        assert!(later.is_empty() || def.history.ends_with(&later), "{}", line.name);
    }
    for def in DEFS.iter().filter(|def| table.iter().all(|line| BuiltinOp(line.code) != def.op)) {
        let later = def.history.iter().all(|(_, release)| numbers(release) > newest);
        assert!(later && !def.history.is_empty(), "{def:?} is not an op of the table");
    }
}

#[test]
fn both_resolvers_register_what_releases_run_or_the_table_gives_a_reason() {
    let found = delegraph(&["ops", "--json"]).expect(0, "").json();
    let ops: BTreeMap<&str, &serde_json::Value> =
        found["ops"].as_array().unwrap().iter().map(|op| (op["op"].as_str().unwrap(), op)).collect();
    for def in DEFS {
        let name = def.op.variant_name().unwrap();
        let op = ops[name];
        let released = match (def.history.first(), def.history.last()) {
            (Some((low, _)), Some((high, _))) => serde_json::json!([[low, high]]),
            _ => serde_json::json!([]),
        };
        let versions = &op["versions"];
        if !def.history.is_empty() && name != "STABLEHLO_CBRT" {
            for backend in ["cpu", "reference"] {
                let types = op["types"][backend].as_array().unwrap();
                assert!(!types.is_empty(), "{name}: no case prepares on {backend}");
            }
        }
        let same = versions["cpu"] == released && versions["reference"] == released;
        let plain = same && !def.history.is_empty() && name != "STABLEHLO_CBRT";
        assert_eq!(op["note"].is_null(), plain, "{name}: {versions}, releases {released}");
    }
}

#[test]
fn the_published_table_is_up_to_date() {
    let table = delegraph(&["ops"]).expect(0, "").stdout;
    assert!(include_str!("../docs/ops.md").ends_with(&table), "docs/ops.md is stale: run `make ops`");
}

#[test]
fn the_gpu_claims_the_types_that_the_table_gives_for_it() {
    let delegate = match WgpuDelegate::new(WgpuOptions::default()) {
        Ok(delegate) => delegate,
        Err(error @ WgpuError::NoAdapter) => return eprintln!("left out: {error}"),
        Err(error) => panic!("{error}"),
    };
    let mut wrong = Vec::new();
    for def in DEFS {
        let claimed = cases::claimed_types(def.op, || Box::new(delegate.clone()));
        let listed = WgpuDelegate::supported_types(def.op);
        if claimed != listed {
            wrong.push(format!("{}: claimed {claimed:?}, listed {listed:?}", Op::Builtin(def.op)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The schema states the version of each field of options, as TFLite's guide to versions requires.
#[test]
fn the_schema_names_the_version_of_each_field() {
    // The version of each field, per table of options.
    let mut found: BTreeMap<&str, BTreeMap<&str, u32>> = BTreeMap::new();
    let (mut table, mut version) = ("", 1);
    for line in include_str!("../core/schema/schema.fbs").lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("table ").and_then(|rest| rest.strip_suffix(" {")) {
            (table, version) = (name, 1);
            found.entry(table).or_default();
        } else if let Some(number) = line.strip_prefix("// Version ") {
            version = number.strip_suffix(" and above.").unwrap().parse().unwrap();
        } else if let Some((field, _)) = line.split_once(':').filter(|_| !line.starts_with("//")) {
            found.entry(table).or_default().insert(field, version);
        }
    }
    let mut above = 0;
    for (def, table) in DEFS.iter().filter_map(|def| Some((def, def.codec.options_table()?))) {
        let fields = &found[table];
        for field in def.codec.fields {
            // The Rust name of a field ends with an underscore if its name is a keyword.
            let name = field.name.trim_end_matches('_');
            assert_eq!(fields[name], field.since, "{def:?} {}", field.name);
            above += usize::from(field.since > 1);
        }
    }
    assert!(above > 20, "{above} fields of later versions");
}
