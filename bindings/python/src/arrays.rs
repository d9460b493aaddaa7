//! Tensors as NumPy arrays, and arrays as tensors.

use std::ffi::{c_int, c_long};

use delegraph::TensorType;
use numpy::npyffi::{
    NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_CARRAY_RO, NPY_ARRAY_NOTSWAPPED, NPY_ARRAY_WRITEABLE, NPY_TYPES,
    NpyTypes, PY_ARRAY_API, PyArray_Check, PyArrayObject, get_type_object, npy_intp,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

/// The relation between the elements of a tensor and those of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Storage {
    /// The bytes are equal.
    Same,
    /// Packed integers of this number of bits, signed or not; one byte each in an array.
    Packed { bits: usize, signed: bool },
    /// The upper half of a float32; a float32 in an array.
    BFloat16,
}

/// Returns NumPy's type for elements of type `ty`, as in LiteRT: packed integers are bytes, bfloat16 is float32. `None`
/// for strings and for types that arrays cannot hold.
fn numpy_type(ty: TensorType) -> Option<(NPY_TYPES, Storage)> {
    let long = if size_of::<c_long>() == 8 {
        (NPY_TYPES::NPY_LONG, NPY_TYPES::NPY_ULONG)
    } else {
        (NPY_TYPES::NPY_LONGLONG, NPY_TYPES::NPY_ULONGLONG)
    };
    let same = match ty {
        TensorType::Float32 => NPY_TYPES::NPY_FLOAT,
        TensorType::Float16 => NPY_TYPES::NPY_HALF,
        TensorType::Float64 => NPY_TYPES::NPY_DOUBLE,
        TensorType::Int8 => NPY_TYPES::NPY_BYTE,
        TensorType::UInt8 => NPY_TYPES::NPY_UBYTE,
        TensorType::Int16 => NPY_TYPES::NPY_SHORT,
        TensorType::UInt16 => NPY_TYPES::NPY_USHORT,
        TensorType::Int32 => NPY_TYPES::NPY_INT,
        TensorType::UInt32 => NPY_TYPES::NPY_UINT,
        TensorType::Int64 => long.0,
        TensorType::UInt64 => long.1,
        TensorType::Bool => NPY_TYPES::NPY_BOOL,
        TensorType::Complex64 => NPY_TYPES::NPY_CFLOAT,
        TensorType::Complex128 => NPY_TYPES::NPY_CDOUBLE,
        TensorType::Int4 => return Some((NPY_TYPES::NPY_BYTE, Storage::Packed { bits: 4, signed: true })),
        TensorType::Int2 => return Some((NPY_TYPES::NPY_BYTE, Storage::Packed { bits: 2, signed: true })),
        TensorType::UInt4 => return Some((NPY_TYPES::NPY_UBYTE, Storage::Packed { bits: 4, signed: false })),
        TensorType::BFloat16 => return Some((NPY_TYPES::NPY_FLOAT, Storage::BFloat16)),
        _ => return None,
    };
    Some((same, Storage::Same))
}

