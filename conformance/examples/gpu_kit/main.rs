//! The program of the kit for GPUs that `make gpu-kit` builds: it runs all measurements of the kit on one adapter, and
//! writes `kit.json` and `kit.html`.
//!
//! `gpu_kit OUT [--adapter NAME] [--seconds N]`, in the folder `bin` of a kit; `gpu_kit --page kit.json kit.html` writes the
//! page of results again. Every part has a time limit. The result names the parts that were ended early or left out.
#![allow(missing_docs, reason = "a program")]

mod page;
mod parts;
mod process;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The maximum time of all parts together, in seconds.
const SECONDS: f64 = 585.0;

const USAGE: &str =
    "usage: run.sh OUT [--adapter NAME] [--seconds N]\n       gpu_kit --page kit.json kit.html";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--page", from, to] => read(Path::new(from)).and_then(|kit| write(Path::new(to), &page::html(&kit))),
        [out, options @ ..] if !out.starts_with('-') => options_of(options).and_then(|o| run(out, &o)),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    adapter: Option<String>,
    seconds: f64,
}

fn options_of(words: &[&str]) -> Result<Options, String> {
    let mut options = Options { adapter: None, seconds: SECONDS };
    for pair in words.chunks(2) {
        match pair {
            ["--adapter", name] if !name.is_empty() => options.adapter = Some((*name).into()),
            ["--seconds", number] => {
                let seconds = number.parse().ok().filter(|s| (30.0..=86_400.0).contains(s));
                options.seconds = seconds.ok_or_else(|| format!("--seconds {number}: from 30 to 86400"))?;
            }
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

fn run(out: &str, options: &Options) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| format!("the kit's folder is unknown: {e}"))?;
    let kit = program.parent().and_then(Path::parent).ok_or("the kit's folder is unknown")?;
    let out = PathBuf::from(out);
    std::fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    // Programs run in other folders.
    let out = out.canonicalize().map_err(|e| format!("{}: {e}", out.display()))?;
    let result = parts::run(kit, &out, options.adapter.as_deref(), options.seconds)?;
    let json = serde_json::to_string_pretty(&result).map_err(|e| e.to_string())?;
    write(&out.join("kit.json"), &(json + "\n"))?;
    write(&out.join("kit.html"), &page::html(&result))?;
    println!("\n{}", page::summary(&result));
    println!("{} and kit.html beside it have the details", out.join("kit.json").display());
    Ok(())
}

fn read(path: &Path) -> Result<parts::Kit, String> {
    let text = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_slice(&text).map_err(|e| format!("{}: not a result of the kit: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let options =
            options_of(&["--adapter", "Radeon", "--seconds", "60"]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((options.adapter.as_deref(), options.seconds), (Some("Radeon"), 60.0));
        for wrong in [&["--seconds", "5"][..], &["--seconds"], &["--adapter", ""], &["--what", "1"]] {
            assert!(options_of(wrong).is_err(), "{wrong:?}");
        }
    }
}
