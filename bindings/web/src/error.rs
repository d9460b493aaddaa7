//! Errors as JavaScript objects, which the package converts to its error class.

use delegraph::Error;
use delegraph::core::error::ErrorKind;
use js_sys::{Object, Reflect};
use wasm_bindgen::prelude::*;

/// The code of an error, for programs.
fn code(error: &Error) -> &'static str {
    match error {
        Error::Io { .. }
        | Error::InvalidModel { .. }
        | Error::UnderstatedVersions { .. }
        | Error::InvalidNode(_) => "invalid-model",
        Error::InvalidInput(_) => "invalid-input",
        Error::OutOfMemory(_) => "out-of-memory",
        Error::LimitExceeded(_) => "limit",
        Error::Kernel(_) => "invalid-data",
        Error::Delegate { .. } => "device",
        Error::State(_) => "state",
        Error::Cancelled => "cancelled",
        Error::AtNode { source, .. } => code(source),
        other if other.kind() == ErrorKind::Unsupported => "unsupported",
        _ => "failed",
    }
}

/// Returns an error as an object with a code and a message.
pub(crate) fn thrown(error: &Error) -> JsValue {
    object(code(error), &error.chain())
}

/// Returns the error of a call that is invalid in the current state of an object.
pub(crate) fn state(message: &str) -> JsValue {
    object("state", message)
}

/// Returns an object with a code and a message.
pub(crate) fn object(code: &str, message: &str) -> JsValue {
    let object = Object::new();
    // Setting a property of a new object does not fail.
    let _ = Reflect::set(&object, &"code".into(), &code.into());
    let _ = Reflect::set(&object, &"message".into(), &message.into());
    object.into()
}
