//! Tensors at run time.

use std::sync::Arc;

use super::{AlignedBuffer, Budget};
use crate::error::{Error, Result, counted};
use crate::graph::Tensor;
use crate::graph::strings::{self, Strings};
use crate::types::Quantization;
use crate::types::Shape;
use crate::types::sparsity::Sparsity;
use crate::types::{Element, TensorType};

/// The place of a tensor's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Not allocated yet.
    None,
    /// Read-only: in the model file, or computed once while preparing.
    Constant,
    /// Released: a constant computed while preparing, which all its readers have packed.
    Released,
    /// In the arena, shared with tensors of other lifetimes.
    Arena,
    /// In memory of its own that keeps its data between invocations.
    Variable,
    /// In memory of its own that is sized while invoking.
    Dynamic,
    /// In a buffer that the application gave, for an input or output.
    Bound,
}

/// A tensor with a shape and, once planned, data.
// What an invocation of a kernel reads comes first, in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RuntimeTensor {
    data: *mut u8,
    len: usize,
    /// Element type.
    pub ty: TensorType,
    placement: Placement,
    /// The name, possibly empty.
    pub name: Arc<str>,
    /// Current shape.
    pub shape: Shape,
    /// Quantization, if any.
    pub quantization: Option<Arc<Quantization>>,
    /// Storage of a sparse constant.
    pub sparsity: Option<Arc<Sparsity>>,
    owned: AlignedBuffer,
}

// SAFETY: `data` points into `owned`, which moves together with the tensor, or at memory that the caller of `set_data`
// keeps valid as long as the tensor refers to it: the arena, the model's bytes, or those of another tensor.
unsafe impl Send for RuntimeTensor {}
// SAFETY: nothing is written through a shared reference to a tensor; contexts that write borrow all tensors
// exclusively.
unsafe impl Sync for RuntimeTensor {}

impl RuntimeTensor {
    /// Creates a tensor as the file describes it, without data yet.
    pub fn new(tensor: &Tensor) -> Self {
        RuntimeTensor {
            name: tensor.shared_name(),
            ty: tensor.ty(),
            shape: tensor.shape().clone(),
            quantization: tensor.shared_quantization(),
            sparsity: tensor.shared_sparsity(),
            placement: Placement::None,
            data: std::ptr::null_mut(),
            len: 0,
            owned: AlignedBuffer::default(),
        }
    }

    /// As [`RuntimeTensor::new`], with memory of its own charged to `budget`.
    ///
    /// # Errors
    /// The errors of [`Budget::charge`].
    pub fn with_budget(tensor: &Tensor, budget: &Arc<Budget>) -> Result<Self> {
        Ok(RuntimeTensor { owned: AlignedBuffer::charged(budget)?, ..Self::new(tensor) })
    }

    /// Returns the place of the data.
    #[inline]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Returns true when its data never changes.
    #[inline]
    pub fn is_constant(&self) -> bool {
        self.placement == Placement::Constant
    }

    /// Returns true for a constant in the model's bytes, and not for one that was computed while preparing.
    pub fn is_stored(&self) -> bool {
        self.is_constant() && self.owned.is_empty()
    }

    /// Scale and zero point of per-tensor quantization.
    pub fn scale_zero_point(&self) -> Option<(f32, i32)> {
        self.quantization.as_ref()?.scale_zero_point()
    }

    /// Returns the bytes that type and shape need; for strings, those of empty ones.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a type without a size, [`Error::OutOfMemory`] if the number overflows.
    pub fn byte_size(&self) -> Result<usize> {
        if self.ty == TensorType::String {
            return strings::empty_size(self.shape.elements());
        }
        if self.ty.bits().is_none() && self.ty != TensorType::Resource {
            let text = format!("tensor \"{}\" is {}, which is not supported yet", self.name, self.ty);
            return Err(Error::Unsupported(text));
        }
        let elements = self.shape.checked_elements();
        elements.and_then(|n| self.ty.byte_size(n)).ok_or_else(|| {
            let what = format!("tensor \"{}\": {} {}", self.name, self.ty, self.shape);
            Error::OutOfMemory(format!("{what} has more bytes than can be addressed"))
        })
    }

