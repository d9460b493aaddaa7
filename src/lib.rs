//! Delegraph runs `.tflite` models in pure Rust and lets any hardware take over any part of a model.
//!
//! Applications depend on this crate. It re-exports the other crates and adds functions that need a file system.
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

#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "documents")]
pub mod documents;

// The command uses the library by its name, like any application.
#[cfg(feature = "cli")]
extern crate self as delegraph;

#[cfg(feature = "cli")]
use std::ffi::OsString;
use std::path::Path;

pub use delegraph_core::{
    self as core, Error, Model, ModelBytes, MutableOpResolver, Registration, Result, Shape, TensorType,
};
pub use delegraph_delegate_api::{self as delegate_api, Delegate, Policy, Simple, SimpleDelegate};
#[cfg(feature = "wgpu")]
pub use delegraph_delegate_wgpu as delegate_wgpu;
pub use delegraph_interpreter::{
    self as interpreter, BuiltinOpResolver, Interpreter, ReferenceOpResolver, fusion,
};
#[cfg(all(feature = "plugins", unix))]
pub use delegraph_litert::external as litert;

/// Reads the model file at `path` and verifies it.
///
/// With the Cargo feature `mmap` the file is mapped into memory. It must not change while the model is in use; replacing
/// it by renaming another file over it is fine.
///
/// # Errors
/// [`Error::Io`] if the file cannot be read or is not a regular file, [`Error::InvalidModel`] if it is not a valid
/// model, [`Error::ExternalData`] if its weights are in other files.
pub fn load(path: impl AsRef<Path>) -> Result<Model> {
    let path = path.as_ref();
    let unreadable = |source: std::io::Error| Error::io(path, source);
    let invalid = |message: &str| Error::invalid_model(Some(path.into()), message);
    let file = delegraph_core::types::open_regular(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.len() == 0 {
        return Err(invalid("the file is empty"));
    }
    Model::from_bytes_named(file_bytes(&file).map_err(unreadable)?, path)
}

/// Runs the `delegraph` command with `arguments`, the first of which is its name, and returns its exit code. This is for
/// programs that contain the command, once per process: it sets the process's logger, its panic hook and, on Linux, its
/// handler of `SIGBUS`, so that a truncated model file ends the command with an error.
///
/// `program` is a program with its first arguments that runs the command in another process: `conformance` runs cases
/// there. With `None`, these cases fail.
#[cfg(feature = "cli")]
pub fn command(arguments: impl IntoIterator<Item = OsString>, program: Option<Vec<OsString>>) -> u8 {
    cli::run(arguments.into_iter().collect(), program)
}

#[cfg(feature = "mmap")]
use mapped::file_bytes;

#[cfg(not(feature = "mmap"))]
fn file_bytes(mut file: &std::fs::File) -> std::io::Result<ModelBytes> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(ModelBytes::new(bytes))
}

#[cfg(feature = "mmap")]
mod mapped {
    use delegraph_core::ModelBytes;
    use delegraph_core::graph::Backing;

    pub(super) fn file_bytes(file: &std::fs::File) -> std::io::Result<ModelBytes> {
        // SAFETY: the map is read-only and private to this process; that the file is not truncated while it is mapped is
        // the documented condition of `load`.
        let map = unsafe { memmap2::Mmap::map(file) }?;
        Ok(ModelBytes::backed(Mapped(map)))
    }

    /// A mapped file.
    struct Mapped(memmap2::Mmap);

    impl AsRef<[u8]> for Mapped {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Backing for Mapped {
        fn release_pages(&self) {
            #[cfg(unix)]
            {
                // SAFETY: the file behind the map is not written to (the condition of `load`), so a page that leaves
                // memory is read from the file again when it is next touched, with the same bytes.
                let advised = unsafe { self.0.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
                if let Err(error) = advised {
                    log::debug!("the model's pages stay in memory: {error}");
                }
            }
        }
    }
}
