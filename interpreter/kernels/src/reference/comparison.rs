//! EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, LOGICAL_AND, LOGICAL_OR.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result, TensorType};
use half::{bf16, f16};

use crate::common::elementwise::elementwise;
use crate::common::index::Nest;
use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::quantized::{Multiplier, QuantizedElement};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::EQUAL, prepared(|cx| compare(cx, Comparison::Equal)), 1..=5)
        .add_builtin(BuiltinOp::NOT_EQUAL, prepared(|cx| compare(cx, Comparison::NotEqual)), 1..=4)
        .add_builtin(BuiltinOp::LESS, prepared(|cx| compare(cx, Comparison::Less)), 1..=3)
        .add_builtin(BuiltinOp::LESS_EQUAL, prepared(|cx| compare(cx, Comparison::LessEqual)), 1..=2)
        .add_builtin(BuiltinOp::GREATER, prepared(|cx| compare(cx, Comparison::Greater)), 1..=2)
        .add_builtin(BuiltinOp::GREATER_EQUAL, prepared(|cx| compare(cx, Comparison::GreaterEqual)), 1..=3)
        .add_builtin(BuiltinOp::LOGICAL_AND, prepared(|cx| logical(cx, |a, b| a && b)), 1)
        .add_builtin(BuiltinOp::LOGICAL_OR, prepared(|cx| logical(cx, |a, b| a || b)), 1);
}

#[derive(Clone, Copy, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Comparison {
    fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            Comparison::Equal => a == b,
            Comparison::NotEqual => a != b,
            Comparison::Less => a < b,
            Comparison::LessEqual => a <= b,
            Comparison::Greater => a > b,
            Comparison::GreaterEqual => a >= b,
        }
    }
}

fn compare(cx: &mut PrepareContext<'_>, comparison: Comparison) -> Result<Invoke> {
    fn on<T: Element + PartialOrd>(cx: &mut PrepareContext<'_>, comparison: Comparison) -> Result<Invoke> {
        elementwise(cx, move |a: T, b: T| Bool::from(comparison.holds(a, b)))
    }
    let equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    let quantized = cx.input(0)?.quantization().is_some();
    match cx.input(0)?.ty() {
        TensorType::String if equality => strings(cx, comparison),
        TensorType::Bool if equality => {
            elementwise(cx, move |a: Bool, b: Bool| Bool::from(comparison.holds(a.get(), b.get())))
        }
        TensorType::Float32 => on::<f32>(cx, comparison),
        TensorType::Float16 => on::<f16>(cx, comparison),
        TensorType::BFloat16 if !equality => on::<bf16>(cx, comparison),
        TensorType::Int32 => on::<i32>(cx, comparison),
        TensorType::Int64 => on::<i64>(cx, comparison),
        TensorType::Int8 if quantized => rescaled::<i8>(cx, comparison),
        TensorType::UInt8 if quantized => rescaled::<u8>(cx, comparison),
        TensorType::Int16 if quantized && equality => rescaled::<i16>(cx, comparison),
        TensorType::Int8 => on::<i8>(cx, comparison),
        TensorType::UInt8 => on::<u8>(cx, comparison),
        TensorType::Int16 => on::<i16>(cx, comparison),
        _ => Err(unsupported_type("input 0", cx.input(0)?)),
    }
}

/// Bytes of strings that are compared per step of a [`Pace`].
const BYTES: usize = 8;

fn strings(cx: &mut PrepareContext<'_>, comparison: Comparison) -> Result<Invoke> {
    let (a, b, output) = (cx.input(0)?.shape(), cx.input(1)?.shape(), cx.output(0)?.shape());
    let nest = Nest::broadcast(a, b, output);
    Ok(Box::new(move |cx| {
        let (a, b) = (cx.strings(0)?, cx.strings(1)?);
        let mut output = cx.output::<Bool>(0)?.iter_mut();
        let mut pace = Pace::new(cx);
        nest.try_for_each([0; 2], |[i, j]| {
            let (a, b) = (a.get(i), b.get(j));
            pace.spend(16 + a.len().min(b.len()) / BYTES)?;
            if let Some(o) = output.next() {
                *o = comparison.holds(a, b).into();
            }
            Ok(())
        })
    }))
}

