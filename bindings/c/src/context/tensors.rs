//! The tensors of a context: the array of `TfLiteTensor` that code with the classic interface reads, and the data of
//! its elements.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use delegraph::core::error::{Error, Result};
use delegraph::core::graph::Subgraph;
use delegraph::core::kernel::{AlignedBuffer, Budget, Charge, RuntimeTensor};
use delegraph::core::{Shape, TensorType};
use delegraph_litert::abi;

use crate::arrays::Ints;
use crate::tensor::{Place, Tensor, allocation, allocation_of};
use crate::types;

/// The number of places reserved for tensors that kernels add. Tensors move only when these are used up.
const RESERVED: usize = 256;
/// The maximum number of tensors that kernels may add.
const MAX_ADDED: usize = 1 << 20;

/// The tensors of a context. Those of the model come first, those that kernels added follow.
#[derive(Default)]
pub(crate) struct Tensors {
    raw: Vec<abi::Tensor>,
    slots: Vec<Slot>,
    in_model: usize,
}

/// The data of an element of the array.
#[derive(Default)]
struct Slot {
    /// Name, first shape and quantization, for a tensor of the model.
    described: Option<Box<Tensor>>,
    /// The shape, if it was changed.
    dims: Option<Ints>,
    memory: Memory,
}

/// The owner of a tensor's data.
#[derive(Default)]
enum Memory {
    /// The runtime, the model, or none.
    #[default]
    Elsewhere,
    /// The tensor: the C library's `malloc` allocated the data in the array.
    Dynamic,
    /// The slot.
    Own(AlignedBuffer, #[allow(dead_code)] Charge),
}

/// A tensor that a kernel adds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Added {
    pub(crate) ty: c_int,
    pub(crate) allocation_type: c_int,
    pub(crate) data: *mut c_void,
    pub(crate) params: abi::ScaleZeroPoint,
    pub(crate) quantization: abi::Quantization,
}

impl Tensors {
    /// Returns the tensors of a subgraph as the file describes them, without data.
    pub(crate) fn of(subgraph: &Subgraph) -> Self {
        let in_model = subgraph.tensors().len();
        let mut tensors = Tensors { raw: Vec::new(), slots: Vec::new(), in_model };
        tensors.raw.reserve(in_model + RESERVED);
        for (index, file) in subgraph.tensors().iter().enumerate() {
            let tensor = Box::new(Tensor::new(file, Place { interpreter: 0, subgraph: 0, index }));
            let mut raw = duplicate(&tensor.common);
            if file.ty() == TensorType::String && !file.is_constant() {
                raw.allocation_type = allocation::DYNAMIC;
            }
            tensors.raw.push(raw);
            tensors.slots.push(Slot { described: Some(tensor), ..Slot::default() });
        }
        tensors
    }

