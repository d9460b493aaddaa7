//! The graph between the model and the device: values, and steps that write them.
//!
//! `ops` lowers nodes to it, [`passes`] merges steps, `memory` plans the buffers of its values, and the kernel
//! records its steps.

use std::borrow::Cow;

use delegraph_core::error::InvalidData;
use delegraph_core::{NodeId, Shape, TensorId, TensorType};
use delegraph_shaders::quantize::Affine;

pub(crate) mod builder;
mod halves;
pub(crate) mod lowering;
pub(crate) mod passes;
pub(crate) mod snapshot;
mod spec;
pub(crate) mod storage_format;
pub(crate) mod symbolic_dims;
mod table;

use storage_format::StorageFormat;

pub(crate) use halves::{narrowed, store_halves};
pub(crate) use spec::{Computed, Join, Spec};
pub(crate) use table::Table;

/// Index of a value in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ValueId(pub usize);

/// The type of a value's elements; each element is one 32-bit word on the device, or half of one.
pub(crate) use delegraph_shaders::Element;

/// A tensor on the device.
#[derive(Debug, Clone)]
pub(crate) struct Value<'a> {
    /// Dimensions, outermost first.
    pub shape: Vec<u32>,
    /// Element type.
    pub element: Element,
    /// The format of the model's tensor, for values that are tensors of the model.
    pub format: StorageFormat,
    /// The quantization of integers.
    pub quantization: Option<Affine>,
    /// Whether the device stores each element in 16 bits.
    pub half: bool,
    /// The origin of the data.
    pub source: Source<'a>,
    /// The model's tensor, if the value is one.
    pub tensor: Option<TensorId>,
}

impl<'a> Value<'a> {
    /// Creates a value without a tensor of the model.
    pub(crate) fn new(shape: &[u32], element: Element, source: Source<'a>) -> Self {
        let (format, quantization) = (StorageFormat::Word, None);
        Value { shape: shape.to_vec(), element, format, quantization, half: false, source, tensor: None }
    }

    /// Bytes on the device: whole words.
    pub(crate) fn bytes(&self) -> u64 {
        let elements = self.shape.iter().map(|&d| u64::from(d)).product::<u64>();
        if self.half { elements.div_ceil(2) * 4 } else { elements * 4 }
    }
}

/// The origin of a value's data.
#[derive(Debug, Clone)]
pub(crate) enum Source<'a> {
    /// Uploaded before each run.
    Input,
    /// Written by one step, or by several steps that write disjoint parts.
    Steps,
    /// Uploaded once.
    Constant(Cow<'a, [u8]>),
    /// Computed and uploaded once.
    Table(Table),
    /// A range of another value's memory.
    View {
        /// The other value.
        of: ValueId,
        /// Offset in bytes.
        offset: u64,
    },
}

/// Filter and bias in the model's layout; packed for the kernel when the graph is final.
#[derive(Debug, Clone)]
pub(crate) enum Weights<'a> {
    /// Floats.
    Floats { filter: Cow<'a, [f32]>, bias: Option<Cow<'a, [f32]>> },
    /// Integers, with the epilogue words of each output channel.
    Integers { filter: Cow<'a, [i8]>, channels: Vec<u32> },
}

impl Weights<'_> {
    /// Returns the bytes of the filter.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Weights::Floats { filter, .. } => size_of_val(&**filter) as u64,
            Weights::Integers { filter, .. } => filter.len() as u64,
        }
    }
}

/// One dispatch.
#[derive(Debug, Clone)]
pub(crate) struct Step<'a> {
    /// The kernel.
    pub spec: Spec,
    /// Indexed by `Binding::Input`.
    pub inputs: Vec<ValueId>,
    /// `Binding::Weights`
    pub weights: Option<Weights<'a>>,
    /// Whether the device stores each number of [`Step::weights`] in 16 bits.
    pub half_weights: bool,
    /// `Binding::Residual`
    pub residual: Option<ValueId>,
    /// `Binding::Slope`
    pub slope: Option<ValueId>,
    /// `Binding::Output`
    pub output: ValueId,
    /// The nodes that the step runs, in the model's order.
    pub nodes: Vec<NodeId>,
}

impl Step<'_> {
    /// Returns every value that the step reads.
    pub(crate) fn reads(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.inputs.iter().copied().chain(self.residual).chain(self.slope)
    }
}

/// Values, and the steps that compute them in execution order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph<'a> {
    pub values: Vec<Value<'a>>,
    pub steps: Vec<Step<'a>>,
    /// Values uploaded before each run: the partition's inputs, then the values of [`Graph::read`].
    pub inputs: Vec<ValueId>,
    /// Values read back after each run: the partition's outputs, then the new values of [`Graph::states`].
    pub outputs: Vec<ValueId>,
    /// Indices of the inputs that are variables with a new value.
    pub states: Vec<usize>,
    /// Resource variables that the partition reads before it assigns them.
    pub read: Vec<Resource>,
    /// Resource variables that the partition assigns, with the last value of each.
    pub assigned: Vec<Resource>,
    /// A node that reads a resource variable of another type or shape than an earlier node assigns, and its error.
    /// Every run returns this error.
    pub contradiction: Option<(NodeId, String)>,
    /// Checks of the partition's data, in the order of their nodes. Their results are read back after each run.
    pub checks: Vec<Check>,
}

