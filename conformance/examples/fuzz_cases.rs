//! Random mutations of the cases, compared with LiteRT's results; `scripts/fuzz_litert.py` runs both sides.
//!
//! `fuzz_cases write DIR SEED FIRST COUNT` writes mutants FIRST to FIRST + COUNT - 1 as folders, like `make_cases`.
//! `fuzz_cases check DIR SEED` runs the mutants listed in `DIR/index.tsv` (the format of `conformance/goldens/ops`) on
//! the optimized and the reference kernels, and prints `name`, `resolver` and the difference, separated by tabs. Before
//! each mutant it prints `> name`, which identifies the mutant at which the process ended.
//! `fuzz_cases wgpu SEED FIRST COUNT` runs mutants FIRST to FIRST + COUNT - 1 on the GPU delegate and compares with the
//! reference kernels: results within the required precision, and errors on both sides or on neither.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use delegraph_conformance::cases::{self, Case, Chain, Expected};
use delegraph_conformance::compare::{Arithmetic, Deviation};
use delegraph_conformance::engine::{Backend, Outcome, Problem};
use delegraph_conformance::npy;
use delegraph_conformance::runner::{ContractChecks, Engine};
use delegraph_core::{Model, Node, Tensor, TensorId};
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

/// One mutant in this number is a graph of several cases.
const GRAPH_EVERY: usize = 5;

/// A drawn mutant: one node, or a graph of several.
enum Drawn {
    Node(Case),
    Graph(Chain),
}

fn drawn(seed: u64, index: usize) -> Option<Drawn> {
    match index % GRAPH_EVERY {
        0 => Chain::draw(seed, index).map(Drawn::Graph),
        _ => cases::mutant(seed, index).map(Drawn::Node),
    }
}

impl Drawn {
    fn case(self) -> Case {
        match self {
            Drawn::Node(case) => case,
            Drawn::Graph(chain) => chain.case,
        }
    }

    fn as_case(&self) -> &Case {
        match self {
            Drawn::Node(case) => case,
            Drawn::Graph(chain) => &chain.case,
        }
    }
}

