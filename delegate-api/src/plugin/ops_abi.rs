//! The interface between an application and a library of kernels for custom ops. Declarations that such a library
//! shares with a delegate, and the rules for changes of the interface, are in `delegraph_plugin.h`.

// `tests/header.rs` generates `include/delegraph_kernels.h` from this file.

use std::ffi::{c_char, c_void};

use super::abi::*;

/// Op: running it has effects beyond its outputs. Its nodes keep their order and are never folded.
pub const DELEGRAPH_OP_SIDE_EFFECTS: u32 = 1;

/// Versions of a custom op for which a library has a kernel. This struct does not grow.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphCustomOp {
    /// The op's name, zero-terminated.
    pub name: *const c_char,
    /// The lowest version.
    pub min_version: u32,
    /// The highest version.
    pub max_version: u32,
    /// `DELEGRAPH_OP_…`.
    pub flags: u32,
}

/// The node for which a kernel is created, as in the model's file. Its pointers are valid during the call only.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphOpNode {
    /// Bytes of this struct.
    pub size: usize,
    /// The index of the op in the list that `ops` returns.
    pub op: usize,
    /// The name of the op.
    pub name: DelegraphText,
    /// The version of the op.
    pub version: u32,
    /// The op's options: by convention a FlexBuffer map, which `option_i64` and similar functions read; an op may
    /// define another format.
    pub options: *const u8,
    /// Number of bytes of the options.
    pub options_len: usize,
    /// Inputs: type, name, quantization, and the shape in the file, which may change before `prepare_kernel`.
    /// `data` is null. An omitted input is a null pointer.
    pub inputs: *const *const DelegraphTensor,
    /// Their number, including omitted inputs.
    pub input_count: usize,
    /// Outputs, described like inputs. None of the pointers is null.
    pub outputs: *const *const DelegraphTensor,
    /// Their number.
    pub output_count: usize,
}

/// A library of kernels. It exports one function without parameters, `delegraph_kernel_library`, that returns the
/// address of this table, which is valid as long as the library is loaded.
///
/// Several threads may create kernels at the same time. A kernel is used by one thread at a time, which may change
/// between calls. No function may unwind: panics and exceptions must not cross the interface.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphKernelLibrary {
    /// `DELEGRAPH_ABI_VERSION`.
    pub abi_version: u32,
    /// Bytes of this struct.
    pub size: usize,
    /// May be null. Called once, before all other functions. `library` is passed to `close`, `ops` and `create_kernel`;
    /// it may remain null. If the call fails and `library` is set, the library is closed.
    pub open: Option<
        unsafe extern "C" fn(
            host: *const DelegraphHost,
            library: *mut *mut c_void,
            error: *mut DelegraphError,
        ) -> i32,
    >,
    /// May be null. Called once, after all kernels are destroyed, unless `library` is null.
    pub close: Option<unsafe extern "C" fn(library: *mut c_void)>,
    /// Returns the ops that have kernels. Valid until `close`.
    pub ops:
        Option<unsafe extern "C" fn(library: *mut c_void, count: *mut usize) -> *const DelegraphCustomOp>,
    /// Creates the kernel of a node. If the call fails and `kernel` is set, the kernel is destroyed.
    pub create_kernel: Option<
        unsafe extern "C" fn(
            library: *mut c_void,
            host: *const DelegraphHost,
            context: DelegraphContext,
            node: *const DelegraphOpNode,
            kernel: *mut *mut c_void,
            error: *mut DelegraphError,
        ) -> i32,
    >,
    /// May be null. Destroys a kernel; called once per kernel that is not null.
    pub destroy_kernel: Option<unsafe extern "C" fn(kernel: *mut c_void)>,
    /// Checks the operands, sets the shape of every output (`set_output_shape`, or `set_output_dynamic` if it depends
    /// on data), and requests temporaries. Called before the first run and whenever a shape changes, and possibly more
    /// often.
    pub prepare_kernel: Option<
        unsafe extern "C" fn(
            kernel: *mut c_void,
            context: DelegraphContext,
            call: *const DelegraphKernelCall,
            error: *mut DelegraphError,
        ) -> i32,
    >,
    /// Computes the outputs from the inputs.
    pub invoke_kernel: Option<
        unsafe extern "C" fn(
            kernel: *mut c_void,
            context: DelegraphContext,
            call: *const DelegraphKernelCall,
            error: *mut DelegraphError,
        ) -> i32,
    >,
}
