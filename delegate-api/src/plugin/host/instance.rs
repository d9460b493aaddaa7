//! The object that a plugin created, and the library that contains its functions.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use super::super::abi::*;
use super::entry::{KernelFunction, TableError, read_table, required};

/// The functions of a plugin, and the library that contains them.
pub(super) struct Loaded {
    pub(super) functions: Functions,
    pub(super) path: PathBuf,
    /// Dropped last, because it contains the functions.
    #[cfg(all(feature = "plugins", any(unix, windows)))]
    pub(super) _library: Option<libloading::Library>,
}

/// The required and the optional functions of a plugin.
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

impl Functions {
    /// Returns the functions of the table at `table`, or its defect.
    ///
    /// # Safety
    /// `table` is null, or valid for reads of the size that it declares, which covers at least its version and its
    /// size.
    pub(super) unsafe fn read(table: *const DelegraphPlugin) -> Result<Self, TableError> {
        // SAFETY: guaranteed by the caller.
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

/// The object that the plugin created. It is destroyed with the last of the delegate and its kernels, and before the
/// library is unloaded.
pub(super) struct Instance {
    pub(super) delegate: *mut c_void,
    pub(super) library: Arc<Loaded>,
}

// SAFETY: the interface allows any thread to use a delegate, one at a time. `PluginDelegate` uses it exclusively: in
// `new`, then in `prepare` and in the session that borrows it. The only other use is `destroy`, when the last owner is
// dropped.
unsafe impl Send for Instance {}
// SAFETY: as above; a shared reference gives access only to the library, which never changes.
unsafe impl Sync for Instance {}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: `create` made it, all kernels are destroyed (each holds a reference to this), and it is destroyed
        // once.
        unsafe { (self.library.functions.destroy)(self.delegate) };
    }
}

impl Instance {
    pub(super) fn new(library: Arc<Loaded>, delegate: *mut c_void) -> Self {
        Instance { delegate, library }
    }
}
