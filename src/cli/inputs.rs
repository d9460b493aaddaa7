//! The entry point that a verb runs: its inputs and outputs by number and name, and filling the inputs.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use delegraph::core::error::{ErrorKind, Limit};
use delegraph::core::types::read_regular;
use delegraph::core::{Subgraph, TensorId, printable};
use delegraph::{Error, Interpreter, Model, Shape, TensorType};
use delegraph_conformance::npy::Array;
use delegraph_conformance::seeded::{self, SplitMix64};
use serde::Serialize;

use super::failure::{self, Exit, Failure};
use super::text::{plural, printable_path};

/// `FILE` or `NAME=FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputFile {
    name: Option<String>,
    path: PathBuf,
}

impl InputFile {
    /// The file of the next input without a name.
    pub(crate) fn unnamed(path: PathBuf) -> Self {
        InputFile { name: None, path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the option as on the command line.
    pub(crate) fn option(&self) -> String {
        format!("--input {}", printable(&self.to_string()))
    }
}

impl fmt::Display for InputFile {
    /// The text on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}={}", self.path.display()),
            None => self.path.display().fmt(f),
        }
    }
}

impl FromStr for InputFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A file whose name contains `=` is still a file.
        match text.split_once('=').filter(|_| !Path::new(text).is_file()) {
            Some((name, path)) if !path.is_empty() => {
                Ok(InputFile { name: Some(name.into()), path: path.into() })
            }
            Some(_) => Err("the file's name is missing after `=`".into()),
            None if text.is_empty() => Err("the file's name is missing".into()),
            None => Ok(InputFile { name: None, path: text.into() }),
        }
    }
}

/// `NAME=1x224x224x3`; an empty text after `=` is the shape of a scalar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resize {
    name: String,
    shape: Vec<usize>,
}

impl Resize {
    /// Returns the option as on the command line.
    pub(crate) fn option(&self) -> String {
        let dims: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        format!("--resize {}={}", printable(&self.name), dims.join("x"))
    }
}

impl FromStr for Resize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, dims) = text.rsplit_once('=').ok_or("it has the form NAME=1x224x224x3")?;
        let dim = |d: &str| d.parse().map_err(|_| format!("\"{d}\" is not a dimension"));
        let shape = match dims {
            "" => Vec::new(),
            dims => dims.split('x').map(dim).collect::<Result<_, String>>()?,
        };
        Ok(Resize { name: name.into(), shape })
    }
}

/// An input or output.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Port {
    /// The name in the signature or, if there is none, of the tensor.
    pub(crate) name: String,
    /// The tensor's name.
    pub(crate) tensor: String,
}

/// An entry point: the primary subgraph, or that of a signature.
pub(crate) struct Entry {
    pub(crate) subgraph: usize,
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
    /// The order of inputs without a name.
    order: Vec<usize>,
}

impl Entry {
    /// Selects the entry point of `signature`; without one, the primary subgraph, whose inputs and outputs may also
    /// have the names of a signature.
    pub(crate) fn select(interpreter: &mut Interpreter, signature: Option<&str>) -> Result<Self, Failure> {
        let selected = signature.map(|key| {
            interpreter.select_signature(key).map_err(|error| of_signature(error, interpreter.model(), key))
        });
        let selected = selected.transpose()?;
        let model = interpreter.model();
        let named = selected.as_ref().or_else(|| model.signatures().iter().find(|s| s.subgraph() == 0));
        let index = named.map_or(0, |s| s.subgraph());
        let Some(subgraph) = model.subgraphs().get(index) else {
            return Err(Failure::invalid("the model has no subgraph"));
        };
        let (in_names, out_names) = named.map_or((&[][..], &[][..]), |s| (s.inputs(), s.outputs()));
        let mut order: Vec<usize> = (0..subgraph.inputs().len()).collect();
        if selected.is_some() {
            order.sort_by_key(|&i| {
                let id = subgraph.inputs().get(i);
                in_names.iter().position(|(_, named)| Some(named) == id).unwrap_or(usize::MAX)
            });
        }
        Ok(Entry {
            subgraph: index,
            inputs: ports(subgraph, subgraph.inputs(), in_names),
            outputs: ports(subgraph, subgraph.outputs(), out_names),
            order,
        })
    }

