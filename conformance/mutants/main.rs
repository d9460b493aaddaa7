//! Runs, for each injected fault, the cases of its ops with the fault active, and reports whether one of them fails.
//!
//! It is built only as an example in the copy of the workspace that `scripts/mutants.py` makes.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use delegraph_conformance::cases::{self, Case, Computed};
use delegraph_conformance::compare::Arithmetic;
use delegraph_core::mutants;
use delegraph_interpreter::ReferenceOpResolver;

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    // A fault may index out of bounds, which counts as detected, so panics print nothing.
    std::panic::set_hook(Box::new(|_| {}));
    let cases = cases::suite(cases::DEFAULT_SEED);
    let mut wanted = HashMap::new();
    let mut survivors = Vec::new();
    let mut count = 0;
    for (number, (name, ops)) in (1..).zip(mutants::LIST).filter(|(_, (name, _))| name.contains(&filter)) {
        count += 1;
        let of_ops = |case: &&Case| case.op.variant_name().is_some_and(|op| ops.contains(&op));
        let (mut tried, mut noticed) = (0, None);
        for case in cases.iter().filter(of_ops) {
            mutants::set(0);
            let want = wanted.entry(case.name.clone()).or_insert_with(|| run(case));
            let Ok(want) = want else { continue };
            tried += 1;
            mutants::set(number);
            if let Err(how) = run(case).and_then(|got| same(case, &got, want)) {
                noticed = Some((case.name.clone(), how));
                break;
            }
        }
        match noticed {
            Some((case, how)) => {
                println!("caught    {name}: {case}: {}", how.lines().next().unwrap_or_default())
            }
            None => {
                println!("SURVIVES  {name}: {tried} cases");
                survivors.push(*name);
            }
        }
    }
    let caught = count - survivors.len();
    println!("{caught} of {count} faults are caught ({:.1} %)", 100.0 * caught as f64 / count.max(1) as f64);
    for name in &survivors {
        println!("  survives: {name}");
    }
    std::process::exit(i32::from(caught * 100 < count * 95));
}

fn run(case: &Case) -> Result<Vec<Computed>, String> {
    let run = || {
        case.build().and_then(|model| case.run(model, ReferenceOpResolver::new())).map_err(|e| e.to_string())
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("panics".into()))
}

/// Compares every output with that without the fault, within the requirements for CPUs. The error is the first
/// difference.
fn same(case: &Case, got: &[Computed], want: &[Computed]) -> Result<(), String> {
    let check = case.check(&case.build().map_err(|e| e.to_string())?, Arithmetic::Ieee);
    for (got, want) in got.iter().zip(want) {
        if (got.ty, &got.shape) != (want.ty, &want.shape) {
            return Err(format!("{} {} instead of {} {}", got.ty, got.shape, want.ty, want.shape));
        }
        let difference = check.compare(want.ty, want.quantized, &got.bytes, &want.bytes);
        if !difference.passes() {
            return Err(difference.to_string());
        }
    }
    Ok(())
}
