//! Tensors: type, shape, quantization, sparsity and constant data, as the file stores them. Whether they fit each other
//! is checked when the model is verified.

use std::ops::Range;
use std::sync::Arc;

use super::{Buffers, Invalid, invalid, quantization};
use crate::graph::{Tensor, VariantType};
use crate::schema;
use crate::types::Shape;
use crate::types::TensorType;
use crate::types::sparsity::{Indices, Level, Sparsity, Width};

pub(super) fn read(table: &schema::Tensor<'_>, buffers: &Buffers<'_>) -> Result<Tensor, Invalid> {
    let Some(ty) = TensorType::from_schema(table.type_()) else {
        let newest = TensorType::ALL.len().saturating_sub(1);
        return invalid!("unknown element type {}; this build knows 0 to {newest}", table.type_().0);
    };
    let mut shape = Shape::default();
    for dim in table.shape().unwrap_or_default() {
        match usize::try_from(dim) {
            Ok(dim) => shape.push(dim),
            Err(_) => return invalid!("dimension {dim} is negative"),
        }
    }
    let shape_signature = read_shape_signature(table)?;
    let sparsity = table.sparsity().map(|s| read_sparsity(&s, buffers)).transpose()?;
    let data = buffers.range(table.buffer())?.map(|range| {
        let stored = sparsity.as_ref().map_or_else(|| shape.checked_elements(), Sparsity::stored);
        stored.map_or(range.clone(), |stored| constant(range, ty, stored))
    });
    let quantization = table.quantization().map(|q| quantization::read(&q, &shape)).transpose()?;
    let min_max = table.quantization().map(|q| quantization::min_max(&q, buffers)).transpose()?.flatten();
    let mut tensor = Tensor::new(table.name().unwrap_or_default(), ty, shape);
    tensor.set_shape_signature(shape_signature);
    tensor.set_quantization(quantization.flatten());
    tensor.set_min_max(min_max);
    // Empty data of a dense tensor is the same as none.
    tensor.set_data(data.filter(|range| !range.is_empty() || sparsity.is_some()));
    tensor.set_sparsity(sparsity.map(Arc::new));
    tensor.set_variable(table.is_variable());
    tensor.set_has_rank(table.has_rank());
    let variants = table.variant_tensors().unwrap_or_default().iter().map(variant);
    tensor.set_variants(variants.collect::<Result<_, _>>()?);
    Ok(tensor)
}

/// Reads the dimensions that may be resized: -1 in the file, `None` here.
fn read_shape_signature(table: &schema::Tensor<'_>) -> Result<Option<Vec<Option<usize>>>, Invalid> {
    let Some(signature) = table.shape_signature().filter(|s| !s.is_empty()) else { return Ok(None) };
    signature.iter().map(|dim| maybe_unknown(dim, "shape signature")).collect::<Result<_, _>>().map(Some)
}

fn maybe_unknown(dim: i32, what: &str) -> Result<Option<usize>, Invalid> {
    match usize::try_from(dim) {
        Ok(dim) => Ok(Some(dim)),
        Err(_) if dim == -1 => Ok(None),
        Err(_) => invalid!("its {what} has the dimension {dim}; only -1 stands for an unknown one"),
    }
}

fn variant(table: schema::VariantSubType<'_>) -> Result<VariantType, Invalid> {
    let Some(ty) = TensorType::from_schema(table.type_()) else {
        return invalid!("unknown element type {} inside a variant", table.type_().0);
    };
    let shape = table.shape().unwrap_or_default().iter();
    let shape = shape.map(|dim| maybe_unknown(dim, "variant's shape")).collect::<Result<_, _>>()?;
    Ok(VariantType { ty, shape, has_rank: table.has_rank() })
}

/// The part of a buffer that the tensor needs; a shorter buffer is kept as it is, and verification rejects it.
fn constant(range: Range<usize>, ty: TensorType, stored: usize) -> Range<usize> {
    let needed = match ty {
        TensorType::String | TensorType::Resource | TensorType::Variant => None,
        _ => ty.byte_size(stored),
    };
    let end = needed.and_then(|needed| range.start.checked_add(needed)).filter(|&end| end <= range.end);
    range.start..end.unwrap_or(range.end)
}

fn read_sparsity(table: &schema::SparsityParameters<'_>, buffers: &Buffers<'_>) -> Result<Sparsity, Invalid> {
    let mut levels = Vec::new();
    for dim in table.dim_metadata().unwrap_or_default() {
        levels.push(match dim.format() {
            schema::DimensionType::DENSE => Level::Dense { size: size(dim.dense_size())? },
            schema::DimensionType::SPARSE_CSR => {
                let segments = indices_of(
                    dim.array_segments_as_int_32_vector(),
                    dim.array_segments_as_uint_16_vector(),
                    dim.array_segments_as_uint_8_vector(),
                    "segments",
                    buffers,
                )?;
                let indices = indices_of(
                    dim.array_indices_as_int_32_vector(),
                    dim.array_indices_as_uint_16_vector(),
                    dim.array_indices_as_uint_8_vector(),
                    "indices",
                    buffers,
                )?;
                Level::Csr { segments, indices }
            }
            other => return invalid!("unknown storage format {} of a sparse dimension", other.0),
        });
    }
    Ok(Sparsity {
        traversal_order: sizes(table.traversal_order())?,
        block_map: sizes(table.block_map())?,
        levels,
    })
}

fn sizes(list: Option<flatbuffers::Vector<'_, i32>>) -> Result<Vec<usize>, Invalid> {
    list.unwrap_or_default().iter().map(size).collect()
}

/// A list of indices that the file stores in one of three types.
fn indices_of(
    int32: Option<schema::Int32Vector<'_>>,
    uint16: Option<schema::Uint16Vector<'_>>,
    uint8: Option<schema::Uint8Vector<'_>>,
    what: &str,
    buffers: &Buffers<'_>,
) -> Result<Indices, Invalid> {
    let (width, bytes) = match (int32, uint16, uint8) {
        (Some(v), _, _) => {
            let values = v.values().unwrap_or_default();
            if let Some(v) = values.iter().find(|&v| v < 0) {
                return invalid!("{v} is negative where a size or index is needed");
            }
            (Width::Int32, values.bytes())
        }
        (_, Some(v), _) => (Width::UInt16, v.values().unwrap_or_default().bytes()),
        (_, _, Some(v)) => (Width::UInt8, v.values().unwrap_or_default().bytes()),
        _ => return invalid!("a sparse dimension has no {what}"),
    };
    // An absent vector has no position in the file.
    let range = if bytes.is_empty() { 0..0 } else { buffers.range_of(bytes)? };
    Ok(Indices::in_file(width, buffers.bytes.clone(), range))
}

fn size(value: i32) -> Result<usize, Invalid> {
    usize::try_from(value)
        .map_err(|_| Invalid(format!("{value} is negative where a size or index is needed")))
}
