//! ADD_N.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result, TensorType};

use crate::common::number::Number;
use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::ADD_N, prepared(prepare), 1);
}

/// Steps of a [`Pace`] per input, beside its elements.
const INPUT_STEPS: usize = 32;

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn on<T: Number>() -> Invoke {
        Box::new(|cx| {
            let output = cx.output::<T>(0)?;
            let mut pace = Pace::new(cx);
            pace.zip(1, cx.input::<T>(0)?, output, |input, output| output.copy_from_slice(input))?;
            for i in 1..cx.input_count() {
                pace.spend(INPUT_STEPS)?;
                pace.zip(1, cx.input::<T>(i)?, output, |input, sums| {
                    sums.iter_mut().zip(input).for_each(|(sum, v)| *sum = sum.plus(*v));
                })?;
            }
            Ok(())
        })
    }
    match cx.input(0)?.ty() {
        TensorType::Float32 => Ok(on::<f32>()),
        TensorType::Int32 => Ok(on::<i32>()),
        _ => Err(unsupported_type("input 0", cx.input(0)?)),
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn adds() {
        let inputs = [[1i32, 2], [3, 4], [5, 6]].map(|v| Some(T::new(&[2], &v)));
        check(BuiltinOp::ADD_N, 1, Params::None, &inputs, &[T::new(&[2], &[9i32, 12])]);
        let other = [inputs[0].clone(), Some(T::new(&[1], &[1i32]))];
        let e = error(BuiltinOp::ADD_N, 1, Params::None, &other, &[T::new(&[2], &[9i32, 12])]);
        assert!(e.contains("input 1 is INT32 [1], input 0 is INT32 [2]"), "{e}");
    }
}
