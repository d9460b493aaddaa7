//! Compares the ops, versions and types that the GPU delegate claims with the ones that GPU accelerators for TFLite
//! accept together. Every difference needs a reason. `docs/gpu-ops.md` shows the result.
//!
//! `DELEGRAPH_WRITE_DOCS=1 cargo test --test gpu_table` writes the page's table.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

use delegraph::core::ops::stablehlo_movement::StablehloBroadcastInDimParams;
use delegraph::core::ops::{DEFS, definition};
use delegraph::core::{BuiltinOp, ModelBuilder, Params, SubgraphBuilder};
use delegraph::delegate_api::{NodeReport, Policy, Runner};
use delegraph::delegate_wgpu::{WgpuDelegate, WgpuError, WgpuOptions};
use delegraph::{Interpreter, Shape, TensorType};
use delegraph_conformance::cases;

/// The reason why this delegate does not claim a version that accelerators list.
const NO_RELEASE: &str = "not in any release of TFLite, and undocumented";

/// Types that accelerators accept and this delegate does not claim in these ops, and why. An op that needs no reason
/// must not be listed.
#[rustfmt::skip]
const NOT_CLAIMED: &[(&str, &[&str], &[&str])] = &[
    ("no kernel of TFLite takes it", &["INT4"], &["*"]),
    ("computed in FLOAT32 on the device, which does not keep the bits of a NaN", &["FLOAT16", "BFLOAT16"], &["BITCAST"]),
    ("bitwise ops are defined for integers only", &["FLOAT32", "FLOAT16", "BFLOAT16", "BOOL"], &["BITWISE_XOR", "RIGHT_SHIFT", "STABLEHLO_SHIFT_LEFT"]),
    ("logical ops are defined for BOOL only", &["FLOAT32", "FLOAT16", "BFLOAT16", "INT32", "INT16", "INT8", "UINT32", "UINT16", "UINT8"], &["LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR"]),
    ("BOOL is not ordered", &["BOOL"], &["GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"]),
    ("no kernel of TFLite takes it", &["INT16"], &["ELU", "HARD_SWISH"]),
    ("integers without a scale cannot hold the result", &["INT32", "INT16", "INT8", "UINT32", "UINT16", "UINT8"], &["ATAN2", "CEIL", "COS", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH", "LOG", "LOGISTIC", "ROUND", "RSQRT", "SIN", "SQRT", "TANH", "STABLEHLO_CBRT"]),
    ("no kernel of TFLite takes it", &["INT32", "INT16", "INT8", "UINT32", "UINT16", "UINT8", "BOOL", "BFLOAT16"], &["ABS", "BATCH_MATMUL", "CUMSUM", "FLOOR_DIV", "FLOOR_MOD", "NEG", "POW", "SIGN", "SQUARE", "SQUARED_DIFFERENCE"]),
    ("claimed with any type where it is folded while preparing", &["FLOAT32", "FLOAT16", "INT8"], &["DENSIFY"]),
    ("TFLite's state has another type", &["FLOAT16"], &["LSTM"]),
    ("TFLite's kernels quantize FLOAT32 only", &["FLOAT16"], &["QUANTIZE"]),
];

struct Line {
    name: &'static str,
    version: &'static str,
    types: Vec<TensorType>,
}

fn lines() -> Vec<Line> {
    let lines = include_str!("data/gpu_ops.tsv").lines().filter(|l| !l.starts_with('#'));
    lines
        .map(|line| {
            let [name, version, types] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("not three columns: {line}");
            };
            let ty = |name: &str| *TensorType::ALL.iter().find(|ty| ty.name() == name).unwrap();
            let types = types.split(' ').filter(|t| *t != "-").map(ty).collect();
            Line { name, version, types }
        })
        .collect()
}

fn op(name: &str) -> BuiltinOp {
    DEFS.iter().find(|def| def.op.variant_name() == Some(name)).unwrap_or_else(|| panic!("no op {name}")).op
}

fn reason(op: &str, ty: TensorType) -> Option<&'static str> {
    let fits = |(_, types, ops): &&(&str, &[&str], &[&str])| {
        types.contains(&ty.name()) && (ops.contains(&op) || ops == &["*"])
    };
    NOT_CLAIMED.iter().find(fits).map(|(why, ..)| *why)
}

/// Whether no release of TFLite runs an op, so that there are no cases for it.
fn alone(op: BuiltinOp) -> bool {
    [
        BuiltinOp::STABLEHLO_BROADCAST_IN_DIM,
        BuiltinOp::STABLEHLO_CBRT,
        BuiltinOp::STABLEHLO_CLAMP,
        BuiltinOp::STABLEHLO_REMAINDER,
    ]
    .contains(&op)
}

