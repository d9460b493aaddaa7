//! HASHTABLE_LOOKUP: rows of values found by sorted keys.

use delegraph_core::kernel::{InvokeContext, PrepareContext};
use delegraph_core::ops::TensorType;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, moved_bits, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::HASHTABLE_LOOKUP, prepared(prepare), 1);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    for (i, what) in [(0, "lookup keys"), (1, "keys")] {
        let keys = cx.input(i)?;
        if keys.ty() != TensorType::Int32 {
            return Err(unsupported_type(what, keys));
        }
    }
    let values = cx.input(2)?;
    if values.ty() == TensorType::String {
        return Ok(Box::new(strings));
    }
    let rows = values.shape().first().copied().unwrap_or(0);
    let bits = moved_bits("values", values)? * values.shape().elements();
    if !bits.is_multiple_of(8 * rows.max(1)) {
        return Err(unsupported_type("values", values));
    }
    let row = bits / 8 / rows.max(1);
    Ok(Box::new(move |cx| {
        let (lookups, keys, values) = (cx.input::<i32>(0)?, cx.input::<i32>(1)?, cx.input_bytes(2)?);
        let (output, hits) = (cx.output_bytes(0)?, cx.output::<u8>(1)?);
        let mut pace = Pace::new(cx);
        for (i, (&key, hit)) in lookups.iter().zip(hits).enumerate() {
            pace.spend(row.saturating_add(64))?;
            let output = &mut output[i * row..][..row];
            let found = find(keys, key);
            *hit = found.is_some().into();
            match found {
                Some(at) => output.copy_from_slice(&values[at * row..][..row]),
                None => output.fill(0),
            }
        }
        Ok(())
    }))
}

/// Looks up strings; the result for a missing key is an empty string.
fn strings(cx: &mut InvokeContext<'_>) -> Result<()> {
    let (lookups, keys, values) = (cx.input::<i32>(0)?, cx.input::<i32>(1)?, cx.strings(2)?);
    let hits = cx.output::<u8>(1)?;
    // Writing strings iterates over them twice.
    let mut places = cx.budget().reserved(lookups.len())?;
    let mut pace = Pace::new(cx);
    for (&key, hit) in lookups.iter().zip(hits) {
        pace.spend(64)?;
        let found = find(keys, key);
        *hit = found.is_some().into();
        places.push(found)?;
    }
    let found = places.iter().map(|place| place.map_or(&[][..], |at| values.get(at)));
    cx.write_strings(0, [lookups.len()], found)
}

/// Index of `key` among the sorted `keys`, by bisection: among equal keys the one that TFLite finds.
fn find(keys: &[i32], key: i32) -> Option<usize> {
    let (mut low, mut high) = (0, keys.len());
    while low < high {
        let middle = low.midpoint(high);
        match key.wrapping_sub(keys[middle]) {
            0 => return Some(middle),
            ..0 => high = middle,
            _ => low = middle + 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn rows_by_key() {
        let op = BuiltinOp::HASHTABLE_LOOKUP;
        let lookups = || Some(T::new(&[4], &[1234i32, -292, -11, 0]));
        let keys = || Some(T::new(&[3], &[-11i32, 0, 1234]));
        let values = Some(T::new(&[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let rows = T::new(&[4, 2], &[5f32, 6.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
        let hits = || T::new(&[4], &[1u8, 0, 1, 1]);
        check(op, 1, Params::None, &[lookups(), keys(), values.clone()], &[rows.clone(), hits()]);
        let words = Some(T::strings(&[3], &["a", "bc", "def"]));
        let found = T::strings(&[4], &["def", "", "a", "bc"]);
        check(op, 1, Params::None, &[lookups(), keys(), words], &[found, hits()]);
        let wrong = Some(T::new(&[3], &[0i64; 3]));
        let text = error(op, 1, Params::None, &[lookups(), wrong, values], &[rows, hits()]);
        assert!(text.contains("keys \"t1\" of type INT64"), "{text}");
    }
}
