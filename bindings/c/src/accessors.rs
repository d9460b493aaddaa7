//! The functions of `c_api.h` on tensors.

use std::ffi::{c_char, c_int, c_void};

use delegraph::core::error::counted;
use delegraph_litert::abi::ScaleZeroPoint;

use crate::arrays::ints;
use crate::contain::guard;
use crate::report::Reporter;
use crate::tensor::{Tensor, allocation, get};
use crate::types::{self, ERROR, OK, Status};

/// Returns the type of the elements; `kTfLiteNoType` for null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorType(tensor: *const Tensor) -> c_int {
    // SAFETY: the interface requires null or a live tensor.
    unsafe { get(tensor) }.map_or(0, |tensor| tensor.ty)
}

/// Returns the number of dimensions; -1 for null and for a tensor without a shape.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorNumDims(tensor: *const Tensor) -> i32 {
    // SAFETY: the interface requires null or a live tensor. Its shape is a valid array, or null.
    let dims =
        unsafe { get(tensor) }.filter(|tensor| !tensor.dims.is_null()).map(|t| unsafe { ints(t.dims) });
    dims.map_or(-1, |dims| crate::arrays::int(dims.len()))
}

/// Returns a dimension; -1 if the tensor does not have it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorDim(tensor: *const Tensor, index: i32) -> i32 {
    // SAFETY: as in `TfLiteTensorNumDims`.
    let dims = unsafe { get(tensor) }.map_or(&[][..], |tensor| unsafe { ints(tensor.dims) });
    usize::try_from(index).ok().and_then(|index| dims.get(index)).copied().unwrap_or(-1)
}

/// Returns the number of bytes; 0 for null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorByteSize(tensor: *const Tensor) -> usize {
    // SAFETY: the interface requires null or a live tensor.
    unsafe { get(tensor) }.map_or(0, |tensor| tensor.bytes)
}

/// Returns the data: null for null, and before the tensor has memory.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorData(tensor: *const Tensor) -> *mut c_void {
    // SAFETY: the interface requires null or a live tensor.
    unsafe { get(tensor) }.map_or(std::ptr::null_mut(), |tensor| tensor.data)
}

/// Returns the name; null for null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorName(tensor: *const Tensor) -> *const c_char {
    // SAFETY: the interface requires null or a live tensor.
    unsafe { get(tensor) }.map_or(std::ptr::null(), |tensor| tensor.name)
}

/// Returns scale and zero point of a tensor that has one of each; zeros for others.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorQuantizationParams(tensor: *const Tensor) -> ScaleZeroPoint {
    // SAFETY: the interface requires null or a live tensor.
    unsafe { get(tensor) }.map(|tensor| tensor.params).unwrap_or_default()
}

/// Copies `size` bytes to a tensor of this size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorCopyFromBuffer(
    tensor: *mut Tensor,
    data: *const c_void,
    size: usize,
) -> Status {
    guard("TfLiteTensorCopyFromBuffer", ERROR, || {
        // SAFETY: the interface requires null or a live tensor.
        let tensor = unsafe { get(tensor) };
        let to = tensor
            .filter(|t| !matches!(t.allocation_type, allocation::MMAP_RO | allocation::PERSISTENT_RO))
            .map(|t| t.data.cast_const());
        let bytes = tensor.map_or(0, |tensor| tensor.bytes);
        // SAFETY: the tensor's memory has its size and is not that of a constant; the interface requires that the
        // buffer has the given size. Buffer and tensor may overlap.
        unsafe { copy("TfLiteTensorCopyFromBuffer", to.map(<*const _>::cast_mut), data, size, bytes) }
    })
}

/// Copies the data of a tensor to a buffer of `size` bytes, which must be the tensor's size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorCopyToBuffer(
    tensor: *const Tensor,
    data: *mut c_void,
    size: usize,
) -> Status {
    guard("TfLiteTensorCopyToBuffer", ERROR, || {
        // SAFETY: the interface requires null or a live tensor.
        let tensor = unsafe { get(tensor) };
        let from = tensor.map_or(std::ptr::null(), |tensor| tensor.data.cast_const());
        let bytes = tensor.map_or(0, |tensor| tensor.bytes);
        let to = tensor.map(|_| data);
        // SAFETY: as in `TfLiteTensorCopyFromBuffer`.
        unsafe { copy("TfLiteTensorCopyToBuffer", to, from, size, bytes) }
    })
}

/// Copies `size` bytes, which must be the tensor's size. Fails if the tensor has no memory.
///
/// # Safety
/// The pointers are null, or valid for `size` bytes if that equals `bytes`.
unsafe fn copy(
    name: &str,
    to: Option<*mut c_void>,
    from: *const c_void,
    size: usize,
    bytes: usize,
) -> Status {
    let problem = match to {
        None => "the tensor is null or constant".to_owned(),
        Some(_) if size != bytes => format!("the buffer has {}, the tensor {bytes}", counted(size, "byte")),
        Some(_) if size == 0 => return OK,
        Some(to) if to.is_null() || from.is_null() => {
            "the buffer is null, or the tensor has no memory yet (AllocateTensors)".to_owned()
        }
        Some(to) => {
            // SAFETY: guaranteed by the caller.
            unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), size) };
            return OK;
        }
    };
    Reporter::default().report(&format!("{name}: {problem}"));
    ERROR
}

/// Returns the name of a type.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteTypeGetName(ty: c_int) -> *const c_char {
    types::name(ty).unwrap_or(c"Unknown type").as_ptr()
}
