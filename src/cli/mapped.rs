//! The end of the command when another program truncates a model file that is mapped: the system then sends a signal to
//! the thread that reads a page which the file no longer has. Shared memory of a driver that the system cannot provide
//! looks the same.

#[cfg(all(feature = "mmap", any(target_os = "linux", target_os = "android")))]
pub(crate) use handler::report_truncation;

/// Does nothing: models are not mapped, or the system also reports overflows of stacks by this signal.
#[cfg(not(all(feature = "mmap", any(target_os = "linux", target_os = "android"))))]
pub(crate) fn report_truncation() {}

#[cfg(all(feature = "mmap", any(target_os = "linux", target_os = "android")))]
mod handler {
    use std::{mem, ptr};

    use libc::{c_int, c_void, siginfo_t};

    use super::super::budgets;
    use super::super::failure::Exit;

    const TEXT: &str = "  × a mapped file was truncated while it was read\n  help: a model file must not change while the \
                        command uses it; another file may be renamed over it\n";

    const DOCUMENT: &str = r#"{"error":{"kind":"invalid","exit_code":4,"message":"a mapped file was truncated while it was read","help":"a model file must not change while the command uses it; another file may be renamed over it"}}
"#;

    /// From now on, the command ends with a message, or a document, and exit code 4 if a mapped file is truncated.
    pub(crate) fn report_truncation() {
        // SAFETY: a `sigaction` of zeros is valid, and `end` only calls functions that signal handlers may call.
        let failed = unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = end as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) != 0
        };
        if failed {
            log::debug!("the signal of truncated files is not handled: {}", std::io::Error::last_os_error());
        }
    }

    /// Reports a truncated file and ends the process. Signals of other causes have the effect that they have without a
    /// handler.
    extern "C" fn end(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
        // SAFETY: the system passes a valid `info`. All of these functions may be called in a signal handler, and the texts
        // are constant.
        unsafe {
            if (*info).si_code != libc::BUS_ADRERR {
                libc::signal(signal, libc::SIG_DFL);
                return;
            }
            if budgets::is_json() {
                libc::write(libc::STDOUT_FILENO, DOCUMENT.as_ptr().cast(), DOCUMENT.len());
            }
            libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len());
            libc::_exit(Exit::Invalid as c_int);
        }
    }
}
