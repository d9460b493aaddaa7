//! HASHTABLE, HASHTABLE_FIND, HASHTABLE_IMPORT, HASHTABLE_SIZE.

use std::sync::Arc;

use delegraph_core::kernel::{Charged, Entries, InvokeContext, PrepareContext, Strings, Table, TableKind};
use delegraph_core::ops::hashtable::HashtableParams;
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Registration, Result, TensorType};

use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    let stateful = |registration: Registration| registration.with_side_effects();
    resolver
        .add_builtin(BuiltinOp::HASHTABLE, stateful(prepared(make)), 1)
        .add_builtin(BuiltinOp::HASHTABLE_FIND, stateful(prepared(find)), 1)
        .add_builtin(BuiltinOp::HASHTABLE_IMPORT, stateful(prepared(|_| Ok(Box::new(import)))), 1)
        .add_builtin(BuiltinOp::HASHTABLE_SIZE, stateful(prepared(|_| Ok(Box::new(size)))), 1);
}

fn make(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p: &HashtableParams = cx.params()?;
    let number = p.table_id;
    let kind = match p.key_dtype {
        TensorType::String => TableKind::IntegersByString,
        _ => TableKind::StringsByInteger,
    };
    Ok(Box::new(move |cx| {
        cx.host().resources().make_table(number, kind)?;
        cx.output::<i32>(0)?.fill(number);
        Ok(())
    }))
}

/// The table of the handle in input 0.
fn table<'c>(cx: &'c mut InvokeContext<'_>) -> Result<&'c mut Table> {
    let number = cx.input::<i32>(0)?.first().copied();
    let table = number.and_then(|number| cx.host().resources().table(number));
    table.ok_or_else(|| Error::Kernel("the handle refers to a table that does not exist".into()))
}

/// Returns the error of an op with keys of type STRING or INT64 on a table of the other kind.
fn wrong_types(string_keys: bool) -> Error {
    let [strings, integers] = ["STRING keys and INT64 values", "INT64 keys and STRING values"];
    let (op, table) = if string_keys { (strings, integers) } else { (integers, strings) };
    Error::Kernel(format!("the op has {op}, but the table has {table}"))
}

/// Steps of a [`Pace`] for an entry that is looked up or added, beside the bytes of its key.
const ENTRY_STEPS: usize = 64;

fn find(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let shape = cx.output(0)?.shape().clone();
    let string_keys = cx.input(1)?.ty() == TensorType::String;
    Ok(Box::new(move |cx| {
        if !table(cx)?.filled {
            return Err(Error::Kernel("the table is read before it is filled".into()));
        }
        let budget = Arc::clone(cx.budget());
        let mut pace = Pace::of(&budget);
        if string_keys {
            let (keys, default) = (cx.strings(1)?, cx.input::<i64>(2)?);
            let (output, default) = (cx.output::<i64>(0)?, default.first().copied().unwrap_or_default());
            let Entries::IntegersByString(map) = &table(cx)?.entries else { return Err(wrong_types(true)) };
            for (o, key) in output.iter_mut().zip(keys.iter()) {
                pace.spend(key.len().saturating_add(ENTRY_STEPS))?;
                *o = *map.get(key).unwrap_or(&default);
            }
        } else {
            let (keys, default) = (cx.input::<i64>(1)?, cx.strings(2)?.get(0));
            let Entries::StringsByInteger(map) = &table(cx)?.entries else { return Err(wrong_types(false)) };
            let mut values: Charged<&[u8]> = budget.reserved(keys.len())?;
            for key in keys {
                pace.spend(ENTRY_STEPS)?;
                values.push(map.get(key).map_or(default, |value| value))?;
            }
            let values = values.iter().copied();
            let _charge = budget.charge(Strings::encoded_size(values.clone())?)?;
            let bytes = Strings::encode(values)?;
            cx.resize_output_bytes(0, shape.clone(), bytes.len())?;
            cx.output_bytes(0)?.copy_from_slice(&bytes);
        }
        Ok(())
    }))
}

/// Fills the table unless it is filled. The first of several values for a key is kept. If the work is interrupted, the
/// table stays empty.
fn import(cx: &mut InvokeContext<'_>) -> Result<()> {
    if table(cx)?.filled {
        return Ok(());
    }
    let mut pace = Pace::new(cx);
    match cx.input_tensor(1)?.ty {
        TensorType::String => {
            let (keys, values) = (cx.strings(1)?, cx.input::<i64>(2)?);
            let table = table(cx)?;
            table.reserve(keys.len(), bytes(keys, &mut pace)?)?;
            let Entries::IntegersByString(map) = &mut table.entries else { return Err(wrong_types(true)) };
            let added: Result<()> = keys.iter().zip(values).try_for_each(|(key, value)| {
                pace.spend(key.len().saturating_add(ENTRY_STEPS))?;
                map.entry(key.into()).or_insert(*value);
                Ok(())
            });
            added.inspect_err(|_| map.clear())?;
        }
        _ => {
            let (keys, values) = (cx.input::<i64>(1)?, cx.strings(2)?);
            let table = table(cx)?;
            table.reserve(values.len(), bytes(values, &mut pace)?)?;
            let Entries::StringsByInteger(map) = &mut table.entries else { return Err(wrong_types(false)) };
            let added: Result<()> = keys.iter().zip(values.iter()).try_for_each(|(key, value)| {
                pace.spend(value.len().saturating_add(ENTRY_STEPS))?;
                map.entry(*key).or_insert_with(|| value.into());
                Ok(())
            });
            added.inspect_err(|_| map.clear())?;
        }
    }
    table(cx)?.filled = true;
    Ok(())
}

/// Number of bytes of all strings.
fn bytes(strings: Strings<'_>, pace: &mut Pace) -> Result<usize> {
    strings.iter().try_fold(0usize, |bytes, string| {
        pace.spend(8)?;
        Ok(bytes.saturating_add(string.len()))
    })
}

fn size(cx: &mut InvokeContext<'_>) -> Result<()> {
    let entries = table(cx)?.entries.len();
    cx.output::<i64>(0)?.fill(i64::try_from(entries).unwrap_or(i64::MAX));
    Ok(())
}
