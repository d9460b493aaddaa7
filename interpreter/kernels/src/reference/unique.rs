//! UNIQUE: the output's size depends on data.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use delegraph_core::kernel::{Charge, Charged, InvokeContext, PrepareContext};
use delegraph_core::ops::unique::UniqueParams;
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Result, TensorType};

use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::UNIQUE, prepared(prepare), 1);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let wide = cx.params::<UniqueParams>()?.idx_out_type == TensorType::Int64;
    let elements = cx.input(0)?.shape().elements();
    cx.set_output_data_dependent(0)?;
    match cx.input(0)?.ty() {
        // 0.0 and -0.0 are one value.
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
    Box::new(move |cx| {
        let mut found = Found {
            places: HashMap::new(),
            charge: cx.budget().charge(0)?,
            values: cx.budget().reserved(0)?,
        };
        let input = cx.input::<T>(0)?;
        // Sized in `invoke`, like the first output.
        cx.resize_output(1, [elements])?;
        match wide {
            true => found.places(cx, input, key, |i| i as i64)?,
            false => found.places(cx, input, key, |i| i as i32)?,
        }
        cx.resize_output(0, [found.values.len()])?;
        cx.output::<T>(0)?.copy_from_slice(&found.values);
        Ok(())
    })
}

/// The values found so far, and the place of each.
struct Found<T> {
    places: HashMap<i64, usize>,
    /// The charge for the memory of `places`.
    charge: Charge,
    values: Charged<T>,
}

impl<T: Element> Found<T> {
    /// Writes the place of each value of `input` to output 1.
    fn places<I: Element>(
        &mut self,
        cx: &mut InvokeContext<'_>,
        input: &[T],
        key: fn(T) -> i64,
        index: fn(usize) -> I,
    ) -> Result<()> {
        let mut pace = Pace::new(cx);
        for (input, output) in input.chunks(CHUNK).zip(cx.output::<I>(1)?.chunks_mut(CHUNK)) {
            cx.check_interrupted()?;
            self.reserve(input.len(), &mut pace)?;
            for (value, output) in input.iter().zip(output) {
                let place = match self.places.entry(key(*value)) {
                    Entry::Occupied(place) => *place.get(),
                    Entry::Vacant(place) => {
                        self.values.push(*value)?;
                        *place.insert(self.values.len() - 1)
                    }
                };
                *output = index(place);
            }
        }
        Ok(())
    }

    /// Reserves memory for `more` values. A table that grows by itself moves all values without a poll.
    fn reserve(&mut self, more: usize, pace: &mut Pace) -> Result<()> {
        let entries = self.places.len() + more;
        if entries > self.places.capacity() {
            // The capacity of a table is a power of two, of which at most 7/8 is used.
            let places = (entries * 8 / 7 + 1).next_power_of_two();
            self.charge.resize(places.saturating_mul(size_of::<(i64, usize)>() + 1))?;
            let mut larger: HashMap<i64, usize> = HashMap::new();
            let reserved = larger.try_reserve(entries);
            reserved.map_err(|_| Error::OutOfMemory(format!("a table of {entries} values")))?;
            for (value, place) in self.places.drain() {
                pace.spend(MOVE_STEPS)?;
                larger.insert(value, place);
            }
            self.places = larger;
        }
        Ok(())
    }
}

/// Elements between two polls.
const CHUNK: usize = 1 << 12;

/// Steps of a [`Pace`] per value that moves to a larger table.
const MOVE_STEPS: usize = 64;

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn tables_grow() {
        let values: Vec<i32> = (0..5 * CHUNK as i32).map(|i| i % (3 * CHUNK as i32)).collect();
        let want = [T::new(&[3 * CHUNK], &values[..3 * CHUNK]), T::new(&[values.len()], &values)];
        let x = Some(T::new(&[values.len()], &values));
        let params = UniqueParams::default().idx_out_type(TensorType::Int32);
        check(BuiltinOp::UNIQUE, 1, Params::Unique(params), &[x], &want);
    }

    #[test]
    fn first_occurrences() {
        let params = |idx_out_type| Params::Unique(UniqueParams::default().idx_out_type(idx_out_type));
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
