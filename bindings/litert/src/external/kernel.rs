//! A kernel of a delegate, which runs one partition.

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::sync::Arc;

use delegraph_core::error::{Error, counted};
use delegraph_core::kernel::{ALIGNMENT, AlignedBuffer, Temporary};
use delegraph_core::{InvokeContext, Kernel, PrepareContext, Shape, TensorId, TensorType};
use delegraph_delegate_api::{DelegateKernel, DelegateParams, GraphView};

use super::calls::{Phase, enter};
use super::graph::{Graph, Resizable};
use super::instance::Instance;
use super::nodes::{ExternalParams, PartitionNode};
use crate::abi::{self, allocation};
use crate::raw::{Result, type_code};

/// The kernel that a delegate's `init` created for a partition.
pub(super) struct Handle {
    graph: Arc<Graph>,
    instance: Arc<Instance>,
    registration: abi::Registration,
    node: PartitionNode,
    params: ExternalParams,
    pub(super) partition: DelegateParams,
    outputs: Vec<Output>,
    /// Per input of the partition, whether it is a variable.
    variables: Vec<bool>,
}

// SAFETY: the interface lets any thread use a kernel, one at a time, which `&mut` and the lock of the graph ensure.
unsafe impl Send for Handle {}

/// An output of a partition.
#[derive(Clone, Copy)]
struct Output {
    index: usize,
    /// Whether its shape is known before the partition runs.
    is_static: bool,
    /// Whether its shape depends on data that the partition computes.
    data_dependent: bool,
}

impl Handle {
    /// Makes the delegate create a kernel.
    pub(super) fn new(
        graph: &Arc<Graph>,
        instance: &Arc<Instance>,
        registration: abi::Registration,
        view: &GraphView<'_>,
        partition: DelegateParams,
    ) -> Result<Self> {
        let mut params = ExternalParams::new(view, &partition, instance.pointer())?;
        let node = params.node()?;
        let variables = partition.inputs.iter().map(|&id| view.tensor(id).is_variable()).collect();
        let outputs = outputs(view, &partition);
        let (graph, instance) = (Arc::clone(graph), Arc::clone(instance));
        let mut handle =
            Handle { graph, instance, registration, node, params, partition, outputs, variables };
        handle.init()?;
        Ok(handle)
    }

    fn init(&mut self) -> Result<()> {
        let params = self.params.structure();
        if let Some(init) = self.registration.init {
            let outcome = enter(&self.graph, Phase::Init, |context| {
                // SAFETY: the delegate's function, with the context and the params of a partition, as LiteRT calls it.
                unsafe { init(context, params.cast(), 0) }
            });
            let kernel = outcome.value;
            self.node.set_kernel(kernel);
            outcome.with("init", (kernel.addr() == abi::INIT_FAILED).then(|| "init failed".into()))?;
        }
        let (outputs, delegate) = (&self.params.outputs, self.instance.pointer());
        self.graph
            .with_tensors(|tensors| outputs.iter().try_for_each(|&id| tensors.set_delegate(id, delegate)))
    }
}

/// Describes the outputs of a partition: when their shapes are known.
fn outputs(view: &GraphView<'_>, partition: &DelegateParams) -> Vec<Output> {
    let mut data_dependent: HashSet<TensorId> = HashSet::new();
    for &id in &partition.nodes {
        let node = view.node(id);
        let known = node.inputs().all(|tensor| tensor.shape().is_some());
        let depends = node.inputs().any(|tensor| data_dependent.contains(&tensor.id()));
        let unknown = node.outputs().filter(|tensor| tensor.shape().is_none());
        data_dependent.extend(unknown.filter(|_| known || depends).map(|tensor| tensor.id()));
    }
    let output = |id: &TensorId| Output {
        index: id.0,
        is_static: view.tensor(*id).shape().is_some(),
        data_dependent: data_dependent.contains(id),
    };
    partition.outputs.iter().map(output).collect()
}

impl Drop for Handle {
    fn drop(&mut self) {
        let kernel = self.node.kernel();
        let delegate = self.instance.pointer();
        let free_buffer = self.instance.read().free_buffer_handle;
        for &index in &self.params.outputs {
            let handle = self.graph.with_tensors(|tensors| tensors.take_buffer(index));
            let (Some(mut handle), Some(free_buffer)) = (handle, free_buffer) else { continue };
            enter(&self.graph, Phase::Free, |context| {
                // SAFETY: the delegate's function, with a handle that it assigned to the tensor.
                unsafe { free_buffer(context, delegate, &raw mut handle) }
            });
        }
        if let (false, Some(free)) =
            (kernel.is_null() || kernel.addr() == abi::INIT_FAILED, self.registration.free)
        {
            // SAFETY: the delegate's function, called once with the result of its `init`.
            enter(&self.graph, Phase::Free, |context| unsafe { free(context, kernel) });
        }
    }
}