    /// Returns the number of tensors.
    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }

    /// Returns the number of tensors that kernels did not add.
    pub(crate) fn in_model(&self) -> usize {
        self.in_model
    }

    /// Returns the array for the application.
    pub(crate) fn pointer(&mut self) -> *mut abi::Tensor {
        self.raw.as_mut_ptr()
    }

    /// Returns a tensor.
    pub(crate) fn get(&self, index: usize) -> Option<&abi::Tensor> {
        self.raw.get(index)
    }

    /// Returns the index of the tensor at an address of the array.
    pub(crate) fn index_of(&self, tensor: *const abi::Tensor) -> Option<usize> {
        let distance = tensor.addr().checked_sub(self.raw.as_ptr().addr())?;
        let index = distance / size_of::<abi::Tensor>();
        (distance.is_multiple_of(size_of::<abi::Tensor>()) && index < self.raw.len()).then_some(index)
    }

    /// Returns the dimensions of a tensor.
    pub(crate) fn dims(&self, index: usize) -> &[c_int] {
        let dims = self.raw.get(index).map_or(std::ptr::null_mut(), |raw| raw.dims);
        // SAFETY: null, or an array that the slot owns or that the application set instead.
        unsafe { crate::arrays::ints(dims) }
    }

    /// Sets the shape, size and storage of a tensor to those in the runtime, but not its data.
    pub(crate) fn update(&mut self, index: usize, current: &RuntimeTensor) {
        self.set_shape(index, &current.shape);
        let Some(raw) = self.raw.get_mut(index) else { return };
        raw.bytes = current.byte_size().unwrap_or(0);
        if raw.ty != types::number(TensorType::String) {
            raw.allocation_type = allocation_of(current.placement());
        }
    }

    /// Changes the shape of a tensor.
    pub(crate) fn set_shape(&mut self, index: usize, shape: &Shape) {
        let dims = self.dims(index);
        let same = dims.len() == shape.rank()
            && dims.iter().zip(shape.dims()).all(|(&a, &b)| a == crate::arrays::int(b));
        let null = self.raw.get(index).is_some_and(|raw| raw.dims.is_null());
        if !same || null {
            self.set_dims(index, Ints::of(shape.dims().iter().copied()));
        }
    }

    /// Replaces the array of dimensions of a tensor.
    pub(crate) fn set_dims(&mut self, index: usize, dims: Ints) {
        if let (Some(raw), Some(slot)) = (self.raw.get_mut(index), self.slots.get_mut(index)) {
            raw.dims = dims.pointer();
            slot.dims = Some(dims);
        }
    }

    /// Points a tensor at memory of the runtime or the model, for as long as that is valid.
    pub(crate) fn set_data(&mut self, index: usize, data: *mut u8, bytes: usize) {
        if let (Some(raw), Some(slot)) = (self.raw.get_mut(index), self.slots.get_mut(index)) {
            if let Memory::Dynamic = slot.memory {
                // SAFETY: memory of the C library that the slot owns.
                unsafe { libc::free(raw.data) };
            }
            slot.memory = Memory::Elsewhere;
            raw.data = data.cast();
            raw.bytes = bytes;
        }
    }

    /// Copies data that nodes of the model compute from constants to memory that the tensor owns.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; those of the budget.
    pub(crate) fn set_copy(&mut self, index: usize, data: &[u8], budget: &Arc<Budget>) -> Result<()> {
        self.allocate(index, data.len(), budget)?;
        if let Some(Slot { memory: Memory::Own(buffer, _), .. }) = self.slots.get_mut(index) {
            buffer.bytes_mut().copy_from_slice(data);
        }
        if let Some(raw) = self.raw.get_mut(index) {
            raw.allocation_type = allocation::PERSISTENT_RO;
        }
        Ok(())
    }

    /// Sets the storage of a tensor's data.
    pub(crate) fn set_allocation_type(&mut self, index: usize, allocation_type: c_int) {
        if let Some(raw) = self.raw.get_mut(index) {
            raw.allocation_type = allocation_type;
        }
    }

    /// Allocates zeroed memory that the tensor owns.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; those of the budget.
    pub(crate) fn allocate(&mut self, index: usize, bytes: usize, budget: &Arc<Budget>) -> Result<()> {
        self.set_data(index, std::ptr::null_mut(), bytes);
        let charge = budget.charge(bytes)?;
        let mut buffer = AlignedBuffer::zeroed(bytes)?;
        if let (Some(raw), Some(slot)) = (self.raw.get_mut(index), self.slots.get_mut(index)) {
            raw.data = buffer.bytes_mut().as_mut_ptr().cast();
            slot.memory = Memory::Own(buffer, charge);
            // The address must be taken from the buffer at its final place.
            if let Memory::Own(buffer, _) = &mut slot.memory {
                raw.data = buffer.bytes_mut().as_mut_ptr().cast();
            }
        }
        Ok(())
    }

    /// Gives a dynamic tensor `bytes` bytes, which the C library can free. Previous data are kept as far as they fit.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; those of the budget.
    pub(crate) fn reallocate(&mut self, index: usize, bytes: usize, budget: &Arc<Budget>) -> Result<()> {
        budget.check_size(bytes)?;
        let (Some(raw), Some(slot)) = (self.raw.get_mut(index), self.slots.get_mut(index)) else {
            return Ok(());
        };
        let before = match slot.memory {
            Memory::Dynamic => raw.data,
            _ => std::ptr::null_mut(),
        };
        // SAFETY: null, or memory of the C library that the slot owns.
        let data = unsafe { libc::realloc(before, bytes.max(1)) };
        if data.is_null() {
            return Err(Error::OutOfMemory(format!("no memory for a tensor of {bytes} bytes")));
        }
        slot.memory = Memory::Dynamic;
        (raw.data, raw.bytes, raw.allocation_type) = (data, bytes, allocation::DYNAMIC);
        Ok(())
    }

    /// Takes ownership of the shape, and of the memory of a dynamic tensor, that code of the application set.
    pub(crate) fn reconcile(&mut self, index: usize) {
        let (Some(raw), Some(slot)) = (self.raw.get(index), self.slots.get_mut(index)) else { return };
        let described = slot.described.as_ref().map_or(std::ptr::null_mut(), |tensor| tensor.common.dims);
        let owned = slot.dims.as_ref().map_or(described, Ints::pointer);
        if raw.dims != owned {
            // SAFETY: the interface requires null or an array of `TfLiteIntArrayCreate`, which the application passes
            // to the tensor.
            slot.dims = Some(unsafe { Ints::adopt(raw.dims) });
        }
        if raw.allocation_type == allocation::DYNAMIC {
            slot.memory = if raw.data.is_null() { Memory::Elsewhere } else { Memory::Dynamic };
        }
    }

    /// Returns the bytes of a tensor of this shape; `None` for strings and for other types without a size.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a negative dimension, and for too many elements.
    pub(crate) fn byte_size(&self, index: usize, dims: &[c_int]) -> Result<Option<usize>> {
        let ty = self.raw.get(index).map_or(0, |raw| raw.ty);
        let too_large = || Error::InvalidInput(format!("a tensor of the shape {dims:?} has no size"));
        let elements = dims.iter().try_fold(1usize, |product, &dim| {
            usize::try_from(dim).ok().and_then(|dim| product.checked_mul(dim))
        });
        let elements = elements.ok_or_else(too_large)?;
        let Some(bits) = types::element(ty).and_then(TensorType::bits) else { return Ok(None) };
        elements.checked_mul(bits).map(|bits| Some(bits.div_ceil(8))).ok_or_else(too_large)
    }

    /// Adds a tensor. Returns its index.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if kernels added too many tensors, or the array cannot grow.
    pub(crate) fn add(&mut self, added: Added) -> Result<usize> {
        let count = self.raw.len() - self.in_model;
        if count >= MAX_ADDED {
            let message = format!("kernels added {count} tensors; at most {MAX_ADDED} are supported");
            return Err(Error::OutOfMemory(message));
        }
        if self.raw.try_reserve(1).is_err() {
            return Err(Error::OutOfMemory(format!("no memory for a tensor after {count} added ones")));
        }
        let dynamic = added.allocation_type == allocation::DYNAMIC && !added.data.is_null();
        let memory = if dynamic { Memory::Dynamic } else { Memory::Elsewhere };
        self.raw.push(abi::Tensor {
            ty: added.ty,
            data: added.data,
            params: added.params,
            allocation_type: added.allocation_type,
            quantization: added.quantization,
            ..blank()
        });
        self.slots.push(Slot { memory, ..Slot::default() });
        Ok(self.raw.len() - 1)
    }
}

