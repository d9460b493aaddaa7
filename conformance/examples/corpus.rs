//! Runs a folder of cases on CPU kernels, in this process, and counts: `corpus DIR [--filter TEXT] [--reference] [--list]`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use delegraph_conformance::corpus;
use delegraph_conformance::engine::{Backend, Kernels};
use delegraph_conformance::runner::Engine;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|a| a == name);
    let filter = arguments.iter().position(|a| a == "--filter").and_then(|i| arguments.get(i + 1));
    let Some(root) = arguments.first() else {
        eprintln!("usage: corpus DIR [--filter TEXT] [--reference] [--list]");
        return ExitCode::from(2);
    };
    let cases = match corpus::find(Path::new(root)) {
        Ok(cases) => cases,
        Err(e) => {
            eprintln!("{root}: {e}");
            return ExitCode::from(4);
        }
    };
    let kernels = if flag("--reference") { Kernels::Reference } else { Kernels::Optimized };
    let engine = Engine::new(Backend::kernels(kernels)).untimed();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for case in cases {
        let name = case.strip_prefix(root).unwrap_or(&case).display().to_string();
        if filter.is_some_and(|f| !name.contains(f.as_str())) {
            continue;
        }
        let result = corpus::run(&case, &name, &engine);
        *counts.entry(result.outcome.name()).or_default() += 1;
        if flag("--list") || !result.outcome.is_fine() {
            let detail = result.detail.lines().next().unwrap_or_default();
            println!("{:12} {name}  {detail}", result.outcome.name());
        }
    }
    println!("{counts:?}");
    ExitCode::from(u8::from(counts.keys().any(|k| !matches!(*k, "pass" | "unsupported"))))
}