/// Returns NumPy's scalar type for elements of type `ty`, the `dtype` of LiteRT's details.
pub(crate) fn dtype(py: Python<'_>, ty: TensorType) -> PyResult<Bound<'_, PyAny>> {
    let name = match (ty, numpy_type(ty)) {
        (TensorType::String, _) => "bytes_",
        (_, None) => "object_",
        (_, Some((number, _))) => match number {
            NPY_TYPES::NPY_FLOAT => "float32",
            NPY_TYPES::NPY_HALF => "float16",
            NPY_TYPES::NPY_DOUBLE => "float64",
            NPY_TYPES::NPY_BYTE => "int8",
            NPY_TYPES::NPY_UBYTE => "uint8",
            NPY_TYPES::NPY_SHORT => "int16",
            NPY_TYPES::NPY_USHORT => "uint16",
            NPY_TYPES::NPY_INT => "int32",
            NPY_TYPES::NPY_UINT => "uint32",
            NPY_TYPES::NPY_LONG | NPY_TYPES::NPY_LONGLONG => "int64",
            NPY_TYPES::NPY_ULONG | NPY_TYPES::NPY_ULONGLONG => "uint64",
            NPY_TYPES::NPY_BOOL => "bool_",
            NPY_TYPES::NPY_CFLOAT => "complex64",
            _ => "complex128",
        },
    };
    py.import("numpy")?.getattr(name)
}

/// Returns a new array with a tensor's elements. Strings are an array of objects, each of type `bytes`.
///
/// # Errors
/// `ValueError` if the tensor has no data of its shape; `TypeError` for a type that arrays cannot hold.
pub(crate) fn copy_of<'py>(
    py: Python<'py>,
    ty: TensorType,
    dims: &[usize],
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    if ty == TensorType::String {
        return strings_of(py, dims, bytes);
    }
    let (number, storage) = numpy_type(ty).ok_or_else(|| no_array(ty))?;
    let elements = dims.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim));
    if elements.and_then(|n| ty.byte_size(n)) != Some(bytes.len()) {
        return Err(no_data());
    }
    if storage == Storage::Same {
        // SAFETY: the elements of the array have the size of those of the tensor, and the number of bytes is compared
        // above.
        return unsafe { array_of_bytes(py, number, dims, bytes.as_ptr(), bytes.len()) };
    }
    let wide = widened(storage, bytes, elements.unwrap_or_default());
    // SAFETY: `widened` returns the bytes of that many elements of type `number`.
    unsafe { array_of_bytes(py, number, dims, wide.as_ptr(), wide.len()) }
}

/// Returns an array of int32.
pub(crate) fn of_ints<'py>(py: Python<'py>, values: &[i32]) -> PyResult<Bound<'py, PyAny>> {
    let (data, len) = (values.as_ptr().cast(), size_of_val(values));
    // SAFETY: an int32 of NumPy is an `i32`.
    unsafe { array_of_bytes(py, NPY_TYPES::NPY_INT, &[values.len()], data, len) }
}

/// Returns an array of float32.
pub(crate) fn of_floats<'py>(py: Python<'py>, values: &[f32]) -> PyResult<Bound<'py, PyAny>> {
    let (data, len) = (values.as_ptr().cast(), size_of_val(values));
    // SAFETY: a float32 of NumPy is an `f32`.
    unsafe { array_of_bytes(py, NPY_TYPES::NPY_FLOAT, &[values.len()], data, len) }
}

/// Returns a new array of `len` bytes, a copy of those at `data`.
///
/// # Safety
/// `len` is the size of `dims` elements of the type `number`, and `data` is valid for reads of `len` bytes.
unsafe fn array_of_bytes<'py>(
    py: Python<'py>,
    number: NPY_TYPES,
    dims: &[usize],
    data: *const u8,
    len: usize,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: without data, NumPy allocates the array.
    let array = unsafe { new_array(py, number, dims, std::ptr::null_mut(), 0) }?;
    let target = fields(&array).data;
    // SAFETY: a new array is contiguous and has the size of its elements, `len` by the condition of this function.
    unsafe { std::ptr::copy_nonoverlapping(data, target.cast(), len) };
    Ok(array)
}

/// Creates an array over the data at `data`, or with its own uninitialized memory.
///
/// # Safety
/// `data` is null, or valid for reads (and writes, with the flag) of the array's elements as long as its base lives.
unsafe fn new_array<'py>(
    py: Python<'py>,
    number: NPY_TYPES,
    dims: &[usize],
    data: *mut u8,
    flags: c_int,
) -> PyResult<Bound<'py, PyAny>> {
    let mut sizes = [0 as npy_intp; 64];
    let rank = dims.len();
    for (size, &dim) in sizes.iter_mut().zip(dims) {
        *size = npy_intp::try_from(dim).map_err(|_| PyValueError::new_err("a dimension is too large"))?;
    }
    let rank = c_int::try_from(rank).ok().filter(|_| rank <= sizes.len());
    let rank =
        rank.ok_or_else(|| PyValueError::new_err("the tensor has more dimensions than an array can have"))?;
    // SAFETY: `sizes` has at least `rank` dimensions; the descriptor is a new reference, which the call takes; strides
    // are those of a contiguous array. The caller guarantees the condition on `data`. The result is a new reference or
    // null, with an exception set.
    unsafe {
        let ty = get_type_object(py, NpyTypes::PyArray_Type);
        let descr = PY_ARRAY_API.PyArray_DescrFromType(py, number as c_int);
        let strides = std::ptr::null_mut();
        let obj = std::ptr::null_mut();
        let sizes = sizes.as_mut_ptr();
        let array =
            PY_ARRAY_API.PyArray_NewFromDescr(py, ty, descr, rank, sizes, strides, data.cast(), flags, obj);
        Bound::from_owned_ptr_or_err(py, array)
    }
}

