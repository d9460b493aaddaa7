//! From untrusted bytes to a verified [`Model`].
//!
//! FlatBuffers' own verifier makes every offset safe to follow; what it cannot know (that an index names a tensor
//! that exists, that a buffer is as long as its tensor's type and shape need, that nodes come after what they read)
//! is checked here. Nothing in this module casts or computes unchecked: a wrong number is an error, never a wrap.
#![deny(
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unsafe_code
)]

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;

use flatbuffers::VerifierOptions;

use crate::archive;
use crate::error::{Error, Result, tensor_name};
use crate::graph::{Model, ModelBytes, Signature, Subgraph, Tensor, TensorId};
use crate::schema;

mod external;
mod order;
pub(crate) use order::{callees, renumber_callees};
mod quantization;
mod rewrite;
mod subgraph;
mod tensor;

/// The only schema version that exists in the wild, and that LiteRT accepts.
pub(crate) const SCHEMA_VERSION: u32 = 3;

/// What is wrong; the path is added at the end.
#[derive(Debug)]
struct Invalid(String);

macro_rules! invalid {
    ($($arg:tt)*) => { Err(Invalid(format!($($arg)*))) };
}
use invalid;

pub(crate) fn load(bytes: ModelBytes, path: Option<PathBuf>) -> Result<Model> {
    let bytes =
        readable(bytes).map_err(|Invalid(message)| Error::InvalidModel { path: path.clone(), message })?;
    // Said of the whole file, before anything else could be: without its weights nothing else matters.
    match verify(bytes.as_ref()).and_then(|model| external::find(&model)) {
        Ok(Some(message)) => return Err(Error::ExternalData { path, message }),
        Ok(None) => {}
        Err(Invalid(message)) => return Err(Error::InvalidModel { path, message }),
    }
    read(bytes, path.clone()).map_err(|Invalid(message)| Error::InvalidModel { path, message })
}

/// Checks subgraphs that were made in memory.
pub(crate) fn from_subgraphs(bytes: Vec<u8>, mut subgraphs: Vec<Subgraph>) -> Result<Model> {
    check_subgraphs(&mut subgraphs, bytes.len(), None)?;
    Ok(Model {
        bytes: ModelBytes::new(bytes),
        path: None,
        shared: Default::default(),
        description: String::new(),
        subgraphs,
        signatures: Vec::new(),
        metadata: Vec::new(),
        unnamed_metadata: Vec::new(),
        archive: None,
    })
}

/// See [`Model::with_subgraphs`].
pub(crate) fn with_subgraphs(
    model: &Model,
    bytes: Option<ModelBytes>,
    mut subgraphs: Vec<Subgraph>,
) -> Result<Model> {
    let bytes = bytes.unwrap_or_else(|| model.bytes.clone());
    check_subgraphs(&mut subgraphs, bytes.as_ref().len(), model.path.clone())?;
    for Signature { key, subgraph, inputs, outputs } in &model.signatures {
        let tensors = subgraphs.get(*subgraph).map_or(0, |g| g.tensors.len());
        if inputs.iter().chain(outputs).any(|(_, id)| id.0 >= tensors) {
            let message = format!("signature \"{key}\" names a tensor that does not exist");
            return Err(Error::InvalidModel { path: model.path.clone(), message });
        }
    }
    Ok(Model {
        bytes,
        path: model.path.clone(),
        shared: Default::default(),
        description: model.description.clone(),
        subgraphs,
        signatures: model.signatures.clone(),
        metadata: model.metadata.clone(),
        unnamed_metadata: model.unnamed_metadata.clone(),
        archive: model.archive.clone(),
    })
}

