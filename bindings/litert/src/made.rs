//! The delegate's kernel of a partition, with its tensors.

use std::ffi::c_int;

use delegraph_core::error::{Error, counted};
use delegraph_core::kernel::{
    AlignedBuffer, InvokeContext, Placement, PrepareContext, RuntimeTensor, Serial,
};
use delegraph_core::{NodeId, Params, Shape, TensorId};
use delegraph_delegate_api::{Buffers, DelegateKernel, DelegateParams, GraphView, KernelFactory};

use crate::abi::allocation;
use crate::contain::contain;
use crate::graph::Graph;
use crate::no_host::NoHost;
use crate::raw::{self, Result};
use crate::runtime::{Partition, Runtime};

/// A delegate's kernel, prepared for certain shapes, with its tensors and temporaries.
pub(crate) struct Made {
    /// `None` if all nodes are folded.
    kernel: Option<Box<dyn DelegateKernel>>,
    /// The inputs, followed by the outputs, without data between runs. The kernel uses their positions in this list.
    tensors: Vec<RuntimeTensor>,
    /// The runtime's indices of these tensors.
    ids: Vec<TensorId>,
    inputs: Vec<Option<TensorId>>,
    outputs: Vec<TensorId>,
    /// Constants with consumers outside of the partition, and their shapes.
    constants: Vec<(TensorId, Shape, Vec<u8>)>,
    /// The shapes that determine all others.
    pub(crate) basis: Vec<(TensorId, Shape)>,
    temporaries: Vec<AlignedBuffer>,
    pointers: Vec<(*mut u8, usize)>,
}

// SAFETY: the pointers refer to `temporaries`, which moves between threads together with them.
unsafe impl Send for Made {}

impl Made {
    /// Creates and prepares the kernel of a partition, whose nodes are all claimed. `claimed` are all nodes of the
    /// claim.
    pub(crate) fn new(
        graph: &Graph,
        view: &GraphView<'_>,
        partition: &Partition,
        claimed: &[NodeId],
        factory: &mut KernelFactory<'_>,
    ) -> Result<Self> {
        let nodes: Vec<NodeId> = partition.nodes.iter().map(|&n| graph.node_of(n)).collect::<Result<_>>()?;
        let ids = |list: &[c_int]| -> Result<Vec<TensorId>> {
            list.iter().filter(|&&t| t != -1).map(|&t| tensor_id(t, view)).collect()
        };
        let (mut inputs, all_outputs) = (ids(&partition.inputs)?, ids(&partition.outputs)?);
        inputs.retain(|&id| !view.tensor(id).is_constant());
        let (constants, outputs): (Vec<_>, Vec<_>) =
            all_outputs.into_iter().partition(|&id| view.tensor(id).is_constant());
        let outside =
            |id: &TensorId| view.subgraph().outputs().contains(id) || read_by_others(view, *id, claimed);
        let constants = constants.into_iter().filter(outside).map(|id| {
            let tensor = view.tensor(id).tensor();
            (id, tensor.shape.clone(), tensor.bytes().to_vec())
        });
        let constants = constants.collect();
        let params = DelegateParams::new(nodes).with_inputs(inputs).with_outputs(outputs);
        let folded = params.nodes.iter().all(|&n| view.node(n).state().folded);
        let kernel =
            if folded { None } else { Some(contain(|| factory(&params, view).map_err(|e| e.chain()))?) };
        let DelegateParams { inputs, outputs, .. } = params;
        let basis = view.subgraph().inputs().iter().chain(&inputs);
        let basis = basis.map(|&id| (id, view.tensor(id).tensor().shape.clone())).collect();
        let ids: Vec<TensorId> = inputs.iter().chain(&outputs).copied().collect();
        let tensor = |id: &TensorId| {
            let mut tensor = RuntimeTensor::new(view.subgraph().tensor(*id));
            tensor.shape.clone_from(&view.tensor(*id).tensor().shape);
            tensor
        };
        let mut made = Made {
            kernel,
            tensors: ids.iter().map(tensor).collect(),
            inputs: (0..inputs.len()).map(|i| Some(TensorId(i))).collect(),
            outputs: (inputs.len()..ids.len()).map(TensorId).collect(),
            ids,
            constants,
            basis,
            temporaries: Vec::new(),
            pointers: Vec::new(),
        };
        made.prepare()?;
        Ok(made)
    }

    fn prepare(&mut self) -> Result<()> {
        let Some(kernel) = &mut self.kernel else { return Ok(()) };
        let (tensors, inputs, outputs, mut host) =
            (&mut self.tensors, &self.inputs, &self.outputs, NoHost::default());
        let shapes = |tensors: &[RuntimeTensor]| tensors.iter().map(|t| t.shape.clone()).collect::<Vec<_>>();
        let before = shapes(tensors);
        let prepared = contain(|| {
            let params = &Params::None;
            let mut cx = PrepareContext::new(params, 1, inputs, outputs, tensors, &mut host);
            kernel.prepare(&mut cx)?;
            Ok::<_, Error>(cx.finish())
        })?;
        if !prepared.data_dependent().is_empty() || shapes(tensors) != before {
            return Err("its kernel changed the shape of an output".into());
        }
        for &bytes in prepared.temporaries() {
            let mut buffer = AlignedBuffer::zeroed(bytes).map_err(|e| e.to_string())?;
            self.pointers.push((buffer.bytes_mut().as_mut_ptr(), bytes));
            self.temporaries.push(buffer);
        }
        Ok(())
    }