    /// Allocates the memory that type and shape need, zeroed where it is new; strings are empty.
    ///
    /// # Errors
    /// The errors of [`RuntimeTensor::byte_size`] and of the allocation.
    pub fn allocate(&mut self, placement: Placement) -> Result<()> {
        let len = self.byte_size()?;
        self.allocate_bytes(placement, len)?;
        if self.ty == TensorType::String {
            strings::write(std::iter::repeat_n(&[][..], self.shape.elements()), self.owned.bytes_mut());
            // The mutable borrow of the buffer invalidated the earlier pointer.
            self.data = self.owned.bytes_mut().as_mut_ptr();
        }
        Ok(())
    }

    /// As [`RuntimeTensor::allocate`], for a value that is computed while preparing: its readers may pack it, and then
    /// it is [released](RuntimeTensor::release). A [lent](RuntimeTensor::lend) buffer that is large enough is used.
    ///
    /// # Errors
    /// As [`RuntimeTensor::allocate`].
    pub fn allocate_short_lived(&mut self) -> Result<()> {
        if self.ty != TensorType::String {
            let len = self.byte_size()?;
            let lent = self.placement == Placement::None && self.owned.capacity() >= len;
            if !lent {
                self.clear_data();
                self.owned = self.owned.emptied();
            }
        }
        self.allocate(Placement::Dynamic)
    }

    /// Allocates `len` bytes of memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocation fails, and those of [`Budget::charge`].
    pub fn allocate_bytes(&mut self, placement: Placement, len: usize) -> Result<()> {
        self.owned.resize(len)?;
        self.data = self.owned.bytes_mut().as_mut_ptr();
        self.len = len;
        self.placement = placement;
        Ok(())
    }

    /// Marks the tensor as constant.
    pub fn freeze(&mut self) {
        self.placement = Placement::Constant;
    }

    /// Releases a constant's memory, if it has memory of its own, and returns the buffer.
    pub fn release(&mut self) -> Option<AlignedBuffer> {
        if self.placement != Placement::Constant || self.owned.is_empty() {
            return None;
        }
        let empty = self.owned.emptied();
        let released = std::mem::replace(&mut self.owned, empty);
        self.clear_data();
        self.placement = Placement::Released;
        Some(released)
    }

    /// Lends memory to a tensor without data, for [`RuntimeTensor::allocate_short_lived`]. The memory is not zeroed:
    /// the value computed into it must be written entirely.
    pub fn lend(&mut self, buffer: AlignedBuffer) {
        if self.placement == Placement::None {
            self.owned = buffer;
        }
    }

    /// Places the tensor in `buffer`, which must have the size that type and shape need. Returns the previous buffer,
    /// if it was also bound.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the sizes differ; those of [`RuntimeTensor::byte_size`].
    pub fn bind(&mut self, mut buffer: AlignedBuffer) -> Result<Option<AlignedBuffer>> {
        let needed = self.byte_size()?;
        if buffer.len() != needed {
            let (name, has) = (&self.name, counted(buffer.len(), "byte"));
            return Err(Error::InvalidInput(format!(
                "a buffer of {has} for tensor \"{name}\", which has {needed}"
            )));
        }
        buffer.exchange_budget(&mut self.owned);
        let before = std::mem::replace(&mut self.owned, buffer);
        let bound = self.placement == Placement::Bound;
        self.data = self.owned.bytes_mut().as_mut_ptr();
        self.len = needed;
        self.placement = Placement::Bound;
        Ok(bound.then_some(before))
    }

    /// Copies `bytes` into memory of its own and makes the tensor constant.
    ///
    /// # Errors
    /// As [`RuntimeTensor::allocate_bytes`].
    pub fn set_constant_copy(&mut self, bytes: &[u8]) -> Result<()> {
        self.allocate_bytes(Placement::Constant, bytes.len())?;
        self.owned.bytes_mut().copy_from_slice(bytes);
        // The mutable borrow of the buffer invalidated the earlier pointer.
        self.data = self.owned.bytes_mut().as_mut_ptr();
        Ok(())
    }

    /// Copies a constant of at most `bytes` bytes from memory of another owner into memory of its own.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocation fails.
    pub fn copy_constant_up_to(&mut self, bytes: usize) -> Result<()> {
        if self.placement != Placement::Constant || !self.owned.is_empty() || !(1..=bytes).contains(&self.len)
        {
            return Ok(());
        }
        let mut owned = self.owned.emptied();
        owned.resize(self.len)?;
        owned.bytes_mut().copy_from_slice(self.bytes());
        self.owned = owned;
        self.data = self.owned.bytes_mut().as_mut_ptr();
        Ok(())
    }

