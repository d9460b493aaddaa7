//! The C structures of the interface between LiteRT and a delegate.
//!
//! Only the layout is fixed here; no value in the structures is trusted. Enums and booleans are plain integers, since a
//! foreign value without a variant must not be undefined behaviour, and every pointer and function may be null.

use std::ffi::{c_char, c_int, c_void};

/// `TfLiteStatus`.
pub type Status = c_int;
/// Success.
pub const OK: Status = 0;
/// Any failure.
pub const ERROR: Status = 1;
/// A failure of a delegate: the runtime restores its own plan.
pub const DELEGATE_ERROR: Status = 2;

/// The flag of a delegate that supports shapes that change after it was applied. Without it the runtime prepares its
/// own kernels first, and fails if one is missing or a shape depends on data.
pub const ALLOW_DYNAMIC_TENSORS: i64 = 1;

/// The flags of all releases of LiteRT are below this.
pub const FLAGS_END: i64 = 1 << 16;

/// The handle of a tensor without a delegate's buffer.
pub const NO_BUFFER: c_int = -1;

/// The result of `init` on failure; a null pointer would represent a kernel without state.
pub const INIT_FAILED: usize = usize::MAX;

/// The storage of a tensor's data (`TfLiteAllocationType`).
pub mod allocation {
    use std::ffi::c_int;
    /// In the model file.
    pub const MMAP_RO: c_int = 1;
    /// In the runtime's memory, valid while nodes run.
    pub const ARENA_RW: c_int = 2;
    /// In the runtime's memory, kept between runs.
    pub const ARENA_RW_PERSISTENT: c_int = 3;
    /// In memory of its own, sized while running.
    pub const DYNAMIC: c_int = 4;
    /// The highest code known.
    pub const LAST: c_int = 8;
}

/// `TfLiteIntArray`: `size` integers follow.
#[repr(C)]
#[derive(Debug)]
pub struct IntArray {
    /// Number of elements.
    pub size: c_int,
    /// The elements.
    pub data: [c_int; 0],
}

/// `TfLiteFloatArray`: `size` floats follow.
#[repr(C)]
#[derive(Debug)]
pub struct FloatArray {
    /// Number of elements.
    pub size: c_int,
    /// The elements.
    pub data: [f32; 0],
}

/// `TfLiteQuantizationParams`, the legacy pair. The typed quantization contains it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ScaleZeroPoint {
    /// Scale.
    pub scale: f32,
    /// Zero point.
    pub zero_point: i32,
}

/// `TfLiteQuantization`: the target of `params` depends on `kind`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Quantization {
    /// 0: none, 1: affine, 2: by blocks, 3: along several dimensions.
    pub kind: c_int,
    /// The parameters.
    pub params: *mut c_void,
}

/// `TfLiteAffineQuantization`.
#[repr(C)]
#[derive(Debug)]
pub struct Affine {
    /// One scale, or one per channel.
    pub scale: *mut FloatArray,
    /// The zero points, one per scale, or one for all scales.
    pub zero_point: *mut IntArray,
    /// The dimension of the channels.
    pub quantized_dimension: i32,
}

/// `TfLiteBlockwiseQuantization`.
#[repr(C)]
#[derive(Debug)]
pub struct Blockwise {
    /// The tensor of scales.
    pub scale: i32,
    /// The tensor of zero points, or -1.
    pub zero_point: i32,
    /// Elements in a block.
    pub block_size: i32,
    /// The dimension of the blocks.
    pub quantized_dimension: i32,
}

/// `TfLiteDimensionMetadata`.
#[repr(C)]
#[derive(Debug)]
pub struct Dimension {
    /// 0: dense, 1: compressed.
    pub format: c_int,
    /// Size, if it is dense.
    pub dense_size: c_int,
    /// Segments, if it is compressed.
    pub segments: *mut IntArray,
    /// Indices, if it is compressed.
    pub indices: *mut IntArray,
}

/// `TfLiteSparsity`.
#[repr(C)]
#[derive(Debug)]
pub struct Sparsity {
    /// The order in which dimensions are traversed.
    pub traversal_order: *mut IntArray,
    /// The dimension that each block dimension splits.
    pub block_map: *mut IntArray,
    /// One entry per dimension of `traversal_order`.
    pub dimensions: *mut Dimension,
    /// Number of dimensions.
    pub dimension_count: c_int,
}

