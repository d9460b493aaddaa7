//! Tables that nodes share.

use delegraph_core::graph::{Model, Node, Subgraph, Tensor, TensorId};
use delegraph_core::ops::hashtable::HashtableParams;
use delegraph_core::{BuiltinOp, Params, TensorType};
use delegraph_interpreter::{Interpreter, ReferenceOpResolver};

/// Inputs: keys and values to import, keys to look up, the default; outputs: the found values, and the table's size.
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
    let params = Params::Hashtable(
        HashtableParams::default().table_id(7).key_dtype(key_dtype).value_dtype(value_dtype),
    );
    let mut nodes = vec![node(BuiltinOp::HASHTABLE, params, &[], &[0])];
    if import {
        nodes.push(node(BuiltinOp::HASHTABLE_IMPORT, Params::None, &[0, 1, 2], &[]));
    }
    nodes.push(node(BuiltinOp::HASHTABLE_FIND, Params::None, &[0, 3, 4], &[5]));
    nodes.push(node(BuiltinOp::HASHTABLE_SIZE, Params::None, &[0], &[6]));
    let tensors = tensors.iter().map(|&(ty, n)| Tensor::new("", ty, [n])).collect();
    let (inputs, outputs) = ([1, 2, 3, 4].map(TensorId), [5, 6].map(TensorId));
    let subgraph = Subgraph::new("", tensors, nodes, inputs, outputs);
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
    // A second import changes nothing until a reset.
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
    let error = interpreter(TensorType::String, TensorType::Int64, false).invoke().unwrap_err().to_string();
    assert!(error.contains("HASHTABLE_FIND") && error.ends_with("before it is filled"), "{error}");
}
