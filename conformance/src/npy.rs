//! NumPy arrays, read through the `npyz` crate.

use std::io;

use delegraph_core::TensorType;
use delegraph_core::kernel::Strings;
use npyz::{NpyHeader, TypeChar};

use crate::error::Error;
use crate::output::Output;

/// An array of numbers or strings.
#[derive(Debug, Clone)]
pub struct Array {
    /// Shape, outermost dimension first.
    pub shape: Vec<usize>,
    ty: TensorType,
    bytes: Vec<u8>,
}

impl Array {
    /// Reads a `.npy` file.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other files, and for arrays that are not supported.
    pub fn parse(file: &[u8]) -> Result<Self, Error> {
        if !file.starts_with(b"\x93NUMPY") {
            return Err(Error::invalid(match file {
                [] => "the file is empty",
                [b'P', b'K', 3..=8, ..] => {
                    "it is a ZIP archive, such as .npz, which is not supported; save each array as .npy"
                }
                _ => "it does not begin with the bytes of the .npy format",
            }));
        }
        let brackets = header(file).iter().filter(|&&byte| b"([{".contains(&byte)).count();
        if brackets > MAX_BRACKETS {
            return Err(Error::invalid(format!(
                "its header has {brackets} opening brackets; at most {MAX_BRACKETS} are supported"
            )));
        }
        let mut data = file;
        let npy = NpyHeader::from_reader(&mut data).map_err(|e| invalid_header(e, file))?;
        let shape: Vec<usize> = npy
            .shape()
            .iter()
            .map(|&d| usize::try_from(d))
            .collect::<Result<_, _>>()
            .map_err(Error::invalid_caused_by)?;
        if npy.order() != npyz::Order::C && shape.iter().filter(|&&d| d > 1).count() > 1 {
            return Err(Error::invalid("the array is in Fortran order; save it in C order"));
        }
        let npyz::DType::Plain(dtype) = npy.dtype() else {
            return Err(Error::invalid("arrays of records are not supported"));
        };
        use TensorType::*;
        let ty = match (dtype.type_char(), dtype.size_field()) {
            (TypeChar::Float, 2) => Float16,
            (TypeChar::Float, 4) => Float32,
            (TypeChar::Float, 8) => Float64,
            (TypeChar::Int, 1) => Int8,
            (TypeChar::Int, 2) => Int16,
            (TypeChar::Int, 4) => Int32,
            (TypeChar::Int, 8) => Int64,
            (TypeChar::Uint, 1) => UInt8,
            (TypeChar::Uint, 2) => UInt16,
            (TypeChar::Uint, 4) => UInt32,
            (TypeChar::Uint, 8) => UInt64,
            (TypeChar::Bool, 1) => Bool,
            (TypeChar::Complex, 8) => Complex64,
            (TypeChar::Complex, 16) => Complex128,
            (TypeChar::ByteStr | TypeChar::UnicodeStr, _) => String,
            _ => return Err(Error::invalid(format!("arrays of {} are not supported", npy.dtype().descr()))),
        };
        if npy.dtype().descr().contains('>') {
            return Err(Error::invalid("the array is big-endian; save it in little-endian order"));
        }
        let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let width = npy.dtype().num_bytes();
        let size = elements.zip(width).and_then(|(n, width)| n.checked_mul(width));
        let short = || Error::invalid("the file is shorter than its shape needs");
        let bytes = size.and_then(|size| data.get(..size)).ok_or_else(short)?;
        match ty {
            String => {
                let text = dtype.type_char() == TypeChar::UnicodeStr;
                let fixed = (0..elements.unwrap_or(0)).zip(bytes.chunks(width.unwrap_or(0).max(1)));
                let mut strings: Vec<_> =
                    fixed.map(|(_, s)| if text { utf8(s) } else { trimmed(s).to_vec() }).collect();
                // An array of empty strings may have no bytes.
                strings.resize(elements.unwrap_or(0), Vec::new());
                Array::strings(shape, &strings)
            }
            _ => Ok(Array { shape, ty, bytes: bytes.to_vec() }),
        }
    }

    /// Creates an array of strings.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the strings are too long for a tensor.
    pub fn strings<S: AsRef<[u8]>>(shape: Vec<usize>, strings: &[S]) -> Result<Self, Error> {
        let bytes = Strings::encode(strings.iter().map(AsRef::as_ref)).map_err(Error::invalid_caused_by)?;
        Ok(Array { shape, ty: TensorType::String, bytes })
    }