fn check_subgraphs(subgraphs: &mut [Subgraph], bytes: usize, path: Option<PathBuf>) -> Result<()> {
    let count = subgraphs.len();
    let mut check = || {
        if count == 0 {
            return invalid!("there are no subgraphs");
        }
        for (i, subgraph) in subgraphs.iter_mut().enumerate() {
            let name = subgraph.name.clone();
            order::check_indices(subgraph, bytes)
                .and_then(|()| order::check_nodes(subgraph, count))
                .map_err(|e| in_subgraph(i, &name, e))?;
        }
        order::check_calls(subgraphs)
    };
    check().map_err(|Invalid(message)| Error::InvalidModel { path, message })
}

/// The bytes if the verifier takes them; the same model in a stricter form if only its form is sloppy.
fn readable(bytes: ModelBytes) -> Result<ModelBytes, Invalid> {
    check_identifier(bytes.as_ref())?;
    let Err(damage) = verify(bytes.as_ref()) else { return Ok(bytes) };
    match rewrite::rewrite(bytes.as_ref()) {
        Ok(mut rewritten) if verify(&rewritten).is_ok_and(|model| !reaches_outside(&model)) => {
            log::debug!("read leniently: {}", damage.0);
            let found = archive::find(bytes.as_ref()).and_then(|range| bytes.as_ref().get(range));
            if let Some(moved) = found.and_then(|zip| archive::moved(zip, rewritten.len())) {
                rewritten.extend_from_slice(&moved);
            }
            Ok(ModelBytes::new(rewritten))
        }
        _ => Err(damage),
    }
}

/// True when data lies behind the FlatBuffer, by offset from the start of the original file.
fn reaches_outside(model: &schema::Model<'_>) -> bool {
    let mut operators =
        model.subgraphs().unwrap_or_default().iter().flat_map(|g| g.operators().unwrap_or_default().iter());
    model.buffers().unwrap_or_default().iter().any(|b| b.offset() > 1)
        || operators.any(|o| o.large_custom_options_offset() > 1)
}

fn read(bytes: ModelBytes, path: Option<PathBuf>) -> Result<Model, Invalid> {
    let file = bytes.as_ref();
    let model = verify(file)?;
    if model.version() != SCHEMA_VERSION {
        return invalid!(
            "its schema version is {}; every TFLite runtime reads version {SCHEMA_VERSION} only",
            model.version()
        );
    }
    let buffers = Buffers { bytes: &bytes, file, table: model.buffers().unwrap_or_default() };
    let codes = subgraph::operator_codes(&model);
    let Some(subgraphs) = model.subgraphs().filter(|s| !s.is_empty()) else {
        return invalid!("the file has no subgraphs");
    };
    let count = subgraphs.len();
    let subgraphs = subgraphs
        .iter()
        .enumerate()
        .map(|(i, table)| {
            subgraph::read(&table, &buffers, &codes, count)
                .map_err(|e| in_subgraph(i, table.name().unwrap_or_default(), e))
        })
        .collect::<Result<Vec<Subgraph>, Invalid>>()?;
    order::check_calls(&subgraphs)?;
    let metadata = model
        .metadata()
        .unwrap_or_default()
        .iter()
        .map(|m| {
            let name = m.name().unwrap_or_default().to_owned();
            let range =
                buffers.range(m.buffer()).map_err(|e| Invalid(format!("metadata \"{name}\": {}", e.0)))?;
            Ok((name, range.unwrap_or(0..0)))
        })
        .collect::<Result<_, Invalid>>()?;
    // Nobody reads these any more: an index that leads nowhere does no harm.
    let unnamed = model.metadata_buffer().unwrap_or_default().iter();
    let unnamed = unnamed.filter_map(|i| buffers.range(u32::try_from(i).ok()?).ok());
    let unnamed_metadata = unnamed.map(Option::unwrap_or_default).collect();
    let signatures = signatures(&model, &subgraphs)?;
    Ok(Model {
        description: model.description().unwrap_or_default().to_owned(),
        path,
        shared: Default::default(),
        subgraphs,
        signatures,
        metadata,
        unnamed_metadata,
        archive: archive::find(file),
        bytes: bytes.clone(),
    })
}

