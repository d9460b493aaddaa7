//! The runtime's graph as a model: tensors over the runtime's memory, nodes with typed params, shapes that inference
//! confirms, and folded constants.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;

use delegraph_core::error::counted;
use delegraph_core::graph::Tensor;
use delegraph_core::kernel::{Placement, RuntimeTensor};
use delegraph_core::ops::{Declared, InferContext, InferTensor, InferredShape, definition};
use delegraph_core::quantization::Affine;
use delegraph_core::sparsity::{Level, Sparsity};
use delegraph_core::{
    BuiltinOp, Model, Node, NodeId, Op, Params, Quantization, Shape, Subgraph, TensorId, TensorType,
};
use delegraph_delegate_api::{GraphView, NodeState};

use crate::abi::{self, allocation};
use crate::contain::contain;
use crate::raw::{self, Result};
use crate::runtime::Runtime;
use crate::{fold, host, params};

/// A subgraph of the runtime. Tensors have the runtime's numbers, nodes are numbered in execution order.
pub(crate) struct Graph {
    model: Model,
    tensors: Vec<RuntimeTensor>,
    shape_known: Vec<bool>,
    states: Vec<NodeState>,
    /// The reasons why nodes are not offered to the delegate.
    withheld: Vec<Option<String>>,
    /// The runtime's numbers of the nodes.
    plan: Vec<c_int>,
    /// The runtime's descriptions, before inference.
    given: Given,
}

struct Given {
    constant: Vec<bool>,
    shape_known: Vec<bool>,
    states: Vec<NodeState>,
    withheld: Vec<Option<String>>,
}

impl Graph {
    /// Reads the graph. `all_fields`: the runtime's structures have every field, independent of the version.
    ///
    /// # Errors
    /// If the runtime's structures are invalid, or have a form that a model cannot have.
    pub(crate) fn read(runtime: &Runtime, all_fields: bool) -> Result<Self> {
        let plan = runtime.plan()?;
        let count = runtime.tensor_count()?;
        let mut reader = Reader {
            tensors: Vec::with_capacity(count),
            described: Vec::with_capacity(count),
            shape_known: vec![true; count],
            bytes: Vec::new(),
            all_fields,
        };
        for i in 0..count {
            reader.tensor(runtime, i).map_err(|e| format!("tensor {i}: {e}"))?;
        }
        let own = runtime.functions()?;
        let own = own.first().copied().unwrap_or(std::ptr::null());
        let (mut nodes, mut states, mut withheld) = (Vec::new(), Vec::new(), Vec::new());
        for &index in &plan {
            let (node, state, reason) =
                reader.node(runtime, index, own).map_err(|e| format!("node {index}: {e}"))?;
            nodes.push(node);
            states.push(state);
            withheld.push(reason);
        }
        // The C interface does not list the graph's outputs. A partition of all nodes has the same outputs.
        let all = if plan.is_empty() { Vec::new() } else { runtime.preview(&plan)? };
        let outputs = all.iter().flat_map(|p| &p.outputs).map(|&t| in_range(t, count));
        let mut outputs = outputs.collect::<Result<Vec<_>>>()?;
        outputs.sort_unstable();
        outputs.dedup();
        let constant: Vec<bool> = reader.tensors.iter().map(RuntimeTensor::is_constant).collect();
        let mut described = reader.described;
        for (tensor, constant) in described.iter_mut().zip(&constant) {
            tensor.set_external_data(*constant && !tensor.is_variable());
            if !constant {
                tensor.set_sparsity(None);
            }
        }
        let mut inputs = sources(&nodes, &described);
        inputs.retain(|id| constant.get(id.0) == Some(&false));
        let subgraph = Subgraph::new("", described, nodes, inputs, outputs);
        let model =
            Model::from_subgraphs(reader.bytes, vec![subgraph]).map_err(|e| format!("the graph: {e}"))?;
        let given = Given {
            constant,
            shape_known: reader.shape_known.clone(),
            states: states.clone(),
            withheld: withheld.clone(),
        };
        let (tensors, shape_known) = (reader.tensors, reader.shape_known);
        let mut graph = Graph { model, tensors, shape_known, states, withheld, plan, given };
        graph.infer(&HashMap::new());
        Ok(graph)
    }

