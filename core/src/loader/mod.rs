//! From untrusted bytes to a verified [`Model`].
//!
//! FlatBuffers' own verifier makes every offset safe to follow; all other properties (an index names an existing
//! tensor, a buffer has the length that its tensor's type and shape need, nodes follow the producers of their inputs)
//! are checked while reading here and by [`ModelDraft::verify`]. Nothing in this module casts or computes unchecked: a
//! wrong number is an error, never a wrap.
#![deny(
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unsafe_code
)]

use std::ops::Range;
use std::path::PathBuf;

use flatbuffers::VerifierOptions;

use crate::error::{Error, Result, counted};
use crate::graph::archive;
use crate::graph::{Invalid, in_subgraph, invalid};
use crate::graph::{Model, ModelBytes, ModelDraft, Signature, Subgraph, TensorId};
use crate::schema;

mod external;
mod quantization;
mod rewrite;
mod subgraph;
mod tensor;

/// The only schema version in use, and the only one that LiteRT accepts.
pub(crate) const SCHEMA_VERSION: u32 = 3;

pub(crate) fn load(bytes: ModelBytes, path: Option<PathBuf>) -> Result<Model> {
    let bytes =
        readable(bytes).map_err(|Invalid(message)| Error::InvalidModel { path: path.clone(), message })?;
    // Checked first: without its weights, the rest of the file is irrelevant.
    match verify(bytes.as_ref()).and_then(|model| external::find(&model)) {
        Ok(Some(message)) => return Err(Error::ExternalData { path, message }),
        Ok(None) => {}
        Err(Invalid(message)) => return Err(Error::InvalidModel { path, message }),
    }
    let mut draft =
        read(bytes).map_err(|Invalid(message)| Error::InvalidModel { path: path.clone(), message })?;
    draft.path = path;
    draft.verify()
}

impl Model {
    /// Verifies `bytes` and builds the graph.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] with the defect and its place; [`Error::ExternalData`] if weights are in other files.
    /// Unknown ops are not an error here: a resolver decides whether they can run.
    pub fn from_bytes(bytes: ModelBytes) -> Result<Self> {
        load(bytes, None)
    }

    /// Like [`Model::from_bytes`], with the path that error messages name.
    ///
    /// # Errors
    /// As [`Model::from_bytes`].
    pub fn from_bytes_named(bytes: ModelBytes, path: impl Into<PathBuf>) -> Result<Self> {
        load(bytes, Some(path.into()))
    }
}

/// The bytes if the verifier accepts them; the same model rewritten in the strict form if only its form is malformed.
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

/// True when data is stored behind the FlatBuffer, by offset from the start of the original file.
fn reaches_outside(model: &schema::Model<'_>) -> bool {
    let mut operators =
        model.subgraphs().unwrap_or_default().iter().flat_map(|g| g.operators().unwrap_or_default().iter());
    model.buffers().unwrap_or_default().iter().any(|b| b.offset() > 1)
        || operators.any(|o| o.large_custom_options_offset() > 1)
}

fn read(bytes: ModelBytes) -> Result<ModelDraft, Invalid> {
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
    let subgraphs = subgraphs
        .iter()
        .enumerate()
        .map(|(i, table)| {
            subgraph::read(&table, &buffers, &codes)
                .map_err(|e| in_subgraph(i, table.name().unwrap_or_default(), e))
        })
        .collect::<Result<Vec<Subgraph>, Invalid>>()?;
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
    // Unnamed metadata has no reader: entries with an index out of range are omitted.
    let unnamed = model.metadata_buffer().unwrap_or_default().iter();
    let unnamed = unnamed.filter_map(|i| buffers.range(u32::try_from(i).ok()?).ok());
    let unnamed_metadata = unnamed.map(Option::unwrap_or_default).collect();
    let mut draft = ModelDraft::new(bytes.clone(), subgraphs);
    draft.description = model.description().unwrap_or_default().to_owned();
    draft.signatures = signatures(&model);
    draft.metadata = metadata;
    draft.unnamed_metadata = unnamed_metadata;
    draft.archive = archive::find(file);
    Ok(draft)
}

