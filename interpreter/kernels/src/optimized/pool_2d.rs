//! AVERAGE_POOL_2D and MAX_POOL_2D in single precision, 8 and 16 bits.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{clamp_of, compute_error, geometry, is_long_row, optimize};
use crate::common::prepared::Invoke;
use crate::common::quantized::activation_range;
use delegraph_compute::{Isa, Pool, pool_2d, pool_2d_bytes, pool_2d_int16};

/// Maximum number of taps of a window of integers.
const MAX_TAPS: usize = 1 << 15;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::AVERAGE_POOL_2D, 1..=3, |cx| prepare(cx, Pool::Average));
    optimize(resolver, BuiltinOp::MAX_POOL_2D, 1..=3, |cx| prepare(cx, Pool::Max));
}

fn prepare(cx: &mut PrepareContext<'_>, kind: Pool) -> Result<Option<Invoke>> {
    let p: &Pool2DParams = cx.params()?;
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let (Ok(height), Ok(width)) = (usize::try_from(p.filter_height), usize::try_from(p.filter_width)) else {
        return Ok(None);
    };
    let Some(geo) = geometry(input, output, [height, width], [p.stride_h, p.stride_w], [1, 1], p.padding)
    else {
        return Ok(None);
    };
    // The reference kernel reports windows that are entirely padding.
    let Ok(geo) = geo.checked() else { return Ok(None) };
    if geo.has_empty_window {
        return Ok(None);
    }
    let &[_, input_height, input_width, _] = &input.shape()[..] else { return Ok(None) };
    let window = height.min(input_height).saturating_mul(width.min(input_width));
    if is_long_row(output.shape()[2], window, output.shape()[3]) {
        return Ok(None);
    }
    let isa = Isa::best();
    match input.ty() {
        TensorType::Float32 => {
            let Some(clamp) = clamp_of(p.fused_activation_function) else { return Ok(None) };
            Ok(Some(Box::new(move |cx| {
                let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
                pool_2d(isa, kind, &geo, input, output, clamp, cx.parallel()).map_err(compute_error)
            })))
        }
        TensorType::Int16 if height.saturating_mul(width) <= MAX_TAPS => {
            let (low, high) = activation_range(p.fused_activation_function, output)?;
            let bounds = [low, high].map(|bound| bound.clamp(i16::MIN.into(), i16::MAX.into()) as i16);
            Ok(Some(Box::new(move |cx| {
                let (input, output) = (cx.input::<i16>(0)?, cx.output::<i16>(0)?);
                pool_2d_int16(isa, kind, &geo, input, output, bounds, cx.parallel()).map_err(compute_error)
            })))
        }
        TensorType::Int8 | TensorType::UInt8 if height.saturating_mul(width) <= MAX_TAPS => {
            let (low, high) = activation_range(p.fused_activation_function, output)?;
            let signed = input.ty() == TensorType::Int8;
            Ok(Some(Box::new(move |cx| {
                let (input, output) = (cx.input_bytes(0)?, cx.output_bytes(0)?);
                let bounds = [low, high];
                pool_2d_bytes(isa, kind, &geo, signed, input, output, bounds, cx.parallel())
                    .map_err(compute_error)
            })))
        }
        _ => Ok(None),
    }
}