    /// Returns the graph for a delegate.
    pub(crate) fn view(&self) -> GraphView<'_> {
        self.view_with(&self.states)
    }

    /// Returns the graph for a delegate, with these states of the nodes.
    pub(crate) fn view_with<'a>(&'a self, states: &'a [NodeState]) -> GraphView<'a> {
        GraphView::new(&self.model, 0, &self.tensors, &self.shape_known, states)
    }

    /// Returns the states of the nodes, with all but `nodes` taken.
    pub(crate) fn states_of(&self, nodes: &[NodeId]) -> Vec<NodeState> {
        let state =
            |(i, state): (usize, &NodeState)| state.with_taken(state.taken || !nodes.contains(&NodeId(i)));
        self.states.iter().enumerate().map(state).collect()
    }

    /// Returns the runtime's numbers of the nodes.
    pub(crate) fn plan(&self) -> &[c_int] {
        &self.plan
    }

    /// Returns the reason why a node is withheld from the delegate, if it is.
    pub(crate) fn withheld(&self, node: NodeId) -> Option<&str> {
        self.withheld.get(node.0)?.as_deref()
    }

    /// Returns whether the tensor is a constant of the runtime.
    pub(crate) fn is_given(&self, tensor: TensorId) -> bool {
        self.given.constant.get(tensor.0) == Some(&true)
    }

    /// Returns the node that the runtime numbers `index`.
    pub(crate) fn node_of(&self, index: c_int) -> Result<NodeId> {
        let node = self.plan.iter().position(|&i| i == index);
        node.map(NodeId).ok_or_else(|| format!("a partition has node {index}, which is not in the plan"))
    }

    /// Infers shapes and folds constants, based on the runtime's descriptions. `actual` are the current shapes of the
    /// runtime.
    pub(crate) fn infer(&mut self, actual: &HashMap<TensorId, Shape>) {
        let Some(subgraph) = self.model.subgraphs().first() else { return };
        self.shape_known.clone_from(&self.given.shape_known);
        self.states.clone_from(&self.given.states);
        self.withheld.clone_from(&self.given.withheld);
        for (i, tensor) in self.tensors.iter_mut().enumerate().filter(|(i, _)| !self.given.constant[*i]) {
            tensor.clear_data();
            let shape = actual.get(&TensorId(i)).unwrap_or(subgraph.tensors()[i].shape());
            tensor.shape.clone_from(shape);
        }
        for i in 0..subgraph.nodes().len() {
            self.infer_node(i, actual);
        }
    }

    /// Frees computed values, which the created kernels have packed.
    pub(crate) fn forget(&mut self) {
        let computed = self.tensors.iter_mut().zip(&self.given.constant).filter(|(_, given)| !**given);
        computed.for_each(|(tensor, _)| tensor.clear_data());
    }

    fn infer_node(&mut self, i: usize, actual: &HashMap<TensorId, Shape>) {
        let Some(subgraph) = self.model.subgraphs().first() else { return };
        let node = &subgraph.nodes()[i];
        // Nodes of the runtime have the shapes that it declares. A later change is detected when it prepares.
        if self.states[i].taken {
            return;
        }
        let known = node.inputs().iter().flatten().all(|id| self.shape_known[id.0]);
        let shapes = if known { self.shapes(node) } else { Ok(None) };
        let reason = match shapes {
            Ok(Some(shapes)) => {
                let mut sized = true;
                for (id, shape) in node.outputs().iter().zip(shapes) {
                    let tensor = &mut self.tensors[id.0];
                    if let Some(shape) = actual.get(id).cloned().or(shape) {
                        tensor.shape = shape;
                    }
                    sized &= tensor.byte_size().is_ok();
                }
                if sized {
                    self.states[i].folded = fold::fold(node, subgraph, &mut self.tensors);
                    return;
                }
                Some("an output is too large".into())
            }
            Ok(None) => None,
            Err(reason) => Some(reason),
        };
        self.states[i].dynamic = true;
        for id in node.outputs() {
            self.shape_known[id.0] = false;
        }
        if reason.is_some() {
            self.withheld[i] = reason;
            self.states[i].taken = true;
        }
    }

    /// Infers the shapes of the outputs by the op's definition; `None` for a shape that only the runtime knows. `None`
    /// for all if they depend on data.
    fn shapes(&self, node: &Node) -> Result<Option<Vec<Option<Shape>>>> {
        let unknown = || Ok(Some(vec![None; node.outputs().len()]));
        let Some(definition) = node.op().builtin().and_then(definition) else { return unknown() };
        let tensor = |id: &TensorId| self.tensors.get(id.0);
        let inputs = node.inputs().iter().map(|id| {
            id.as_ref().and_then(tensor).map(|t| {
                InferTensor::new(t.ty, &t.shape)
                    .with_quantization(t.quantization.as_deref())
                    .with_constant(t.is_constant().then(|| t.bytes()))
            })
        });
        let outputs = node.outputs().iter().filter_map(tensor);
        let outputs =
            outputs.map(|t| Declared::new(t.ty, &t.shape).with_quantization(t.quantization.as_deref()));
        let cx = InferContext::new(node.params(), node.version()).with_inputs(inputs).with_outputs(outputs);
        let inferred = contain(|| (definition.infer)(&cx))?;
        if inferred.len() != node.outputs().len() {
            let outputs = counted(node.outputs().len(), "output");
            return Err(format!("it has {outputs}, the op {}", inferred.len()));
        }
        let mut shapes = Vec::with_capacity(inferred.len());
        for (own, theirs) in inferred.into_iter().zip(node.outputs().iter().filter_map(tensor)) {
            if own.ty != theirs.ty {
                let (name, ty) = (&theirs.name, theirs.ty);
                return Err(format!(
                    "\"{name}\" is {ty} for the runtime, and {} by the op's definition",
                    own.ty
                ));
            }
            shapes.push(match own.shape {
                InferredShape::Known(shape) => Some(shape),
                InferredShape::FromKernel => None,
                InferredShape::DataDependent => return Ok(None),
            });
        }
        Ok(Some(shapes))
    }
}

