//! TensorFlow Lite's C API, on Delegraph.
//!
//! The library replaces `libtensorflowlite_c`: it exports the functions of `c_api.h` and related headers under their
//! names, with their types. The documentation of the functions is in the headers (`include/`).
//!
//! Models, options, interpreters and signature runners are numbers in a table (`delegraph_ffi::handle`), so that
//! deleted ones are detected. Tensors are structures with the published layout (`tensor`), which mirror those of the
//! runtime (`state`). All arguments of the application are checked before use, and no panic leaves the library
//! (`contain`).

// The names are those of the interface.
#![allow(non_snake_case)]

mod abi;
mod accessors;
mod arrays;
mod buffers;
mod contain;
mod context;
mod custom_ops;
mod delegate;
mod interpreter;
mod kernel;
mod model;
mod older_names;
mod opaque;
mod operator;
mod options;
mod registration;
mod report;
mod resolver;
mod signature;
mod state;
mod structs;
mod tensor;
mod types;
mod wgpu_delegate;

#[cfg(test)]
mod tests;
