//! Writes models and chooses their op versions again: `rewrite [--write DIR] MODEL|FOLDER…`.
//!
//! Reading, writing and reading again must give the same model. Each op whose lowest sufficient version differs from
//! the declared one is listed, and counted at the end. With `--write`, `DIR/rewritten` and `DIR/restamped` get the
//! files, and `DIR/files.tsv` lists the origin of each, for `scripts/compare_rewritten.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use delegraph_core::{Model, ModelBytes, Result};

#[derive(Default)]
struct Totals {
    files: usize,
    unread: usize,
    unwritten: usize,
    changed: usize,
    nodes: usize,
    /// Nodes by op, the version in the file, and the computed version.
    versions: BTreeMap<(String, u32, u32), usize>,
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut to = None;
    if let Some(i) = arguments.iter().position(|a| a == "--write").filter(|i| i + 1 < arguments.len()) {
        to = Some(PathBuf::from(&arguments[i + 1]));
        arguments.drain(i..i + 2);
    }
    if arguments.is_empty() {
        eprintln!("usage: rewrite [--write DIR] MODEL|FOLDER…");
        return ExitCode::from(2);
    }
    match rewrite(&arguments, to.as_deref()) {
        Ok(totals) => {
            println!(
                "{} files: {} read, {} of them not written, {} not the same after writing and reading",
                totals.files,
                totals.files - totals.unread,
                totals.unwritten,
                totals.changed
            );
            let differ: usize = totals.versions.values().sum();
            println!("{} nodes of builtin ops, {differ} with another version", totals.nodes);
            for ((op, from, to), nodes) in &totals.versions {
                println!("{nodes:7}  {op} {from} -> {to}");
            }
            ExitCode::from(u8::from(totals.unwritten + totals.changed > 0))
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(4)
        }
    }
}

fn rewrite(arguments: &[String], to: Option<&Path>) -> std::io::Result<Totals> {
    let mut files = Vec::new();
    for argument in arguments {
        models(Path::new(argument), &mut files)?;
    }
    let mut totals = Totals { files: files.len(), ..Totals::default() };
    let mut list = String::new();
    for (i, file) in files.iter().enumerate() {
        let model = match Model::from_bytes_named(ModelBytes::new(fs::read(file)?), file.clone()) {
            Ok(model) => model,
            Err(e) => {
                totals.unread += 1;
                println!("not read: {}: {}", file.display(), first_line(&e));
                continue;
            }
        };
        let written = match again(&model) {
            Ok((bytes, None)) => bytes,
            Ok((_, Some(difference))) => {
                totals.changed += 1;
                println!("not the same: {}: {difference}", file.display());
                continue;
            }
            Err(e) => {
                totals.unwritten += 1;
                println!("not written: {}: {}", file.display(), first_line(&e));
                continue;
            }
        };
        let nodes = model.subgraphs().iter().flat_map(|g| g.nodes());
        totals.nodes += nodes.filter(|n| n.op().builtin().is_some()).count();
        let mut stamped = model;
        let restamped = match stamped.restamp().and_then(|report| Ok((report, stamped.to_bytes()?))) {
            Ok((report, bytes)) => {
                for op in report.ops {
                    println!("{}: {} {} -> {}", file.display(), op.op, op.from, op.to);
                    *totals.versions.entry((op.op.to_string(), op.from, op.to)).or_default() +=
                        op.nodes.len();
                }
                bytes
            }
            Err(e) => {
                totals.unwritten += 1;
                println!("not restamped: {}: {}", file.display(), first_line(&e));
                continue;
            }
        };
        if let Some(to) = to {
            for (kind, bytes) in [("rewritten", written), ("restamped", restamped)] {
                fs::create_dir_all(to.join(kind))?;
                fs::write(to.join(kind).join(format!("{i}.tflite")), bytes)?;
            }
            list += &format!("{i}\t{}\n", file.display());
        }
    }
    if let Some(to) = to {
        fs::create_dir_all(to)?;
        fs::write(to.join("files.tsv"), list)?;
    }
    Ok(totals)
}

/// Returns the written model, and the first difference after reading it again.
fn again(model: &Model) -> Result<(Vec<u8>, Option<String>)> {
    let bytes = model.to_bytes()?;
    let read = Model::from_bytes(ModelBytes::new(bytes.clone()))?;
    Ok((bytes, model.difference(&read)))
}

/// Adds `path` itself to `files` if it is a file, else all `.tflite` files below it, by name.
fn models(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    let mut entries = fs::read_dir(path)?.map(|e| Ok(e?.path())).collect::<std::io::Result<Vec<_>>>()?;
    entries.sort();
    for entry in entries {
        if entry.is_dir() || entry.extension().is_some_and(|e| e == "tflite") {
            models(&entry, files)?;
        }
    }
    Ok(())
}

fn first_line(error: &delegraph_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
