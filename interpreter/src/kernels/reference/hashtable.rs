//! HASHTABLE, HASHTABLE_FIND, HASHTABLE_IMPORT, HASHTABLE_SIZE.

use delegraph_core::kernel::{Entries, InvokeContext, PrepareContext, Strings, Table};
use delegraph_core::ops::hashtable::HashtableParams;
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Registration, Result, TensorType};

use crate::kernels::prepared::{Invoke, prepared};

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
    let (number, string_keys) = (p.table_id, p.key_dtype == TensorType::String);
    Ok(Box::new(move |cx| {
        cx.host().resources().make_table(number, string_keys);
        cx.output::<i32>(0)?.fill(number);
        Ok(())
    }))
}

/// The table that input 0 stands for.
fn table<'c>(cx: &'c mut InvokeContext<'_>) -> Result<&'c mut Table> {
    let number = cx.input::<i32>(0)?.first().copied();
    let table = number.and_then(|number| cx.host().resources().table(number));
    table.ok_or_else(|| Error::Kernel("the handle stands for no table".into()))
}

fn wrong_types() -> Error {
    Error::Kernel("the table has keys and values of other types".into())
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
            let Entries::Integers(map) = &table(cx)?.entries else { return Err(wrong_types()) };
            output.iter_mut().zip(keys.iter()).for_each(|(o, key)| *o = *map.get(key).unwrap_or(&default));
        } else {
            let (keys, default) = (cx.input::<i64>(1)?, cx.strings(2)?.get(0));
            let Entries::Strings(map) = &table(cx)?.entries else { return Err(wrong_types()) };
            let values = keys.iter().map(|key| map.get(key).map_or(default, |value| value));
            let bytes = Strings::encode(values)?;
            cx.resize_output_bytes(0, shape.clone(), bytes.len())?;
            cx.output_bytes(0)?.copy_from_slice(&bytes);
        }
        Ok(())
    }))
}

/// Fills the table, the first time. Of several values for a key the first one counts.
fn import(cx: &mut InvokeContext<'_>) -> Result<()> {
    if table(cx)?.filled {
        return Ok(());
    }
    match cx.input_tensor(1)?.ty {
        TensorType::String => {
            let (keys, values) = (cx.strings(1)?, cx.input::<i64>(2)?);
            let Entries::Integers(map) = &mut table(cx)?.entries else { return Err(wrong_types()) };
            keys.iter().zip(values).for_each(|(key, value)| _ = map.entry(key.into()).or_insert(*value));
        }
        _ => {
            let (keys, values) = (cx.input::<i64>(1)?, cx.strings(2)?);
            let Entries::Strings(map) = &mut table(cx)?.entries else { return Err(wrong_types()) };
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

#[cfg(test)]
mod tests {
    use delegraph_core::graph::{Model, Node, Subgraph, Tensor, TensorId};
    use delegraph_core::{Params, TensorType};

    use super::*;
    use crate::{Interpreter, ReferenceOpResolver};

    /// Inputs: keys and values to import, keys to look up, the default; outputs: what was found, and the table's size.
    fn interpreter(key_dtype: TensorType, value_dtype: TensorType, import: bool) -> Interpreter {
        let tensors = [
            (TensorType::Resource, 1),
            (key_dtype, 3),
            (value_dtype, 3),
            (key_dtype, 2),
            (value_dtype, 1),
            (value_dtype, 2),
            (TensorType::Int64, 1),
        ];
        let node = |op, params, inputs: &[usize], outputs: &[usize]| {
            let inputs = inputs.iter().map(|&i| Some(TensorId(i)));
            Node::new(op, 1, params, inputs, outputs.iter().map(|&i| TensorId(i)))
        };
        let params = Params::Hashtable(HashtableParams { table_id: 7, key_dtype, value_dtype });
        let mut nodes = vec![node(BuiltinOp::HASHTABLE, params, &[], &[0])];
        if import {
            nodes.push(node(BuiltinOp::HASHTABLE_IMPORT, Params::None, &[0, 1, 2], &[]));
        }
        nodes.push(node(BuiltinOp::HASHTABLE_FIND, Params::None, &[0, 3, 4], &[5]));
        nodes.push(node(BuiltinOp::HASHTABLE_SIZE, Params::None, &[0], &[6]));
        let subgraph = Subgraph {
            tensors: tensors.iter().map(|&(ty, n)| Tensor::new("", ty, [n])).collect(),
            inputs: (1..5).map(TensorId).collect(),
            outputs: vec![TensorId(5), TensorId(6)],
            nodes,
            ..Default::default()
        };
        let model = Model::from_subgraphs(Vec::new(), vec![subgraph]).unwrap();
        Interpreter::builder(model).resolver(ReferenceOpResolver::new()).build().unwrap()
    }

    #[test]
    fn from_strings_to_integers() {
        let mut interpreter = interpreter(TensorType::String, TensorType::Int64, true);
        interpreter.set_input_strings(0, &["a", "b", "a"]).unwrap();
        interpreter.input_mut::<i64>(1).unwrap().copy_from_slice(&[1, 2, 3]);
        interpreter.set_input_strings(2, &["a", "c"]).unwrap();
        interpreter.input_mut::<i64>(3).unwrap().fill(-1);
        interpreter.invoke().unwrap();
        assert_eq!(interpreter.output::<i64>(0).unwrap(), [1, -1]);
        assert_eq!(interpreter.output::<i64>(1).unwrap(), [2]);
        // A second import changes nothing, until everything is forgotten.
        interpreter.input_mut::<i64>(1).unwrap().copy_from_slice(&[4, 5, 6]);
        interpreter.invoke().unwrap();
        assert_eq!(interpreter.output::<i64>(0).unwrap(), [1, -1]);
        interpreter.reset_variables().unwrap();
        interpreter.invoke().unwrap();
        assert_eq!(interpreter.output::<i64>(0).unwrap(), [4, -1]);
    }

    #[test]
    fn from_integers_to_strings() {
        let mut interpreter = interpreter(TensorType::Int64, TensorType::String, true);
        interpreter.input_mut::<i64>(0).unwrap().copy_from_slice(&[1, 2, 3]);
        interpreter.set_input_strings(1, &["one", "", "three"]).unwrap();
        interpreter.input_mut::<i64>(2).unwrap().copy_from_slice(&[3, 4]);
        interpreter.set_input_strings(3, &["none"]).unwrap();
        interpreter.invoke().unwrap();
        let found = interpreter.output_tensor(0).unwrap().strings().unwrap();
        assert!(found.iter().eq([&b"three"[..], b"none"]));
        assert!(interpreter.set_input_strings(1, &["too", "few"]).is_err());
    }

    #[test]
    fn an_empty_table_is_not_read() {
        let error =
            interpreter(TensorType::String, TensorType::Int64, false).invoke().unwrap_err().to_string();
        assert!(error.contains("HASHTABLE_FIND") && error.ends_with("before it is filled"), "{error}");
    }
}
