//! Models.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use delegraph::BuiltinOpResolver;
use delegraph::core::ModelBytes;
use delegraph::core::error::absent;
use delegraph::core::resolver::check_resolved;
use delegraph::documents;
use delegraph_ffi::contain;
use delegraph_ffi::handle::Table;

use crate::error::{Failure, Out, call, dg_status};
use crate::text::{give, present};

/// A model: read and verified, and never changed. Any number of interpreters and threads may use it.
pub struct dg_model {
    _private: (),
}

/// The object behind a `dg_model*`.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) model: Arc<delegraph::Model>,
    /// The path, or a description of a model without a path.
    pub(crate) name: String,
}

static MODELS: Table<Model> = Table::new(8);

/// Returns a model.
///
/// # Errors
/// [`dg_status::DG_INVALID_HANDLE`] for an invalid handle.
pub(crate) fn model(model: *const dg_model) -> Result<Arc<Model>, Failure> {
    MODELS.get(model).ok_or_else(|| Failure::handle("model"))
}

fn created(model: delegraph::core::Result<delegraph::Model>, name: String) -> Result<*mut dg_model, Failure> {
    let handle: *mut dg_model = MODELS.insert(Model { model: Arc::new(model?), name });
    if handle.is_null() {
        Err(Failure::new(dg_status::DG_LIMIT, "there are too many models"))
    } else {
        Ok(handle)
    }
}

/// Reads the model of a `.tflite` file. The file is mapped into memory if the system supports that: it must not be
/// modified while the model is in use. Replacing it by renaming another file over it is fine.
///
/// `DG_IO` if the file cannot be read, `DG_INVALID_MODEL` if it is not a model, `DG_UNSUPPORTED` if its weights are in other
/// files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_model_load(path: *const c_char, model: *mut *mut dg_model) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result, and null or a text.
        let (out, path) = unsafe { (Out::new(model, std::ptr::null_mut())?, present(path, "the path")?) };
        let name = path.to_string_lossy().into_owned();
        out.set(created(delegraph::load(contain::path(path)?), name)?);
        Ok(())
    })
}

/// Reads a model of `size` bytes in memory, which are copied.
///
/// Errors are those of `dg_model_load`, except for `DG_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_model_from_bytes(
    data: *const c_void,
    size: usize,
    model: *mut *mut dg_model,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result, and `size` bytes at `data`.
        let (out, bytes) = unsafe {
            let out = Out::new(model, std::ptr::null_mut())?;
            (out, contain::values(data.cast::<u8>(), size).map_err(Failure::argument)?)
        };
        let model = delegraph::Model::from_bytes(ModelBytes::new(bytes.to_vec()));
        out.set(created(model, "a model in memory".into())?);
        Ok(())
    })
}

/// Releases the bytes of a model. `user_data` is the pointer that was passed with the function.
pub type dg_release_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Reads a model of `size` bytes in memory, which are not copied. They must be readable and unchanged until `release` is
/// called: when the model and all objects that use it are deleted, from the thread that deletes the last of them, or
/// before this function returns an error. `release` may be null.
///
/// Errors are those of `dg_model_from_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_model_from_memory(
    data: *const c_void,
    size: usize,
    release: dg_release_fn,
    user_data: *mut c_void,
    model: *mut *mut dg_model,
) -> dg_status {
    call(|| {
        // Created before anything can fail, so that the bytes are always released.
        let borrowed = Borrowed { data: data.cast(), size, release, user_data };
        // SAFETY: the interface requires null or a valid pointer for the result, and `size` bytes at `data`.
        let out = unsafe {
            let out = Out::new(model, std::ptr::null_mut())?;
            contain::values(borrowed.data, size).map_err(Failure::argument)?;
            out
        };
        let model = delegraph::Model::from_bytes(ModelBytes::new(borrowed));
        out.set(created(model, "a model in memory".into())?);
        Ok(())
    })
}

/// Bytes of the application.
struct Borrowed {
    data: *const u8,
    size: usize,
    release: dg_release_fn,
    user_data: *mut c_void,
}

// SAFETY: the bytes are only read, and the interface requires that they are unchanged until they are released, which
// may be in any thread.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        if self.size == 0 {
            return &[];
        }
        // SAFETY: null and sizes that memory cannot hold are excluded before a model is created from this; the
        // interface requires that the bytes are valid until they are released.
        unsafe { std::slice::from_raw_parts(self.data, self.size) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the application passed the function for this call, which happens once.
            unsafe { release(self.user_data) };
        }
    }
}

/// Deletes a model; null is allowed. Its interpreters stay usable.
///
/// `DG_INVALID_HANDLE` if it was deleted before.
#[unsafe(no_mangle)]
pub extern "C" fn dg_model_delete(model: *mut dg_model) -> dg_status {
    call(|| match MODELS.remove(model) {
        None if !model.is_null() => Err(Failure::handle("model")),
        _ => Ok(()),
    })
}

/// Returns the number of signatures: named subgraphs of the model, with names for their inputs and outputs. May be 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_model_signature_count(model: *const dg_model, count: *mut usize) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(count, 0) }?;
        out.set(self::model(model)?.model.signatures().len());
        Ok(())
    })
}

/// Returns the key of a signature: a text to be freed with `dg_text_free`.
///
/// `DG_INVALID_ARGUMENT` if there is no such signature.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_model_signature_key(
    model: *const dg_model,
    index: usize,
    key: *mut *mut c_char,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(key, std::ptr::null_mut()) }?;
        let model = self::model(model)?;
        let signatures = model.model.signatures();
        let signature = signatures
            .get(index)
            .ok_or_else(|| Failure::argument(absent("signature", index, "the model", signatures.len())))?;
        out.set(give(signature.key().as_bytes()));
        Ok(())
    })
}

/// Describes the model: inputs, outputs, signatures, ops with their versions and kernels, sizes, quantization,
/// metadata. Returns the JSON of `delegraph inspect --json`, a text to be freed with `dg_text_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_model_inspect(model: *const dg_model, json: *mut *mut c_char) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(json, std::ptr::null_mut()) }?;
        let model = self::model(model)?;
        let resolver = BuiltinOpResolver::new();
        let unresolved = check_resolved(&model.model, &resolver).err();
        let document = documents::inspect(model.name.clone(), &model.model, &resolver, unresolved.as_ref());
        out.set(give(document.to_json().as_bytes()));
        Ok(())
    })
}
