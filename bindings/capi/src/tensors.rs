//! Inputs and outputs.

use std::ffi::{c_char, c_void};

use delegraph::core::error::{absent, counted};
use delegraph::core::kernel::RuntimeTensor;
use delegraph::core::{TensorId, TensorType};
use delegraph_ffi::contain;

use crate::error::{Failure, Out, call, dg_status};
use crate::interpreter::{dg_interpreter, session, with};
use crate::state::State;
use crate::text::{give, utf8};

/// Inputs or outputs.
pub type dg_side = i32;
/// The inputs of the selected subgraph.
pub const DG_INPUT: dg_side = 0;
/// Its outputs.
pub const DG_OUTPUT: dg_side = 1;

/// The maximum number of dimensions in `dg_tensor_info`.
pub const DG_INFO_DIMS: usize = 8;

/// The type of a tensor's elements. Numbers are stored in the byte order of the machine.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum dg_type {
    /// 32-bit floats.
    DG_FLOAT32 = 0,
    /// 16-bit floats, IEEE 754.
    DG_FLOAT16 = 1,
    /// Signed 32-bit integers.
    DG_INT32 = 2,
    /// Unsigned bytes.
    DG_UINT8 = 3,
    /// Signed 64-bit integers.
    DG_INT64 = 4,
    /// Strings of any bytes: see `dg_interpreter_write_strings`.
    DG_STRING = 5,
    /// Bytes that are 0 or 1.
    DG_BOOL = 6,
    /// Signed 16-bit integers.
    DG_INT16 = 7,
    /// Two 32-bit floats.
    DG_COMPLEX64 = 8,
    /// Signed bytes.
    DG_INT8 = 9,
    /// 64-bit floats.
    DG_FLOAT64 = 10,
    /// Two 64-bit floats.
    DG_COMPLEX128 = 11,
    /// Unsigned 64-bit integers.
    DG_UINT64 = 12,
    /// A resource, which has no data.
    DG_RESOURCE = 13,
    /// A variant, which has no data.
    DG_VARIANT = 14,
    /// Unsigned 32-bit integers.
    DG_UINT32 = 15,
    /// Unsigned 16-bit integers.
    DG_UINT16 = 16,
    /// Signed 4-bit integers, two in a byte, the low bits first.
    DG_INT4 = 17,
    /// The upper halves of 32-bit floats.
    DG_BFLOAT16 = 18,
    /// Signed 2-bit integers, four in a byte, the low bits first.
    DG_INT2 = 19,
    /// Unsigned 4-bit integers, stored like `DG_INT4`.
    DG_UINT4 = 20,
    /// 8-bit floats with 4 bits of exponent.
    DG_FLOAT8_E4M3FN = 21,
    /// 8-bit floats with 5 bits of exponent.
    DG_FLOAT8_E5M2 = 22,
}

impl From<TensorType> for dg_type {
    fn from(ty: TensorType) -> Self {
        match ty {
            TensorType::Float32 => dg_type::DG_FLOAT32,
            TensorType::Float16 => dg_type::DG_FLOAT16,
            TensorType::Int32 => dg_type::DG_INT32,
            TensorType::UInt8 => dg_type::DG_UINT8,
            TensorType::Int64 => dg_type::DG_INT64,
            TensorType::String => dg_type::DG_STRING,
            TensorType::Bool => dg_type::DG_BOOL,
            TensorType::Int16 => dg_type::DG_INT16,
            TensorType::Complex64 => dg_type::DG_COMPLEX64,
            TensorType::Int8 => dg_type::DG_INT8,
            TensorType::Float64 => dg_type::DG_FLOAT64,
            TensorType::Complex128 => dg_type::DG_COMPLEX128,
            TensorType::UInt64 => dg_type::DG_UINT64,
            TensorType::Resource => dg_type::DG_RESOURCE,
            TensorType::Variant => dg_type::DG_VARIANT,
            TensorType::UInt32 => dg_type::DG_UINT32,
            TensorType::UInt16 => dg_type::DG_UINT16,
            TensorType::Int4 => dg_type::DG_INT4,
            TensorType::BFloat16 => dg_type::DG_BFLOAT16,
            TensorType::Int2 => dg_type::DG_INT2,
            TensorType::UInt4 => dg_type::DG_UINT4,
            TensorType::Float8E4M3FN => dg_type::DG_FLOAT8_E4M3FN,
            TensorType::Float8E5M2 => dg_type::DG_FLOAT8_E5M2,
            // Not reached: a test checks every type of this build.
            _ => dg_type::DG_VARIANT,
        }
    }
}

