//! What a kernel sees while it runs.

use smallvec::SmallVec;

use super::strings::{self, Strings};
use super::{Host, Parallel, Persistent, Placement, RuntimeTensor, Temporary};
use crate::error::{Error, Result};
use crate::graph::TensorId;
use crate::shape::Shape;
use crate::types::Element;

/// What a kernel sees while it runs.
///
/// Inputs and outputs are handed out as slices that live as long as the invocation, so that a kernel can hold all
/// of them at once. That is sound because every tensor that is handed out to be written is handed out once, and is
/// never one that is read: an input that output 0 is written over is not handed out at all.
pub struct InvokeContext<'a> {
    inputs: &'a [Option<TensorId>],
    outputs: &'a [TensorId],
    tensors: &'a mut [RuntimeTensor],
    temporaries: &'a [(*mut u8, usize)],
    parallel: &'a dyn Parallel,
    host: &'a mut dyn Host,
    /// Tensors handed out to be written.
    written: SmallVec<[TensorId; 4]>,
    /// Variables handed out to be read.
    read: SmallVec<[TensorId; 4]>,
    taken_temporaries: u64,
}

impl<'a> InvokeContext<'a> {
    /// A context for one invocation of a node.
    ///
    /// # Safety
    /// - Every id is below `tensors.len()`; no output is also an input.
    /// - The data of outputs, inputs and temporaries do not overlap, except that inputs may overlap inputs, and that one
    ///   input may be the very memory of output 0, begin and length; no other input then overlaps it.
    /// - Each temporary is valid for reads and writes of its length for `'a`, starts at a multiple of 64, and
    ///   nobody else uses it.
    pub unsafe fn new(
        inputs: &'a [Option<TensorId>],
        outputs: &'a [TensorId],
        tensors: &'a mut [RuntimeTensor],
        temporaries: &'a [(*mut u8, usize)],
        parallel: &'a dyn Parallel,
        host: &'a mut dyn Host,
    ) -> Self {
        let (written, read) = Default::default();
        InvokeContext {
            inputs,
            outputs,
            tensors,
            temporaries,
            parallel,
            host,
            written,
            read,
            taken_temporaries: 0,
        }
    }

