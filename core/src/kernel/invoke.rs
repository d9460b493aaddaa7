//! The context of a kernel's `invoke`.

use std::collections::HashSet;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Budget, Host, Parallel, Persistent, Placement, RuntimeTensor, Temporary};
use crate::error::{Error, Result, counted};
use crate::graph::strings::{self, Strings};
use crate::types::{Element, Shape, TensorId, TensorType};

/// The context of a kernel's `invoke`.
///
/// Inputs and outputs are returned as slices that live as long as the invocation, so that a kernel can hold all of them
/// at once. This is sound because a tensor that is returned for writing is returned once, and never for reading: an
/// input that output 0 overwrites is never returned.
pub struct InvokeContext<'a> {
    inputs: &'a [Option<TensorId>],
    outputs: &'a [TensorId],
    tensors: &'a mut [RuntimeTensor],
    temporaries: &'a [(*mut u8, usize)],
    parallel: &'a dyn Parallel,
    host: &'a mut dyn Host,
    /// Tensors handed out to be written.
    written: Handed,
    /// Variables handed out to be read.
    read: Handed,
    taken_temporaries: u64,
}

/// Tensors that were handed out. A context is created for every node, so creating and dropping an empty list takes few
/// instructions.
struct Handed {
    /// The first `len` indices; `len` is 0 only if there are none.
    few: [u32; MAX_FEW],
    len: usize,
    /// All of them, once there are more than [`MAX_FEW`] or one exceeds `u32`: a node may have 100,000s of outputs.
    #[allow(clippy::box_collection, reason = "an empty field is written for every node")]
    many: Option<Box<HashSet<TensorId>>>,
}

/// Up to this number of tensors, a list is searched faster and needs no allocation.
const MAX_FEW: usize = 8;

impl Handed {
    const NONE: Self = Handed { few: [0; MAX_FEW], len: 0, many: None };

    #[inline]
    fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn contains(&self, id: TensorId) -> bool {
        // Most kernels read all inputs before they write.
        !self.is_empty() && self.find(id)
    }

    /// The tensors in `few`, which are all as long as `many` is `None`.
    fn listed(&self) -> impl Iterator<Item = TensorId> {
        self.few.iter().take(self.len).map(|&few| TensorId(few as usize))
    }

    fn find(&self, id: TensorId) -> bool {
        match &self.many {
            Some(many) => many.contains(&id),
            None => self.listed().any(|few| few == id),
        }
    }

    #[inline]
    fn insert(&mut self, id: TensorId) {
        match (&mut self.many, self.few.get_mut(self.len), u32::try_from(id.0)) {
            (None, Some(free), Ok(index)) => {
                *free = index;
                self.len += 1;
            }
            _ => self.insert_in_many(id),
        }
    }

    #[cold]
    fn insert_in_many(&mut self, id: TensorId) {
        let mut many = self.many.take().unwrap_or_else(|| Box::new(self.listed().collect()));
        many.insert(id);
        (self.many, self.len) = (Some(many), MAX_FEW);
    }
}

impl<'a> InvokeContext<'a> {
    /// Creates a context for one invocation of a node.
    ///
    /// # Safety
    /// - Every id is below `tensors.len()`; no output is also an input.
    /// - The data of outputs, inputs and temporaries do not overlap, except that inputs may overlap inputs, and that
    ///   one input may have exactly the memory of output 0, address and length; no other input then overlaps it.
    /// - Each temporary is valid for reads and writes of its length for `'a`, starts at a multiple of 64, and
    ///   no other reference to it exists.
    #[inline(always)]
    pub unsafe fn new(
        inputs: &'a [Option<TensorId>],
        outputs: &'a [TensorId],
        tensors: &'a mut [RuntimeTensor],
        temporaries: &'a [(*mut u8, usize)],
        parallel: &'a dyn Parallel,
        host: &'a mut dyn Host,
    ) -> Self {
        InvokeContext {
            inputs,
            outputs,
            tensors,
            temporaries,
            parallel,
            host,
            written: Handed::NONE,
            read: Handed::NONE,
            taken_temporaries: 0,
        }
    }

    /// Returns the number of inputs, those left out included.
    #[inline]
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Returns the number of outputs.
    #[inline]
    pub fn output_count(&self) -> usize {
        self.outputs.len()
    }

