//! Tensors: type, shape, quantization, sparsity and constant data.

use std::ops::Range;
use std::sync::Arc;

use super::{Buffers, Invalid, invalid, quantization};
use crate::graph::{Tensor, VariantType};
use crate::kernel::Strings;
use crate::schema;
use crate::shape::Shape;
use crate::sparsity::{Indices, Level, Sparsity, Width};
use crate::types::TensorType;

/// Ranks above this do not occur, even in tests of rank.
const MAX_RANK: usize = 64;

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
    if shape.rank() > MAX_RANK {
        return invalid!("rank {} is above {MAX_RANK}", shape.rank());
    }
    let Some(elements) = shape.checked_elements() else {
        return invalid!("the number of elements of {shape} overflows");
    };
    let shape_signature = read_shape_signature(table, &shape)?;
    let sparsity = table.sparsity().map(|s| read_sparsity(&s, buffers)).transpose()?;
    let stored = match &sparsity {
        Some(sparsity) => sparsity.validate(&shape).map_err(|e| Invalid(e.to_string()))?,
        None => elements,
    };
    let data = buffers.range(table.buffer())?;
    if data.is_some() && table.is_variable() {
        return invalid!("a variable cannot have constant data");
    }
    let data = data.map(|range| constant(range, ty, stored, buffers.file)).transpose()?;
    if sparsity.is_some() && data.is_none() {
        return invalid!("it is sparse, but has no data");
    }
    let quantization = table.quantization().map(|q| quantization::read(&q, ty, &shape)).transpose()?;
    let min_max = table.quantization().map(|q| quantization::min_max(&q, buffers)).transpose()?.flatten();
    Ok(Tensor {
        name: Arc::from(table.name().unwrap_or_default()),
        ty,
        shape,
        shape_signature,
        quantization: quantization.flatten().map(Arc::new),
        min_max: min_max.map(Arc::new),
        sparsity: sparsity.map(Arc::new),
        is_variable: table.is_variable(),
        // Data of no elements says nothing.
        data: data.filter(|range| !range.is_empty()),
        has_rank: table.has_rank(),
        variants: table
            .variant_tensors()
            .unwrap_or_default()
            .iter()
            .map(variant)
            .collect::<Result<_, _>>()?,
    })
}

/// Which dimensions may be resized: -1 in the file, `None` here.
fn read_shape_signature(
    table: &schema::Tensor<'_>,
    shape: &Shape,
) -> Result<Option<Vec<Option<usize>>>, Invalid> {
    let Some(signature) = table.shape_signature().filter(|s| !s.is_empty()) else { return Ok(None) };
    if signature.len() != shape.rank() {
        return invalid!(
            "its shape signature has {} dimensions, its shape {shape} has {}",
            signature.len(),
            shape.rank()
        );
    }
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
            Some(needed) => invalid!("its buffer has {len} bytes, its type and shape need {needed}"),
            None => invalid!("its size overflows"),
        },
    }
}

/// Checks that the strings of a tensor lie inside it.
fn check_strings(bytes: &[u8], elements: usize) -> Result<(), Invalid> {
    match Strings::parse(bytes) {
        Ok(strings) if strings.len() == elements => Ok(()),
        Ok(strings) => invalid!("it holds {} strings, its shape needs {elements}", strings.len()),
        Err(text) => invalid!("{text}"),
    }
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
    // An absent vector lies nowhere.
    let range = if bytes.is_empty() { 0..0 } else { buffers.range_of(bytes)? };
    Ok(Indices::in_file(width, buffers.bytes.clone(), range))
}

fn size(value: i32) -> Result<usize, Invalid> {
    usize::try_from(value)
        .map_err(|_| Invalid(format!("{value} is negative where a size or index is needed")))
}
