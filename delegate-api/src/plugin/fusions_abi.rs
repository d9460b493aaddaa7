//! The interface between an application and a library of fusions, which rewrite models. Declarations that such a
//! library shares with a delegate, and the rules for changes of the interface, are in `delegraph_plugin.h`.
//!
//! A model is passed as the bytes of a `.tflite` file. The library returns another file, which the application checks
//! like any other. The two share no memory.

// `tests/header.rs` generates `include/delegraph_fusions.h` from this file.

use std::ffi::{c_char, c_void};

use super::abi::*;

/// Fusion: it replaces marked composites of its name, before they are inlined. Without this flag, it replaces patterns
/// of nodes.
pub const DELEGRAPH_FUSION_COMPOSITE: u32 = 1;

/// A fusion of a library. This struct does not grow.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphFusion {
    /// Its name, zero-terminated: that of the composites, or a name for reports and `--skip`.
    pub name: *const c_char,
    /// `DELEGRAPH_FUSION_…`.
    pub flags: u32,
    /// The factor by which outputs may differ more than the usual tolerance, at least 1.
    pub tolerance: f64,
}

/// Functions of the application that receive a fusion's results. Valid during the call of `rewrite`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphFusionResult {
    /// Bytes of this struct.
    pub size: usize,
    /// The argument of the functions.
    pub context: *mut c_void,
    /// Takes the rewritten model, the bytes of a file. If it is not called, the model stays unchanged.
    pub set_model: Option<unsafe extern "C" fn(context: *mut c_void, data: *const u8, len: usize)>,
    /// Takes a change, for reports: the subgraph, the tensor that the nodes compute, and the names of the removed and of
    /// the new ops, separated by line breaks.
    pub add_change: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            subgraph: usize,
            tensor: DelegraphText,
            from: DelegraphText,
            to: DelegraphText,
        ),
    >,
    /// Takes a composite that was not replaced, with the reason.
    pub add_unchanged: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            subgraph: usize,
            tensor: DelegraphText,
            reason: DelegraphText,
        ),
    >,
}

/// A library of fusions. It exports one function without parameters, `delegraph_fusion_library`, that returns the address
/// of this table, which is valid as long as the library is loaded.
///
/// One thread at a time calls the functions. They must not unwind: panics and exceptions must not cross the interface.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphFusionLibrary {
    /// `DELEGRAPH_ABI_VERSION`.
    pub abi_version: u32,
    /// Bytes of this struct.
    pub size: usize,
    /// May be null. Called once, before all other functions, which receive `library`; it may remain null. If the call fails
    /// and `library` is set, the library is closed.
    pub open: Option<
        unsafe extern "C" fn(
            host: *const DelegraphHost,
            library: *mut *mut c_void,
            error: *mut DelegraphError,
        ) -> i32,
    >,
    /// May be null. Called once, at the end, unless `library` is null.
    pub close: Option<unsafe extern "C" fn(library: *mut c_void)>,
    /// Returns the fusions. Valid until `close`.
    pub fusions:
        Option<unsafe extern "C" fn(library: *mut c_void, count: *mut usize) -> *const DelegraphFusion>,
    /// Rewrites a model with the fusion of this index. The bytes of the model are valid during the call. The fusion
    /// replaces everything that it can.
    pub rewrite: Option<
        unsafe extern "C" fn(
            library: *mut c_void,
            fusion: usize,
            data: *const u8,
            len: usize,
            result: *const DelegraphFusionResult,
            error: *mut DelegraphError,
        ) -> i32,
    >,
}