    /// Returns whether the runtime's shapes differ from those of the basis.
    pub(crate) fn changed(&self, runtime: &Runtime) -> Result<bool> {
        for (id, shape) in &self.basis {
            if runtime.shape(id.0)? != *shape {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Resizes the runtime's output tensors that have another shape or, if they are dynamic, lack memory.
    pub(crate) fn fit_outputs(&self, runtime: &Runtime) -> Result<()> {
        let outputs =
            self.outputs.iter().filter_map(|id| Some((self.ids.get(id.0)?, &self.tensors.get(id.0)?.shape)));
        let constants = self.constants.iter().map(|(id, shape, _)| (id, shape));
        for (id, shape) in outputs.chain(constants) {
            let tensor = runtime.tensor(id.0)?;
            let missing = tensor.allocation_type == allocation::DYNAMIC && tensor.data.is_null();
            if missing || runtime.shape(id.0)? != *shape {
                runtime.resize(id.0, shape)?;
            }
        }
        Ok(())
    }

    pub(crate) fn invoke(&mut self, runtime: &Runtime) -> Result<()> {
        let result = self.run(runtime);
        // The runtime's memory is valid during this call only.
        self.tensors.iter_mut().for_each(RuntimeTensor::clear_data);
        result
    }

    fn run(&mut self, runtime: &Runtime) -> Result<()> {
        for (id, _, bytes) in &self.constants {
            let target = memory(runtime, *id, bytes.len())?;
            // SAFETY: `memory` has checked that the runtime's tensor has this number of bytes, which do not overlap
            // memory of this library.
            unsafe { std::ptr::copy(bytes.as_ptr(), target, bytes.len()) };
        }
        let Some(kernel) = &mut self.kernel else { return Ok(()) };
        let mut copies = Vec::new();
        for (i, (tensor, &id)) in self.tensors.iter_mut().zip(&self.ids).enumerate() {
            let len = tensor.byte_size().map_err(|e| e.to_string())?;
            let data = memory(runtime, id, len)?;
            let align = tensor.ty.bits().map_or(1, |bits| (bits / 8).max(1));
            let variable = runtime.tensor(id.0)?.is_variable == 1;
            if data.addr().is_multiple_of(align) || len == 0 {
                let placement = if variable { Placement::Variable } else { Placement::Arena };
                // SAFETY: the runtime provides `len` bytes there for the kernel until it returns; inputs that are not
                // variables are only read.
                unsafe { tensor.set_data(placement, data, len) };
                continue;
            }
            // An application may bind buffers of any alignment.
            if variable {
                return Err(format!("variable {} starts at {data:p}, which is not aligned", id.0));
            }
            tensor.allocate_bytes(Placement::Arena, len).map_err(|e| e.to_string())?;
            if i >= self.inputs.len() {
                copies.push((i, data));
            } else {
                // SAFETY: as above, and the tensor owns its memory.
                let source = unsafe { raw::bytes(data.cast(), len, "an input") }?;
                tensor.bytes_mut().map_err(|e| e.to_string())?.copy_from_slice(source);
            }
        }
        let (inputs, outputs, temporaries) = (&self.inputs, &self.outputs, &self.pointers);
        let (tensors, mut host) = (&mut self.tensors, NoHost::default());
        contain(|| {
            // SAFETY: ids are places in `tensors`; a partition's outputs are computed in it, its inputs outside; the
            // runtime assigns disjoint memory to tensors that are alive at one node, and this library owns the
            // temporaries.
            let mut cx =
                unsafe { InvokeContext::new(inputs, outputs, tensors, temporaries, &Serial, &mut host) };
            // No tensor is in a buffer of the device.
            kernel.invoke_with(&mut cx, &mut Buffers::new(&[], &[], &mut [])).map_err(|e| e.chain())
        })?;
        for (i, target) in copies {
            let source = self.tensors.get(i).map(RuntimeTensor::bytes).unwrap_or_default();
            // SAFETY: `memory` has checked the size above.
            unsafe { std::ptr::copy(source.as_ptr(), target, source.len()) };
        }
        Ok(())
    }
}

fn tensor_id(index: c_int, view: &GraphView<'_>) -> Result<TensorId> {
    let id = usize::try_from(index).ok().filter(|&i| i < view.tensor_count());
    id.map(TensorId)
        .ok_or_else(|| format!("a partition has tensor {index}, which the subgraph does not have"))
}

/// Returns whether an unclaimed node reads the tensor.
pub(crate) fn read_by_others(view: &GraphView<'_>, id: TensorId, claimed: &[NodeId]) -> bool {
    let reads = |node: NodeId| view.node(node).node().inputs().contains(&Some(id));
    view.nodes().any(|node| reads(node.id()) && !claimed.contains(&node.id()))
}

/// The memory of a tensor, of at least `len` bytes.
fn memory(runtime: &Runtime, id: TensorId, len: usize) -> Result<*mut u8> {
    let tensor = runtime.tensor(id.0)?;
    if tensor.bytes < len || (tensor.data.is_null() && len > 0) {
        let (has, at, len) = (tensor.bytes, tensor.data, counted(len, "byte"));
        return Err(format!("tensor {} needs {len}, the runtime has {has} at {at:p}", id.0));
    }
    Ok(tensor.data.cast())
}
