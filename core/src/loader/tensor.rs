//! Tensors: type, shape, quantization, sparsity and constant data.

use std::ops::Range;
use std::sync::Arc;

use super::{Buffers, Invalid, invalid};
use crate::graph::Tensor;
use crate::quantization::{Affine, Quantization};
use crate::schema;
use crate::shape::Shape;
use crate::sparsity::{Level, Sparsity};
use crate::types::TensorType;

/// Ranks above this do not occur, even in tests of rank.
const MAX_RANK: usize = 64;

pub(super) fn read(table: &schema::Tensor<'_>, buffers: &Buffers<'_>) -> Result<Tensor, Invalid> {
    let Some(ty) = TensorType::from_schema(table.type_()) else {
        return invalid!("unknown element type {}", table.type_().0);
    };
    let mut shape = Shape::default();
    for dim in table.shape().unwrap_or_default() {
        match usize::try_from(dim) {
            Ok(dim) => shape.push(dim),
            Err(_) => return invalid!("dimension {dim} is negative"),
        }
    }
    if shape.rank() > MAX_RANK {
        return invalid!("rank {} is above {MAX_RANK}", shape.rank());
    }
    let Some(elements) = shape.checked_elements() else {
        return invalid!("the number of elements of {shape} overflows");
    };
    let shape_signature = table
        .shape_signature()
        .filter(|s| !s.is_empty())
        .map(|signature| signature.iter().map(|d| usize::try_from(d).ok()).collect::<Vec<_>>());
    let sparsity = table.sparsity().map(|s| read_sparsity(&s)).transpose()?;
    let stored = match &sparsity {
        Some(sparsity) => sparsity.validate(&shape).map_err(|e| Invalid(e.to_string()))?,
        None => elements,
    };
    if table.external_buffer() != 0 {
        return invalid!(
            "its data is in another file (external buffer {}), which is not supported",
            table.external_buffer()
        );
    }
    let data = buffers.range(table.buffer())?;
    if data.is_some() && table.is_variable() {
        return invalid!("a variable cannot have constant data");
    }
    let data = data.map(|range| constant(range, ty, stored, buffers.file)).transpose()?;
    if sparsity.is_some() && data.is_none() {
        return invalid!("it is sparse, but has no data");
    }
    let quantization = table.quantization().map(|q| read_quantization(&q, &shape)).transpose()?.flatten();
    Ok(Tensor {
        name: Arc::from(table.name().unwrap_or_default()),
        ty,
        shape,
        shape_signature,
        quantization: quantization.map(Arc::new),
        sparsity: sparsity.map(Arc::new),
        is_variable: table.is_variable(),
        data,
    })
}

/// Checks that constant data is as long as it must be.
fn constant(
    range: Range<usize>,
    ty: TensorType,
    stored: usize,
    file: &[u8],
) -> Result<Range<usize>, Invalid> {
    let len = range.len();
    match ty {
        TensorType::String => {
            check_strings(file.get(range.clone()).unwrap_or_default(), stored).map(|()| range)
        }
        TensorType::Resource | TensorType::Variant => invalid!("a {ty} tensor cannot have constant data"),
        _ => match ty.byte_size(stored) {
            Some(needed) if len >= needed => match range.start.checked_add(needed) {
                Some(end) => Ok(range.start..end),
                None => invalid!("its size overflows"),
            },
            Some(needed) => invalid!("its buffer has {len} bytes, type and shape need {needed}"),
            None => invalid!("its size overflows"),
        },
    }
}

/// The layout of a string tensor: count, `count + 1` offsets from the start, bytes.
fn check_strings(bytes: &[u8], elements: usize) -> Result<(), Invalid> {
    let word = |i: usize| {
        let at = i.checked_mul(4)?;
        let word = bytes.get(at..at.checked_add(4)?)?;
        usize::try_from(i32::from_le_bytes(word.try_into().ok()?)).ok()
    };
    let count = word(0);
    if count != Some(elements) {
        return invalid!("it holds {count:?} strings, its shape needs {elements}");
    }
    let mut previous = elements.checked_add(2).and_then(|n| n.checked_mul(4));
    for i in 0..=elements {
        let offset = i.checked_add(1).and_then(word);
        if offset.is_none() || offset < previous || offset > Some(bytes.len()) {
            return invalid!("string {i} lies outside its buffer of {} bytes", bytes.len());
        }
        previous = offset;
    }
    Ok(())
}