/// Quantized values are compared as multiples of 1/256, to which both sides are rounded.
fn rescaled<T: QuantizedElement>(cx: &mut PrepareContext<'_>, comparison: Comparison) -> Result<Invoke> {
    let side = |i: usize| -> Result<_> {
        let (scale, zero_point) = cx.input(i)?.scale_zero_point()?;
        let multiplier = Multiplier::new(scale.into())?;
        Ok(move |value: T| multiplier.apply(value.into().wrapping_sub(zero_point).wrapping_shl(8)))
    };
    let (a_side, b_side) = (side(0)?, side(1)?);
    elementwise(cx, move |a: T, b: T| Bool::from(comparison.holds(a_side(a), b_side(b))))
}

fn logical(cx: &mut PrepareContext<'_>, f: fn(bool, bool) -> bool) -> Result<Invoke> {
    if cx.input(0)?.ty() != TensorType::Bool {
        return Err(unsupported_type("input 0", cx.input(0)?));
    }
    elementwise(cx, move |a: Bool, b: Bool| Bool::from(f(a.get(), b.get())))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    fn bools(shape: &[usize], values: &[bool]) -> T {
        T::new(shape, &values.iter().map(|&b| Bool::from(b)).collect::<Vec<_>>())
    }

    #[test]
    fn compares() {
        let (a, b) = (T::new(&[3], &[1.0f32, 2.0, f32::NAN]), T::new(&[1], &[2.0f32]));
        let inputs = [Some(a), Some(b)];
        for (op, want) in [
            (BuiltinOp::EQUAL, [false, true, false]),
            (BuiltinOp::NOT_EQUAL, [true, false, true]),
            (BuiltinOp::LESS, [true, false, false]),
            (BuiltinOp::GREATER_EQUAL, [false, true, false]),
        ] {
            check(op, 1, Params::None, &inputs, &[bools(&[3], &want)]);
        }
    }

    #[test]
    fn quantized_values_are_real_numbers() {
        let a = T::new(&[3], &[1i8, 3, 5]).quantized(0.5, 1);
        let b = T::new(&[3], &[0i8, 4, 7]).quantized(0.25, 0);
        let inputs = [Some(a), Some(b)];
        check(BuiltinOp::EQUAL, 2, Params::None, &inputs, &[bools(&[3], &[true, true, false])]);
        check(BuiltinOp::GREATER, 2, Params::None, &inputs, &[bools(&[3], &[false, false, true])]);
    }

    #[test]
    fn strings() {
        let inputs = [Some(T::strings(&[2, 1], &["a", "b"])), Some(T::strings(&[2], &["a", "ab"]))];
        let want = |w: &[bool]| [bools(&[2, 2], w)];
        check(BuiltinOp::EQUAL, 3, Params::None, &inputs, &want(&[true, false, false, false]));
        check(BuiltinOp::NOT_EQUAL, 3, Params::None, &inputs, &want(&[false, true, true, true]));
        let e = error(BuiltinOp::LESS, 1, Params::None, &inputs, &want(&[true; 4]));
        assert!(e.contains("of type STRING"), "{e}");
    }

    #[test]
    fn logic() {
        let (a, b) = (bools(&[2, 1], &[false, true]), bools(&[2], &[false, true]));
        let inputs = [Some(a), Some(b)];
        check(
            BuiltinOp::LOGICAL_AND,
            1,
            Params::None,
            &inputs,
            &[bools(&[2, 2], &[false, false, false, true])],
        );
        check(BuiltinOp::LOGICAL_OR, 1, Params::None, &inputs, &[bools(&[2, 2], &[false, true, true, true])]);
        let ints = || Some(T::new(&[1], &[1i32]));
        let e = error(BuiltinOp::LOGICAL_OR, 1, Params::None, &[ints(), ints()], &[bools(&[1], &[true])]);
        assert!(e.contains("of type INT32"), "{e}");
    }
}
