//! A library that exports a plugin.

use std::ffi::{CString, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::PluginOptions;
use super::super::abi::*;
use super::super::raw::{MessageRoom, error_of};
use super::delegate::{Instance, PluginDelegate};
use super::table::HOST;
use super::{OptionError, PluginError};

/// A library that exports a plugin. It stays loaded as long as this, a delegate or one of its kernels lives.
#[derive(Clone)]
pub struct PluginLibrary(pub(super) Arc<Loaded>);

/// The functions of a plugin, and what keeps them in memory.
pub(super) struct Loaded {
    pub(super) functions: Functions,
    path: PathBuf,
    /// Dropped last: the functions are in it.
    #[cfg(any(unix, windows))]
    _library: Option<libloading::Library>,
}

/// How every table of functions begins.
#[repr(C)]
struct TableHead {
    abi_version: u32,
    size: usize,
}

/// The table at `table`, whole, if it is of this version of the interface; or what is wrong with it.
///
/// # Safety
/// `T` is a table of the interface: it begins like [`TableHead`], and any bytes that a library writes there are one.
/// `table` is null, or valid for reads of as many bytes as it says, which is at least its version and its size.
pub(super) unsafe fn read_table<T: Copy>(table: *const T) -> Result<T, TableError> {
    if table.is_null() || !table.is_aligned() {
        return Err(TableError::Wrong("its entry function returns no table".into()));
    }
    // SAFETY: version and size are there whatever the version is (this function's condition).
    let TableHead { abi_version, size } = unsafe { table.cast::<TableHead>().read() };
    if abi_version != DELEGRAPH_ABI_VERSION {
        return Err(TableError::Version(abi_version));
    }
    // All functions of the first release: later ones are looked at only where the size covers them.
    let needed = size_of::<T>();
    if size < needed {
        return Err(TableError::Size { found: size, needed });
    }
    // SAFETY: it has at least the size of the struct.
    Ok(unsafe { table.read() })
}

/// Functions of a table that must not be null.
macro_rules! required {
    ($table:ident, $($name:ident),+) => {
        ($(match $table.$name {
            Some(function) => function,
            None => {
                let text = concat!("its table has no function `", stringify!($name), "`");
                return Err(TableError::Wrong(text.into()));
            }
        }),+)
    };
}
pub(super) use required;

/// The functions that every plugin must have, and those that it may have.
pub(super) struct Functions {
    pub(super) create: unsafe extern "C" fn(
        *const DelegraphHost,
        *const DelegraphOption,
        usize,
        *mut *mut c_void,
        *mut DelegraphError,
    ) -> i32,
    pub(super) destroy: unsafe extern "C" fn(*mut c_void),
    pub(super) name: unsafe extern "C" fn(*mut c_void) -> *const std::ffi::c_char,
    pub(super) versions: unsafe extern "C" fn(*mut c_void, *mut usize) -> *const DelegraphOpVersion,
    pub(super) capabilities: Option<unsafe extern "C" fn(*mut c_void) -> u64>,
    pub(super) prepare: unsafe extern "C" fn(*mut c_void, DelegraphContext, *mut DelegraphError) -> i32,
    pub(super) end_prepare: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(super) create_kernel: unsafe extern "C" fn(
        *mut c_void,
        DelegraphContext,
        u64,
        *const DelegraphPartition,
        *mut *mut c_void,
        *mut DelegraphError,
    ) -> i32,
    pub(super) destroy_kernel: unsafe extern "C" fn(*mut c_void),
    pub(super) prepare_kernel: Option<KernelFunction>,
    pub(super) invoke_kernel: KernelFunction,
    pub(super) kernel_stats: Option<unsafe extern "C" fn(*mut c_void, *mut DelegraphStats)>,
    pub(super) node_times: Option<unsafe extern "C" fn(*mut c_void, *mut usize) -> *const DelegraphNodeTime>,
}

pub(super) type KernelFunction = unsafe extern "C" fn(
    *mut c_void,
    DelegraphContext,
    *const DelegraphKernelCall,
    *mut DelegraphError,
) -> i32;

impl Functions {
    /// The functions of the table at `table`, or what is wrong with it.
    ///
    /// # Safety
    /// `table` is null, or valid for reads of as many bytes as it says, which is at least its version and its size.
    unsafe fn read(table: *const DelegraphPlugin) -> Result<Self, TableError> {
        // SAFETY: this function's condition.
        let table = unsafe { read_table(table) }?;
        let (create, destroy, name, versions) = required!(table, create, destroy, name, versions);
        let (prepare, create_kernel, destroy_kernel, invoke_kernel) =
            required!(table, prepare, create_kernel, destroy_kernel, invoke_kernel);
        Ok(Functions {
            create,
            destroy,
            name,
            versions,
            capabilities: table.capabilities,
            prepare,
            end_prepare: table.end_prepare,
            create_kernel,
            destroy_kernel,
            prepare_kernel: table.prepare_kernel,
            invoke_kernel,
            kernel_stats: table.kernel_stats,
            node_times: table.node_times,
        })
    }
}

/// What is wrong with a table.
pub(super) enum TableError {
    Version(u32),
    Size { found: usize, needed: usize },
    Wrong(String),
}

impl TableError {
    pub(super) fn at(self, path: &Path) -> PluginError {
        let path = path.to_owned();
        let message = match self {
            TableError::Version(found) => {
                let wanted = DELEGRAPH_ABI_VERSION;
                let cure = if found > wanted {
                    "update the application, or use an older build of the plugin"
                } else {
                    "build the plugin again with this release's delegraph_plugin.h or delegraph-delegate-api"
                };
                format!(
                    "its plugin interface has version {found}, this application's has version {wanted}: {cure}"
                )
            }
            TableError::Size { found, needed } => format!(
                "its table of functions has {found} bytes, at least {needed} are needed: build the plugin again with \
                 this release's delegraph_plugin.h or delegraph-delegate-api"
            ),
            TableError::Wrong(message) => return PluginError::Load { path, message },
        };
        PluginError::Incompatible { path, message }
    }
}

impl PluginLibrary {
    /// The function that a plugin exports.
    pub const ENTRY: &str = "delegraph_delegate_plugin";

    /// Loads the library at `path`.
    ///
    /// Before anything of it runs it is checked to be a whole library for this kind of machine: one that was cut off
    /// is an error, not a crash. A path without a folder is taken as one in the current folder; the system's folders
    /// are not searched.
    ///
    /// # Errors
    /// [`PluginError`], with what was found, what is wanted and what to do.
    ///
    /// # Safety
    /// Its code runs in this process, with all rights of it: the library must be trusted, and keep to what
    /// `delegraph_plugin.h` says. It must not be changed or cut off while it is loaded.
    #[cfg(any(unix, windows))]
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self, PluginError> {
        let path = path.as_ref();
        // SAFETY: this function's condition; a function of this name has this type, in every library that keeps to the
        // header.
        let (library, entry) =
            unsafe { open::<DelegraphPlugin>(path, Self::ENTRY, "delegate plugin", "export_delegate!") }?;
        // SAFETY: as above; the table lives as long as the library is loaded.
        let functions = unsafe { Functions::read(entry()) }.map_err(|e| e.at(path))?;
        Ok(PluginLibrary(Arc::new(Loaded { functions, path: path.to_owned(), _library: Some(library) })))
    }

    /// A plugin that is linked into the application: `table` is what its entry function returns.
    ///
    /// # Errors
    /// As [`PluginLibrary::open`].
    ///
    /// # Safety
    /// `table` is null, or points to a table that is never taken away and keeps to what `delegraph_plugin.h` says.
    pub unsafe fn from_table(
        name: impl Into<PathBuf>,
        table: *const DelegraphPlugin,
    ) -> Result<Self, PluginError> {
        let path = name.into();
        // SAFETY: this function's condition.
        let functions = unsafe { Functions::read(table) }.map_err(|e| e.at(&path))?;
        Ok(PluginLibrary(Arc::new(Loaded {
            functions,
            path,
            #[cfg(any(unix, windows))]
            _library: None,
        })))
    }

    /// Where it was loaded from.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// A delegate with these options.
    ///
    /// # Errors
    /// [`PluginError::Option`] for options that the plugin does not take, [`PluginError::Create`] where it fails.
    pub fn delegate(&self, options: &PluginOptions) -> Result<PluginDelegate, PluginError> {
        let path = || self.0.path.clone();
        let wrong = |text: String| PluginError::Option { path: path(), error: OptionError(text) };
        let c_string = |text: &str| {
            CString::new(text)
                .map_err(|_| wrong(format!("option \"{}\" contains a zero byte", text.escape_debug())))
        };
        let mut strings = Vec::new();
        for (key, value) in options.pairs() {
            strings.push((c_string(key)?, c_string(value)?));
        }
        let pairs: Vec<DelegraphOption> = strings
            .iter()
            .map(|(key, value)| DelegraphOption { key: key.as_ptr(), value: value.as_ptr() })
            .collect();
        let mut room = MessageRoom::new();
        let mut slot = room.slot();
        let mut delegate = std::ptr::null_mut();
        // SAFETY: all pointers are valid during the call, as the interface wants it.
        let status = unsafe {
            (self.0.functions.create)(
                &raw const HOST,
                pairs.as_ptr(),
                pairs.len(),
                &raw mut delegate,
                &raw mut slot,
            )
        };
        let message = room.message(&slot);
        // Also where it failed: what it made must not be lost.
        let instance = if delegate.is_null() { None } else { Some(Instance::new(self.0.clone(), delegate)) };
        match (status, instance) {
            (DELEGRAPH_OK, Some(instance)) => {
                instance.delegate().map_err(|error| PluginError::Create { path: path(), error })
            }
            (DELEGRAPH_OK, None) => {
                let message = "`create` says that it is fine, but there is no delegate".into();
                Err(PluginError::Load { path: path(), message })
            }
            (DELEGRAPH_BAD_OPTION, _) => Err(wrong(message)),
            (status, _) => Err(PluginError::Create { path: path(), error: error_of(status, message) }),
        }
    }
}

/// Loads the library at `path`, after checking that it is whole, and finds its entry function.
///
/// # Safety
/// Its initialisers may run, and `entry`, where it has it, is of this type.
#[cfg(any(unix, windows))]
pub(super) unsafe fn open<T>(
    path: &Path,
    entry: &str,
    what: &str,
    export: &str,
) -> Result<(libloading::Library, unsafe extern "C" fn() -> *const T), PluginError> {
    super::extents::check(path)?;
    let load = |message: String| PluginError::Load { path: path.to_owned(), message };
    let full = std::path::absolute(path).map_err(|e| load(e.to_string()))?;
    // SAFETY: this function's condition.
    let library = unsafe { libloading::Library::new(&full) };
    let library = library.map_err(|e| load(format!("the system does not load it: {}", reason(&e))))?;
    // SAFETY: this function's condition.
    let function = unsafe { library.get::<unsafe extern "C" fn() -> *const T>(entry.as_bytes()) };
    let Ok(function) = function.map(|function| *function) else {
        let other = [PluginLibrary::ENTRY, super::KernelLibrary::ENTRY].into_iter().find(|other| {
            // SAFETY: what is found is not called.
            *other != entry && unsafe { library.get::<*const u8>(other.as_bytes()) }.is_ok()
        });
        let cure = match other {
            Some(PluginLibrary::ENTRY) => "; it is a library of delegates: `--delegate` takes it".into(),
            Some(_) => "; it is a library of kernels: `--ops` takes it".into(),
            None => format!(": it is no {what}, or was built without `{export}`"),
        };
        let message = format!("it does not export `{entry}`{cure}");
        return Err(PluginError::InvalidFile { path: path.to_owned(), message });
    };
    Ok((library, function))
}

/// The cause, which names what is missing; the error itself only says that `dlopen` failed.
#[cfg(any(unix, windows))]
fn reason(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}

impl fmt::Debug for PluginLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PluginLibrary({})", self.path().display())
    }
}
