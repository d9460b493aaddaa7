//! Strings of tensors: their number, and for each its offset and bytes, in one buffer.

use std::ffi::{c_char, c_int, c_void};

use delegraph::core::TensorType;
use delegraph::core::error::{Error, Result};
use delegraph::core::kernel::Strings;

use crate::arrays::int;
use crate::contain::{guard, values};
use crate::report::Reporter;
use crate::tensor::{Tensor, allocation, get};
use crate::types::{self, ERROR, OK, Status};

/// Returns the strings of a tensor.
///
/// # Errors
/// [`Error::InvalidInput`] if it is null or has no valid strings; [`Error::State`] if it has no data yet.
///
/// # Safety
/// The tensor is null, or lives as long as the result is used, and its data have the size that it names.
unsafe fn strings<'a>(tensor: *const Tensor) -> Result<Strings<'a>> {
    // SAFETY: guaranteed by the caller.
    let tensor = unsafe { get(tensor) }.filter(|tensor| is_strings(tensor.ty));
    let tensor = tensor.ok_or_else(|| Error::InvalidInput("the tensor is null, or has no strings".into()))?;
    if tensor.data.is_null() {
        return Err(Error::State("the tensor has no data yet".into()));
    }
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts(tensor.data.cast::<u8>(), tensor.bytes) };
    Strings::parse(bytes).map_err(|e| Error::InvalidInput(e.to_string()))
}

fn is_strings(ty: c_int) -> bool {
    types::element(ty) == Some(TensorType::String)
}

fn report<T>(function: &str, result: Result<T>) -> Option<T> {
    result.map_err(|error| Reporter::default().report(&format!("{function}: {}", error.chain()))).ok()
}

/// Returns the number of strings; -1 on failure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorGetStringCount(tensor: *const Tensor) -> c_int {
    let function = "TfLiteOpaqueTensorGetStringCount";
    guard(function, -1, || {
        // SAFETY: the interface requires null or a live tensor.
        let strings = report(function, unsafe { strings(tensor) });
        strings.map_or(-1, |strings| int(strings.len()))
    })
}

/// Stores the address and the length of a string, which belong to the tensor.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorGetString(
    tensor: *const Tensor,
    index: c_int,
    text: *mut *const c_char,
    len: *mut c_int,
) -> Status {
    let function = "TfLiteOpaqueTensorGetString";
    guard(function, ERROR, || {
        // SAFETY: the interface requires null or a live tensor.
        let Some(strings) = report(function, unsafe { strings(tensor) }) else { return ERROR };
        let found = usize::try_from(index).ok().filter(|index| *index < strings.len());
        let Some(index) = found.filter(|_| !text.is_null() && !len.is_null()) else {
            let count = strings.len();
            Reporter::default()
                .report(&format!("{function}: there is no string {index} of {count}, or no place for it"));
            return ERROR;
        };
        let found = strings.get(index);
        // SAFETY: the interface requires places for the results; null is excluded.
        unsafe {
            text.write_unaligned(found.as_ptr().cast());
            len.write_unaligned(int(found.len()));
        }
        OK
    })
}

/// Replaces the strings of a tensor. Its shape becomes `[count]`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorWriteStrings(
    tensor: *mut Tensor,
    texts: *const *const c_char,
    count: c_int,
    lens: *const c_int,
) -> Status {
    let function = "TfLiteOpaqueTensorWriteStrings";
    guard(function, ERROR, || {
        // SAFETY: the interface requires `count` texts and `count` lengths; each text has its length in bytes.
        let list = unsafe {
            values(texts, count).and_then(|texts| Ok((texts, values(lens, count)?))).and_then(
                |(texts, lens)| {
                    let pairs = texts.iter().zip(lens);
                    pairs
                        .map(|(text, len)| values(text.cast::<u8>(), *len))
                        .collect::<Result<Vec<&[u8]>, _>>()
                },
            )
        };
        // SAFETY: the interface requires null or a tensor of a context.
        let result = list.map_err(Error::InvalidInput).and_then(|list| unsafe { write(tensor, &list) });
        report(function, result).map_or(ERROR, |()| OK)
    })
}

/// Writes one string to a tensor.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueTensorWriteString(
    tensor: *mut Tensor,
    text: *const c_char,
    len: c_int,
) -> Status {
    // SAFETY: the conditions are the same.
    unsafe { TfLiteOpaqueTensorWriteStrings(tensor, &raw const text, 1, &raw const len) }
}

/// # Safety
/// The tensor is null or live.
unsafe fn write(tensor: *mut Tensor, list: &[&[u8]]) -> Result<()> {
    if tensor.is_null() || !tensor.is_aligned() {
        return Err(Error::InvalidInput("the tensor is null or misaligned".into()));
    }
    // SAFETY: guaranteed by the caller.
    let tensor = unsafe { &mut (*tensor).common };
    if !is_strings(tensor.ty) || tensor.allocation_type != allocation::DYNAMIC {
        return Err(Error::InvalidInput("the tensor does not take strings".into()));
    }
    let encoded = Strings::encode(list.iter().copied())?;
    // SAFETY: a dynamic tensor's data are null or memory of the C library, which is freed with it: outputs of a running
    // kernel have no other data. The old data may contain the strings, and are therefore freed after `encode`.
    unsafe {
        let data = libc::malloc(encoded.len().max(1));
        if data.is_null() {
            return Err(Error::OutOfMemory(format!("no memory for strings of {} bytes", encoded.len())));
        }
        std::ptr::copy_nonoverlapping(encoded.as_ptr(), data.cast::<u8>(), encoded.len());
        let dims = tensor.dims;
        if !dims.is_null() && (*dims).size == 1 {
            (&raw mut (*dims).data).cast::<c_int>().write(int(list.len()));
        } else {
            // The context takes ownership of the new array after the call of the kernel (`Tensors::reconcile`).
            tensor.dims = crate::arrays::new(&[int(list.len())]);
        }
        libc::free(std::mem::replace(&mut tensor.data, data.cast::<c_void>()));
        tensor.bytes = encoded.len();
    }
    Ok(())
}
