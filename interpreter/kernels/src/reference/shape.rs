//! SHAPE, RANK: computed as soon as the shapes are known.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result, TensorType};

use crate::common::prepared::{Invoke, prepared_from_shapes, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::SHAPE, prepared_from_shapes(shape), 1).add_builtin(
        BuiltinOp::RANK,
        prepared_from_shapes(rank),
        1,
    );
}

fn shape(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.output(0)?.ty() {
        TensorType::Int32 => Ok(Box::new(|cx| {
            let output = cx.output::<i32>(0)?;
            output.iter_mut().zip(cx.input_shape(0)?.iter()).for_each(|(o, &d)| *o = d as i32);
            Ok(())
        })),
        TensorType::Int64 => Ok(Box::new(|cx| {
            let output = cx.output::<i64>(0)?;
            output.iter_mut().zip(cx.input_shape(0)?.iter()).for_each(|(o, &d)| *o = d as i64);
            Ok(())
        })),
        _ => Err(unsupported_type("output", cx.output(0)?)),
    }
}

fn rank(_: &mut PrepareContext<'_>) -> Result<Invoke> {
    Ok(Box::new(|cx| {
        cx.output::<i32>(0)?.fill(cx.input_shape(0)?.rank() as i32);
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::shape::ShapeParams;

    use super::*;
    use crate::testing::{T, check};

    #[test]
    fn of_a_tensor() {
        let x = || Some(T::new(&[2, 0, 3], &[0u8; 0]));
        let params = |out_type| Params::Shape(ShapeParams::default().out_type(out_type));
        check(BuiltinOp::SHAPE, 1, params(TensorType::Int64), &[x()], &[T::new(&[3], &[2i64, 0, 3])]);
        check(BuiltinOp::SHAPE, 1, params(TensorType::Int32), &[x()], &[T::new(&[3], &[2i32, 0, 3])]);
        check(BuiltinOp::RANK, 1, Params::None, &[x()], &[T::new(&[], &[3i32])]);
    }
}
