//! Verification of quantization parameters.
//!
//! TFLite accepts scales that are not numbers and zero points outside of the type, and computes meaningless results;
//! here they are errors. A scale of zero is valid: writers use it for channels in which everything is zero.

use super::{Invalid, at_tensor, invalid};
use crate::error::counted;
use crate::graph::Tensor;
use crate::types::quantization::{Affine, Quantization};
use crate::types::{Shape, TensorId, TensorType};

/// Checks the quantization of a tensor by itself, without the tensors that hold scales or zero points.
pub(super) fn check(quantization: &Quantization, ty: TensorType, shape: &Shape) -> Result<(), Invalid> {
    match quantization {
        Quantization::Affine(affine) => check_affine(affine, ty, shape),
        Quantization::MultiAxis { dimensions, .. } => {
            for (i, dim) in dimensions.iter().enumerate() {
                check_dimension(*dim, shape.rank())?;
                if dimensions.iter().take(i).any(|d| d == dim) {
                    return invalid!("quantized dimension {dim} is named twice");
                }
            }
            Ok(())
        }
        Quantization::Blockwise { .. } | Quantization::Custom(_) => Ok(()),
    }
}

fn check_dimension(dim: usize, rank: usize) -> Result<(), Invalid> {
    match dim < rank {
        true => Ok(()),
        false => {
            invalid!("its quantized dimension {dim} is out of range for {}", counted(rank, "dimension"))
        }
    }
}

/// Checks the number of scales and zero points and, for types that are quantized, their values.
fn check_affine(affine: &Affine, ty: TensorType, shape: &Shape) -> Result<(), Invalid> {
    let Affine { scales, zero_points, dimension } = affine;
    if zero_points.len() != scales.len() {
        return invalid!(
            "its quantization has {}, but {}",
            counted(scales.len(), "scale"),
            counted(zero_points.len(), "zero point")
        );
    }
    // A scalar has no dimensions; the default, 0, is allowed for it.
    check_dimension(*dimension, shape.rank().max(1))?;
    if scales.len() != 1 && shape.get(*dimension) != Some(&scales.len()) {
        let expected = match shape.get(*dimension) {
            Some(extent) => format!("1 or {extent} (dimension {dimension} of its shape {shape})"),
            None => "1 (it is a scalar)".into(),
        };
        return invalid!("its quantization has {} scales, expected {expected}", scales.len());
    }
    // The quantization of a float tensor has no effect: its values are not checked.
    let Some((low, high)) = zero_point_range(ty) else { return Ok(()) };
    for (i, (scale, zero_point)) in scales.iter().zip(zero_points.iter()).enumerate() {
        let of = || if scales.len() == 1 { String::new() } else { format!(" of channel {i}") };
        if !scale.is_finite() || *scale < 0.0 {
            return invalid!("its scale{} is {scale}; scales are finite and not negative", of());
        }
        if !(low..=high).contains(&zero_point) {
            return invalid!(
                "its zero point{} is {zero_point}, outside {low} to {high}, the range of {ty}",
                of()
            );
        }
    }
    Ok(())
}

/// The zero points that a type can have; `None` for types that are not quantized.
fn zero_point_range(ty: TensorType) -> Option<(i64, i64)> {
    Some(match ty {
        TensorType::Int2 => (-2, 1),
        TensorType::Int4 => (-8, 7),
        TensorType::UInt4 => (0, 15),
        TensorType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        TensorType::UInt8 => (0, u8::MAX.into()),
        TensorType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        TensorType::UInt16 => (0, u16::MAX.into()),
        // Kernels compute zero points as 32-bit numbers.
        TensorType::Int32 | TensorType::Int64 => (i32::MIN.into(), i32::MAX.into()),
        _ => return None,
    })
}

/// Checks the tensors that hold scales and zero points: they exist, scales are floats, and the number of those of
/// blocks fits the tensor's shape.
pub(super) fn check_scale_tensors(tensors: &[Tensor]) -> Result<(), Invalid> {
    for (i, tensor) in tensors.iter().enumerate() {
        let Some(quantization) = tensor.quantization.as_deref() else { continue };
        check_scales(tensors, tensor, quantization).map_err(|e| at_tensor(i, &tensor.name, e))?;
    }
    Ok(())
}

fn check_scales(tensors: &[Tensor], tensor: &Tensor, quantization: &Quantization) -> Result<(), Invalid> {
    let (Quantization::Blockwise { scales, zero_points, .. }
    | Quantization::MultiAxis { scales, zero_points, .. }) = quantization
    else {
        return Ok(());
    };
    let count = tensors.len();
    let get = |TensorId(id): TensorId, what: &str| {
        let found = tensors.get(id);
        found.map_or_else(
            || invalid!("its {what} are tensor {id}, which is out of range for {}", counted(count, "tensor")),
            Ok,
        )
    };
    let table = get(*scales, "scales")?;
    if !matches!(table.ty, TensorType::Float16 | TensorType::BFloat16 | TensorType::Float32) {
        return invalid!(
            "its scales are tensor {} of type {}, expected FLOAT16, BFLOAT16 or FLOAT32",
            scales.0,
            table.ty
        );
    }
    let zeros = zero_points.map(|id| get(id, "zero points")).transpose()?;
    let Quantization::Blockwise { block_size, .. } = quantization else { return Ok(()) };
    let shape = &tensor.shape;
    let blocks = shape.last().filter(|&extent| extent.checked_rem(*block_size) == Some(0));
    if blocks.is_none() {
        return invalid!(
            "blocks of {} do not divide the last dimension of its shape {shape}",
            counted(block_size, "element")
        );
    }
    let expected = shape.elements().checked_div(*block_size);
    let fits = |t: &Tensor| Some(t.shape.elements()) == expected;
    let expected = expected.unwrap_or_default();
    if !fits(table) {
        return invalid!(
            "its scales are tensor {} of shape {}, but shape {shape} in blocks of {block_size} needs \
             {expected} of them",
            scales.0,
            table.shape
        );
    }
    // One zero point for all blocks is enough.
    match zeros {
        Some(zeros) if zeros.shape.elements() != 1 && !fits(zeros) => {
            let expected = counted(expected, "block");
            invalid!("its zero points are a tensor of shape {}, but it has {expected}", zeros.shape)
        }
        _ => Ok(()),
    }
}
