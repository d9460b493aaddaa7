//! A library of fusions.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use delegraph_core::{Error, Result};

use super::super::abi::*;
use super::super::fusions_abi::*;
use super::super::raw::{MessageRoom, error_of, open_error, slice, text_of};
use super::super::{FusionChange, FusionKind, FusionResult, FusionUnchanged, LibraryFusion};
use super::PluginError;
use super::entry::{self, TableError, read_table, required};
use super::table::HOST;

/// A library of fusions, which rewrite models. It remains loaded as long as this object or a clone exists.
///
/// `Pipeline::library` of `delegraph-interpreter` runs its fusions.
#[derive(Clone)]
pub struct FusionLibrary(Arc<Opened>);

/// A loaded library.
struct Opened {
    /// The object that `open` created, possibly null. One thread uses it at a time.
    library: Mutex<Handle>,
    functions: Functions,
    fusions: Vec<LibraryFusion>,
    path: PathBuf,
    /// Dropped last, because it contains the functions.
    #[cfg(all(feature = "plugins", any(unix, windows)))]
    _library: Option<libloading::Library>,
}

struct Handle(*mut c_void);

// SAFETY: the interface lets any thread use it, one at a time, which the mutex around it ensures.
unsafe impl Send for Handle {}

impl Drop for Opened {
    fn drop(&mut self) {
        let library = self.library.get_mut().unwrap_or_else(PoisonError::into_inner).0;
        if let Some(close) = self.functions.close.filter(|_| !library.is_null()) {
            // SAFETY: `open` made it, and it is closed once.
            unsafe { close(library) };
        }
    }
}

#[derive(Clone, Copy)]
struct Functions {
    open: Option<unsafe extern "C" fn(*const DelegraphHost, *mut *mut c_void, *mut DelegraphError) -> i32>,
    close: Option<unsafe extern "C" fn(*mut c_void)>,
    fusions: unsafe extern "C" fn(*mut c_void, *mut usize) -> *const DelegraphFusion,
    rewrite: unsafe extern "C" fn(
        *mut c_void,
        usize,
        *const u8,
        usize,
        *const DelegraphFusionResult,
        *mut DelegraphError,
    ) -> i32,
}

impl Functions {
    /// Returns the functions of the table at `table`, or its defect.
    ///
    /// # Safety
    /// `table` is null, or valid for reads of the size that it declares, which covers at least its version and its size.
    unsafe fn read(table: *const DelegraphFusionLibrary) -> Result<Self, TableError> {
        // SAFETY: this function's condition.
        let table = unsafe { read_table(table) }?;
        let (fusions, rewrite) = required!(table, fusions, rewrite);
        Ok(Functions { open: table.open, close: table.close, fusions, rewrite })
    }
}

impl FusionLibrary {
    /// The name of the function that a library of fusions exports.
    pub const ENTRY: &str = entry::FUSIONS;

    /// Loads the library at `path`, as [`PluginLibrary::open`](super::PluginLibrary::open) does, with the same checks.
    ///
    /// # Errors
    /// [`PluginError`], with the observed and the supported value, and how to fix it.
    ///
    /// # Safety
    /// The library's code runs in this process, with all its rights: the library must be trusted, and follow
    /// `delegraph_fusions.h`. The file must not be changed or truncated while it is loaded.
    #[cfg(all(feature = "plugins", any(unix, windows)))]
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self, PluginError> {
        let path = path.as_ref();
        // SAFETY: guaranteed by the caller; a function of this name has this type in every library that follows the
        // header.
        let (library, table) = unsafe {
            entry::open::<DelegraphFusionLibrary>(path, Self::ENTRY, "library of fusions", "export_fusions!")
        }?;
        // SAFETY: as above; the table lives as long as the library is loaded.
        let functions = unsafe { Functions::read(table()) }.map_err(|e| e.at(path))?;
        Opened {
            library: Mutex::new(Handle(std::ptr::null_mut())),
            functions,
            fusions: Vec::new(),
            path: path.to_owned(),
            _library: Some(library),
        }
        .begin()
    }

    /// Creates a library that is linked into the application: `table` is the result of its entry function.
    ///
    /// # Errors
    /// As [`FusionLibrary::open`].
    ///
    /// # Safety
    /// `table` is null, or points to a static table that follows `delegraph_fusions.h`.
    pub unsafe fn from_table(
        name: impl Into<PathBuf>,
        table: *const DelegraphFusionLibrary,
    ) -> Result<Self, PluginError> {
        let path = name.into();
        // SAFETY: this function's condition.
        let functions = unsafe { Functions::read(table) }.map_err(|e| e.at(&path))?;
        Opened {
            library: Mutex::new(Handle(std::ptr::null_mut())),
            functions,
            fusions: Vec::new(),
            path,
            #[cfg(all(feature = "plugins", any(unix, windows)))]
            _library: None,
        }
        .begin()
    }

    /// Returns the path from which the library was loaded.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns its fusions; [`FusionLibrary::rewrite`] takes an index into them.
    pub fn fusions(&self) -> &[LibraryFusion] {
        &self.0.fusions
    }

