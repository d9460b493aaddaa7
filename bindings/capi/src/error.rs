//! Statuses, and the message of the last error.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use delegraph::Error;
use delegraph::core::error::{ErrorKind, LimitExceeded};
use delegraph_ffi::contain::caught;

/// The result of a function. `dg_last_error` returns the message of an error.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum dg_status {
    /// The function succeeded.
    DG_OK = 0,
    /// The invocation is running, or the time of `dg_invocation_wait` is over. Not an error.
    DG_PENDING = 1,
    /// An argument is null, misaligned, out of range, or does not fit the model.
    DG_INVALID_ARGUMENT = 2,
    /// The handle is null, was deleted, or belongs to another type.
    DG_INVALID_HANDLE = 3,
    /// The file cannot be read.
    DG_IO = 4,
    /// The bytes are not a valid model, or nodes of it do not fit each other.
    DG_INVALID_MODEL = 5,
    /// The model is valid, but needs an op, a version, a type or a device that this library does not support.
    DG_UNSUPPORTED = 6,
    /// Memory cannot be allocated.
    DG_OUT_OF_MEMORY = 7,
    /// The model needs more than a limit of the options allows: memory, or depth of calls.
    DG_LIMIT = 8,
    /// The call exceeded the time limit of the options.
    DG_TIME_LIMIT = 9,
    /// `dg_interpreter_cancel` or `dg_invocation_cancel` ended the call.
    DG_CANCELLED = 10,
    /// A kernel found data that its op does not allow, such as an index out of range.
    DG_INVALID_DATA = 11,
    /// A delegate failed, or its device was lost.
    DG_DELEGATE = 12,
    /// The call does not fit the state of the object.
    DG_STATE = 13,
    /// Another call on the interpreter is running, in another thread or as an invocation.
    DG_BUSY = 14,
    /// The library has a bug. The object can be deleted.
    DG_INTERNAL = 15,
}

use dg_status::*;

/// An error on its way to the application.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) status: dg_status,
    pub(crate) message: String,
    /// Subgraph and node.
    place: Option<(usize, usize)>,
}

impl Failure {
    pub(crate) fn new(status: dg_status, message: impl Into<String>) -> Self {
        Failure { status, message: message.into(), place: None }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Failure::new(DG_INVALID_ARGUMENT, message)
    }

    /// Returns the error of a handle that is not one of a `what`.
    pub(crate) fn handle(what: &str) -> Self {
        Failure::new(DG_INVALID_HANDLE, format!("the {what} is null, deleted, or a handle of another type"))
    }
}

/// The Rust functions that change limits, and the corresponding functions of this interface.
const FUNCTIONS: [(&str, &str); 2] = [
    ("`ResourceLimits::with_memory`", "`dg_options_set_max_memory`"),
    ("`ResourceLimits::with_time`", "`dg_options_set_time_limit`"),
];

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let place = match &error {
            // The numbers of a rewritten model are not those of the file.
            Error::AtNode { location, .. } if location.rewritten_by.is_some() => None,
            Error::AtNode { location, .. } => Some((location.subgraph, location.node.0)),
            _ => None,
        };
        let message =
            FUNCTIONS.iter().fold(error.chain(), |text, (rust, function)| text.replace(rust, function));
        Failure { status: status(&error), message, place }
    }
}

fn status(error: &Error) -> dg_status {
    match error {
        Error::Io { .. } | Error::Write { .. } => DG_IO,
        Error::InvalidModel { .. } | Error::UnderstatedVersions { .. } | Error::InvalidNode(_) => {
            DG_INVALID_MODEL
        }
        Error::InvalidInput(_) => DG_INVALID_ARGUMENT,
        Error::OutOfMemory(_) => DG_OUT_OF_MEMORY,
        Error::LimitExceeded(LimitExceeded::Time { .. }) => DG_TIME_LIMIT,
        Error::LimitExceeded(_) => DG_LIMIT,
        Error::Kernel(_) => DG_INVALID_DATA,
        Error::Delegate { .. } => DG_DELEGATE,
        Error::State(_) => DG_STATE,
        Error::Cancelled => DG_CANCELLED,
        Error::AtNode { source, .. } => status(source),
        other if other.kind() == ErrorKind::Unsupported => DG_UNSUPPORTED,
        // Errors of libraries of delegates and kernels have separate types.
        _ => DG_DELEGATE,
    }
}

