//! Writes every case as a folder: `make_cases DIR [--probe]`.
//!
//! A folder holds `model.tflite`, `input_S_N.npy` for input N in step S, and `case.txt`: name, fingerprint, op, type,
//! steps, and whether its outputs are compared.
//! With `--probe`, each case is written in every other type of its data operand, valid or not, to find the types that
//! LiteRT accepts.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use delegraph_conformance::cases::{self, Case, Verdict};
use delegraph_conformance::npy;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(root) = arguments.first().filter(|a| !a.starts_with('-')) else {
        eprintln!("usage: make_cases DIR [--probe]");
        return ExitCode::from(2);
    };
    let mut written = cases::all();
    let probe = arguments.iter().any(|a| a == "--probe");
    if probe {
        written = cases::probes(&written);
    }
    let mut failed = false;
    for case in written {
        // Some types cannot be written at all.
        if let Err(e) = write(Path::new(root), &case)
            && !probe
        {
            eprintln!("{}: {e}", case.name);
            failed = true;
        }
    }
    ExitCode::from(u8::from(failed))
}

fn write(root: &Path, case: &Case) -> Result<(), String> {
    let model = case.build().map_err(|e| e.to_string())?;
    let folder = root.join(&case.name);
    let text = |e: std::io::Error| e.to_string();
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
    let compared = if matches!(case.verdict, Verdict::NotCompared(_)) { "not_compared" } else { "compared" };
    let (fingerprint, steps) = (case.fingerprint(&model), case.steps);
    let line = format!("{}\t{fingerprint:016x}\t{op}\t{ty}\t{steps}\t{compared}\n", case.name);
    fs::write(folder.join("case.txt"), line).map_err(text)
}
