//! Errors that code of the application reports with a format and arguments. Stable Rust cannot define variadic
//! functions, so an entry point for each calling convention creates a `va_list` of the arguments.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::Context;
use crate::report::Reporter;

/// Longer messages are truncated.
const MAX_MESSAGE: usize = 8192;

#[cfg(not(windows))]
unsafe extern "C" {
    fn vsnprintf(to: *mut c_char, size: usize, format: *const c_char, arguments: *mut c_void) -> c_int;
}

/// Reports a message.
///
/// # Safety
/// The context is null or live; the format is null or a text, and the arguments are a `va_list` that fits it.
pub(crate) unsafe extern "C" fn report_va(
    context: *mut Context,
    format: *const c_char,
    arguments: *mut c_void,
) {
    crate::contain::guard("TfLiteOpaqueContextReportErrorVa", (), || {
        // SAFETY: guaranteed by the caller.
        let reporter =
            unsafe { super::get(context) }.map_or_else(Reporter::default, |context| context.reporter);
        if format.is_null() {
            return reporter.report("TfLiteOpaqueContextReportError: the format is null");
        }
        // SAFETY: as above.
        reporter.report(&unsafe { formatted(format, arguments) });
    });
}

/// # Safety
/// The format is a text, and the arguments are a `va_list` that fits it.
#[cfg(not(windows))]
unsafe fn formatted(format: *const c_char, arguments: *mut c_void) -> String {
    let mut text = vec![0u8; MAX_MESSAGE];
    // SAFETY: the buffer has the passed size; `format` and its arguments are valid by this function's condition.
    let len = unsafe { vsnprintf(text.as_mut_ptr().cast(), text.len(), format, arguments) };
    let len = usize::try_from(len).unwrap_or(0).min(text.len() - 1);
    String::from_utf8_lossy(&text[..len]).trim_end_matches('\n').to_owned()
}

/// # Safety
/// The format is a text.
#[cfg(windows)]
unsafe fn formatted(format: *const c_char, _: *mut c_void) -> String {
    // SAFETY: guaranteed by the caller.
    unsafe { std::ffi::CStr::from_ptr(format) }.to_string_lossy().into_owned()
}

/// Reports a message with arguments of its format.
///
/// The registers that may hold arguments are stored in the order that the platform's `va_arg` expects.
#[cfg(all(target_arch = "x86_64", not(windows)))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextReportError(_: *mut Context, _: *const c_char) {
    std::arch::naked_asm!(
        // The list (24 bytes) is at the bottom, the stored registers (176 bytes) from 32 on.
        "sub rsp, 216",
        "mov [rsp + 48], rdx",
        "mov [rsp + 56], rcx",
        "mov [rsp + 64], r8",
        "mov [rsp + 72], r9",
        "test al, al",
        "je 2f",
        "movaps [rsp + 80], xmm0",
        "movaps [rsp + 96], xmm1",
        "movaps [rsp + 112], xmm2",
        "movaps [rsp + 128], xmm3",
        "movaps [rsp + 144], xmm4",
        "movaps [rsp + 160], xmm5",
        "movaps [rsp + 176], xmm6",
        "movaps [rsp + 192], xmm7",
        "2:",
        // The first two integer arguments are context and format.
        "mov dword ptr [rsp], 16",
        "mov dword ptr [rsp + 4], 48",
        "lea rax, [rsp + 224]",
        "mov [rsp + 8], rax",
        "lea rax, [rsp + 32]",
        "mov [rsp + 16], rax",
        "mov rdx, rsp",
        "call {report}",
        "add rsp, 216",
        "ret",
        report = sym report_va,
    )
}

/// As on x86-64.
#[cfg(all(target_arch = "aarch64", not(any(windows, target_vendor = "apple"))))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextReportError(_: *mut Context, _: *const c_char) {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        // The list (32 bytes), integer registers (64 bytes), vector registers (128 bytes).
        "sub sp, sp, #224",
        "stp x2, x3, [sp, #48]",
        "stp x4, x5, [sp, #64]",
        "stp x6, x7, [sp, #80]",
        "stp q0, q1, [sp, #96]",
        "stp q2, q3, [sp, #128]",
        "stp q4, q5, [sp, #160]",
        "stp q6, q7, [sp, #192]",
        "add x8, sp, #240",
        "str x8, [sp]",
        "add x8, sp, #96",
        "str x8, [sp, #8]",
        "add x8, sp, #224",
        "str x8, [sp, #16]",
        // Context and format are the first two of the integer registers.
        "mov w8, #-48",
        "str w8, [sp, #24]",
        "mov w8, #-128",
        "str w8, [sp, #28]",
        "mov x2, sp",
        "bl {report}",
        "add sp, sp, #224",
        "ldp x29, x30, [sp], #16",
        "ret",
        report = sym report_va,
    )
}

/// As on x86-64. All arguments of the format are on the stack, and a `va_list` is their address.
#[cfg(all(target_arch = "aarch64", target_vendor = "apple"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextReportError(_: *mut Context, _: *const c_char) {
    std::arch::naked_asm!("mov x2, sp", "b {report}", report = sym report_va)
}

/// Reports the format without its arguments, whose location is unknown on this platform.
#[cfg(not(any(all(target_arch = "x86_64", not(windows)), all(target_arch = "aarch64", not(windows)))))]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextReportError(context: *mut Context, format: *const c_char) {
    // SAFETY: the interface requires null or a context, and null or a text.
    let reporter = unsafe { super::get(context) }.map_or_else(Reporter::default, |context| context.reporter);
    // SAFETY: as above.
    let text = unsafe { crate::contain::text(format) };
    reporter.report(&text.unwrap_or_default().to_string_lossy());
}
