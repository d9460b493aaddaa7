//! LiteRT's results for real models, with the inputs of these runs.
//!
//! `conformance/goldens/README.md` defines the format; `make goldens` writes the files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::seeded::{SplitMix64, fill};
use delegraph_core::error::counted;
use delegraph_core::kernel::RuntimeTensor;
use delegraph_core::types::rounded;
use delegraph_core::{Shape, TensorType};
use delegraph_interpreter::Interpreter;
use serde::Deserialize;

use crate::compare::{Comparison, Tolerance, compare, numbers};
use crate::error::Error;
use crate::npy::Array;

/// All goldens.
#[derive(Debug)]
pub struct Goldens {
    /// The index.
    pub index: Index,
    samples: Vec<u8>,
    /// The repository, for the files of [`Inputs::Series`].
    root: PathBuf,
}

/// The contents of `index.json`.
#[derive(Debug, Deserialize)]
pub struct Index {
    seed: u64,
    /// The photo of [`Inputs::Photo`].
    pub photo: FileEntry,
    /// Every model.
    pub models: Vec<ModelEntry>,
}

/// A file that is fetched and not committed.
#[derive(Debug, Deserialize)]
#[non_exhaustive]
pub struct FileEntry {
    /// Its name in the cache.
    pub file: String,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

/// A model with its cases.
#[derive(Debug, Deserialize)]
#[non_exhaustive]
pub struct ModelEntry {
    /// Its file name.
    pub model: String,
    /// The file's SHA-256, in hexadecimal.
    pub sha256: String,
    /// Whether the model is committed in `assets/digits`; other models are fetched.
    pub embedded: bool,
    /// The cases of the model.
    pub cases: Vec<Case>,
}

/// The invocations of one interpreter, without a reset in between.
#[derive(Debug, Deserialize)]
#[non_exhaustive]
pub struct Case {
    /// The source of the inputs.
    pub inputs: Inputs,
    /// The outputs of each invocation.
    pub invokes: Vec<Invoke>,
}

/// The source of a case's inputs.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Inputs {
    /// Seeded random numbers, different for each input and invocation.
    Seeded,
    /// The photo, at the model's size.
    Photo {
        /// The conversion of a byte to an element.
        mapping: Mapping,
    },
    /// A `.npy` file with one invocation per entry of its first axis.
    Series {
        /// Path relative to the repository.
        file: String,
    },
}

impl Inputs {
    /// Returns a name for tests and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Inputs::Seeded => "seeded",
            Inputs::Photo { .. } => "photo",
            Inputs::Series { .. } => "series",
        }
    }
}

/// The conversion of a byte of the photo to an element of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Mapping {
    /// The byte itself.
    Raw,
    /// 0 to 1.
    Unit,
    /// -1 to 1.
    Signed,
}

/// The outputs of one invocation, in the model's order.
#[derive(Debug, Deserialize)]
pub struct Invoke {
    outputs: Vec<Output>,
}

#[derive(Debug, Deserialize)]
struct Output {
    dtype: String,
    shape: Vec<usize>,
    stride: usize,
    count: usize,
    offset: usize,
    max_abs: f64,
}

/// A photo: rows from the top, `[height, width, 3]`, RGB.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Photo {
    /// Pixels in a row.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
    /// The bytes.
    pub rgb: Vec<u8>,
}

impl Photo {
    /// Creates a photo from its rows, each of `width` pixels of three bytes. An incomplete last row is left out.
    pub fn new(width: usize, rgb: Vec<u8>) -> Self {
        let height = rgb.len().checked_div(width.saturating_mul(3)).unwrap_or(0);
        Photo { width, height, rgb }
    }
}

impl Goldens {
    /// Reads the goldens of the repository at `root`.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read, [`Error::Invalid`] if the index is invalid.
    pub fn read(root: &Path) -> Result<Self, Error> {
        let folder = root.join("conformance/goldens");
        let read = |name: &str| fs::read(folder.join(name)).map_err(|e| Error::io(name, e));
        let index = serde_json::from_slice(&read("index.json")?);
        let index = index.map_err(|e| Error::invalid_at("index.json", e))?;
        Ok(Goldens { index, samples: read("samples.bin")?, root: root.into() })
    }