/// `TfLiteTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct Tensor {
    /// `TfLiteType`.
    pub ty: c_int,
    /// The data.
    pub data: *mut c_void,
    /// The shape.
    pub dims: *mut IntArray,
    /// The legacy quantization.
    pub params: ScaleZeroPoint,
    /// `TfLiteAllocationType`.
    pub allocation_type: c_int,
    /// Bytes of the data.
    pub bytes: usize,
    /// The runtime's object for the model file. Unused here.
    pub allocation: *const c_void,
    /// The name.
    pub name: *const c_char,
    /// The delegate whose kernel writes it.
    pub delegate: *mut Delegate,
    /// The buffer of the delegate that holds the data, or [`NO_BUFFER`].
    pub buffer_handle: c_int,
    /// A boolean: the current data is in the delegate's buffer.
    pub data_is_stale: u8,
    /// A boolean: the tensor keeps its value from run to run.
    pub is_variable: u8,
    /// The quantization.
    pub quantization: Quantization,
    /// The storage of a sparse constant.
    pub sparsity: *mut Sparsity,
    /// The shape in the file's signature.
    pub dims_signature: *const IntArray,
}

/// `TfLiteNode`.
#[repr(C)]
#[derive(Debug)]
pub struct Node {
    /// Indices of tensors, -1 for an omitted optional one.
    pub inputs: *mut IntArray,
    /// Indices of tensors.
    pub outputs: *mut IntArray,
    /// Indices of tensors, -1 for an omitted one.
    pub intermediates: *mut IntArray,
    /// Indices of tensors.
    pub temporaries: *mut IntArray,
    /// The result of `init`.
    pub user_data: *mut c_void,
    /// The params of a builtin op.
    pub builtin_data: *mut c_void,
    /// The options of a custom op.
    pub custom_initial_data: *const c_void,
    /// Bytes of the options.
    pub custom_initial_data_size: c_int,
    /// The delegate that runs the node.
    pub delegate: *mut Delegate,
    /// A boolean: a run may change more than the outputs.
    pub might_have_side_effect: u8,
}

/// Creates a kernel. For a partition, the buffer is a [`DelegateParams`], and the length is 0. Returns the kernel's
/// state.
pub type Init = unsafe extern "C" fn(*mut Context, *const c_char, usize) -> *mut c_void;
/// Frees the result of `init`.
pub type Free = unsafe extern "C" fn(*mut Context, *mut c_void);
/// Prepares, or runs, a node.
pub type NodeFn = unsafe extern "C" fn(*mut Context, *mut Node) -> Status;

/// `TfLiteRegistration`, up to the fields that every supported runtime has.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Registration {
    /// Creates the kernel.
    pub init: Option<Init>,
    /// Frees the kernel.
    pub free: Option<Free>,
    /// Prepares the kernel.
    pub prepare: Option<NodeFn>,
    /// Runs the kernel.
    pub invoke: Option<NodeFn>,
    /// Unused here.
    pub profiling_string: *const c_void,
    /// `TfLiteBuiltinOperator`.
    pub builtin_code: i32,
    /// The name of a custom op.
    pub custom_name: *const c_char,
    /// The version of the op.
    pub version: c_int,
}

/// A registration that is passed to the runtime. The structure only grew over time, and a runtime reads the part that
/// it knows; this one is larger than any known version.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OwnRegistration {
    /// The fields that every runtime reads.
    pub common: Registration,
    /// Zeros for fields of newer versions.
    pub later: [*const c_void; 8],
}

/// `TfLiteDelegateParams`.
#[repr(C)]
#[derive(Debug)]
pub struct DelegateParams {
    /// The delegate.
    pub delegate: *mut Delegate,
    /// The nodes of the partition.
    pub nodes: *mut IntArray,
    /// The inputs.
    pub inputs: *mut IntArray,
    /// The outputs.
    pub outputs: *mut IntArray,
}

/// `TfLiteContext`, up to the fields that every supported runtime has.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    /// Number of tensors.
    pub tensors_size: usize,
    /// The nodes in execution order; valid until the next call.
    pub get_execution_plan: Option<unsafe extern "C" fn(*mut Context, *mut *mut IntArray) -> Status>,
    /// All tensors. They may move whenever the runtime is called.
    pub tensors: *mut Tensor,
    /// Private data of the runtime.
    pub impl_: *mut c_void,
    /// Sets the shape of a tensor, as a list that the runtime frees.
    pub resize_tensor: Option<unsafe extern "C" fn(*mut Context, *mut Tensor, *mut IntArray) -> Status>,
    /// Takes a `printf` format and its arguments.
    pub report_error: Option<unsafe extern "C" fn(*mut Context, *const c_char, ...)>,
    /// Adds tensors, and stores the index of the first one unless the pointer is null.
    pub add_tensors: Option<unsafe extern "C" fn(*mut Context, c_int, *mut c_int) -> Status>,
    /// A node and its registration.
    pub get_node_and_registration:
        Option<unsafe extern "C" fn(*mut Context, c_int, *mut *mut Node, *mut *mut Registration) -> Status>,
    /// Replaces nodes, partition by partition.
    pub replace_node_subsets_with_delegate_kernels:
        Option<unsafe extern "C" fn(*mut Context, OwnRegistration, *const IntArray, *mut Delegate) -> Status>,
    /// The requested number of threads, or -1.
    pub recommended_num_threads: c_int,
    /// Not called here. For a delegate that Delegraph calls, the function returns null.
    pub get_external_context: *const c_void,
    /// Not called here. For a delegate that Delegraph calls, the function has no effect.
    pub set_external_context: *const c_void,
    /// A boolean: kernels may compute in half precision.
    pub allow_fp32_relax_to_fp16: u8,
    /// Unused here.
    pub profiler: *mut c_void,
    /// Unused here.
    pub unused: [*const c_void; 5],
    /// The partitions that `replace_node_subsets_with_delegate_kernels` would make; valid until the next call.
    pub preview_delegate_partitioning: Option<
        unsafe extern "C" fn(*mut Context, *const IntArray, *mut *mut DelegateParams, *mut c_int) -> Status,
    >,
}

