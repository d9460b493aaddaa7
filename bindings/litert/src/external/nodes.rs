//! The nodes of a context: their structures, and the nodes that are visible to a delegate.

use std::ffi::{CString, c_int, c_void};

use delegraph_core::{NodeId, Op, TensorType};
use delegraph_delegate_api::{GraphView, NodeView};

use super::tensors::{c_dims, c_text};
use crate::abi;
use crate::memory::CList;
use crate::params::Structure;
use crate::raw::Result;

/// The structures of a node for a delegate.
pub(super) struct ExternalNode {
    raw: Box<abi::Node>,
    registration: Box<abi::OwnRegistration>,
    _lists: [CList; 3],
    _params: Option<Structure>,
    _name: CString,
}

// SAFETY: the pointers refer to memory of this object or the model, which is not bound to a thread.
unsafe impl Send for ExternalNode {}

impl ExternalNode {
    /// Describes a node.
    ///
    /// # Errors
    /// The reason why the C interface cannot describe it.
    pub(super) fn new(node: &NodeView<'_>) -> Result<Self> {
        check_operands(node)?;
        let index = |id: usize| {
            c_int::try_from(id).map_err(|_| format!("the number of its tensor {id} is above {}", c_int::MAX))
        };
        let inputs = node.node().inputs().iter().map(|id| id.map_or(Ok(-1), |id| index(id.0)));
        let inputs = CList::new(&inputs.collect::<Result<Vec<_>>>()?)?;
        let outputs = node.node().outputs().iter().map(|id| index(id.0)).collect::<Result<Vec<_>>>()?;
        let outputs = CList::new(&outputs)?;
        let between = node.node().intermediates().iter().map(|id| id.map_or(Ok(-1), |id| index(id.0)));
        let between = CList::new(&between.collect::<Result<Vec<_>>>()?)?;
        let (params, code, name) = match node.op() {
            Op::Builtin(op) => (Structure::write(*op, node.params())?, op.0, CString::default()),
            Op::Custom(name) => (None, delegraph_core::BuiltinOp::CUSTOM.0, c_text(name)),
        };
        let options = node.custom_options();
        let raw = abi::Node {
            inputs: inputs.as_ptr(),
            outputs: outputs.as_ptr(),
            intermediates: between.as_ptr(),
            temporaries: CList::new(&[])?.into_raw(),
            user_data: std::ptr::null_mut(),
            builtin_data: params.as_ref().map_or(std::ptr::null_mut(), |p| p.as_ptr().cast_mut()),
            custom_initial_data: if options.is_empty() { std::ptr::null() } else { options.as_ptr().cast() },
            custom_initial_data_size: c_int::try_from(options.len()).map_err(|e| e.to_string())?,
            delegate: std::ptr::null_mut(),
            might_have_side_effect: u8::from(node.state().side_effects),
        };
        let common = abi::Registration {
            init: None,
            free: None,
            prepare: Some(refuse),
            invoke: Some(refuse),
            profiling_string: std::ptr::null(),
            builtin_code: code,
            custom_name: if name.is_empty() { std::ptr::null() } else { name.as_ptr() },
            version: c_int::try_from(node.version()).map_err(|e| e.to_string())?,
        };
        let registration = abi::OwnRegistration { common, later: [std::ptr::null(); 8] };
        Ok(ExternalNode {
            raw: Box::new(raw),
            registration: Box::new(registration),
            _lists: [inputs, outputs, between],
            _params: params,
            _name: name,
        })
    }

    /// Returns the structures, valid as long as this object.
    pub(super) fn structures(&mut self) -> (*mut abi::Node, *mut abi::Registration) {
        (&raw mut *self.raw, (&raw mut *self.registration).cast())
    }
}

impl Drop for ExternalNode {
    fn drop(&mut self) {
        // SAFETY: a list in the C library's memory, which belongs to the node: the list of `new`, or its replacement by
        // the delegate.
        unsafe { libc::free(self.raw.temporaries.cast::<c_void>()) };
    }
}

/// A delegate cannot call the kernels of the interpreter.
unsafe extern "C" fn refuse(_: *mut abi::Context, _: *mut abi::Node) -> abi::Status {
    abi::ERROR
}

fn check_operands(node: &NodeView<'_>) -> Result<()> {
    for tensor in node.inputs().chain(node.outputs()) {
        let name = tensor.name();
        if matches!(tensor.ty(), TensorType::Resource | TensorType::Variant) {
            let ty = tensor.ty();
            return Err(format!("tensor \"{name}\" is {ty}, which delegates of LiteRT cannot reach"));
        }
        if tensor.tensor().sparsity.is_some() {
            return Err(format!(
                "tensor \"{name}\" is stored sparse; delegates of LiteRT get dense constants"
            ));
        }
        c_dims(&tensor.tensor().shape).map_err(|e| format!("tensor \"{name}\": {e}"))?;
    }
    Ok(())
}

