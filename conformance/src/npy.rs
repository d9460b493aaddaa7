//! NumPy arrays, read through the `npyz` crate.

use delegraph_core::TensorType;
use npyz::{NpyFile, TypeChar};

/// An array of numbers.
#[derive(Debug, Clone)]
pub struct Array {
    /// Shape, outermost dimension first.
    pub shape: Vec<usize>,
    ty: TensorType,
    bytes: Vec<u8>,
}

impl Array {
    /// Reads a `.npy` file.
    pub fn parse(file: &[u8]) -> Result<Self, String> {
        let npy = NpyFile::new(file).map_err(|e| e.to_string())?;
        let shape: Vec<usize> = npy
            .shape()
            .iter()
            .map(|&d| usize::try_from(d))
            .collect::<Result<_, _>>()
            .map_err(|e| e.to_string())?;
        if npy.order() != npyz::Order::C && shape.iter().filter(|&&d| d > 1).count() > 1 {
            return Err("the array is in Fortran order; save it in C order".into());
        }
        let npyz::DType::Plain(dtype) = npy.dtype() else {
            return Err("arrays of records are not supported".into());
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
            _ => return Err(format!("arrays of {} are not supported", npy.dtype().descr())),
        };
        if npy.dtype().descr().contains('>') {
            return Err("the array is big-endian".into());
        }
        let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).and_then(|n| ty.byte_size(n));
        let size = elements.filter(|&n| n <= file.len()).ok_or("the file is shorter than its shape needs")?;
        let bytes = file.get(file.len() - size..).unwrap_or_default().to_vec();
        Ok(Array { shape, ty, bytes })
    }

    /// The elements as numbers.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        crate::compare::numbers(self.ty, &self.bytes)
    }

    /// The bytes for a tensor of type `ty`: as they are, or packed where the tensor packs several in a byte.
    pub fn into_bytes(self, ty: TensorType) -> Result<Vec<u8>, String> {
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
            _ => Err(format!("the array is {}, the input {ty}", self.ty)),
        }
    }
}
