//! UNIQUE: how large its output is only the data says.

use std::collections::HashMap;

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::unique::UniqueParams;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result, TensorType};

use crate::kernels::prepared::{Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::UNIQUE, prepared(prepare), 1);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let wide = cx.params::<UniqueParams>()?.idx_out_type == TensorType::Int64;
    let elements = cx.input(0)?.shape().elements();
    cx.set_output_data_dependent(0)?;
    match cx.input(0)?.ty() {
        // Both zeros are one value.
        TensorType::Float32 => Ok(on(elements, wide, |x: f32| (x + 0.0).to_bits().into())),
        TensorType::Int8 => Ok(on(elements, wide, |x: i8| x.into())),
        TensorType::UInt8 => Ok(on(elements, wide, |x: u8| x.into())),
        TensorType::Int16 => Ok(on(elements, wide, |x: i16| x.into())),
        TensorType::Int32 => Ok(on(elements, wide, |x: i32| x.into())),
        TensorType::Int64 => Ok(on(elements, wide, |x: i64| x)),
        _ => Err(unsupported_type("input", cx.input(0)?)),
    }
}

fn on<T: Element>(elements: usize, wide: bool, key: fn(T) -> i64) -> Invoke {
    let mut places = HashMap::new();
    let mut values = Vec::new();
    Box::new(move |cx| {
        places.clear();
        values.clear();
        let input = cx.input::<T>(0)?;
        let indices = input.iter().map(|x| {
            *places.entry(key(*x)).or_insert_with(|| {
                values.push(*x);
                values.len() - 1
            })
        });
        // It owns its memory, as the first output does.
        cx.resize_output(1, [elements])?;
        match wide {
            true => cx.output::<i64>(1)?.iter_mut().zip(indices).for_each(|(o, i)| *o = i as i64),
            false => cx.output::<i32>(1)?.iter_mut().zip(indices).for_each(|(o, i)| *o = i as i32),
        }
        cx.resize_output(0, [values.len()])?;
        cx.output::<T>(0)?.copy_from_slice(&values);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::kernels::testing::{T, check, error};

    #[test]
    fn first_occurrences() {
        let params = |idx_out_type| Params::Unique(UniqueParams { idx_out_type });
        let x = Some(T::new(&[6], &[2i32, 1, 2, -7, 1, 2]));
        let want = [T::new(&[3], &[2i32, 1, -7]), T::new(&[6], &[0i64, 1, 0, 2, 1, 0])];
        check(BuiltinOp::UNIQUE, 1, params(TensorType::Int64), &[x], &want);
        let x = Some(T::new(&[3], &[0.0f32, 1.0, -0.0]));
        let want = [T::new(&[2], &[0.0f32, 1.0]), T::new(&[3], &[0i32, 1, 0])];
        check(BuiltinOp::UNIQUE, 1, params(TensorType::Int32), &[x], &want);
        let none = [T::new(&[0], &[0u8; 0]), T::new(&[0], &[0i32; 0])];
        check(BuiltinOp::UNIQUE, 1, params(TensorType::Int32), &[Some(T::new(&[0], &[0u8; 0]))], &none);
        let x = Some(T::new(&[1], &[1.0f64]));
        let want = [T::new(&[1], &[1.0f64]), T::new(&[1], &[0i32])];
        let e = error(BuiltinOp::UNIQUE, 1, params(TensorType::Int32), &[x], &want);
        assert!(e.contains("of type FLOAT64"), "{e}");
    }
}
