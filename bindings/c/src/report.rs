//! Error messages: to the reporter of the application, or to standard error.

use std::ffi::{CString, c_char, c_void};
use std::io::Write;

/// The application's function: `printf`'s format, and a `va_list` with its arguments.
pub(crate) type ReportFn = unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_void);

/// A pointer of the application that is passed back to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UserData(pub(crate) *mut c_void);

// SAFETY: the library only passes the pointer back, from the thread that calls it. As TensorFlow Lite requires, the
// application uses an interpreter and its objects from one thread at a time.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

/// Receives error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporter {
    function: Option<ReportFn>,
    user_data: UserData,
}

impl Default for Reporter {
    /// Returns a reporter that prints to standard error.
    fn default() -> Self {
        Reporter { function: None, user_data: UserData(std::ptr::null_mut()) }
    }
}

impl Reporter {
    /// Returns a reporter that calls a function of the application; without one, it prints to standard error.
    pub(crate) fn new(function: Option<ReportFn>, user_data: *mut c_void) -> Self {
        Reporter { function, user_data: UserData(user_data) }
    }

    /// Reports a message.
    pub(crate) fn report(&self, message: &str) {
        let Some(function) = self.function else { return print(message.as_bytes()) };
        // The message is the format, so that it also reaches functions that ignore arguments.
        let format = CString::new(message.replace('\0', " ").replace('%', "%%")).unwrap_or_default();
        let mut arguments = NoArguments::default();
        // SAFETY: the application registered the function for this use. The format has no conversions, so no argument is
        // read.
        unsafe { function(self.user_data.0, format.as_ptr(), arguments.list()) };
    }
}

/// Prints a message like TensorFlow Lite. A closed standard error is not a failure.
fn print(message: &[u8]) {
    let mut to = std::io::stderr().lock();
    let _ = to.write_all(b"ERROR: ").and_then(|()| to.write_all(message)).and_then(|()| to.write_all(b"\n"));
}

/// A `va_list` without arguments. It is passed as a pointer: to a structure with the state of the list (x86-64 and AArch64
/// outside of Windows and macOS), or to the arguments themselves. A function that nevertheless reads an argument gets
/// zeros.
#[repr(C, align(16))]
#[derive(Default)]
struct NoArguments {
    state: [u64; 4],
    zeros: [u64; 32],
}

impl NoArguments {
    fn list(&mut self) -> *mut c_void {
        let zeros = self.zeros.as_mut_ptr();
        if cfg!(all(target_arch = "x86_64", not(windows))) {
            // Two offsets of 4 bytes, past the ends of the areas for registers; arguments in memory; the areas.
            self.state =
                [48 | (176 << 32), zeros.expose_provenance() as u64, zeros.expose_provenance() as u64, 0];
            return self.state.as_mut_ptr().cast();
        }
        if cfg!(all(target_arch = "aarch64", not(any(windows, target_vendor = "apple")))) {
            // Arguments in memory; the ends of the areas for registers, whose offsets of 0 mean that they are used up.
            let zeros = zeros.expose_provenance() as u64;
            self.state = [zeros, zeros, zeros, 0];
            return self.state.as_mut_ptr().cast();
        }
        zeros.cast()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::{CStr, c_int};

    use super::*;

    unsafe extern "C" {
        fn vsnprintf(to: *mut c_char, size: usize, format: *const c_char, arguments: *mut c_void) -> c_int;
    }

    /// Collects messages like an application's reporter. Its data is a `String`.
    pub(crate) unsafe extern "C" fn collect(
        data: *mut c_void,
        format: *const c_char,
        arguments: *mut c_void,
    ) {
        let mut text = [0u8; 4096];
        // SAFETY: the buffer has the size, and the reporter passes a format with its arguments.
        unsafe { vsnprintf(text.as_mut_ptr().cast(), text.len(), format, arguments) };
        let text = CStr::from_bytes_until_nul(&text).unwrap().to_string_lossy();
        // SAFETY: tests pass a `String` that outlives the reporter, and call it from one thread.
        let all = unsafe { &mut *data.cast::<String>() };
        all.push_str(&text);
        all.push('\n');
    }

    #[test]
    fn a_message_is_not_a_format() {
        let mut messages = String::new();
        let reporter = Reporter::new(Some(collect), (&raw mut messages).cast());
        reporter.report("100% of %s and %n");
        assert_eq!(messages, "100% of %s and %n\n");
    }

    #[test]
    fn a_list_without_arguments_has_zeros() {
        let mut text = [1u8; 64];
        let mut arguments = NoArguments::default();
        // SAFETY: the buffer has the size; missing arguments are zeros.
        let len = unsafe {
            vsnprintf(text.as_mut_ptr().cast(), text.len(), c"%d %ld %d".as_ptr(), arguments.list())
        };
        assert_eq!((len, &text[..6]), (5, &b"0 0 0\0"[..]));
    }
}
