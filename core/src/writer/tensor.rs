//! Tensors: type, shape, quantization and sparsity.

use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use super::data::aligned;
use super::int;
use crate::graph::{Subgraph, Tensor, VariantType};
use crate::schema;
use crate::types::TensorType;
use crate::types::quantization::{Affine, Quantization};
use crate::types::sparsity::{Indices, Level, Sparsity, Width};

type Fb<'f> = FlatBufferBuilder<'f>;
type Written<T> = Result<WIPOffset<T>, String>;

pub(super) fn write<'f>(
    fb: &mut Fb<'f>,
    subgraph: &Subgraph,
    tensor: &Tensor,
    buffer: u32,
) -> Written<schema::Tensor<'f>> {
    let shape = ints(tensor.shape().dims())?;
    let shape = Some(fb.create_vector(&shape));
    let shape_signature = match tensor.shape_signature() {
        Some(signature) => {
            let signature = maybe_unknown(signature)?;
            Some(fb.create_vector(&signature))
        }
        None => None,
    };
    let quantization = match (tensor.quantization(), tensor.min_max()) {
        (None, None) => None,
        _ => Some(quantization(fb, subgraph, tensor)?),
    };
    let sparsity = tensor.sparsity().map(|s| sparsity(fb, s)).transpose()?;
    let mut variants = Vec::with_capacity(tensor.variants().len());
    for variant in tensor.variants() {
        variants.push(write_variant(fb, variant)?);
    }
    let args = schema::TensorArgs {
        shape,
        type_: code(tensor.ty()),
        buffer,
        name: (!tensor.name().is_empty()).then(|| fb.create_string(tensor.name())),
        quantization,
        is_variable: tensor.is_variable(),
        sparsity,
        shape_signature,
        has_rank: tensor.has_rank(),
        variant_tensors: (!variants.is_empty()).then(|| fb.create_vector(&variants)),
        external_buffer: 0,
    };
    Ok(schema::Tensor::create(fb, &args))
}

fn code(ty: TensorType) -> schema::TensorType {
    schema::TensorType(ty as i8)
}

fn ints(values: &[usize]) -> Result<Vec<i32>, String> {
    values.iter().map(|&v| int(v)).collect()
}

/// Converts dimensions, with -1 for unknown ones.
fn maybe_unknown(dims: &[Option<usize>]) -> Result<Vec<i32>, String> {
    dims.iter().map(|dim| dim.map_or(Ok(-1), int)).collect()
}

fn write_variant<'f>(fb: &mut Fb<'f>, variant: &VariantType) -> Written<schema::VariantSubType<'f>> {
    let shape = maybe_unknown(&variant.shape)?;
    let shape = Some(fb.create_vector(&shape));
    let args = schema::VariantSubTypeArgs { shape, type_: code(variant.ty), has_rank: variant.has_rank };
    Ok(schema::VariantSubType::create(fb, &args))
}

fn quantization<'f>(
    fb: &mut Fb<'f>,
    subgraph: &Subgraph,
    tensor: &Tensor,
) -> Written<schema::QuantizationParameters<'f>> {
    use schema::QuantizationDetails as Details;
    let mut args = schema::QuantizationParametersArgs::default();
    if let Some(range) = tensor.min_max() {
        let (min, max) = (range.min(), range.max());
        args.min = (!min.is_empty()).then(|| fb.create_vector(&min));
        args.max = (!max.is_empty()).then(|| fb.create_vector(&max));
    }
    match tensor.quantization() {
        None => {}
        Some(Quantization::Affine(Affine { scales, zero_points, dimension })) => {
            args.scale = Some(fb.create_vector(scales));
            args.zero_point = Some(fb.create_vector(zero_points.as_slice()));
            args.quantized_dimension = int(*dimension)?;
        }
        Some(Quantization::Blockwise { scales, zero_points, block_size }) => {
            let details = schema::BlockwiseQuantizationArgs {
                scales: int(scales.0)?,
                zero_points: match zero_points {
                    Some(tensor) => int(tensor.0)?,
                    // A reader could interpret the default 0 as tensor 0.
                    None if subgraph.tensors().first().is_some_and(Tensor::is_constant) => -1,
                    None => 0,
                },
                block_size: int(*block_size)?,
            };
            let details = schema::BlockwiseQuantization::create(fb, &details).as_union_value();
            (args.details_type, args.details) = (Details::BlockwiseQuantization, Some(details));
        }
        Some(Quantization::MultiAxis { scales, zero_points, block_size, dimensions }) => {
            let dimensions = ints(dimensions)?;
            let details = schema::MultiAxisQuantizationArgs {
                scales: int(scales.0)?,
                zero_points: zero_points.map_or(Ok(-1), |tensor| int(tensor.0))?,
                block_size: int(*block_size)?,
                quantized_dimensions: Some(fb.create_vector(&dimensions)),
            };
            let details = schema::MultiAxisQuantization::create(fb, &details).as_union_value();
            (args.details_type, args.details) = (Details::MultiAxisQuantization, Some(details));
        }
        Some(Quantization::Custom(bytes)) => {
            let custom = Some(aligned(fb, bytes));
            let details = schema::CustomQuantization::create(fb, &schema::CustomQuantizationArgs { custom });
            (args.details_type, args.details) = (Details::CustomQuantization, Some(details.as_union_value()));
        }
    }
    Ok(schema::QuantizationParameters::create(fb, &args))
}

