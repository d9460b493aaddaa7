//! Runs a folder of cases on CPU kernels and counts: `corpus DIR [--filter TEXT] [--reference] [--list]`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use delegraph_conformance::corpus;
use delegraph_interpreter::ReferenceOpResolver;

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
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for case in cases {
        let name = case.strip_prefix(root).unwrap_or(&case).display().to_string();
        if filter.is_some_and(|f| !name.contains(f.as_str())) {
            continue;
        }
        let outcome = corpus::run(&case, |builder| {
            if flag("--reference") { builder.resolver(ReferenceOpResolver::new()) } else { builder }
        });
        *counts.entry(outcome.name()).or_default() += 1;
        if flag("--list") || !matches!(outcome.name(), "pass" | "unsupported") {
            println!("{:12} {name}  {}", outcome.name(), outcome.detail().lines().next().unwrap_or_default());
        }
    }
    println!("{counts:?}");
    ExitCode::from(u8::from(counts.keys().any(|k| !matches!(*k, "pass" | "unsupported"))))
}