/// Runs a partition with a delegate's kernel.
pub(super) struct ExternalKernel {
    handle: Handle,
    temporaries: Vec<(usize, Place)>,
    scratch: Option<Temporary>,
    persistent: HashMap<usize, AlignedBuffer>,
}

/// The memory of a temporary.
#[derive(Clone, Copy)]
enum Place {
    /// In the memory that the interpreter plans: offset and length.
    Scratch(usize, usize),
    /// Kept between runs.
    Persistent,
}

impl ExternalKernel {
    pub(super) fn new(handle: Handle) -> Self {
        let (temporaries, scratch, persistent) = Default::default();
        ExternalKernel { handle, temporaries, scratch, persistent }
    }

    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<(), Error> {
        let Handle { graph, registration, node, params, partition, outputs, .. } = &mut self.handle;
        graph.charge(cx.budget())?;
        let size = |shape: &Shape, ty: TensorType| shape.checked_elements().and_then(|n| ty.byte_size(n));
        for (i, id) in partition.inputs.iter().enumerate() {
            let tensor = cx.input(i)?;
            let bytes = size(tensor.shape(), tensor.ty()).unwrap_or_default();
            let dynamic =
                graph.with_tensors(|t| t.get(id.0).map(|t| t.allocation_type == allocation::DYNAMIC));
            let dynamic = dynamic.map_err(Error::State)?;
            graph
                .with_tensors(|t| t.set_shape(id.0, tensor.shape(), bytes, dynamic))
                .map_err(Error::State)?;
        }
        for (i, output) in outputs.iter().enumerate() {
            let tensor = cx.output(i)?;
            let bytes = size(tensor.shape(), tensor.ty()).unwrap_or_default();
            let dynamic = output.data_dependent || tensor.ty() == TensorType::String;
            graph
                .with_tensors(|t| t.set_shape(output.index, tensor.shape(), bytes, dynamic))
                .map_err(Error::State)?;
        }
        graph.set_threads(cx.threads());
        let budget = Arc::clone(cx.budget());
        if let Some(prepare) = registration.prepare {
            let own = Resizable { outputs: &params.outputs, all: true, budget: Some(&budget) };
            let structure = node.structure();
            let outcome = enter(graph, Phase::PrepareKernel(own), |context| {
                // SAFETY: the delegate's function, with the context and the node of the kernel.
                unsafe { prepare(context, structure) }
            });
            outcome.check("Prepare of a kernel").map_err(Error::State)?;
        }
        self.prepared_outputs(cx)?;
        self.prepared_temporaries(cx)
    }

    /// Checks the outputs after the delegate's call, and sets the shapes that only the delegate knows.
    fn prepared_outputs(&self, cx: &mut PrepareContext<'_>) -> Result<(), Error> {
        let graph = &self.handle.graph;
        for (i, output) in self.handle.outputs.iter().enumerate() {
            let (found, shape, name) = graph.with_tensors(|tensors| {
                let allocation = tensors.get(output.index).map(|tensor| tensor.allocation_type);
                (allocation, tensors.shape(output.index), tensors.name(output.index))
            });
            let (found, shape) = (found.map_err(Error::State)?, shape.map_err(Error::State)?);
            if !matches!(found, allocation::ARENA_RW | allocation::ARENA_RW_PERSISTENT | allocation::DYNAMIC)
            {
                let text = format!(
                    "output {name} has the allocation type {found}; supported are the arena and dynamic types"
                );
                return Err(Error::State(text));
            }
            let expected = cx.output(i)?.shape().clone();
            match (output.is_static, found) {
                (true, allocation::DYNAMIC) => {}
                (true, _) if shape == expected => {}
                (true, _) => {
                    let text =
                        format!("the kernel gave output {name} the shape {shape}; the op has {expected}");
                    return Err(Error::State(text));
                }
                (false, allocation::DYNAMIC) => cx.set_output_data_dependent(i)?,
                (false, _) => cx.set_output_shape(i, shape)?,
            }
        }
        Ok(())
    }

