//! `overruns [--on cpu,reference] [--megabytes N] [--threads N] [--only TEXT] FOLDER…` finds work that a time limit does
//! not end.
//!
//! The models are the cases of the conformance suite and those below the folders, of at most two nodes; of models whose
//! operators, types and ranks are equal, only the first is used. Each dimension of the input with the most dimensions is
//! enlarged in turn, until the inputs of its shape have N million bytes together (64 by default), and the model is
//! prepared and run with a time limit of 50 ms for each, by one thread or as many as given. Calls that take 150 ms of
//! processor time more, per thread, are printed, and the exit status is 1.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use delegraph_core::{Error, Model, ModelBytes, TensorType};
use delegraph_fuzz::{measure, seeds};
use delegraph_interpreter::{BuiltinOpResolver, Interpreter, ReferenceOpResolver, ResourceLimits};

const MEMORY: usize = 1 << 30;
const TIME: Duration = Duration::from_millis(50);
/// More than a limit may be exceeded by: touching the pages of the outputs takes some of it.
const ALLOWED: Duration = Duration::from_millis(150);
/// Larger shapes are not dimensions of any model.
const MAX_EXTENT: usize = 1 << 30;

struct Options {
    on: Vec<String>,
    bytes: usize,
    threads: usize,
    only: String,
    folders: Vec<PathBuf>,
}

impl Options {
    fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let on = ["cpu", "reference"].map(str::to_owned).to_vec();
        let mut options =
            Options { on, bytes: 64_000_000, threads: 1, only: String::new(), folders: Vec::new() };
        let mut words = words;
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} takes a value"));
            match word.as_str() {
                "--on" => options.on = value()?.split(',').map(str::to_owned).collect(),
                "--megabytes" => {
                    let megabytes = value()?;
                    let bytes = megabytes.parse::<usize>().ok().and_then(|n| n.checked_mul(1_000_000));
                    options.bytes = bytes.ok_or_else(|| format!("--megabytes {megabytes}: not a size"))?;
                }
                "--threads" => {
                    let threads = value()?;
                    options.threads = threads.parse().map_err(|e| format!("--threads {threads}: {e}"))?;
                }
                "--only" => options.only = value()?,
                folder if !folder.starts_with('-') => options.folders.push(folder.into()),
                _ => return Err(format!("{word} is not an option")),
            }
        }
        match options.on.iter().find(|on| !["cpu", "reference"].contains(&on.as_str())) {
            Some(other) => Err(format!("--on {other}: there are cpu, reference")),
            None => Ok(options),
        }
    }
}

fn main() -> ExitCode {
    let result = Options::parse(std::env::args().skip(1)).and_then(|options| search(&options));
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Returns the number of overruns.
fn search(options: &Options) -> Result<usize, String> {
    let mut files = seeds::cases();
    for folder in &options.folders {
        collect(folder, &mut files).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let models = files.into_iter().filter_map(|file| Model::from_bytes(ModelBytes::new(file)).ok());
    let threads = u32::try_from(options.threads).unwrap_or(u32::MAX);
    let (mut seen, mut runs, mut found) = (HashSet::new(), 0, 0);
    for model in models {
        let Some(kind) = kind(&model).filter(|kind| kind.contains(&options.only)) else { continue };
        if !seen.insert(kind.clone()) {
            continue;
        }
        let Some(enlarged) = enlarged(&model, options.bytes) else { continue };
        for on in &options.on {
            for shapes in &enlarged {
                runs += 1;
                for (call, time) in run(&model, on, options.threads, shapes).unwrap_or_default() {
                    if time > (TIME + ALLOWED).saturating_mul(threads) {
                        found += 1;
                        println!("{time:.2?} to {call} on {on}: {kind}, inputs {shapes:?}");
                    }
                }
            }
        }
    }
    println!("{} kinds of models, {runs} runs: {found} overruns", seen.len());
    Ok(found)
}

/// Adds the models below a folder.
fn collect(folder: &Path, files: &mut Vec<Vec<u8>>) -> std::io::Result<()> {
    let mut paths =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|ending| ending == "tflite") {
            files.push(fs::read(&path)?);
        }
    }
    Ok(())
}

/// Operators, types and ranks of a small model; `None` for one of more nodes.
fn kind(model: &Model) -> Option<String> {
    let subgraph = model.subgraph(0)?;
    let nodes = subgraph.nodes();
    if nodes.is_empty() || nodes.len() > 2 {
        return None;
    }
    let ops: Vec<String> = nodes.iter().map(|node| node.op().to_string()).collect();
    let kinds = |ids: &[delegraph_core::graph::TensorId]| -> Vec<String> {
        let tensors = ids.iter().map(|id| subgraph.tensor(*id));
        tensors.map(|tensor| format!("{}/{}", tensor.ty(), tensor.shape().rank())).collect()
    };
    Some(format!(
        "{} of {} to {}",
        ops.join(" "),
        kinds(subgraph.inputs()).join(" "),
        kinds(subgraph.outputs()).join(" ")
    ))
}

/// The inputs of one shape, and their enlarged shape.
type Shapes = Vec<(usize, Vec<usize>)>;

/// The ways of enlarging one dimension of the input that has the most, and of inputs of the same shape.
fn enlarged(model: &Model, bytes: usize) -> Option<Vec<Shapes>> {
    let interpreter = Interpreter::builder(model.clone()).prepare_later().build().ok()?;
    let tensors = (0..interpreter.input_count()).map(|i| interpreter.input_tensor(i).ok());
    let inputs: Vec<(Vec<usize>, TensorType)> =
        tensors.collect::<Option<Vec<_>>>()?.iter().map(|t| (t.shape.to_vec(), t.ty)).collect();
    let (shape, _) = inputs.iter().max_by_key(|(shape, _)| shape.len())?;
    let same: Vec<usize> = (0..inputs.len()).filter(|&i| inputs[i].0 == *shape).collect();
    // Strings have no size; they are empty.
    let size: usize = same.iter().map(|&i| inputs[i].1.byte_size(1).unwrap_or(4)).sum();
    let shape: Vec<usize> = shape.iter().map(|extent| (*extent).max(1)).collect();
    let ways = (0..shape.len()).map(|d| {
        let others: usize =
            shape.iter().enumerate().filter(|(i, _)| *i != d).map(|(_, extent)| extent).product();
        let mut large = shape.clone();
        large[d] = (bytes / size.max(1) / others).clamp(1, MAX_EXTENT);
        same.iter().map(|&i| (i, large.clone())).collect()
    });
    Some(ways.collect())
}

/// Prepares and invokes; returns the processor time of each.
fn run(
    model: &Model,
    on: &str,
    threads: usize,
    shapes: &Shapes,
) -> Result<[(&'static str, Duration); 2], Error> {
    let limits = ResourceLimits::default().with_memory(MEMORY).with_time(TIME);
    let builder = Interpreter::builder(model.clone()).limits(limits).threads(threads).prepare_later();
    let mut interpreter = match on {
        "reference" => builder.resolver(ReferenceOpResolver::new()),
        _ => builder.resolver(BuiltinOpResolver::new()),
    }
    .build()?;
    for (i, shape) in shapes {
        interpreter.resize_input(*i, shape)?;
    }
    // Work that is ended in time is an error as well.
    let mut timed = |call: fn(&mut Interpreter) -> Result<(), Error>| {
        let start = measure::processor_time();
        let _ = call(&mut interpreter);
        measure::processor_time().saturating_sub(start)
    };
    Ok([("prepare", timed(Interpreter::prepare)), ("invoke", timed(Interpreter::invoke))])
}
