//! The functions of the interface, called as an application calls them.

mod calls;
mod custom_ops;
mod delegates;
mod models;
mod wrong_calls;

use std::ffi::c_void;

use delegraph::core::ops::binary::AddParams;
use delegraph::core::{BuiltinOp, ModelBuilder, SubgraphBuilder, TensorType};

use crate::interpreter::*;
use crate::model::*;
use crate::options::*;
use crate::report::tests::collect;

/// A model, options whose reporter collects messages, and an interpreter.
struct Session {
    model: *mut ModelHandle,
    options: *mut OptionsHandle,
    interpreter: *mut InterpreterHandle,
    /// Also written by the reporter.
    messages: *mut String,
    _bytes: Vec<u8>,
}

impl Session {
    fn new(bytes: Vec<u8>) -> Self {
        Session::with(bytes, |_| ())
    }

    fn with(bytes: Vec<u8>, f: impl FnOnce(*mut OptionsHandle)) -> Self {
        let messages = Box::into_raw(Box::new(String::new()));
        // SAFETY: the bytes and the messages outlive the model and the options.
        unsafe {
            let user_data = messages.cast::<c_void>();
            let data = bytes.as_ptr().cast();
            let model = TfLiteModelCreateWithErrorReporter(data, bytes.len(), Some(collect), user_data);
            let options = TfLiteInterpreterOptionsCreate();
            TfLiteInterpreterOptionsSetErrorReporter(options, Some(collect), user_data);
            f(options);
            let interpreter = TfLiteInterpreterCreate(model, options);
            Session { model, options, interpreter, messages, _bytes: bytes }
        }
    }

    /// Returns the messages so far.
    fn messages(&self) -> String {
        // SAFETY: the memory is the session's, and no call is running.
        unsafe { (*self.messages).clone() }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        TfLiteInterpreterDelete(self.interpreter);
        TfLiteInterpreterOptionsDelete(self.options);
        TfLiteModelDelete(self.model);
        // SAFETY: made by `with`, and nothing reports from here on.
        drop(unsafe { Box::from_raw(self.messages) });
    }
}

/// The outputs `sum`, which is `x` plus a variable, and `more`, which is `sum` plus 1.
fn counter() -> Vec<u8> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2]);
    let state = graph.variable("state", TensorType::Float32, [2]);
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, state]).output("sum");
    let ones = graph.constant("ones", [2], &[1f32; 2]);
    let more = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([sum, ones]).output("more");
    graph.outputs([sum, more]);
    ModelBuilder::new().subgraph(graph).build().unwrap().to_bytes().unwrap()
}

/// Two signatures: `double` (`x` and `y` added, any length) and `negate`.
fn signatures() -> Vec<u8> {
    let mut double = SubgraphBuilder::new("double");
    let z = double.input("z_tensor", TensorType::Float32, [1]);
    let a = double.input("a_tensor", TensorType::Float32, [1]);
    double.resizable(z, [None]);
    double.resizable(a, [None]);
    let sum = double.node(BuiltinOp::ADD, AddParams::default()).inputs([z, a]).output("sum");
    double.outputs([sum]);
    let mut negate = SubgraphBuilder::new("negate");
    let x = negate.input("x", TensorType::Float32, [3]);
    let y = negate.node(BuiltinOp::NEG, delegraph::core::ops::Params::None).inputs([x]).output("y");
    negate.outputs([y]);
    let model = ModelBuilder::new().subgraph(double).subgraph(negate);
    let model = model.signature("double", 0, [("z", z), ("a", a)], [("sum", sum)]);
    model.signature("negate", 1, [("x", x)], [("y", y)]).build().unwrap().to_bytes().unwrap()
}

/// A custom op that nothing runs.
fn unresolved() -> Vec<u8> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2]);
    let y = graph.tensor("y", TensorType::Float32, [2]);
    graph.custom("Mystery").inputs([x]).writes([y]);
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap().to_bytes().unwrap()
}
