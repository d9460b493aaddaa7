//! Models.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use delegraph::core::ModelBytes;
use delegraph::core::error::Result;
use delegraph::core::resolver::newest_runtime;
use delegraph_ffi::contain::path as path_of;
use delegraph_ffi::handle::Table;

use crate::contain::{guard, text};
use crate::report::{ReportFn, Reporter};
use crate::types::Kind;

/// The object behind a `TfLiteModel*`.
pub(crate) struct Model {
    pub(crate) model: Arc<delegraph::Model>,
}

/// The opaque type of the interface.
#[repr(C)]
pub(crate) struct ModelHandle([u8; 0]);

/// All models.
pub(crate) static MODELS: Table<Model> = Table::new(Kind::Model as usize);

/// The schema version of models.
const SCHEMA_VERSION: c_int = 3;

/// Returns the newest release of TensorFlow Lite whose ops the library runs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteVersion() -> *const c_char {
    static VERSION: std::sync::LazyLock<std::ffi::CString> =
        std::sync::LazyLock::new(|| crate::tensor::name(newest_runtime()));
    VERSION.as_ptr()
}

/// Returns the version of the interfaces for custom ops and delegates.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteExtensionApisVersion() -> *const c_char {
    TfLiteVersion()
}

/// Returns the version of the schema of models.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteSchemaVersion() -> c_int {
    SCHEMA_VERSION
}

/// Creates a model from `size` bytes, which the caller keeps until the model and its interpreters are deleted. Returns
/// null, after a report, for an invalid model.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteModelCreate(data: *const c_void, size: usize) -> *mut ModelHandle {
    // SAFETY: the conditions are the same.
    unsafe { TfLiteModelCreateWithErrorReporter(data, size, None, std::ptr::null_mut()) }
}

/// As [`TfLiteModelCreate`], with a reporter.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteModelCreateWithErrorReporter(
    data: *const c_void,
    size: usize,
    reporter: Option<ReportFn>,
    user_data: *mut c_void,
) -> *mut ModelHandle {
    let reporter = Reporter::new(reporter, user_data);
    guard("TfLiteModelCreate", std::ptr::null_mut(), || {
        if data.is_null() || isize::try_from(size).is_err() {
            reporter.report("TfLiteModelCreate: the data are null, or larger than memory can be");
            return std::ptr::null_mut();
        }
        // SAFETY: the interface requires that the data have this size.
        let first = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size.min(8)) };
        if first.get(4..) != Some(&b"TFL3"[..]) {
            // Programs compare this text.
            reporter.report("The model is not a valid Flatbuffer buffer");
            return std::ptr::null_mut();
        }
        let bytes = ModelBytes::new(Borrowed(data.cast(), size));
        created(delegraph::Model::from_bytes(bytes), reporter)
    })
}

/// Creates a model from a file. Returns null, after a report, if the file cannot be read or the model is invalid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteModelCreateFromFile(path: *const c_char) -> *mut ModelHandle {
    // SAFETY: the conditions are the same.
    unsafe { TfLiteModelCreateFromFileWithErrorReporter(path, None, std::ptr::null_mut()) }
}

/// As [`TfLiteModelCreateFromFile`], with a reporter.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteModelCreateFromFileWithErrorReporter(
    path: *const c_char,
    reporter: Option<ReportFn>,
    user_data: *mut c_void,
) -> *mut ModelHandle {
    let reporter = Reporter::new(reporter, user_data);
    guard("TfLiteModelCreateFromFile", std::ptr::null_mut(), || {
        // SAFETY: the interface requires null or a text.
        let Some(name) = (unsafe { text(path) }) else {
            reporter.report("TfLiteModelCreateFromFile: the path is null");
            return std::ptr::null_mut();
        };
        if let Ok(Err(error)) = path_of(name).map(std::fs::metadata) {
            reporter.report(&format!("Could not open '{}'. {error}", name.to_string_lossy()));
            return std::ptr::null_mut();
        }
        created(path_of(name).and_then(delegraph::load), reporter)
    })
}

/// Deletes a model. Interpreters of it stay usable.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteModelDelete(model: *mut ModelHandle) {
    guard("TfLiteModelDelete", (), || drop(MODELS.remove(model)));
}

fn created(model: Result<delegraph::Model>, reporter: Reporter) -> *mut ModelHandle {
    match model {
        Ok(model) => MODELS.insert(Model { model: Arc::new(model) }),
        Err(error) => {
            reporter.report(&error.chain());
            std::ptr::null_mut()
        }
    }
}

/// Bytes of the application, valid as long as models and interpreters use them.
struct Borrowed(*const u8, usize);

// SAFETY: the bytes are only read; the application does not change them (the condition of `TfLiteModelCreate`).
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the pointer is not null and the size is checked where this is made; the interface requires that the
        // bytes are valid and unchanged until the model and its interpreters are deleted.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}
