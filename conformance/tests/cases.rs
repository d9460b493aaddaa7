//! Single-op cases on CPU kernels, compared with LiteRT's results: `conformance/src/cases`, `conformance/goldens/ops`.
//!
//! Each family is a test of its own, on each resolver. Quantized and integer outputs of the reference kernels must
//! equal LiteRT's exactly; outputs of optimized kernels may differ by one step where their arithmetic allows it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use delegraph_conformance::cases::{self, Case, Expected, Recorded, Verdict};
use delegraph_core::ops::DEFS;
use delegraph_core::{BuiltinOp, Model, Op, OpResolver, TensorType};
use delegraph_interpreter::{BuiltinOpResolver, ReferenceOpResolver};
use libtest_mimic::{Arguments, Failed, Trial};

/// Types that LiteRT accepts and no case has, with the reason: for these ops, or for all ops if none is listed.
const TYPES_LEFT_OUT: &[(&[BuiltinOp], &[TensorType], &str)] = {
    use BuiltinOp as Op;
    use TensorType::*;
    &[
        (
            &[],
            &[Complex128, Float8E4M3FN, Float8E5M2],
            "moved by their width, like the types of these ops that have cases",
        ),
        (
            &[
                Op::RESHAPE,
                Op::SQUEEZE,
                Op::EXPAND_DIMS,
                Op::SHAPE,
                Op::RANK,
                Op::TRANSPOSE,
                Op::SLICE,
                Op::DYNAMIC_UPDATE_SLICE,
            ],
            &[Int4, Int2, UInt4],
            "LiteRT's Python interface neither gives nor takes elements of less than a byte",
        ),
        (
            &[Op::BROADCAST_TO, Op::STABLEHLO_PAD, Op::DILATE, Op::HASHTABLE_LOOKUP, Op::EMBEDDING_LOOKUP],
            &[Int4, Int2, UInt4],
            "LiteRT takes each for a byte",
        ),
        (&[Op::FAKE_QUANT], ALL_BUT_FLOAT32, "LiteRT reads any type of 32 bits as FLOAT32"),
        (&[Op::LSH_PROJECTION], ALL_BUT_FLOAT32, "LiteRT hashes the bytes of any type"),
        (
            &[Op::MATRIX_DIAG, Op::MATRIX_SET_DIAG],
            ALL_BUT_FLOAT32,
            "LiteRT moves single bytes of types that it does not know",
        ),
        (
            &[Op::IF, Op::WHILE, Op::STABLEHLO_CASE, Op::STABLEHLO_COMPOSITE, Op::STABLEHLO_SCATTER],
            ALL_BUT_FLOAT32,
            "the ops of the called subgraph decide; these were tried with operands of other types than that expects",
        ),
    ]
};
const ALL_BUT_FLOAT32: &[TensorType] = TensorType::ALL.split_at(1).1;

fn main() -> Result<(), String> {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens/ops");
    let expected = Arc::new(Expected::read(&folder).map_err(|e| e.to_string())?);
    let cases = Arc::new(cases::all());
    let families: BTreeSet<&str> = cases.iter().filter_map(|c| c.name.split('/').next()).collect();
    let mut trials = Vec::new();
    for family in families {
        for resolver in ["reference", "cpu"] {
            let (expected, cases) = (Arc::clone(&expected), Arc::clone(&cases));
            let prefix = format!("{family}/");
            let test = move || {
                let of_family = cases.iter().filter(|c| c.name.starts_with(&prefix));
                let wrong: Vec<String> = of_family
                    .filter_map(|c| check(c, resolver, &expected).err().map(|e| format!("{}: {e}", c.name)))
                    .collect();
                verdict(&wrong)
            };
            trials.push(Trial::test(format!("{family}::{resolver}"), test));
        }
    }
    let (e, c) = (Arc::clone(&expected), Arc::clone(&cases));
    trials.push(Trial::test("every_version_of_every_op", move || every_version(&c, &e)));
    let (e, c) = (Arc::clone(&expected), Arc::clone(&cases));
    trials.push(Trial::test("every_type_that_litert_takes", move || every_type(&c, &e)));
    trials.push(Trial::test("nothing_is_left_over", move || left_over(&cases, &expected)));
    trials.push(Trial::test("types_are_found", types_are_found));
    libtest_mimic::run(&arguments, trials).exit();
}

fn verdict(wrong: &[String]) -> Result<(), Failed> {
    match wrong {
        [] => Ok(()),
        _ => Err(Failed::from(format!("{} wrong:\n{}", wrong.len(), wrong.join("\n")))),
    }
}

/// Returns whether the recorded LiteRT lacks the version of a node.
fn is_newer(model: &Model) -> bool {
    let mut nodes = model.subgraphs().iter().flat_map(|subgraph| subgraph.nodes());
    let newer = |op: BuiltinOp, version| match cases::versions(op).last() {
        Some(last) => version > *last,
        // A new op. Releases list this one, but none registers it: it needs a verdict.
        None => op != BuiltinOp::STABLEHLO_CBRT,
    };
    nodes.any(|node| matches!(node.op(), Op::Builtin(op) if newer(*op, node.version())))
}