/// The description of an input or output.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dg_tensor_info {
    /// The type of the elements.
    pub r#type: dg_type,
    /// The number of dimensions. 0 for a single element.
    pub rank: usize,
    /// The dimensions, in elements, the outermost first; 0 after the last one. `dg_interpreter_shape` returns more than
    /// `DG_INFO_DIMS` dimensions.
    pub dims: [usize; DG_INFO_DIMS],
    /// The size in bytes; for strings, the size of their encoding.
    pub bytes: usize,
    /// The number of scales: 0 for a tensor that is not quantized, 1 for a single scale, otherwise the size of the
    /// dimension `quantized_dim`. It is 0 for other kinds of quantization, which `dg_model_inspect` names.
    pub scale_count: usize,
    /// The dimension along which scales vary.
    pub quantized_dim: usize,
    /// A real value is `scale * (element - zero_point)`, if there is one scale; otherwise 0.
    pub scale: f32,
    /// As `scale`.
    pub zero_point: i32,
}

fn id(state: &State, side: dg_side, index: usize) -> Result<TensorId, Failure> {
    let graph = state.subgraph()?;
    let (what, ids) = match side {
        DG_INPUT => ("input", graph.inputs()),
        DG_OUTPUT => ("output", graph.outputs()),
        _ => return Err(Failure::argument(format!("side {side} is neither DG_INPUT nor DG_OUTPUT"))),
    };
    let count = ids.len();
    ids.get(index).copied().ok_or_else(|| Failure::argument(absent(what, index, "the subgraph", count)))
}

fn tensor(state: &State, side: dg_side, index: usize) -> Result<&RuntimeTensor, Failure> {
    Ok(state.interpreter.tensor(id(state, side, index)?)?)
}

/// Returns the number of inputs or outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_count(
    interpreter: *const dg_interpreter,
    side: dg_side,
    count: *mut usize,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(count, 0) }?;
        let count = session(interpreter)?.with(|state| match side {
            DG_INPUT => Ok(state.interpreter.input_count()),
            DG_OUTPUT => Ok(state.interpreter.output_count()),
            _ => Err(Failure::argument(format!("side {side} is neither DG_INPUT nor DG_OUTPUT"))),
        })?;
        out.set(count);
        Ok(())
    })
}

/// Returns the index of the input or output with this name in the selected signature or, without one, with this tensor
/// name.
///
/// `DG_INVALID_ARGUMENT` if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_find(
    interpreter: *const dg_interpreter,
    side: dg_side,
    name: *const c_char,
    index: *mut usize,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result, and null or a text.
        let (out, name) = unsafe { (Out::new(index, 0)?, utf8(name, "the name")?) };
        let index = session(interpreter)?.with(|state| match side {
            DG_INPUT => Ok(state.interpreter.input_index(name)),
            DG_OUTPUT => Ok(state.interpreter.output_index(name)),
            _ => Err(Failure::argument(format!("side {side} is neither DG_INPUT nor DG_OUTPUT"))),
        })?;
        let side = if side == DG_INPUT { "input" } else { "output" };
        let missing = || Failure::argument(format!("the model has no {side} \"{}\"", name.escape_debug()));
        out.set(index.ok_or_else(missing)?);
        Ok(())
    })
}

/// Returns the name of an input or output: a text to be freed with `dg_text_free`. It is the name in the selected
/// signature or, without one, the name of the tensor, which may be empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_name(
    interpreter: *const dg_interpreter,
    side: dg_side,
    index: usize,
    name: *mut *mut c_char,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(name, std::ptr::null_mut()) }?;
        let name = session(interpreter)?.with(|state| {
            let id = id(state, side, index)?;
            let signature = state.signature.as_deref().and_then(|key| state.model.signature(key));
            let names = signature.map(|s| if side == DG_INPUT { s.inputs() } else { s.outputs() });
            let named = names.and_then(|names| names.iter().find(|(_, of)| *of == id));
            Ok(match named {
                Some((name, _)) => name.clone(),
                None => state.interpreter.tensor(id)?.name.to_string(),
            })
        })?;
        out.set(give(name.as_bytes()));
        Ok(())
    })
}

