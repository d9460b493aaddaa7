//! Cases as folders: those of other projects, and the built-in cases written to files.
//!
//! A folder holds `model.tflite`, `input_0.npy`, … and `expected_0.npy`, …. An optional `case.json` has further
//! settings, see [`CaseFile`]. The folder of a case with several invocations has the first of them, and `step_1`,
//! `step_2`, … have the others, so that a reader that supports single invocations runs the first one.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use delegraph_core::types::read_regular;
use delegraph_core::{Model, ModelBytes, TensorType};
use delegraph_interpreter::Interpreter;
use serde::{Deserialize, Serialize};

use crate::engine::{Answers, CaseFailure, CaseResult, Feed, GivenTolerance, Outcome, Problem, Step};
use crate::error::Error;
use crate::npy::{self, Array};
use crate::runner::{ContractChecks, Engine, answer};

const MODEL: &str = "model.tflite";

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

/// Returns every case below `root`: folders with an entry `model.tflite`, sorted by path. Whether the entry is a model is
/// checked by [`load`], so that a case without a readable one has a result.
pub fn find(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut cases = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        if folder.join(MODEL).symlink_metadata().is_ok() {
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
/// The outcome of a case that cannot be read. A file that is missing from a series, or is not a regular file, makes the
/// case invalid.
pub fn load(folder: &Path, name: &str) -> Result<Problem, CaseFailure> {
    let case = case_file(folder)?;
    let bytes = ModelBytes::new(read(folder, Path::new(MODEL))?);
    let model = Model::from_bytes_named(bytes, folder.join(MODEL))
        .map_err(|e| CaseFailure::new(crate::engine::outcome_of(&e), e.to_string()))?;
    let places = Places::of(&model, case.signature.as_deref()).map_err(invalid)?;
    let reader = Reader { folder, case: &case, model: &model, places };
    let further = numbers(folder, ("step_", ""), 1)?.map(|number| PathBuf::from(format!("step_{number}")));
    let subfolders = std::iter::once(PathBuf::new()).chain(further);
    let steps = subfolders.map(|sub| reader.step(&sub)).collect::<Result<_, _>>()?;
    let mut problem = Problem::of_model(name.into(), model, steps, case.tolerance.unwrap_or_default());
    (problem.signature, problem.tags) = (case.signature, case.tags);
    Ok(problem)
}

fn invalid(text: impl Into<String>) -> CaseFailure {
    CaseFailure::new(Outcome::Invalid, text)
}

fn invalid_file(file: &Path, why: impl std::fmt::Display) -> CaseFailure {
    invalid(format!("{}: {why}", file.display()))
}

/// Reads a file of the case in `folder`.
fn read(folder: &Path, file: &Path) -> Result<Vec<u8>, CaseFailure> {
    read_regular(folder.join(file)).map_err(|e| invalid_file(file, e))
}

/// Reads `case.json`; the default without one.
fn case_file(folder: &Path) -> Result<CaseFile, CaseFailure> {
    let file = Path::new("case.json");
    match folder.join(file).symlink_metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(CaseFile::default()),
        _ => serde_json::from_slice(&read(folder, file)?).map_err(|e| invalid_file(file, e)),
    }
}

/// Returns the numbers of the entries of `folder` whose names are a number from `first` between `prefix` and `suffix`.
///
/// # Errors
/// The folder cannot be read, or there is a gap in the numbers.
fn numbers(folder: &Path, (prefix, suffix): (&str, &str), first: usize) -> Result<Range<usize>, CaseFailure> {
    let name = |number: usize| format!("{prefix}{number}{suffix}");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| invalid_file(folder, e))? {
        let entry = entry.map_err(|e| invalid_file(folder, e))?.file_name();
        let digits = entry.to_str().and_then(|n| n.strip_prefix(prefix)?.strip_suffix(suffix));
        let number = digits.and_then(|digits| digits.parse().ok());
        found.extend(number.filter(|&n| n >= first && entry.to_str() == Some(&name(n))));
    }
    found.sort_unstable();
    match (first..).zip(&found).find(|(next, number)| next != *number) {
        Some((next, number)) => {
            Err(invalid(format!("there is no {}, but there is {}", name(next), name(*number))))
        }
        None => Ok(first..first + found.len()),
    }
}

