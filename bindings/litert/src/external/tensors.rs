//! The tensors of a context: the structures that a delegate reads and writes, and the memory behind them.

use std::ffi::{CString, c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

use delegraph_core::kernel::{AlignedBuffer, Budget, Charge};
use delegraph_core::{Quantization, Shape, TensorId, TensorType};
use delegraph_delegate_api::{GraphView, TensorInfo};

use crate::abi::{self, allocation};
use crate::memory::{CList, CMemory};
use crate::raw::{self, Result};

/// The maximum number of tensors that a delegate adds to a graph.
const MAX_ADDED: usize = 1 << 16;

/// All tensors of a graph, with the numbers of the model, followed by those that the delegate added.
pub(super) struct Tensors {
    raw: Vec<abi::Tensor>,
    held: Vec<Held>,
    given: usize,
    /// Bytes of copied constants.
    copied: usize,
}

// SAFETY: pointers in the structures refer to memory of `held`, the model, or the delegate, none of which is bound to a
// thread.
unsafe impl Send for Tensors {}

/// The targets of a structure's pointers.
#[derive(Default)]
struct Held {
    name: CString,
    dims: Option<CList>,
    signature: Option<CList>,
    quantization: Option<HeldQuantization>,
    constant: Option<Constant>,
    /// The charge for the memory of a dynamic tensor, if this library allocated it.
    charge: Option<Charge>,
    /// Memory of the interpreter that the delegate may use until its call returns.
    lent: Option<*mut c_void>,
}

struct HeldQuantization {
    affine: Box<abi::Affine>,
    _scales: Box<[u32]>,
    _zero_points: CList,
}

/// The value of a constant.
enum Constant {
    /// In the bytes of the model.
    InModel(*const u8, usize),
    /// Computed while preparing.
    Copied(AlignedBuffer),
}

impl Constant {
    fn bytes(&self) -> (*mut c_void, usize) {
        match self {
            Constant::InModel(data, len) => (data.cast_mut().cast(), *len),
            Constant::Copied(buffer) => (buffer.bytes().as_ptr().cast_mut().cast(), buffer.len()),
        }
    }
}

impl Tensors {
    /// Describes the tensors of a graph. `read` has, per tensor, whether a node that the delegate may claim reads it:
    /// only these constants have data. Copies at most `limit` bytes of constants.
    pub(super) fn new(view: &GraphView<'_>, read: &[bool], limit: usize) -> Result<Self> {
        let model = view.model().bytes().as_ptr_range();
        let mut tensors = Tensors { raw: Vec::new(), held: Vec::new(), given: 0, copied: 0 };
        for (i, &read) in read.iter().enumerate() {
            let info = view.tensor(TensorId(i));
            let described = tensors.describe(&info, read, &model, limit);
            let (raw, held) = described.map_err(|e| format!("tensor {i} (\"{}\"): {e}", info.name()))?;
            tensors.raw.push(raw);
            tensors.held.push(held);
        }
        tensors.given = read.len();
        Ok(tensors)
    }

    fn describe(
        &mut self,
        info: &TensorInfo<'_>,
        read: bool,
        model: &Range<*const u8>,
        limit: usize,
    ) -> Result<(abi::Tensor, Held)> {
        let graph = info.tensor();
        let file = info.is_variable();
        let mut held = Held { name: c_text(info.name()), ..Held::default() };
        let mut raw = empty_tensor();
        raw.name = held.name.as_ptr();
        raw.ty = raw::type_code(info.ty());
        raw.is_variable = u8::from(file);
        raw.allocation_type = match (info.is_constant(), info.shape(), info.ty()) {
            (true, ..) => allocation::MMAP_RO,
            (_, None, _) | (_, _, TensorType::String) => allocation::DYNAMIC,
            _ if file => allocation::ARENA_RW_PERSISTENT,
            _ => allocation::ARENA_RW,
        };
        raw.bytes = graph.byte_size().unwrap_or_default();
        if let Ok(dims) = c_dims(&graph.shape) {
            let dims = CList::new(&dims)?;
            raw.dims = dims.as_ptr();
            held.dims = Some(dims);
        }
        if let Some(quantization) = info.quantization().and_then(HeldQuantization::new).transpose()? {
            if let Some((scale, zero_point)) = graph.scale_zero_point() {
                raw.params = abi::ScaleZeroPoint { scale, zero_point };
            }
            let params = (&raw const *quantization.affine).cast_mut().cast();
            raw.quantization = abi::Quantization { kind: 1, params };
            held.quantization = Some(quantization);
        }
        if let Some(bytes) = info.constant().filter(|_| read) {
            let constant = self.constant(bytes, model, limit)?;
            (raw.data, raw.bytes) = constant.bytes();
            held.constant = Some(constant);
        }
        Ok((raw, held))
    }

    fn constant(&mut self, bytes: &[u8], model: &Range<*const u8>, limit: usize) -> Result<Constant> {
        let range = bytes.as_ptr_range();
        if model.contains(&range.start) && range.end <= model.end {
            return Ok(Constant::InModel(range.start, bytes.len()));
        }
        self.copied = self.copied.saturating_add(bytes.len());
        if self.copied > limit {
            return Err(format!("constants of {} bytes exceed the limit of {limit}", self.copied));
        }
        let mut buffer = AlignedBuffer::zeroed(bytes.len()).map_err(|e| e.to_string())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(Constant::Copied(buffer))
    }

    /// Adds the sizes in a model's `shape_signature`; -1 for unknown sizes.
    pub(super) fn add_signatures(&mut self, view: &GraphView<'_>) -> Result<()> {
        for (i, (raw, held)) in self.raw.iter_mut().zip(&mut self.held).take(self.given).enumerate() {
            let Some(signature) = view.subgraph().tensor(TensorId(i)).shape_signature() else { continue };
            let size = |size: &Option<usize>| size.map_or(Ok(-1), c_int::try_from);
            let Ok(sizes) = signature.iter().map(size).collect::<Result<Vec<c_int>, _>>() else { continue };
            let list = CList::new(&sizes)?;
            raw.dims_signature = list.as_ptr();
            held.signature = Some(list);
        }
        Ok(())
    }

    /// Frees the copies of constants that `read` does not mark.
    pub(super) fn keep_constants(&mut self, read: &[bool]) {
        let unread = read.iter().enumerate().filter(|(_, read)| !**read).map(|(i, _)| i);
        for i in unread {
            let (Some(raw), Some(held)) = (self.raw.get_mut(i), self.held.get_mut(i)) else { continue };
            if matches!(held.constant, Some(Constant::Copied(_))) {
                held.constant = None;
                raw.data = std::ptr::null_mut();
            }
        }
        let copied = |held: &Held| match &held.constant {
            Some(Constant::Copied(buffer)) => buffer.len(),
            _ => 0,
        };
        self.copied = self.held.iter().map(copied).sum();
    }

    /// Returns the bytes of copied constants.
    pub(super) fn copied_bytes(&self) -> usize {
        self.copied
    }

    /// Returns the number of tensors of the model.
    pub(super) fn given(&self) -> usize {
        self.given
    }

    /// Returns the array for a context, valid until a tensor is added.
    pub(super) fn array(&mut self) -> (*mut abi::Tensor, usize) {
        (self.raw.as_mut_ptr(), self.raw.len())
    }

    /// Returns the structure of tensor `index`, which the delegate may have changed.
    pub(super) fn get(&self, index: usize) -> Result<&abi::Tensor> {
        let count = self.raw.len();
        self.raw.get(index).ok_or_else(|| format!("tensor {index} is out of range; there are {count}"))
    }

    fn get_mut(&mut self, index: usize) -> Result<(&mut abi::Tensor, &mut Held)> {
        let count = self.held.len();
        match (self.raw.get_mut(index), self.held.get_mut(index)) {
            (Some(raw), Some(held)) => Ok((raw, held)),
            _ => Err(format!("tensor {index} is out of range; there are {count}")),
        }
    }

    /// Returns the name of a tensor, for messages.
    pub(super) fn name(&self, index: usize) -> String {
        let name = self.held.get(index).map(|held| held.name.to_string_lossy().into_owned());
        format!("{index} (\"{}\")", name.unwrap_or_default())
    }

    /// Returns the number of the tensor that a delegate's pointer refers to.
    pub(super) fn index_of(&self, tensor: *const abi::Tensor) -> Result<usize> {
        let offset = tensor.addr().wrapping_sub(self.raw.as_ptr().addr());
        let index = offset / size_of::<abi::Tensor>();
        if !offset.is_multiple_of(size_of::<abi::Tensor>()) || index >= self.raw.len() {
            return Err(format!("{tensor:p} is not a tensor of the context"));
        }
        Ok(index)
    }

    /// Adds `count` tensors without type and shape. Returns the number of the first one.
    pub(super) fn add(&mut self, count: c_int) -> Result<usize> {
        let first = self.raw.len();
        let count = usize::try_from(count).map_err(|_| format!("{count} tensors cannot be added"))?;
        if first - self.given + count > MAX_ADDED {
            return Err(format!("{count} more tensors; at most {MAX_ADDED} can be added"));
        }
        let memory = self.raw.try_reserve(count).and_then(|()| self.held.try_reserve(count));
        memory.map_err(|e| format!("{count} more tensors: {e}"))?;
        for _ in 0..count {
            let (mut raw, held) = (empty_tensor(), Held::default());
            raw.name = c"".as_ptr();
            raw.allocation_type = allocation::ARENA_RW;
            self.raw.push(raw);
            self.held.push(held);
        }
        Ok(first)
    }

    /// Sets a tensor's shape to that in the interpreter; with `dynamic`, the tensor has separate memory, which its
    /// kernel sizes.
    pub(super) fn set_shape(
        &mut self,
        index: usize,
        shape: &Shape,
        bytes: usize,
        dynamic: bool,
    ) -> Result<()> {
        let dims = CList::new(&c_dims(shape)?)?;
        let (raw, held) = self.get_mut(index)?;
        held.release_dynamic(raw);
        raw.dims = dims.as_ptr();
        held.dims = Some(dims);
        raw.bytes = bytes;
        if held.constant.is_none() {
            raw.allocation_type = match (dynamic, raw.is_variable) {
                (true, _) => allocation::DYNAMIC,
                (_, 1) => allocation::ARENA_RW_PERSISTENT,
                _ => allocation::ARENA_RW,
            };
        }
        Ok(())
    }

    /// Sets the shape that the delegate requests. A dynamic tensor gets memory, charged to `budget`.
    pub(super) fn resize(&mut self, index: usize, dims: CList, budget: Option<&Arc<Budget>>) -> Result<()> {
        let name = self.name(index);
        let (raw, held) = self.get_mut(index)?;
        let shape = shape_of(dims.items("the shape")?).map_err(|e| format!("tensor {name}: {e}"))?;
        let size = match raw::tensor_type(raw.ty)? {
            ty if ty.bits().is_some() => ty.byte_size(shape.elements()),
            _ => Some(raw.bytes),
        };
        let size = size.filter(|&size| isize::try_from(size).is_ok());
        let size = size.ok_or_else(|| format!("tensor {name} has no size for {shape}"))?;
        raw.dims = dims.as_ptr();
        held.dims = Some(dims);
        if raw.allocation_type == allocation::DYNAMIC && raw.ty != raw::type_code(TensorType::String) {
            held.release_dynamic(raw);
            held.charge = budget.map(|budget| budget.charge(size)).transpose().map_err(|e| e.to_string())?;
            raw.data = CMemory::zeroed(size)?.into_inner().as_ptr().cast();
        }
        raw.bytes = size;
        Ok(())
    }

    /// Returns the tensor's current shape in the delegate's structure.
    pub(super) fn shape(&self, index: usize) -> Result<Shape> {
        let raw = self.get(index)?;
        // SAFETY: null, or a list of this library or of the delegate, which guarantees its validity.
        let dims = unsafe { raw::ints(raw.dims, "its shape") };
        dims.and_then(shape_of).map_err(|e| format!("tensor {}: {e}", self.name(index)))
    }

    /// Lends memory of the interpreter to the delegate, until [`Tensors::take_back`].
    pub(super) fn lend(&mut self, index: usize, data: *mut u8, len: usize) -> Result<()> {
        let (raw, held) = self.get_mut(index)?;
        held.release_dynamic(raw);
        raw.data = data.cast();
        raw.bytes = len;
        held.lent = Some(raw.data);
        Ok(())
    }

    /// Revokes all lent memory, so that a delegate that uses it later fails at a null pointer. Restores the structures
    /// of constants.
    pub(super) fn take_back(&mut self) {
        for (raw, held) in self.raw.iter_mut().zip(&mut self.held) {
            if let Some(constant) = &held.constant {
                (raw.data, raw.bytes) = constant.bytes();
                raw.allocation_type = allocation::MMAP_RO;
            } else if held.lent.take().is_some_and(|lent| lent == raw.data) {
                raw.data = std::ptr::null_mut();
            }
        }
    }

    /// Sets the delegate of a tensor, or removes it.
    pub(super) fn set_delegate(&mut self, index: usize, delegate: *mut abi::Delegate) -> Result<()> {
        let (raw, _) = self.get_mut(index)?;
        raw.delegate = delegate;
        Ok(())
    }

    /// Marks the data of a tensor as current.
    pub(super) fn set_current(&mut self, index: usize) -> Result<()> {
        let (raw, _) = self.get_mut(index)?;
        raw.data_is_stale = 0;
        Ok(())
    }

    /// Removes and returns the handle of a delegate's buffer for a tensor.
    pub(super) fn take_buffer(&mut self, index: usize) -> Option<c_int> {
        let (raw, _) = self.get_mut(index).ok()?;
        let handle = std::mem::replace(&mut raw.buffer_handle, abi::NO_BUFFER);
        (handle != abi::NO_BUFFER).then_some(handle)
    }
}

impl Drop for Tensors {
    fn drop(&mut self) {
        self.take_back();
        self.raw.iter_mut().zip(&mut self.held).for_each(|(raw, held)| held.release_dynamic(raw));
    }
}

impl Held {
    /// Frees the memory of a dynamic tensor. The delegate or this library allocates it with the C library's functions.
    fn release_dynamic(&mut self, raw: &mut abi::Tensor) {
        let lent = self.lent.take().is_some_and(|lent| lent == raw.data);
        if raw.allocation_type != allocation::DYNAMIC || self.constant.is_some() || raw.data.is_null() {
            return;
        }
        if !lent {
            // SAFETY: data of a dynamic tensor belongs to the tensor, and comes from the C library's allocator: that is
            // the rule for delegates, and `resize` follows it. Memory that was lent is excluded.
            unsafe { libc::free(raw.data) };
        }
        raw.data = std::ptr::null_mut();
        self.charge = None;
    }
}

impl HeldQuantization {
    /// Returns the structure for an affine quantization; `None` for others, which the C interface describes by tensors or
    /// not at all.
    fn new(quantization: &Quantization) -> Option<Result<Self>> {
        let Quantization::Affine(affine) = quantization else { return None };
        let made = || {
            let count = u32::try_from(affine.scales.len()).map_err(|e| e.to_string())?;
            let scales = std::iter::once(count).chain(affine.scales.iter().map(|scale| scale.to_bits()));
            let mut scales: Box<[u32]> = scales.collect();
            let zero_point = |zero: i64| c_int::try_from(zero).map_err(|_| format!("a zero point of {zero}"));
            let zero_points = affine.zero_points.iter().map(zero_point).collect::<Result<Vec<_>>>()?;
            let zero_points = CList::new(&zero_points)?;
            let structure = abi::Affine {
                scale: scales.as_mut_ptr().cast(),
                zero_point: zero_points.as_ptr(),
                quantized_dimension: c_int::try_from(affine.dimension).map_err(|e| e.to_string())?,
            };
            Ok(HeldQuantization { affine: Box::new(structure), _scales: scales, _zero_points: zero_points })
        };
        Some(made())
    }
}

/// Returns the sizes of a shape in the form of the C interface.
pub(super) fn c_dims(shape: &Shape) -> Result<Vec<c_int>> {
    let size = |&size: &usize| c_int::try_from(size).map_err(|_| format!("a dimension of {size}"));
    shape.dims().iter().map(size).collect()
}

fn shape_of(dims: &[c_int]) -> Result<Shape> {
    let size = |&size: &c_int| usize::try_from(size).map_err(|_| format!("a dimension of {size}"));
    let shape: Shape = dims.iter().map(size).collect::<Result<_>>()?;
    shape.checked_elements().map(|_| shape).ok_or_else(|| "too many elements".into())
}

/// Returns a text as a C string.
pub(super) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

fn empty_tensor() -> abi::Tensor {
    abi::Tensor {
        ty: 0,
        data: std::ptr::null_mut(),
        dims: std::ptr::null_mut(),
        params: abi::ScaleZeroPoint::default(),
        allocation_type: 0,
        bytes: 0,
        allocation: std::ptr::null(),
        name: std::ptr::null(),
        delegate: std::ptr::null_mut(),
        buffer_handle: abi::NO_BUFFER,
        data_is_stale: 0,
        is_variable: 0,
        quantization: abi::Quantization { kind: 0, params: std::ptr::null_mut() },
        sparsity: std::ptr::null_mut(),
        dims_signature: std::ptr::null(),
    }
}
