//! The suite itself: it is reproducible, every case runs on the reference kernels, and the optimized kernels agree
//! within the tolerance of each case.
//!
//! A trial runs a share of the cases; `SUITE_FILTER=text` selects cases whose name contains the text, `SUITE_SEED=n`
//! sets the seed of random cases.

use std::collections::BTreeSet;
use std::sync::Arc;

use delegraph_conformance::cases::{self, Case, DEFAULT_SEED, Verdict};
use delegraph_conformance::compare::Arithmetic;
use delegraph_core::ops::DEFS;
use delegraph_core::{Op, OpResolver};
use delegraph_interpreter::{BuiltinOpResolver, ReferenceOpResolver};
use libtest_mimic::{Arguments, Failed, Trial};

const SHARES: usize = 16;

fn main() {
    let arguments = Arguments::from_args();
    let seed = std::env::var("SUITE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(DEFAULT_SEED);
    let filter = std::env::var("SUITE_FILTER").unwrap_or_default();
    let suite: Arc<Vec<Case>> = Arc::new(cases::suite(seed));
    let chosen: Arc<Vec<Case>> =
        Arc::new(suite.iter().filter(|c| c.name.contains(&filter)).cloned().collect());
    let mut trials: Vec<Trial> = (0..SHARES)
        .map(|share| {
            let cases = Arc::clone(&chosen);
            Trial::test(format!("share_{share}"), move || {
                let wrong: Vec<String> = (cases.iter().skip(share).step_by(SHARES))
                    .filter_map(|c| agree(c).err().map(|e| format!("{}: {} {e}", c.name, c.describe())))
                    .collect();
                verdict(&wrong)
            })
        })
        .collect();
    let s = Arc::clone(&suite);
    trials.push(Trial::test("the_same_each_time", move || deterministic(&s, seed)));
    let s = Arc::clone(&suite);
    trials.push(Trial::test("every_version_of_every_kernel", move || every_version(&s)));
    trials.push(Trial::test("there_are_enough", move || match suite.len() {
        12_000.. => Ok(()),
        few => Err(Failed::from(format!("there are {few}"))),
    }));
    libtest_mimic::run(&arguments, trials).exit();
}

fn verdict(wrong: &[String]) -> Result<(), Failed> {
    match wrong {
        [] => Ok(()),
        _ => Err(Failed::from(format!("{} wrong:\n{}", wrong.len(), wrong.join("\n")))),
    }
}

/// The optimized kernels agree with the reference kernels.
fn agree(case: &Case) -> Result<(), String> {
    let model = case.build().map_err(|e| e.to_string())?;
    let check = case.check(&model, Arithmetic::Ieee);
    let expected = match case.run(model.clone(), ReferenceOpResolver::new()) {
        Ok(expected) => expected,
        // Both the kernels and the case declare the exception.
        Err(_) if matches!(case.verdict, Verdict::NotCompared(_)) => return Ok(()),
        Err(e) => return Err(format!("the reference kernels: {e}")),
    };
    let outputs = case.run(model, BuiltinOpResolver::new()).map_err(|e| format!("the kernels: {e}"))?;
    for (i, (got, want)) in outputs.iter().zip(&expected).enumerate() {
        if (got.ty, &got.shape) != (want.ty, &want.shape) {
            return Err(format!("output {i} is {} {}, not {} {}", got.ty, got.shape, want.ty, want.shape));
        }
        let difference = check.compare(want.ty, want.quantized, &got.bytes, &want.bytes);
        if !difference.passes() {
            return Err(format!(
                "output {i} ({} {}): {difference} [{}, {} terms]",
                want.ty,
                want.shape,
                check.kind.name(),
                check.terms
            ));
        }
    }
    Ok(())
}

/// The same seed returns the same cases, and names are unique.
fn deterministic(suite: &[Case], seed: u64) -> Result<(), Failed> {
    let again = cases::suite(seed);
    let mut names = BTreeSet::new();
    let mut wrong = Vec::new();
    for (a, b) in suite.iter().zip(&again) {
        let print = |c: &Case| c.build().map(|m| c.fingerprint(&m)).ok();
        if !names.insert(&a.name) || a.name != b.name || print(a) != print(b) {
            wrong.push(a.name.clone());
        }
    }
    verdict(&wrong)
}

/// Every version that the reference kernels register has a case.
fn every_version(suite: &[Case]) -> Result<(), Failed> {
    let resolver = ReferenceOpResolver::new();
    let mut have = BTreeSet::new();
    for case in suite {
        let Ok(model) = case.build() else { continue };
        have.extend(Case::ops(&model).into_iter().map(|(op, version)| (op.to_string(), version)));
    }
    let mut wrong = Vec::new();
    for def in DEFS {
        let op = Op::Builtin(def.op);
        let newest = def.history.last().map_or(1, |(version, _)| *version);
        for versions in resolver.versions(&op) {
            let registered = *versions.start()..=newest.min(*versions.end());
            let missing = registered.filter(|&version| !have.contains(&(op.to_string(), version)));
            wrong.extend(missing.map(|version| format!("{op} v{version}")));
        }
    }
    verdict(&wrong)
}