fn sparsity<'f>(fb: &mut Fb<'f>, sparsity: &Sparsity) -> Written<schema::SparsityParameters<'f>> {
    let mut levels = Vec::with_capacity(sparsity.levels.len());
    for level in &sparsity.levels {
        let args = match level {
            Level::Dense { size } => schema::DimensionMetadataArgs {
                format: schema::DimensionType::DENSE,
                dense_size: int(*size)?,
                ..Default::default()
            },
            Level::Csr { segments, indices } => {
                let (array_segments_type, segments) = list_of_indices(fb, segments)?;
                let (array_indices_type, indices) = list_of_indices(fb, indices)?;
                schema::DimensionMetadataArgs {
                    format: schema::DimensionType::SPARSE_CSR,
                    array_segments_type,
                    array_segments: Some(segments),
                    array_indices_type,
                    array_indices: Some(indices),
                    ..Default::default()
                }
            }
        };
        levels.push(schema::DimensionMetadata::create(fb, &args));
    }
    let (order, blocks) = (ints(&sparsity.traversal_order)?, ints(&sparsity.block_map)?);
    let args = schema::SparsityParametersArgs {
        traversal_order: Some(fb.create_vector(&order)),
        block_map: (!blocks.is_empty()).then(|| fb.create_vector(&blocks)),
        dim_metadata: Some(fb.create_vector(&levels)),
    };
    Ok(schema::SparsityParameters::create(fb, &args))
}

/// A list of indices in its storage type.
fn list_of_indices(
    fb: &mut Fb<'_>,
    indices: &Indices,
) -> Result<(schema::SparseIndexVector, WIPOffset<UnionWIPOffset>), String> {
    use schema::SparseIndexVector as Index;
    let unfit = |v: usize| format!("index {v} does not fit its type");
    fn narrow<T: TryFrom<usize>>(indices: &Indices, unfit: fn(usize) -> String) -> Result<Vec<T>, String> {
        indices.iter().map(|v| T::try_from(v).map_err(|_| unfit(v))).collect()
    }
    Ok(match indices.width() {
        Width::UInt8 => {
            let values = Some(fb.create_vector(&narrow::<u8>(indices, unfit)?));
            let table = schema::Uint8Vector::create(fb, &schema::Uint8VectorArgs { values });
            (Index::Uint8Vector, table.as_union_value())
        }
        Width::UInt16 => {
            let values = Some(fb.create_vector(&narrow::<u16>(indices, unfit)?));
            let table = schema::Uint16Vector::create(fb, &schema::Uint16VectorArgs { values });
            (Index::Uint16Vector, table.as_union_value())
        }
        Width::Int32 => {
            let values = Some(fb.create_vector(&narrow::<i32>(indices, unfit)?));
            let table = schema::Int32Vector::create(fb, &schema::Int32VectorArgs { values });
            (Index::Int32Vector, table.as_union_value())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_above_the_format_are_an_error() {
        let mut fb = FlatBufferBuilder::new();
        assert!(list_of_indices(&mut fb, &Indices::smallest(&[0, (1 << 31) - 1])).is_ok());
        let message = list_of_indices(&mut fb, &Indices::smallest(&[1 << 31])).err();
        assert_eq!(message.as_deref(), Some("index 2147483648 does not fit its type"));
    }
}