    /// Requests the memory of the temporaries that the delegate chose.
    fn prepared_temporaries(&mut self, cx: &mut PrepareContext<'_>) -> Result<(), Error> {
        let indices = self.handle.node.temporaries().map_err(Error::State)?;
        let mut end = 0_usize;
        self.temporaries.clear();
        let too_large = || Error::OutOfMemory("temporaries of a delegate's kernel".into());
        for index in indices {
            let (id, kind, bytes) = self.temporary(index).map_err(Error::State)?;
            match kind {
                allocation::ARENA_RW => {
                    self.temporaries.push((id, Place::Scratch(end, bytes)));
                    let next = end.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
                    end = next.ok_or_else(too_large)?;
                }
                allocation::ARENA_RW_PERSISTENT => {
                    if self.persistent.get(&id).is_none_or(|kept| kept.len() != bytes) {
                        let mut buffer = AlignedBuffer::charged(cx.budget())?;
                        buffer.resize(bytes)?;
                        self.persistent.insert(id, buffer);
                    }
                    self.temporaries.push((id, Place::Persistent));
                }
                allocation::DYNAMIC => {}
                other => {
                    let text =
                        format!("temporary {index} has the allocation type {other}, which is not supported");
                    return Err(Error::State(text));
                }
            }
        }
        self.scratch = (end > 0).then(|| cx.temporary(end));
        Ok(())
    }

    fn temporary(&self, index: c_int) -> Result<(usize, c_int, usize)> {
        self.handle.graph.with_tensors(|tensors| {
            let id = usize::try_from(index).ok().filter(|&id| id >= tensors.given());
            let id = id.ok_or_else(|| format!("temporary {index} is not a tensor that was added"))?;
            let tensor = tensors.get(id).map_err(|e| format!("temporary: {e}"))?;
            Ok((id, tensor.allocation_type, tensor.bytes))
        })
    }

    fn run(&mut self, cx: &mut InvokeContext<'_>) -> Result<(), Error> {
        let mut lent = self.lend(cx)?.into_iter();
        let budget = Arc::clone(cx.budget());
        let Handle { graph, registration, node, params, .. } = &mut self.handle;
        let own = Resizable { outputs: &params.outputs, all: false, budget: Some(&budget) };
        let Some(invoke) = registration.invoke else {
            return Err(Error::State("the kernel has no `invoke` function".into()));
        };
        let structure = node.structure();
        let outcome = enter(graph, Phase::Invoke(own), |context| {
            // SAFETY: the delegate's function, with the context and the node of the kernel.
            unsafe { invoke(context, structure) }
        });
        outcome.check("invoke").map_err(Error::State)?;
        for i in 0..self.handle.outputs.len() {
            self.fetch(i, own_budget(&budget)).map_err(Error::State)?;
            self.deliver(cx, i, lent.next().flatten())?;
        }
        Ok(())
    }

