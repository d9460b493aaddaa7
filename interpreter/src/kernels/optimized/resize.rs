//! RESIZE_BILINEAR in single precision and 8 bits.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::resize::ResizeBilinearParams;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{compute_error, optimize};
use crate::compute::{Bilinear, Isa, Tap};
use crate::kernels::prepared::Invoke;
use crate::kernels::reference::resize_taps as taps;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::RESIZE_BILINEAR, 1..=4, bilinear);
}

fn bilinear(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let p: &ResizeBilinearParams = cx.params()?;
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let (&[_, height, width, channels], &[_, out_height, out_width, _]) =
        (&input.shape()[..], &output.shape()[..])
    else {
        return Ok(None);
    };
    if input.shape().elements() == 0 {
        return Ok(None);
    }
    let floats = |from, to| -> Vec<Tap<f32>> {
        let tap = |t: taps::Tap<f32>| Tap { low: t.low, high: t.high, fraction: t.fraction };
        taps::float_taps(p, from, to).into_iter().map(tap).collect()
    };
    let fixed = |from, to| -> Vec<Tap<i32>> {
        let tap = |t: taps::Tap<i64>| Tap { low: t.low, high: t.high, fraction: t.fraction as i32 };
        taps::fixed_taps(p, from, to).into_iter().map(tap).collect()
    };
    let isa = Isa::best();
    macro_rules! resize {
        ($ty:ty, $taps:ident) => {{
            let (rows, columns) = ($taps(height, out_height), $taps(width, out_width));
            let resize =
                Bilinear::<$ty>::new([height, width], channels, rows, columns).map_err(compute_error)?;
            Ok(Some(Box::new(move |cx| {
                let (input, output) = (cx.input::<$ty>(0)?, cx.output::<$ty>(0)?);
                resize.run(isa, input, output, cx.parallel()).map_err(compute_error)
            })))
        }};
    }
    match input.ty() {
        TensorType::Float32 => resize!(f32, floats),
        TensorType::UInt8 => resize!(u8, floats),
        TensorType::Int8 => resize!(i8, fixed),
        _ => Ok(None),
    }
}
