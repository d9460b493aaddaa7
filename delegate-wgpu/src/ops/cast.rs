//! CAST between types with one word per element on the device, and from COMPLEX64 to FLOAT32; BITCAST.

use delegraph_core::TensorType::{
    BFloat16, Bool, Complex64, Float16, Float32, Float64, Int2, Int4, Int8, Int16, Int32, Int64, UInt4,
    UInt8, UInt16, UInt32,
};
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::bitcast::Spec as Bits;
use delegraph_shaders::cast::Spec;

use super::{GpuOp, complex};
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(
        BuiltinOp::CAST,
        9,
        &[
            Float32, Float16, Int32, UInt8, Int64, Bool, Int16, Complex64, Int8, Float64, UInt32, UInt16,
            Int4, BFloat16, Int2, UInt4,
        ],
        lower,
    ),
    GpuOp::new(BuiltinOp::BITCAST, 1, &[Float32, Int32, UInt8, Int16, Int8, UInt32, UInt16], bitcast),
];

pub(super) fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    if cx.ty(0) == Some(TensorType::Complex64) {
        return complex::real(cx);
    }
    let (input, output) = (cx.moved_input(0)?, cx.moved_output(0)?);
    // 16-bit floats are 32-bit floats on the device, so results would not be rounded.
    let bfloat16 = TensorType::BFloat16;
    if cx.ty(0) != Some(bfloat16) && cx.node().output(0).is_some_and(|t| t.ty() == bfloat16) {
        return Err(Rejection::UnsupportedType { operand: "output 0".into(), ty: bfloat16 });
    }
    let elements = cx.shape(input).iter().product();
    let narrow = cx.narrow(output);
    let spec = Spec { input: cx.element(input), output: cx.element(output), narrow, elements };
    cx.push(spec, &[input], output)
}

/// Bits and signedness of an element in the model; `None` for types that are not supported, such as 16-bit floats,
/// whose bits the device does not store.
fn bits(ty: TensorType) -> Option<(u32, bool)> {
    Some(match ty {
        TensorType::Float32 | TensorType::Int32 | TensorType::UInt32 => (32, false),
        TensorType::Int16 => (16, true),
        TensorType::UInt16 => (16, false),
        TensorType::Int8 => (8, true),
        TensorType::UInt8 => (8, false),
        _ => return None,
    })
}

/// Reinterprets the bits of input 0.
fn bitcast(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let (from, _) = cx.ty(0).and_then(bits).ok_or_else(|| cx.wrong_type(0))?;
    let Some(ty) = cx.node().output(0).map(|tensor| tensor.ty()) else {
        return Err(unsupported("output 0 is missing"));
    };
    let wrong = || Rejection::UnsupportedType { operand: "output 0".into(), ty };
    let (to, signed) = bits(ty).ok_or_else(wrong)?;
    let input = cx.any_input(0)?;
    if [from, to] == [32; 2] {
        return cx.alias(0, input, 0);
    }
    let output = cx.output(0)?;
    let elements = cx.shape(output).iter().product();
    cx.push(Bits { from, to, signed, elements }, &[input], output)
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
        // Beyond the range: the nearest integer.
        let large = T::new(&[4], &[3e9_f32, -3e9, 2_147_483_520.0, f32::MAX]);
        run(&large, T::new(&[4], &[i32::MAX, i32::MIN, 2_147_483_520, i32::MAX]));
        run(&large, T::new(&[4], &[3_000_000_000_u32, 0, 2_147_483_520, u32::MAX]));
    }

    #[test]
    fn bits() {
        let input = Some(T::new(&[2], &[1.0_f32, -0.0]));
        let bits = T::new(&[2], &[0x3f80_0000_i32, i32::MIN]);
        check(BuiltinOp::BITCAST, 1, Params::None, &[input], &[bits]);
        let run = |from: T, to: T| {
            check(BuiltinOp::BITCAST, 1, Params::None, &[Some(from.clone())], std::slice::from_ref(&to));
            check(BuiltinOp::BITCAST, 1, Params::None, &[Some(to)], &[from]);
        };
        run(T::new(&[2], &[1.5_f32, -1.5]), T::new(&[2, 4], &[0_u8, 0, 0xc0, 0x3f, 0, 0, 0xc0, 0xbf]));
        run(T::new(&[1], &[0x8001_7ffe_u32]), T::new(&[1, 2], &[0x7ffe_i16, -0x7fff]));
        run(T::new(&[2], &[-2_i16, 258]), T::new(&[2, 2], &[-2_i8, -1, 2, 1]));
        run(T::new(&[2], &[200_u8, 1]), T::new(&[2], &[-56_i8, 1]));
    }
}
