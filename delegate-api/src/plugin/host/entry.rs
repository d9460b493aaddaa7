//! How a library is loaded, and the table of functions that its entry function returns.

use std::ffi::c_void;
#[cfg(all(feature = "plugins", any(unix, windows)))]
use std::fmt;
use std::path::Path;

use delegraph_core::error::counted;

use super::super::abi::*;
use super::PluginError;

/// The entry function of a plugin.
pub(super) const DELEGATES: &str = "delegraph_delegate_plugin";
/// The entry function of a library of kernels.
pub(super) const KERNELS: &str = "delegraph_kernel_library";
/// The entry function of a library of fusions.
pub(super) const FUSIONS: &str = "delegraph_fusion_library";

/// An entry function of a delegate for LiteRT.
#[cfg(all(feature = "plugins", any(unix, windows)))]
const LITERT: &str = "tflite_plugin_create_delegate";

/// The type of a table's function that prepares or invokes a kernel.
pub(super) type KernelFunction = unsafe extern "C" fn(
    *mut c_void,
    DelegraphContext,
    *const DelegraphKernelCall,
    *mut DelegraphError,
) -> i32;

/// Loads the library at `path`, after checking that it is complete, and finds its entry function.
///
/// # Safety
/// The library's initialisers may run, and `entry`, if exported, is a function of the returned type.
#[cfg(all(feature = "plugins", any(unix, windows)))]
pub(super) unsafe fn open<T>(
    path: &Path,
    entry: &str,
    what: &str,
    export: &str,
) -> Result<(libloading::Library, unsafe extern "C" fn() -> *const T), PluginError> {
    super::extents::check(path)?;
    let full = std::path::absolute(path).map_err(|e| PluginError::load(path, e.to_string()))?;
    // SAFETY: guaranteed by the caller.
    let library = unsafe { libloading::Library::new(&full) };
    let refused = |e| PluginError::load_caused_by(path, "the system's loader refuses it", LoaderError(e));
    let library = library.map_err(refused)?;
    // SAFETY: guaranteed by the caller.
    let function = unsafe { library.get::<unsafe extern "C" fn() -> *const T>(entry.as_bytes()) };
    let Ok(function) = function.map(|function| *function) else {
        let other = [DELEGATES, KERNELS, FUSIONS].into_iter().find(|other| {
            // SAFETY: the address is not called.
            *other != entry && unsafe { library.get::<*const u8>(other.as_bytes()) }.is_ok()
        });
        let cure = match other {
            Some(DELEGATES) => "; it is a library of delegates: `--delegate` takes it".into(),
            Some(KERNELS) => "; it is a library of kernels: `--ops` takes it".into(),
            Some(_) => "; it is a library of fusions: `fuse --fusion` takes it".into(),
            // SAFETY: as above.
            None if unsafe { library.get::<*const u8>(LITERT.as_bytes()) }.is_ok() => {
                "; it is a delegate for LiteRT: `--delegate litert:PATH` takes it".into()
            }
            None => format!(": it is not a {what}, or was built without `{export}`"),
        };
        let message = format!("it does not export `{entry}`{cure}");
        return Err(PluginError::invalid_file(path, message));
    };
    Ok((library, function))
}

/// An error of the system's loader.
#[cfg(all(feature = "plugins", any(unix, windows)))]
#[derive(Debug)]
struct LoaderError(libloading::Error);

#[cfg(all(feature = "plugins", any(unix, windows)))]
impl fmt::Display for LoaderError {
    /// Writes the cause, which names the missing file or symbol; the error itself only states that `dlopen` failed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::error::Error::source(&self.0) {
            Some(cause) => write!(f, "{cause}"),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(all(feature = "plugins", any(unix, windows)))]
impl std::error::Error for LoaderError {}

/// The common beginning of all tables of functions.
#[repr(C)]
struct TableHead {
    abi_version: u32,
    size: usize,
}

/// Reads the table at `table` completely, if it has this version of the interface; otherwise returns the defect.
///
/// # Safety
/// `T` is a table of the interface: it begins like [`TableHead`], and is valid for any bytes that a library writes.
/// `table` is null, or valid for reads of the size that it declares, which covers at least its version and its size.
pub(super) unsafe fn read_table<T: Copy>(table: *const T) -> Result<T, TableError> {
    if table.is_null() || !table.is_aligned() {
        return Err(TableError::Wrong("its entry function returned null or a misaligned pointer".into()));
    }
    // SAFETY: version and size are present in every version (guaranteed by the caller).
    let TableHead { abi_version, size } = unsafe { table.cast::<TableHead>().read() };
    if abi_version != DELEGRAPH_ABI_VERSION {
        return Err(TableError::Version(abi_version));
    }
    // Every function of `T` is part of the first release of this version, so a smaller table is invalid.
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

/// The reason why a table is rejected.
pub(super) enum TableError {
    Version(u32),
    Size { found: usize, needed: usize },
    Wrong(String),
}

impl TableError {
    pub(super) fn at(self, path: &Path) -> PluginError {
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
                "its table of functions has {}, at least {needed} are needed: build the plugin again with this \
                 release's delegraph_plugin.h or delegraph-delegate-api",
                counted(found, "byte")
            ),
            TableError::Wrong(message) => return PluginError::load(path, message),
        };
        PluginError::incompatible(path, message)
    }
}