/// The last error of a thread.
struct Last {
    message: CString,
    place: Option<(usize, usize)>,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Returns a text for C. A zero byte ends it.
pub(crate) fn c_string(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(text.get(..end).unwrap_or_default()).unwrap_or_default()
}

/// Sets the last error of this thread. Returns its status.
pub(crate) fn remember(failure: &Failure) -> dg_status {
    let last = Last { message: c_string(&failure.message), place: failure.place };
    // An ending thread no longer has a last error.
    let _ = LAST.try_with(|slot| slot.try_borrow_mut().map(|mut slot| *slot = Some(last)));
    failure.status
}

/// Runs a function of the interface. Its error or panic becomes the last error of this thread.
pub(crate) fn call(f: impl FnOnce() -> Result<(), Failure>) -> dg_status {
    let internal = |text| Err(Failure::new(DG_INTERNAL, format!("internal error: {text}")));
    match caught(f).unwrap_or_else(internal) {
        Ok(()) => DG_OK,
        Err(failure) => remember(&failure),
    }
}

/// A pointer of the application that receives a result.
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Checks the pointer, and sets the result of a failure.
    ///
    /// # Errors
    /// [`dg_status::DG_INVALID_ARGUMENT`] for null and misaligned pointers.
    ///
    /// # Safety
    /// `pointer` is null, or valid for a write until the call ends.
    pub(crate) unsafe fn new(pointer: *mut T, initial: T) -> Result<Self, Failure> {
        if pointer.is_null() || !pointer.is_aligned() {
            return Err(Failure::argument("the pointer that receives the result is null or misaligned"));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { pointer.write(initial) };
        Ok(Out(pointer))
    }

    /// Sets the result.
    pub(crate) fn set(self, value: T) {
        // SAFETY: checked by `new`, whose condition holds until the call ends.
        unsafe { self.0.write(value) };
    }
}

/// Returns the message of the last error of a function that this thread called; an empty text if there was none. It is UTF-8,
/// may have several lines, and is valid until the next error in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn dg_last_error() -> *const c_char {
    let text = LAST.try_with(|slot| match slot.try_borrow().as_deref() {
        Ok(Some(last)) => last.message.as_ptr(),
        _ => c"".as_ptr(),
    });
    text.unwrap_or(c"".as_ptr())
}

/// Returns the place of this thread's last error in the model: the numbers of a subgraph and of a node. Both may be
/// null. `DG_STATE` if the error has no place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_last_error_node(subgraph: *mut usize, node: *mut usize) -> dg_status {
    let place = LAST.try_with(|slot| slot.try_borrow().ok().and_then(|last| last.as_ref()?.place));
    let Ok(Some((in_subgraph, at))) = place else { return DG_STATE };
    for (pointer, value) in [(subgraph, in_subgraph), (node, at)] {
        if !pointer.is_null() && pointer.is_aligned() {
            // SAFETY: the interface requires null or a valid pointer for the result.
            unsafe { pointer.write(value) };
        }
    }
    DG_OK
}

/// Returns the name of a status, such as `DG_OK`. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn dg_status_name(status: i32) -> *const c_char {
    let name = match status {
        0 => c"DG_OK",
        1 => c"DG_PENDING",
        2 => c"DG_INVALID_ARGUMENT",
        3 => c"DG_INVALID_HANDLE",
        4 => c"DG_IO",
        5 => c"DG_INVALID_MODEL",
        6 => c"DG_UNSUPPORTED",
        7 => c"DG_OUT_OF_MEMORY",
        8 => c"DG_LIMIT",
        9 => c"DG_TIME_LIMIT",
        10 => c"DG_CANCELLED",
        11 => c"DG_INVALID_DATA",
        12 => c"DG_DELEGATE",
        13 => c"DG_STATE",
        14 => c"DG_BUSY",
        15 => c"DG_INTERNAL",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// Returns the version of the library: three numbers with dots.
#[unsafe(no_mangle)]
pub extern "C" fn dg_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::time::Duration;

    use super::*;

    fn last() -> &'static str {
        // SAFETY: never null; tests read it before the next error of their thread.
        unsafe { CStr::from_ptr(dg_last_error()) }.to_str().unwrap()
    }

    #[test]
    fn errors_and_panics_are_remembered_by_their_thread() {
        assert_eq!(call(|| Ok(())), DG_OK);
        assert_eq!(call(|| Err(Failure::argument("a"))), DG_INVALID_ARGUMENT);
        assert_eq!(last(), "a");
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
        assert_eq!(call(|| panic!("expected in this test")), DG_INTERNAL);
        assert_eq!(last(), "internal error: expected in this test");
    }

    #[test]
    fn statuses_have_their_names() {
        let all = [
            DG_OK,
            DG_PENDING,
            DG_INVALID_ARGUMENT,
            DG_INVALID_HANDLE,
            DG_IO,
            DG_INVALID_MODEL,
            DG_UNSUPPORTED,
            DG_OUT_OF_MEMORY,
            DG_LIMIT,
            DG_TIME_LIMIT,
            DG_CANCELLED,
            DG_INVALID_DATA,
            DG_DELEGATE,
            DG_STATE,
            DG_BUSY,
            DG_INTERNAL,
        ];
        for (number, status) in all.into_iter().enumerate() {
            assert_eq!(status as usize, number);
            // SAFETY: never null, and static.
            let name = unsafe { CStr::from_ptr(dg_status_name(status as i32)) };
            assert_eq!(name.to_str().unwrap(), format!("{status:?}"));
        }
    }

    #[test]
    fn limits_name_the_functions_of_this_interface() {
        let exceeded = LimitExceeded::Time { allowed: Duration::from_secs(1) };
        let failure = Failure::from(Error::LimitExceeded(exceeded));
        assert_eq!(failure.status, DG_TIME_LIMIT);
        assert!(failure.message.contains("`dg_options_set_time_limit` raises it"), "{}", failure.message);
    }
}