/// Tensors that are read and not written by any node: inputs and constants, without variables.
fn sources(nodes: &[Node], tensors: &[Tensor]) -> Vec<TensorId> {
    let mut source: Vec<bool> = tensors.iter().map(|t| !t.is_variable()).collect();
    let mark = |id: &TensorId, slot: &mut Vec<bool>| {
        if let Some(slot) = slot.get_mut(id.0) {
            *slot = false;
        }
    };
    nodes.iter().flat_map(|n| n.outputs()).for_each(|id| mark(id, &mut source));
    let mut read = vec![true; tensors.len()];
    nodes.iter().flat_map(|n| n.inputs().iter().flatten()).for_each(|id| mark(id, &mut read));
    (0..tensors.len()).filter(|&i| source[i] && !read[i]).map(TensorId).collect()
}

fn in_range(index: c_int, count: usize) -> Result<TensorId> {
    let id = usize::try_from(index).ok().filter(|&i| i < count);
    id.map(TensorId).ok_or_else(|| format!("tensor {index} is out of range; there are {count}"))
}

struct Reader {
    tensors: Vec<RuntimeTensor>,
    described: Vec<Tensor>,
    shape_known: Vec<bool>,
    /// The options of custom ops.
    bytes: Vec<u8>,
    all_fields: bool,
}

