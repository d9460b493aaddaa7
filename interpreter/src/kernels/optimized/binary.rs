//! ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, SQUARED_DIFFERENCE in single precision; the first three in 8 bits, too.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::binary::{AddParams, DivParams, MulParams, SubParams};
use delegraph_core::ops::{Activation, TensorType};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{byte_quant, clamp_of, compute_error, compute_multiplier, optimize};
use crate::compute::{Binary, Broadcast, ByteBinary, ByteBinaryOp, Clamp, Isa};
use crate::kernels::prepared::Invoke;
use crate::kernels::quantized::{Multiplier, activation_range};
use crate::kernels::reference::binary_quantized::Scaled;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::ADD, 1..=6, |cx| {
        let activation = cx.params::<AddParams>()?.fused_activation_function;
        either(cx, Binary::Add, activation)
    });
    optimize(resolver, BuiltinOp::SUB, 1..=5, |cx| {
        let activation = cx.params::<SubParams>()?.fused_activation_function;
        either(cx, Binary::Sub, activation)
    });
    optimize(resolver, BuiltinOp::MUL, 1..=8, |cx| {
        let activation = cx.params::<MulParams>()?.fused_activation_function;
        either(cx, Binary::Mul, activation)
    });
    optimize(resolver, BuiltinOp::DIV, 1..=2, |cx| {
        float(cx, Binary::Div, clamp_of(cx.params::<DivParams>()?.fused_activation_function))
    });
    optimize(resolver, BuiltinOp::MAXIMUM, 1..=4, |cx| float(cx, Binary::Maximum, Some(Clamp::NONE)));
    optimize(resolver, BuiltinOp::MINIMUM, 1..=4, |cx| float(cx, Binary::Minimum, Some(Clamp::NONE)));
    optimize(resolver, BuiltinOp::SQUARED_DIFFERENCE, 1..=2, |cx| {
        float(cx, Binary::SquaredDifference, Some(Clamp::NONE))
    });
}

fn either(cx: &mut PrepareContext<'_>, function: Binary, activation: Activation) -> Result<Option<Invoke>> {
    match cx.input(0)?.ty() {
        TensorType::Int8 | TensorType::UInt8 => bytes(cx, function, activation),
        _ => float(cx, function, clamp_of(activation)),
    }
}

fn bytes(cx: &mut PrepareContext<'_>, function: Binary, activation: Activation) -> Result<Option<Invoke>> {
    let (a, b, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    if [b.ty(), output.ty()] != [a.ty(); 2] {
        return Ok(None);
    }
    let (Some(quant_a), Some(quant_b)) = (byte_quant(a), byte_quant(b)) else { return Ok(None) };
    let Ok(shapes) = Broadcast::new(a.shape(), b.shape()) else { return Ok(None) };
    let (function, output, zero_point, (low, high)) = match function {
        Binary::Add | Binary::Sub => {
            let scaled = Scaled::new(cx, activation)?;
            // The reference kernel says why it doesn't take such sums.
            if function == Binary::Add && scaled.output.shift > 0 {
                return Ok(None);
            }
            let factors = scaled.inputs.map(compute_multiplier);
            let byte = if function == Binary::Add { ByteBinary::Add } else { ByteBinary::Sub };
            (byte(factors), scaled.output, scaled.zero_point, scaled.range)
        }
        Binary::Mul => {
            let scales = [a.scale_zero_point()?.0, b.scale_zero_point()?.0];
            let (scale, zero_point) = output.scale_zero_point()?;
            let multiplier = Multiplier::new((scales[0] * scales[1] / scale).into())?;
            (ByteBinary::Mul, multiplier, zero_point, activation_range(activation, output)?)
        }
        _ => return Ok(None),
    };
    let operands = [quant_a, quant_b];
    let op = ByteBinaryOp { function, operands, output: compute_multiplier(output), zero_point, low, high };
    let isa = Isa::best();
    may_overwrite_either(cx)?;
    Ok(Some(Box::new(move |cx| {
        let [a, b] = [cx.input_bytes_unless_overwritten(0)?, cx.input_bytes_unless_overwritten(1)?];
        let output = cx.output_bytes(0)?;
        op.run(isa, &shapes, a, b, output, cx.parallel()).map_err(compute_error)
    })))
}

/// Operands that are repeated in no dimension lie as the output does, and may be written over.
fn may_overwrite_either(cx: &mut PrepareContext<'_>) -> Result<()> {
    let elements = cx.output(0)?.shape().elements();
    for i in 0..2 {
        if cx.input(i)?.shape().elements() == elements {
            cx.may_overwrite(i);
        }
    }
    Ok(())
}

pub(super) fn float(
    cx: &mut PrepareContext<'_>,
    function: Binary,
    clamp: Option<Clamp>,
) -> Result<Option<Invoke>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let Some(clamp) = clamp else { return Ok(None) };
    if [a, b].iter().any(|t| t.ty() != TensorType::Float32) {
        return Ok(None);
    }
    // Operands that broadcast in more ways than the primitive does are the reference kernel's.
    let Ok(shapes) = Broadcast::new(a.shape(), b.shape()) else { return Ok(None) };
    let isa = Isa::best();
    may_overwrite_either(cx)?;
    Ok(Some(Box::new(move |cx| {
        let [a, b] = [cx.input_unless_overwritten::<f32>(0)?, cx.input_unless_overwritten::<f32>(1)?];
        let output = cx.output::<f32>(0)?;
        shapes.run(isa, function, a, b, output, clamp, cx.parallel()).map_err(compute_error)
    })))
}
