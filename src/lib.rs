//! Delegraph runs `.tflite` models in pure Rust and lets any hardware take over any part of a model.
//!
//! This crate is what applications depend on: it gathers the others and adds what needs a file system.
//!
//! ```
//! # fn main() -> delegraph::Result<()> {
//! let model = delegraph::load(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/digits/digits_float32.tflite"))?;
//! let mut interpreter = delegraph::Interpreter::builder(model).build()?;
//! interpreter.input_mut::<f32>(0)?.fill(0.5);
//! interpreter.invoke()?;
//! println!("{:?}", interpreter.output::<f32>(0)?);
//! # Ok(())
//! # }
//! ```

use std::path::Path;

use delegraph_core::graph::Backing;
pub use delegraph_core::{
    self as core, Error, Model, ModelBytes, MutableOpResolver, Registration, Result, Shape, TensorType,
};
pub use delegraph_delegate_api::{self as delegate_api, Delegate, Policy, SimpleDelegate};
pub use delegraph_delegate_wgpu as delegate_wgpu;
pub use delegraph_interpreter::{
    self as interpreter, BuiltinOpResolver, Interpreter, ReferenceOpResolver, fusion,
};

/// Maps the file at `path` into memory and verifies it.
///
/// The file must not change while the model lives; replacing it by renaming another over it is fine.
///
/// # Errors
/// [`Error::InvalidModel`] where the file cannot be read or is no valid model.
pub fn load(path: impl AsRef<Path>) -> Result<Model> {
    let path = path.as_ref();
    let invalid = |e: std::io::Error| Error::InvalidModel { path: Some(path.into()), message: e.to_string() };
    let file = std::fs::File::open(path).map_err(invalid)?;
    let length = file.metadata().map_err(invalid)?;
    if !length.is_file() {
        return Err(invalid(std::io::Error::other("not a file")));
    }
    if length.len() == 0 {
        return Err(invalid(std::io::Error::other("the file is empty")));
    }
    // SAFETY: the map is read-only and private to this process; that nobody truncates the file meanwhile is the
    // documented condition of this function, as it is of every program that maps its models.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(invalid)?;
    Model::from_bytes_named(ModelBytes::backed(Mapped(map)), path)
}

/// A mapped file.
struct Mapped(memmap2::Mmap);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Backing for Mapped {
    fn let_go(&self) {
        #[cfg(unix)]
        {
            // SAFETY: the map is of a file, never written to, so a page that leaves memory is read from the file
            // again when it is next touched, and holds what it held: slices into it stay valid. That the file does
            // not change is the condition of `load`.
            let advised = unsafe { self.0.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
            if let Err(error) = advised {
                log::debug!("the model's pages stay in memory: {error}");
            }
        }
    }
}
