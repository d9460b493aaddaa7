//! Comparison of outputs: the tolerances, with their reasons.

use delegraph_core::TensorType;

mod check;
mod deviation;

pub use check::{Arithmetic, Check, ComputationKind, Difference, ElementDifference, Histogram, Value};
pub use deviation::Deviation;

/// The allowed difference of an output.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Tolerance {
    /// Absolute part.
    pub abs: f64,
    /// Part relative to the largest expected magnitude of the tensor.
    pub rel: f64,
    /// Number of steps of a quantized output.
    pub quantum: u32,
}

impl Tolerance {
    /// Returns the default for a type. Floats differ by the order of summation. A quantized output may be one step off,
    /// by rounding a float result between two steps. All other types are exact.
    pub fn of(ty: TensorType, quantized: bool) -> Self {
        match ty {
            TensorType::Float32 | TensorType::Float64 | TensorType::Complex64 | TensorType::Complex128 => {
                Tolerance { abs: 1e-5, rel: 1e-4, quantum: 0 }
            }
            TensorType::Float16 | TensorType::BFloat16 => Tolerance { abs: 0.0, rel: 5e-3, quantum: 0 },
            _ => Tolerance { abs: 0.0, rel: 0.0, quantum: u32::from(quantized) },
        }
    }
}

/// The largest difference found, and whether it is within the tolerance.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// Largest absolute difference; infinite where one side is NaN and the other is not, or infinities differ.
    pub max_abs: f64,
    /// The allowed difference.
    pub allowed: f64,
}

impl Comparison {
    /// Returns whether the outputs agree.
    pub fn passes(&self) -> bool {
        self.max_abs <= self.allowed
    }
}

/// Compares elements, given as numbers.
pub fn compare(got: &[f64], expected: &[f64], tolerance: Tolerance) -> Comparison {
    let largest = expected.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
    let allowed = (tolerance.abs + tolerance.rel * largest).max(tolerance.quantum.into());
    if got.len() != expected.len() {
        return Comparison { max_abs: f64::INFINITY, allowed };
    }
    let difference = |(&g, &e): (&f64, &f64)| match g == e || (g.is_nan() && e.is_nan()) {
        true => 0.0,
        // NaN minus anything is NaN, which `max` would drop.
        false => Some((g - e).abs()).filter(|d| !d.is_nan()).unwrap_or(f64::INFINITY),
    };
    Comparison { max_abs: got.iter().zip(expected).map(difference).fold(0.0, f64::max), allowed }
}

/// Returns the elements of a tensor as numbers; `None` for non-numeric types.
pub fn numbers(ty: TensorType, bytes: &[u8]) -> Option<Vec<f64>> {
    fn each<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|c| f(*c)).collect()
    }
    Some(match ty {
        TensorType::Float32 | TensorType::Complex64 => each(bytes, |c| f32::from_le_bytes(c).into()),
        TensorType::Float64 | TensorType::Complex128 => each(bytes, f64::from_le_bytes),
        TensorType::Float16 => each(bytes, |c| half::f16::from_le_bytes(c).into()),
        TensorType::BFloat16 => each(bytes, |c| half::bf16::from_le_bytes(c).into()),
        TensorType::Int8 => each(bytes, |c: [u8; 1]| i8::from_le_bytes(c).into()),
        TensorType::UInt8 | TensorType::Bool => each(bytes, |c: [u8; 1]| c[0].into()),
        TensorType::Int16 => each(bytes, |c| i16::from_le_bytes(c).into()),
        TensorType::UInt16 => each(bytes, |c| u16::from_le_bytes(c).into()),
        TensorType::Int32 | TensorType::Resource => each(bytes, |c| i32::from_le_bytes(c).into()),
        TensorType::UInt32 => each(bytes, |c| u32::from_le_bytes(c).into()),
        // Exact up to 2^53, which is far above real outputs.
        TensorType::Int64 => each(bytes, |c| i64::from_le_bytes(c) as f64),
        TensorType::UInt64 => each(bytes, |c| u64::from_le_bytes(c) as f64),
        _ => return None,
    })
}

/// Formats a number, in scientific notation if it is very large or small.
pub(crate) fn shown(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-4..1e15).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats() {
        let t = Tolerance::of(TensorType::Float32, false);
        assert!(compare(&[100.009], &[100.0], t).passes());
        assert!(!compare(&[100.02], &[100.0], t).passes());
        assert!(compare(&[f64::NAN, f64::INFINITY], &[f64::NAN, f64::INFINITY], t).passes());
        assert!(!compare(&[f64::NAN], &[0.0], t).passes());
        assert!(!compare(&[0.0], &[f64::NAN], t).passes());
        assert!(!compare(&[f64::INFINITY], &[f64::NEG_INFINITY], t).passes());
        assert!(!compare(&[1.0], &[1.0, 1.0], t).passes());
    }

    #[test]
    fn quantized_steps() {
        assert!(compare(&[3.0], &[4.0], Tolerance::of(TensorType::Int8, true)).passes());
        assert!(!compare(&[2.0], &[4.0], Tolerance::of(TensorType::Int8, true)).passes());
        assert!(!compare(&[3.0], &[4.0], Tolerance::of(TensorType::Int8, false)).passes());
    }
}