    /// Rewrites the model in the file `model` with the fusion of this index.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] for a model whose composites a fusion of composites rejects, else [`Error::State`], both with the
    /// path of the library, the name of the fusion and the message. The rewritten model is not checked.
    pub fn rewrite(&self, fusion: usize, model: &[u8]) -> Result<FusionResult> {
        let library = self.0.library.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = FusionResult::default();
        let result = DelegraphFusionResult {
            size: size_of::<DelegraphFusionResult>(),
            context: (&raw mut taken).cast(),
            set_model: Some(set_model),
            add_change: Some(add_change),
            add_unchanged: Some(add_unchanged),
        };
        let mut room = MessageRoom::new();
        let mut slot = room.slot();
        // SAFETY: `open` made the library, which the lock protects; all other pointers are valid during the call, in which
        // `taken` is reached through `result` alone.
        let status = unsafe {
            let rewrite = self.0.functions.rewrite;
            let (data, result) = (model.as_ptr(), &raw const result);
            rewrite(library.0, fusion, data, model.len(), result, &raw mut slot)
        };
        if status == DELEGRAPH_OK {
            return Ok(taken);
        }
        let path = self.0.path.display();
        let (who, is_composite) = match self.0.fusions.get(fusion) {
            Some(f) => (format!("{path}: fusion \"{}\"", f.name), f.kind == FusionKind::Composite),
            None => (format!("{path}: fusion {fusion}"), false),
        };
        Err(match error_of(status, room.message(&slot)) {
            // A composite in the file does not match its name.
            Error::InvalidNode(text) if is_composite => Error::InvalidNode(format!("{who}: {text}")),
            error => Error::State(format!("{who}: {}", error.chain())),
        })
    }
}

/// The maximum number of changes, and of composites not replaced, accepted in one call.
const MAX_LINES: usize = 1 << 20;

/// # Safety
/// `context` belongs to a [`DelegraphFusionResult`] whose call has not ended.
unsafe fn taken<'a>(context: *mut c_void) -> Option<&'a mut FusionResult> {
    // SAFETY: this function's condition.
    unsafe { context.cast::<FusionResult>().as_mut() }
}

unsafe extern "C" fn set_model(context: *mut c_void, data: *const u8, len: usize) {
    // SAFETY: the library follows the interface.
    unsafe {
        if let (Some(taken), Some(bytes)) = (taken(context), slice(data, len)) {
            taken.model = Some(bytes.to_vec());
        }
    }
}

unsafe extern "C" fn add_change(
    context: *mut c_void,
    subgraph: usize,
    tensor: DelegraphText,
    from: DelegraphText,
    to: DelegraphText,
) {
    let lines = |text: String| text.lines().map(str::to_owned).collect();
    // SAFETY: the library follows the interface.
    unsafe {
        if let Some(taken) = taken(context).filter(|taken| taken.changes.len() < MAX_LINES) {
            let (from, to) = (lines(text_of(from)), lines(text_of(to)));
            taken.changes.push(FusionChange::new(subgraph, text_of(tensor)).with_from(from).with_to(to));
        }
    }
}

unsafe extern "C" fn add_unchanged(
    context: *mut c_void,
    subgraph: usize,
    tensor: DelegraphText,
    reason: DelegraphText,
) {
    // SAFETY: the library follows the interface.
    unsafe {
        if let Some(taken) = taken(context).filter(|taken| taken.unchanged.len() < MAX_LINES) {
            taken.unchanged.push(FusionUnchanged::new(subgraph, text_of(tensor), text_of(reason)));
        }
    }
}

impl fmt::Debug for FusionLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FusionLibrary({})", self.path().display())
    }
}

impl Opened {
    /// Calls `open`, and reads the list of fusions.
    fn begin(mut self) -> Result<FusionLibrary, PluginError> {
        let handle = self.library.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = self.functions.open {
            let mut room = MessageRoom::new();
            let mut slot = room.slot();
            // SAFETY: all pointers are valid during the call, as the interface requires. The created object is closed
            // by `drop`, also after a failure.
            let status = unsafe { open(&raw const HOST, &raw mut handle.0, &raw mut slot) };
            if status != DELEGRAPH_OK {
                let source = open_error(status, room.message(&slot));
                return Err(PluginError::Create { path: self.path.clone(), source });
            }
        }
        let library = handle.0;
        match self.functions.list(library) {
            Ok(fusions) => self.fusions = fusions,
            Err(text) => {
                let message = format!("the library is wrong: {text}");
                return Err(PluginError::load(&self.path, message));
            }
        }
        Ok(FusionLibrary(Arc::new(self)))
    }
}

impl Functions {
    fn list(&self, library: *mut c_void) -> Result<Vec<LibraryFusion>, String> {
        const MAX_COUNT: usize = 1 << 12;
        let mut count = 0;
        // SAFETY: `open` made the library.
        let list = unsafe { (self.fusions)(library, &raw mut count) };
        if count > MAX_COUNT {
            return Err(format!("it lists {count} fusions, more than {MAX_COUNT}"));
        }
        // SAFETY: the library guarantees `count` entries until it is closed.
        let list = unsafe { slice(list, count) }.ok_or("its list of fusions is null")?;
        let read = |fusion: &DelegraphFusion| {
            if fusion.name.is_null() {
                return Err("one of its fusions has no name".to_owned());
            }
            // SAFETY: a name ends with a zero.
            let name = unsafe { CStr::from_ptr(fusion.name) }.to_str();
            let name = name.map_err(|e| format!("the name of a fusion: {e}"))?.to_owned();
            let tolerance = fusion.tolerance;
            if name.is_empty() {
                return Err("the name of a fusion is empty".to_owned());
            }
            if !tolerance.is_finite() || tolerance < 1.0 {
                let text = "where a finite number of at least 1 is required";
                return Err(format!("the fusion \"{name}\" has the tolerance {tolerance}, {text}"));
            }
            let kind = if fusion.flags & DELEGRAPH_FUSION_COMPOSITE != 0 {
                FusionKind::Composite
            } else {
                FusionKind::Pattern
            };
            Ok(LibraryFusion { name, kind, tolerance })
        };
        list.iter().map(read).collect()
    }
}