/// Whether the delegate claims a node of this op with this type.
fn is_claimed(op: BuiltinOp, ty: TensorType, delegate: &WgpuDelegate) -> bool {
    let mut graph = SubgraphBuilder::new("main");
    let inputs = match op {
        BuiltinOp::STABLEHLO_REMAINDER => 2,
        BuiltinOp::STABLEHLO_CLAMP => 3,
        _ => 1,
    };
    let inputs: Vec<_> = (0..inputs).map(|i| graph.input(&format!("input_{i}"), ty, [3])).collect();
    let broadcast = op == BuiltinOp::STABLEHLO_BROADCAST_IN_DIM;
    let params = match broadcast {
        true => StablehloBroadcastInDimParams::default().broadcast_dimensions(vec![1]).into(),
        false => Params::None,
    };
    let shape = Shape::new(if broadcast { &[2, 3] } else { &[3] });
    let output = graph.tensor("output", ty, shape);
    graph.node(op, params).inputs(inputs).writes([output]);
    graph.outputs([output]);
    let Ok(model) = ModelBuilder::new().subgraph(graph).build() else { return false };
    let built = Interpreter::builder(model).delegate(delegate.clone()).policy(Policy::Prefer).build();
    let claimed = |node: &NodeReport| matches!(node.runner, Runner::Delegate { .. });
    built.is_ok_and(|interpreter| interpreter.report().nodes.iter().all(claimed))
}

fn names(types: &[TensorType]) -> String {
    types.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ")
}

#[test]
fn every_op_that_accelerators_accept_is_claimed_as_they_do_or_has_a_reason() {
    let delegate = match WgpuDelegate::new(WgpuOptions::default()) {
        Ok(delegate) => delegate,
        Err(error @ WgpuError::NoAdapter) => return eprintln!("left out: {error}"),
        Err(error) => panic!("{error}"),
    };
    let lines = lines();
    // A lower bound, so that lines can be added to the table without a change here.
    assert!(lines.len() >= 102, "the table was not read");
    let versions = WgpuDelegate::supported_versions();
    let (mut wrong, mut used, mut table) = (Vec::new(), vec![false; NOT_CLAIMED.len()], String::new());
    table += "| op | versions there | here | types there and here | here alone | there alone, and why |\n";
    table += "|---|---|---|---|---|---|\n";
    for Line { name, version, types } in &lines {
        let op = op(name);
        let Some(most) = versions.max_version(&op.into()) else {
            // Ops without versions: custom ops are claimed by name, composites are inlined.
            let how = match *name {
                "CUSTOM" => "by name, see above",
                "STABLEHLO_COMPOSITE" => "its body, node by node",
                _ => {
                    wrong.push(format!("{name} is not claimed"));
                    continue;
                }
            };
            table += &format!("| {name} | {version} | {how} | | | |\n");
            continue;
        };
        let released = definition(op).and_then(|def| def.history.last()).map(|(version, _)| *version);
        let listed: Option<u32> = version.parse().ok();
        let mut notes = Vec::new();
        if listed.is_some_and(|listed| listed > most) {
            if released.is_none_or(|released| released <= most) {
                notes.push(format!("version {version}: {NO_RELEASE}"));
            } else {
                wrong.push(format!("{name}: version {version} is listed, {most} is claimed"));
            }
        }
        let claimed = match alone(op) {
            true => TensorType::ALL.iter().copied().filter(|&ty| is_claimed(op, ty, &delegate)).collect(),
            false => cases::claimed_types_anywhere(op, || Box::new(delegate.clone())),
        };
        let both: Vec<_> = types.iter().copied().filter(|ty| claimed.contains(ty)).collect();
        let ours: Vec<_> = claimed.iter().copied().filter(|ty| !types.contains(ty)).collect();
        let mut theirs: Vec<(&str, Vec<TensorType>)> = Vec::new();
        for &ty in types.iter().filter(|ty| !claimed.contains(ty)) {
            match (reason(name, ty), released) {
                (Some(why), _) => match theirs.iter_mut().find(|(w, _)| *w == why) {
                    Some((_, all)) => all.push(ty),
                    None => theirs.push((why, vec![ty])),
                },
                (None, _) => wrong.push(format!("{name}: {} is not claimed, without a reason", ty.name())),
            }
        }
        for (i, (why, _, ops)) in NOT_CLAIMED.iter().enumerate() {
            let needed = theirs.iter().any(|(w, _)| w == why);
            used[i] |= needed;
            if ops.contains(name) && !needed {
                wrong.push(format!("{name}: all that is listed is claimed, but a reason is given: {why}"));
            }
        }
        notes.extend(theirs.iter().map(|(why, types)| format!("{}: {why}", names(types))));
        table += &format!(
            "| {name} | {version} | {most} | {} | {} | {} |\n",
            names(&both),
            names(&ours),
            notes.join("; ")
        );
    }
    let unused = NOT_CLAIMED.iter().zip(used).filter(|(_, used)| !used);
    wrong.extend(unused.map(|((why, ..), _)| format!("a reason that nothing needs: {why}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/gpu-ops.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (head, rest) = page.split_once("<!-- table -->\n").unwrap();
    let (_, tail) = rest.split_once("<!-- end of table -->").unwrap();
    let fresh = format!("{head}<!-- table -->\n{table}<!-- end of table -->{tail}");
    if std::env::var_os("DELEGRAPH_WRITE_DOCS").is_some() {
        std::fs::write(path, fresh).unwrap();
    } else {
        assert!(
            page == fresh,
            "docs/gpu-ops.md is stale: DELEGRAPH_WRITE_DOCS=1 cargo test --test gpu_table"
        );
    }
}