    /// Runs a case on `interpreter`, which must not have been invoked before, and compares all outputs of all
    /// invocations. `photo` is needed for [`Inputs::Photo`].
    ///
    /// # Errors
    /// The first difference beyond the tolerance, or the reason why the model does not run.
    pub fn check(
        &self,
        case: &Case,
        interpreter: &mut Interpreter,
        photo: Option<&Photo>,
    ) -> Result<(), Error> {
        let series = match &case.inputs {
            Inputs::Series { file } => Some(self.series(file)?),
            _ => None,
        };
        for (i, invoke) in case.invokes.iter().enumerate() {
            for input in 0..interpreter.input_count() {
                let tensor = interpreter.input_tensor(input)?;
                let bytes = match &case.inputs {
                    Inputs::Seeded => seeded(tensor, self.index.seed, input, i),
                    Inputs::Photo { mapping } => {
                        let photo = photo.ok_or_else(|| Error::invalid("there is no photo"))?;
                        shrunk(photo, &tensor.shape, *mapping).map_err(Error::invalid)?
                    }
                    Inputs::Series { .. } => {
                        let series = series
                            .as_ref()
                            .ok_or_else(|| Error::invalid("the series of the case is not loaded"))?;
                        entry(series, i, tensor).map_err(Error::invalid)?
                    }
                };
                interpreter.set_input_bytes(input, &bytes)?;
            }
            interpreter.invoke()?;
            if interpreter.output_count() != invoke.outputs.len() {
                return Err(Error::invalid(format!(
                    "{}, expected {}",
                    counted(interpreter.output_count(), "output"),
                    invoke.outputs.len()
                )));
            }
            for (o, expected) in invoke.outputs.iter().enumerate() {
                let tensor = interpreter.output_tensor(o)?;
                let at = |e| Error::invalid(format!("invoke {i}, output {o}: {e}"));
                self.compare(expected, tensor).map_err(at)?;
            }
        }
        Ok(())
    }

    fn compare(&self, expected: &Output, tensor: &RuntimeTensor) -> Result<(), String> {
        let ty = tensor_type(&expected.dtype)?;
        if tensor.ty != ty || tensor.shape.dims() != expected.shape {
            let (got_ty, got, shape) = (tensor.ty, &tensor.shape, &expected.shape);
            return Err(format!("{got_ty} {got}, expected {ty} {shape:?}"));
        }
        let size = ty.byte_size(expected.count);
        let size =
            size.ok_or_else(|| format!("{} elements of {ty} exceed the address space", expected.count))?;
        let stored = self
            .samples
            .get(expected.offset..)
            .and_then(|s| s.get(..size))
            .ok_or("samples.bin ends early")?;
        let not_numbers = || format!("elements of type {ty} are not numbers");
        let want = numbers(ty, stored).ok_or_else(not_numbers)?;
        let all = numbers(ty, tensor.bytes()).ok_or_else(not_numbers)?;
        let got: Vec<f64> = all.iter().copied().step_by(expected.stride.max(1)).collect();
        if let Some(i) = all.iter().position(|v| !v.is_finite()) {
            return Err(format!("element {i} is {}", all[i]));
        }
        let tolerance = Tolerance::of(ty, tensor.quantization.is_some());
        // The samples may not contain the largest element, to which the tolerance is relative.
        let allowed = compare(&[expected.max_abs], &[expected.max_abs], tolerance).allowed;
        let result = Comparison { allowed, ..compare(&got, &want, tolerance) };
        if result.passes() {
            return Ok(());
        }
        Err(format!("largest difference {}, allowed {}", rounded(result.max_abs), rounded(allowed)))
    }

    fn series(&self, file: &str) -> Result<Array, Error> {
        let bytes = fs::read(self.root.join(file)).map_err(|e| Error::io(file, e))?;
        Array::parse(&bytes).map_err(|e| Error::invalid_at(file, e))
    }
}

fn tensor_type(name: &str) -> Result<TensorType, String> {
    Ok(match name {
        "float32" => TensorType::Float32,
        "int8" => TensorType::Int8,
        "uint8" => TensorType::UInt8,
        "int16" => TensorType::Int16,
        "int32" => TensorType::Int32,
        "int64" => TensorType::Int64,
        "bool" => TensorType::Bool,
        _ => {
            let supported = "float32, int8, uint8, int16, int32, int64 and bool";
            return Err(format!("the type {name} is not supported in goldens; {supported} are"));
        }
    })
}

