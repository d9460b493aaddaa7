//! Tensors for the application: a `TfLiteTensor` that mirrors a tensor of an interpreter, or of a node.
//!
//! The structure begins with the published layout, since programs that are compiled with TensorFlow Lite's own header
//! read its fields. It keeps its address during the lifetime of its owner, which updates it whenever shapes or memory
//! change.

use std::ffi::{CString, c_int, c_void};

use delegraph::core::graph::Tensor as FileTensor;
use delegraph::core::kernel::{Placement, RuntimeTensor};
use delegraph::core::{Quantization, Shape};
use delegraph_litert::abi;

use crate::arrays::{Ints, int};
use crate::types;

/// `TfLiteAllocationType`.
pub(crate) mod allocation {
    use std::ffi::c_int;
    pub(crate) const MMAP_RO: c_int = 1;
    pub(crate) const ARENA_RW: c_int = 2;
    pub(crate) const ARENA_RW_PERSISTENT: c_int = 3;
    pub(crate) const DYNAMIC: c_int = 4;
    pub(crate) const PERSISTENT_RO: c_int = 5;
    pub(crate) const CUSTOM: c_int = 6;
    pub(crate) const NON_CPU: c_int = 8;
}

/// The interpreter and the subgraph that own a tensor, and its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The handle of the interpreter; 0 for a tensor of a node in preparation or execution.
    pub(crate) interpreter: usize,
    pub(crate) subgraph: usize,
    pub(crate) index: usize,
}

/// The target of a `TfLiteTensor*` of this library.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) common: abi::Tensor,
    pub(crate) place: Place,
    dims: Ints,
    _name: CString,
    _signature: Option<Ints>,
    _quantization: Option<Box<AffineQuantization>>,
}

/// `TfLiteAffineQuantization` with its arrays.
#[derive(Debug)]
struct AffineQuantization {
    affine: abi::Affine,
    _scales: Ints,
    _zero_points: Ints,
}

impl Tensor {
    /// Returns a tensor as the file describes it, without data.
    pub(crate) fn new(file: &FileTensor, place: Place) -> Self {
        let (name, dims) = (name(file.name()), Ints::of(file.shape().dims().iter().copied()));
        let signature = file.shape_signature().filter(|signature| !signature.is_empty());
        let signature = signature
            .map(|signature| Ints::new(&signature.iter().map(|dim| dim.map_or(-1, int)).collect::<Vec<_>>()));
        let quantization = affine(file.quantization());
        let (scale, zero_point) =
            file.quantization().and_then(Quantization::scale_zero_point).unwrap_or_default();
        let kind = match (file.is_variable(), file.is_constant()) {
            (true, _) => allocation::ARENA_RW_PERSISTENT,
            (false, true) => allocation::MMAP_RO,
            (false, false) => allocation::ARENA_RW,
        };
        let common = abi::Tensor {
            ty: types::number(file.ty()),
            data: std::ptr::null_mut(),
            dims: dims.pointer(),
            params: abi::ScaleZeroPoint { scale, zero_point },
            allocation_type: kind,
            bytes: RuntimeTensor::new(file).byte_size().unwrap_or(0),
            allocation: std::ptr::null(),
            name: name.as_ptr(),
            delegate: std::ptr::null_mut(),
            buffer_handle: -1,
            data_is_stale: 0,
            is_variable: u8::from(file.is_variable()),
            quantization: abi::Quantization {
                kind: c_int::from(quantization.is_some()),
                params: quantization
                    .as_ref()
                    .map_or(std::ptr::null_mut(), |q| (&raw const q.affine).cast_mut().cast()),
            },
            sparsity: std::ptr::null_mut(),
            dims_signature: signature.as_ref().map_or(std::ptr::null(), |s| s.pointer().cast_const()),
        };
        Tensor { common, place, dims, _name: name, _signature: signature, _quantization: quantization }
    }