    /// Returns the strings of an array of strings; `None` for other arrays.
    pub fn as_strings(&self) -> Option<Strings<'_>> {
        if self.ty == TensorType::String { Strings::parse(&self.bytes).ok() } else { None }
    }

    /// Converts the array to an output.
    pub(crate) fn into_output(self) -> Output {
        Output { ty: self.ty, shape: self.shape, quantized: false, bytes: self.bytes }
    }

    /// Returns the elements as numbers; `None` for strings.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        crate::compare::numbers(self.ty, &self.bytes)
    }

    /// Returns the bytes for a tensor of type `ty`: packed from INT8 or UINT8 if several of its elements share a byte,
    /// and rounded from FLOAT32 if it is BFLOAT16.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the array has any other type.
    pub fn into_bytes(self, ty: TensorType) -> Result<Vec<u8>, Error> {
        if self.ty == ty {
            return Ok(self.bytes);
        }
        let narrow = ty.bits().filter(|b| *b < 8 && matches!(self.ty, TensorType::Int8 | TensorType::UInt8));
        match (narrow, self.ty, ty) {
            (Some(bits), ..) => {
                let pack = |chunk: &[u8]| {
                    chunk
                        .iter()
                        .enumerate()
                        .fold(0u8, |b, (i, v)| b | ((v & ((1 << bits) - 1)) << (i * bits)))
                };
                Ok(self.bytes.chunks(8 / bits).map(pack).collect())
            }
            (None, TensorType::Float32, TensorType::BFloat16) => {
                let narrow = |c: &[u8; 4]| half::bf16::from_f32(f32::from_le_bytes(*c)).to_le_bytes();
                Ok(self.bytes.as_chunks::<4>().0.iter().flat_map(narrow).collect())
            }
            _ => {
                let needed = match (ty, ty.bits()) {
                    (TensorType::BFloat16, _) => "FLOAT32".to_owned(),
                    (_, Some(bits)) if bits < 8 => "INT8 or UINT8".to_owned(),
                    _ => ty.to_string(),
                };
                Err(Error::invalid(format!(
                    "the array is {}, but the input is {ty}; save it as {needed}",
                    self.ty
                )))
            }
        }
    }
}

/// Maximum number of opening brackets in a header: the parser of the crate recurses at each, on the stack. A header of
/// numbers or strings has two.
const MAX_BRACKETS: usize = 64;

/// Returns the text of the header of `file`; empty if the file ends within it.
fn header(file: &[u8]) -> &[u8] {
    let text = match *file {
        [_, _, _, _, _, _, 1, _, a, b, ref text @ ..] => text.get(..u16::from_le_bytes([a, b]).into()),
        [_, _, _, _, _, _, _, _, a, b, c, d, ref text @ ..] => {
            usize::try_from(u32::from_le_bytes([a, b, c, d])).ok().and_then(|length| text.get(..length))
        }
        _ => None,
    };
    text.unwrap_or_default()
}

/// Returns the error of a header of `file` that cannot be read.
fn invalid_header(error: io::Error, file: &[u8]) -> Error {
    // The crate reports a file that ends within these bytes as one of another format.
    const MAGIC_AND_VERSION: usize = 8;
    if error.kind() == io::ErrorKind::UnexpectedEof || file.len() < MAGIC_AND_VERSION {
        return Error::invalid("the file ends within its header");
    }
    // The message of a syntax error repeats the header, which may have megabytes.
    match error.to_string().contains('\n') {
        true => Error::invalid("its header is not a Python dictionary"),
        false => Error::invalid_caused_by(error),
    }
}

/// Returns a `.npy` file of strings, given in the format of a tensor: NumPy's bytes of one length, padded with zeros.
///
/// # Errors
/// The elements are not strings.
pub fn write_strings(shape: &[usize], bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let strings = Strings::parse(bytes).map_err(Error::invalid_caused_by)?;
    let width = strings.iter().map(<[u8]>::len).max().unwrap_or(0).max(1);
    let padded = strings.iter().flat_map(|s| s.iter().copied().chain(std::iter::repeat(0)).take(width));
    Ok(file(&format!("|S{width}"), shape, padded.collect()))
}

/// Returns a string without its padding zeros; NumPy's strings never end with a zero.
pub fn trimmed(string: &[u8]) -> &[u8] {
    let end = string.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    string.get(..end).unwrap_or_default()
}

