//! AVERAGE_POOL_2D and MAX_POOL_2D in single precision.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{clamp_of, compute_error, geometry, optimize};
use crate::compute::{Isa, Pool, pool_2d};
use crate::kernels::prepared::Invoke;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::AVERAGE_POOL_2D, 1..=3, |cx| float(cx, Pool::Average));
    optimize(resolver, BuiltinOp::MAX_POOL_2D, 1..=3, |cx| float(cx, Pool::Max));
}

fn float(cx: &mut PrepareContext<'_>, kind: Pool) -> Result<Option<Invoke>> {
    let p: &Pool2DParams = cx.params()?;
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let Some(clamp) = clamp_of(p.fused_activation_function) else { return Ok(None) };
    let (Ok(height), Ok(width)) = (usize::try_from(p.filter_height), usize::try_from(p.filter_width)) else {
        return Ok(None);
    };
    let Some(geo) = geometry(input, output, [height, width], [p.stride_h, p.stride_w], [1, 1], p.padding)
    else {
        return Ok(None);
    };
    // The reference kernel says what is wrong with a window that sees nothing.
    if input.ty() != TensorType::Float32 || geo.check().is_err() || geo.has_empty_window() {
        return Ok(None);
    }
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        pool_2d(isa, kind, &geo, input, output, clamp, cx.parallel()).map_err(compute_error)
    })))
}
