//! `run`: a model's outputs for given inputs.

use std::path::{Path, PathBuf};

use delegraph::core::kernel::RuntimeTensor;
use delegraph::core::printable;
use serde::Serialize;

use super::delegates::{Delegation, Engine};
use super::failure::{Exit, Failure};
use super::files::{cannot_write, check_folder};
use super::inputs::{Entry, InputFile, Resize};
use super::model::ModelArgument;
use super::numbers::{ANY, whole};
use super::output::{Document, Output, table};
use super::text::shown;
use super::values::{Summary, Values};

mod batch;
mod records;

/// Run a model once, or on many records
///
/// With --inputs, each record is a .npy file, or a folder with input_0.npy, input_1.npy, …; its outputs are written to
/// DIR/RECORD/output_0.npy, …, and results.csv has a row for each. A record that fails does not end the others.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArgument,
    /// Run this entry point; `inspect` lists them
    #[arg(long, value_name = "KEY")]
    signature: Option<String>,
    /// Data of an input, which gets the shape of the array. Without a name, in the order of the model's inputs; a missing
    /// one is filled with seeded random data
    #[arg(long = "input", value_name = "[NAME=]FILE.npy")]
    inputs: Vec<InputFile>,
    /// Give an input another shape
    #[arg(long = "resize", value_name = "NAME=1x224x224x3")]
    resizes: Vec<Resize>,
    /// Seed of the random data
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>(0..=ANY), allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    engine: Engine,
    /// Write outputs to DIR/output_0.npy, output_1.npy, … instead of printing a summary of each
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Run a batch: the .npy files below a folder, those that match a pattern ("clips/**/*.npy"), or a file with a record
    /// a line: [NAME=]FILE.npy, separated by tabs where there are several inputs
    #[arg(long = "inputs", value_name = "DIR|GLOB|LIST", requires = "output_dir", help_heading = "Batches")]
    records: Option<String>,
    /// Records that run at the same time, each on `--threads` [default: one per core]
    #[arg(long, value_name = "N", requires = "records", help_heading = "Batches", value_parser = whole::<u16>(1..=1024), allow_negative_numbers = true)]
    jobs: Option<u16>,
    /// Continue an interrupted batch: records with outputs are kept, failed ones run again
    #[arg(long, requires = "records", help_heading = "Batches")]
    resume: bool,
}

#[derive(Serialize)]
struct Run {
    model: String,
    signature: Option<String>,
    delegate: String,
    threads: usize,
    inputs: Vec<InputLine>,
    outputs: Vec<OutputLine>,
    #[serde(flatten)]
    delegation: Delegation,
}

#[derive(Serialize)]
struct InputLine {
    name: String,
    tensor: String,
    r#type: &'static str,
    shape: Vec<usize>,
    /// The shape of the input before it got that of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    resized_from: Option<Vec<usize>>,
    /// The source of the data; random data without a file.
    file: Option<String>,
}

#[derive(Serialize)]
struct OutputLine {
    name: String,
    tensor: String,
    r#type: &'static str,
    shape: Vec<usize>,
    #[serde(flatten)]
    summary: Summary,
    /// The path of the written file.
    file: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    if let Some(folder) = &arguments.output_dir {
        check_folder("--output-dir", folder)?;
    }
    if let Some(records) = &arguments.records {
        return batch::run(arguments, records, out);
    }
    let model = arguments.model.load()?;
    let mut interpreter = arguments.engine.build_later(model)?;
    let entry = Entry::select(&mut interpreter, arguments.signature.as_deref())?;
    let filled = entry.fill(&mut interpreter, &arguments.inputs, &arguments.resizes, arguments.seed)?;
    filled.invoke(&mut interpreter)?;

