//! Options of interpreters.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use delegraph_ffi::handle::Table;

use crate::contain::guard;
use crate::custom_ops::{Callbacks, Custom};
use crate::delegate::Pointer;
use crate::report::{ReportFn, Reporter};
use crate::types::{ERROR, Kind, OK, Status};

/// The object behind a `TfLiteInterpreterOptions*`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) threads: i32,
    pub(crate) reporter: Reporter,
    pub(crate) cancellable: bool,
    pub(crate) delegate_fallback: bool,
    /// Kernels of the application. Later ones take precedence.
    pub(crate) kernels: Vec<Custom>,
    /// Functions that find kernels, and replace all other kernels.
    pub(crate) resolver: Option<Callbacks>,
    /// Delegates of the application, in the order in which they claim nodes.
    pub(crate) delegates: Vec<Pointer>,
}

/// The opaque type of the interface.
#[repr(C)]
pub(crate) struct OptionsHandle([u8; 0]);

/// All options.
pub(crate) static OPTIONS: Table<Mutex<Options>> = Table::new(Kind::Options as usize);

/// Locks options, which stay valid when a change panics.
pub(crate) fn lock(options: &Mutex<Options>) -> MutexGuard<'_, Options> {
    options.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes options. Returns false, and reports it, if there are none.
pub(crate) fn change(name: &str, options: *mut OptionsHandle, f: impl FnOnce(&mut Options)) -> bool {
    guard(name, false, || {
        let Some(options) = OPTIONS.get(options) else {
            Reporter::default().report(&format!("{name}: the options are null or deleted"));
            return false;
        };
        f(&mut lock(&options));
        true
    })
}

/// Creates options with defaults.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsCreate() -> *mut OptionsHandle {
    guard("TfLiteInterpreterOptionsCreate", std::ptr::null_mut(), || OPTIONS.insert(Mutex::default()))
}

/// Returns a copy of options; null for null.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsCopy(from: *const OptionsHandle) -> *mut OptionsHandle {
    guard("TfLiteInterpreterOptionsCopy", std::ptr::null_mut(), || {
        let copy = OPTIONS.get(from).map(|options| lock(&options).clone());
        copy.map_or(std::ptr::null_mut(), |copy| OPTIONS.insert(Mutex::new(copy)))
    })
}

/// Deletes options.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsDelete(options: *mut OptionsHandle) {
    guard("TfLiteInterpreterOptionsDelete", (), || drop(OPTIONS.remove(options)));
}

/// Sets the number of threads of CPU kernels. Numbers below 1 select the default, 1.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsSetNumThreads(options: *mut OptionsHandle, threads: i32) {
    change("TfLiteInterpreterOptionsSetNumThreads", options, |options| options.threads = threads);
}

/// Sets the function that receives errors.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsSetErrorReporter(
    options: *mut OptionsHandle,
    reporter: Option<ReportFn>,
    user_data: *mut c_void,
) {
    change("TfLiteInterpreterOptionsSetErrorReporter", options, |options| {
        options.reporter = Reporter::new(reporter, user_data);
    });
}

/// Sets whether `TfLiteInterpreterCancel` may be called.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsEnableCancellation(
    options: *mut OptionsHandle,
    enable: u8,
) -> Status {
    let name = "TfLiteInterpreterOptionsEnableCancellation";
    if change(name, options, |options| options.cancellable = enable != 0) { OK } else { ERROR }
}

/// Sets whether a delegate that fails during a run is removed, and the run repeated on the CPU.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsSetEnableDelegateFallback(
    options: *mut OptionsHandle,
    enable: u8,
) {
    let name = "TfLiteInterpreterOptionsSetEnableDelegateFallback";
    change(name, options, |options| options.delegate_fallback = enable != 0);
}

/// Has no effect: there is no delegate for NNAPI.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsSetUseNNAPI(_: *mut OptionsHandle, _: u8) {}

/// Has no effect: there is no telemetry.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsSetTelemetryProfiler(_: *mut OptionsHandle, _: *mut c_void) {
}
