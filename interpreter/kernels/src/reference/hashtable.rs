//! HASHTABLE, HASHTABLE_FIND, HASHTABLE_IMPORT, HASHTABLE_SIZE.

use std::sync::Arc;

use delegraph_core::kernel::{Entries, InvokeContext, PrepareContext, Strings, Table, TableKind};
use delegraph_core::ops::hashtable::HashtableParams;
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Registration, Result, TensorType};

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

fn find(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let shape = cx.output(0)?.shape().clone();
    let string_keys = cx.input(1)?.ty() == TensorType::String;
    Ok(Box::new(move |cx| {
        if !table(cx)?.filled {
            return Err(Error::Kernel("the table is read before it is filled".into()));
        }
        if string_keys {
            let (keys, default) = (cx.strings(1)?, cx.input::<i64>(2)?);
            let (output, default) = (cx.output::<i64>(0)?, default.first().copied().unwrap_or_default());
            let Entries::IntegersByString(map) = &table(cx)?.entries else { return Err(wrong_types(true)) };
            output.iter_mut().zip(keys.iter()).for_each(|(o, key)| *o = *map.get(key).unwrap_or(&default));
        } else {
            let (keys, default) = (cx.input::<i64>(1)?, cx.strings(2)?.get(0));
            let budget = Arc::clone(cx.budget());
            let Entries::StringsByInteger(map) = &table(cx)?.entries else { return Err(wrong_types(false)) };
            let values = keys.iter().map(|key| map.get(key).map_or(default, |value| value));
            let _charge = budget.charge(Strings::encoded_size(values.clone())?)?;
            let bytes = Strings::encode(values)?;
            cx.resize_output_bytes(0, shape.clone(), bytes.len())?;
            cx.output_bytes(0)?.copy_from_slice(&bytes);
        }
        Ok(())
    }))
}

/// Fills the table unless it is filled. The first of several values for a key is kept.
fn import(cx: &mut InvokeContext<'_>) -> Result<()> {
    if table(cx)?.filled {
        return Ok(());
    }
    match cx.input_tensor(1)?.ty {
        TensorType::String => {
            let (keys, values) = (cx.strings(1)?, cx.input::<i64>(2)?);
            let table = table(cx)?;
            table.reserve(keys.len(), keys.iter().map(<[u8]>::len).fold(0, usize::saturating_add))?;
            let Entries::IntegersByString(map) = &mut table.entries else { return Err(wrong_types(true)) };
            keys.iter().zip(values).for_each(|(key, value)| _ = map.entry(key.into()).or_insert(*value));
        }
        _ => {
            let (keys, values) = (cx.input::<i64>(1)?, cx.strings(2)?);
            let table = table(cx)?;
            table.reserve(values.len(), values.iter().map(<[u8]>::len).fold(0, usize::saturating_add))?;
            let Entries::StringsByInteger(map) = &mut table.entries else { return Err(wrong_types(false)) };
            keys.iter()
                .zip(values.iter())
                .for_each(|(key, value)| _ = map.entry(*key).or_insert_with(|| value.into()));
        }
    }
    table(cx)?.filled = true;
    Ok(())
}

fn size(cx: &mut InvokeContext<'_>) -> Result<()> {
    let entries = table(cx)?.entries.len();
    cx.output::<i64>(0)?.fill(i64::try_from(entries).unwrap_or(i64::MAX));
    Ok(())
}
