//! What crosses between an application and a library of kernels for custom ops. Everything that such a library has in
//! common with a delegate is in `delegraph_plugin.h`, along with how the interface may grow.

// `include/delegraph_kernels.h` is made of this file, by `tests/header.rs`.

use std::ffi::{c_char, c_void};

use super::abi::*;

/// Op: running it does more than compute its outputs. Its nodes keep their order and are never computed ahead.
pub const DELEGRAPH_OP_SIDE_EFFECTS: u32 = 1;

/// Versions of a custom op that a library has a kernel for. This struct does not grow.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphCustomOp {
    /// Its name, terminated by zero.
    pub name: *const c_char,
    /// The lowest version.
    pub min_version: u32,
    /// The highest version.
    pub max_version: u32,
    /// `DELEGRAPH_OP_…`.
    pub flags: u32,
}

/// The node that a kernel is made for, as the model's file has it. What it points to is valid during the call: copy what
/// the kernel needs.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphOpNode {
    /// Bytes of this struct.
    pub size: usize,
    /// Which of the library's ops it is, in the order in which `ops` lists them.
    pub op: usize,
    /// The name of the op.
    pub name: DelegraphText,
    /// The version that the model asks for.
    pub version: u32,
    /// The op's options: a FlexBuffer map by custom, for which the application has `option_i64` and the like; otherwise
    /// whatever the op says.
    pub options: *const u8,
    /// Bytes of them.
    pub options_len: usize,
    /// Inputs: type, name, quantization, and the shape of the file, which may change before `prepare_kernel`. There is no
    /// data. An input that the node leaves out is null.
    pub inputs: *const *const DelegraphTensor,
    /// How many, those left out included.
    pub input_count: usize,
    /// Outputs, in the same way.
    pub outputs: *const *const DelegraphTensor,
    /// How many.
    pub output_count: usize,
}

/// A library of kernels. It exports one function without parameters, `delegraph_kernel_library`, that returns the address
/// of this table, which lives as long as the library is loaded.
///
/// Several threads may make kernels at the same time; a kernel is used by one thread at a time, not always the same one.
/// No function may unwind: neither panics nor exceptions cross.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DelegraphKernelLibrary {
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
    /// May be null. Called once, when all kernels are destroyed; not where `library` is null.
    pub close: Option<unsafe extern "C" fn(library: *mut c_void)>,
    /// The ops that there are kernels for. Valid until `close`.
    pub ops:
        Option<unsafe extern "C" fn(library: *mut c_void, count: *mut usize) -> *const DelegraphCustomOp>,
    /// Makes the kernel of a node. Where it fails, but `kernel` is set, that is destroyed.
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
    /// May be null. Destroys a kernel, once.
    pub destroy_kernel: Option<unsafe extern "C" fn(kernel: *mut c_void)>,
    /// Checks the operands, gives every output its shape (`set_output_shape`, or `set_output_dynamic` where data decides),
    /// and asks for temporaries. Called before the first run and again whenever a shape changed, at times more often.
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
