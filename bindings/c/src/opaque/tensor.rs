//! Tensors of a graph.

use std::ffi::{c_char, c_int, c_void};

use delegraph_litert::abi::{Quantization, ScaleZeroPoint};

use crate::accessors;
use crate::arrays::{int, ints};
use crate::report::Reporter;
use crate::tensor::{Tensor, allocation, get};
use crate::types::{ERROR, OK, Status};

macro_rules! same {
    ($($(#[$doc:meta])* $name:ident, $as:ident => $result:ty;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(tensor: *const Tensor) -> $result {
            // SAFETY: the conditions are the same.
            unsafe { accessors::$as(tensor) }
        }
    )* };
}

same! {
    /// Returns the type of the elements.
    TfLiteOpaqueTensorType, TfLiteTensorType => c_int;
    /// Returns the number of dimensions; -1 without a shape.
    TfLiteOpaqueTensorNumDims, TfLiteTensorNumDims => i32;
    /// Returns the number of bytes.
    TfLiteOpaqueTensorByteSize, TfLiteTensorByteSize => usize;
    /// Returns the data; null if the tensor has none.
    TfLiteOpaqueTensorData, TfLiteTensorData => *mut c_void;
    /// Returns the name.
    TfLiteOpaqueTensorName, TfLiteTensorName => *const c_char;
    /// Returns scale and zero point.
    TfLiteOpaqueTensorGetQuantizationParams, TfLiteTensorQuantizationParams => ScaleZeroPoint;
}

/// Returns a dimension; -1 if the tensor does not have it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorDim(tensor: *const Tensor, index: i32) -> i32 {
    // SAFETY: the conditions are the same.
    unsafe { accessors::TfLiteTensorDim(tensor, index) }
}

/// Copies `size` bytes to a tensor of this size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorCopyFromBuffer(
    tensor: *mut Tensor,
    data: *const c_void,
    size: usize,
) -> Status {
    // SAFETY: the conditions are the same.
    unsafe { accessors::TfLiteTensorCopyFromBuffer(tensor, data, size) }
}

/// Copies the data of a tensor to a buffer of the same size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorCopyToBuffer(
    tensor: *const Tensor,
    data: *mut c_void,
    size: usize,
) -> Status {
    // SAFETY: the conditions are the same.
    unsafe { accessors::TfLiteTensorCopyToBuffer(tensor, data, size) }
}

/// Stores the number of dimensions of the signature of the shape; -1 without one.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorGetNumDimsSignature(
    tensor: *const Tensor,
    count: *mut i32,
) -> Status {
    // SAFETY: the interface requires null or a live tensor, and null or a valid pointer for the result.
    unsafe {
        let Some(tensor) = get(tensor).filter(|_| !count.is_null()) else {
            return missing("TfLiteOpaqueTensorGetNumDimsSignature");
        };
        let signature = tensor.dims_signature;
        count.write_unaligned(if signature.is_null() { -1 } else { int(ints(signature).len()) });
        OK
    }
}

/// Stores a dimension of the signature; -1 for one that may be resized.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorGetDimSignature(
    tensor: *const Tensor,
    index: i32,
    dim: *mut i32,
) -> Status {
    // SAFETY: as above.
    unsafe {
        let found = get(tensor).filter(|_| !dim.is_null()).and_then(|tensor| {
            usize::try_from(index).ok().and_then(|index| ints(tensor.dims_signature).get(index).copied())
        });
        match found {
            Some(found) => {
                dim.write_unaligned(found);
                OK
            }
            None => missing("TfLiteOpaqueTensorGetDimSignature"),
        }
    }
}

fn missing(function: &str) -> Status {
    Reporter::default()
        .report(&format!("{function}: the tensor, the dimension or the place for it is missing"));
    ERROR
}

/// Returns 1 for a variable, 0 for other tensors.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorIsVariable(tensor: *const Tensor) -> c_int {
    // SAFETY: the interface requires null or a live tensor.
    unsafe { get(tensor) }.map_or(0, |tensor| c_int::from(tensor.is_variable != 0))
}

/// Returns the storage of the data.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorGetAllocationType(tensor: *const Tensor) -> c_int {
    // SAFETY: as above.
    unsafe { get(tensor) }.map_or(0, |tensor| tensor.allocation_type)
}

/// Returns the quantization.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorGetQuantization(tensor: *const Tensor) -> Quantization {
    let none = Quantization { kind: 0, params: std::ptr::null_mut() };
    // SAFETY: as above.
    unsafe { get(tensor) }.map_or(none, |tensor| tensor.quantization)
}

/// Declares that a kernel sets the size of a tensor while it runs.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorSetAllocationTypeToDynamic(tensor: *mut Tensor) {
    // SAFETY: the interface requires null or a tensor of a context.
    unsafe { set_type("TfLiteOpaqueTensorSetAllocationTypeToDynamic", tensor, allocation::DYNAMIC) };
}

/// Records that the data of a tensor are not in the CPU's memory.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorSetNonCpuAllocation(tensor: *mut Tensor) {
    // SAFETY: as above.
    unsafe { set_type("TfLiteOpaqueTensorSetNonCpuAllocation", tensor, allocation::NON_CPU) };
}

/// # Safety
/// The tensor is null or live.
unsafe fn set_type(function: &str, tensor: *mut Tensor, kind: c_int) {
    if tensor.is_null() || !tensor.is_aligned() {
        Reporter::default().report(&format!("{function}: the tensor is null or misaligned"));
        return;
    }
    // SAFETY: guaranteed by the caller. The pointer is one of an array of tensors, which is written through it.
    let tensor = unsafe { &mut (*tensor).common };
    if matches!(tensor.allocation_type, allocation::MMAP_RO | allocation::PERSISTENT_RO) {
        return Reporter::default().report(&format!("{function}: the tensor is constant"));
    }
    if tensor.allocation_type != kind {
        tensor.allocation_type = kind;
        tensor.data = std::ptr::null_mut();
    }
}