    /// Points the tensor at data of another owner.
    ///
    /// # Safety
    /// `data` must be valid for reads of `len` bytes (and for writes, unless `placement` is `Constant`) until it is
    /// replaced or the tensor is dropped, and no other reference may write to it while a context hands it out.
    pub unsafe fn set_data(&mut self, placement: Placement, data: *mut u8, len: usize) {
        self.owned = self.owned.emptied();
        self.data = data;
        self.len = len;
        self.placement = placement;
    }

    /// Drops its data.
    pub fn clear_data(&mut self) {
        self.owned = self.owned.emptied();
        self.data = std::ptr::null_mut();
        self.len = 0;
        self.placement = Placement::None;
    }

    /// Returns the bytes; empty before the tensor has data.
    pub fn bytes(&self) -> &[u8] {
        if self.data.is_null() || self.len == 0 {
            return &[];
        }
        // SAFETY: `data` is valid for `len` bytes (`allocate_bytes`, `set_data`), and `&self` keeps writers out.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }

    /// Returns the bytes, mutable.
    ///
    /// # Errors
    /// [`Error::State`] for a constant.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        if self.placement == Placement::Constant {
            return Err(Error::State(format!("tensor \"{}\" is constant", self.name)));
        }
        if self.data.is_null() || self.len == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as in `bytes`; the tensor is not constant, so its memory may be written, and `&mut self` makes
        // this the only reference.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.data, self.len) })
    }

    /// Returns the elements, if they are of type `T`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it has another type, [`Error::State`] if its bytes are not whole, aligned elements.
    pub fn elements<T: Element>(&self) -> Result<&[T]> {
        self.check_type::<T>()?;
        match self.bytes() {
            // An empty range of a file may start at any address.
            [] => Ok(&[]),
            bytes => bytemuck::try_cast_slice(bytes).map_err(|e| self.cast_error(e)),
        }
    }

    /// Returns the elements, mutable.
    ///
    /// # Errors
    /// As [`RuntimeTensor::elements`], and [`Error::State`] for a constant.
    pub fn elements_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        self.check_type::<T>()?;
        let name = self.name.clone();
        let bytes = self.bytes_mut()?;
        if bytes.is_empty() {
            return Ok(&mut []);
        }
        bytemuck::try_cast_slice_mut(bytes).map_err(|e| Error::State(format!("tensor \"{name}\": {e}")))
    }

    /// Returns the strings, one per element of the shape.
    ///
    /// # Errors
    /// As [`RuntimeTensor::check_strings`].
    pub fn strings(&self) -> Result<Strings<'_>> {
        self.check_strings(self.bytes())
    }

    /// Returns the strings in `bytes`, which must be valid contents of this tensor.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the type is not STRING, [`Error::InvalidInput`] if the bytes are malformed or their
    /// number of strings does not fit the shape.
    pub fn check_strings<'b>(&self, bytes: &'b [u8]) -> Result<Strings<'b>> {
        if self.ty != TensorType::String {
            let text = format!("tensor \"{}\" is {}, this kernel takes STRING", self.name, self.ty);
            return Err(Error::Unsupported(text));
        }
        let error = |text: String| Error::InvalidInput(format!("tensor \"{}\": {text}", self.name));
        let strings = Strings::parse(bytes).map_err(|e| error(e.to_string()))?;
        if Some(strings.len()) != self.shape.checked_elements() {
            return Err(error(format!("{} for a shape of {}", counted(strings.len(), "string"), self.shape)));
        }
        Ok(strings)
    }

    #[inline]
    pub(super) fn raw(&self) -> (*mut u8, usize) {
        (self.data, self.len)
    }

    pub(super) fn check_type<T: Element>(&self) -> Result<()> {
        self.check_type_is(T::TYPE)
    }

    /// Checks that elements are of type `wanted`.
    #[inline]
    pub(super) fn check_type_is(&self, wanted: TensorType) -> Result<()> {
        // A resource tensor is a list of int32 handles.
        let same = self.ty == wanted || (self.ty == TensorType::Resource && wanted == TensorType::Int32);
        if same { Ok(()) } else { Err(self.type_error(wanted)) }
    }

    #[cold]
    fn type_error(&self, wanted: TensorType) -> Error {
        Error::Unsupported(format!("tensor \"{}\" is {}, this kernel takes {wanted}", self.name, self.ty))
    }

    fn cast_error(&self, error: bytemuck::PodCastError) -> Error {
        Error::State(format!("tensor \"{}\": {error}", self.name))
    }
}