    /// The input with this name: the name in the signature, the tensor's name, or the number. `option` is the option with
    /// the name.
    fn input(&self, name: &str, option: &str) -> Result<usize, Failure> {
        let by_name = self.inputs.iter().position(|p| p.name == name);
        let found = by_name.or_else(|| self.inputs.iter().position(|p| p.tensor == name));
        let number = || name.parse().ok().filter(|&i: &usize| i < self.inputs.len());
        found.or_else(number).ok_or_else(|| {
            let names = self.inputs.iter().map(|p| p.name.as_str());
            let has = listed(names).unwrap_or_else(|| "the model has no inputs".into());
            Failure::new(Exit::Usage, format!("{option}: there is no input \"{}\"; {has}", printable(name)))
        })
    }

    /// Returns the name of input `i` for a message.
    fn describe(&self, i: usize) -> String {
        let name = self.inputs.get(i).map_or("", |input| &input.name);
        format!("input {i} (\"{}\")", printable(name))
    }

    /// Returns the failure of resizing input `i` to the shape of `cause`, an option or a file. An error that names the
    /// input by its tensor names it as the options do.
    fn not_resized(&self, i: usize, error: Error, cause: &str) -> Failure {
        let tensor = self.inputs.get(i).map_or("", |input| &input.tensor);
        let named = format!("input {i} (\"{tensor}\")");
        let rest = match &error {
            Error::InvalidInput(text) => text.strip_prefix(&named),
            _ => None,
        };
        match rest {
            Some(rest) => Failure::from(Error::InvalidInput(self.describe(i) + rest)).about(cause),
            None => Failure::from(error).about(&format!("{cause}: {}", self.describe(i))),
        }
    }

