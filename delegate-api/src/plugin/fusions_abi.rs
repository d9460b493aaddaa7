//! The interface between an application and a library of fusions, which rewrite models. What such a library has in common
//! with a delegate is in `delegraph_plugin.h`, and so are the rules for changes of the interface.
//!
//! A model crosses as the bytes of a `.tflite` file: the library returns another file, which the application checks like
//! any other. Nothing is shared.

// `include/delegraph_fusions.h` is made of this file, by `tests/header.rs`.

use std::ffi::{c_char, c_void};

use super::abi::*;

/// Fusion: it replaces marked composites of its name, before their bodies take their places. Without this flag, it
/// replaces patterns of nodes.
pub const DELEGRAPH_FUSION_COMPOSITE: u32 = 1;

/// A fusion of a library. This struct does not grow.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphFusion {
    /// Its name, terminated by zero: that of the composites, or one that reports and `--skip` use.
    pub name: *const c_char,
    /// `DELEGRAPH_FUSION_…`.
    pub flags: u32,
    /// How often outputs may be off by the usual tolerance: 1 or more.
    pub tolerance: f64,
}

/// Functions of the application that take a fusion's results, during the call of `rewrite` that they are given to.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphFusionResult {
    /// Bytes of this struct.
    pub size: usize,
    /// What the functions are given.
    pub context: *mut c_void,
    /// Takes the rewritten model, the bytes of a file. If it is not called, the model stays as it is.
    pub set_model: Option<unsafe extern "C" fn(context: *mut c_void, data: *const u8, len: usize)>,
    /// Takes a change, for reports: the subgraph, the tensor that the nodes compute, and the names of the ops that are gone
    /// and of those that took their place, separated by line breaks.
    pub add_change: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            subgraph: usize,
            tensor: DelegraphText,
            from: DelegraphText,
            to: DelegraphText,
        ),
    >,
    /// Takes a composite that was left, with the reason.
    pub add_left: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            subgraph: usize,
            tensor: DelegraphText,
            reason: DelegraphText,
        ),
    >,
}

/// A library of fusions. It exports one function without parameters, `delegraph_fusion_library`, that returns the address
/// of this table, which lives as long as the library is loaded.
///
/// The functions are called by one thread at a time. No function may unwind: neither panics nor exceptions cross.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DelegraphFusionLibrary {
    /// `DELEGRAPH_ABI_VERSION`.
    pub abi_version: u32,
    /// Bytes of this struct.
    pub size: usize,
    /// May be null. Called once, before anything else: `library` takes what the other functions are given, or stays null.
    /// Where it fails, but `library` is set, that is closed.
    pub open: Option<
        unsafe extern "C" fn(
            host: *const DelegraphHost,
            library: *mut *mut c_void,
            error: *mut DelegraphError,
        ) -> i32,
    >,
    /// May be null. Called once, at the end; not where `library` is null.
    pub close: Option<unsafe extern "C" fn(library: *mut c_void)>,
    /// The fusions. Valid until `close`.
    pub fusions:
        Option<unsafe extern "C" fn(library: *mut c_void, count: *mut usize) -> *const DelegraphFusion>,
    /// Rewrites a model, the bytes of a file that are valid during the call, with the fusion of this index. Everything that
    /// the fusion can replace is replaced.
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
