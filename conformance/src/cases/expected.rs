//! LiteRT's outputs of the cases: `conformance/goldens/ops`, written by `scripts/make_case_goldens.py`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use delegraph_core::error::counted;
use delegraph_core::{BuiltinOp, Shape, TensorType};

use super::case::{Case, Computed};
use crate::Error;
use crate::compare::{Deviation, Tolerance, numbers};

/// The outcome of one case in LiteRT.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Recorded {
    /// Every output of every step.
    Ran(Vec<Computed>),
    /// LiteRT rejected the model, with this message.
    Refused(String),
    /// LiteRT's process ended with this status.
    Crashed(String),
    /// Two runs computed different outputs.
    Varies(String),
}

/// An entry of the index.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// The fingerprint of the case that ran.
    pub fingerprint: u64,
    /// The outcome.
    pub outcome: Recorded,
}

/// All recorded results.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Expected {
    /// LiteRT's version.
    pub litert: String,
    /// The entries by the case's name.
    pub entries: BTreeMap<String, Entry>,
    /// The types that LiteRT's kernels accept as the data of an op, for types in which the cases can be written.
    pub types: BTreeMap<i32, BTreeSet<TensorType>>,
}

impl Expected {
    /// Reads `index.tsv`, `outputs.bin` and `types.tsv` in `folder`.
    ///
    /// # Errors
    /// A file is missing or damaged; the message names the place.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let bytes = |name: &str| fs::read(folder.join(name)).map_err(|e| Error::io(folder.join(name), e));
        let text = |name: &str| String::from_utf8(bytes(name)?).map_err(|e| Error::invalid_at(name, e));
        let outputs = bytes("outputs.bin")?;
        let mut expected = Expected::default();
        for (number, line) in text("index.tsv")?.lines().enumerate() {
            if let Some(version) = line.strip_prefix("# ai-edge-litert ") {
                expected.litert = version.into();
                continue;
            }
            let (name, entry) = entry(line, &outputs)
                .map_err(|e| Error::invalid(format_args!("index.tsv:{}: {e}", number + 1)))?;
            expected.entries.insert(name, entry);
        }
        for (number, line) in text("types.tsv")?.lines().enumerate() {
            let (op, types) = types(line).ok_or_else(|| {
                Error::invalid(format_args!("types.tsv:{}: not an op and types", number + 1))
            })?;
            expected.types.insert(op.0, types);
        }
        Ok(expected)
    }
}

impl Case {
    /// Compares an output of this case with LiteRT's: type, shape and elements, within the tolerance of the type.
    /// Quantized outputs may differ by at most `steps` steps.
    ///
    /// # Errors
    /// The difference, as [`Error::Mismatch`]; its source is the [`Deviation`], if there is one.
    pub fn agree(&self, got: &Computed, want: &Computed, steps: u32) -> Result<(), Error> {
        self.deviation(got, want, steps)?.map_or(Ok(()), |found| Err(Error::mismatch_caused_by(found)))
    }

    /// Compares as [`Case::agree`], and returns the elements beyond the tolerance, if any.
    ///
    /// # Errors
    /// [`Error::Mismatch`]: another type, shape or size, or other bytes of elements that are not numbers.
    pub fn deviation(&self, got: &Computed, want: &Computed, steps: u32) -> Result<Option<Deviation>, Error> {
        if (got.ty, &got.shape) != (want.ty, &want.shape) {
            let sides = format_args!("{} {}, expected {} {}", got.ty, got.shape, want.ty, want.shape);
            return Err(Error::mismatch(sides));
        }
        let (Some(g), Some(w)) = (numbers(got.ty, &got.bytes), numbers(want.ty, &want.bytes)) else {
            return match got.bytes == want.bytes {
                true => Ok(None),
                false => Err(Error::mismatch(format_args!("the bytes of {} {} differ", got.ty, got.shape))),
            };
        };
        if g.len() != w.len() {
            let got = counted(g.len(), "element");
            return Err(Error::mismatch(format_args!("{got}, expected {}", w.len())));
        }
        // Data read as FLOAT32 may have been BFLOAT16.
        let narrow = self.data_type() == Some(TensorType::BFloat16) && got.ty == TensorType::Float32;
        let ty = if narrow { TensorType::BFloat16 } else { got.ty };
        let mut tolerance = Tolerance::of(ty, want.quantized);
        tolerance.quantum = tolerance.quantum.min(steps);
        Ok(Deviation::of(ty, &g, &w, tolerance))
    }
}

fn entry(line: &str, outputs: &[u8]) -> Result<(String, Entry), String> {
    let [name, fingerprint, what, rest] = line.split('\t').collect::<Vec<_>>()[..] else {
        return Err("expected four columns".into());
    };
    let fingerprint = u64::from_str_radix(fingerprint, 16).map_err(|e| e.to_string())?;
    let outcome = match what {
        "ran" => Recorded::Ran(
            rest.split(';')
                .filter(|piece| !piece.is_empty())
                .map(|piece| output(piece, outputs).ok_or_else(|| format!("\"{piece}\" is not an output")))
                .collect::<Result<_, _>>()?,
        ),
        "refused" => Recorded::Refused(rest.into()),
        "crashed" => Recorded::Crashed(rest.into()),
        "varies" => Recorded::Varies(rest.into()),
        other => return Err(format!("\"{other}\" is not an outcome")),
    };
    Ok((name.into(), Entry { fingerprint, outcome }))
}

/// Parses `TYPE [q] d,d,d offset+length`.
fn output(piece: &str, outputs: &[u8]) -> Option<Computed> {
    let [ty, quantized, shape, range] = piece.split(' ').collect::<Vec<_>>()[..] else { return None };
    let shape = shape.split(',').filter(|d| *d != "-").map(str::parse).collect::<Result<Shape, _>>().ok()?;
    let (offset, length) = range.split_once('+')?;
    let (offset, length): (usize, usize) = (offset.parse().ok()?, length.parse().ok()?);
    let bytes = outputs.get(offset..offset.checked_add(length)?)?.to_vec();
    Some(Computed { ty: type_named(ty)?, shape, quantized: quantized == "q", bytes })
}

fn types(line: &str) -> Option<(BuiltinOp, BTreeSet<TensorType>)> {
    let (op, types) = line.split_once('\t')?;
    let op = (0..256).map(BuiltinOp).find(|o| o.variant_name() == Some(op))?;
    Some((op, types.split(' ').map(type_named).collect::<Option<_>>()?))
}

fn type_named(name: &str) -> Option<TensorType> {
    TensorType::ALL.iter().copied().find(|t| t.name() == name)
}