impl Reader {
    fn tensor(&mut self, runtime: &Runtime, index: usize) -> Result<()> {
        let raw = runtime.tensor(index)?;
        // These numbers are small in every version of the runtime; large ones mean another layout.
        if !(0..=allocation::LAST).contains(&raw.allocation_type)
            || raw.is_variable > 1
            || raw.data_is_stale > 1
        {
            return Err(format!(
                "it is laid out in an unknown way: allocation type {}, is_variable {}, data_is_stale {}",
                raw.allocation_type, raw.is_variable, raw.data_is_stale
            ));
        }
        // SAFETY: the runtime's text.
        let name = unsafe { raw::text(raw.name) };
        // A tensor that cannot be described (a temporary without a type) is unknown, as are the nodes that use it.
        // SAFETY: the runtime's list.
        let shape = unsafe { raw::ints(raw.dims, "its shape") }.and_then(shape_of);
        let (shape, mut known) = match shape {
            Ok(shape) => (shape, true),
            Err(_) => (Shape::default(), false),
        };
        let (ty, typed) = match raw::tensor_type(raw.ty) {
            Ok(ty) => (ty, true),
            Err(_) => (TensorType::Float32, false),
        };
        let mut described = Tensor::new(name, ty, shape);
        described.set_variable(raw.is_variable == 1);
        match quantization(&raw.quantization) {
            Ok(found) => described.set_quantization(found),
            Err(_) => known = false,
        }
        match sparsity(raw.sparsity) {
            Ok(found) => described.set_sparsity(found.map(Arc::new)),
            Err(_) => known = false,
        }
        if !known || described.check_quantization().is_err() {
            known = false;
            described.set_quantization(None::<Quantization>);
            described.set_sparsity(None);
        }
        let mut tensor = RuntimeTensor::new(&described);
        // Constants in the file. The runtime computes its other constants from shapes, and they change with these.
        if typed && known && raw.allocation_type == allocation::MMAP_RO && !has_no_size(ty) {
            match stored_bytes(&described).filter(|&needed| needed <= raw.bytes) {
                Some(needed) if !raw.data.is_null() || needed == 0 => point_at(&mut tensor, raw, needed)?,
                _ => known = false,
            }
        }
        self.shape_known[index] = known && typed && tensor.byte_size().is_ok();
        self.tensors.push(tensor);
        self.described.push(described);
        Ok(())
    }

