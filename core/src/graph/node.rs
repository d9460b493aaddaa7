//! Operations of a subgraph.

use std::ops::Range;

use super::{TensorId, callees};
use crate::ops::{ParamValue, Params};
use crate::types::Op;

/// One operation.
#[derive(Debug, Clone)]
pub struct Node {
    pub(super) op: Op,
    pub(super) version: u32,
    pub(super) params: Params,
    pub(super) options_left_out: bool,
    pub(super) inputs: Vec<Option<TensorId>>,
    pub(super) outputs: Vec<TensorId>,
    pub(super) intermediates: Vec<Option<TensorId>>,
    pub(super) custom_options: Range<usize>,
    pub(super) mutating_variable_inputs: Vec<bool>,
    pub(super) debug_metadata: Option<u32>,
}

impl Node {
    /// Creates a node without intermediates and custom options.
    pub fn new(
        op: impl Into<Op>,
        version: u32,
        params: impl Into<Params>,
        inputs: impl IntoIterator<Item = Option<TensorId>>,
        outputs: impl IntoIterator<Item = TensorId>,
    ) -> Self {
        Node {
            op: op.into(),
            version,
            params: params.into(),
            options_left_out: false,
            inputs: inputs.into_iter().collect(),
            outputs: outputs.into_iter().collect(),
            intermediates: Vec::new(),
            custom_options: 0..0,
            mutating_variable_inputs: Vec::new(),
            debug_metadata: None,
        }
    }

    /// Returns the operator.
    pub fn op(&self) -> &Op {
        &self.op
    }

    /// Returns the version of the operator.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the typed params.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Returns the param `name`, as the format's options table calls it; `None` if the op has none of this name.
    pub fn param(&self, name: &str) -> Option<ParamValue<'_>> {
        self.params.get(name)
    }

    /// Returns true if the file has no options for the node, which represents the defaults of all params.
    pub fn options_left_out(&self) -> bool {
        self.options_left_out
    }

    /// Returns the tensors that the node reads; `None` for an optional one that is left out.
    pub fn inputs(&self) -> &[Option<TensorId>] {
        &self.inputs
    }

    /// Input `i`, if the node has it.
    pub fn input(&self, i: usize) -> Option<TensorId> {
        self.inputs.get(i).copied().flatten()
    }

    /// Returns the tensors that the node writes.
    pub fn outputs(&self) -> &[TensorId] {
        &self.outputs
    }

    /// Tensors that carry the quantization of values inside the op; `None` if a position is unused.
    pub fn intermediates(&self) -> &[Option<TensorId>] {
        &self.intermediates
    }

    /// Returns the range of a custom op's options in the model's bytes.
    pub fn custom_options(&self) -> Range<usize> {
        self.custom_options.clone()
    }

    /// Returns which inputs the node changes, according to the file. Not used in computations.
    pub fn mutating_variable_inputs(&self) -> &[bool] {
        &self.mutating_variable_inputs
    }

    /// Returns the index of the node's entry in the model's debug metadata, if any.
    pub fn debug_metadata(&self) -> Option<u32> {
        self.debug_metadata
    }

    /// Returns the subgraphs that the node calls.
    pub fn callees(&self) -> impl Iterator<Item = usize> + use<> {
        callees::callees(&self.params).into_iter().filter_map(|index| usize::try_from(index).ok())
    }
}

/// Edits. A node of a model cannot be edited: see [`ModelDraft`](super::ModelDraft).
impl Node {
    /// Sets the operator.
    pub fn set_op(&mut self, op: impl Into<Op>) {
        self.op = op.into();
    }

    /// Sets the version.
    pub fn set_version(&mut self, version: u32) {
        self.version = version;
    }

    /// Returns the node at this version.
    #[must_use]
    pub fn with_version(mut self, version: u32) -> Self {
        self.set_version(version);
        self
    }

    /// Sets the params.
    pub fn set_params(&mut self, params: impl Into<Params>) {
        self.params = params.into();
    }

    /// Returns the params, to be changed.
    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    /// Sets whether the file has no options for the node.
    pub fn set_options_left_out(&mut self, left_out: bool) {
        self.options_left_out = left_out;
    }

    /// Sets the inputs.
    pub fn set_inputs(&mut self, inputs: impl IntoIterator<Item = Option<TensorId>>) {
        self.inputs = inputs.into_iter().collect();
    }

    /// Returns the inputs, to be changed.
    pub fn inputs_mut(&mut self) -> &mut Vec<Option<TensorId>> {
        &mut self.inputs
    }

    /// Sets the outputs.
    pub fn set_outputs(&mut self, outputs: impl IntoIterator<Item = TensorId>) {
        self.outputs = outputs.into_iter().collect();
    }

    /// Returns the outputs, to be changed.
    pub fn outputs_mut(&mut self) -> &mut Vec<TensorId> {
        &mut self.outputs
    }

    /// Sets the intermediates.
    pub fn set_intermediates(&mut self, ids: impl IntoIterator<Item = Option<TensorId>>) {
        self.intermediates = ids.into_iter().collect();
    }

    /// Returns the intermediates, to be changed.
    pub fn intermediates_mut(&mut self) -> &mut Vec<Option<TensorId>> {
        &mut self.intermediates
    }

    /// Returns the node with these intermediates.
    #[must_use]
    pub fn with_intermediates(mut self, ids: impl IntoIterator<Item = Option<TensorId>>) -> Self {
        self.set_intermediates(ids);
        self
    }

    /// Sets the range of a custom op's options in the model's bytes.
    pub fn set_custom_options(&mut self, range: Range<usize>) {
        self.custom_options = range;
    }

    /// Returns the node with custom options, a range of the model's bytes.
    #[must_use]
    pub fn with_custom_options(mut self, range: Range<usize>) -> Self {
        self.set_custom_options(range);
        self
    }

    /// Sets which inputs the node changes.
    pub fn set_mutating_variable_inputs(&mut self, inputs: impl Into<Vec<bool>>) {
        self.mutating_variable_inputs = inputs.into();
    }

    /// Sets which entry of the model's debug metadata describes the node.
    pub fn set_debug_metadata(&mut self, entry: Option<u32>) {
        self.debug_metadata = entry;
    }

    /// Renumbers the subgraphs that the node calls: `to` returns the new number of a subgraph.
    pub fn renumber_callees(&mut self, to: impl Fn(usize) -> usize) {
        callees::renumber_callees(&mut self.params, &|index| {
            let renumbered = usize::try_from(index).ok().and_then(|index| i32::try_from(to(index)).ok());
            renumbered.unwrap_or(index)
        });
    }
}