fn check(case: &Case, resolver: &str, expected: &Expected) -> Result<(), String> {
    let model = case.build().map_err(|e| e.to_string())?;
    let Some(entry) = expected.entries.get(&case.name) else {
        return match case.verdict {
            // For versions that the recorded LiteRT lacks.
            Verdict::NotCompared(_) => {
                case.run(model, ReferenceOpResolver::new()).map(|_| ()).map_err(|e| e.to_string())
            }
            _ if is_newer(&model) => {
                case.run(model, ReferenceOpResolver::new()).map(|_| ()).map_err(|e| e.to_string())
            }
            _ => Err("LiteRT has not run it: `make goldens`".into()),
        };
    };
    if entry.fingerprint != case.fingerprint(&model) {
        return Err("it has changed since LiteRT ran it: `make goldens`".into());
    }
    let outputs = match resolver {
        "reference" => case.run(model, ReferenceOpResolver::new()),
        _ => case.run(model, BuiltinOpResolver::new()),
    };
    match (&case.verdict, &entry.outcome) {
        (Verdict::NotCompared(_), _) => Ok(()),
        (_, Recorded::Refused(why) | Recorded::Crashed(why) | Recorded::Varies(why)) => {
            Err(format!("LiteRT does not run it ({why}), and the case does not declare that"))
        }
        (verdict, Recorded::Ran(wanted)) => {
            let outputs = outputs.map_err(|e| e.to_string())?;
            if outputs.len() != wanted.len() {
                return Err(format!("{} outputs, expected {}", outputs.len(), wanted.len()));
            }
            let steps = if matches!(verdict, Verdict::Within1(_)) || resolver == "cpu" { 1 } else { 0 };
            for (i, (got, want)) in outputs.iter().zip(wanted).enumerate() {
                case.agree(got, want, steps).map_err(|e| format!("output {i}: {e}"))?;
            }
            Ok(())
        }
        (_, other) => Err(format!("this test does not know the outcome {other:?}")),
    }
}

/// Every op of LiteRT's CPU resolver has a case that LiteRT runs in every version.
fn every_version(cases: &[Case], expected: &Expected) -> Result<(), Failed> {
    let mut wrong = Vec::new();
    for def in DEFS {
        let ran = |c: &&Case| {
            let entry = expected.entries.get(&c.name);
            c.op == def.op
                && (entry.is_some_and(|e| matches!(e.outcome, Recorded::Ran(_)))
                    || c.verdict != Verdict::LiteRt)
        };
        let have: BTreeSet<u32> = cases
            .iter()
            .filter(ran)
            .flat_map(|c| c.build().map(|m| c.versions(&m)).unwrap_or_default())
            .collect();
        let missing: Vec<u32> = cases::versions(def.op).into_iter().filter(|v| !have.contains(v)).collect();
        if !missing.is_empty() {
            wrong.push(format!("{def:?} lacks a case in {missing:?}"));
        }
    }
    verdict(&wrong)
}

/// Every type that LiteRT accepts has a case that LiteRT runs.
fn every_type(cases: &[Case], expected: &Expected) -> Result<(), Failed> {
    let mut wrong = Vec::new();
    for (&op, types) in &expected.types {
        let op = BuiltinOp(op);
        let have: BTreeSet<TensorType> =
            cases.iter().filter(|c| c.op == op).filter_map(Case::data_type).collect();
        let left_out = |ty: &TensorType| {
            let of = |(ops, types, _): &(&[BuiltinOp], &[TensorType], &str)| {
                (ops.is_empty() || ops.contains(&op)) && types.contains(ty)
            };
            TYPES_LEFT_OUT.iter().any(of)
        };
        let missing: Vec<_> = types.iter().filter(|ty| !have.contains(ty) && !left_out(ty)).collect();
        if !missing.is_empty() {
            wrong.push(format!("{} lacks a case of {missing:?}", op.variant_name().unwrap_or("?")));
        }
    }
    verdict(&wrong)
}

/// The index has no entries of removed cases.
fn left_over(cases: &[Case], expected: &Expected) -> Result<(), Failed> {
    let names: BTreeSet<&str> = cases.iter().map(|c| c.name.as_str()).collect();
    let gone: Vec<String> =
        expected.entries.keys().filter(|n| !names.contains(n.as_str())).cloned().collect();
    verdict(&gone)
}

fn types_are_found() -> Result<(), Failed> {
    let resolver: Arc<dyn OpResolver> = Arc::new(ReferenceOpResolver::new());
    let of = |op| cases::types(op, &resolver);
    let unregistered = of(BuiltinOp::CONCAT_EMBEDDINGS);
    match of(BuiltinOp::ABS).contains(&TensorType::Int16) && unregistered.is_empty() {
        true => Ok(()),
        false => Err(Failed::from(format!("{:?}, {unregistered:?}", of(BuiltinOp::ABS)))),
    }
}
