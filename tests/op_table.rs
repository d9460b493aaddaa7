//! The op definitions against the format's own table, and the resolvers against the definitions.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

mod common;

use std::collections::BTreeMap;

use common::delegraph;
use delegraph::core::ops::{DEFS, OptionsType, definition};
use delegraph::core::{BuiltinOp, Op};
use delegraph::delegate_wgpu::{WgpuDelegate, WgpuError, WgpuOptions};
use delegraph_conformance::cases;

struct Line {
    code: i32,
    name: &'static str,
    options: &'static str,
    history: Vec<(u32, &'static str)>,
}

/// The table that was read off LiteRT.
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

#[test]
fn every_op_of_the_format_is_defined_with_its_code_options_and_history() {
    let table = table();
    assert_eq!(table.len(), 210);
    assert_eq!(table.iter().map(|line| line.history.len()).sum::<usize>(), 441);
    for line in &table {
        let op = BuiltinOp(line.code);
        assert_eq!(op.variant_name(), Some(line.name));
        let def = definition(op).unwrap_or_else(|| panic!("{} has no definition", line.name));
        let options = match def.codec.ty {
            OptionsType::None => "-".to_owned(),
            other => other.to_string(),
        };
        assert_eq!(options, line.options, "{}", line.name);
        assert_eq!(def.history, line.history, "{}", line.name);
    }
    assert_eq!(DEFS.len(), table.len(), "an op is defined that the format does not have");
}

#[test]
fn both_resolvers_register_what_releases_run_or_the_table_says_why_not() {
    let found = delegraph(&["ops", "--json"]).expect(0, "").json();
    let ops: BTreeMap<&str, &serde_json::Value> =
        found["ops"].as_array().unwrap().iter().map(|op| (op["op"].as_str().unwrap(), op)).collect();
    for line in table() {
        let op = ops[line.name];
        let released = match (line.history.first(), line.history.last()) {
            (Some((low, _)), Some((high, _))) => serde_json::json!([[low, high]]),
            _ => serde_json::json!([]),
        };
        let versions = &op["versions"];
        if !line.history.is_empty() && line.name != "STABLEHLO_CBRT" {
            for backend in ["cpu", "reference"] {
                let types = op["types"][backend].as_array().unwrap();
                assert!(!types.is_empty(), "{}: no case prepares on {backend}", line.name);
            }
        }
        let same = versions["cpu"] == released && versions["reference"] == released;
        let plain = same && !line.history.is_empty() && line.name != "STABLEHLO_CBRT";
        assert_eq!(op["note"].is_null(), plain, "{}: {versions}, releases {released}", line.name);
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