/// Reads the invocations of a case.
struct Reader<'a> {
    folder: &'a Path,
    case: &'a CaseFile,
    model: &'a Model,
    places: Places,
}

impl Reader<'_> {
    /// Reads the invocation whose files are in the subfolder `sub`.
    fn step(&self, sub: &Path) -> Result<Step, CaseFailure> {
        let mut step = Step::default();
        for (input, file) in self.files(sub, "input", &self.case.inputs, &self.places.inputs)? {
            let array = self.array(&file)?;
            let ty = self.places.input_type(self.model, input);
            let ty = ty.ok_or_else(|| invalid_file(&file, format!("there is no input {input}")))?;
            let shape = array.shape.clone();
            let bytes = array.into_bytes(ty).map_err(|e| invalid_file(&file, e))?;
            step.feeds.push(Feed { input, shape, bytes });
        }
        for (output, file) in self.files(sub, "expected", &self.case.expected, &self.places.outputs)? {
            step.expected.push((output, self.array(&file)?.into_output()));
        }
        if !step.expected.is_empty() {
            self.check_inputs(&step, sub)?;
        }
        Ok(step)
    }

    /// Returns the index and the file of each input or output: those that `named` lists or, if it is empty, `WHAT_0.npy`,
    /// `WHAT_1.npy`, ….
    fn files(
        &self,
        sub: &Path,
        what: &str,
        named: &BTreeMap<String, String>,
        places: &BTreeMap<String, usize>,
    ) -> Result<Vec<(usize, PathBuf)>, CaseFailure> {
        if named.is_empty() {
            let found = numbers(&self.folder.join(sub), (&format!("{what}_"), ".npy"), 0)?;
            return Ok(found.map(|i| (i, sub.join(format!("{what}_{i}.npy")))).collect());
        }
        let place = |(name, file): (&String, &String)| match places.get(name) {
            Some(&i) => Ok((i, sub.join(file))),
            None => Err(invalid(format!("case.json names \"{name}\", which the signature does not have"))),
        };
        named.iter().map(place).collect()
    }

    fn array(&self, file: &Path) -> Result<Array, CaseFailure> {
        Array::parse(&read(self.folder, file)?).map_err(|e| invalid_file(file, e))
    }

    /// Checks that each input has data, without which the outputs are not comparable.
    fn check_inputs(&self, step: &Step, sub: &Path) -> Result<(), CaseFailure> {
        const WHY: &str = "a case with expected outputs needs all inputs";
        let missing = |i: &usize| step.feeds.iter().all(|feed| feed.input != *i);
        if self.case.inputs.is_empty() {
            let Some(i) = (0..self.places.input_count(self.model)).find(missing) else { return Ok(()) };
            let file = sub.join(format!("input_{i}.npy"));
            return Err(invalid_file(&file, format!("there is no such file; {WHY}")));
        }
        match self.places.inputs.iter().find(|(_, i)| missing(i)) {
            Some((name, _)) => Err(invalid(format!("case.json has no file for the input \"{name}\"; {WHY}"))),
            None => Ok(()),
        }
    }
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
            let keys: Vec<String> = model.signatures().iter().map(|s| format!("\"{}\"", s.key())).collect();
            match keys.as_slice() {
                [] => format!("no signature \"{key}\"; the model has no signatures"),
                keys => format!("no signature \"{key}\"; the model has: {}", keys.join(", ")),
            }
        };
        let signature = model.signature(key).ok_or_else(unknown)?;
        let subgraph = model.subgraphs().get(signature.subgraph()).ok_or_else(unknown)?;
        let place = |ids: &[_], id| ids.iter().position(|i| *i == id).unwrap_or(0);
        let inputs = signature.inputs().iter().map(|(n, id)| (n.clone(), place(subgraph.inputs(), *id)));
        let outputs = signature.outputs().iter().map(|(n, id)| (n.clone(), place(subgraph.outputs(), *id)));
        Ok(Places { subgraph: signature.subgraph(), inputs: inputs.collect(), outputs: outputs.collect() })
    }

    fn input_count(&self, model: &Model) -> usize {
        model.subgraphs().get(self.subgraph).map_or(0, |subgraph| subgraph.inputs().len())
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
            let missing = || Error::invalid(format_args!("input {} does not exist", feed.input));
            let ty = ty.ok_or_else(missing)?;
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
    put(folder.join(MODEL), problem.model.bytes())?;
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

    /// Writes a case that passes into a new folder, changes it, and returns its outcome and detail.
    fn changed(name: &str, change: impl FnOnce(&Path)) -> (Outcome, String) {
        let folder = std::env::temp_dir().join(format!("delegraph-case-{name}-{}", std::process::id()));
        let case = cases::all().into_iter().find(|c| c.name == "binary/add_float32_shapes1").unwrap();
        write(&Problem::of_case(&case, Arithmetic::Ieee).unwrap(), &folder).unwrap();
        change(&folder);
        assert_eq!(find(&folder).unwrap(), std::slice::from_ref(&folder), "{name}");
        let result = run(&folder, name, &Engine::new(Backend::kernels(Kernels::Reference)).untimed());
        fs::remove_dir_all(&folder).unwrap();
        (result.outcome, result.detail)
    }

    #[test]
    fn files_that_cannot_be_read_make_a_case_invalid() {
        for file in ["model.tflite", "case.json", "input_1.npy", "expected_0.npy", "step_1/expected_0.npy"] {
            let outcome = changed("folder", |case| {
                fs::remove_file(case.join(file)).unwrap();
                fs::create_dir(case.join(file)).unwrap();
            });
            let detail = format!("{file}: it is a directory, not a file");
            assert_eq!(outcome, (Outcome::Invalid, detail), "{file}");
        }
        let (outcome, detail) = changed("step", |case| {
            fs::remove_dir_all(case.join("step_1")).unwrap();
            fs::write(case.join("step_1"), "").unwrap();
        });
        assert_eq!(outcome, Outcome::Invalid);
        assert!(detail.contains("step_1: "), "{detail}");
    }

    #[test]
    #[cfg(unix)]
    fn dangling_links_make_a_case_invalid() {
        for file in ["model.tflite", "case.json", "input_0.npy", "expected_0.npy"] {
            let (outcome, detail) = changed("link", |case| {
                fs::remove_file(case.join(file)).unwrap();
                std::os::unix::fs::symlink("nowhere", case.join(file)).unwrap();
            });
            assert_eq!(outcome, Outcome::Invalid, "{file}");
            assert!(detail.starts_with(&format!("{file}: No such file")), "{detail}");
        }
    }

    #[test]
    fn gaps_and_missing_inputs_make_a_case_invalid() {
        let check = |from: &str, to: Option<&str>, want: &str| {
            let outcome = changed("gap", |case| match to {
                Some(to) => fs::rename(case.join(from), case.join(to)).unwrap(),
                None => fs::remove_file(case.join(from)).unwrap(),
            });
            assert_eq!(outcome, (Outcome::Invalid, want.into()), "{from}");
        };
        const WHY: &str = "there is no such file; a case with expected outputs needs all inputs";
        check("input_1.npy", None, &format!("input_1.npy: {WHY}"));
        check("step_1/input_1.npy", None, &format!("step_1/input_1.npy: {WHY}"));
        check("input_0.npy", None, "there is no input_0.npy, but there is input_1.npy");
        check(
            "expected_0.npy",
            Some("expected_5.npy"),
            "there is no expected_0.npy, but there is expected_5.npy",
        );
        check("step_1", Some("step_2"), "there is no step_1, but there is step_2");
    }

    /// Without expected outputs, a case passes if it runs.
    #[test]
    fn a_case_without_expected_outputs_runs() {
        let outcome = changed("unexpected", |case| {
            for file in ["expected_0.npy", "step_1/expected_0.npy", "step_1/input_1.npy"] {
                fs::remove_file(case.join(file)).unwrap();
            }
        });
        assert_eq!(outcome, (Outcome::Pass, String::new()));
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