/// Describes an input or output. Shapes of outputs are those of the last `dg_interpreter_prepare` or run; shapes that
/// depend on data are known after a run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_tensor(
    interpreter: *const dg_interpreter,
    side: dg_side,
    index: usize,
    info: *mut dg_tensor_info,
) -> dg_status {
    call(|| {
        let none = dg_tensor_info {
            r#type: dg_type::DG_FLOAT32,
            rank: 0,
            dims: [0; DG_INFO_DIMS],
            bytes: 0,
            scale_count: 0,
            quantized_dim: 0,
            scale: 0.0,
            zero_point: 0,
        };
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(info, none) }?;
        let info = session(interpreter)?.with(|state| {
            let tensor = tensor(state, side, index)?;
            let (mut info, shape) = (none, tensor.shape.dims());
            (info.r#type, info.rank) = (tensor.ty.into(), shape.len());
            info.dims.iter_mut().zip(shape).for_each(|(to, from)| *to = *from);
            info.bytes = match tensor.ty {
                TensorType::String => tensor.bytes().len(),
                _ => tensor.byte_size()?,
            };
            if let Some(affine) = tensor.quantization.as_ref().and_then(|q| q.affine()) {
                (info.scale_count, info.quantized_dim) = (affine.scales.len(), affine.dimension);
            }
            if let Some(one) = tensor.quantization.as_ref().and_then(|q| q.scale_zero_point()) {
                (info.scale, info.zero_point) = one;
            }
            Ok(info)
        })?;
        out.set(info);
        Ok(())
    })
}

/// Returns the dimensions of an input or output, in elements, the outermost first: `rank`, and up to `capacity` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_shape(
    interpreter: *const dg_interpreter,
    side: dg_side,
    index: usize,
    dims: *mut usize,
    capacity: usize,
    rank: *mut usize,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result, and room for `capacity` dimensions.
        let (out, dims) = unsafe { (Out::new(rank, 0)?, room(dims, capacity)?) };
        let rank = session(interpreter)?.with(|state| {
            let shape = tensor(state, side, index)?.shape.dims();
            dims.iter_mut().zip(shape).for_each(|(to, from)| *to = *from);
            Ok(shape.len())
        })?;
        out.set(rank);
        Ok(())
    })
}

/// Returns the scales and zero points of a tensor that has several, along the dimension `quantized_dim`: their number, and up
/// to `capacity` of each. Either pointer may be null if `capacity` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_scales(
    interpreter: *const dg_interpreter,
    side: dg_side,
    index: usize,
    scales: *mut f32,
    zero_points: *mut i64,
    capacity: usize,
    count: *mut usize,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result, and room for `capacity` numbers.
        let (out, scales, zeros) =
            unsafe { (Out::new(count, 0)?, room(scales, capacity)?, room(zero_points, capacity)?) };
        let count = session(interpreter)?.with(|state| {
            let tensor = tensor(state, side, index)?;
            let Some(affine) = tensor.quantization.as_ref().and_then(|q| q.affine()) else { return Ok(0) };
            scales.iter_mut().zip(&affine.scales).for_each(|(to, from)| *to = *from);
            // One zero point represents all.
            let uniform = affine.zero_points.uniform();
            let each = affine.zero_points.iter().map(|zero| uniform.unwrap_or(zero));
            let each = each.chain(std::iter::repeat(uniform.unwrap_or(0)));
            zeros.iter_mut().zip(each.take(affine.scales.len())).for_each(|(to, from)| *to = from);
            Ok(affine.scales.len())
        })?;
        out.set(count);
        Ok(())
    })
}

