//! The functions of `common.h` on structures: tensors owned by code with the classic interface, and their parts.

use std::ffi::{c_int, c_void};

use delegraph_litert::abi::{Affine, Quantization, ScaleZeroPoint, Sparsity, Tensor};

use crate::arrays::{TfLiteFloatArrayFree, TfLiteIntArrayFree};
use crate::contain::guard;
use crate::tensor::allocation;
use crate::types::{ERROR, OK, Status};

/// `kTfLiteMemNone`.
const MEM_NONE: c_int = 0;
/// `kTfLiteVariantObject`.
const VARIANT_OBJECT: c_int = 7;

/// Frees affine quantization in memory of the C library.
///
/// # Safety
/// The parts are null, or have no other owner.
pub(crate) unsafe fn free_quantization(quantization: &mut Quantization) {
    if quantization.kind == 1 && !quantization.params.is_null() {
        let affine = quantization.params.cast::<Affine>();
        // SAFETY: guaranteed by the caller.
        unsafe {
            TfLiteFloatArrayFree((*affine).scale);
            TfLiteIntArrayFree((*affine).zero_point);
        }
    }
    if quantization.kind != 0 {
        // SAFETY: as above.
        unsafe { libc::free(quantization.params) };
    }
    *quantization = Quantization { kind: 0, params: std::ptr::null_mut() };
}

/// Returns the structure at a pointer; `None` for null.
///
/// # Safety
/// The pointer is null, or valid as long as the result is used, and there is no other reference to it.
unsafe fn get<'a, T>(structure: *mut T) -> Option<&'a mut T> {
    // SAFETY: guaranteed by the caller.
    (!structure.is_null() && structure.is_aligned()).then(|| unsafe { &mut *structure })
}

/// Frees the parts of a quantization.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteQuantizationFree(quantization: *mut Quantization) {
    // SAFETY: the interface requires null or a quantization that owns its parts.
    unsafe {
        if let Some(quantization) = get(quantization) {
            free_quantization(quantization);
        }
    }
}

/// Frees a sparsity and its parts.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteSparsityFree(sparsity: *mut Sparsity) {
    // SAFETY: the interface requires null or a sparsity that owns its parts, in memory of the C library.
    unsafe {
        let Some(parts) = get(sparsity) else { return };
        TfLiteIntArrayFree(parts.traversal_order);
        TfLiteIntArrayFree(parts.block_map);
        for index in 0..usize::try_from(parts.dimension_count).unwrap_or(0) {
            if parts.dimensions.is_null() {
                break;
            }
            let dimension = parts.dimensions.add(index);
            if (*dimension).format == 1 {
                TfLiteIntArrayFree((*dimension).segments);
                TfLiteIntArrayFree((*dimension).indices);
            }
        }
        libc::free(parts.dimensions.cast());
        libc::free(sparsity.cast());
    }
}

/// Frees the data of a dynamic tensor.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorDataFree(tensor: *mut Tensor) {
    // SAFETY: the interface requires null or a tensor that owns its parts.
    unsafe {
        let Some(tensor) = get(tensor) else { return };
        if matches!(tensor.allocation_type, allocation::DYNAMIC | allocation::PERSISTENT_RO) {
            libc::free(tensor.data);
        }
        tensor.data = std::ptr::null_mut();
    }
}

/// Frees the parts of a tensor.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorFree(tensor: *mut Tensor) {
    // SAFETY: as above.
    unsafe {
        TfLiteTensorDataFree(tensor);
        let Some(tensor) = get(tensor) else { return };
        TfLiteIntArrayFree(tensor.dims);
        TfLiteIntArrayFree(tensor.dims_signature.cast_mut());
        TfLiteSparsityFree(tensor.sparsity);
        free_quantization(&mut tensor.quantization);
        (tensor.dims, tensor.dims_signature) = (std::ptr::null_mut(), std::ptr::null());
        tensor.sparsity = std::ptr::null_mut();
    }
}

/// Frees the parts of a tensor, and sets its fields to these values.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn TfLiteTensorReset(
    ty: c_int,
    name: *const std::ffi::c_char,
    dims: *mut crate::abi::IntArray,
    params: ScaleZeroPoint,
    buffer: *mut std::ffi::c_char,
    size: usize,
    allocation_type: c_int,
    allocation: *const c_void,
    is_variable: u8,
    tensor: *mut Tensor,
) {
    // SAFETY: the interface requires null or a tensor that owns its parts.
    unsafe {
        TfLiteTensorFree(tensor);
        let Some(tensor) = get(tensor) else { return };
        tensor.ty = ty;
        tensor.name = name;
        tensor.dims = dims;
        tensor.params = params;
        tensor.data = buffer.cast();
        tensor.bytes = size;
        tensor.allocation_type = allocation_type;
        tensor.allocation = allocation;
        tensor.is_variable = is_variable;
        tensor.quantization = Quantization { kind: 0, params: std::ptr::null_mut() };
    }
}

