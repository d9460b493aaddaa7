//! Output tensors as numbers and as `.npy` files.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

use delegraph::TensorType;
use delegraph::core::kernel::{RuntimeTensor, Strings};
use delegraph_conformance::compare::numbers;
use serde::Serialize;

use super::failure::{Exit, Failure};
use super::files::create;

/// A tensor's elements in a NumPy type: bfloat16 as float32, packed 4-bit and 2-bit integers as 8-bit ones. They are
/// converted in chunks, since outputs may take most of the memory.
pub(crate) struct Values<'t> {
    ty: TensorType,
    /// NumPy's name for the type.
    descr: Cow<'static, str>,
    data: Data<'t>,
    shape: &'t [usize],
}

/// Elements as the tensor stores them.
enum Data<'t> {
    /// As in NumPy.
    Plain(&'t [u8]),
    /// Converted by `widen` in chunks of bytes.
    Narrow { bytes: &'t [u8], widen: fn(&[u8]) -> Vec<u8>, elements: usize },
    /// Each string is padded with zeros to `width` bytes.
    Strings { strings: Strings<'t>, width: usize },
}

/// Bytes that are converted at once.
const CHUNK: usize = 64 << 10;

/// Statistics of the elements.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) elements: usize,
    /// Minimum of the finite elements; `max` and `mean` are also of finite elements.
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
    /// Exit code 3 for resources and other types that NumPy lacks.
    pub(crate) fn of(tensor: &'t RuntimeTensor) -> Result<Self, Failure> {
        let shape = tensor.shape.dims();
        if tensor.ty == TensorType::String {
            let strings = tensor.strings()?;
            let width = strings.iter().map(<[u8]>::len).max().unwrap_or(0).max(1);
            let (ty, descr) = (TensorType::String, format!("|S{width}").into());
            return Ok(Values { ty, descr, data: Data::Strings { strings, width }, shape });
        }
        let (bytes, elements) = (tensor.bytes(), tensor.shape.elements());
        let narrow = |ty, widen| (ty, Data::Narrow { bytes, widen, elements });
        let (ty, data) = match tensor.ty {
            TensorType::BFloat16 => narrow(TensorType::Float32, widen_bfloat16),
            TensorType::Int4 => narrow(TensorType::Int8, |bytes| unpack::<4>(bytes, true)),
            TensorType::Int2 => narrow(TensorType::Int8, |bytes| unpack::<2>(bytes, true)),
            TensorType::UInt4 => narrow(TensorType::UInt8, |bytes| unpack::<4>(bytes, false)),
            ty => (ty, Data::Plain(bytes)),
        };
        let descr = descr(ty).ok_or_else(|| {
            let text = format!("not supported yet: output \"{}\" is {}", tensor.name, tensor.ty);
            Failure::new(Exit::Unsupported, text)
        })?;
        Ok(Values { ty, descr: descr.into(), data, shape })
    }

    /// Calls `f` with the elements' bytes, a chunk at a time.
    fn chunks(&self, mut f: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self.data {
            Data::Plain(bytes) => bytes.chunks(CHUNK).try_for_each(f),
            Data::Narrow { bytes, widen, elements } => {
                let mut left = elements.saturating_mul(if self.ty == TensorType::Float32 { 4 } else { 1 });
                bytes.chunks(CHUNK).try_for_each(|chunk| {
                    let mut wide = widen(chunk);
                    wide.truncate(left);
                    left -= wide.len();
                    f(&wide)
                })
            }
            Data::Strings { strings, width } => strings.iter().try_for_each(|string| {
                f(string)?;
                let zeros = [0; 256];
                let mut left = width - string.len();
                while left > 0 {
                    let part = left.min(zeros.len());
                    f(&zeros[..part])?;
                    left -= part;
                }
                Ok(())
            }),
        }
    }

    /// Writes a `.npy` file, version 1.0.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        if let Data::Strings { strings, width } = self.data
            && strings.len().checked_mul(width).is_none_or(|bytes| bytes > MAX_STRING_BYTES)
        {
            let count = strings.len();
            let text = format!(
                "{count} strings padded to the {width} bytes of the longest exceed {MAX_STRING_BYTES} bytes"
            );
            return Err(io::Error::other(text));
        }
        let dims: String = self.shape.iter().map(|d| format!("{d}, ")).collect();
        let text = format!(
            "{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
            self.descr,
            dims.trim_end()
        );
        // Magic, version, length, text, line break: together a multiple of 64 bytes.
        let padded = (10 + text.len() + 1).next_multiple_of(64) - 10;
        let mut file = io::BufWriter::new(create(path)?);
        file.write_all(b"\x93NUMPY\x01\x00")?;
        file.write_all(&u16::try_from(padded).map_err(io::Error::other)?.to_le_bytes())?;
        writeln!(file, "{text:width$}", width = padded - 1)?;
        self.chunks(|bytes| file.write_all(bytes))?;
        file.flush()
    }

    /// Returns statistics of the elements; complex numbers count as two.
    pub(crate) fn summary(&self) -> Summary {
        if let Data::Strings { strings, .. } = self.data {
            let shown = strings.iter().take(FIRST);
            let text = |s: &[u8]| String::from_utf8_lossy(s.get(..MAX_SHOWN).unwrap_or(s)).into_owned();
            return Summary {
                elements: strings.len(),
                strings: shown.map(text).collect(),
                ..Summary::default()
            };
        }
        let (mut summary, mut sum, mut count) = (Summary::default(), 0.0, 0usize);
        // Only writing fails.
        let _ = self.chunks(|bytes| {
            for v in numbers(self.ty, bytes).unwrap_or_default() {
                summary.elements += 1;
                summary.nan += usize::from(v.is_nan());
                summary.infinite += usize::from(v.is_infinite());
                if summary.first.len() < FIRST {
                    summary.first.push(v);
                }
                if v.is_finite() {
                    summary.min = Some(summary.min.map_or(v, |min| min.min(v)));
                    summary.max = Some(summary.max.map_or(v, |max| max.max(v)));
                    sum += v;
                    count += 1;
                }
            }
            Ok(())
        });
        summary.mean = (count > 0).then(|| sum / count as f64);
        summary
    }
}