/// Returns the application's memory for `count` values.
///
/// # Errors
/// [`dg_status::DG_INVALID_ARGUMENT`], if the count is not 0 and the pointer is null or misaligned.
///
/// # Safety
/// `values` is null, or valid for writes of `count` values as long as the result is used, and nothing else refers to them.
unsafe fn room<'a, T>(values: *mut T, count: usize) -> Result<&'a mut [T], Failure> {
    // SAFETY: guaranteed by the caller; only the checks are of interest.
    unsafe { contain::values(values.cast_const(), count) }.map_err(Failure::argument)?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: guaranteed by the caller; null and misaligned pointers, and sizes above `isize::MAX`, are excluded.
    Ok(unsafe { std::slice::from_raw_parts_mut(values, count) })
}

/// Copies data to an input: `bytes` is its whole size, elements are densely packed, the innermost dimension first. The
/// values persist until they are written again.
///
/// `DG_INVALID_ARGUMENT` if the size differs; errors of `dg_interpreter_prepare`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_write(
    interpreter: *mut dg_interpreter,
    input: usize,
    data: *const c_void,
    bytes: usize,
) -> dg_status {
    with(interpreter, |state| {
        // SAFETY: the interface requires `bytes` bytes at `data`.
        let data = unsafe { contain::values(data.cast::<u8>(), bytes) }.map_err(Failure::argument)?;
        Ok(state.interpreter.set_input_bytes(input, data)?)
    })
}

/// Copies data from an output: `bytes` is its whole size. Waits for the device if a delegate holds the data.
///
/// `DG_INVALID_ARGUMENT` if the size differs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_read(
    interpreter: *mut dg_interpreter,
    output: usize,
    data: *mut c_void,
    bytes: usize,
) -> dg_status {
    with(interpreter, |state| {
        // SAFETY: the interface requires memory for `bytes` bytes at `data`.
        let to = unsafe { room(data.cast::<u8>(), bytes) }?;
        state.interpreter.prepare()?;
        state.interpreter.fetch_output(output)?;
        let what = format!("output {output}");
        copy(&what, state.interpreter.output_tensor(output)?.bytes(), to)
    })
}

fn copy(what: &str, from: &[u8], to: &mut [u8]) -> Result<(), Failure> {
    if from.len() != to.len() {
        let (has, given) = (counted(from.len(), "byte"), to.len());
        return Err(Failure::argument(format!("{what} has {has}, not {given}")));
    }
    to.copy_from_slice(from);
    Ok(())
}

/// Copies data from any tensor of the selected subgraph by its number in the file, after a run. `bytes` is its whole size.
/// Inputs, outputs, constants and variables have data; other tensors have data with `dg_options_set_preserve_tensors`,
/// unless they are inside of a delegate's partition.
///
/// `DG_INVALID_ARGUMENT` if there is no such tensor, or the size differs (0 for a tensor without data).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_read_tensor(
    interpreter: *mut dg_interpreter,
    tensor: usize,
    data: *mut c_void,
    bytes: usize,
) -> dg_status {
    with(interpreter, |state| {
        // SAFETY: the interface requires memory for `bytes` bytes at `data`.
        let to = unsafe { room(data.cast::<u8>(), bytes) }?;
        let graph = state.subgraph()?;
        let id = TensorId(tensor);
        let file = graph.tensors().get(tensor);
        let kept = state.preserves()
            || graph.inputs().contains(&id)
            || graph.outputs().contains(&id)
            || file.is_some_and(|file| file.is_constant() || file.is_variable());
        let output = graph.outputs().iter().position(|output| *output == id);
        if let Some(output) = output {
            state.interpreter.fetch_output(output)?;
        }
        let bytes = state.interpreter.tensor(id)?.bytes();
        copy(&format!("tensor {tensor}"), if kept { bytes } else { &[] }, to)
    })
}