/// Files that are mistaken for models, by how they start.
const FAMILIAR: [(&[u8], &str); 5] = [
    (b"PK\x03\x04", "a ZIP archive; the model may be one of the files in it"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, such as Keras saves; convert it to .tflite first"),
    (b"LITERTLM", "a LiteRT-LM bundle; the model is one of the sections in it"),
    (b"version https://git-lfs", "a Git LFS pointer; fetch the file that it stands for"),
];

fn check_identifier(file: &[u8]) -> Result<(), Invalid> {
    if file.len() < 8 {
        return invalid!("{} bytes are too few for a model", file.len());
    }
    if !schema::model_buffer_has_identifier(file) {
        if let Some((_, what)) = FAMILIAR.iter().find(|(start, _)| file.starts_with(start)) {
            return invalid!("not a .tflite file, but {what}");
        }
        let found: String = file.iter().skip(4).take(4).map(|b| b.escape_ascii().to_string()).collect();
        return invalid!("not a .tflite file: the identifier at byte 4 is \"{found}\" instead of \"TFL3\"");
    }
    Ok(())
}

fn verify(file: &[u8]) -> Result<schema::Model<'_>, Invalid> {
    // A table or vector may be shared by many parents; without a bound a small file could expand without end.
    let options = VerifierOptions {
        max_depth: 64,
        max_tables: file.len().max(1_000),
        max_apparent_size: file.len().saturating_mul(4).saturating_add(64 << 20),
        ignore_missing_null_terminator: false,
    };
    schema::root_as_model_with_opts(&options, file).map_err(|e| {
        // The trace that follows is many lines about the schema; the first says what is wrong.
        let text = e.to_string();
        Invalid(format!(
            "damaged FlatBuffer: {}",
            text.lines().next().unwrap_or_default().trim_end_matches('.')
        ))
    })
}

/// The buffers of a file, resolved to byte ranges of it.
struct Buffers<'a> {
    bytes: &'a ModelBytes,
    file: &'a [u8],
    table: flatbuffers::Vector<'a, flatbuffers::ForwardsUOffset<schema::Buffer<'a>>>,
}

impl<'a> Buffers<'a> {
    /// Where the data of buffer `index` is; `None` when it has none.
    fn range(&self, index: u32) -> Result<Option<Range<usize>>, Invalid> {
        // Buffer 0 is empty by convention and stands for "no data", whatever it holds.
        if index == 0 {
            return Ok(None);
        }
        let i = index_of(index);
        if i >= self.table.len() {
            return invalid!("buffer {index} does not exist; the file has {} buffers", self.table.len());
        }
        let buffer = self.table.get(i);
        if let Some(data) = buffer.data().filter(|d| !d.is_empty()) {
            return Ok(Some(self.range_of(data.bytes())?));
        }
        // Offsets up to 1 mean "unused": some writers leave 0, some 1.
        if buffer.offset() > 1 {
            return self.outside(buffer.offset(), buffer.size(), &format!("buffer {index}")).map(Some);
        }
        Ok(None)
    }

    /// Data behind the FlatBuffer, by offset from the start of the file.
    fn outside(&self, offset: u64, size: u64, what: &str) -> Result<Range<usize>, Invalid> {
        let range = usize::try_from(offset).ok().zip(usize::try_from(size).ok()).and_then(|(start, size)| {
            let end = start.checked_add(size)?;
            (end <= self.file.len()).then_some(start..end)
        });
        let Some(range) = range else {
            let len = self.file.len();
            return invalid!("{what}: {size} bytes at offset {offset} lie outside the file of {len} bytes");
        };
        // Whatever else the file holds, its first table comes before the data that is behind all tables.
        let root = self.file.first_chunk().map_or(0, |start| index_of(u32::from_le_bytes(*start)));
        if range.start < root {
            return invalid!("{what}: {size} bytes at offset {offset} overlap the file's header");
        }
        Ok(range)
    }

