//! Delegates for LiteRT or TensorFlow Lite, inside Delegraph.
//!
//! [`ExternalLibrary`] loads a shared library that exports `tflite_plugin_create_delegate`, and makes its delegates
//! [`Delegate`](delegraph_delegate_api::Delegate)s. A delegate gets a `TfLiteContext` over the graph: tensors under the
//! numbers of the model, the nodes that it may claim as its execution plan, params in the structures of
//! `builtin_op_data.h`, constants as tensors of the file. It replaces nodes while it prepares, and its kernels are
//! prepared and invoked as in LiteRT.
//!
//! The plan excludes nodes that are computed while preparing, whose outputs are constants; nodes of other delegates;
//! nodes that the limits exclude; and nodes that cannot be described in the C structures, for which the report has the
//! reason.
//!
//! # Safety
//! The library's code runs in this process. Every pointer, index, size and status that it returns is checked as far as
//! that is possible, and the first invalid call is an error of the delegate. A context is identified by its address, on
//! the thread that called the delegate, during that call. Writes beyond the end of memory, and wrong pointers that are
//! not null, cannot be detected. `TfLiteContext::impl_` is null: a delegate that needs the C++ objects of
//! LiteRT's interpreter behind it cannot run here.

mod calls;
mod context;
mod delegate;
mod graph;
mod instance;
mod kernel;
mod library;
mod messages;
mod nodes;
mod tensors;

pub use delegate::ExternalDelegate;
pub use library::ExternalLibrary;
