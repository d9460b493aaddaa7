//! Writing a [`Model`] as a `.tflite` file, and building models.
//!
//! Everything that loading reads is written again. Data that loading ignores (operator codes without a node, bytes of a
//! buffer beyond its tensor) is omitted.

use std::collections::HashMap;

use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Vector, WIPOffset};

use crate::error::{Error, Result};
use crate::graph::archive;
use crate::graph::{Model, Node, Signature, Subgraph, TensorId};
use crate::ops::{self, OptionsType, Params};
use crate::schema;
use crate::types::{BuiltinOp, Op};

mod builder;
mod composite_builder;
mod data;
mod difference;
mod save;
mod subgraph_builder;
mod tensor;
mod versions;

pub use builder::ModelBuilder;
pub use composite_builder::CompositeBuilder;
pub use subgraph_builder::{NodeBuilder, SubgraphBuilder};
pub use versions::{Restamped, RestampedOp};

use data::{Data, Place, aligned};

/// Maximum size of a FlatBuffer: its offsets are signed 32-bit numbers. Further data is placed after the FlatBuffer.
const LARGEST: usize = i32::MAX as usize;
/// Space that must be left after each table, so that the next one never exceeds [`LARGEST`].
const MARGIN: usize = 1 << 28;

/// Why a model cannot be written.
#[derive(Debug)]
struct Unwritable(Error);

impl From<String> for Unwritable {
    fn from(message: String) -> Self {
        Unwritable(Error::InvalidModel { path: None, message })
    }
}

type Written<T> = Result<WIPOffset<T>, Unwritable>;
type Tables<'f, T> = WIPOffset<Vector<'f, ForwardsUOffset<T>>>;

impl Model {
    /// Returns the model as a `.tflite` file. Ops keep the versions that they have.
    ///
    /// Constants that share their bytes still share them, and each is aligned to 16 bytes. If together they exceed the
    /// limit of a FlatBuffer (2 GB), they are stored behind it, as in TFLite since release 2.15.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an op or a version that this build does not know, [`Error::InvalidNode`] if params do
    /// not belong to their op, [`Error::InvalidModel`] if a number does not fit the format, a tensor has data outside
    /// of the model's bytes, or the archive cannot be moved.
    ///
    /// ```
    /// use delegraph_core::{Model, ModelBytes};
    ///
    /// # fn main() -> delegraph_core::Result<()> {
    /// let file = include_bytes!("../../../assets/digits/digits_int8.tflite");
    /// let model = Model::from_bytes(ModelBytes::new(file))?;
    /// let again = Model::from_bytes(ModelBytes::new(model.to_bytes()?))?;
    /// assert_eq!(model.difference(&again), None);
    /// # Ok(()) }
    /// ```
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        write(self, LARGEST)
    }
}

/// Writes `model` with the archive that follows it.
fn write(model: &Model, largest: usize) -> Result<Vec<u8>> {
    let mut file = write_tables(model, largest)?;
    if let Some(zip) = model.archive() {
        let Some(moved) = archive::moved(zip, file.len()) else {
            let message = "the archive after it cannot be moved".into();
            return Err(Error::InvalidModel { path: model.path().map(Into::into), message });
        };
        file.extend_from_slice(&moved);
    }
    Ok(file)
}

/// Writes the FlatBuffer of `model`. Data is placed after the FlatBuffer if the whole would be longer than `largest`.
fn write_tables(model: &Model, largest: usize) -> Result<Vec<u8>> {
    let data = Data::of(model);
    // First without the data: the size of the tables determines the place of the data.
    let tables = Writer::new(model, &data, Place::Behind(data::ALIGNMENT)).finish()?;
    let whole = data.inline_len().checked_add(tables.finished_data().len());
    if whole.is_some_and(|whole| whole <= largest) {
        let writer = Writer::new(model, &data, Place::Inline).finish()?;
        return Ok(writer.finished_data().to_vec());
    }
    let start = tables.finished_data().len().next_multiple_of(data::ALIGNMENT);
    let tables = Writer::new(model, &data, Place::Behind(start)).finish()?;
    let mut file = tables.finished_data().to_vec();
    data.append(&mut file, start);
    Ok(file)
}