/// Converts a string of 32-bit code points to UTF-8.
fn utf8(points: &[u8]) -> Vec<u8> {
    let points = points.as_chunks().0.iter().map(|point| u32::from_le_bytes(*point));
    let text: String = points.map(|p| char::from_u32(p).unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.trim_end_matches('\0').as_bytes().to_vec()
}

/// Returns a `.npy` file of a tensor's bytes. BFLOAT16 is written as NumPy's extension does; elements of fewer than
/// eight bits are written as one byte each.
///
/// # Errors
/// NumPy does not support the type.
pub fn write(ty: TensorType, shape: &[usize], bytes: &[u8]) -> Result<Vec<u8>, Error> {
    use TensorType::*;
    let descr = match ty {
        Float16 => "<f2",
        BFloat16 => "<V2",
        Float32 => "<f4",
        Float64 => "<f8",
        Complex64 => "<c8",
        Complex128 => "<c16",
        Bool => "|b1",
        Int8 | Int4 | Int2 => "|i1",
        UInt8 | UInt4 => "|u1",
        Float8E4M3FN | Float8E5M2 => "|V1",
        Int16 => "<i2",
        UInt16 => "<u2",
        Int32 => "<i4",
        UInt32 => "<u4",
        Int64 => "<i8",
        UInt64 => "<u8",
        // The serialised strings as one row of bytes.
        String => "|u1",
        _ => return Err(Error::invalid(format!("arrays of {ty} are not supported"))),
    };
    let mut dims = shape.to_vec();
    let mut data = bytes.to_vec();
    if ty == String {
        dims = vec![bytes.len()];
    } else if let Some(bits) = ty.bits().filter(|b| *b < 8) {
        let count = shape.iter().product();
        let signed = matches!(ty, Int4 | Int2);
        let element = |i: usize| {
            let raw = (bytes.get(i * bits / 8).copied().unwrap_or(0) >> (i * bits % 8)) << (8 - bits);
            if signed { ((raw as i8) >> (8 - bits)) as u8 } else { raw >> (8 - bits) }
        };
        data = (0..count).map(element).collect();
    }
    Ok(file(descr, &dims, data))
}

/// Returns a file with these bytes.
fn file(descr: &str, dims: &[usize], data: Vec<u8>) -> Vec<u8> {
    let dims: String = dims.iter().map(|d| format!("{d}, ")).collect();
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
    // The data starts at a multiple of 64; the header ends with a line feed.
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(data);
        file
    }

    #[test]
    fn strings_of_bytes_and_of_code_points() {
        let check = |descr: &str, shape: &str, data: &[u8], want: &[&str]| {
            let array = Array::parse(&file(descr, shape, data)).unwrap();
            assert!(array.as_strings().unwrap().iter().eq(want.iter().map(|s| s.as_bytes())), "{descr}");
        };
        check("|S3", "(2, 1)", b"a\0\0abc", &["a", "abc"]);
        check("|S2", "()", b"hi", &["hi"]);
        check("|S0", "(2,)", b"", &["", ""]);
        check("<U2", "(2,)", &[0xe9, 0, 0, 0, 0, 0, 0, 0, 0x61, 0, 0, 0, 0x62, 0, 0, 0], &["\u{e9}", "ab"]);
        assert!(Array::parse(&file("|S3", "(2,)", b"abcab")).is_err());
    }

    #[test]
    fn damaged_headers_have_short_errors() {
        let check = |file: &[u8], want: &str| {
            assert_eq!(Array::parse(file).unwrap_err().to_string(), want, "{file:?}");
        };
        let whole = file("<f4", "(1,)", &[0; 4]);
        for length in [6, 7, 8, 9, 10, 40] {
            check(&whole[..length], "the file ends within its header");
        }
        check(&file("<f4", &"x".repeat(4000), &[]), "its header is not a Python dictionary");
        check(&file("<f4", "(-1,)", &[]), "dimension cannot be negative");
        // The parser would overflow the stack. Brackets in texts do not hide the nesting.
        let nested = file("<f4", &"(')',".repeat(10_000), &[]);
        let want = "its header has 10001 opening brackets; at most 64 are supported";
        check(&nested, want);
        let mut second = b"\x93NUMPY\x02\x00".to_vec();
        second.extend(u32::try_from(nested.len() - 10).unwrap().to_le_bytes());
        second.extend(&nested[10..]);
        check(&second, want);
    }
}