    /// Where a slice of the file lies in it.
    fn range_of(&self, slice: &[u8]) -> Result<Range<usize>, Invalid> {
        let start = slice.as_ptr().addr().checked_sub(self.file.as_ptr().addr());
        match start.and_then(|s| Some(s..s.checked_add(slice.len())?)).filter(|r| r.end <= self.file.len()) {
            Some(range) => Ok(range),
            None => invalid!("a buffer lies outside the file"),
        }
    }
}

fn signatures(model: &schema::Model<'_>, subgraphs: &[Subgraph]) -> Result<Vec<Signature>, Invalid> {
    let mut keys = HashSet::new();
    let mut signatures = Vec::new();
    for table in model.signature_defs().unwrap_or_default() {
        let key = table.signature_key().unwrap_or_default().to_owned();
        let index = index_of(table.subgraph_index());
        let Some(subgraph) = subgraphs.get(index) else {
            let count = subgraphs.len();
            return invalid!(
                "signature \"{key}\" runs subgraph {index}, which does not exist; the file has {count}"
            );
        };
        if !keys.insert(key.clone()) {
            return invalid!("signature \"{key}\" is there twice");
        }
        let names = |map: Option<
            flatbuffers::Vector<'_, flatbuffers::ForwardsUOffset<schema::TensorMap<'_>>>,
        >,
                     side: &str,
                     ends: &[TensorId]| {
            let mut seen = HashSet::new();
            map.unwrap_or_default()
                .iter()
                .map(|entry| {
                    let name = entry.name().unwrap_or_default().to_owned();
                    if !seen.insert(name.clone()) {
                        return invalid!("signature \"{key}\" names the {side} \"{name}\" twice");
                    }
                    let id = TensorId(index_of(entry.tensor_index()));
                    if !ends.contains(&id) {
                        return invalid!(
                            "signature \"{key}\": {side} \"{name}\" is tensor {}, which is no {side} of subgraph {index}",
                            id.0
                        );
                    }
                    Ok((name, id))
                })
                .collect::<Result<Vec<_>, Invalid>>()
        };
        let inputs = names(table.inputs(), "input", &subgraph.inputs)?;
        let outputs = names(table.outputs(), "output", &subgraph.outputs)?;
        signatures.push(Signature { subgraph: index, inputs, outputs, key });
    }
    Ok(signatures)
}

/// An unsigned index of the file. On the 32- and 64-bit targets that exist this never saturates; if it did, the
/// range check that follows would refuse it.
fn index_of(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A signed index of the file into a list of `len` things. `what` says what it is an index for, and of what, plural.
fn index_in(value: i32, len: usize, what: &str, of: &str) -> Result<usize, Invalid> {
    match usize::try_from(value).ok().filter(|&i| i < len) {
        Some(i) => Ok(i),
        None => invalid!("{what} {value} is out of range: there are {len} {of}"),
    }
}

/// Names the subgraph that something is wrong in, unless it is the primary one.
fn in_subgraph(index: usize, name: &str, error: Invalid) -> Invalid {
    match index {
        0 => error,
        i if name.is_empty() => Invalid(format!("subgraph {i}: {}", error.0)),
        i => Invalid(format!("subgraph {i} (\"{name}\"): {}", error.0)),
    }
}

/// A node, for error messages: its index, its op and what it writes.
fn at_node(node: usize, op: impl std::fmt::Display, writes: &str, error: Invalid) -> Invalid {
    Invalid(format!("node {node} ({op}{writes}): {}", error.0))
}

/// The names of the tensors that a node writes, as an error message goes on after the op.
pub(crate) fn writes(tensors: &[Tensor], outputs: impl IntoIterator<Item = usize>) -> String {
    let names: Vec<String> =
        outputs.into_iter().filter_map(|i| Some(tensor_name(&tensors.get(i)?.name, i))).collect();
    if names.is_empty() { String::new() } else { format!(", writes {}", names.join(", ")) }
}
