//! The functions of `wgpu_delegate.h`: the GPU delegate, for programs that select it.

use std::ffi::c_char;
use std::sync::Arc;
#[cfg(feature = "wgpu")]
use std::sync::{Mutex, PoisonError};

use crate::abi::Delegate;
use crate::contain::guard;
use crate::delegate;
use crate::report::Reporter;

/// `TfLiteWgpuDelegateOptions`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct WgpuOptions {
    adapter: *const c_char,
    max_gpu_bytes: u64,
    fusion: u8,
}

/// Returns options with defaults.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteWgpuDelegateOptionsDefault() -> WgpuOptions {
    WgpuOptions { adapter: std::ptr::null(), max_gpu_bytes: 0, fusion: 1 }
}

/// Opens the GPU. Null, after a report, on failure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteWgpuDelegateCreate(options: *const WgpuOptions) -> *mut Delegate {
    let function = "TfLiteWgpuDelegateCreate";
    guard(function, std::ptr::null_mut(), || {
        let options = match options.is_null() || !options.is_aligned() {
            true => TfLiteWgpuDelegateOptionsDefault(),
            // SAFETY: the interface requires null or valid options; null and misaligned pointers are excluded above.
            false => unsafe { *options },
        };
        // SAFETY: the interface requires null or a text.
        let adapter = unsafe { crate::contain::text(options.adapter) };
        let mut list = Vec::new();
        list.extend(adapter.map(|name| ("adapter".to_owned(), name.to_string_lossy().into_owned())));
        if options.max_gpu_bytes > 0 {
            list.push(("max_gpu_bytes".to_owned(), options.max_gpu_bytes.to_string()));
        }
        list.push(("fusion".to_owned(), if options.fusion != 0 { "on" } else { "off" }.to_owned()));
        match open(list) {
            Ok(own) => delegate::create_own(own),
            Err(error) => {
                Reporter::default().report(&format!("{function}: {}", error.chain()));
                std::ptr::null_mut()
            }
        }
    })
}

/// Deletes a delegate of [`TfLiteWgpuDelegateCreate`]; null is allowed. Interpreters keep the device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteWgpuDelegateDelete(delegate: *mut Delegate) {
    guard("TfLiteWgpuDelegateDelete", (), || delegate::delete("TfLiteWgpuDelegateDelete", delegate));
}

#[cfg(feature = "wgpu")]
fn open(options: Vec<(String, String)>) -> delegraph::core::Result<delegate::Own> {
    let delegate = Mutex::new(delegraph_ffi::delegates::open_gpu(options)?);
    let create = move || -> delegraph::core::Result<Box<dyn delegraph::Delegate>> {
        Ok(Box::new(delegate.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    };
    Ok(Arc::new(create))
}

#[cfg(not(feature = "wgpu"))]
fn open(_: Vec<(String, String)>) -> delegraph::core::Result<delegate::Own> {
    let none: delegate::Own = Arc::new(|| Err(delegraph_ffi::delegates::without_gpu()));
    none().map(|_| none)
}
