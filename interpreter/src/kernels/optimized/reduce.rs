//! MEAN, SUM, REDUCE_MAX and REDUCE_MIN in single precision.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::optimize;
use crate::compute::{Isa, Reduce};
use crate::kernels::prepared::Invoke;
use crate::kernels::reference::Reduction;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::MEAN, 1..=3, |cx| prepare(cx, Reduce::Sum, true));
    optimize(resolver, BuiltinOp::SUM, 1..=2, |cx| prepare(cx, Reduce::Sum, false));
    optimize(resolver, BuiltinOp::REDUCE_MAX, 1..=3, |cx| prepare(cx, Reduce::Max, false));
    optimize(resolver, BuiltinOp::REDUCE_MIN, 1..=3, |cx| prepare(cx, Reduce::Min, false));
}

/// Shorter runs gain nothing from vectors.
const SHORTEST: usize = 8;

fn prepare(cx: &mut PrepareContext<'_>, kind: Reduce, mean: bool) -> Result<Option<Invoke>> {
    if [cx.input(0)?.ty(), cx.output(0)?.ty()] != [TensorType::Float32; 2] {
        return Ok(None);
    }
    let reduction = Reduction::new(cx)?;
    let (size, [_, step]) = reduction.nest.inner();
    if size < SHORTEST {
        return Ok(None);
    }
    let init = match kind {
        Reduce::Sum => 0.0,
        Reduce::Max => f32::MIN,
        Reduce::Min => f32::MAX,
    };
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        output.fill(init);
        reduction.nest.for_each_run([0; 2], |[i, o]| {
            let run = &input[i..][..size];
            match step {
                0 => output[o] = kind.run(isa, output[o], run),
                _ => kind.each(isa, run, &mut output[o..][..size]),
            }
        });
        if mean {
            output.iter_mut().for_each(|sum| *sum /= reduction.count as f32);
        }
        Ok(())
    })))
}