/// Files that are mistaken for models, by their first bytes.
const FAMILIAR: [(&[u8], &str); 5] = [
    (b"PK\x03\x04", "a ZIP archive; the model may be one of the files in it"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, such as Keras saves; convert it to .tflite first"),
    (b"LITERTLM", "a LiteRT-LM bundle; the model is one of the sections in it"),
    (b"version https://git-lfs", "a Git LFS pointer; fetch the file that it stands for"),
];

fn check_identifier(file: &[u8]) -> Result<(), Invalid> {
    if file.len() < 8 {
        return invalid!("a file of {} is too short for a model", counted(file.len(), "byte"));
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
        max_apparent_size: file.len().saturating_mul(3).saturating_add(8 << 20),
        ignore_missing_null_terminator: false,
    };
    schema::root_as_model_with_opts(&options, file).map_err(|e| {
        // The first line names the defect; the following trace has many lines about the schema.
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
    /// Returns the range of the data of buffer `index`; `None` if it has none.
    fn range(&self, index: u32) -> Result<Option<Range<usize>>, Invalid> {
        // Buffer 0 is empty by convention and represents "no data", regardless of its contents.
        if index == 0 {
            return Ok(None);
        }
        let i = index_of(index);
        if i >= self.table.len() {
            let buffers = counted(self.table.len(), "buffer");
            return invalid!("buffer {index} does not exist; the file has {buffers}");
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
            let (bytes, verb) = (counted(size, "byte"), if size == 1 { "is" } else { "are" });
            let len = self.file.len();
            return invalid!("{what}: {bytes} at offset {offset} {verb} outside the file of {len} bytes");
        };
        // The first table of every file precedes the data that is behind all tables.
        let root = self.file.first_chunk().map_or(0, |start| index_of(u32::from_le_bytes(*start)));
        if range.start < root {
            let (bytes, verb) = (counted(size, "byte"), if size == 1 { "overlaps" } else { "overlap" });
            return invalid!("{what}: {bytes} at offset {offset} {verb} the file's header");
        }
        Ok(range)
    }

    /// The range of a slice in the file.
    fn range_of(&self, slice: &[u8]) -> Result<Range<usize>, Invalid> {
        let start = slice.as_ptr().addr().checked_sub(self.file.as_ptr().addr());
        match start.and_then(|s| Some(s..s.checked_add(slice.len())?)).filter(|r| r.end <= self.file.len()) {
            Some(range) => Ok(range),
            None => invalid!("a buffer is outside the file"),
        }
    }
}

fn signatures(model: &schema::Model<'_>) -> Vec<Signature> {
    type TensorMaps<'a> = flatbuffers::Vector<'a, flatbuffers::ForwardsUOffset<schema::TensorMap<'a>>>;
    let names = |maps: Option<TensorMaps<'_>>| {
        let entry = |entry: schema::TensorMap<'_>| {
            (entry.name().unwrap_or_default().to_owned(), TensorId(index_of(entry.tensor_index())))
        };
        maps.unwrap_or_default().iter().map(entry).collect()
    };
    let read = |table: schema::SignatureDef<'_>| {
        let key = table.signature_key().unwrap_or_default();
        let (inputs, outputs) = (names(table.inputs()), names(table.outputs()));
        Signature::new(key, index_of(table.subgraph_index()), inputs, outputs)
    };
    model.signature_defs().unwrap_or_default().iter().map(read).collect()
}

/// An unsigned index of the file. On existing 32- and 64-bit targets this never saturates; a saturated index would fail
/// the following range check.
fn index_of(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A signed index of the file into a list of `len` elements. `what` names the index, and `of` an element of the list.
fn index_in(value: i32, len: usize, what: &str, of: &str) -> Result<usize, Invalid> {
    match usize::try_from(value).ok().filter(|&i| i < len) {
        Some(i) => Ok(i),
        None => invalid!("{what} {value} is out of range for {}", counted(len, of)),
    }
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;

    use super::*;

    /// A file of about 1 MiB, in which `parents` operators share one list of 2^18 tensors.
    fn shared(parents: usize) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let list = builder.create_vector(&vec![0i32; 1 << 18]);
        let operators: Vec<_> = (0..parents)
            .map(|_| {
                let arguments = schema::OperatorArgs { inputs: Some(list), ..Default::default() };
                schema::Operator::create(&mut builder, &arguments)
            })
            .collect();
        let operators = Some(builder.create_vector(&operators));
        let arguments = schema::SubGraphArgs { operators, ..Default::default() };
        let subgraph = schema::SubGraph::create(&mut builder, &arguments);
        let subgraphs = Some(builder.create_vector(&[subgraph]));
        let arguments = schema::ModelArgs { subgraphs, ..Default::default() };
        let model = schema::Model::create(&mut builder, &arguments);
        builder.finish(model, Some(schema::MODEL_IDENTIFIER));
        builder.finished_data().to_vec()
    }

    #[test]
    fn shared_tables_may_not_exceed_the_bound() {
        let size = |parents| shared(parents).len().abs_diff(1 << 20);
        assert!(size(100) < 1 << 14, "{}", size(100));
        // Three times the file and 8 MiB.
        assert!(verify(&shared(10)).is_ok());
        let text = |parents| verify(&shared(parents)).err().map(|Invalid(text)| text).unwrap_or_default();
        assert!(text(12).starts_with("damaged FlatBuffer: "), "{}", text(12));
    }
}
