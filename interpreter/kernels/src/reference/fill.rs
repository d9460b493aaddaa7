//! FILL, RANGE.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result, TensorType};

use crate::common::index::View;
use crate::common::number::Number;
use crate::common::pace::PIECE;
use crate::common::prepared::{Invoke, check_same_quantization, copied_view, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::FILL, prepared(fill), 1..=5).add_builtin(
        BuiltinOp::RANGE,
        prepared(range),
        1..=2,
    );
}

fn fill(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (value, output) = (cx.input(1)?, cx.output(0)?);
    check_same_quantization(value, output)?;
    copied_view(cx, 1, output.shape(), &View::broadcast(&[], output.shape()))
}

fn range(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    /// Each number is the previous number plus the step, rounded.
    fn on<T: Number>() -> Invoke {
        Box::new(|cx| {
            let (start, delta) = (cx.input::<T>(0)?, cx.input::<T>(2)?);
            let mut next = start.first().copied().unwrap_or_default();
            let delta = delta.first().copied().unwrap_or_default();
            for piece in cx.output::<T>(0)?.chunks_mut(PIECE) {
                cx.check_interrupted()?;
                for o in piece {
                    *o = next;
                    next = next.plus(delta);
                }
            }
            Ok(())
        })
    }
    match cx.output(0)?.ty() {
        TensorType::Float32 => Ok(on::<f32>()),
        TensorType::Int32 => Ok(on::<i32>()),
        TensorType::Int64 => Ok(on::<i64>()),
        _ => Err(unsupported_type("output", cx.output(0)?)),
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn fills() {
        let dims = || Some(T::new(&[2], &[2i64, 3]).constant());
        let value = Some(T::new(&[], &[7u8]));
        check(BuiltinOp::FILL, 1, Params::None, &[dims(), value], &[T::new(&[2, 3], &[7u8; 6])]);
    }

    #[test]
    fn counts() {
        let inputs = |from: i32, to: i32, by: i32| [from, to, by].map(|v| Some(T::new(&[], &[v]).constant()));
        check(BuiltinOp::RANGE, 1, Params::None, &inputs(2, 9, 3), &[T::new(&[3], &[2i32, 5, 8])]);
        check(BuiltinOp::RANGE, 1, Params::None, &inputs(2, -1, -3), &[T::new(&[1], &[2i32])]);
        let reals = [0.0f32, 1.0, 0.3].map(|v| Some(T::new(&[], &[v])));
        check(BuiltinOp::RANGE, 1, Params::None, &reals, &[T::new(&[4], &[0.0f32, 0.3, 0.6, 0.9])]);
        let e = error(BuiltinOp::RANGE, 1, Params::None, &inputs(2, 9, 0), &[T::new(&[0], &[0i32; 0])]);
        assert!(e.contains("steps of 0 do not lead from 2 to 9"), "{e}");
    }
}
