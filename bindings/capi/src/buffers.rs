//! Tensors in memory of a device.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use delegraph::core::error::counted;
use delegraph::delegate_api::BufferHandle;
use delegraph_ffi::contain;
use delegraph_ffi::handle::Table;

use crate::error::{Failure, Out, call, dg_status};
use crate::interpreter::{dg_interpreter, session, with};

/// Memory of a delegate's device for one tensor. An output of one model can be an input of another on the same device
/// without a copy through the CPU's memory. Any thread may use it.
pub struct dg_buffer {
    _private: (),
}

/// The object behind a `dg_buffer*`.
struct Buffer {
    handle: BufferHandle,
    /// One copy at a time.
    copying: Mutex<()>,
}

static BUFFERS: Table<Buffer> = Table::new(12);

fn buffer(buffer: *const dg_buffer) -> Result<Arc<Buffer>, Failure> {
    BUFFERS.get(buffer).ok_or_else(|| Failure::handle("buffer"))
}

fn inserted(handle: BufferHandle) -> Result<*mut dg_buffer, Failure> {
    let buffer: *mut dg_buffer = BUFFERS.insert(Buffer { handle, copying: Mutex::default() });
    if buffer.is_null() {
        Err(Failure::new(dg_status::DG_LIMIT, "there are too many buffers"))
    } else {
        Ok(buffer)
    }
}

/// Creates a buffer of `bytes` bytes, a multiple of 4, on the device of the interpreter's first `wgpu` delegate, for a
/// tensor with 32-bit elements. Other interpreters with a delegate of the same options can also use it. It may outlive
/// the interpreter.
///
/// `DG_STATE` without such a delegate, `DG_INVALID_ARGUMENT` for a size of 0, another size, or one above the device's
/// limit, `DG_DELEGATE` if the device has no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_buffer_create(
    interpreter: *const dg_interpreter,
    bytes: u64,
    buffer: *mut *mut dg_buffer,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(buffer, std::ptr::null_mut()) }?;
        let handle = session(interpreter)?.with(|state| Ok(state.create_buffer(bytes)?))?;
        out.set(inserted(handle)?);
        Ok(())
    })
}

/// Deletes a buffer; null is allowed. Interpreters that use it keep its memory.
///
/// `DG_INVALID_HANDLE` if it was deleted before.
#[unsafe(no_mangle)]
pub extern "C" fn dg_buffer_delete(buffer: *mut dg_buffer) -> dg_status {
    call(|| match BUFFERS.remove(buffer) {
        None if !buffer.is_null() => Err(Failure::handle("buffer")),
        _ => Ok(()),
    })
}

/// Returns the size of a buffer's tensor in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_buffer_size(buffer: *const dg_buffer, bytes: *mut usize) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(bytes, 0) }?;
        out.set(self::buffer(buffer)?.handle.byte_size());
        Ok(())
    })
}

fn check_size(buffer: &Buffer, bytes: usize) -> Result<(), Failure> {
    match buffer.handle.byte_size() {
        size if size == bytes => Ok(()),
        size => {
            let size = counted(size, "byte");
            Err(Failure::argument(format!("the buffer has {size}, not {bytes}")))
        }
    }
}

/// Copies data to a buffer: `bytes` is its whole size.
///
/// `DG_INVALID_ARGUMENT` for another size, and for an output of a partition, which is read-only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_buffer_write(
    buffer: *mut dg_buffer,
    data: *const c_void,
    bytes: usize,
) -> dg_status {
    call(|| {
        let buffer = self::buffer(buffer)?;
        check_size(&buffer, bytes)?;
        // SAFETY: the interface requires `bytes` bytes at `data`.
        let data = unsafe { contain::values(data.cast::<u8>(), bytes) }.map_err(Failure::argument)?;
        let _copying = buffer.copying.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(buffer.handle.write(data)?)
    })
}

/// Copies data from a buffer: `bytes` is its whole size. Waits for the device.
///
/// `DG_INVALID_ARGUMENT` for another size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_buffer_read(
    buffer: *const dg_buffer,
    data: *mut c_void,
    bytes: usize,
) -> dg_status {
    call(|| {
        let buffer = self::buffer(buffer)?;
        check_size(&buffer, bytes)?;
        // SAFETY: the interface requires memory for `bytes` bytes at `data`; only the checks are of interest.
        unsafe { contain::values(data.cast::<u8>().cast_const(), bytes) }.map_err(Failure::argument)?;
        let mut copy = vec![0; bytes];
        let copying = buffer.copying.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.handle.read(&mut copy)?;
        drop(copying);
        // SAFETY: the interface requires memory for `bytes` bytes at `data`, which is not null; the copy has as many.
        unsafe { std::ptr::copy_nonoverlapping(copy.as_ptr(), data.cast::<u8>(), bytes) };
        Ok(())
    })
}

fn optional(buffer: *const dg_buffer) -> Result<Option<BufferHandle>, Failure> {
    if buffer.is_null() { Ok(None) } else { Ok(Some(self::buffer(buffer)?.handle.clone())) }
}

/// Reads an input from a buffer in every following run, without a copy if the delegate that reads it can use the
/// buffer. Null, or a resize to another size, restores the CPU's memory.
///
/// `DG_INVALID_ARGUMENT` if there is no such input, or the buffer does not have its size.
#[unsafe(no_mangle)]
pub extern "C" fn dg_interpreter_set_input_buffer(
    interpreter: *mut dg_interpreter,
    input: usize,
    buffer: *const dg_buffer,
) -> dg_status {
    with(interpreter, |state| Ok(state.interpreter.set_input_buffer(input, optional(buffer)?)?))
}

/// Copies an output to a buffer at the end of every following run: on the device if a delegate kept it there. A null
/// buffer, or a resize to another size, ends the copying.
///
/// `DG_INVALID_ARGUMENT` if there is no such output, or the buffer does not have its size.
#[unsafe(no_mangle)]
pub extern "C" fn dg_interpreter_set_output_buffer(
    interpreter: *mut dg_interpreter,
    output: usize,
    buffer: *const dg_buffer,
) -> dg_status {
    with(interpreter, |state| Ok(state.interpreter.set_output_buffer(output, optional(buffer)?)?))
}

/// Returns the buffer in which a delegate kept an output, with `dg_options_set_keep_outputs`; null if the output is in
/// the CPU's memory. Its data are valid until the next run. Deleted with `dg_buffer_delete`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_output_buffer(
    interpreter: *const dg_interpreter,
    output: usize,
    buffer: *mut *mut dg_buffer,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(buffer, std::ptr::null_mut()) }?;
        let found = session(interpreter)?.with(|state| {
            state.interpreter.output_tensor(output)?;
            Ok(state.interpreter.output_buffer(output).cloned())
        })?;
        if let Some(handle) = found {
            out.set(inserted(handle)?);
        }
        Ok(())
    })
}
