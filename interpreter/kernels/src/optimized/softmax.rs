//! SOFTMAX and LOG_SOFTMAX in single precision, SOFTMAX of 8 bits.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_core::quantized::softmax::exp_table;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{compute_error, optimize};
use crate::common::prepared::Invoke;
use delegraph_compute::{Isa, Softmax, SoftmaxBytes, softmax};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::SOFTMAX, 1..=4, |cx| {
        let beta = cx.params::<SoftmaxParams>()?.beta;
        match cx.input(0)?.ty() {
            TensorType::Int8 | TensorType::UInt8 => bytes(cx, beta),
            // Exponents of the reference kernel overflow there, as LiteRT's do; those of this one would not.
            _ if beta < 0.0 => Ok(None),
            _ => prepare(cx, Softmax::Probabilities { beta }),
        }
    });
    optimize(resolver, BuiltinOp::LOG_SOFTMAX, 1..=2, |cx| prepare(cx, Softmax::Logarithms));
}

/// Maximum number of elements of a row, which is one task: some 50 ms.
const MAX_ROW: usize = 1 << 24;

fn prepare(cx: &mut PrepareContext<'_>, kind: Softmax) -> Result<Option<Invoke>> {
    let input = cx.input(0)?;
    let depth = input.shape().last().copied().unwrap_or(1);
    if [input.ty(), cx.output(0)?.ty()] != [TensorType::Float32; 2] || depth > MAX_ROW {
        return Ok(None);
    }
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        softmax(isa, kind, depth, input, output, cx.parallel()).map_err(compute_error)
    })))
}

fn bytes(cx: &mut PrepareContext<'_>, beta: f32) -> Result<Option<Invoke>> {
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let signed = input.ty() == TensorType::Int8;
    let (input_scale, _) = input.scale_zero_point()?;
    let (scale, zero_point) = output.scale_zero_point()?;
    // The reference kernel handles or rejects other output quantizations.
    let taken =
        if signed { (zero_point, scale) == (-128, 1.0 / 256.0) } else { (0..=255).contains(&zero_point) };
    let depth = input.shape().last().copied().unwrap_or(1);
    if output.ty() != input.ty() || !taken || depth > MAX_ROW {
        return Ok(None);
    }
    let softmax = SoftmaxBytes { exp: exp_table(input_scale * beta), scale, zero_point, signed };
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(0)?, cx.output_bytes(0)?);
        softmax.run(isa, depth, input, output, cx.parallel()).map_err(compute_error)
    })))
}