    /// Returns the threads that a kernel may split its work over.
    #[inline]
    pub fn parallel(&self) -> &'a dyn Parallel {
        self.parallel
    }

    /// Returns the services of the interpreter: variables, tables and other subgraphs.
    pub fn host(&mut self) -> &mut dyn Host {
        &mut *self.host
    }

    /// Returns the memory and time that the interpreter may use. Kernels allocate memory whose size depends on data
    /// with [`Budget::filled`].
    pub fn budget(&self) -> &Arc<Budget> {
        self.host.budget()
    }

    /// Polls for the end of the invocation. Kernels that may run for more than about 50 ms call it between chunks of
    /// work.
    ///
    /// # Errors
    /// The errors of [`Budget::check`].
    pub fn check_interrupted(&self) -> Result<()> {
        self.host.budget().check()
    }

    /// Returns true when the node has input `i`.
    #[inline]
    pub fn has_input(&self, i: usize) -> bool {
        self.inputs.get(i).copied().flatten().is_some()
    }

    /// Returns the elements of input `i`.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the node does not have the input, [`Error::Unsupported`] if it has another type,
    /// [`Error::State`] if its data is released, overwritten, or handed out for writing.
    pub fn input<T: Element>(&mut self, i: usize) -> Result<&'a [T]> {
        match self.read(i, Some(T::TYPE))? {
            Some(bytes) => cast(bytes),
            None => Err(self.overwritten(i)),
        }
    }

    /// Returns the elements of input `i`; `None` if output 0 overwrites the input: then output 0 holds the elements
    /// until it is written. Only inputs that the kernel declared as
    /// [overwritable](super::PrepareContext::may_overwrite) are overwritten.
    ///
    /// # Errors
    /// As [`InvokeContext::input`], except that an overwritten input is not an error.
    pub fn input_unless_overwritten<T: Element>(&mut self, i: usize) -> Result<Option<&'a [T]>> {
        self.read(i, Some(T::TYPE))?.map(cast).transpose()
    }

    /// As [`InvokeContext::input_unless_overwritten`], for the bytes.
    ///
    /// # Errors
    /// As there, for any type.
    pub fn input_bytes_unless_overwritten(&mut self, i: usize) -> Result<Option<&'a [u8]>> {
        self.read(i, None)
    }

    /// Returns the elements of input `i`, if the node has it.
    ///
    /// # Errors
    /// As [`InvokeContext::input`], except that a missing input is not an error.
    pub fn optional_input<T: Element>(&mut self, i: usize) -> Result<Option<&'a [T]>> {
        if self.has_input(i) { self.input(i).map(Some) } else { Ok(None) }
    }

    /// Returns the bytes of input `i`.
    ///
    /// # Errors
    /// As [`InvokeContext::input`], for any type.
    pub fn input_bytes(&mut self, i: usize) -> Result<&'a [u8]> {
        match self.read(i, None)? {
            Some(bytes) => Ok(bytes),
            None => Err(self.overwritten(i)),
        }
    }

    /// Returns the bytes of input `i`, which must have the type `ty` if one is given; `None` if output 0 overwrites
    /// them.
    #[inline]
    fn read(&mut self, i: usize, ty: Option<TensorType>) -> Result<Option<&'a [u8]>> {
        match self.read_common(i, ty) {
            Some(read) => Ok(read),
            None => self.read_other(i, ty),
        }
    }

    /// The common case of [`InvokeContext::read`], in few instructions: nothing was handed out for writing, and the
    /// input is not a variable. `None` in other cases, which include errors.
    #[inline]
    fn read_common(&self, i: usize, ty: Option<TensorType>) -> Option<Option<&'a [u8]>> {
        let id = self.inputs.get(i).copied().flatten()?;
        let tensor = &self.tensors[id.0];
        let other = ty.is_some_and(|ty| tensor.ty != ty)
            || matches!(tensor.placement(), Placement::Variable | Placement::Released)
            || !self.written.is_empty();
        if other {
            return None;
        }
        if self.is_overwritten(id) {
            return Some(None);
        }
        let (data, len) = tensor.raw();
        // SAFETY: see `read_other`. Nothing was handed out for writing, and the input is not a variable.
        Some(Some(if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, len) } }))
    }

    /// All other cases of [`InvokeContext::read`].
    #[inline(never)]
    fn read_other(&mut self, i: usize, ty: Option<TensorType>) -> Result<Option<&'a [u8]>> {
        let id = self.input_id(i)?;
        let tensor = &self.tensors[id.0];
        if let Some(ty) = ty {
            tensor.check_type_is(ty)?;
        }
        if self.is_overwritten(id) {
            return Ok(None);
        }
        if self.written.contains(id) {
            return Err(self.being_written(id));
        }
        let (data, len) = tensor.raw();
        match tensor.placement() {
            Placement::Variable => self.read.insert(id),
            Placement::Released => return Err(self.released(id)),
            _ => {}
        }
        // SAFETY: `data` is valid for `len` bytes as long as the tensor keeps its data. During `'a`, only
        // `resize_output`, `resize_output_bytes` and `call` replace data: that of outputs, which are not inputs (see
        // `new`). No `&mut` to the data exists: outputs do not overlap inputs (see `new`). The overwritten input, and a
        // variable that was handed out for writing, were rejected above; `take` rejects variables in `read`.
        Ok(Some(if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, len) } }))
    }

    /// Input `i` with its shape and type, unless output 0 overwrites it or it was handed out for writing.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the node does not have the input, [`Error::State`] if it is overwritten or was handed
    /// out.
    pub fn input_tensor(&self, i: usize) -> Result<&RuntimeTensor> {
        self.readable(i).map(|id| &self.tensors[id.0])
    }

    /// Returns the shape of input `i`.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the node does not have the input.
    pub fn input_shape(&self, i: usize) -> Result<&Shape> {
        self.input_id(i).map(|id| &self.tensors[id.0].shape)
    }

    /// Returns the shape of output `i`.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the node does not have the output.
    pub fn output_shape(&self, i: usize) -> Result<&Shape> {
        self.output_id(i).map(|id| &self.tensors[id.0].shape)
    }

    /// Returns the elements of output `i`, to be written. Each output is handed out once.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the node does not have the output, [`Error::Unsupported`] if it has another type,
    /// [`Error::State`] if it was handed out or is constant.
    pub fn output<T: Element>(&mut self, i: usize) -> Result<&'a mut [T]> {
        cast_mut(self.write(i, Some(T::TYPE))?)
    }

    /// Returns the bytes of output `i`, to be written. Each output is handed out once.
    ///
    /// # Errors
    /// As [`InvokeContext::output`], for any type.
    pub fn output_bytes(&mut self, i: usize) -> Result<&'a mut [u8]> {
        self.write(i, None)
    }

    #[inline]
    fn write(&mut self, i: usize, ty: Option<TensorType>) -> Result<&'a mut [u8]> {
        match self.write_common(i, ty) {
            Some(bytes) => Ok(bytes),
            None => self.write_other(i, ty),
        }
    }

    /// The common case of [`InvokeContext::write`], in few instructions: nothing was handed out for writing, and no
    /// variable was read. `None` in other cases, which include errors.
    #[inline]
    fn write_common(&mut self, i: usize, ty: Option<TensorType>) -> Option<&'a mut [u8]> {
        let id = *self.outputs.get(i)?;
        let tensor = &self.tensors[id.0];
        let other = ty.is_some_and(|ty| tensor.ty != ty) || !self.written.is_empty() || !self.read.is_empty();
        if other || tensor.is_constant() {
            return None;
        }
        let (data, len) = tensor.raw();
        self.written.insert(id);
        // SAFETY: see `take`.
        Some(if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(data, len) } })
    }

    /// All other cases of [`InvokeContext::write`].
    #[inline(never)]
    fn write_other(&mut self, i: usize, ty: Option<TensorType>) -> Result<&'a mut [u8]> {
        let id = self.output_id(i)?;
        if let Some(ty) = ty {
            self.tensors[id.0].check_type_is(ty)?;
        }
        self.take(id)
    }

    /// Returns the elements of input `i`, which must be a variable, to be read and written.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the node does not have the input or it is not a variable, [`Error::Unsupported`] if it
    /// has another type, [`Error::State`] if it was handed out.
    pub fn variable<T: Element>(&mut self, i: usize) -> Result<&'a mut [T]> {
        self.input_tensor(i)?.check_type::<T>()?;
        cast_mut(self.variable_bytes(i)?)
    }

    /// Returns the bytes of input `i`, which must be a variable, to be read and written.
    ///
    /// # Errors
    /// As [`InvokeContext::variable`], for any type.
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

    /// Sets the shape of output `i`, which depends on data, and allocates memory for it.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the node does not have the output, [`Error::State`] if its shape was not declared as
    /// data-dependent or it was handed out; those of [`RuntimeTensor::allocate`].
    pub fn resize_output(&mut self, i: usize, shape: impl Into<Shape>) -> Result<()> {
        let id = self.output_id(i)?;
        self.check_dynamic(id)?;
        let tensor = &mut self.tensors[id.0];
        tensor.shape = shape.into();
        tensor.allocate(Placement::Dynamic)
    }

    /// Sets the shape of output `i`, a string tensor, and allocates `bytes` bytes for it.
    ///
    /// # Errors
    /// As [`InvokeContext::resize_output`].
    pub fn resize_output_bytes(&mut self, i: usize, shape: impl Into<Shape>, bytes: usize) -> Result<()> {
        let id = self.output_id(i)?;
        self.check_dynamic(id)?;
        let tensor = &mut self.tensors[id.0];
        tensor.shape = shape.into();
        tensor.allocate_bytes(Placement::Dynamic, bytes)
    }

    /// Returns the strings of input `i`.
    ///
    /// # Errors
    /// As [`InvokeContext::input_bytes`], and those of [`RuntimeTensor::check_strings`].
    pub fn strings(&mut self, i: usize) -> Result<Strings<'a>> {
        let bytes = self.input_bytes(i)?;
        self.input_tensor(i)?.check_strings(bytes)
    }

    /// Sets the shape and the strings of output `i`, a string tensor.
    ///
    /// # Errors
    /// As [`InvokeContext::resize_output`] and [`InvokeContext::check_interrupted`], and if the strings are too long for
    /// the format.
    pub fn write_strings<'s, I>(&mut self, i: usize, shape: impl Into<Shape>, strings: I) -> Result<()>
    where
        I: ExactSizeIterator<Item = &'s [u8]> + Clone,
    {
        let size = strings::encoded_size_polled(strings.clone(), || self.check_interrupted())?;
        self.resize_output_bytes(i, shape, size)?;
        let bytes = self.output_bytes(i)?;
        strings::write_polled(strings, bytes, || self.check_interrupted())
    }

    /// Returns a temporary as elements of `T`, without a remainder of bytes. Each is handed out once; its contents are
    /// left over from other uses.
    ///
    /// # Errors
    /// [`Error::State`] if it was not requested or was handed out.
    pub fn temporary<T: Element>(&mut self, temporary: Temporary) -> Result<&'a mut [T]> {
        let bit = u32::try_from(temporary.0).ok().and_then(|i| 1u64.checked_shl(i));
        let (Some(bit), Some(&(data, len))) = (bit, self.temporaries.get(temporary.0)) else {
            return Err(Error::State(format!("temporary {} was not requested", temporary.0)));
        };
        if self.taken_temporaries & bit != 0 {
            return Err(Error::State(format!("temporary {} is already in use", temporary.0)));
        }
        self.taken_temporaries |= bit;
        let len = len - len % size_of::<T>();
        // SAFETY: temporaries are valid and unshared for `'a` (see `new`), and each is handed out once.
        cast_mut(if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(data, len) } })
    }

    /// Persistent memory as elements of `T`, with the values of the last invocation, or zeros. Each is handed out once.
    ///
    /// # Errors
    /// As [`InvokeContext::temporary`].
    pub fn persistent<T: Element>(&mut self, persistent: Persistent) -> Result<&'a mut [T]> {
        self.temporary(Temporary(persistent.0))
    }

    /// Calls subgraph `index` with the inputs `arguments` of this node, and copies its results into the outputs.
    ///
    /// # Errors
    /// The errors of [`Host::call`]; [`Error::InvalidNode`] or [`Error::Kernel`] if the results do not fit the outputs,
    /// [`Error::State`] if an operand was handed out.
    pub fn call(&mut self, index: usize, arguments: std::ops::Range<usize>) -> Result<()> {
        let ids: SmallVec<[TensorId; 8]> = arguments.map(|i| self.readable(i)).collect::<Result<_>>()?;
        let inputs: SmallVec<[&RuntimeTensor; 8]> = ids.iter().map(|id| &self.tensors[id.0]).collect();
        let results = self.host.call(index, &inputs)?;
        if results.len() != self.outputs.len() {
            return Err(Error::InvalidNode(format!(
                "subgraph {index} has {}, the node {}",
                counted(results.len(), "output"),
                self.outputs.len()
            )));
        }
        drop(inputs);
        for (result, id) in results.into_iter().zip(self.outputs) {
            let tensor = &mut self.tensors[id.0];
            if self.written.contains(*id) {
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
        if tensor.placement() != Placement::Dynamic || self.written.contains(id) {
            let text = "its shape was not declared to depend on data, or it is already in use";
            return Err(Error::State(format!("output \"{}\" cannot be resized: {text}", tensor.name)));
        }
        Ok(())
    }

    fn take(&mut self, id: TensorId) -> Result<&'a mut [u8]> {
        let tensor = &self.tensors[id.0];
        if self.written.contains(id) || self.read.contains(id) {
            return Err(Error::State(format!("tensor \"{}\" is already in use", tensor.name)));
        }
        if tensor.is_constant() {
            return Err(Error::State(format!(
                "tensor \"{}\" is constant; kernels can write only non-constant tensors",
                tensor.name
            )));
        }
        self.written.insert(id);
        let (data, len) = tensor.raw();
        // SAFETY: `data` is valid for reads and writes of `len` bytes, because the tensor is not constant. It is
        // returned once (`written`), was not returned for reading (`read`), and overlaps no other memory (see `new`).
        Ok(if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(data, len) } })
    }

    /// Whether output 0 is written over a tensor.
    #[inline]
    fn is_overwritten(&self, id: TensorId) -> bool {
        let Some(output) = self.outputs.first().filter(|&&output| output != id) else { return false };
        let ((to, to_len), (from, from_len)) = (self.tensors[output.0].raw(), self.tensors[id.0].raw());
        to == from && to_len > 0 && from_len > 0
    }

    /// Input `i`, which is not overwritten and was not handed out for writing.
    fn readable(&self, i: usize) -> Result<TensorId> {
        let id = self.input_id(i)?;
        if self.written.contains(id) {
            return Err(self.being_written(id));
        }
        if self.is_overwritten(id) { Err(self.overwritten(i)) } else { Ok(id) }
    }

    #[inline]
    fn input_id(&self, i: usize) -> Result<TensorId> {
        self.inputs.get(i).copied().flatten().ok_or_else(|| missing("input", i))
    }

    #[inline]
    fn output_id(&self, i: usize) -> Result<TensorId> {
        self.outputs.get(i).copied().ok_or_else(|| missing("output", i))
    }

    #[cold]
    fn being_written(&self, id: TensorId) -> Error {
        Error::State(format!("variable \"{}\" is being written", self.tensors[id.0].name))
    }

    #[cold]
    fn overwritten(&self, i: usize) -> Error {
        let name = self.inputs.get(i).copied().flatten().map_or("", |id| &self.tensors[id.0].name);
        Error::State(format!("input {i} (\"{name}\") is overwritten by the output"))
    }

    #[cold]
    fn released(&self, id: TensorId) -> Error {
        Error::State(format!(
            "constant \"{}\" was released, as all kernels declared that they are done with it",
            self.tensors[id.0].name
        ))
    }
}