fn write_all(root: &Path, seed: u64, first: u64, count: u64) -> Result<(), String> {
    for index in first..first + count {
        let Some(case) = drawn(seed, index as usize).map(Drawn::case) else { continue };
        // Some mutants cannot be written as a model.
        let Ok(model) = case.build() else { continue };
        let folder = root.join(&case.name);
        let text = |e: std::io::Error| format!("{}: {e}", folder.display());
        fs::create_dir_all(&folder).map_err(text)?;
        fs::write(folder.join("model.tflite"), model.bytes()).map_err(text)?;
        for step in 0..case.steps {
            for (n, (i, operand)) in case.fed().enumerate() {
                let array = npy::write(operand.fed_type(), &operand.shape, &operand.fed_data(i, step))
                    .map_err(|e| e.to_string())?;
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
    let expected = Expected::read(root).map_err(|e| e.to_string())?;
    let mut out = std::io::stdout();
    for (name, entry) in &expected.entries {
        let cases::Recorded::Ran(wanted) = &entry.outcome else { continue };
        let index = name.split(['_', '/']).nth(2).and_then(|i| i.parse().ok()).ok_or("not a mutant")?;
        let drawn = drawn(seed, index).ok_or("not a mutant of this seed")?;
        writeln!(out, "> {name}").map_err(|e| e.to_string())?;
        for resolver in ["cpu", "reference"] {
            for (difference, at) in check(&drawn, resolver, wanted)? {
                let difference = difference.replace(['\n', '\t'], " ");
                writeln!(out, "{name}\t{resolver}\t{difference}\t{at}").map_err(|e| e.to_string())?;
            }
        }
    }
    Ok(())
}

fn run_on_wgpu(seed: u64, first: u64, count: u64) -> Result<(), String> {
    let delegate = WgpuDelegate::new(WgpuOptions::default()).map_err(|e| e.to_string())?;
    let make = Arc::new(move || -> delegraph_core::Result<_> { Ok(Box::new(delegate.clone()) as _) });
    // A mutation may make a loop endless.
    let limits = ResourceLimits::default().with_time(Duration::from_secs(10));
    let backend = Backend::delegate("wgpu", make).with_arithmetic(Arithmetic::Gpu);
    let engine =
        Engine::new(backend.with_configuration(move |builder| builder.limits(limits.clone()))).untimed();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for index in first..first + count {
        let Some(case) = cases::mutant(seed, index as usize) else { continue };
        let Ok(problem) = Problem::of_case(&case, Arithmetic::Gpu) else { continue };
        let mut result = engine.run(&problem, ContractChecks::Skip);
        // Nodes with constant inputs run while preparing: the delegate does not cause the error.
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

/// Returns the differences of all outputs, each with a description of the case, and the deviating elements: `output:element`.
fn check(drawn: &Drawn, resolver: &str, wanted: &[cases::Computed]) -> Result<Vec<(String, String)>, String> {
    let case = drawn.as_case();
    let model = case.build().map_err(|e| e.to_string())?;
    let about = about(case, &model);
    let found = compare(drawn, model, resolver, wanted);
    Ok(found.into_iter().map(|(e, at)| (format!("{e} | {about}"), at)).collect())
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
    if !case.is_single() {
        let node = |n: &Node| format!("{} v{} {:?}", n.op(), n.version(), n.params());
        let tensor = |t: &Tensor| format!("{}{}", t.ty(), t.shape());
        let nodes = list(&mut graph.nodes().iter().map(node));
        return format!("{nodes}, tensors {}", list(&mut graph.tensors().iter().map(tensor)));
    }
    let scales = list(&mut node.into_iter().flat_map(|n| n.inputs().iter().flatten().filter_map(scale)));
    let output = |id: &TensorId| {
        let tensor = graph.tensor(*id);
        format!("{}{}{}", tensor.ty(), tensor.shape(), scale(id).unwrap_or_default())
    };
    let outputs = list(&mut node.into_iter().flat_map(|n| n.outputs().iter().map(output)));
    let node = node.map_or_else(String::new, |n| format!("{} v{} {:?}", n.op(), n.version(), n.params()));
    format!("{} {scales} to {outputs}, {node}, data {:?}", case.describe(), case.specials())
}

fn compare(drawn: &Drawn, model: Model, resolver: &str, wanted: &[cases::Computed]) -> Vec<(String, String)> {
    let case = drawn.as_case();
    let outputs = match resolver {
        "reference" => case.run(model, ReferenceOpResolver::new()),
        _ => case.run(model, BuiltinOpResolver::new()),
    };
    let outputs = match outputs {
        Ok(outputs) if outputs.len() == wanted.len() => outputs,
        Ok(outputs) => {
            let text = format!("{} outputs, expected {}", outputs.len(), wanted.len());
            return vec![(text, String::new())];
        }
        Err(e) => return vec![(format!("error: {e}"), String::new())],
    };
    let steps = u32::from(resolver == "cpu");
    let difference = |(i, (got, want)): (usize, (&cases::Computed, &cases::Computed))| {
        let deviation = match drawn {
            Drawn::Node(case) => case.deviation(got, want, steps),
            Drawn::Graph(chain) => chain.deviation(i, [got, want], steps),
        };
        match deviation {
            Ok(None) => None,
            Ok(Some(deviation)) => {
                let at: Vec<String> = deviation.at.iter().map(|at| format!("{i}:{at}")).collect();
                let text = format!("output {i}: {deviation}{}", evidence(case, i, [got, want], &deviation));
                Some((text, at.join(" ")))
            }
            Err(e) => Some((format!("output {i}: {e}"), String::new())),
        }
    };
    outputs.iter().zip(wanted).enumerate().filter_map(difference).collect()
}

/// Returns the evidence of which of two outputs is right, and the values that cause the difference.
fn evidence(case: &Case, i: usize, outputs: [&cases::Computed; 2], deviation: &Deviation) -> String {
    let at = &deviation.at;
    let mut text = String::new();
    if let Some([here, there]) = case.from_real(i, outputs) {
        let number = |v: f64| if v < 1e-2 { format!("{v:.1e}") } else { format!("{v:.3}") };
        let _ = write!(text, "; from real numbers: here {}, LiteRT {}", number(here), number(there));
    }
    if case.behind_specials(i, at) {
        text += "; all behind NaN, infinity or overflow";
    }
    if case.nan_or_behind_specials(i, outputs[1], at) {
        text += "; all NaN in LiteRT, or behind NaN, infinity or overflow";
    }
    if case.beside_padding_or_behind_specials(i, outputs[1], at) {
        text += "; all beside padding, or behind NaN, infinity or overflow";
    }
    if case.behind_shifts(at) {
        text += "; all behind undefined shifts";
    }
    if case.behind_quotients(i, outputs[1], at) {
        text += "; all behind quotients that exceed 32 bits";
    }
    if case.behind_exponentials(at) {
        text += "; all behind sums of exponentials that overflow";
    }
    if case.within_clamped_sums(i, deviation.max_abs) {
        text += "; within the rounding of sums that the activation clamps";
    }
    if case.within_roundings(i, outputs[1]) {
        text += "; the same with operands that differ in their last bits";
    }
    if case.state_overflows(outputs, at) {
        text += "; all in a state that overflows";
    }
    if outputs.iter().all(|output| case.state_saturates(output)) {
        text += "; a state from -1 to 1";
    }
    if case.amplifies_roundings(i, outputs, at) {
        text += "; less than four times the change by operands that differ in their last bits";
    }
    text
}
