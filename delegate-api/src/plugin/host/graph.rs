//! The graph in the form that plugins read.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};

use delegraph_core::error::counted;
use delegraph_core::{Model, ModelBytes, Quantization, Result, TensorId};

use super::super::abi::*;
use super::super::raw::text;
use crate::{GraphView, NodeState, NodeView};

/// Returns a number that no other context has.
pub(super) fn new_context() -> DelegraphContext {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A graph with the data that is created for plugins.
pub(super) struct HostGraph<'a> {
    pub(super) view: GraphView<'a>,
    file: OnceCell<Result<ModelBytes, String>>,
    /// Per subgraph of the model, its context, created when it is first requested.
    callees: Vec<OnceCell<Option<Callee<'a>>>>,
}

struct Callee<'a> {
    context: DelegraphContext,
    graph: Box<HostGraph<'a>>,
}

impl<'a> HostGraph<'a> {
    pub(super) fn new(view: GraphView<'a>) -> Self {
        let callees = view.model().subgraphs().iter().map(|_| OnceCell::new()).collect();
        HostGraph { view, file: OnceCell::new(), callees }
    }

    /// Returns the context of a called subgraph; 0 if it is not prepared.
    pub(super) fn callee(&self, subgraph: usize) -> DelegraphContext {
        let make = || {
            let graph = Box::new(HostGraph::new(self.view.callee(subgraph)?));
            Some(Callee { context: new_context(), graph })
        };
        let callee = self.callees.get(subgraph).and_then(|callee| callee.get_or_init(make).as_ref());
        callee.map_or(0, |callee| callee.context)
    }

    /// Returns the subgraph with this context.
    pub(super) fn find(&self, context: DelegraphContext) -> Option<&HostGraph<'a>> {
        self.callees.iter().filter_map(|c| c.get()?.as_ref()).find_map(|callee| {
            if callee.context == context { Some(&*callee.graph) } else { callee.graph.find(context) }
        })
    }

    /// Returns the node of this number.
    pub(super) fn node(&self, node: usize) -> Result<NodeView<'a>, String> {
        let count = self.view.subgraph().nodes().len();
        if node < count {
            return Ok(self.view.node(delegraph_core::NodeId(node)));
        }
        Err(format!("node {node} does not exist; the graph has {}", counted(count, "node")))
    }

    pub(super) fn describe(&self) -> DelegraphGraph {
        let graph = self.view.subgraph();
        DelegraphGraph {
            size: size_of::<DelegraphGraph>(),
            subgraph: self.view.index(),
            nodes: graph.nodes().len(),
            tensors: self.view.tensor_count(),
            inputs: graph.inputs().len(),
            outputs: graph.outputs().len(),
            model_path: text(self.view.model().path().and_then(|p| p.to_str()).unwrap_or_default()),
        }
    }

    /// Returns the model as a file: the file that it was loaded from, unless it was changed or built in memory.
    pub(super) fn file(&self) -> Result<ModelBytes, String> {
        let make = || {
            let model = self.view.model();
            let loaded = Model::from_bytes(model.shared_bytes());
            if loaded.is_ok_and(|loaded| loaded.difference(model).is_none()) {
                return Ok(model.shared_bytes());
            }
            model.to_bytes().map(ModelBytes::new).map_err(|e| e.to_string())
        };
        self.file.get_or_init(make).clone()
    }

    pub(super) fn describe_node(&self, node: usize) -> Result<DelegraphNode, String> {
        let node = self.node(node)?;
        let (op, custom_name) = match node.op() {
            delegraph_core::Op::Builtin(op) => (op.0, ""),
            delegraph_core::Op::Custom(name) => (DELEGRAPH_CUSTOM_OP, &**name),
        };
        let options = node.custom_options();
        Ok(DelegraphNode {
            size: size_of::<DelegraphNode>(),
            op,
            version: node.version(),
            flags: flags(node.state()),
            custom_name: text(custom_name),
            inputs: node.input_count(),
            outputs: node.output_count(),
            custom_options: options.as_ptr(),
            custom_options_len: options.len(),
        })
    }

    pub(super) fn describe_tensor(&self, tensor: usize) -> Result<DelegraphTensor, String> {
        let count = self.view.tensor_count();
        if tensor >= count {
            return Err(format!(
                "tensor {tensor} does not exist; the graph has {}",
                counted(count, "tensor")
            ));
        }
        let tensor = self.view.tensor(TensorId(tensor));
        let shape = &tensor.tensor().shape;
        let data = tensor.constant();
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        let mut out = DelegraphTensor {
            size: size_of::<DelegraphTensor>(),
            element_type: tensor.ty() as i32,
            flags: flag(tensor.shape().is_some(), DELEGRAPH_TENSOR_SHAPE_KNOWN)
                | flag(tensor.is_constant(), DELEGRAPH_TENSOR_CONSTANT)
                | flag(tensor.is_variable(), DELEGRAPH_TENSOR_VARIABLE),
            dims: shape.dims().as_ptr(),
            rank: shape.rank(),
            name: text(tensor.name()),
            data: data.map_or(std::ptr::null(), |d| d.as_ptr().cast()),
            data_len: data.map_or(0, <[u8]>::len),
            quantization: DELEGRAPH_QUANTIZATION_NONE,
            quantized_dimension: 0,
            scales: std::ptr::null(),
            zero_points: std::ptr::null(),
            scale_count: 0,
            scales_tensor: -1,
            zero_points_tensor: -1,
            block_size: 0,
        };
        describe_quantization(&mut out, tensor.quantization());
        Ok(out)
    }
}

fn flags(state: NodeState) -> u32 {
    let all = [
        (state.folded, DELEGRAPH_NODE_FOLDED),
        (state.dynamic, DELEGRAPH_NODE_DYNAMIC),
        (state.side_effects, DELEGRAPH_NODE_SIDE_EFFECTS),
        (state.overridden, DELEGRAPH_NODE_OVERRIDDEN),
        (state.taken, DELEGRAPH_NODE_TAKEN),
    ];
    all.iter().filter(|(on, _)| *on).fold(0, |flags, (_, flag)| flags | flag)
}

/// Fills in the quantization of a tensor.
pub(super) fn describe_quantization(out: &mut DelegraphTensor, quantization: Option<&Quantization>) {
    let number = |id: TensorId| i64::try_from(id.0).unwrap_or(-1);
    match quantization {
        None => {}
        Some(Quantization::Affine(affine)) => {
            out.quantization = DELEGRAPH_QUANTIZATION_AFFINE;
            out.quantized_dimension = affine.dimension;
            (out.scales, out.zero_points) = (affine.scales.as_ptr(), affine.zero_points.as_slice().as_ptr());
            out.scale_count = affine.scales.len().min(affine.zero_points.len());
        }
        Some(Quantization::Blockwise { scales, zero_points, block_size }) => {
            out.quantization = DELEGRAPH_QUANTIZATION_BLOCKWISE;
            (out.scales_tensor, out.block_size) = (number(*scales), *block_size);
            out.zero_points_tensor = zero_points.map_or(-1, number);
        }
        Some(Quantization::MultiAxis { scales, zero_points, block_size, .. }) => {
            out.quantization = DELEGRAPH_QUANTIZATION_MULTI_AXIS;
            (out.scales_tensor, out.block_size) = (number(*scales), *block_size);
            out.zero_points_tensor = zero_points.map_or(-1, number);
        }
        // Unknown to plugins, as custom quantization is.
        Some(_) => out.quantization = DELEGRAPH_QUANTIZATION_CUSTOM,
    }
}