/// Returns an array on the data of a tensor.
///
/// # Safety
/// `data` is valid for `len` bytes as long as `base` lives, and is written to by others only while no Python code runs
/// that uses the array.
pub(crate) unsafe fn view<'py>(
    py: Python<'py>,
    ty: TensorType,
    dims: &[usize],
    data: (*mut u8, usize),
    writable: bool,
    base: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (number, storage) = numpy_type(ty).ok_or_else(|| no_array(ty))?;
    let elements = dims.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim));
    if storage != Storage::Same {
        let text = format!(
            "{ty} elements are packed, and cannot be viewed as an array; use get_tensor and set_tensor"
        );
        return Err(PyValueError::new_err(text));
    }
    if elements.and_then(|n| ty.byte_size(n)) != Some(data.1) {
        return Err(no_data());
    }
    if data.1 == 0 {
        // NumPy would allocate memory for an array on null.
        return copy_of(py, ty, dims, &[]);
    }
    let flags = NPY_ARRAY_CARRAY_RO | if writable { NPY_ARRAY_WRITEABLE } else { 0 };
    // SAFETY: guaranteed by the caller; the size is compared above.
    let array = unsafe { new_array(py, number, dims, data.0, flags) }?;
    // SAFETY: both are valid objects; the call takes the reference to `base`, also when it fails.
    let set = unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base.into_ptr()) };
    if set < 0 { Err(PyErr::fetch(py)) } else { Ok(array) }
}

/// An array that Python code passed.
pub(crate) struct Array<'py>(Bound<'py, PyAny>);

impl<'py> Array<'py> {
    /// Returns `value` as an array: itself, or its conversion by NumPy.
    pub(crate) fn of(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = value.py();
        // SAFETY: `value` is a valid object.
        if unsafe { PyArray_Check(py, value.as_ptr()) } != 0 {
            return Ok(Array(value.clone()));
        }
        from_any(value, None).map(Array)
    }

    /// Returns the dimensions.
    pub(crate) fn dims(&self) -> Vec<usize> {
        self.shape().iter().map(|&dim| usize::try_from(dim).unwrap_or_default()).collect()
    }

    fn shape(&self) -> &[npy_intp] {
        let fields = fields(&self.0);
        match usize::try_from(fields.nd) {
            // SAFETY: NumPy's array has `nd` dimensions, which live as long as it does.
            Ok(rank @ 1..) => unsafe { std::slice::from_raw_parts(fields.dimensions, rank) },
            _ => &[],
        }
    }

    fn number(&self) -> c_int {
        // SAFETY: an array has a descriptor as long as it lives.
        unsafe { (*fields(&self.0).descr).fields.type_num }
    }