/// Copies a tensor from or to the buffer with this handle.
pub type CopyBuffer = unsafe extern "C" fn(*mut Context, *mut Delegate, c_int, *mut Tensor) -> Status;

/// `TfLiteContext` with the fields of newer runtimes, for a delegate that Delegraph calls.
#[repr(C)]
#[derive(Debug)]
pub struct WholeContext {
    /// The fields that every runtime has.
    pub common: Context,
    /// Null, as in LiteRT.
    pub get_tensor: *const c_void,
    /// Null, as in LiteRT.
    pub get_eval_tensor: *const c_void,
    /// Finds metadata of the model by name: stores the address and the number of bytes.
    pub get_model_metadata:
        Option<unsafe extern "C" fn(*const Context, *const c_char, *mut *const c_char, *mut usize) -> Status>,
    /// The context of another subgraph.
    pub acquire_subgraph_context:
        Option<unsafe extern "C" fn(*mut Context, c_int, *mut *mut Context) -> Status>,
    /// Ends the use of that context.
    pub release_subgraph_context: Option<unsafe extern "C" fn(*mut Context, c_int) -> Status>,
    /// Zeros for fields of newer versions.
    pub later: [*const c_void; 8],
}

/// Creates a delegate: keys, values, their number, and where errors are reported.
pub type CreateDelegate =
    unsafe extern "C" fn(*const *const c_char, *const *const c_char, usize, ReportError) -> *mut Delegate;

/// Destroys a delegate.
pub type DestroyDelegate = unsafe extern "C" fn(*mut Delegate);

/// `TfLiteDelegate`.
#[repr(C)]
#[derive(Debug)]
pub struct Delegate {
    /// Private data of this delegate.
    pub data: *mut c_void,
    /// Called with every subgraph, and again when shapes change.
    pub prepare: Option<unsafe extern "C" fn(*mut Context, *mut Delegate) -> Status>,
    /// Copies a tensor from a buffer of the delegate to the runtime's memory. Unused by this delegate: tensors at the
    /// border of a partition are in the runtime's memory.
    pub copy_from_buffer_handle: Option<CopyBuffer>,
    /// Copies a tensor to a buffer of the delegate. Unused by this delegate.
    pub copy_to_buffer_handle: Option<CopyBuffer>,
    /// Frees the handle of a buffer. Unused by this delegate.
    pub free_buffer_handle: Option<unsafe extern "C" fn(*mut Context, *mut Delegate, *mut c_int)>,
    /// The capabilities of the delegate.
    pub flags: i64,
    /// Null, unless the delegate is opaque. This delegate is not.
    pub opaque_delegate_builder: *const c_void,
}

/// Takes the text of an error.
pub type ReportError = Option<unsafe extern "C" fn(*const c_char)>;

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// The layouts of 64-bit platforms, counted from the published headers.
    #[test]
    fn layouts_are_those_of_the_headers() {
        assert_eq!(size_of::<Tensor>(), 112);
        assert_eq!(offset_of!(Tensor, bytes), 40);
        assert_eq!(offset_of!(Tensor, is_variable), 77);
        assert_eq!(offset_of!(Tensor, quantization), 80);
        assert_eq!(offset_of!(Tensor, dims_signature), 104);
        assert_eq!(size_of::<Node>(), 80);
        assert_eq!(offset_of!(Node, might_have_side_effect), 72);
        assert_eq!(offset_of!(Node, custom_initial_data_size), 56);
        assert_eq!(offset_of!(Registration, version), 56);
        assert_eq!(offset_of!(Context, replace_node_subsets_with_delegate_kernels), 64);
        assert_eq!(offset_of!(Context, profiler), 104);
        assert_eq!(offset_of!(Context, preview_delegate_partitioning), 152);
        assert_eq!(offset_of!(Delegate, flags), 40);
        assert_eq!(size_of::<Delegate>(), 56);
        assert_eq!(size_of::<DelegateParams>(), 32);
        assert_eq!(size_of::<Dimension>(), 24);
        assert_eq!(size_of::<Registration>(), 64);
        assert_eq!(offset_of!(WholeContext, get_model_metadata), 176);
        assert_eq!(offset_of!(WholeContext, release_subgraph_context), 192);
    }
}