    /// How many inputs, those left out included.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// How many outputs.
    pub fn num_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Threads to split work over.
    pub fn parallel(&self) -> &'a dyn Parallel {
        self.parallel
    }

    /// Variables and other subgraphs.
    pub fn host(&mut self) -> &mut dyn Host {
        &mut *self.host
    }

    /// True when the node has input `i`.
    pub fn has_input(&self, i: usize) -> bool {
        self.inputs.get(i).copied().flatten().is_some()
    }

    /// The elements of input `i`.
    pub fn input<T: Element>(&mut self, i: usize) -> Result<&'a [T]> {
        self.tensors[self.input_id(i)?.0].check_type::<T>()?;
        cast(self.input_bytes(i)?)
    }

    /// The elements of input `i`; `None` where output 0 is written over them, and holds them until it is. Only inputs
    /// of which the kernel said that they [may be](super::PrepareContext::may_overwrite) are.
    pub fn input_unless_overwritten<T: Element>(&mut self, i: usize) -> Result<Option<&'a [T]>> {
        let id = self.input_id(i)?;
        self.tensors[id.0].check_type::<T>()?;
        if self.is_overwritten(id) { Ok(None) } else { self.input(i).map(Some) }
    }

    /// As [`InvokeContext::input_unless_overwritten`], for the bytes.
    pub fn input_bytes_unless_overwritten(&mut self, i: usize) -> Result<Option<&'a [u8]>> {
        let id = self.input_id(i)?;
        if self.is_overwritten(id) { Ok(None) } else { self.input_bytes(i).map(Some) }
    }

    /// The elements of input `i`, if the node has it.
    pub fn optional_input<T: Element>(&mut self, i: usize) -> Result<Option<&'a [T]>> {
        if self.has_input(i) { self.input(i).map(Some) } else { Ok(None) }
    }

    /// The bytes of input `i`.
    pub fn input_bytes(&mut self, i: usize) -> Result<&'a [u8]> {
        let id = self.readable(i)?;
        let tensor = &self.tensors[id.0];
        let (data, len) = tensor.raw();
        if tensor.placement() == Placement::Variable {
            if self.written.contains(&id) {
                return Err(Error::State(format!("variable \"{}\" is being written", tensor.name)));
            }
            self.read.push(id);
        }
        if tensor.placement() == Placement::Released {
            return Err(Error::State(format!(
                "constant \"{}\" was given back, as all kernels said that they are done with it",
                tensor.name
            )));
        }
        // SAFETY: `data` is valid for `len` bytes as long as the tensor keeps its data, which nobody changes during
        // `'a` but `resize_output`, which refuses inputs. Nobody writes to it: outputs overlap no inputs (see `new`)
        // but one that `readable` refuses, and a variable that was handed out to be written is refused above.
        Ok(if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, len) } })
    }

    /// Input `i` with its shape and type, unless output 0 is written over it.
    pub fn input_tensor(&self, i: usize) -> Result<&RuntimeTensor> {
        self.readable(i).map(|id| &self.tensors[id.0])
    }

    /// The shape of input `i`.
    pub fn input_shape(&self, i: usize) -> Result<&Shape> {
        self.input_id(i).map(|id| &self.tensors[id.0].shape)
    }

    /// Output `i` with its shape and type. Its data are for [`InvokeContext::output`] to hand out.
    pub fn output_shape(&self, i: usize) -> Result<&Shape> {
        self.output_id(i).map(|id| &self.tensors[id.0].shape)
    }

    /// The elements of output `i`, to be written. Each output is handed out once.
    pub fn output<T: Element>(&mut self, i: usize) -> Result<&'a mut [T]> {
        let id = self.output_id(i)?;
        self.tensors[id.0].check_type::<T>()?;
        cast_mut(self.output_bytes(i)?)
    }

    /// The bytes of output `i`, to be written. Each output is handed out once.
    pub fn output_bytes(&mut self, i: usize) -> Result<&'a mut [u8]> {
        let id = self.output_id(i)?;
        self.take(id)
    }

    /// The elements of input `i`, which must be a variable, to be read and written.
    pub fn variable<T: Element>(&mut self, i: usize) -> Result<&'a mut [T]> {
        self.input_tensor(i)?.check_type::<T>()?;
        cast_mut(self.variable_bytes(i)?)
    }

    /// The bytes of input `i`, which must be a variable, to be read and written.
    pub fn variable_bytes(&mut self, i: usize) -> Result<&'a mut [u8]> {
        let id = self.input_id(i)?;
        let tensor = &self.tensors[id.0];
        if tensor.placement() != Placement::Variable {
            return Err(Error::InvalidNode(format!(
                "input {i} (\"{}\") must be a variable tensor",
                tensor.name
            )));
        }
        self.take(id)
    }

    /// Gives output `i`, whose shape depends on data, a shape and memory for it.
    pub fn resize_output(&mut self, i: usize, shape: impl Into<Shape>) -> Result<()> {
        let id = self.output_id(i)?;
        self.check_dynamic(id)?;
        let tensor = &mut self.tensors[id.0];
        tensor.shape = shape.into();
        tensor.allocate(Placement::Dynamic)
    }

    /// Gives output `i`, a string tensor, a shape and `bytes` bytes of memory.
    pub fn resize_output_bytes(&mut self, i: usize, shape: impl Into<Shape>, bytes: usize) -> Result<()> {
        let id = self.output_id(i)?;
        self.check_dynamic(id)?;
        let tensor = &mut self.tensors[id.0];
        tensor.shape = shape.into();
        tensor.allocate_bytes(Placement::Dynamic, bytes)
    }

    /// The strings of input `i`.
    pub fn strings(&mut self, i: usize) -> Result<Strings<'a>> {
        let bytes = self.input_bytes(i)?;
        self.input_tensor(i)?.check_strings(bytes)
    }

    /// Gives output `i`, a string tensor, a shape and its strings.
    pub fn write_strings<'s, I>(&mut self, i: usize, shape: impl Into<Shape>, strings: I) -> Result<()>
    where
        I: ExactSizeIterator<Item = &'s [u8]> + Clone,
    {
        self.resize_output_bytes(i, shape, strings::encoded_size(strings.clone())?)?;
        strings::write(strings, self.output_bytes(i)?);
        Ok(())
    }

    /// A temporary of `T`. Each is handed out once; what it holds is left over from other uses.
    pub fn temporary<T: Element>(&mut self, temporary: Temporary) -> Result<&'a mut [T]> {
        let bit = u32::try_from(temporary.0).ok().and_then(|i| 1u64.checked_shl(i));
        let (Some(bit), Some(&(data, len))) = (bit, self.temporaries.get(temporary.0)) else {
            return Err(Error::State(format!("temporary {} was not asked for", temporary.0)));
        };
        if self.taken_temporaries & bit != 0 {
            return Err(Error::State(format!("temporary {} is already in use", temporary.0)));
        }
        self.taken_temporaries |= bit;
        let len = len - len % size_of::<T>();
        // SAFETY: temporaries are valid and unshared for `'a` (see `new`), and each is handed out once.
        cast_mut(if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(data, len) } })
    }

    /// Persistent memory as elements of `T`: what the last invocation left in it, or zeros. Each is handed out once.
    pub fn persistent<T: Element>(&mut self, persistent: Persistent) -> Result<&'a mut [T]> {
        self.temporary(Temporary(persistent.0))
    }

    /// Calls subgraph `index` with the inputs `arguments` of this node, and copies what it returns into the outputs.
    pub fn call(&mut self, index: usize, arguments: std::ops::Range<usize>) -> Result<()> {
        let ids: SmallVec<[TensorId; 8]> = arguments.map(|i| self.readable(i)).collect::<Result<_>>()?;
        let inputs: SmallVec<[&RuntimeTensor; 8]> = ids.iter().map(|id| &self.tensors[id.0]).collect();
        let results = self.host.call(index, &inputs)?;
        if results.len() != self.outputs.len() {
            return Err(Error::InvalidNode(format!(
                "subgraph {index} has {} outputs, the node {}",
                results.len(),
                self.outputs.len()
            )));
        }
        drop(inputs);
        for (result, id) in results.into_iter().zip(self.outputs) {
            let tensor = &mut self.tensors[id.0];
            if self.written.contains(id) {
                return Err(Error::State(format!("output \"{}\" is already in use", tensor.name)));
            }
            if tensor.ty != result.ty {
                let text = format!("subgraph {index} returns {} for an output of {}", result.ty, tensor.ty);
                return Err(Error::InvalidNode(text));
            }
            if tensor.placement() == Placement::Dynamic {
                tensor.shape = result.shape.clone();
                tensor.allocate_bytes(Placement::Dynamic, result.bytes().len())?;
            }
            let target = tensor.bytes_mut()?;
            if target.len() != result.bytes().len() {
                return Err(Error::Kernel(format!(
                    "subgraph {index} returned {} for an output of another size",
                    result.shape
                )));
            }
            target.copy_from_slice(result.bytes());
        }
        Ok(())
    }

    fn check_dynamic(&self, id: TensorId) -> Result<()> {
        let tensor = &self.tensors[id.0];
        if tensor.placement() != Placement::Dynamic || self.written.contains(&id) {
            let text = "its shape was not announced to depend on data, or it is already in use";
            return Err(Error::State(format!("output \"{}\" cannot be resized: {text}", tensor.name)));
        }
        Ok(())
    }

    fn take(&mut self, id: TensorId) -> Result<&'a mut [u8]> {
        let tensor = &self.tensors[id.0];
        if self.written.contains(&id) || self.read.contains(&id) {
            return Err(Error::State(format!("tensor \"{}\" is already in use", tensor.name)));
        }
        if tensor.is_constant() {
            return Err(Error::State(format!("tensor \"{}\" is constant", tensor.name)));
        }
        self.written.push(id);
        let (data, len) = tensor.raw();
        // SAFETY: `data` is valid for reads and writes of `len` bytes: the tensor is not constant. It is handed out
        // once (`written`), was not handed out to be read (`read`), and overlaps nothing else (see `new`).
        Ok(if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(data, len) } })
    }

    /// Whether output 0 is written over a tensor.
    fn is_overwritten(&self, id: TensorId) -> bool {
        let Some(output) = self.outputs.first().filter(|&&output| output != id) else { return false };
        let ((to, to_len), (from, from_len)) = (self.tensors[output.0].raw(), self.tensors[id.0].raw());
        to == from && to_len > 0 && from_len > 0
    }

    /// Input `i`, which is not written over.
    fn readable(&self, i: usize) -> Result<TensorId> {
        let id = self.input_id(i)?;
        if self.is_overwritten(id) {
            let name = &self.tensors[id.0].name;
            return Err(Error::State(format!("input {i} (\"{name}\") is overwritten by the output")));
        }
        Ok(id)
    }

    fn input_id(&self, i: usize) -> Result<TensorId> {
        self.inputs
            .get(i)
            .copied()
            .flatten()
            .ok_or_else(|| Error::InvalidNode(format!("input {i} is missing")))
    }

    fn output_id(&self, i: usize) -> Result<TensorId> {
        self.outputs.get(i).copied().ok_or_else(|| Error::InvalidNode(format!("output {i} is missing")))
    }
}

fn cast<T: Element>(bytes: &[u8]) -> Result<&[T]> {
    // No bytes may start anywhere.
    if bytes.is_empty() {
        return Ok(&[]);
    }
    bytemuck::try_cast_slice(bytes).map_err(|e| Error::State(format!("tensor of {}: {e}", T::TYPE)))
}

fn cast_mut<T: Element>(bytes: &mut [u8]) -> Result<&mut [T]> {
    if bytes.is_empty() {
        return Ok(&mut []);
    }
    bytemuck::try_cast_slice_mut(bytes).map_err(|e| Error::State(format!("tensor of {}: {e}", T::TYPE)))
}