    /// Returns LiteRT's name for the type of the elements.
    pub(crate) fn type_name(&self) -> &'static str {
        let found = TensorType::ALL.iter().find(|ty| {
            numpy_type(**ty)
                .is_some_and(|(number, storage)| storage == Storage::Same && self.is_type(number as c_int))
        });
        match self.number() {
            n if n == NPY_TYPES::NPY_STRING as c_int
                || n == NPY_TYPES::NPY_UNICODE as c_int
                || n == NPY_TYPES::NPY_OBJECT as c_int =>
            {
                "STRING"
            }
            _ => found.map_or("NOTYPE", |ty| ty.name()),
        }
    }

    fn is_type(&self, number: c_int) -> bool {
        // SAFETY: the function compares two numbers.
        self.number() == number
            || unsafe { PY_ARRAY_API.PyArray_EquivTypenums(self.0.py(), self.number(), number) } != 0
    }

    /// Returns whether a tensor of type `ty` accepts the elements.
    pub(crate) fn fits(&self, ty: TensorType) -> bool {
        match numpy_type(ty) {
            Some((number, _)) => self.is_type(number as c_int),
            None => ty == TensorType::String && self.type_name() == "STRING",
        }
    }

    /// Returns whether the array has these dimensions.
    pub(crate) fn has_dims(&self, dims: &[usize]) -> bool {
        let shape = self.shape();
        shape.len() == dims.len() && shape.iter().zip(dims).all(|(a, &b)| usize::try_from(*a) == Ok(b))
    }

    /// Calls `f` with the elements in the format of a tensor of type `ty`. The array must be of that type, as
    /// [`Array::fits`] checks.
    pub(crate) fn with_bytes<R>(&self, ty: TensorType, f: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
        if ty == TensorType::String {
            let encoded = delegraph::core::graph::Strings::encode(self.strings()?.iter().map(Vec::as_slice));
            return Ok(f(&encoded.map_err(|e| PyValueError::new_err(e.to_string()))?));
        }
        let (number, storage) = numpy_type(ty).ok_or_else(|| no_array(ty))?;
        let py = self.0.py();
        let own = fields(&self.0);
        // SAFETY: an array has a descriptor as long as it lives.
        let native = unsafe { (*own.descr).fields.byteorder } != foreign_order();
        let contiguous = own.flags & NPY_ARRAY_C_CONTIGUOUS != 0;
        let array = if native && contiguous { self.0.clone() } else { from_any(&self.0, Some(number))? };
        let count = self.shape().iter().try_fold(1usize, |n, &dim| n.checked_mul(usize::try_from(dim).ok()?));
        let size = match storage {
            Storage::Same => ty.bits().map_or(1, |bits| bits / 8),
            Storage::Packed { .. } => 1,
            Storage::BFloat16 => 4,
        };
        let len = count.and_then(|n| n.checked_mul(size));
        let len = len.ok_or_else(|| PyValueError::new_err("the array's size overflows"))?;
        let data = fields(&array).data;
        let bytes = match len {
            0 => &[][..],
            // SAFETY: the array is contiguous, in native byte order and of the type whose size is `size`, and lives
            // until the end of this function, in which no Python code runs that could write to it.
            _ => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) },
        };
        let _ = py;
        Ok(match storage {
            Storage::Same => f(bytes),
            storage => f(&narrowed(storage, bytes)),
        })
    }

    /// Returns the array's strings: text in UTF-8, and bytes unchanged.
    fn strings(&self) -> PyResult<Vec<Vec<u8>>> {
        let array = &self.0;
        if self.shape().is_empty() && self.number() == NPY_TYPES::NPY_STRING as c_int {
            // All bytes of a single string count, including trailing zeros, as in LiteRT.
            return Ok(vec![array.call_method0("tobytes")?.extract()?]);
        }
        let flat = array.call_method1("reshape", (-1,))?.call_method0("tolist")?;
        let mut strings = Vec::new();
        for item in flat.try_iter()? {
            let item = item?;
            strings.push(match item.cast::<PyString>() {
                Ok(text) => text.to_cow()?.as_bytes().to_vec(),
                Err(_) => match item.cast::<PyBytes>() {
                    Ok(bytes) => bytes.as_bytes().to_vec(),
                    Err(_) => return Err(PyValueError::new_err("the elements of the array are not strings")),
                },
            });
        }
        Ok(strings)
    }

    /// Returns the array with elements of type `ty`. NumPy converts them with the rule `same_kind`, and raises
    /// `TypeError` for other conversions.
    pub(crate) fn cast(self, ty: TensorType) -> PyResult<Self> {
        if ty == TensorType::String || self.fits(ty) {
            return Ok(self);
        }
        let kind = [("casting", "same_kind")];
        let kind = pyo3::types::IntoPyDict::into_py_dict(kind, self.0.py())?;
        self.0.call_method("astype", (dtype(self.0.py(), ty)?,), Some(&kind)).map(Array)
    }
}