    /// Returns the file of each input. Files without a name belong to the inputs that no other file names.
    fn files<'f>(&self, files: &'f [InputFile]) -> Result<Vec<Option<&'f Path>>, Failure> {
        let mut chosen: Vec<Option<&Path>> = vec![None; self.inputs.len()];
        let (named, unnamed): (Vec<_>, Vec<_>) = files.iter().partition(|file| file.name.is_some());
        for file in named {
            let i = self.input(file.name.as_deref().unwrap_or_default(), &file.option())?;
            match chosen.get_mut(i) {
                Some(slot @ None) => *slot = Some(&file.path),
                _ => {
                    let text = format!("two files are given for {}", self.describe(i));
                    return Err(Failure::new(Exit::Usage, text));
                }
            }
        }
        let mut unnamed = unnamed.into_iter();
        for &i in &self.order {
            if let Some(slot @ None) = chosen.get_mut(i) {
                *slot = unnamed.next().map(|file| file.path.as_path());
            }
        }
        if unnamed.next().is_some() {
            let given = plural(files.len(), "input file");
            let has = match self.inputs.len() {
                0 => "no inputs".into(),
                has => plural(has, "input"),
            };
            return Err(Failure::new(Exit::Usage, format!("{given} given, but the model has {has}")));
        }
        Ok(chosen)
    }

    /// Checks that every input has a file. The error names the record by its first file.
    pub(crate) fn check_all_given(&self, files: &[InputFile]) -> Result<(), Failure> {
        match self.files(files)?.iter().position(Option::is_none) {
            None => Ok(()),
            Some(i) => {
                let failure = Failure::invalid(format!("{} has no file", self.describe(i)));
                Err(match files.first() {
                    Some(first) => failure.about(&printable_path(&first.path)),
                    None => failure,
                })
            }
        }
    }

    /// Resizes and fills every input: from its file, or with seeded random data.
    pub(crate) fn fill<'f>(
        &self,
        interpreter: &mut Interpreter,
        files: &'f [InputFile],
        resizes: &[Resize],
        seed: u64,
    ) -> Result<Filled<'f>, Failure> {
        let mut resized = vec![None; self.inputs.len()];
        // The options that changed the shapes of inputs.
        let mut causes: Vec<String> = Vec::new();
        for resize in resizes {
            let i = self.input(&resize.name, &resize.option())?;
            if resized[i].is_some() {
                let text = format!("{}: the shape of {} is already given", resize.option(), self.describe(i));
                return Err(Failure::new(Exit::Usage, text));
            }
            let same = *interpreter.input_tensor(i)?.shape.dims() == resize.shape;
            interpreter
                .resize_input(i, &resize.shape)
                .map_err(|e| self.not_resized(i, e, &resize.option()))?;
            resized[i] = Some(&resize.shape);
            causes.extend((!same).then(|| resize.option()));
        }
        let files = self.files(files)?;
        let (mut arrays, mut earlier) = (Vec::new(), vec![None; files.len()]);
        for (i, path) in files.iter().enumerate() {
            let tensor = interpreter.input_tensor(i)?;
            let array = path.map(|path| read(path, tensor.ty, &tensor.shape)).transpose()?;
            if let (Some(array), Some(path)) = (&array, path) {
                if let Some(shape) = resized[i].filter(|shape| **shape != array.shape) {
                    let (asked, has) = (Shape::new(shape), Shape::new(&array.shape));
                    let path = printable_path(path);
                    let text = format!("{path}: the array is {has}, but --resize requires {asked}");
                    return Err(Failure::invalid(text));
                }
                let same = *tensor.shape.dims() == array.shape;
                if !same {
                    causes.push(format!("--input {}", printable_path(path)));
                    earlier[i] = Some(tensor.shape.to_vec());
                }
                interpreter
                    .resize_input(i, &array.shape)
                    .map_err(|e| self.not_resized(i, e, &printable_path(path)))?;
            }
            arrays.push(array);
        }
        interpreter.prepare().map_err(|e| of_shapes(e, &causes))?;
        for (i, (array, path)) in arrays.into_iter().zip(&files).enumerate() {
            let ty = interpreter.input_tensor(i)?.ty;
            let Some(array) = array else {
                seeded::fill(ty, interpreter.input_bytes_mut(i)?, &mut SplitMix64::new(seed).for_input(i));
                continue;
            };
            let at = |e: String| {
                let path = printable_path(path.unwrap_or(Path::new("")));
                Failure::invalid(format!("{path}: {}: {e}", self.describe(i)))
            };
            let bytes = array.into_bytes(ty).map_err(|e| at(e.to_string()))?;
            interpreter.set_input_bytes(i, &bytes).map_err(|e| at(e.to_string()))?;
        }
        Ok(Filled { files, earlier, causes })
    }
}

/// Inputs with their data.
pub(crate) struct Filled<'f> {
    /// The file of each input; `None` for random data.
    pub(crate) files: Vec<Option<&'f Path>>,
    /// The shape of each input whose file has another one.
    pub(crate) earlier: Vec<Option<Vec<usize>>>,
    /// The options that changed the shapes of inputs.
    causes: Vec<String>,
}

impl Filled<'_> {
    /// Runs the model. Because of the options, shapes that are known only then may not fit the memory.
    pub(crate) fn invoke(&self, interpreter: &mut Interpreter) -> Result<(), Failure> {
        interpreter.invoke().map_err(|e| match e.kind() {
            _ if is_of_memory(&e) => of_shapes(e, &self.causes),
            // What does not depend on run-time values was checked when the model was prepared.
            ErrorKind::Invalid if !self.files.is_empty() => Failure::from(e).with_help(
                "shapes that are known only at run time follow from the values of its inputs: check them, \
                 `--input NAME=FILE.npy` gives others. If they are right, the nodes do not fit each other: \
                 `delegraph inspect MODEL` shows them",
            ),
            _ => e.into(),
        })
    }
}

fn is_of_memory(error: &Error) -> bool {
    match error {
        Error::OutOfMemory(_) => true,
        Error::LimitExceeded(exceeded) => exceeded.limit() == Limit::Memory,
        Error::AtNode { source, .. } => is_of_memory(source),
        _ => false,
    }
}

