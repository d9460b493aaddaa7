//! A delegate that a library created.

use std::path::PathBuf;
use std::sync::Arc;

use libloading::os::unix::Library;

use crate::abi;
use crate::raw::{Result, checked};

/// The entry points of a library, and the library that contains them.
pub(super) struct Loaded {
    pub(super) create: abi::CreateDelegate,
    pub(super) destroy: abi::DestroyDelegate,
    pub(super) path: PathBuf,
    pub(super) _library: Library,
}

/// A delegate. It is destroyed with the last of its kernels, and before the library is unloaded.
pub(super) struct Instance {
    delegate: *mut abi::Delegate,
    library: Arc<Loaded>,
}

// SAFETY: the interface lets any thread use a delegate, one at a time: `Delegate::prepare` is exclusive, kernels hold
// the lock of their graph, and the last owner destroys it.
unsafe impl Send for Instance {}
// SAFETY: as above; a shared reference gives access to the pointer, which never changes.
unsafe impl Sync for Instance {}

impl Instance {
    /// Takes over a delegate of the library.
    ///
    /// # Errors
    /// If its structure does not describe a supported delegate. It is destroyed then.
    ///
    /// # Safety
    /// `delegate` is not null, was made by the library, and is not destroyed.
    pub(super) unsafe fn new(library: Arc<Loaded>, delegate: *mut abi::Delegate) -> Result<Self> {
        let instance = Instance { delegate, library };
        checked(delegate.cast_const(), "the delegate")?;
        // SAFETY: not null and aligned; a delegate begins with these fields (guaranteed by the caller).
        let (flags, prepare, opaque) =
            unsafe { ((*delegate).flags, (*delegate).prepare, (*delegate).opaque_delegate_builder) };
        if !(0..abi::FLAGS_END).contains(&flags) {
            return Err(format!("its flags are {flags:#x}: its structures are of an unknown version"));
        }
        match prepare {
            Some(_) => Ok(instance),
            None if !opaque.is_null() => {
                Err("it is an opaque delegate, which calls functions of LiteRT's library; only \
                                              delegates with a `Prepare` function run here"
                    .into())
            }
            None => Err("it has no `Prepare` function".into()),
        }
    }

    pub(super) fn pointer(&self) -> *mut abi::Delegate {
        self.delegate
    }

    /// Returns whether the delegate supports nodes whose shapes depend on data.
    pub(super) fn allows_dynamic(&self) -> bool {
        self.read().flags & abi::ALLOW_DYNAMIC_TENSORS != 0
    }

    /// Returns the delegate's structure. The delegate may change it.
    pub(super) fn read(&self) -> abi::Delegate {
        // SAFETY: checked by `new`; the delegate lives until this is dropped, and does not run now.
        unsafe { std::ptr::read(self.delegate) }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the library made it, no kernel is left (each holds a reference to this), and it is destroyed once.
        unsafe { (self.library.destroy)(self.delegate) };
    }
}
