//! CAST between FLOAT32, INT32 and BOOL, and from COMPLEX64 to FLOAT32; BITCAST between types of 32 bits.

use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::cast::Spec;

use super::{GpuOp, complex, expect_one_of};
use crate::lower::Lowering;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp { op: BuiltinOp::CAST, max_version: 9, lower },
    GpuOp { op: BuiltinOp::BITCAST, max_version: 1, lower: bitcast },
];

pub(super) fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    if cx.ty(0) == Some(TensorType::Complex64) {
        return complex::real(cx);
    }
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    // On the device they are floats of 32 bits, which nothing would round.
    let bfloat16 = TensorType::BFloat16;
    if cx.ty(0) != Some(bfloat16) && cx.node().output(0).is_some_and(|t| t.ty() == bfloat16) {
        return Err(Rejection::UnsupportedType { operand: "output 0".into(), ty: bfloat16 });
    }
    let elements = cx.shape(input).iter().product();
    let narrow = cx.narrow(output);
    let spec = Spec { input: cx.element(input), output: cx.element(output), narrow, elements };
    cx.push(spec, &[input], output)
}

/// What takes a word in the model, too.
const WORDS: &[TensorType] = &[TensorType::Float32, TensorType::Int32, TensorType::UInt32];

/// Another look at the same words.
fn bitcast(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    expect_one_of(cx, 0, WORDS)?;
    let to = cx.node().output(0).map(|tensor| tensor.ty());
    if let Some(ty) = to.filter(|ty| !WORDS.contains(ty)) {
        return Err(Rejection::UnsupportedType { operand: "output 0".into(), ty });
    }
    let input = cx.any_input(0)?;
    cx.alias(0, input, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::{Bool, Params};

    #[test]
    fn numbers_and_truths() {
        let floats = T::new(&[4], &[-1.5_f32, 0.0, 0.5, 7.9]);
        let integers = T::new(&[4], &[-1_i32, 0, 0, 7]);
        let truths = T::new(&[4], &[Bool(1), Bool(0), Bool(1), Bool(1)]);
        let run = |from: &T, to: T| check(BuiltinOp::CAST, 1, Params::None, &[Some(from.clone())], &[to]);
        run(&floats, integers.clone());
        run(&floats, truths.clone());
        run(&integers, T::new(&[4], &[-1.0_f32, 0.0, 0.0, 7.0]));
        run(&T::new(&[1], &[f32::NAN]), T::new(&[1], &[Bool(1)]));
        run(&truths, T::new(&[4], &[1.0_f32, 0.0, 1.0, 1.0]));
    }

    #[test]
    fn bits() {
        let input = Some(T::new(&[2], &[1.0_f32, -0.0]));
        let bits = T::new(&[2], &[0x3f80_0000_i32, i32::MIN]);
        check(BuiltinOp::BITCAST, 1, Params::None, &[input], &[bits]);
    }
}
