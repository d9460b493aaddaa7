//! Calls of the interface, and models for it.

// Each test uses some of it.
#![allow(dead_code)]

use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;

use delegraph::core::ops::binary::AddParams;
use delegraph::core::ops::control_flow::WhileParams;
use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder, TensorType, ops::Params};
use delegraph_capi::error::dg_status::{self, *};
use delegraph_capi::error::*;
use delegraph_capi::interpreter::*;
use delegraph_capi::model::*;
use delegraph_capi::options::*;
use delegraph_capi::tensors::*;
use delegraph_capi::text::*;

pub(crate) const DIGITS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/digits/digits_float32.tflite");
pub(crate) const DIGITS_INT8: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/digits/digits_int8.tflite");

/// Calls a function that returns a status and, through its last argument, a result.
pub(crate) fn made<T: Copy>(
    initial: T,
    f: impl FnOnce(*mut T) -> dg_status,
) -> Result<T, (dg_status, String)> {
    let mut value = initial;
    match f(&raw mut value) {
        DG_OK => Ok(value),
        status => Err((status, last_error())),
    }
}

pub(crate) fn last_error() -> String {
    // SAFETY: never null; copied before the next error of this thread.
    unsafe { CStr::from_ptr(dg_last_error()) }.to_str().unwrap().to_owned()
}

/// Copies a text of the library, and frees it.
pub(crate) fn text(f: impl FnOnce(*mut *mut c_char) -> dg_status) -> String {
    let text = made(null_mut(), f).unwrap();
    // SAFETY: the library returned a text, which is freed after it was copied.
    let copy = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    assert_eq!(dg_text_free(text), DG_OK);
    copy
}

pub(crate) fn load(path: &str) -> *mut dg_model {
    let path = CString::new(path).unwrap();
    // SAFETY: the text is valid.
    made(null_mut(), |out| unsafe { dg_model_load(path.as_ptr(), out) }).unwrap()
}

pub(crate) fn from_bytes(bytes: &[u8]) -> Result<*mut dg_model, (dg_status, String)> {
    // SAFETY: the bytes have the size.
    made(null_mut(), |out| unsafe { dg_model_from_bytes(bytes.as_ptr().cast(), bytes.len(), out) })
}

pub(crate) fn create(
    model: *const dg_model,
    options: *const dg_options,
) -> Result<*mut dg_interpreter, (dg_status, String)> {
    // SAFETY: the result has a place.
    made(null_mut(), |out| unsafe { dg_interpreter_create(model, options, out) })
}

pub(crate) fn options() -> *mut dg_options {
    // SAFETY: the result has a place.
    made(null_mut(), |out| unsafe { dg_options_create(out) }).unwrap()
}

pub(crate) fn write(it: *mut dg_interpreter, input: usize, values: &[f32]) -> dg_status {
    // SAFETY: the values have the size.
    unsafe { dg_interpreter_write(it, input, values.as_ptr().cast(), size_of_val(values)) }
}

pub(crate) fn read(it: *mut dg_interpreter, output: usize, count: usize) -> Vec<f32> {
    let mut values = vec![0f32; count];
    // SAFETY: the values have the size.
    let status = unsafe { dg_interpreter_read(it, output, values.as_mut_ptr().cast(), 4 * count) };
    assert_eq!(status, DG_OK, "{}", last_error());
    values
}

pub(crate) fn info(
    it: *const dg_interpreter,
    side: dg_side,
    index: usize,
) -> Result<dg_tensor_info, dg_status> {
    let mut info = std::mem::MaybeUninit::<dg_tensor_info>::uninit();
    // SAFETY: the result has a place, which a success fills.
    unsafe {
        match dg_interpreter_tensor(it, side, index, info.as_mut_ptr()) {
            DG_OK => Ok(info.assume_init()),
            status => Err(status),
        }
    }
}

/// The outputs `sum`, which is `x` plus a variable, and `more`, which is `sum` plus 1.
pub(crate) fn counter() -> Vec<u8> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2]);
    let state = graph.variable("state", TensorType::Float32, [2]);
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, state]).output("sum");
    let ones = graph.constant("ones", [2], &[1f32; 2]);
    let more = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([sum, ones]).output("more");
    graph.outputs([sum, more]);
    ModelBuilder::new().subgraph(graph).build().unwrap().to_bytes().unwrap()
}

/// Two signatures: `double` (`a` and `z` added, any length) and `negate`.
pub(crate) fn signatures() -> Vec<u8> {
    let mut double = SubgraphBuilder::new("double");
    let z = double.input("z_tensor", TensorType::Float32, [1]);
    let a = double.input("a_tensor", TensorType::Float32, [1]);
    double.resizable(z, [None]);
    double.resizable(a, [None]);
    let sum = double.node(BuiltinOp::ADD, AddParams::default()).inputs([z, a]).output("sum");
    double.outputs([sum]);
    let mut negate = SubgraphBuilder::new("negate");
    let x = negate.input("x", TensorType::Float32, [3]);
    let y = negate.node(BuiltinOp::NEG, Params::None).inputs([x]).output("y");
    negate.outputs([y]);
    let model = ModelBuilder::new().subgraph(double).subgraph(negate);
    let model = model.signature("double", 0, [("z", z), ("a", a)], [("total", sum)]);
    model.signature("negate", 1, [("x", x)], [("minus", y)]).build().unwrap().to_bytes().unwrap()
}

/// A loop that does not end.
pub(crate) fn endless() -> Vec<u8> {
    let counter = |name| {
        let mut graph = SubgraphBuilder::new(name);
        let x = graph.input("x", TensorType::Float32, [1]);
        (graph, x)
    };
    let (mut main, x) = counter("main");
    let params = WhileParams::default().cond_subgraph_index(1).body_subgraph_index(2);
    let y = main.tensor("y", TensorType::Float32, [1]);
    main.node(BuiltinOp::WHILE, params).inputs([x]).writes([y]);
    main.outputs([y]);
    let (mut condition, _) = counter("condition");
    let yes = condition.constant_bytes("yes", TensorType::Bool, [1], &[1]);
    condition.outputs([yes]);
    let (mut body, x) = counter("body");
    let y = body.node(BuiltinOp::NEG, Params::None).inputs([x]).output("y");
    body.outputs([y]);
    let model = ModelBuilder::new().subgraph(main).subgraph(condition).subgraph(body);
    model.build().unwrap().to_bytes().unwrap()
}
