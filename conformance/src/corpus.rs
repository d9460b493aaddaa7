//! Cases as folders: those of other projects, and the built-in cases written to files.
//!
//! A folder holds `model.tflite`, `input_0.npy`, … and `expected_0.npy`, …. An optional `case.json` has further
//! settings, see [`CaseFile`]. The folder of a case with several invocations has the first of them, and `step_1`,
//! `step_2`, … have the others, so that a reader that supports single invocations runs the first one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use delegraph_core::types::read_regular;
use delegraph_core::{Model, ModelBytes, TensorType};
use delegraph_interpreter::Interpreter;
use serde::{Deserialize, Serialize};

use crate::engine::{Answers, CaseFailure, CaseResult, Feed, GivenTolerance, Outcome, Problem, Step};
use crate::error::Error;
use crate::npy::{self, Array};
use crate::runner::{ContractChecks, Engine, answer};

/// `case.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CaseFile {
    /// The signature to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The file of each input of the signature.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, String>,
    /// The file of each output of the signature.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub expected: BTreeMap<String, String>,
    /// The allowed difference of outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<GivenTolerance>,
    /// Tags to select the case by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Its origin, for readers only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
}

/// Returns every case below `root`: folders that hold a `model.tflite`, sorted by path.
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

/// Runs the case in `folder`; the result is named `name`.
pub fn run(folder: &Path, name: &str, engine: &Engine) -> CaseResult {
    engine.run_made(name, || load(folder, name), ContractChecks::Skip)
}

/// Reads the case in `folder`.
///
/// # Errors
/// The outcome of a case that cannot be read.
pub fn load(folder: &Path, name: &str) -> Result<Problem, CaseFailure> {
    let invalid = |text: String| CaseFailure::new(Outcome::Invalid, text);
    let read = |file: &Path| {
        read_regular(folder.join(file)).map_err(|e| invalid(format!("{}: {e}", folder.join(file).display())))
    };
    let case: CaseFile = match read_regular(folder.join("case.json")) {
        Ok(text) => serde_json::from_slice(&text).map_err(|e| invalid(format!("case.json: {e}")))?,
        Err(_) => CaseFile::default(),
    };
    let bytes = ModelBytes::new(read(Path::new("model.tflite"))?);
    let model = Model::from_bytes_named(bytes, folder.join("model.tflite"))
        .map_err(|e| CaseFailure::new(crate::engine::outcome_of(&e), e.to_string()))?;
    let places = Places::of(&model, case.signature.as_deref()).map_err(invalid)?;
    let mut steps = Vec::new();
    for number in 0usize.. {
        let sub = if number > 0 { PathBuf::from(format!("step_{number}")) } else { PathBuf::new() };
        if number > 0 && !folder.join(&sub).is_dir() {
            break;
        }
        let numbered = |what: &str| {
            let file = |i: usize| sub.join(format!("{what}_{i}.npy"));
            let there = |i: usize| folder.join(file(i)).is_file().then(|| (i, file(i)));
            (0..).map_while(there).collect::<Vec<_>>()
        };
        let named = |files: &BTreeMap<String, String>, places: &BTreeMap<String, usize>| {
            let place = |(name, file): (&String, &String)| match places.get(name) {
                Some(&i) => Ok((i, sub.join(file))),
                None => {
                    Err(invalid(format!("case.json names \"{name}\", which the signature does not have")))
                }
            };
            files.iter().map(place).collect::<Result<Vec<_>, _>>()
        };
        let feeds = match case.inputs.is_empty() {
            true => numbered("input"),
            false => named(&case.inputs, &places.inputs)?,
        };
        let wanted = match case.expected.is_empty() {
            true => numbered("expected"),
            false => named(&case.expected, &places.outputs)?,
        };
        let array =
            |file: &Path| Array::parse(&read(file)?).map_err(|e| invalid(format!("{}: {e}", file.display())));
        let mut step = Step::default();
        for (input, file) in feeds {
            let array = array(&file)?;
            let ty = places
                .input_type(&model, input)
                .ok_or_else(|| invalid(format!("{}: there is no input {input}", file.display())))?;
            let shape = array.shape.clone();
            let bytes = array.into_bytes(ty).map_err(|e| invalid(format!("{}: {e}", file.display())))?;
            step.feeds.push(Feed { input, shape, bytes });
        }
        for (output, file) in wanted {
            step.expected.push((output, array(&file)?.into_output()));
        }
        steps.push(step);
    }
    let mut problem = Problem::of_model(name.into(), model, steps, case.tolerance.unwrap_or_default());
    (problem.signature, problem.tags) = (case.signature, case.tags);
    Ok(problem)
}

/// The indices of a signature's inputs and outputs among those of its subgraph.
struct Places {
    subgraph: usize,
    inputs: BTreeMap<String, usize>,
    outputs: BTreeMap<String, usize>,
}

impl Places {
    fn of(model: &Model, signature: Option<&str>) -> Result<Self, String> {
        let Some(key) = signature else {
            return Ok(Places { subgraph: 0, inputs: BTreeMap::new(), outputs: BTreeMap::new() });
        };
        let unknown = || {
            let keys: Vec<&str> = model.signatures().iter().map(|s| s.key()).collect();
            format!("no signature \"{key}\"; the model has: {}", keys.join(", "))
        };
        let signature = model.signature(key).ok_or_else(unknown)?;
        let subgraph = model.subgraphs().get(signature.subgraph()).ok_or_else(unknown)?;
        let place = |ids: &[_], id| ids.iter().position(|i| *i == id).unwrap_or(0);
        let inputs = signature.inputs().iter().map(|(n, id)| (n.clone(), place(subgraph.inputs(), *id)));
        let outputs = signature.outputs().iter().map(|(n, id)| (n.clone(), place(subgraph.outputs(), *id)));
        Ok(Places { subgraph: signature.subgraph(), inputs: inputs.collect(), outputs: outputs.collect() })
    }