    fn node(
        &mut self,
        runtime: &Runtime,
        index: c_int,
        own: *const std::ffi::c_void,
    ) -> Result<(Node, NodeState, Option<String>)> {
        let (raw, registration) = runtime.node(index)?;
        let count = self.tensors.len();
        // SAFETY: the runtime's lists, here and below.
        let inputs = unsafe { raw::ints(raw.inputs, "its inputs") }?;
        let inputs = inputs.iter().map(|&t| if t == -1 { Ok(None) } else { in_range(t, count).map(Some) });
        let inputs: Vec<Option<TensorId>> = inputs.collect::<Result<_>>()?;
        // SAFETY: as above.
        let outputs = unsafe { raw::ints(raw.outputs, "its outputs") }?;
        let left_out = outputs.contains(&-1);
        let outputs = outputs.iter().filter(|&&t| t != -1).map(|&t| in_range(t, count));
        let outputs: Vec<TensorId> = outputs.collect::<Result<_>>()?;
        let intermediates = if raw.intermediates.is_null() {
            Vec::new()
        } else {
            // SAFETY: as above.
            let list = unsafe { raw::ints(raw.intermediates, "its intermediates") }?;
            list.iter().map(|&t| in_range(t, count).ok()).collect()
        };
        let version = u32::try_from(registration.version).unwrap_or_default().max(1);
        let op = match registration.builtin_code {
            code if code == BuiltinOp::CUSTOM.0 => {
                // SAFETY: the runtime's text.
                Op::Custom(unsafe { raw::text(registration.custom_name) }.into())
            }
            code => Op::Builtin(BuiltinOp(code)),
        };
        let mut node = Node::new(op, version, Params::Undefined, inputs, outputs);
        node.set_intermediates(intermediates);
        let delegated = !raw.delegate.is_null() || *node.op() == Op::Builtin(BuiltinOp::DELEGATE);
        let mut reason = None;
        match node.op().builtin() {
            None => {
                node.set_params(Params::Custom);
                node.set_custom_options(self.custom_options(raw)?);
            }
            Some(_) if delegated => {}
            Some(op) => {
                let rank = node.input(0).map_or(0, |id| self.described[id.0].shape().rank());
                let reach = match self.all_fields {
                    true => params::Reach::in_litert(version),
                    false => params::Reach::of_node(version),
                };
                // SAFETY: the runtime's structure for this op: a kernel of the application that replaces it gets the
                // same one.
                match unsafe { params::read(op, reach, raw.builtin_data, rank) } {
                    Ok(params) => node.set_params(params),
                    Err(text) => reason = Some(text),
                }
                if reason.is_none() && *node.params() == Params::Undefined {
                    reason = Some("its params are not known to delegates".into());
                }
            }
        }
        let invoke = registration.invoke.map_or(std::ptr::null(), |f| f as *const std::ffi::c_void);
        let replaced = invoke.is_null() || !host::same_object(invoke, own);
        let operands =
            || node.inputs().iter().flatten().chain(node.outputs()).map(|id| &self.described[id.0]);
        if let Some(tensor) = operands().find(|t| has_no_size(t.ty())) {
            reason = Some(format!(
                "tensor \"{}\" is {}, which the runtime keeps to itself",
                tensor.name(),
                tensor.ty()
            ));
        } else if left_out {
            reason = Some("an output is left out".into());
        }
        let state = NodeState::default()
            .with_side_effects(raw.might_have_side_effect != 0)
            .with_overridden(node.op().builtin().is_some() && !delegated && replaced)
            .with_taken(delegated || reason.is_some());
        Ok((node, state, reason))
    }

    fn custom_options(&mut self, raw: &abi::Node) -> Result<Range<usize>> {
        let start = self.bytes.len();
        let len = raw::length(raw.custom_initial_data_size, "its options")?;
        // SAFETY: the runtime's bytes.
        self.bytes.extend_from_slice(unsafe { raw::bytes(raw.custom_initial_data, len, "its options") }?);
        Ok(start..self.bytes.len())
    }
}

/// Returns true for the types whose values only the runtime interprets.
fn has_no_size(ty: TensorType) -> bool {
    matches!(ty, TensorType::String | TensorType::Resource | TensorType::Variant)
}

fn shape_of(dims: &[c_int]) -> Result<Shape> {
    dims.iter().map(|&d| usize::try_from(d).map_err(|_| format!("a dimension of {d}"))).collect()
}

/// Returns the bytes of a constant.
fn stored_bytes(tensor: &Tensor) -> Option<usize> {
    let elements = match tensor.sparsity() {
        Some(sparsity) => sparsity.validate(tensor.shape()).ok(),
        None => tensor.shape().checked_elements(),
    };
    tensor.ty().byte_size(elements?)
}

/// Sets a tensor to a constant in the model file: without a copy if the constant is aligned.
fn point_at(tensor: &mut RuntimeTensor, raw: &abi::Tensor, len: usize) -> Result<()> {
    // SAFETY: the runtime guarantees this number of bytes, which are the file's and never change.
    let bytes = unsafe { raw::bytes(raw.data, len, "its data") }?;
    let align = tensor.ty.bits().map_or(1, |bits| (bits / 8).max(1));
    if !bytes.as_ptr().addr().is_multiple_of(align) {
        return tensor.set_constant_copy(bytes).map_err(|e| e.to_string());
    }
    // SAFETY: the runtime keeps the file as long as the interpreter, which frees our kernels, and with them the
    // tensors, first. Constants are never written through.
    unsafe { tensor.set_data(Placement::Constant, bytes.as_ptr().cast_mut(), bytes.len()) };
    Ok(())
}

