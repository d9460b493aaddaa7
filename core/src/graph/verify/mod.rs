//! The checks that turn a draft into a [`Model`](super::Model).
//!
//! Nothing in this module casts or computes unchecked: a wrong number is an error, never a wrap.
#![deny(
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unsafe_code
)]

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::{Model, ModelDraft, Signature, Subgraph, Tensor, TensorId, writes};
use crate::error::{Error, Result, counted, tensor_name};
use crate::types::Op;

mod order;
mod quantization;
mod tensor;

pub(super) use tensor::MAX_RANK;

/// A defect of a model, without the path of its file, which [`ModelDraft::verify`] and the loader add.
#[derive(Debug)]
pub(crate) struct Invalid(pub(crate) String);

macro_rules! invalid {
    ($($arg:tt)*) => { Err($crate::graph::Invalid(format!($($arg)*))) };
}
pub(crate) use invalid;

impl ModelDraft {
    /// Verifies the draft, and converts it into a model. A tensor without elements that no node writes becomes an empty
    /// constant.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] with the defect and its place. Unknown ops are not an error here: a resolver determines
    /// whether they can run.
    pub fn verify(mut self) -> Result<Model> {
        match check(&mut self) {
            Ok(()) => Ok(Model::verified(self)),
            Err(Invalid(message)) => Err(Error::InvalidModel { path: self.path, message }),
        }
    }
}

impl Tensor {
    /// Checks that the quantization fits type and shape, as [`ModelDraft::verify`] does for each tensor. Tensors that
    /// hold scales or zero points are not checked.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] with the mismatch.
    pub fn check_quantization(&self) -> Result<()> {
        let checked = self.quantization().map_or(Ok(()), |q| quantization::check(q, self.ty, &self.shape));
        checked.map_err(|Invalid(message)| {
            let message = format!("tensor \"{}\": {message}", self.name);
            Error::InvalidModel { path: None, message }
        })
    }
}

fn check(draft: &mut ModelDraft) -> Result<(), Invalid> {
    let bytes = draft.bytes.as_ref();
    let subgraphs = &mut draft.subgraphs;
    let count = subgraphs.len();
    if count == 0 {
        return invalid!("there are no subgraphs");
    }
    for (i, subgraph) in subgraphs.iter_mut().enumerate() {
        let checked = check_indices(subgraph)
            .and_then(|()| tensor::check_tensors(subgraph, bytes))
            .and_then(|()| check_options(subgraph, bytes.len()))
            .and_then(|()| order::check_nodes(subgraph, count));
        checked.map_err(|e| in_subgraph(i, &subgraph.name, e))?;
    }
    order::check_calls(subgraphs)?;
    check_signatures(&draft.signatures, subgraphs)?;
    let named = draft.metadata.iter().map(|(name, range)| (format!("metadata \"{name}\""), range));
    let unnamed = draft.unnamed_metadata.iter().map(|range| ("unnamed metadata".to_owned(), range));
    let archive = draft.archive.iter().map(|range| ("the archive".to_owned(), range));
    for (what, range) in named.chain(unnamed).chain(archive) {
        check_range(range, bytes.len()).map_err(|Invalid(message)| Invalid(format!("{what}: {message}")))?;
    }
    Ok(())
}

/// Checks that every id names a tensor.
fn check_indices(subgraph: &Subgraph) -> Result<(), Invalid> {
    let count = subgraph.tensors.len();
    let check = |what: &str, id: &TensorId| match id.0 < count {
        true => Ok(()),
        false => invalid!("{what} {} is out of range for {}", id.0, counted(count, "tensor")),
    };
    subgraph.inputs.iter().try_for_each(|id| check("the graph's input tensor", id))?;
    subgraph.outputs.iter().try_for_each(|id| check("the graph's output tensor", id))?;
    for (i, node) in subgraph.nodes.iter().enumerate() {
        let ids = || -> Result<(), Invalid> {
            node.inputs.iter().flatten().try_for_each(|id| check("input tensor", id))?;
            node.outputs.iter().try_for_each(|id| check("output tensor", id))?;
            node.intermediates().iter().flatten().try_for_each(|id| check("intermediate tensor", id))
        };
        ids().map_err(|e| {
            at_node(i, &node.op, &writes(&subgraph.tensors, node.outputs.iter().map(|id| id.0)), e)
        })?;
    }
    Ok(())
}