    let mut inputs = Vec::new();
    let files = filled.files.into_iter().zip(filled.earlier);
    for (i, (port, (file, resized_from))) in entry.inputs.into_iter().zip(files).enumerate() {
        let tensor = interpreter.input_tensor(i)?;
        let (r#type, shape) = (tensor.ty.name(), tensor.shape.to_vec());
        inputs.push(InputLine {
            name: port.name,
            tensor: port.tensor,
            r#type,
            shape,
            resized_from,
            file: file.map(shown),
        });
    }
    let mut outputs = Vec::new();
    for (i, port) in entry.outputs.into_iter().enumerate() {
        let tensor = interpreter.output_tensor(i)?;
        let file = arguments.output_dir.as_ref().map(|dir| dir.join(format!("output_{i}.npy")));
        if let Some(file) = &file {
            write_output(tensor, file)?;
        }
        let (r#type, shape) = (tensor.ty.name(), tensor.shape.to_vec());
        let summary = Values::of(tensor)?.summary();
        let file = file.as_deref().map(shown);
        outputs.push(OutputLine { name: port.name, tensor: port.tensor, r#type, shape, summary, file });
    }
    out.print(&Run {
        model: arguments.model.name(),
        signature: arguments.signature.clone(),
        delegate: arguments.engine.label(),
        threads: interpreter.threads(),
        inputs,
        outputs,
        delegation: arguments.engine.delegation(&interpreter, entry.subgraph),
    })?;
    Ok(Exit::Fine)
}

/// Writes an output, and makes its folder.
fn write_output(tensor: &RuntimeTensor, file: &Path) -> Result<(), Failure> {
    let values = Values::of(tensor)?;
    std::fs::create_dir_all(file.parent().unwrap_or(file)).map_err(|e| cannot_write(file, &e))?;
    values.write(file).map_err(|e| cannot_write(file, &e))
}

impl Document for Run {
    fn text(&self) -> String {
        let mut text = String::new();
        if self.outputs.iter().all(|o| o.file.is_none()) {
            let header = ["output", "type", "shape", "min", "max", "mean", "first values"];
            text += &table(&header, &[3, 4, 5], self.outputs.iter().map(OutputLine::row));
            for output in self.outputs.iter().filter(|o| o.summary.nan + o.summary.infinite > 0) {
                let Summary { nan, infinite, .. } = output.summary;
                text += &format!("{}: {nan} NaN, {infinite} infinite\n", printable(&output.name));
            }
        }
        for file in self.outputs.iter().filter_map(|o| o.file.as_ref()) {
            text += &format!("{}\n", printable(file));
        }
        for input in &self.inputs {
            if let (Some(earlier), Some(file)) = (&input.resized_from, &input.file) {
                let (name, shape) = (printable(&input.name), &input.shape);
                let file = printable(file);
                text += &format!("{name} has the shape of {file}: {shape:?} instead of {earlier:?}\n");
            }
        }
        text + &self.delegation.text()
    }
}

impl OutputLine {
    fn row(&self) -> Vec<String> {
        let s = &self.summary;
        let number = |v: Option<f64>| v.map_or_else(|| "-".into(), short);
        let strings = s.strings.iter().map(|s| format!("{s:?}"));
        let first: Vec<String> = s.first.iter().copied().map(short).chain(strings).collect();
        let more = if s.elements > first.len() { " …" } else { "" };
        vec![
            self.name.clone(),
            self.r#type.into(),
            format!("{:?}", self.shape),
            number(s.min),
            number(s.max),
            number(s.mean),
            first.join(" ") + more,
        ]
    }
}

/// A number in few characters: integers unchanged, others with five significant digits.
fn short(v: f64) -> String {
    if v.fract() == 0.0 && v.abs() < 1e15 {
        format!("{v}")
    } else if v != 0.0 && !(1e-3..1e6).contains(&v.abs()) {
        format!("{v:.4e}")
    } else {
        let digits = 4 - v.abs().log10().floor().clamp(-3.0, 4.0) as i32;
        format!("{v:.*}", digits.clamp(0, 7) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn short_numbers() {
        let check = |v: f64, want: &str| assert_eq!(short(v), want);
        check(3.0, "3");
        check(-128.0, "-128");
        check(0.123456, "0.12346");
        check(-12.34567, "-12.346");
        check(1.0e-7, "1.0000e-7");
        check(123456.7, "123457");
        check(f64::NAN, "NaN");
    }
}
