//! WHERE: the output's size depends on data.

use delegraph_core::kernel::{InvokeContext, PrepareContext};
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result, TensorType};

use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::{Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::WHERE, prepared(prepare), 1..=2);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    cx.set_output_data_dependent(0)?;
    match cx.input(0)?.ty() {
        TensorType::Bool => Ok(on(|v: Bool| v.get())),
        TensorType::Float32 => Ok(on(|v: f32| v != 0.0)),
        TensorType::Int8 => Ok(on(|v: i8| v != 0)),
        TensorType::UInt8 => Ok(on(|v: u8| v != 0)),
        TensorType::Int32 => Ok(on(|v: i32| v != 0)),
        TensorType::UInt32 => Ok(on(|v: u32| v != 0)),
        TensorType::Int64 => Ok(on(|v: i64| v != 0)),
        _ => Err(unsupported_type("input 0", cx.input(0)?)),
    }
}

/// Steps of a [`Pace`] per element of the input.
const ELEMENT_STEPS: usize = 2;

/// Steps of a [`Pace`] per row of the output.
const ROW_STEPS: usize = 16;

fn on<T: Element>(is_true: fn(T) -> bool) -> Invoke {
    Box::new(move |cx: &mut InvokeContext<'_>| {
        let (input, shape) = (cx.input::<T>(0)?, cx.input_shape(0)?.clone());
        let mut pace = Pace::new(cx);
        let found = pace.fold(ELEMENT_STEPS, input, 0usize, |found, piece| {
            found + piece.iter().filter(|v| is_true(**v)).count()
        })?;
        cx.resize_output(0, [found, shape.rank()])?;
        let mut rows = cx.output::<i64>(0)?.chunks_exact_mut(shape.rank().max(1));
        for (i, piece) in input.chunks(PIECE).enumerate() {
            pace.spend(piece.len() * ELEMENT_STEPS)?;
            let found = (i * PIECE..).zip(piece).filter(|(_, v)| is_true(**v)).map(|(i, _)| i);
            for (mut rest, row) in found.zip(&mut rows) {
                pace.spend(ROW_STEPS)?;
                for (index, &size) in row.iter_mut().zip(shape.iter()).rev() {
                    (rest, *index) = (rest / size, (rest % size) as i64);
                }
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check};

    #[test]
    fn finds() {
        let x = Some(T::new(&[2, 2], &[0.0f32, -1.0, 2.0, 0.0]));
        check(BuiltinOp::WHERE, 2, Params::None, &[x], &[T::new(&[2, 2], &[0i64, 1, 1, 0])]);
        let x = Some(T::new(&[2], &[Bool(0), Bool(0)]));
        check(BuiltinOp::WHERE, 1, Params::None, &[x], &[T::new(&[0, 1], &[0i64; 0])]);
    }
}
