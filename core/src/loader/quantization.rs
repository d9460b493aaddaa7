//! Quantization, as the file stores it. Whether its numbers make sense is checked when the model is verified.

use super::{Buffers, Invalid, index_in, invalid};
use crate::graph::Tensor;
use crate::schema;
use crate::types::quantization::{Affine, MinMax, Quantization};
use crate::types::{Shape, TensorId};

pub(super) fn read(
    table: &schema::QuantizationParameters<'_>,
    shape: &Shape,
) -> Result<Option<Quantization>, Invalid> {
    let index = |i: i32| usize::try_from(i).ok();
    let id = |i: i32| index(i).map(TensorId);
    match table.details_type() {
        schema::QuantizationDetails::NONE => affine(table),
        schema::QuantizationDetails::CustomQuantization => {
            let custom = table.details_as_custom_quantization().and_then(|c| c.custom());
            Ok(Some(Quantization::Custom(custom.map(|b| b.bytes().to_vec()).unwrap_or_default())))
        }
        schema::QuantizationDetails::BlockwiseQuantization => {
            let Some(blocks) = table.details_as_blockwise_quantization() else {
                return invalid!("blockwise quantization without its details");
            };
            let (Some(scales), Some(block_size)) = (id(blocks.scales()), positive(blocks.block_size()))
            else {
                return invalid!(
                    "blockwise quantization names tensor {} as its scales and {} as its block size",
                    blocks.scales(),
                    blocks.block_size()
                );
            };
            Ok(Some(Quantization::Blockwise { scales, zero_points: id(blocks.zero_points()), block_size }))
        }
        schema::QuantizationDetails::MultiAxisQuantization => {
            let Some(axes) = table.details_as_multi_axis_quantization() else {
                return invalid!("multi-axis quantization without its details");
            };
            let (Some(scales), Some(block_size)) = (id(axes.scales()), index(axes.block_size())) else {
                return invalid!(
                    "multi-axis quantization names tensor {} as its scales and {} as its block size",
                    axes.scales(),
                    axes.block_size()
                );
            };
            let dimensions = axes.quantized_dimensions().unwrap_or_default().iter();
            let dimensions =
                dimensions.map(|dim| index_in(dim, shape.rank(), "its quantized dimension", "dimension"));
            let dimensions = dimensions.collect::<Result<_, _>>()?;
            let zero_points = id(axes.zero_points());
            Ok(Some(Quantization::MultiAxis { scales, zero_points, block_size, dimensions }))
        }
        other => invalid!("unknown kind {} of quantization details", other.0),
    }
}

fn positive(value: i32) -> Option<usize> {
    usize::try_from(value).ok().filter(|&v| v > 0)
}

/// Reads affine quantization; `None` if there are no scales.
fn affine(table: &schema::QuantizationParameters<'_>) -> Result<Option<Quantization>, Invalid> {
    let scales: Vec<f32> = table.scale().map(|s| s.iter().collect()).unwrap_or_default();
    if scales.is_empty() {
        return Ok(None);
    }
    let zero_points: Vec<i64> = table.zero_point().map(|z| z.iter().collect()).unwrap_or_default();
    let Some(dimension) = usize::try_from(table.quantized_dimension()).ok() else {
        return invalid!("its quantized dimension {} is negative", table.quantized_dimension());
    };
    Ok(Some(Quantization::Affine(Affine { scales, zero_points: zero_points.into(), dimension })))
}

/// Returns the range of values that the file declares for a tensor.
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

/// Removes zero points of blockwise quantization that are tensor 0 only by default: a writer without zero points omits
/// the field, which then reads as 0.
pub(super) fn drop_default_zero_points(tensors: &mut [Tensor]) {
    let Some(zeros) = tensors.first() else { return };
    let (constant, count) = (zeros.is_constant(), zeros.shape().elements());
    for tensor in tensors {
        let Some(Quantization::Blockwise { scales, zero_points: Some(TensorId(0)), block_size }) =
            tensor.quantization()
        else {
            continue;
        };
        if !constant || Some(count) != tensor.shape().elements().checked_div(*block_size) {
            let (scales, block_size) = (*scales, *block_size);
            let without = Quantization::Blockwise { scales, zero_points: None, block_size };
            tensor.set_quantization(without);
        }
    }
}
