//! Output tensors as numbers and as `.npy` files.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

use delegraph::TensorType;
use delegraph::core::kernel::RuntimeTensor;
use delegraph_conformance::compare::numbers;
use serde::Serialize;

use super::failure::{Exit, Failure};

/// A tensor's elements in a type that NumPy has: bfloat16 as float32, packed 4-bit and 2-bit integers as 8-bit ones.
pub(crate) struct Values<'t> {
    ty: TensorType,
    /// NumPy's name for the type.
    descr: Cow<'static, str>,
    bytes: Cow<'t, [u8]>,
    shape: &'t [usize],
    strings: Vec<String>,
}

/// What the elements are like.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) elements: usize,
    /// Of the elements that are finite numbers, as the next two.
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) mean: Option<f64>,
    pub(crate) nan: usize,
    pub(crate) infinite: usize,
    /// The first few elements.
    pub(crate) first: Vec<f64>,
    /// The first few strings, of a tensor of strings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) strings: Vec<String>,
}

impl<'t> Values<'t> {
    /// # Errors
    /// Exit code 3 for resources and other types that NumPy does not have.
    pub(crate) fn of(tensor: &'t RuntimeTensor) -> Result<Self, Failure> {
        if tensor.ty == TensorType::String {
            return Self::of_strings(tensor);
        }
        let stored = tensor.bytes();
        let (ty, bytes) = match tensor.ty {
            TensorType::BFloat16 => {
                let widen = |c: &[u8; 2]| half::bf16::from_le_bytes(*c).to_f32().to_le_bytes();
                (TensorType::Float32, Cow::Owned(stored.as_chunks::<2>().0.iter().flat_map(widen).collect()))
            }
            TensorType::Int4 => {
                (TensorType::Int8, Cow::Owned(unpack::<4>(stored, true, tensor.shape.elements())))
            }
            TensorType::Int2 => {
                (TensorType::Int8, Cow::Owned(unpack::<2>(stored, true, tensor.shape.elements())))
            }
            TensorType::UInt4 => {
                (TensorType::UInt8, Cow::Owned(unpack::<4>(stored, false, tensor.shape.elements())))
            }
            ty => (ty, Cow::Borrowed(stored)),
        };
        let descr = descr(ty).ok_or_else(|| {
            let text = format!("not supported yet: output \"{}\" is {}", tensor.name, tensor.ty);
            Failure::new(Exit::Unsupported, text)
        })?;
        Ok(Values { ty, descr: descr.into(), bytes, shape: tensor.shape.dims(), strings: Vec::new() })
    }

    /// Strings as NumPy stores them: as long as the longest one, padded with zeros.
    fn of_strings(tensor: &'t RuntimeTensor) -> Result<Self, Failure> {
        let strings = tensor.strings()?;
        let width = strings.iter().map(<[u8]>::len).max().unwrap_or(0).max(1);
        let padded = |s: &'t [u8]| s.iter().copied().chain(std::iter::repeat(0)).take(width);
        Ok(Values {
            ty: TensorType::String,
            descr: format!("|S{width}").into(),
            bytes: strings.iter().flat_map(padded).collect(),
            shape: tensor.shape.dims(),
            strings: strings.iter().take(8).map(|s| String::from_utf8_lossy(s).into_owned()).collect(),
        })
    }

    /// Writes a `.npy` file, version 1.0.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let dims: String = self.shape.iter().map(|d| format!("{d}, ")).collect();
        let text = format!(
            "{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
            self.descr,
            dims.trim_end()
        );
        // Magic, version, length, text, line break: together a multiple of 64 bytes.
        let padded = (10 + text.len() + 1).next_multiple_of(64) - 10;
        let mut file = io::BufWriter::new(std::fs::File::create(path)?);
        file.write_all(b"\x93NUMPY\x01\x00")?;
        file.write_all(&u16::try_from(padded).map_err(io::Error::other)?.to_le_bytes())?;
        writeln!(file, "{text:width$}", width = padded - 1)?;
        file.write_all(&self.bytes)?;
        file.flush()
    }

    /// What the elements are like; complex numbers count as two.
    pub(crate) fn summary(&self) -> Summary {
        let numbers = numbers(self.ty, &self.bytes).unwrap_or_default();
        let finite = || numbers.iter().copied().filter(|v| v.is_finite());
        let count = finite().count();
        Summary {
            elements: if self.ty == TensorType::String { self.shape.iter().product() } else { numbers.len() },
            min: finite().reduce(f64::min),
            max: finite().reduce(f64::max),
            mean: (count > 0).then(|| finite().sum::<f64>() / count as f64),
            nan: numbers.iter().filter(|v| v.is_nan()).count(),
            infinite: numbers.iter().filter(|v| v.is_infinite()).count(),
            first: numbers.iter().copied().take(8).collect(),
            strings: self.strings.clone(),
        }
    }
}