fn quantization(raw: &abi::Quantization) -> Result<Option<Quantization>> {
    match raw.kind {
        0 => Ok(None),
        1 => {
            let affine = raw::checked(raw.params.cast::<abi::Affine>().cast_const(), "its quantization")?;
            // SAFETY: not null and aligned, and of the declared kind; the lists are the runtime's.
            let (scales, zero_points, dimension) = unsafe {
                let scales = raw::floats((*affine).scale, "its scales")?;
                (scales, raw::ints((*affine).zero_point, "its zero points")?, (*affine).quantized_dimension)
            };
            if scales.is_empty() {
                return Ok(None);
            }
            let zero_points: Vec<i64> = match zero_points {
                // Newer runtimes store equal zero points once.
                [one] => vec![i64::from(*one); scales.len()],
                all => all.iter().map(|&z| i64::from(z)).collect(),
            };
            if zero_points.len() != scales.len() {
                let points = counted(zero_points.len(), "zero point");
                return Err(format!("{} and {points}", counted(scales.len(), "scale")));
            }
            let dimension = raw::length(dimension, "its quantized dimension")?;
            Ok(Some(Quantization::Affine(Affine {
                scales: scales.to_vec(),
                zero_points: zero_points.into(),
                dimension,
            })))
        }
        2 => {
            let blocks = raw::checked(raw.params.cast::<abi::Blockwise>().cast_const(), "its quantization")?;
            // SAFETY: not null and aligned, and of the declared kind.
            let blocks = unsafe { &*blocks };
            Ok(Some(Quantization::Blockwise {
                scales: TensorId(raw::length(blocks.scale, "its scales")?),
                zero_points: usize::try_from(blocks.zero_point).ok().map(TensorId),
                block_size: raw::length(blocks.block_size, "its blocks")?,
            }))
        }
        other => Err(format!("a quantization of kind {other}")),
    }
}

fn sparsity(raw: *const abi::Sparsity) -> Result<Option<Sparsity>> {
    if raw.is_null() {
        return Ok(None);
    }
    let raw = raw::checked(raw, "its sparsity")?;
    // SAFETY: not null and aligned; the lists are the runtime's.
    let (order, blocks, dimensions, count) = unsafe {
        let order = raw::ints((*raw).traversal_order, "its traversal order")?;
        let map = (*raw).block_map;
        let blocks = if map.is_null() { &[][..] } else { raw::ints(map, "its block map")? };
        (order, blocks, (*raw).dimensions, (*raw).dimension_count)
    };
    let count = raw::length(count, "its list of dimensions")?;
    let indices = |list: &[c_int]| -> Result<Vec<usize>> {
        list.iter().map(|&i| usize::try_from(i).map_err(|_| format!("an index of {i}"))).collect()
    };
    let mut levels = Vec::with_capacity(count);
    for i in 0..count {
        let level = raw::checked(dimensions.wrapping_add(i).cast_const(), "a dimension")?;
        // SAFETY: not null and aligned; the structure declares their number; the lists are the runtime's.
        let level = unsafe { &*level };
        levels.push(match level.format {
            0 => Level::Dense { size: raw::length(level.dense_size, "a dimension")? },
            // SAFETY: as above.
            1 => unsafe {
                let segments = indices(raw::ints(level.segments, "the segments")?)?;
                Level::csr(&segments, &indices(raw::ints(level.indices, "the indices")?)?)
            },
            other => return Err(format!("a dimension of format {other}")),
        });
    }
    Ok(Some(Sparsity { traversal_order: indices(order)?, block_map: indices(blocks)?, levels }))
}