fn read_quantization(
    table: &schema::QuantizationParameters<'_>,
    shape: &Shape,
) -> Result<Option<Quantization>, Invalid> {
    if let Some(custom) = table.details_as_custom_quantization() {
        let bytes = custom.custom().map(|b| b.bytes().to_vec()).unwrap_or_default();
        return Ok(Some(Quantization::Custom(bytes)));
    }
    if let Some(blocks) = table.details_as_blockwise_quantization() {
        let index = |i: i32| usize::try_from(i).ok();
        let (Some(scales), Some(block_size)) =
            (index(blocks.scales()), index(blocks.block_size()).filter(|&b| b > 0))
        else {
            return invalid!(
                "blockwise quantization with scales tensor {} and block size {}",
                blocks.scales(),
                blocks.block_size()
            );
        };
        return Ok(Some(Quantization::Blockwise {
            scales,
            zero_points: index(blocks.zero_points()),
            block_size,
        }));
    }
    let scales: Vec<f32> = table.scale().map(|s| s.iter().collect()).unwrap_or_default();
    if scales.is_empty() {
        return Ok(None);
    }
    let mut zero_points: Vec<i64> = table.zero_point().map(|z| z.iter().collect()).unwrap_or_default();
    if zero_points.is_empty() {
        zero_points = vec![0; scales.len()];
    }
    if zero_points.len() != scales.len() {
        return invalid!("{} scales, but {} zero points", scales.len(), zero_points.len());
    }
    let dimension = match (scales.len(), usize::try_from(table.quantized_dimension())) {
        (1, dimension) => dimension.unwrap_or(0),
        (n, Ok(dimension)) if shape.get(dimension) == Some(&n) => dimension,
        (n, _) => {
            return invalid!("{n} scales do not fit dimension {} of {shape}", table.quantized_dimension());
        }
    };
    Ok(Some(Quantization::Affine(Affine { scales, zero_points, dimension })))
}

/// Scales of blockwise quantization are tensors of the same subgraph.
pub(super) fn check_blockwise(tensors: &[Tensor]) -> Result<(), Invalid> {
    for (i, tensor) in tensors.iter().enumerate() {
        let Some(Quantization::Blockwise { scales, zero_points, .. }) = tensor.quantization.as_deref() else {
            continue;
        };
        if let Some(id) = [Some(*scales), *zero_points].into_iter().flatten().find(|&id| id >= tensors.len())
        {
            return invalid!("tensor {i}: its blockwise scales are tensor {id}; there are {}", tensors.len());
        }
    }
    Ok(())
}

fn read_sparsity(table: &schema::SparsityParameters<'_>) -> Result<Sparsity, Invalid> {
    let sizes = |list: Option<flatbuffers::Vector<'_, i32>>| {
        let list = list.unwrap_or_default();
        list.iter().map(size).collect::<Result<Vec<usize>, Invalid>>()
    };
    let mut levels = Vec::new();
    for dim in table.dim_metadata().unwrap_or_default() {
        levels.push(match dim.format() {
            schema::DimensionType::DENSE => Level::Dense { size: size(dim.dense_size())? },
            schema::DimensionType::SPARSE_CSR => {
                let segments = match (
                    dim.array_segments_as_int_32_vector(),
                    dim.array_segments_as_uint_16_vector(),
                    dim.array_segments_as_uint_8_vector(),
                ) {
                    (Some(v), _, _) => sizes(v.values())?,
                    (_, Some(v), _) => v.values().unwrap_or_default().iter().map(usize::from).collect(),
                    (_, _, Some(v)) => v.values().unwrap_or_default().iter().map(usize::from).collect(),
                    _ => return invalid!("a sparse dimension has no segments"),
                };
                let indices = match (
                    dim.array_indices_as_int_32_vector(),
                    dim.array_indices_as_uint_16_vector(),
                    dim.array_indices_as_uint_8_vector(),
                ) {
                    (Some(v), _, _) => sizes(v.values())?,
                    (_, Some(v), _) => v.values().unwrap_or_default().iter().map(usize::from).collect(),
                    (_, _, Some(v)) => v.values().unwrap_or_default().iter().map(usize::from).collect(),
                    _ => return invalid!("a sparse dimension has no indices"),
                };
                Level::Csr { segments, indices }
            }
            other => return invalid!("unknown storage {} of a sparse dimension", other.0),
        });
    }
    Ok(Sparsity {
        traversal_order: sizes(table.traversal_order())?,
        block_map: sizes(table.block_map())?,
        levels,
    })
}

fn size(value: i32) -> Result<usize, Invalid> {
    usize::try_from(value)
        .map_err(|_| Invalid(format!("{value} is negative where a size or index is needed")))
}