/// One byte per element, from `BITS` bits each, low bits first.
fn unpack<const BITS: usize>(packed: &[u8], signed: bool, elements: usize) -> Vec<u8> {
    let spare = 8 - BITS;
    let element = |i: usize| {
        let byte = packed.get(i * BITS / 8).copied().unwrap_or(0);
        let high = byte >> (i * BITS % 8) << spare;
        if signed { (high as i8 >> spare) as u8 } else { high >> spare }
    };
    (0..elements.min(packed.len() * 8 / BITS)).map(element).collect()
}

fn descr(ty: TensorType) -> Option<&'static str> {
    Some(match ty {
        TensorType::Float16 => "<f2",
        TensorType::Float32 => "<f4",
        TensorType::Float64 => "<f8",
        TensorType::Int8 => "|i1",
        TensorType::Int16 => "<i2",
        TensorType::Int32 => "<i4",
        TensorType::Int64 => "<i8",
        TensorType::UInt8 => "|u1",
        TensorType::UInt16 => "<u2",
        TensorType::UInt32 => "<u4",
        TensorType::UInt64 => "<u8",
        TensorType::Bool => "|b1",
        TensorType::Complex64 => "<c8",
        TensorType::Complex128 => "<c16",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use delegraph::core::graph::Tensor;
    use delegraph::core::kernel::{Placement, Strings};
    use delegraph_conformance::npy::Array;

    fn values<'t>(bytes: &'t [u8], shape: &'t [usize]) -> Values<'t> {
        let (ty, strings) = (TensorType::Float32, Vec::new());
        Values { ty, descr: "<f4".into(), bytes: bytes.into(), shape, strings }
    }

    #[test]
    fn strings_are_padded() {
        let mut tensor = RuntimeTensor::new(&Tensor::new("s", TensorType::String, [2, 1]));
        let bytes = Strings::encode([&b"a"[..], b"bcd"].into_iter()).unwrap();
        tensor.allocate_bytes(Placement::Dynamic, bytes.len()).unwrap();
        tensor.bytes_mut().unwrap().copy_from_slice(&bytes);
        let values = Values::of(&tensor).ok().unwrap();
        assert_eq!((&*values.descr, &*values.bytes), ("|S3", &b"a\0\0bcd"[..]));
        assert_eq!(
            (values.summary().elements, values.summary().strings),
            (2, vec!["a".into(), "bcd".into()])
        );
    }

    #[test]
    fn written_files_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let check = |shape: &[usize], floats: &[f32]| {
            let bytes: Vec<u8> = floats.iter().flat_map(|v| v.to_le_bytes()).collect();
            let values = values(&bytes, shape);
            values.write(&path).unwrap();
            let file = std::fs::read(&path).unwrap();
            assert_eq!((file.len() - bytes.len()) % 64, 0);
            let array = Array::parse(&file).unwrap();
            assert_eq!(array.shape, shape);
            assert_eq!(array.into_bytes(TensorType::Float32).unwrap(), bytes);
        };
        check(&[2, 1], &[1.5, -2.0]);
        check(&[3], &[1.0, 2.0, f32::NAN]);
        check(&[], &[7.0]);
        check(&[0, 4], &[]);
    }

    #[test]
    fn packed_integers_are_widened() {
        assert_eq!(unpack::<4>(&[0x8F, 0x07], true, 3), [-1i8 as u8, -8i8 as u8, 7]);
        assert_eq!(unpack::<4>(&[0x8F], false, 2), [15, 8]);
        assert_eq!(unpack::<2>(&[0b01_10_11_00], true, 4), [0, -1i8 as u8, -2i8 as u8, 1]);
    }

    #[test]
    fn summaries_leave_out_what_is_not_finite() {
        let bytes: Vec<u8> =
            [1.0, f32::NAN, 3.0, f32::INFINITY].iter().flat_map(|v: &f32| v.to_le_bytes()).collect();
        let values = values(&bytes, &[4]);
        let summary = values.summary();
        assert_eq!((summary.min, summary.max, summary.mean), (Some(1.0), Some(3.0), Some(2.0)));
        assert_eq!((summary.elements, summary.nan, summary.infinite), (4, 1, 1));
    }
}