struct Writer<'m, 'f> {
    model: &'m Model,
    data: &'m Data<'m>,
    place: Place,
    codes: HashMap<(&'m Op, u32), u32>,
    fb: FlatBufferBuilder<'f>,
}

impl<'m, 'f> Writer<'m, 'f> {
    fn new(model: &'m Model, data: &'m Data<'m>, place: Place) -> Self {
        let capacity = if place == Place::Inline { data.inline_len() } else { 0 };
        let fb = FlatBufferBuilder::with_capacity(capacity.saturating_add(1 << 12));
        Writer { model, data, place, codes: HashMap::new(), fb }
    }

    fn finish(mut self) -> Result<FlatBufferBuilder<'f>> {
        let root = self.root().map_err(|Unwritable(e)| match e {
            Error::InvalidModel { message, .. } => Error::InvalidModel {
                path: self.model.path().map(Into::into),
                message: format!("cannot be written: {message}"),
            },
            e => e,
        })?;
        schema::finish_model_buffer(&mut self.fb, root);
        Ok(self.fb)
    }

    fn root(&mut self) -> Written<schema::Model<'f>> {
        let model = self.model;
        let buffers = self.buffers();
        // One operator code per op and version, in the order of first use.
        let mut codes = Vec::new();
        for node in model.subgraphs().iter().flat_map(Subgraph::nodes) {
            let next = codes.len() as u32;
            self.codes.entry((node.op(), node.version())).or_insert_with(|| {
                codes.push((node.op(), node.version()));
                next
            });
        }
        let codes = codes.into_iter().map(|(op, version)| self.operator_code(op, version));
        let codes = codes.collect::<Result<Vec<_>, _>>()?;
        let operator_codes = Some(self.fb.create_vector(&codes));
        let subgraphs = model.subgraphs().iter().enumerate().map(|(i, g)| self.subgraph(i, g));
        let subgraphs = subgraphs.collect::<Result<Vec<_>, _>>()?;
        let subgraphs = Some(self.fb.create_vector(&subgraphs));
        let signatures =
            model.signatures().iter().map(|s| self.signature(s)).collect::<Result<Vec<_>, _>>()?;
        let signature_defs = (!signatures.is_empty()).then(|| self.fb.create_vector(&signatures));
        let metadata: Vec<_> =
            model.metadata_entries().iter().map(|(name, range)| self.metadata(name, range)).collect();
        let metadata = (!metadata.is_empty()).then(|| self.fb.create_vector(&metadata));
        let unnamed: Vec<i32> =
            model.unnamed_metadata().iter().map(|range| self.data.buffer(range) as i32).collect();
        let metadata_buffer = (!unnamed.is_empty()).then(|| self.fb.create_vector(&unnamed));
        let description = self.string(model.description());
        let args = schema::ModelArgs {
            version: crate::loader::SCHEMA_VERSION,
            operator_codes,
            subgraphs,
            description,
            buffers: Some(buffers),
            metadata_buffer,
            metadata,
            signature_defs,
            ..Default::default()
        };
        Ok(schema::Model::create(&mut self.fb, &args))
    }

    /// A string; an empty one is left out.
    fn string(&mut self, text: &str) -> Option<WIPOffset<&'f str>> {
        (!text.is_empty()).then(|| self.fb.create_string(text))
    }

    fn buffers(&mut self) -> Tables<'f, schema::Buffer<'f>> {
        let mut args = Vec::with_capacity(self.data.buffers.len());
        for (i, range) in self.data.buffers.iter().enumerate() {
            args.push(match self.place {
                _ if i == 0 => schema::BufferArgs::default(),
                // TFLite treats an empty list as a constant, and an absent list as a tensor that a node writes.
                _ if range.is_empty() => {
                    schema::BufferArgs { data: Some(aligned(&mut self.fb, &[])), ..Default::default() }
                }
                Place::Inline => {
                    let data = Some(aligned(&mut self.fb, self.data.bytes(range)));
                    schema::BufferArgs { data, ..Default::default() }
                }
                Place::Behind(start) => {
                    let (offset, size) = self.data.behind(range, start);
                    schema::BufferArgs { data: None, offset, size }
                }
            });
        }
        let tables: Vec<_> = args.iter().map(|args| schema::Buffer::create(&mut self.fb, args)).collect();
        self.fb.create_vector(&tables)
    }

    /// Codes above 126 do not fit the byte that old readers use; 127 represents all of them there.
    fn operator_code(&mut self, op: &Op, version: u32) -> Written<schema::OperatorCode<'f>> {
        let (code, custom_code) = match op {
            Op::Builtin(code) => (*code, None),
            Op::Custom(name) => (BuiltinOp::CUSTOM, Some(self.fb.create_string(name))),
        };
        let placeholder = BuiltinOp::PLACEHOLDER_FOR_GREATER_OP_CODES.0 as i8;
        let args = schema::OperatorCodeArgs {
            deprecated_builtin_code: i8::try_from(code.0).unwrap_or(placeholder),
            custom_code,
            version: i32::try_from(version).map_err(|_| format!("version {version} of {op} is too high"))?,
            builtin_code: schema::BuiltinOperator(code.0),
        };
        Ok(schema::OperatorCode::create(&mut self.fb, &args))
    }

    fn subgraph(&mut self, index: usize, subgraph: &'m Subgraph) -> Written<schema::SubGraph<'f>> {
        let mut tensors = Vec::with_capacity(subgraph.tensors().len());
        for (i, tensor) in subgraph.tensors().iter().enumerate() {
            if tensor.has_external_data() {
                let message =
                    format!("subgraph {index}, tensor {i}: its data is outside of the model's bytes");
                return Err(Unwritable::from(message));
            }
            let buffer = self.data.buffer_of(tensor);
            let table = tensor::write(&mut self.fb, subgraph, tensor, buffer)
                .map_err(|e| format!("subgraph {index}, tensor {i} (\"{}\"): {e}", tensor.name()))?;
            tensors.push(table);
            self.check_size()?;
        }
        let tensors = Some(self.fb.create_vector(&tensors));
        let mut operators = Vec::with_capacity(subgraph.nodes().len());
        for (i, node) in subgraph.nodes().iter().enumerate() {
            operators.push(self.node(node).map_err(|Unwritable(e)| match e {
                Error::InvalidModel { message, .. } => {
                    Unwritable::from(format!("subgraph {index}, node {i} ({}): {message}", node.op()))
                }
                e => Unwritable(e.at(self.model.locate(index, crate::graph::NodeId(i)))),
            })?);
            self.check_size()?;
        }
        let args = schema::SubGraphArgs {
            tensors,
            inputs: Some(self.ids(subgraph.inputs().iter().copied().map(Some))?),
            outputs: Some(self.ids(subgraph.outputs().iter().copied().map(Some))?),
            operators: Some(self.fb.create_vector(&operators)),
            name: self.string(subgraph.name()),
            debug_metadata_index: debug_metadata(subgraph.debug_metadata())?,
        };
        Ok(schema::SubGraph::create(&mut self.fb, &args))
    }

    /// Rejects tables that do not fit a FlatBuffer. The tables of trained models are far smaller.
    fn check_size(&self) -> Result<(), Unwritable> {
        let inline = if self.place == Place::Inline { self.data.inline_len() } else { 0 };
        match self.fb.unfinished_data().len().checked_sub(inline) {
            Some(tables) if tables > LARGEST - MARGIN => {
                Err("its tables are larger than a FlatBuffer may be".to_owned().into())
            }
            _ => Ok(()),
        }
    }

    /// Writes tensor indices; -1 represents none.
    fn ids(
        &mut self,
        ids: impl IntoIterator<Item = Option<TensorId>>,
    ) -> Result<WIPOffset<Vector<'f, i32>>, String> {
        let id = |id: Option<TensorId>| id.map_or(Ok(-1), |id| int(id.0));
        let ids = ids.into_iter().map(id).collect::<Result<Vec<i32>, String>>()?;
        Ok(self.fb.create_vector(&ids))
    }

    fn node(&mut self, node: &'m Node) -> Written<schema::Operator<'f>> {
        let mut args = schema::OperatorArgs {
            opcode_index: self.codes.get(&(node.op(), node.version())).copied().unwrap_or_default(),
            inputs: Some(self.ids(node.inputs().iter().copied())?),
            outputs: Some(self.ids(node.outputs().iter().copied().map(Some))?),
            debug_metadata_index: debug_metadata(node.debug_metadata())?,
            ..Default::default()
        };
        if !node.intermediates().is_empty() {
            args.intermediates = Some(self.ids(node.intermediates().iter().copied())?);
        }
        if !node.mutating_variable_inputs().is_empty() {
            args.mutating_variable_inputs = Some(self.fb.create_vector(node.mutating_variable_inputs()));
        }
        match node.op() {
            Op::Custom(_) if node.custom_options().is_empty() => {}
            Op::Custom(_) => match self.place {
                Place::Inline => {
                    args.custom_options =
                        Some(aligned(&mut self.fb, self.data.bytes(&node.custom_options())));
                }
                Place::Behind(start) => {
                    let (offset, size) = self.data.behind(&node.custom_options(), start);
                    (args.large_custom_options_offset, args.large_custom_options_size) = (offset, size);
                }
            },
            Op::Builtin(code) => self.options(*code, node, &mut args)?,
        }
        Ok(schema::Operator::create(&mut self.fb, &args))
    }

    fn options(
        &mut self,
        code: BuiltinOp,
        node: &Node,
        args: &mut schema::OperatorArgs<'_>,
    ) -> Result<(), Unwritable> {
        let unknown = |what: &str| {
            let message = format!("this build does not know {what} or the format of its options");
            Err(Unwritable(Error::Unsupported(message)))
        };
        let Some(definition) = ops::definition(code) else { return unknown("the op") };
        if *node.params() == Params::Undefined {
            return unknown("this version of the op");
        }
        if node.options_left_out()
            && definition.codec.defaults().is_ok_and(|defaults| defaults == *node.params())
        {
            return Ok(());
        }
        let written = definition.codec.write(node.params(), &mut self.fb);
        match written.map_err(|e| Unwritable(Error::InvalidNode(e.to_string())))? {
            (OptionsType::None, _) => {}
            (OptionsType::First(ty), table) => {
                (args.builtin_options_type, args.builtin_options) = (ty, table);
            }
            (OptionsType::Second(ty), table) => {
                (args.builtin_options_2_type, args.builtin_options_2) = (ty, table);
            }
        }
        Ok(())
    }

    fn signature(&mut self, signature: &Signature) -> Written<schema::SignatureDef<'f>> {
        let args = schema::SignatureDefArgs {
            inputs: Some(self.tensor_map(signature.inputs())?),
            outputs: Some(self.tensor_map(signature.outputs())?),
            signature_key: Some(self.fb.create_string(signature.key())),
            subgraph_index: unsigned(signature.subgraph())?,
        };
        Ok(schema::SignatureDef::create(&mut self.fb, &args))
    }

    fn tensor_map(
        &mut self,
        names: &[(String, TensorId)],
    ) -> Result<Tables<'f, schema::TensorMap<'f>>, Unwritable> {
        let mut tables = Vec::with_capacity(names.len());
        for (name, id) in names {
            let name = Some(self.fb.create_string(name));
            let args = schema::TensorMapArgs { name, tensor_index: unsigned(id.0)? };
            tables.push(schema::TensorMap::create(&mut self.fb, &args));
        }
        Ok(self.fb.create_vector(&tables))
    }

    fn metadata(&mut self, name: &str, range: &std::ops::Range<usize>) -> WIPOffset<schema::Metadata<'f>> {
        let name = Some(self.fb.create_string(name));
        let args = schema::MetadataArgs { name, buffer: self.data.buffer(range) };
        schema::Metadata::create(&mut self.fb, &args)
    }
}

/// A size or index, as the format stores it.
fn int(value: usize) -> Result<i32, String> {
    i32::try_from(value).map_err(|_| format!("{value} does not fit the format's 32-bit numbers"))
}

fn unsigned(value: usize) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| format!("{value} does not fit the format's 32-bit numbers"))
}

fn debug_metadata(index: Option<u32>) -> Result<i32, String> {
    index.map_or(Ok(-1), |i| i32::try_from(i).map_err(|_| format!("debug metadata index {i} is too high")))
}

#[cfg(test)]
mod builder_tests;
#[cfg(test)]
mod tests;