/// Copies type, shape and data to a tensor of the same size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorCopy(from: *const Tensor, to: *mut Tensor) -> Status {
    guard("TfLiteTensorCopy", ERROR, || {
        if from.is_null() || to.is_null() {
            return OK;
        }
        // SAFETY: the interface requires live tensors, whose data have the size in `bytes`.
        unsafe {
            let Some(target) = get(to) else { return ERROR };
            if target.bytes != (*from).bytes {
                return ERROR;
            }
            if std::ptr::eq(from, to) {
                return OK;
            }
            target.ty = (*from).ty;
            TfLiteIntArrayFree(target.dims);
            target.dims = crate::arrays::TfLiteIntArrayCopy((*from).dims);
            if target.bytes > 0 && !target.data.is_null() && !(*from).data.is_null() {
                std::ptr::copy((*from).data.cast::<u8>(), target.data.cast::<u8>(), target.bytes);
            }
            OK
        }
    })
}

/// Resizes a dynamic or persistent read-only tensor to `size` bytes, and keeps its data if requested. Has no effect on
/// other tensors.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorResizeMaybeCopy(
    size: usize,
    tensor: *mut Tensor,
    preserve: u8,
) -> Status {
    // SAFETY: the interface requires null or a tensor that owns its memory.
    unsafe {
        let Some(tensor) = get(tensor) else { return ERROR };
        if !matches!(tensor.allocation_type, allocation::DYNAMIC | allocation::PERSISTENT_RO) {
            return OK;
        }
        if size == 0 {
            libc::free(tensor.data);
            (tensor.data, tensor.bytes) = (std::ptr::null_mut(), 0);
            return OK;
        }
        if tensor.data.is_null() || size > tensor.bytes {
            let data = match preserve != 0 {
                true => libc::realloc(tensor.data, size),
                false => {
                    libc::free(tensor.data);
                    tensor.data = std::ptr::null_mut();
                    libc::malloc(size)
                }
            };
            if data.is_null() {
                return ERROR;
            }
            tensor.data = data;
        }
        tensor.bytes = size;
        OK
    }
}

/// As [`TfLiteTensorResizeMaybeCopy`], keeping the data.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteTensorRealloc(size: usize, tensor: *mut Tensor) -> Status {
    // SAFETY: the conditions are the same.
    unsafe { TfLiteTensorResizeMaybeCopy(size, tensor, 1) }
}

/// Returns the value of `init` that means a failure.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteKernelInitFailed() -> *mut c_void {
    std::ptr::without_provenance_mut(usize::MAX)
}

/// Per allocation type: `TfLiteAllocationStrategy`, `TfLiteRunStability` of the address and of the data, `TfLiteRunStep`
/// from which on the data and the shape are known.
const TRAITS: [[c_int; 5]; 9] = {
    const ACROSS_RUNS: c_int = 3;
    const UNSTABLE: c_int = 1;
    const SINGLE_RUN: c_int = 2;
    const INIT: c_int = 1;
    const PREPARE: c_int = 2;
    const EVAL: c_int = 3;
    let mut traits = [[0; 5]; 9];
    traits[MEM_NONE as usize] = [1, ACROSS_RUNS, ACROSS_RUNS, INIT, INIT];
    traits[allocation::MMAP_RO as usize] = [2, ACROSS_RUNS, ACROSS_RUNS, INIT, INIT];
    traits[allocation::ARENA_RW as usize] = [3, UNSTABLE, SINGLE_RUN, EVAL, PREPARE];
    traits[allocation::ARENA_RW_PERSISTENT as usize] = [3, UNSTABLE, ACROSS_RUNS, EVAL, PREPARE];
    traits[allocation::DYNAMIC as usize] = [4, SINGLE_RUN, SINGLE_RUN, EVAL, EVAL];
    traits[allocation::PERSISTENT_RO as usize] = [4, SINGLE_RUN, SINGLE_RUN, PREPARE, PREPARE];
    traits[VARIANT_OBJECT as usize] = [5, ACROSS_RUNS, SINGLE_RUN, EVAL, EVAL];
    traits
};

macro_rules! traits {
    ($($(#[$doc:meta])* $name:ident, $opaque:ident: $column:literal;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(tensor: *const Tensor) -> c_int {
            // SAFETY: the interface requires null or a live tensor.
            let kind = unsafe { crate::tensor::get(tensor.cast()) }.map_or(-1, |tensor| tensor.allocation_type);
            usize::try_from(kind).ok().and_then(|kind| TRAITS.get(kind)).map_or(0, |row| row[$column])
        }

        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $opaque(tensor: *const Tensor) -> c_int {
            // SAFETY: the conditions are the same.
            unsafe { $name(tensor) }
        }
    )* };
}

traits! {
    /// Returns the allocation strategy of a tensor's data.
    TfLiteTensorGetAllocationStrategy, TfLiteOpaqueTensorGetAllocationStrategy: 0;
    /// Returns the stability of the address of the data.
    TfLiteTensorGetBufferAddressStability, TfLiteOpaqueTensorGetBufferAddressStability: 1;
    /// Returns the stability of the data.
    TfLiteTensorGetDataStability, TfLiteOpaqueTensorGetDataStability: 2;
    /// Returns the step from which on the data are known.
    TfLiteTensorGetDataKnownStep, TfLiteOpaqueTensorGetDataKnownStep: 3;
    /// Returns the step from which on the shape is known.
    TfLiteTensorGetShapeKnownStep, TfLiteOpaqueTensorGetShapeKnownStep: 4;
}
