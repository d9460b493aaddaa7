//! Whether two models do the same: both run on the same random inputs.

use std::sync::Arc;

use delegraph_core::error::{Error, Result};
use delegraph_core::kernel::RuntimeTensor;
use delegraph_core::{Model, OpResolver, TensorType};

use crate::interpreter::Interpreter;
use crate::seeded::{SplitMix64, fill};

/// How far an output is from what it was, at most.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The output's name.
    pub output: String,
    /// The greatest difference: of real values, or of quantized ones in steps.
    pub greatest: f64,
    /// What is allowed: for floats `1e-5 + 1e-4 · max|value|` (float16: `5e-3 · max|value|`), for quantized values one
    /// step, for all others nothing.
    pub allowed: f64,
}

impl Difference {
    /// Whether it is within what is allowed.
    pub fn is_fine(&self) -> bool {
        self.within(1.0)
    }

    /// Whether it is within `times` as much as is allowed.
    pub fn within(&self, times: f64) -> bool {
        self.greatest <= self.allowed * times
    }
}

/// Runs both models `samples` times, each time on other inputs; state goes on from one to the next. Per output, the
/// greatest difference.
///
/// # Errors
/// Where one of the models does not run, or they do not have the same inputs and outputs.
pub fn compare(
    original: &Arc<Model>,
    fused: &Arc<Model>,
    resolver: &Arc<dyn OpResolver>,
    samples: usize,
) -> Result<Vec<Difference>> {
    let build =
        |model: &Arc<Model>| Interpreter::builder_with(model.clone(), Shared(resolver.clone())).build();
    let (mut a, mut b) = (build(original)?, build(fused)?);
    if (a.input_count(), a.output_count()) != (b.input_count(), b.output_count()) {
        return Err(Error::State("the models do not have the same inputs and outputs".into()));
    }
    let mut differences: Vec<Difference> = Vec::new();
    for sample in 0..samples {
        for i in 0..a.input_count() {
            let ty = a.input_tensor(i)?.ty;
            let bytes = match ty {
                TensorType::String => a.input_tensor(i)?.bytes().to_vec(),
                _ => {
                    let bytes = a.input_bytes_mut(i)?;
                    fill(ty, bytes, &mut SplitMix64::new(sample as u64, i, sample));
                    bytes.to_vec()
                }
            };
            if b.input_tensor(i)?.shape != a.input_tensor(i)?.shape {
                let shape = a.input_tensor(i)?.shape.clone();
                b.resize_input(i, &shape)?;
            }
            b.set_input_bytes(i, &bytes)?;
        }
        a.invoke()?;
        b.invoke()?;
        for i in 0..a.output_count() {
            let found = difference(a.output_tensor(i)?, b.output_tensor(i)?);
            match differences.get_mut(i) {
                Some(known) => {
                    known.allowed = known.allowed.max(found.allowed);
                    known.greatest = known.greatest.max(found.greatest);
                }
                None => differences.push(found),
            }
        }
    }
    Ok(differences)
}

fn difference(a: &RuntimeTensor, b: &RuntimeTensor) -> Difference {
    let output = a.name.to_string();
    if (a.ty, &a.shape) != (b.ty, &b.shape) {
        return Difference { output, greatest: f64::INFINITY, allowed: 0.0 };
    }
    let Some((a_values, b_values)) = values(a).zip(values(b)) else {
        let same = a.bytes() == b.bytes();
        return Difference { output, greatest: if same { 0.0 } else { f64::INFINITY }, allowed: 0.0 };
    };
    let mut greatest = 0f64;
    for (&x, &y) in a_values.iter().zip(&b_values) {
        // Both infinite, or both no number, is the same.
        let distance = if x == y || (x.is_nan() && y.is_nan()) { 0.0 } else { (x - y).abs() };
        greatest = greatest.max(if distance.is_nan() { f64::INFINITY } else { distance });
    }
    let largest = a_values.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
    let allowed = match a.ty {
        TensorType::Float32 | TensorType::Float64 => 1e-5 + 1e-4 * largest,
        TensorType::Float16 | TensorType::BFloat16 => 5e-3 * largest,
        _ if a.quantization.is_some() => 1.0,
        _ => 0.0,
    };
    Difference { output, greatest, allowed }
}

fn values(tensor: &RuntimeTensor) -> Option<Vec<f64>> {
    let bytes = tensor.bytes();
    Some(match tensor.ty {
        TensorType::Float32 => {
            bytes.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect()
        }
        TensorType::Float64 => bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
        TensorType::Float16 => {
            bytes.as_chunks::<2>().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f64()).collect()
        }
        TensorType::Int8 => bytes.iter().map(|&b| f64::from(b.cast_signed())).collect(),
        TensorType::UInt8 => bytes.iter().map(|&b| f64::from(b)).collect(),
        TensorType::Int16 => {
            bytes.as_chunks::<2>().0.iter().map(|b| f64::from(i16::from_le_bytes(*b))).collect()
        }
        _ => return None,
    })
}

/// A resolver that several interpreters share.
pub(super) struct Shared(pub(super) Arc<dyn OpResolver>);

impl OpResolver for Shared {
    fn find(&self, op: &delegraph_core::Op, version: u32) -> Option<&delegraph_core::Registration> {
        self.0.find(op, version)
    }

    fn versions(&self, op: &delegraph_core::Op) -> Vec<(u32, u32)> {
        self.0.versions(op)
    }
}