/// The maximum number of elements that a summary shows.
const FIRST: usize = 8;

/// The maximum number of bytes of a string that a summary shows.
const MAX_SHOWN: usize = 1000;

/// The maximum size of the strings in a file: 4 GiB. NumPy pads each string to the length of the longest.
const MAX_STRING_BYTES: usize = if usize::BITS >= 64 { 4 << 30 } else { usize::MAX };

fn widen_bfloat16(bytes: &[u8]) -> Vec<u8> {
    let widen = |c: &[u8; 2]| half::bf16::from_le_bytes(*c).to_f32().to_le_bytes();
    bytes.as_chunks::<2>().0.iter().flat_map(widen).collect()
}

/// One byte per element, from `BITS` bits each, low bits first.
fn unpack<const BITS: usize>(packed: &[u8], signed: bool) -> Vec<u8> {
    let spare = 8 - BITS;
    let element = |i: usize| {
        let byte = packed.get(i * BITS / 8).copied().unwrap_or(0);
        let high = byte >> (i * BITS % 8) << spare;
        if signed { (high as i8 >> spare) as u8 } else { high >> spare }
    };
    (0..packed.len() * 8 / BITS).map(element).collect()
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
        Values { ty: TensorType::Float32, descr: "<f4".into(), data: Data::Plain(bytes), shape }
    }

    fn all(values: &Values<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let append = |chunk: &[u8]| {
            bytes.extend_from_slice(chunk);
            Ok(())
        };
        values.chunks(append).unwrap();
        bytes
    }

    #[test]
    fn strings_are_padded() {
        let mut tensor = RuntimeTensor::new(&Tensor::new("s", TensorType::String, [2, 1]));
        let bytes = Strings::encode([&b"a"[..], b"bcd"].into_iter()).unwrap();
        tensor.allocate_bytes(Placement::Dynamic, bytes.len()).unwrap();
        tensor.bytes_mut().unwrap().copy_from_slice(&bytes);
        let values = Values::of(&tensor).ok().unwrap();
        assert_eq!((&*values.descr, all(&values)), ("|S3", b"a\0\0bcd".to_vec()));
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
        let widened = |ty, shape: [usize; 1], bytes: &[u8]| {
            let mut tensor = RuntimeTensor::new(&Tensor::new("t", ty, shape));
            tensor.allocate(Placement::Dynamic).unwrap();
            tensor.bytes_mut().unwrap().copy_from_slice(bytes);
            all(&Values::of(&tensor).ok().unwrap())
        };
        assert_eq!(widened(TensorType::Int4, [3], &[0x8F, 0x07]), [-1i8 as u8, -8i8 as u8, 7]);
        assert_eq!(widened(TensorType::UInt4, [2], &[0x8F]), [15, 8]);
        assert_eq!(widened(TensorType::Int2, [4], &[0b01_10_11_00]), [0, -1i8 as u8, -2i8 as u8, 1]);
        assert_eq!(widened(TensorType::BFloat16, [1], &[0x80, 0x3f]), 1f32.to_le_bytes());
        // Padding elements of the last byte are omitted, also after the first chunk.
        let long = vec![0x11; CHUNK + 1];
        assert_eq!(widened(TensorType::Int4, [2 * CHUNK + 1], &long), vec![1; 2 * CHUNK + 1]);
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
