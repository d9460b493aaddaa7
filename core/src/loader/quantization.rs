//! Quantization: which kind, and whether its numbers make sense.
//!
//! TFLite's own runtime reads scales that are no numbers and zero points outside the type and then computes nonsense;
//! here they are errors. A scale of zero is none: writers leave it for channels in which everything is zero.

use super::{Buffers, Invalid, index_in, invalid};
use crate::graph::Tensor;
use crate::quantization::{Affine, MinMax, Quantization};
use crate::schema;
use crate::shape::Shape;
use crate::types::TensorType;

pub(super) fn read(
    table: &schema::QuantizationParameters<'_>,
    ty: TensorType,
    shape: &Shape,
) -> Result<Option<Quantization>, Invalid> {
    let index = |i: i32| usize::try_from(i).ok();
    match table.details_type() {
        schema::QuantizationDetails::NONE => affine(table, ty, shape),
        schema::QuantizationDetails::CustomQuantization => {
            let custom = table.details_as_custom_quantization().and_then(|c| c.custom());
            Ok(Some(Quantization::Custom(custom.map(|b| b.bytes().to_vec()).unwrap_or_default())))
        }
        schema::QuantizationDetails::BlockwiseQuantization => {
            let Some(blocks) = table.details_as_blockwise_quantization() else {
                return invalid!("blockwise quantization without its details");
            };
            let (Some(scales), Some(block_size)) = (index(blocks.scales()), positive(blocks.block_size()))
            else {
                return invalid!(
                    "blockwise quantization names tensor {} as its scales and {} as its block size",
                    blocks.scales(),
                    blocks.block_size()
                );
            };
            Ok(Some(Quantization::Blockwise { scales, zero_points: index(blocks.zero_points()), block_size }))
        }
        schema::QuantizationDetails::MultiAxisQuantization => {
            let Some(axes) = table.details_as_multi_axis_quantization() else {
                return invalid!("multi-axis quantization without its details");
            };
            let (Some(scales), Some(block_size)) = (index(axes.scales()), index(axes.block_size())) else {
                return invalid!(
                    "multi-axis quantization names tensor {} as its scales and {} as its block size",
                    axes.scales(),
                    axes.block_size()
                );
            };
            let mut dimensions = Vec::new();
            for dim in axes.quantized_dimensions().unwrap_or_default() {
                let dim = index_in(dim, shape.rank(), "its quantized dimension", "dimensions")?;
                if dimensions.contains(&dim) {
                    return invalid!("quantized dimension {dim} is named twice");
                }
                dimensions.push(dim);
            }
            let zero_points = index(axes.zero_points());
            Ok(Some(Quantization::MultiAxis { scales, zero_points, block_size, dimensions }))
        }
        other => invalid!("unknown kind {} of quantization details", other.0),
    }
}

fn positive(value: i32) -> Option<usize> {
    usize::try_from(value).ok().filter(|&v| v > 0)
}

/// Per tensor or per channel.
fn affine(
    table: &schema::QuantizationParameters<'_>,
    ty: TensorType,
    shape: &Shape,
) -> Result<Option<Quantization>, Invalid> {
    let scales: Vec<f32> = table.scale().map(|s| s.iter().collect()).unwrap_or_default();
    if scales.is_empty() {
        return Ok(None);
    }
    let zero_points: Vec<i64> = table.zero_point().map(|z| z.iter().collect()).unwrap_or_default();
    if zero_points.len() != scales.len() {
        return invalid!(
            "its quantization has {} scales, but {} zero points",
            scales.len(),
            zero_points.len()
        );
    }
    // A scalar has no dimensions; 0, the default, stands for "none" there.
    let dimension =
        index_in(table.quantized_dimension(), shape.rank().max(1), "its quantized dimension", "dimensions")?;
    if scales.len() != 1 && shape.get(dimension) != Some(&scales.len()) {
        let expected = match shape.get(dimension) {
            Some(extent) => format!("1 or {extent} (dimension {dimension} of its shape {shape})"),
            None => "1 (it is a scalar)".into(),
        };
        return invalid!("its quantization has {} scales, expected {expected}", scales.len());
    }
    // What floats are said to be quantized with means nothing and is not looked at.
    if let Some((low, high)) = zero_point_range(ty) {
        for (i, (scale, zero_point)) in scales.iter().zip(&zero_points).enumerate() {
            let of = if scales.len() == 1 { String::new() } else { format!(" of channel {i}") };
            if !scale.is_finite() || *scale < 0.0 {
                return invalid!("its scale{of} is {scale}; scales are finite and not negative");
            }
            if !(low..=high).contains(zero_point) {
                return invalid!(
                    "its zero point{of} is {zero_point}, outside {low} to {high}, the range of {ty}"
                );
            }
        }
    }
    Ok(Some(Quantization::Affine(Affine { scales, zero_points: zero_points.into(), dimension })))
}