    /// Lends the memory of inputs, outputs and temporaries to the delegate. Returns the memory of each output; `None`
    /// if the delegate sizes it.
    fn lend<'a>(&mut self, cx: &mut InvokeContext<'a>) -> Result<Vec<Option<&'a mut [u8]>>, Error> {
        let Handle { graph, partition, outputs, variables, .. } = &self.handle;
        let lend = |index: usize, data: *mut u8, len: usize| {
            graph.with_tensors(|tensors| tensors.lend(index, data, len)).map_err(Error::State)
        };
        for (i, (id, &variable)) in partition.inputs.iter().zip(variables).enumerate() {
            let (data, len) = if variable {
                let bytes = cx.variable_bytes(i)?;
                (bytes.as_mut_ptr(), bytes.len())
            } else {
                let bytes = cx.input_bytes(i)?;
                (bytes.as_ptr().cast_mut(), bytes.len())
            };
            lend(id.0, data, len)?;
        }
        let mut targets = Vec::with_capacity(outputs.len());
        for (i, output) in outputs.iter().enumerate() {
            let mut target = None;
            if !is_dynamic(graph, output.index)? {
                let bytes = cx.output_bytes(i)?;
                lend(output.index, bytes.as_mut_ptr(), bytes.len())?;
                target = Some(bytes);
            }
            targets.push(target);
        }
        let scratch = match self.scratch {
            Some(scratch) => cx.temporary::<u8>(scratch)?,
            None => &mut [],
        };
        for &(index, place) in &self.temporaries {
            match place {
                Place::Scratch(start, len) => {
                    let bytes = scratch.get_mut(start..start + len);
                    let bytes = bytes.ok_or_else(|| Error::State("a temporary has no memory".into()))?;
                    lend(index, bytes.as_mut_ptr(), len)?;
                }
                Place::Persistent => {
                    if let Some(buffer) = self.persistent.get_mut(&index) {
                        let bytes = buffer.bytes_mut();
                        lend(index, bytes.as_mut_ptr(), bytes.len())?;
                    }
                }
            }
        }
        Ok(targets)
    }

    /// Copies an output from a buffer of the delegate, if the delegate kept it there.
    fn fetch(&self, i: usize, own: Resizable<'_>) -> Result<()> {
        let Handle { graph, instance, outputs, .. } = &self.handle;
        let Some(output) = outputs.get(i) else { return Ok(()) };
        let (stale, handle, pointer, name) = graph.with_tensors(|tensors| {
            let name = tensors.name(output.index);
            let (first, _) = tensors.array();
            let pointer = first.wrapping_add(output.index);
            let found = tensors.get(output.index).map(|tensor| (tensor.data_is_stale, tensor.buffer_handle));
            found.map(|(stale, handle)| (stale, handle, pointer, name))
        })?;
        match (stale, instance.read().copy_from_buffer_handle) {
            (0, _) => Ok(()),
            (1, Some(copy)) if handle != abi::NO_BUFFER => {
                let outcome = enter(graph, Phase::Invoke(own), |context| {
                    // SAFETY: the delegate's function, with the handle that it assigned to the tensor.
                    unsafe { copy(context, instance.pointer(), handle, pointer) }
                });
                outcome.check("CopyFromBufferHandle")?;
                graph.with_tensors(|tensors| tensors.set_current(output.index))
            }
            (1, _) => {
                let text = format!("output {name} is in a buffer of the delegate");
                Err(format!("{text}, which has no handle of it or no CopyFromBufferHandle"))
            }
            (other, _) => Err(format!("output {name}: data_is_stale is {other}, which is not a boolean")),
        }
    }

    /// Copies a dynamic output to the interpreter. `lent` is its memory, unless it was dynamic before the run.
    fn deliver<'a>(
        &self,
        cx: &mut InvokeContext<'a>,
        i: usize,
        lent: Option<&'a mut [u8]>,
    ) -> Result<(), Error> {
        let Handle { graph, outputs, .. } = &self.handle;
        let Some(output) = outputs.get(i) else { return Ok(()) };
        if !is_dynamic(graph, output.index)? {
            return Ok(());
        }
        let found = graph.with_tensors(|tensors| {
            let tensor = tensors.get(output.index)?;
            let (data, bytes, ty) = (tensor.data.cast::<u8>().cast_const(), tensor.bytes, tensor.ty);
            Ok::<_, String>((data, bytes, ty, tensors.shape(output.index)?, tensors.name(output.index)))
        });
        let (data, bytes, ty, shape, name) = found.map_err(Error::State)?;
        let string = ty == type_code(TensorType::String);
        let target = if output.is_static && !string {
            let expected = cx.output_shape(i)?;
            if shape != *expected {
                let text = format!("the kernel gave output {name} the shape {shape}; the op has {expected}");
                return Err(Error::State(text));
            }
            match lent {
                Some(target) => target,
                None => cx.output_bytes(i)?,
            }
        } else {
            match string {
                true => cx.resize_output_bytes(i, shape, bytes)?,
                false => cx.resize_output(i, shape)?,
            }
            cx.output_bytes(i)?
        };
        if bytes < target.len() || (data.is_null() && !target.is_empty()) {
            let (has, needed) = (counted(bytes, "byte"), target.len());
            let verb = if needed == 1 { "is" } else { "are" };
            return Err(Error::State(format!("output {name} has {has} at {data:p}; {needed} {verb} needed")));
        }
        if !target.is_empty() {
            // SAFETY: the delegate, or `Tensors::resize`, allocated `bytes` bytes for the tensor, which is not shorter
            // than the target. A delegate that made the tensor dynamic late may still use the target: the two may
            // overlap.
            unsafe { std::ptr::copy(data, target.as_mut_ptr(), target.len()) };
        }
        Ok(())
    }
}

fn own_budget(budget: &Arc<delegraph_core::kernel::Budget>) -> Resizable<'_> {
    Resizable { outputs: &[], all: false, budget: Some(budget) }
}

fn is_dynamic(graph: &Graph, index: usize) -> Result<bool, Error> {
    let found = graph.with_tensors(|tensors| Ok(tensors.get(index)?.allocation_type == allocation::DYNAMIC));
    found.map_err(Error::State)
}

impl Kernel for ExternalKernel {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<(), Error> {
        let prepared = ExternalKernel::prepare(self, cx);
        self.handle.graph.with_tensors(|tensors| tensors.take_back());
        prepared
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<(), Error> {
        let result = self.run(cx);
        // Memory of the interpreter is valid during this call only.
        self.handle.graph.with_tensors(|tensors| tensors.take_back());
        result
    }
}

impl DelegateKernel for ExternalKernel {}