impl Drop for Tensors {
    fn drop(&mut self) {
        for (index, (raw, slot)) in self.raw.iter_mut().zip(&self.slots).enumerate() {
            if let Memory::Dynamic = slot.memory {
                // SAFETY: memory of the C library that the slot owns.
                unsafe { libc::free(raw.data) };
            }
            if index >= self.in_model {
                // SAFETY: the application passed the quantization of its added tensor to the runtime.
                unsafe { crate::structs::free_quantization(&mut raw.quantization) };
            }
        }
    }
}

/// Returns a tensor without type, shape and data.
fn blank() -> abi::Tensor {
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
        buffer_handle: -1,
        data_is_stale: 0,
        is_variable: 0,
        quantization: abi::Quantization { kind: 0, params: std::ptr::null_mut() },
        sparsity: std::ptr::null_mut(),
        dims_signature: std::ptr::null(),
    }
}

/// Returns a structure with the same parts, without data.
fn duplicate(tensor: &abi::Tensor) -> abi::Tensor {
    abi::Tensor {
        ty: tensor.ty,
        data: std::ptr::null_mut(),
        dims: tensor.dims,
        params: tensor.params,
        allocation_type: tensor.allocation_type,
        bytes: tensor.bytes,
        name: tensor.name,
        is_variable: tensor.is_variable,
        quantization: tensor.quantization,
        dims_signature: tensor.dims_signature,
        ..blank()
    }
}