    /// Changes the shape of the tensor. The address of the old shape is invalid afterwards.
    pub(crate) fn set_shape(&mut self, shape: &Shape) {
        if self.has_shape(shape) {
            return;
        }
        self.dims = Ints::of(shape.dims().iter().copied());
        self.common.dims = self.dims.pointer();
    }

    fn has_shape(&self, shape: &Shape) -> bool {
        let dims = self.dims.values();
        dims.len() == shape.rank() && dims.iter().zip(shape.dims()).all(|(&a, &b)| a == int(b))
    }

    /// Sets the address and size of the data.
    pub(crate) fn set_data(&mut self, kind: c_int, data: *mut u8, bytes: usize) {
        self.common.allocation_type = kind;
        self.common.data = data.cast::<c_void>();
        self.common.bytes = bytes;
    }
}

/// Returns the `TfLiteAllocationType` of a placement.
pub(crate) fn allocation_of(placement: Placement) -> c_int {
    match placement {
        Placement::Constant | Placement::Released => allocation::MMAP_RO,
        Placement::Variable => allocation::ARENA_RW_PERSISTENT,
        Placement::Dynamic => allocation::DYNAMIC,
        Placement::None | Placement::Arena | Placement::Bound => allocation::ARENA_RW,
    }
}

/// Returns a name of the model as a text of C, which ends at the first zero byte.
pub(crate) fn name(name: &str) -> CString {
    let bytes = name.split('\0').next().unwrap_or_default();
    CString::new(bytes).unwrap_or_default()
}

fn affine(quantization: Option<&Quantization>) -> Option<Box<AffineQuantization>> {
    let affine = quantization?.affine()?;
    // The array of floats has the layout of one of integers, with the bits of floats.
    let scales =
        Ints::new(&affine.scales.iter().map(|scale| scale.to_bits().cast_signed()).collect::<Vec<_>>());
    let zero = |zero: i64| c_int::try_from(zero).unwrap_or(if zero < 0 { c_int::MIN } else { c_int::MAX });
    let zero_points = Ints::new(&affine.zero_points.iter().map(zero).collect::<Vec<_>>());
    let parts = abi::Affine {
        scale: scales.pointer().cast(),
        zero_point: zero_points.pointer(),
        quantized_dimension: int(affine.dimension),
    };
    Some(Box::new(AffineQuantization { affine: parts, _scales: scales, _zero_points: zero_points }))
}

/// A tensor at a fixed address that the application also holds.
#[derive(Debug)]
pub(crate) struct Mirror(*mut Tensor);

// SAFETY: the tensor is owned; its pointers refer to memory of its owner, which moves between threads together with it.
unsafe impl Send for Mirror {}

impl Mirror {
    /// Moves a tensor to a fixed address.
    pub(crate) fn new(tensor: Tensor) -> Self {
        Mirror(Box::into_raw(Box::new(tensor)))
    }

    /// Returns the address for the application.
    pub(crate) fn pointer(&self) -> *mut Tensor {
        self.0
    }

    /// Returns the tensor, to be changed. The reference must not be held while code of the application runs.
    pub(crate) fn tensor(&mut self) -> &mut Tensor {
        // SAFETY: the address is that of a box which lives as long as `self`. The application may read and write the
        // structure between calls of this library, on the same thread, and not during them.
        unsafe { &mut *self.0 }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // SAFETY: the address is that of a box, which is dropped once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Returns the tensor at a pointer of the application; `None` for null.
///
/// # Safety
/// The pointer is null, or of a tensor that lives and that no other thread changes.
pub(crate) unsafe fn get<'a>(tensor: *const Tensor) -> Option<&'a abi::Tensor> {
    // SAFETY: guaranteed by the caller. Only the published fields are read, so that it may also be a structure of the
    // application.
    (!tensor.is_null() && tensor.is_aligned()).then(|| unsafe { &(*tensor).common })
}