/// Returns, per tensor, whether one of these nodes reads it.
pub(super) fn read_by(view: &GraphView<'_>, nodes: &[NodeId]) -> Vec<bool> {
    let mut read = vec![false; view.tensor_count()];
    let inputs = nodes.iter().flat_map(|&node| view.node(node).node().inputs().iter().flatten());
    for id in inputs {
        if let Some(read) = read.get_mut(id.0) {
            *read = true;
        }
    }
    read
}

/// The structures of a partition for a delegate.
pub(super) struct ExternalParams {
    raw: Box<abi::DelegateParams>,
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    lists: [CList; 3],
}

// SAFETY: as for `ExternalNode`.
unsafe impl Send for ExternalParams {}

impl ExternalParams {
    /// Describes a partition. As in LiteRT, its inputs contain the constants that it reads.
    pub(super) fn new(
        view: &GraphView<'_>,
        params: &delegraph_delegate_api::DelegateParams,
        delegate: *mut abi::Delegate,
    ) -> Result<Self> {
        let list = |ids: &[usize]| -> Result<CList> {
            let id = |&id: &usize| {
                c_int::try_from(id)
                    .map_err(|_| format!("the number {id} of a node or tensor is above {}", c_int::MAX))
            };
            CList::new(&ids.iter().map(id).collect::<Result<Vec<_>>>()?)
        };
        let nodes: Vec<usize> = params.nodes.iter().map(|node| node.0).collect();
        let read = |&node: &NodeId| view.node(node).node().inputs().iter().flatten();
        let made = |&node: &NodeId| view.node(node).node().outputs();
        let made: std::collections::HashSet<usize> =
            params.nodes.iter().flat_map(made).map(|t| t.0).collect();
        let mut inputs: Vec<usize> = params.nodes.iter().flat_map(read).map(|t| t.0).collect();
        inputs.retain(|id| !made.contains(id));
        inputs.sort_unstable();
        inputs.dedup();
        let outputs: Vec<usize> = params.outputs.iter().map(|id| id.0).collect();
        let lists = [list(&nodes)?, list(&inputs)?, list(&outputs)?];
        let [nodes, in_list, out_list] = lists.each_ref().map(CList::as_ptr);
        let raw = abi::DelegateParams { delegate, nodes, inputs: in_list, outputs: out_list };
        Ok(ExternalParams { raw: Box::new(raw), inputs, outputs, lists })
    }

    /// Returns the structure, valid as long as this object.
    pub(super) fn structure(&mut self) -> *mut abi::DelegateParams {
        &raw mut *self.raw
    }

    /// Returns a copy of the structure, whose lists are valid as long as this object.
    pub(super) fn copy(&self) -> abi::DelegateParams {
        let [nodes, inputs, outputs] = self.lists.each_ref().map(CList::as_ptr);
        abi::DelegateParams { delegate: self.raw.delegate, nodes, inputs, outputs }
    }

    /// Returns the LiteRT node that represents the partition.
    pub(super) fn node(&mut self) -> Result<PartitionNode> {
        let list = |ids: &[usize]| -> Result<CList> {
            CList::new(&ids.iter().map(|&id| c_int::try_from(id).unwrap_or(-1)).collect::<Vec<_>>())
        };
        let lists = [list(&self.inputs)?, list(&self.outputs)?, CList::new(&[])?];
        let raw = abi::Node {
            inputs: lists[0].as_ptr(),
            outputs: lists[1].as_ptr(),
            intermediates: lists[2].as_ptr(),
            temporaries: CList::new(&[])?.into_raw(),
            user_data: std::ptr::null_mut(),
            builtin_data: self.structure().cast(),
            custom_initial_data: std::ptr::null(),
            custom_initial_data_size: 0,
            delegate: self.raw.delegate,
            might_have_side_effect: 0,
        };
        Ok(PartitionNode { raw: Box::new(raw), _lists: lists })
    }
}

/// The node that represents a partition.
pub(super) struct PartitionNode {
    raw: Box<abi::Node>,
    _lists: [CList; 3],
}

// SAFETY: as for `ExternalNode`; `user_data` belongs to the kernel, which the interface lets any thread use, one at a
// time.
unsafe impl Send for PartitionNode {}

impl PartitionNode {
    pub(super) fn structure(&mut self) -> *mut abi::Node {
        &raw mut *self.raw
    }

    pub(super) fn set_kernel(&mut self, kernel: *mut c_void) {
        self.raw.user_data = kernel;
    }

    pub(super) fn kernel(&self) -> *mut c_void {
        self.raw.user_data
    }

    /// Returns the temporaries that the kernel chose.
    pub(super) fn temporaries(&self) -> Result<Vec<c_int>> {
        // SAFETY: null, or a list of this library or the delegate, which belongs to the node.
        unsafe { crate::raw::ints(self.raw.temporaries, "the list of temporaries") }.map(<[c_int]>::to_vec)
    }
}

impl Drop for PartitionNode {
    fn drop(&mut self) {
        // SAFETY: as for `ExternalNode`.
        unsafe { libc::free(self.raw.temporaries.cast::<c_void>()) };
    }
}