/// Returns the memory of an input, to be filled in place. It is valid until the interpreter is resized, prepared again,
/// or deleted, and must not be accessed during a call or an invocation. String tensors have none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_input_data(
    interpreter: *mut dg_interpreter,
    input: usize,
    data: *mut *mut c_void,
    bytes: *mut usize,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or valid pointers for the results.
        let (data, bytes) = unsafe { (Out::new(data, std::ptr::null_mut())?, Out::new(bytes, 0)?) };
        session(interpreter)?.with(|state| {
            if tensor(state, DG_INPUT, input)?.ty == TensorType::String {
                return Err(Failure::argument("strings are written with dg_interpreter_write_strings"));
            }
            let memory = state.interpreter.input_bytes_mut(input)?;
            bytes.set(memory.len());
            data.set(memory.as_mut_ptr().cast());
            Ok(())
        })
    })
}

/// Returns the memory of an output after a run, to be read in place. Waits for the device if a delegate holds the data.
/// It is valid until the next call on the interpreter, except for functions that only report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_output_data(
    interpreter: *mut dg_interpreter,
    output: usize,
    data: *mut *const c_void,
    bytes: *mut usize,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or valid pointers for the results.
        let (data, bytes) = unsafe { (Out::new(data, std::ptr::null())?, Out::new(bytes, 0)?) };
        session(interpreter)?.with(|state| {
            state.interpreter.prepare()?;
            state.interpreter.fetch_output(output)?;
            let memory = state.interpreter.output_tensor(output)?.bytes();
            bytes.set(memory.len());
            data.set(memory.as_ptr().cast());
            Ok(())
        })
    })
}

/// Sets the strings of an input: `count` strings, one for each element. `lengths` has their lengths in bytes; null if
/// they end with zero bytes.
///
/// `DG_INVALID_ARGUMENT` if the input has another type or number of elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_write_strings(
    interpreter: *mut dg_interpreter,
    input: usize,
    strings: *const *const c_char,
    lengths: *const usize,
    count: usize,
) -> dg_status {
    with(interpreter, |state| {
        if tensor(state, DG_INPUT, input)?.ty != TensorType::String {
            return Err(Failure::argument(format!("input {input} is not of strings")));
        }
        // SAFETY: the interface requires `count` texts at `strings`, and `count` numbers at `lengths` or null.
        let strings = unsafe { contain::values(strings, count) }.map_err(Failure::argument)?;
        let lengths = match lengths.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { contain::values(lengths, count) }.map_err(Failure::argument)?),
        };
        let text = |(i, &text): (usize, &*const c_char)| match lengths.and_then(|lengths| lengths.get(i)) {
            // SAFETY: the interface requires a text of this length.
            Some(&length) => unsafe { contain::values(text.cast::<u8>(), length) }.map_err(Failure::argument),
            // SAFETY: the interface requires null or a text that ends with a zero.
            None => Ok(unsafe { crate::text::present(text, "a string") }?.to_bytes()),
        };
        let strings = strings.iter().enumerate().map(text).collect::<Result<Vec<&[u8]>, Failure>>()?;
        Ok(state.interpreter.set_input_strings(input, &strings)?)
    })
}

/// Returns the string of an element of an input or output, as a text to be freed with `dg_text_free`, and its length in
/// bytes without the terminating zero. The string itself may contain zeros. `length` may be null.
///
/// `DG_INVALID_ARGUMENT` if the tensor has another type, or no such element.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_read_string(
    interpreter: *mut dg_interpreter,
    side: dg_side,
    index: usize,
    element: usize,
    string: *mut *mut c_char,
    length: *mut usize,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or valid pointers for the results.
        let (out, length) = unsafe {
            let length = if length.is_null() { None } else { Some(Out::new(length, 0)?) };
            (Out::new(string, std::ptr::null_mut())?, length)
        };
        session(interpreter)?.with(|state| {
            let tensor = tensor(state, side, index)?;
            if tensor.ty != TensorType::String {
                return Err(Failure::argument(format!("the tensor is of {}, not of strings", tensor.ty)));
            }
            let strings = tensor.strings()?;
            let count = strings.len();
            if element >= count {
                return Err(Failure::argument(absent("string", element, "the tensor", count)));
            }
            let string = strings.get(element);
            if let Some(length) = length {
                length.set(string.len());
            }
            out.set(give(string));
            Ok(())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_the_code_of_the_format() {
        for &ty in TensorType::ALL {
            assert_eq!(dg_type::from(ty) as i32, i32::from(ty as u8), "{ty}");
        }
    }
}