    fn input_type(&self, model: &Model, input: usize) -> Option<TensorType> {
        let subgraph = model.subgraphs().get(self.subgraph)?;
        subgraph.inputs().get(input).map(|id| subgraph.tensor(*id).ty())
    }
}

/// Writes a problem as a folder that [`load`] reads. The expected outputs are those of the problem or, if there are
/// none, those that the reference kernels compute.
///
/// # Errors
/// [`Error::Invalid`] and [`Error::Model`] if outputs cannot be computed, [`Error::Io`] if a file cannot be written.
pub fn write(problem: &Problem, folder: &Path) -> Result<(), Error> {
    let steps = match &problem.answers {
        Answers::Given(_) => problem.steps.clone(),
        _ => answer(problem)?,
    };
    let put = |path: PathBuf, bytes: &[u8]| fs::write(&path, bytes).map_err(|e| Error::io(path, e));
    let mut interpreter = Interpreter::builder(problem.model.clone()).prepare_later().build()?;
    let places = Places::of(&problem.model, problem.signature.as_deref()).map_err(Error::invalid)?;
    if let Some(signature) = &problem.signature {
        interpreter.select_signature(signature)?;
    }
    for (number, step) in steps.iter().enumerate() {
        let folder = if number > 0 { folder.join(format!("step_{number}")) } else { folder.to_path_buf() };
        fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
        for feed in &step.feeds {
            let ty = places.input_type(&problem.model, feed.input);
            let ty = ty.ok_or_else(|| Error::invalid("an input is not there"))?;
            let file = array(ty, &feed.shape, &feed.bytes)
                .map_err(|e| Error::invalid_at(format_args!("input {}", feed.input), e))?;
            put(folder.join(format!("input_{}.npy", feed.input)), &file)?;
        }
        for (output, expected) in &step.expected {
            let file = array(expected.ty, &expected.shape, &expected.bytes)
                .map_err(|e| Error::invalid_at(format_args!("output {output}"), e))?;
            put(folder.join(format!("expected_{output}.npy")), &file)?;
        }
    }
    put(folder.join("model.tflite"), problem.model.bytes())?;
    let tolerance = match &problem.answers {
        Answers::Given(tolerance) => Some(*tolerance).filter(|t| *t != GivenTolerance::default()),
        _ => None,
    };
    let case = CaseFile {
        signature: problem.signature.clone(),
        tolerance,
        tags: problem.tags.clone(),
        origin: problem.name.clone(),
        ..Default::default()
    };
    let text = serde_json::to_string_pretty(&case).map_err(Error::invalid_caused_by)?;
    put(folder.join("case.json"), text.as_bytes())
}

/// Returns a `.npy` file. Types that NumPy does not support are widened: BFLOAT16 to float32, packed integers to bytes.
fn array(ty: TensorType, shape: &[usize], bytes: &[u8]) -> Result<Vec<u8>, Error> {
    match ty {
        TensorType::BFloat16 => {
            let wide = |c: &[u8; 2]| half::bf16::from_le_bytes(*c).to_f32().to_le_bytes();
            let bytes: Vec<u8> = bytes.as_chunks().0.iter().flat_map(wide).collect();
            npy::write(TensorType::Float32, shape, &bytes)
        }
        TensorType::String => npy::write_strings(shape, bytes),
        _ => npy::write(ty, shape, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::compare::Arithmetic;
    use crate::engine::{Backend, Kernels};

    /// Each kind of case is read as it was written, and passes.
    #[test]
    fn what_is_written_passes() {
        let folder = std::env::temp_dir().join(format!("delegraph-corpus-{}", std::process::id()));
        let wanted =
            ["conv_2d/", "cast/cast_int4", "hashtable/", "variables/", "control_flow/while", "unique/"];
        let engine = Engine::new(Backend::kernels(Kernels::Reference)).untimed();
        let mut written = 0;
        for prefix in wanted {
            for case in cases::all().iter().filter(|c| c.name.starts_with(prefix)).take(3) {
                let problem = Problem::of_case(case, Arithmetic::Ieee).unwrap();
                let folder = folder.join(&case.name);
                write(&problem, &folder).unwrap();
                let result = run(&folder, "again", &engine);
                assert_eq!((result.outcome, result.detail.as_str()), (Outcome::Pass, ""), "{}", case.name);
                written += 1;
            }
        }
        assert!(written > 10, "{written}");
        assert_eq!(find(&folder).unwrap().len(), written);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn invalid_cases_are_errors() {
        let folder = std::env::temp_dir().join(format!("delegraph-no-case-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("case.json"), "{").unwrap();
        let failure = load(&folder, "x").unwrap_err();
        assert_eq!(failure.outcome, Outcome::Invalid);
        assert!(failure.detail.contains("case.json"), "{failure}");
        fs::remove_file(folder.join("case.json")).unwrap();
        assert!(load(&folder, "x").unwrap_err().detail.contains("model.tflite"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn bfloat16_is_widened() {
        let bytes: Vec<u8> =
            [1.5f32, -2.0].iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect();
        let array = Array::parse(&array(TensorType::BFloat16, &[2], &bytes).unwrap()).unwrap();
        assert_eq!(array.clone().numbers().unwrap(), [1.5, -2.0]);
        assert_eq!(array.into_bytes(TensorType::BFloat16).unwrap(), bytes);
    }
}