/// Which zero points a type can have; `None` for types that are not quantized.
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

/// What the file says of the values that a tensor was seen to hold.
pub(super) fn min_max(
    table: &schema::QuantizationParameters<'_>,
    buffers: &Buffers<'_>,
) -> Result<Option<MinMax>, Invalid> {
    let range = |v: Option<flatbuffers::Vector<'_, f32>>| {
        v.filter(|v| !v.is_empty()).map(|v| buffers.range_of(v.bytes())).transpose()
    };
    let (min, max) = (range(table.min())?, range(table.max())?);
    let some = min.is_some() || max.is_some();
    let in_file = || MinMax::in_file(buffers.bytes.clone(), min.unwrap_or_default(), max.unwrap_or_default());
    Ok(some.then(in_file))
}

/// Scales in tensors of the same subgraph: they exist, and there are as many as the tensor's shape asks for.
pub(super) fn check_scale_tensors(tensors: &mut [Tensor]) -> Result<(), Invalid> {
    for i in 0..tensors.len() {
        let Some(quantization) = tensors.get(i).and_then(|t| t.quantization.clone()) else { continue };
        let (scales, zero_points) = match &*quantization {
            Quantization::Blockwise { scales, zero_points, .. }
            | Quantization::MultiAxis { scales, zero_points, .. } => (*scales, *zero_points),
            _ => continue,
        };
        let Some(tensor) = tensors.get(i) else { continue };
        let named = |e: Invalid| Invalid(format!("tensor {i} (\"{}\"): {}", tensor.name, e.0));
        let checked = check_scales(tensors, tensor, &quantization, scales, zero_points).map_err(named)?;
        if let Some(quantization) = checked
            && let Some(tensor) = tensors.get_mut(i)
        {
            tensor.quantization = Some(quantization.into());
        }
    }
    Ok(())
}

/// The quantization to use instead, where it is another.
fn check_scales(
    tensors: &[Tensor],
    tensor: &Tensor,
    quantization: &Quantization,
    scales: usize,
    zero_points: Option<usize>,
) -> Result<Option<Quantization>, Invalid> {
    let count = tensors.len();
    let get = |id: usize, what: &str| {
        let found = tensors.get(id);
        found.map_or_else(
            || invalid!("its {what} are tensor {id}, which does not exist; there are {count} tensors"),
            Ok,
        )
    };
    let table = get(scales, "scales")?;
    if !matches!(table.ty, TensorType::Float16 | TensorType::BFloat16 | TensorType::Float32) {
        return invalid!("its scales are tensor {scales} of type {}, expected FLOAT16 or FLOAT32", table.ty);
    }
    let zeros = zero_points.map(|id| get(id, "zero points")).transpose()?;
    let Quantization::Blockwise { block_size, .. } = quantization else { return Ok(None) };
    let blocks = tensor.shape.last().filter(|&extent| extent.checked_rem(*block_size) == Some(0));
    if blocks.is_none() {
        return invalid!(
            "blocks of {block_size} elements do not divide the last dimension of its shape {}",
            tensor.shape
        );
    }
    let expected = tensor.shape.elements().checked_div(*block_size);
    let fits = |t: &Tensor| Some(t.shape.elements()) == expected;
    if !fits(table) {
        return invalid!(
            "its scales are tensor {scales} of shape {}, but shape {} in blocks of {block_size} needs {} of them",
            table.shape,
            tensor.shape,
            expected.unwrap_or_default()
        );
    }
    match zeros {
        // 0 is what the field reads as where a writer left it out, meaning that there are none.
        Some(zeros) if zero_points == Some(0) && !(zeros.is_constant() && fits(zeros)) => {
            Ok(Some(Quantization::Blockwise { scales, zero_points: None, block_size: *block_size }))
        }
        // One for all blocks is enough.
        Some(zeros) if zeros.shape.elements() != 1 && !fits(zeros) => invalid!(
            "its zero points are a tensor of shape {}, but it has {} blocks",
            zeros.shape,
            expected.unwrap_or_default()
        ),
        _ => Ok(None),
    }
}