/// Returns NumPy's conversion of `value`: a contiguous array in native byte order, of any type or of type `number`.
fn from_any<'py>(value: &Bound<'py, PyAny>, number: Option<NPY_TYPES>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let flags = NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED;
    // SAFETY: `value` is a valid object; the descriptor is null or a new reference, which the call takes; the result is
    // a new reference, or null with an exception set.
    unsafe {
        let descr = match number {
            Some(number) => PY_ARRAY_API.PyArray_DescrFromType(py, number as c_int),
            None => std::ptr::null_mut(),
        };
        let context: *mut PyObject = std::ptr::null_mut();
        let array = PY_ARRAY_API.PyArray_FromAny(py, value.as_ptr(), descr, 0, 0, flags, context);
        Bound::from_owned_ptr_or_err(py, array)
    }
}

fn fields<'a>(array: &'a Bound<'_, PyAny>) -> &'a numpy::npyffi::PyArrayObject_fields {
    // SAFETY: every `Bound` that this module passes here is an array: NumPy made it, or `PyArray_Check` accepted it.
    unsafe { &(*array.as_ptr().cast::<PyArrayObject>()).fields }
}

const fn foreign_order() -> std::ffi::c_char {
    (if cfg!(target_endian = "little") { b'>' } else { b'<' }) as std::ffi::c_char
}

fn strings_of<'py>(py: Python<'py>, dims: &[usize], bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if bytes.is_empty() {
        return Err(no_data());
    }
    let strings = delegraph::core::graph::Strings::parse(bytes);
    let strings = strings.map_err(|e| PyValueError::new_err(e.to_string()))?;
    let list = PyList::new(py, strings.iter().map(|string| PyBytes::new(py, string)))?;
    let numpy = py.import("numpy")?;
    let array = numpy.call_method1("empty", (strings.len(), "O"))?;
    array.set_item(pyo3::types::PySlice::full(py), list)?;
    array.call_method1("reshape", (dims.to_vec(),))
}

fn widened(storage: Storage, bytes: &[u8], elements: usize) -> Vec<u8> {
    match storage {
        Storage::Same => bytes.to_vec(),
        Storage::BFloat16 => {
            let halves = bytes.as_chunks::<2>().0.iter();
            halves.flat_map(|half| (u32::from(u16::from_ne_bytes(*half)) << 16).to_ne_bytes()).collect()
        }
        Storage::Packed { bits, signed } => {
            let per_byte = 8 / bits;
            let element = |i: usize| {
                let byte = bytes.get(i / per_byte).copied().unwrap_or_default();
                let shifted = byte << (8 - bits * (i % per_byte + 1));
                if signed { ((shifted as i8) >> (8 - bits)) as u8 } else { shifted >> (8 - bits) }
            };
            (0..elements).map(element).collect()
        }
    }
}

fn narrowed(storage: Storage, bytes: &[u8]) -> Vec<u8> {
    match storage {
        Storage::Same => bytes.to_vec(),
        Storage::BFloat16 => bytes
            .as_chunks::<4>()
            .0
            .iter()
            .flat_map(|value| rounded_bfloat16(u32::from_ne_bytes(*value)).to_ne_bytes())
            .collect(),
        Storage::Packed { bits, .. } => {
            let mask = (1u16 << bits) as u8 - 1;
            let pack = |chunk: &[u8]| {
                chunk.iter().enumerate().fold(0, |byte, (i, value)| byte | (value & mask) << (bits * i))
            };
            bytes.chunks(8 / bits).map(pack).collect()
        }
    }
}

/// Rounds the bits of a float32 to those of the nearest bfloat16, ties to even.
fn rounded_bfloat16(bits: u32) -> u16 {
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The exception for a tensor without data, as in LiteRT.
pub(crate) fn no_data() -> PyErr {
    PyValueError::new_err("Tensor data is null. Run allocate_tensors() first")
}

fn no_array(ty: TensorType) -> PyErr {
    PyTypeError::new_err(format!("elements of type {ty} cannot be in an array"))
}