/// Returns the failure of selecting a signature. Advice on a name that the model does not have is about signatures.
fn of_signature(error: Error, model: &Model, key: &str) -> Failure {
    if model.signature(key).is_some() {
        return error.into();
    }
    let option = format!("--signature {}", printable(key));
    match listed(model.signatures().iter().map(|s| s.key())) {
        Some(has) => Failure::new(Exit::Usage, format!("{option}: there is no such signature; {has}")),
        None => Failure::new(Exit::Usage, format!("{option}: the model has no signatures"))
            .with_help("run the model without `--signature`"),
    }
}

/// Returns the names that a model has, in quotation marks: a name may be empty. `None` if there are none.
fn listed<'n>(names: impl Iterator<Item = &'n str>) -> Option<String> {
    let names: Vec<String> = names.map(|name| format!("\"{}\"", printable(name))).collect();
    (!names.is_empty()).then(|| format!("the model has: {}", names.join(", ")))
}

/// Returns the failure of preparing a model. If `causes` changed the shapes of inputs, the options are reported as the
/// cause, not the model.
fn of_shapes(error: Error, causes: &[String]) -> Failure {
    let kind = error.kind();
    // Advice on raising a limit is kept. Advice about invalid nodes would point to the model, and a smaller shape is
    // advised below.
    let raise = failure::help(&error).filter(|_| kind == ErrorKind::Failed && !is_of_memory(&error));
    let raise = raise.map(|help| format!("; {help}")).unwrap_or_default();
    let failure = Failure::from(error);
    if causes.is_empty() || kind == ErrorKind::Unsupported {
        return failure;
    }
    let failure = failure.about(&format!("{}: the model cannot run with this shape", causes.join(", ")));
    failure.with_help(format!(
        "choose another shape, or a smaller one; `delegraph inspect MODEL` shows the shapes of the file{raise}"
    ))
}

fn ports(subgraph: &Subgraph, ids: &[TensorId], names: &[(String, TensorId)]) -> Vec<Port> {
    // The first of several names of one tensor.
    let named: HashMap<TensorId, &String> = names.iter().rev().map(|(name, id)| (*id, name)).collect();
    let port = |id: &TensorId| {
        let tensor = subgraph.tensor(*id).name().to_string();
        let name = named.get(id).copied().unwrap_or(&tensor).clone();
        Port { name, tensor }
    };
    ids.iter().map(port).collect()
}

/// Reads an array. Strings may also be lines of text, for an input of any shape with the same number of elements.
fn read(path: &Path, ty: TensorType, shape: &Shape) -> Result<Array, Failure> {
    let invalid = |e: String| Failure::invalid(format!("{}: {e}", printable_path(path)));
    let file = read_regular(path).map_err(|e| invalid(e.to_string()).with_help("check the path"))?;
    if ty == TensorType::String && !file.starts_with(b"\x93NUMPY") {
        let text =
            String::from_utf8(file).map_err(|_| invalid("neither a .npy file nor UTF-8 text".into()))?;
        let lines: Vec<&str> = text.lines().collect();
        let shape = if shape.elements() == lines.len() { shape.to_vec() } else { vec![lines.len()] };
        return Array::strings(shape, &lines).map_err(|e| invalid(e.to_string()));
    }
    Array::parse(&file).map_err(|e| invalid(format!("not a usable .npy file: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_files() {
        let check = |text: &str, name: Option<&str>, path: &str| {
            let want = InputFile { name: name.map(str::to_owned), path: path.into() };
            assert_eq!(text.parse(), Ok(want), "{text}");
        };
        check("a.npy", None, "a.npy");
        check("image=a.npy", Some("image"), "a.npy");
        check("serving_default_x:0=dir/a.npy", Some("serving_default_x:0"), "dir/a.npy");
        assert!("image=".parse::<InputFile>().is_err());
    }

    #[test]
    fn resizes() {
        let check = |text: &str, want: Option<(&str, &[usize])>| {
            let want = want.map(|(name, shape)| Resize { name: name.into(), shape: shape.into() });
            assert_eq!(text.parse().ok(), want, "{text}");
        };
        check("x=1x224x224x3", Some(("x", &[1, 224, 224, 3])));
        check("x=", Some(("x", &[])));
        check("a=b=2", Some(("a=b", &[2])));
        check("x", None);
        check("x=1x-1", None);
    }
}