/// A resource variable that a partition reads or assigns.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    /// The interpreter's handle of the variable.
    pub handle: i32,
    /// The tensor that is read from the variable, or assigned to it, with its type and shape.
    pub tensor: TensorId,
    pub ty: TensorType,
    pub shape: Shape,
    /// The value on the device.
    pub value: ValueId,
    /// The node that reads or assigns the variable.
    pub node: NodeId,
}

/// A check of data that is known only during a run.
#[derive(Debug, Clone)]
pub(crate) struct Check {
    /// The result: see [`delegraph_shaders::check::Spec`].
    pub value: ValueId,
    /// The node whose data is checked.
    pub node: NodeId,
    /// The error for data that fails the check.
    pub fault: Fault,
}

/// The error of a check that fails.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// An index is outside of its dimension; element `i` of the indices refers to dimension `i % sizes.len()`.
    Index { sizes: Vec<u32> },
    /// The id of a row is outside of a table with this number of rows.
    Row { rows: u32 },
    /// An error without operands.
    Other(InvalidData),
}

impl Fault {
    /// Returns the error for `element`, whose position is `at`.
    pub(crate) fn describe(&self, at: u32, element: i32) -> InvalidData {
        match self {
            Fault::Index { sizes } => {
                let size = sizes.iter().cycle().nth(at as usize % sizes.len().max(1)).copied().unwrap_or(0);
                InvalidData::Index { index: element.into(), size: size as usize }
            }
            Fault::Row { rows } => InvalidData::Row { id: element.into(), rows: *rows as usize },
            Fault::Other(data) => *data,
        }
    }
}

/// Accesses to the memory of each value. An access to a view is an access to the value that it refers to.
pub(crate) struct Uses {
    /// Per value, the steps that write it, ascending.
    pub writers: Vec<Vec<usize>>,
    /// Per value, the steps that read it, ascending; a step that reads it twice appears twice.
    pub readers: Vec<Vec<usize>>,
    /// Per value, whether it is an input or output of the graph.
    pub pinned: Vec<bool>,
}

impl<'a> Graph<'a> {
    /// Adds a value.
    pub(crate) fn add(&mut self, value: Value<'a>) -> ValueId {
        self.values.push(value);
        ValueId(self.values.len() - 1)
    }

    /// Returns the value `id`.
    pub(crate) fn value(&self, id: ValueId) -> &Value<'a> {
        &self.values[id.0]
    }

    /// Returns the value that owns the memory of `id`, and the offset of `id` there, in bytes.
    pub(crate) fn root(&self, mut id: ValueId) -> (ValueId, u64) {
        let mut at = 0;
        while let Source::View { of, offset } = self.value(id).source {
            (id, at) = (of, at + offset);
        }
        (id, at)
    }

    /// Returns the value whose entire memory is `id`, regardless of shape; `None` if `id` is only a part of a value.
    pub(crate) fn whole(&self, id: ValueId) -> Option<ValueId> {
        let (root, _) = self.root(id);
        (self.value(root).bytes() == self.value(id).bytes()).then_some(root)
    }

    /// Returns the values that are copied after each run: read back, or assigned to variables.
    pub(crate) fn copied(&self) -> impl Iterator<Item = &ValueId> {
        let assigned = self.assigned.iter().map(|resource| &resource.value);
        self.outputs.iter().chain(self.checks.iter().map(|check| &check.value)).chain(assigned)
    }

    /// Returns all accesses to values.
    pub(crate) fn uses(&self) -> Uses {
        let count = self.values.len();
        let mut uses =
            Uses { writers: vec![vec![]; count], readers: vec![vec![]; count], pinned: vec![false; count] };
        for id in self.inputs.iter().chain(self.copied()) {
            uses.pinned[self.root(*id).0.0] = true;
        }
        for (i, step) in self.steps.iter().enumerate() {
            for id in step.reads() {
                uses.readers[self.root(id).0.0].push(i);
            }
            uses.writers[self.root(step.output).0.0].push(i);
        }
        uses
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Graphs for the tests of passes and planner.

    use super::*;

    /// Adds a value that steps write.
    pub(crate) fn value(graph: &mut Graph<'_>, shape: &[u32]) -> ValueId {
        graph.add(Value::new(shape, Element::F32, Source::Steps))
    }

    /// Adds an input of the graph.
    pub(crate) fn input(graph: &mut Graph<'_>, shape: &[u32]) -> ValueId {
        let id = graph.add(Value::new(shape, Element::F32, Source::Input));
        graph.inputs.push(id);
        id
    }

    /// Adds a constant of zeros.
    pub(crate) fn constant(graph: &mut Graph<'_>, shape: &[u32]) -> ValueId {
        let elements: u32 = shape.iter().product();
        let source = Source::Constant(vec![0; elements as usize * 4].into());
        graph.add(Value::new(shape, Element::F32, source))
    }

    /// Adds a view of a whole value.
    pub(crate) fn view(graph: &mut Graph<'_>, of: ValueId, shape: &[u32]) -> ValueId {
        let source = Source::View { of, offset: 0 };
        graph.add(Value::new(shape, Element::F32, source))
    }

    /// Adds a step; its node has the number of the step.
    pub(crate) fn step(graph: &mut Graph<'_>, spec: impl Into<Spec>, inputs: &[ValueId], output: ValueId) {
        let nodes = vec![NodeId(graph.steps.len())];
        let (weights, residual, slope) = (None, None, None);
        let inputs = inputs.to_vec();
        let (spec, half_weights) = (spec.into(), false);
        graph.steps.push(Step { spec, inputs, weights, half_weights, residual, slope, output, nodes });
    }
}
