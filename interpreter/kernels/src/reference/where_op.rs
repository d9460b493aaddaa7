//! WHERE: the output's size depends on data.

use delegraph_core::kernel::{InvokeContext, PrepareContext};
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result, TensorType};

use crate::common::pace::Pace;
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

fn on<T: Element>(is_true: fn(T) -> bool) -> Invoke {
    Box::new(move |cx: &mut InvokeContext<'_>| {
        let (input, shape) = (cx.input::<T>(0)?, cx.input_shape(0)?.clone());
        let found = || (0..).zip(input).filter(|(_, v)| is_true(**v)).map(|(i, _)| i);
        cx.resize_output(0, [found().count(), shape.rank()])?;
        let rows = cx.output::<i64>(0)?.chunks_exact_mut(shape.rank().max(1));
        let mut pace = Pace::new(cx);
        for (row, mut rest) in rows.zip(found()) {
            pace.spend(16)?;
            for (index, &size) in row.iter_mut().zip(shape.iter()).rev() {
                (rest, *index) = (rest / size, (rest % size) as i64);
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
