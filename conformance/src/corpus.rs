//! Cases that others made: folders with a model, inputs and expected outputs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use delegraph_core::error::{Error, ErrorKind};
use delegraph_core::{Model, ModelBytes, TensorType};
use delegraph_interpreter::{Interpreter, InterpreterBuilder};
use serde::Deserialize;

use crate::compare::{Tolerance, compare, numbers};
use crate::npy::{Array, trimmed};

/// What came of a case.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Every output is as expected.
    Pass,
    /// An output differs.
    Mismatch(String),
    /// The model asks for something that is not supported.
    Unsupported(String),
    /// The model or an input is invalid.
    Invalid(String),
    /// It ran, and failed.
    Error(String),
}

impl Outcome {
    /// The name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Mismatch(_) => "mismatch",
            Outcome::Unsupported(_) => "unsupported",
            Outcome::Invalid(_) => "invalid",
            Outcome::Error(_) => "error",
        }
    }

    /// What went wrong, if anything.
    pub fn detail(&self) -> &str {
        match self {
            Outcome::Pass => "",
            Outcome::Mismatch(s) | Outcome::Unsupported(s) | Outcome::Invalid(s) | Outcome::Error(s) => s,
        }
    }
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error.kind() {
            ErrorKind::Invalid => Outcome::Invalid(text),
            ErrorKind::Unsupported => Outcome::Unsupported(text),
            ErrorKind::Failed => Outcome::Error(text),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
struct CaseFile {
    signature: Option<String>,
    #[serde(default)]
    inputs: BTreeMap<String, String>,
    #[serde(default)]
    expected: BTreeMap<String, String>,
    tolerance: Option<CaseTolerance>,
}

#[derive(Debug, Default, Deserialize)]
struct CaseTolerance {
    abs: Option<f64>,
    rel: Option<f64>,
    quantum: Option<u32>,
}

/// Every case below `root`: folders that hold a `model.tflite`, sorted by path.
pub fn find(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut cases = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        if folder.join("model.tflite").is_file() {
            cases.push(folder);
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    cases.sort();
    Ok(cases)
}

/// Runs the case in `folder` on an interpreter that `configure` sets up.
pub fn run(folder: &Path, configure: impl FnOnce(InterpreterBuilder) -> InterpreterBuilder) -> Outcome {
    run_case(folder, configure).unwrap_or_else(|outcome| outcome)
}

fn run_case(
    folder: &Path,
    configure: impl FnOnce(InterpreterBuilder) -> InterpreterBuilder,
) -> Result<Outcome, Outcome> {
    let read = |name: &str| {
        fs::read(folder.join(name))
            .map_err(|e| Outcome::Invalid(format!("{}: {e}", folder.join(name).display())))
    };
    let case: CaseFile = match fs::read(folder.join("case.json")) {
        Ok(text) => serde_json::from_slice(&text).map_err(|e| Outcome::Invalid(format!("case.json: {e}")))?,
        Err(_) => CaseFile::default(),
    };
    let model = Model::from_bytes_named(ModelBytes::new(read("model.tflite")?), folder.join("model.tflite"))?;
    let mut interpreter = configure(Interpreter::builder(model).prepare_later()).build()?;
    let (mut inputs, mut outputs) = (BTreeMap::new(), BTreeMap::new());
    if let Some(key) = &case.signature {
        let signature = interpreter.select_signature(key)?;
        let subgraph = &interpreter.model().subgraphs[signature.subgraph];
        let place = |ids: &[_], id| ids.iter().position(|i| *i == id).unwrap_or(0);
        inputs = signature.inputs.iter().map(|(n, id)| (n.clone(), place(&subgraph.inputs, *id))).collect();
        outputs =
            signature.outputs.iter().map(|(n, id)| (n.clone(), place(&subgraph.outputs, *id))).collect();
    }
    let numbered = |what: &str| {
        (0..)
            .map_while(|i| {
                let name = format!("{what}_{i}.npy");
                folder.join(&name).is_file().then_some((i, name))
            })
            .collect::<Vec<_>>()
    };
    let named = |files: &BTreeMap<String, String>, places: &BTreeMap<String, usize>| {
        let place = |(name, file): (&String, &String)| match places.get(name) {
            Some(&i) => Ok((i, file.clone())),
            None => Err(Outcome::Invalid(format!(
                "case.json names \"{name}\", which the signature does not have"
            ))),
        };
        files.iter().map(place).collect::<Result<Vec<_>, _>>()
    };
    let feeds = if case.inputs.is_empty() { numbered("input") } else { named(&case.inputs, &inputs)? };
    let mut arrays = Vec::new();
    for (i, file) in feeds {
        let array = Array::parse(&read(&file)?).map_err(|e| Outcome::Invalid(format!("{file}: {e}")))?;
        interpreter.resize_input(i, &array.shape)?;
        arrays.push((i, file, array));
    }
    for (i, file, array) in arrays {
        interpreter.prepare()?;
        let ty = interpreter.input_tensor(i)?.ty;
        let bytes = array.into_bytes(ty).map_err(|e| Outcome::Invalid(format!("{file}: {e}")))?;
        interpreter.set_input_bytes(i, &bytes).map_err(|e| Outcome::Invalid(format!("{file}: {e}")))?;
    }
    interpreter.invoke()?;
    let wanted =
        if case.expected.is_empty() { numbered("expected") } else { named(&case.expected, &outputs)? };
    for (i, file) in wanted {
        let expected = Array::parse(&read(&file)?).map_err(|e| Outcome::Invalid(format!("{file}: {e}")))?;
        check_output(&interpreter, i, &expected, case.tolerance.as_ref())?;
    }
    Ok(Outcome::Pass)
}

fn check_output(
    interpreter: &Interpreter,
    i: usize,
    expected: &Array,
    own: Option<&CaseTolerance>,
) -> Result<(), Outcome> {
    let output = interpreter.output_tensor(i)?;
    if output.shape.dims() != expected.shape {
        let text = format!("output {i} has shape {}, expected {:?}", output.shape, expected.shape);
        return Err(Outcome::Mismatch(text));
    }
    if let Some(want) = expected.as_strings() {
        let got = output.strings()?;
        if got.iter().map(trimmed).eq(want.iter()) {
            return Ok(());
        }
        return Err(Outcome::Mismatch(format!("output {i} ({}): strings differ", output.shape)));
    }
    let (Some(want), Some(got)) =
        (expected.numbers(), unpacked(output.ty, output.bytes(), output.shape.elements()))
    else {
        return Err(Outcome::Unsupported(format!("output {i} is {}, which is not compared yet", output.ty)));
    };
    let mut tolerance = Tolerance::of(output.ty, output.quantization.is_some());
    if let Some(own) = own {
        tolerance.abs = own.abs.unwrap_or(tolerance.abs);
        tolerance.rel = own.rel.unwrap_or(tolerance.rel);
        tolerance.quantum = own.quantum.unwrap_or(tolerance.quantum);
    }
    let result = compare(&got, &want, tolerance);
    if result.passes() {
        return Ok(());
    }
    let (max, allowed) = (result.max_abs, result.allowed);
    Err(Outcome::Mismatch(format!(
        "output {i} ({} {}): largest difference {max:e}, allowed {allowed:e}",
        output.ty, output.shape
    )))
}

/// The elements of an output as numbers; packed 4-bit and 2-bit types are widened, low bits first.
fn unpacked(ty: TensorType, bytes: &[u8], elements: usize) -> Option<Vec<f64>> {
    let bits = ty.bits().filter(|b| *b < 8);
    let Some(bits) = bits else { return numbers(ty, bytes) };
    let signed = ty != TensorType::UInt4;
    let value = |i: usize| {
        let raw = (bytes.get(i * bits / 8).copied().unwrap_or(0) >> (i * bits % 8)) & ((1 << bits) - 1);
        let shift = 8 - bits;
        if signed { f64::from(((raw << shift) as i8) >> shift) } else { f64::from(raw) }
    };
    Some((0..elements).map(value).collect())
}