#[cold]
fn missing(what: &str, i: usize) -> Error {
    Error::InvalidNode(format!("{what} {i} is missing"))
}

fn cast<T: Element>(bytes: &[u8]) -> Result<&[T]> {
    // An empty slice may start at any address.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Subgraph, Tensor};
    use crate::kernel::{AlignedBuffer, Resources, Serial};
    use crate::types::TensorType;

    /// A host without other subgraphs.
    #[derive(Default)]
    struct Alone(Resources);

    impl Host for Alone {
        fn resources(&mut self) -> &mut Resources {
            &mut self.0
        }

        fn subgraph(&self, _: usize) -> Option<&Subgraph> {
            None
        }

        fn prepare_callee(&mut self, _: usize, _: &[Shape]) -> Result<Vec<Option<Shape>>> {
            Err(Error::State("no subgraphs".into()))
        }

        fn reset_callee(&mut self, _: usize) -> Result<()> {
            Err(Error::State("no subgraphs".into()))
        }

        fn call(&mut self, _: usize, _: &[&RuntimeTensor]) -> Result<Vec<&RuntimeTensor>> {
            Err(Error::State("no subgraphs".into()))
        }
    }

    /// A constant, a variable, an output with memory and an output whose shape depends on data.
    fn tensors() -> Vec<RuntimeTensor> {
        let tensor = |name| RuntimeTensor::new(&Tensor::new(name, TensorType::Float32, [2]));
        let mut tensors: Vec<_> = ["constant", "state", "sum", "dynamic"].map(tensor).into();
        tensors[0].set_constant_copy(bytemuck::cast_slice(&[1.0f32, 2.0])).unwrap();
        tensors[1].allocate(Placement::Variable).unwrap();
        tensors[2].allocate(Placement::Dynamic).unwrap();
        tensors[3].allocate(Placement::Dynamic).unwrap();
        tensors
    }

    /// Runs `f` with the constant as inputs 0 and 2, the variable as input 1, and one temporary of 8 bytes.
    fn with_context(tensors: &mut [RuntimeTensor], f: impl FnOnce(&mut InvokeContext<'_>)) {
        let inputs = [Some(TensorId(0)), Some(TensorId(1)), Some(TensorId(0)), None];
        let outputs = [TensorId(2), TensorId(3)];
        let mut scratch = AlignedBuffer::zeroed(8).unwrap();
        let temporaries = [(scratch.bytes_mut().as_mut_ptr(), 8)];
        let mut host = Alone::default();
        // SAFETY: the ids are below four, and no output is an input. Every tensor and the temporary have memory of
        // their own, except that tensor 0 may have that of output 0. The memory outlives the context and starts at a
        // multiple of 64 (`AlignedBuffer`).
        let mut cx =
            unsafe { InvokeContext::new(&inputs, &outputs, tensors, &temporaries, &Serial, &mut host) };
        f(&mut cx);
    }

    #[test]
    fn all_operands_can_be_held_at_once() {
        let mut tensors = tensors();
        for round in 1..=2 {
            with_context(&mut tensors, |cx| {
                let (a, b) = (cx.input::<f32>(0).unwrap(), cx.input::<f32>(2).unwrap());
                let state = cx.variable::<f32>(1).unwrap();
                let scratch = cx.temporary::<f32>(Temporary(0)).unwrap();
                let sum = cx.output::<f32>(0).unwrap();
                cx.resize_output(1, [3]).unwrap();
                let dynamic = cx.output::<f32>(1).unwrap();
                for i in 0..2 {
                    scratch[i] = a[i] + b[i];
                    state[i] += scratch[i];
                    sum[i] = state[i];
                }
                dynamic.fill(sum[1]);
                assert_eq!(a, [1.0, 2.0]);
            });
            let expected = [2.0 * round as f32, 4.0 * round as f32];
            assert_eq!(tensors[2].elements::<f32>().unwrap(), expected);
            assert_eq!(tensors[3].elements::<f32>().unwrap(), [expected[1]; 3]);
        }
    }

    #[test]
    fn memory_is_handed_out_to_be_written_once() {
        with_context(&mut tensors(), |cx| {
            let first = cx.output::<f32>(0).unwrap();
            assert!(cx.output_bytes(0).is_err() && cx.resize_output(0, [9]).is_err());
            first.fill(1.0);
            assert!(cx.temporary::<f32>(Temporary(0)).is_ok() && cx.temporary::<f32>(Temporary(0)).is_err());
            assert!(
                cx.persistent::<f32>(Persistent(0)).is_err() && cx.temporary::<f32>(Temporary(1)).is_err()
            );
        });
    }

    #[test]
    fn a_variable_is_read_or_written() {
        with_context(&mut tensors(), |cx| {
            let state = cx.variable::<f32>(1).unwrap();
            // Nor through the tensor: `state` may write its bytes.
            assert!(cx.input_tensor(1).is_err());
            assert!(cx.input::<f32>(1).is_err() && cx.variable::<f32>(1).is_err());
            state.fill(1.0);
        });
        with_context(&mut tensors(), |cx| {
            let state = cx.input::<f32>(1).unwrap();
            assert!(cx.variable::<f32>(1).is_err());
            assert_eq!(state, [0.0, 0.0]);
        });
        with_context(&mut tensors(), |cx| assert!(cx.variable::<f32>(0).is_err(), "a constant"));
    }

    #[test]
    fn an_input_that_the_output_is_written_over_is_not_handed_out() {
        let mut memory = AlignedBuffer::zeroed(8).unwrap();
        let data = memory.bytes_mut().as_mut_ptr();
        let mut tensors = tensors();
        for i in [0, 2] {
            // SAFETY: the memory outlives the tensors' use below, and has no other references during that time.
            unsafe { tensors[i].set_data(Placement::Arena, data, 8) };
        }
        with_context(&mut tensors, |cx| {
            let output = cx.output::<f32>(0).unwrap();
            assert!(cx.input::<f32>(0).is_err() && cx.input_tensor(2).is_err());
            assert!(cx.input_unless_overwritten::<f32>(0).unwrap().is_none());
            output.fill(3.0);
        });
        assert_eq!(tensors[2].elements::<f32>().unwrap(), [3.0; 2]);
    }
}
