//! Random mutations of the cases, beside what LiteRT computes; `scripts/fuzz_litert.py` runs both sides.
//!
//! `fuzz_cases write DIR SEED FIRST COUNT` writes mutants FIRST to FIRST + COUNT - 1 as folders, like `make_cases`.
//! `fuzz_cases check DIR SEED` runs the mutants listed in `DIR/index.tsv` (the format of `conformance/goldens/ops`) on
//! the optimized and the reference kernels, and prints `name`, `resolver` and the difference, separated by tabs. Before
//! each it prints `> name`, so that the reader knows at which one the process ended.
//! `fuzz_cases wgpu SEED FIRST COUNT` runs mutants FIRST to FIRST + COUNT - 1 on the GPU delegate and compares with the
//! reference kernels: results within the demanded precision, and errors on both sides or on none.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use delegraph_conformance::cases::{self, Case, Expected};
use delegraph_conformance::compare::Arithmetic;
use delegraph_conformance::engine::{Backend, Outcome, Problem};
use delegraph_conformance::npy;
use delegraph_conformance::runner::Engine;
use delegraph_core::{Model, TensorId};
use delegraph_delegate_wgpu::{WgpuDelegate, WgpuOptions};
use delegraph_interpreter::{BuiltinOpResolver, ReferenceOpResolver, ResourceLimits};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["write", folder, seed, first, count] => numbers([seed, first, count])
            .and_then(|[seed, first, count]| write_all(Path::new(folder), seed, first, count)),
        ["check", folder, seed] => numbers([seed]).and_then(|[seed]| check_all(Path::new(folder), seed)),
        ["wgpu", seed, first, count] => {
            numbers([seed, first, count]).and_then(|[seed, first, count]| run_on_wgpu(seed, first, count))
        }
        _ => Err("usage: fuzz_cases write DIR SEED FIRST COUNT | fuzz_cases check DIR SEED | \
                  fuzz_cases wgpu SEED FIRST COUNT"
            .into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}

fn numbers<const N: usize>(words: [&str; N]) -> Result<[u64; N], String> {
    let mut numbers = [0; N];
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = word.parse().map_err(|e| format!("{word}: {e}"))?;
    }
    Ok(numbers)
}

fn write_all(root: &Path, seed: u64, first: u64, count: u64) -> Result<(), String> {
    for index in first..first + count {
        let Some(case) = cases::mutant(seed, index as usize) else { continue };
        // Some mutants cannot be written as a model.
        let Ok(model) = case.build() else { continue };
        let folder = root.join(&case.name);
        let text = |e: std::io::Error| format!("{}: {e}", folder.display());
        fs::create_dir_all(&folder).map_err(text)?;
        fs::write(folder.join("model.tflite"), model.bytes()).map_err(text)?;
        for step in 0..case.steps {
            for (n, (i, operand)) in case.fed().enumerate() {
                let array = npy::write(operand.fed_type(), &operand.shape, &operand.fed_data(i, step))?;
                fs::write(folder.join(format!("input_{step}_{n}.npy")), array).map_err(text)?;
            }
        }
        let (op, ty) = (case.op.variant_name().unwrap_or("?"), case.data_type().map_or("-", |t| t.name()));
        let (fingerprint, steps) = (case.fingerprint(&model), case.steps);
        let line = format!("{}\t{fingerprint:016x}\t{op}\t{ty}\t{steps}\tcompared\n", case.name);
        fs::write(folder.join("case.txt"), line).map_err(text)?;
    }
    Ok(())
}