/// Checks that the options of custom ops are in the model's bytes.
fn check_options(subgraph: &Subgraph, bytes: usize) -> Result<(), Invalid> {
    for (i, node) in subgraph.nodes.iter().enumerate() {
        check_range(&node.custom_options, bytes).map_err(|Invalid(message)| {
            let writes = writes(&subgraph.tensors, node.outputs.iter().map(|id| id.0));
            at_node(i, &node.op, &writes, Invalid(format!("custom options: {message}")))
        })?;
    }
    Ok(())
}

fn check_range(range: &Range<usize>, len: usize) -> Result<(), Invalid> {
    let Range { start, end } = *range;
    if start <= end && end <= len {
        return Ok(());
    }
    invalid!("bytes {start} to {end} are outside the model's {}", counted(len, "byte"))
}

/// Checks that each key is unique, that each signature runs a subgraph that exists, and that it names only inputs and
/// outputs of this subgraph, with unique names.
fn check_signatures(signatures: &[Signature], subgraphs: &[Subgraph]) -> Result<(), Invalid> {
    let mut keys = HashSet::new();
    // The inputs and the outputs of each subgraph that a signature runs. Many signatures may run the same one.
    let mut ends: HashMap<usize, (HashSet<TensorId>, HashSet<TensorId>)> = HashMap::new();
    let set = |ids: &[TensorId]| ids.iter().copied().collect::<HashSet<_>>();
    for Signature { key, subgraph: index, inputs, outputs } in signatures {
        let Some(subgraph) = subgraphs.get(*index) else {
            let count = subgraphs.len();
            return invalid!(
                "signature \"{key}\" runs subgraph {index}, which does not exist; the file has {count}"
            );
        };
        if !keys.insert(key) {
            return invalid!("there are two signatures \"{key}\"");
        }
        let (own_inputs, own_outputs) =
            &*ends.entry(*index).or_insert_with(|| (set(&subgraph.inputs), set(&subgraph.outputs)));
        for (side, names, ends) in [("input", inputs, own_inputs), ("output", outputs, own_outputs)] {
            let mut seen = HashSet::new();
            for (name, id) in names {
                if !seen.insert(name) {
                    return invalid!("signature \"{key}\" names the {side} \"{name}\" twice");
                }
                if !ends.contains(id) {
                    return invalid!(
                        "signature \"{key}\": {side} \"{name}\" is tensor {}, which is not an {side} of subgraph \
                         {index}",
                        id.0
                    );
                }
            }
        }
    }
    Ok(())
}

/// Returns the error with the subgraph as a prefix, unless it is the primary one.
pub(crate) fn in_subgraph(index: usize, name: &str, error: Invalid) -> Invalid {
    match index {
        0 => error,
        i if name.is_empty() => Invalid(format!("subgraph {i}: {}", error.0)),
        i => Invalid(format!("subgraph {i} (\"{name}\"): {}", error.0)),
    }
}

/// Returns the error with the tensor as a prefix.
fn at_tensor(index: usize, name: &str, error: Invalid) -> Invalid {
    Invalid(format!("tensor {index} ({}): {}", tensor_name(name, index), error.0))
}

/// Returns the error with the node as a prefix: its index, its op and its outputs.
pub(crate) fn at_node(node: usize, op: &Op, writes: &str, error: Invalid) -> Invalid {
    Invalid(format!("node {node} ({}{writes}): {}", op.in_short(), error.0))
}

#[cfg(test)]
// A test that indexes out of range should fail.
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::single_range_in_vec_init
)]
mod tests;