fn seeded(tensor: &RuntimeTensor, seed: u64, input: usize, invoke: usize) -> Vec<u8> {
    let mut bytes = vec![0; tensor.byte_size().unwrap_or(0)];
    fill(tensor.ty, &mut bytes, &mut SplitMix64::new(seed).for_input(input).for_invocation(invoke));
    bytes
}

/// Returns the photo at `[1, height, width, 3]`. Each pixel is the nearest one of the photo, rounded towards the upper
/// left.
fn shrunk(photo: &Photo, shape: &Shape, mapping: Mapping) -> Result<Vec<u8>, String> {
    let &[1, height, width, 3] = shape.dims() else {
        return Err(format!("{shape} is not the shape of a picture"));
    };
    let mut bytes = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let pixel = y * photo.height / height * photo.width + x * photo.width / width;
            let rgb = photo.rgb.get(pixel * 3..pixel * 3 + 3).ok_or("the photo has too few pixels")?;
            for &v in rgb {
                match mapping {
                    Mapping::Raw => bytes.push(v),
                    Mapping::Unit => bytes.extend((f32::from(v) / 255.0).to_le_bytes()),
                    Mapping::Signed => bytes.extend((f32::from(v) / 127.5 - 1.0).to_le_bytes()),
                }
            }
        }
    }
    Ok(bytes)
}

/// Returns entry `i` of a series, in the type of the tensor.
fn entry(series: &Array, i: usize, tensor: &RuntimeTensor) -> Result<Vec<u8>, String> {
    let entries = series.shape.first().copied().unwrap_or(0);
    let all = match series.clone().into_bytes(tensor.ty) {
        Ok(bytes) => bytes,
        Err(mismatch) => quantized(series, tensor).ok_or_else(|| mismatch.to_string())?,
    };
    let size = all.len().checked_div(entries).ok_or("the series is empty")?;
    all.chunks(size.max(1))
        .nth(i)
        .map(<[u8]>::to_vec)
        .ok_or_else(|| format!("the series has {}", counted(entries, "entry")))
}

fn quantized(series: &Array, tensor: &RuntimeTensor) -> Option<Vec<u8>> {
    let (scale, zero_point) = tensor.scale_zero_point()?;
    let step = |v: &f64| (v / f64::from(scale)).round() + f64::from(zero_point);
    let steps = series.numbers()?;
    match tensor.ty {
        // `as` clamps to the type's range.
        TensorType::Int8 => Some(steps.iter().flat_map(|v| (step(v) as i8).to_le_bytes()).collect()),
        TensorType::UInt8 => Some(steps.iter().map(|v| step(v) as u8).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_photo_shrinks_to_the_upper_left() {
        let photo = Photo::new(4, (0..24).collect());
        assert_eq!(photo.height, 2);
        let small = shrunk(&photo, &Shape::new(&[1, 2, 2, 3]), Mapping::Raw).unwrap();
        assert_eq!(small, [0, 1, 2, 6, 7, 8, 12, 13, 14, 18, 19, 20]);
        let signed = shrunk(&photo, &Shape::new(&[1, 1, 1, 3]), Mapping::Signed).unwrap();
        assert_eq!(signed[..4], (-1f32).to_le_bytes());
        assert!(shrunk(&photo, &Shape::new(&[1, 2, 2]), Mapping::Unit).is_err());
    }

    #[test]
    fn goldens_are_whole() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let goldens = Goldens::read(root).unwrap();
        assert_eq!(goldens.index.models.len(), 14);
        let invokes = goldens.index.models.iter().flat_map(|m| &m.cases).flat_map(|c| &c.invokes);
        let mut end = 0;
        for output in invokes.flat_map(|i| &i.outputs) {
            let elements: usize = output.shape.iter().product();
            assert_eq!(output.count, elements.div_ceil(output.stride));
            assert_eq!(output.offset, end);
            end += tensor_type(&output.dtype).unwrap().byte_size(output.count).unwrap();
        }
        assert_eq!(end, goldens.samples.len());
    }
}