fn check_all(root: &Path, seed: u64) -> Result<(), String> {
    let expected = Expected::read(root)?;
    let mut out = std::io::stdout();
    for (name, entry) in &expected.entries {
        let cases::Outcome::Ran(wanted) = &entry.outcome else { continue };
        let index = name.split(['_', '/']).nth(2).and_then(|i| i.parse().ok()).ok_or("not a mutant")?;
        let case = cases::mutant(seed, index).ok_or("not a mutant of this seed")?;
        writeln!(out, "> {name}").map_err(|e| e.to_string())?;
        for resolver in ["cpu", "reference"] {
            let Err(e) = check(&case, resolver, wanted) else { continue };
            writeln!(out, "{name}\t{resolver}\t{}", e.replace(['\n', '\t'], " "))
                .map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

fn run_on_wgpu(seed: u64, first: u64, count: u64) -> Result<(), String> {
    let delegate = WgpuDelegate::new(WgpuOptions::default()).map_err(|e| e.to_string())?;
    let make = Arc::new(move || -> delegraph_core::Result<_> { Ok(Box::new(delegate.clone()) as _) });
    // A mutation may make a loop endless.
    let limits = ResourceLimits::default().with_time(Duration::from_secs(10));
    let backend = Backend::delegate("wgpu", make).arithmetic(Arithmetic::Gpu);
    let engine = Engine::new(backend.configured(move |builder| builder.limits(limits.clone()))).untimed();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for index in first..first + count {
        let Some(case) = cases::mutant(seed, index as usize) else { continue };
        let Ok(problem) = Problem::of_case(&case, Arithmetic::Gpu) else { continue };
        let mut result = engine.run(&problem, false);
        // Nodes with constant inputs run while preparing: the error is not that of the delegate.
        if result.outcome == Outcome::Error
            && case.run((*problem.model).clone(), ReferenceOpResolver::new()).is_err()
        {
            result.outcome = Outcome::Unsupported;
        }
        *counts.entry(result.outcome.name()).or_default() += 1;
        if matches!(result.outcome, Outcome::Mismatch | Outcome::Violation | Outcome::Error) {
            println!(
                "{}\t{}\t{}",
                result.case,
                result.outcome.name(),
                result.detail.replace(['\n', '\t'], " ")
            );
        }
    }
    eprintln!("{counts:?}");
    Ok(())
}

fn check(case: &Case, resolver: &str, wanted: &[cases::Computed]) -> Result<(), String> {
    let model = case.build()?;
    let about = about(case, &model);
    compare(case, model, resolver, wanted).map_err(|e| format!("{e} | {about}"))
}

/// Returns operands, params and special values of a case, by which differences can be listed.
fn about(case: &Case, model: &Model) -> String {
    let Some(graph) = model.subgraphs().first() else { return String::new() };
    let scale = |id: &TensorId| {
        let (scale, zero) = graph.tensor(*id).quantization()?.scale_zero_point()?;
        Some(format!("*{scale}-{zero}"))
    };
    let list = |ids: &mut dyn Iterator<Item = String>| ids.collect::<Vec<_>>().join(" ");
    let node = graph.nodes().iter().find(|node| node.op().builtin() == Some(case.op));
    let scales = list(&mut node.into_iter().flat_map(|n| n.inputs().iter().flatten().filter_map(scale)));
    let output = |id: &TensorId| format!("{}{}", graph.tensor(*id).shape(), scale(id).unwrap_or_default());
    let outputs = list(&mut graph.outputs().iter().map(output));
    let node = node.map_or_else(String::new, |n| format!("{} v{} {:?}", n.op(), n.version(), n.params()));
    format!("{} {scales} to {outputs}, {node}, data {:?}", case.describe(), case.specials())
}

fn compare(case: &Case, model: Model, resolver: &str, wanted: &[cases::Computed]) -> Result<(), String> {
    let outputs = match resolver {
        "reference" => case.run(model, ReferenceOpResolver::new()),
        _ => case.run(model, BuiltinOpResolver::new()),
    };
    let outputs = outputs.map_err(|e| format!("error: {e}"))?;
    if outputs.len() != wanted.len() {
        return Err(format!("{} outputs, expected {}", outputs.len(), wanted.len()));
    }
    for (i, (got, want)) in outputs.iter().zip(wanted).enumerate() {
        let steps = u32::from(resolver == "cpu");
        case.agree(got, want, steps).map_err(|e| format!("output {i}: {e}"))?;
    }
    Ok(())
}
