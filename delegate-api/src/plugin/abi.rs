//! The interface between an application and a plugin. It consists of C types only.
//!
//! Changes without a new [`DELEGRAPH_ABI_VERSION`]: functions and fields are appended, nothing else. Every struct that
//! may grow begins with its size as its creator knows it, and a reader ignores fields beyond that size. Structs that
//! are passed in plain arrays do not grow.
//!
//! Every pointer that is passed is valid during the call, unless stated otherwise. Text is UTF-8.

// `tests/header.rs` generates `include/delegraph_plugin.h` from this file.

use std::ffi::{c_char, c_void};

/// The version of this interface. Plugin and application must have the same version.
pub const DELEGRAPH_ABI_VERSION: u32 = 2;

/// Status: success.
pub const DELEGRAPH_OK: i32 = 0;
/// Status: failure; the message has the reason.
pub const DELEGRAPH_FAILED: i32 = 1;
/// Status: an unsupported type, param, shape or device.
pub const DELEGRAPH_UNSUPPORTED: i32 = 2;
/// Status: an invalid argument or model.
pub const DELEGRAPH_INVALID: i32 = 3;
/// Status: memory could not be allocated.
pub const DELEGRAPH_OUT_OF_MEMORY: i32 = 4;
/// Status: a panic or exception was caught.
pub const DELEGRAPH_PANICKED: i32 = 5;
/// Status: an option is unknown or has an invalid value.
pub const DELEGRAPH_BAD_OPTION: i32 = 6;
/// Status: the name is unknown.
pub const DELEGRAPH_NOT_FOUND: i32 = 7;
/// Status: the application cancelled the invocation.
pub const DELEGRAPH_CANCELLED: i32 = 8;

/// The op of every custom operator, which is identified by its name.
pub const DELEGRAPH_CUSTOM_OP: i32 = 32;

/// Node: all inputs are constant; its outputs are constants, too, which are already computed.
pub const DELEGRAPH_NODE_FOLDED: u32 = 1;
/// Node: the shape of an operand depends on data.
pub const DELEGRAPH_NODE_DYNAMIC: u32 = 2;
/// Node: it reads or writes state, so it keeps its order among all such nodes.
pub const DELEGRAPH_NODE_SIDE_EFFECTS: u32 = 4;
/// Node: the application replaced the builtin kernel.
pub const DELEGRAPH_NODE_OVERRIDDEN: u32 = 8;
/// Node: another delegate claimed it.
pub const DELEGRAPH_NODE_TAKEN: u32 = 16;

/// Tensor: its shape is known before running.
pub const DELEGRAPH_TENSOR_SHAPE_KNOWN: u32 = 1;
/// Tensor: its data are constant and available.
pub const DELEGRAPH_TENSOR_CONSTANT: u32 = 2;
/// Tensor: state that persists between invocations. A kernel may write such an input.
pub const DELEGRAPH_TENSOR_VARIABLE: u32 = 4;
/// Tensor: an output whose size depends on data: `resize_output` allocates its memory.
pub const DELEGRAPH_TENSOR_DYNAMIC: u32 = 8;

/// Quantization: none.
pub const DELEGRAPH_QUANTIZATION_NONE: i32 = 0;
/// Quantization: scales and zero points, one pair or one per index of a dimension.
pub const DELEGRAPH_QUANTIZATION_AFFINE: i32 = 1;
/// Quantization: blocks of the innermost dimension share a scale; scales are a tensor of the same graph.
pub const DELEGRAPH_QUANTIZATION_BLOCKWISE: i32 = 2;
/// Quantization: scales vary along several dimensions; scales are a tensor of the same graph.
pub const DELEGRAPH_QUANTIZATION_MULTI_AXIS: i32 = 3;
/// Quantization: opaque bytes for a custom kernel.
pub const DELEGRAPH_QUANTIZATION_CUSTOM: i32 = 4;

/// Rejection: any other reason; `text` has it.
pub const DELEGRAPH_REJECT_OTHER: i32 = 0;
/// Rejection: the node's version, or that of the features that it uses, is above `limit`. `value` is that version.
pub const DELEGRAPH_REJECT_VERSION: i32 = 1;
/// Rejection: the op is not supported.
pub const DELEGRAPH_REJECT_OP: i32 = 2;
/// Rejection: the operand `text` ("input 0") has the unsupported type `value`.
pub const DELEGRAPH_REJECT_TYPE: i32 = 3;
/// Rejection: an unsupported param, shape or combination of operands; `text` has the reason.
pub const DELEGRAPH_REJECT_PARAM: i32 = 4;
/// Rejection: the shape of the tensor named `text` depends on data.
pub const DELEGRAPH_REJECT_DYNAMIC_SHAPE: i32 = 5;
/// Rejection: a buffer or binding exceeds a limit of the device; `text` has the reason.
pub const DELEGRAPH_REJECT_DEVICE_LIMIT: i32 = 6;
/// Rejection: the partition of the node has `value` nodes, fewer than `limit`.
pub const DELEGRAPH_REJECT_PARTITION_TOO_SMALL: i32 = 7;
/// Rejection: larger partitions reach the maximum number, `limit`.
pub const DELEGRAPH_REJECT_TOO_MANY_PARTITIONS: i32 = 8;
/// Rejection: the CPU is estimated to be faster; `text` has the reason.
pub const DELEGRAPH_REJECT_COST: i32 = 9;
/// Rejection: the application replaced the builtin kernel.
pub const DELEGRAPH_REJECT_OVERRIDDEN: i32 = 10;

/// Rejection: the application excluded the node; `text` has the reason.
pub const DELEGRAPH_REJECT_EXCLUDED: i32 = 11;

/// Capability: the delegate supports nodes whose shapes are known only while running. A partition with such a node is
/// prepared during an invocation, when its inputs are computed. Its kernel sets the shapes of outputs with
/// `set_output_shape` or, for shapes that depend on data, with `set_output_dynamic` and `resize_output`.
pub const DELEGRAPH_CAN_DYNAMIC_SHAPES: u64 = 1;
/// Capability: before such a partition is prepared, the delegate receives the shapes that follow from those of its
/// inputs.
pub const DELEGRAPH_CAN_PROPAGATED_SHAPES: u64 = 2;

/// Time: not measured.
pub const DELEGRAPH_TIME_UNKNOWN: u64 = 0xffffffffffffffff;

/// Identifies the current call in calls back to the application. Valid until the call returns, on the thread of the
/// call; otherwise functions return `DELEGRAPH_INVALID`.
pub type DelegraphContext = u64;

/// Text without a terminating zero.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphText {
    /// The text in UTF-8.
    pub data: *const c_char,
    /// Number of bytes.
    pub len: usize,
}

/// The time of a node.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphNodeTime {
    /// The node; the first one of nodes that ran together.
    pub node: usize,
    /// The time on the device in nanoseconds.
    pub nanoseconds: u64,
}

/// Buffer for a message that explains a status other than `DELEGRAPH_OK`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphError {
    /// Bytes of this struct.
    pub size: usize,
    /// The buffer. A terminating zero is not needed.
    pub message: *mut c_char,
    /// Bytes of the buffer.
    pub capacity: usize,
    /// Number of bytes written.
    pub len: usize,
}

/// An option that the user passed. Key and value are zero-terminated.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphOption {
    /// Its name.
    pub key: *const c_char,
    /// Its value, possibly empty.
    pub value: *const c_char,
}

/// The highest version of an op that a delegate runs.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphOpVersion {
    /// The code of a builtin op, or `DELEGRAPH_CUSTOM_OP`.
    pub op: i32,
    /// The highest version.
    pub max_version: u32,
    /// The name of a custom op, zero-terminated; null for a builtin one. With the code of STABLEHLO_COMPOSITE (206), the name
    /// of marked composites that the delegate runs as a whole, and `max_version` is that of the composite.
    pub custom_name: *const c_char,
}

/// The graph: one subgraph of a model. Its nodes are numbered in an order in which they can run.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphGraph {
    /// Bytes of this struct.
    pub size: usize,
    /// The index of the subgraph in the model.
    pub subgraph: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of tensors.
    pub tensors: usize,
    /// Number of inputs that the caller fills.
    pub inputs: usize,
    /// Number of outputs that the caller reads.
    pub outputs: usize,
    /// The model's path; empty if it has none.
    pub model_path: DelegraphText,
}

/// A model as the bytes of a `.tflite` file.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphModel {
    /// Bytes of this struct.
    pub size: usize,
    /// The bytes, valid until they are released.
    pub data: *const u8,
    /// Their number.
    pub len: usize,
    /// The owner of the bytes.
    pub owner: *mut c_void,
    /// Releases the bytes. The plugin calls it with `owner`, once, on any thread.
    pub release: Option<unsafe extern "C" fn(owner: *mut c_void)>,
}

/// A node. Its pointers are valid until `end_prepare`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphNode {
    /// Bytes of this struct.
    pub size: usize,
    /// The code of a builtin op, or `DELEGRAPH_CUSTOM_OP`.
    pub op: i32,
    /// The version of the op.
    pub version: u32,
    /// `DELEGRAPH_NODE_…`.
    pub flags: u32,
    /// The name of a custom op.
    pub custom_name: DelegraphText,
    /// Number of inputs, including omitted optional inputs.
    pub inputs: usize,
    /// Number of outputs.
    pub outputs: usize,
    /// The options of a custom op.
    pub custom_options: *const u8,
    /// Number of bytes of the options.
    pub custom_options_len: usize,
}

/// A tensor. Its pointers are valid until `end_prepare`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphTensor {
    /// Bytes of this struct.
    pub size: usize,
    /// Element type, as the format numbers it: 0 is float32, 2 int32, 9 int8.
    pub element_type: i32,
    /// `DELEGRAPH_TENSOR_…`.
    pub flags: u32,
    /// Its shape, outermost dimension first; meaningless if the shape is unknown.
    pub dims: *const usize,
    /// Number of dimensions.
    pub rank: usize,
    /// Its name, possibly empty.
    pub name: DelegraphText,
    /// Constant data, or null.
    pub data: *const c_void,
    /// Number of bytes of the data.
    pub data_len: usize,
    /// `DELEGRAPH_QUANTIZATION_…`.
    pub quantization: i32,
    /// The dimension that affine scales run along.
    pub quantized_dimension: usize,
    /// Affine scales.
    pub scales: *const f32,
    /// Affine zero points, one per scale.
    pub zero_points: *const i64,
    /// Their number.
    pub scale_count: usize,
    /// The tensor of the scales for other kinds of quantization, or -1.
    pub scales_tensor: i64,
    /// The tensor of the zero points for other kinds of quantization, or -1.
    pub zero_points_tensor: i64,
    /// Number of elements that share a scale, for other kinds of quantization.
    pub block_size: usize,
}

/// The reason why a node is not claimed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphRejection {
    /// Bytes of this struct.
    pub size: usize,
    /// `DELEGRAPH_REJECT_…`, which defines the meaning of the other fields.
    pub kind: i32,
    /// The reason, or the name of an operand or a tensor; empty if `kind` needs none.
    pub text: DelegraphText,
    /// The observed value.
    pub value: i64,
    /// The supported value.
    pub limit: i64,
}

/// Nodes that one kernel runs.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphPartition {
    /// Bytes of this struct.
    pub size: usize,
    /// The nodes, in an order in which they can run.
    pub nodes: *const usize,
    /// Their number.
    pub node_count: usize,
    /// Tensors that they read and do not compute, without constants.
    pub inputs: *const usize,
    /// Their number.
    pub input_count: usize,
    /// Tensors that they compute and that other nodes, or the caller, read.
    pub outputs: *const usize,
    /// Their number.
    pub output_count: usize,
}

/// A tensor, or temporary memory, of a kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphBuffer {
    /// Bytes of this struct.
    pub size: usize,
    /// Its memory. Null in `prepare_kernel`, except for constants, and for inputs of partitions with dynamic shapes,
    /// which can be read.
    pub data: *mut c_void,
    /// Number of bytes of the memory.
    pub data_len: usize,
    /// Its shape, outermost dimension first.
    pub dims: *const usize,
    /// Number of dimensions.
    pub rank: usize,
    /// Element type, as the format numbers it.
    pub element_type: i32,
    /// `DELEGRAPH_TENSOR_…`.
    pub flags: u32,
}

/// The operands of a kernel. Inputs and outputs are those of its partition, or of its node, in that order.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphKernelCall {
    /// Bytes of this struct.
    pub size: usize,
    /// Inputs. Their memory does not overlap with that of outputs. An omitted optional input is null.
    pub inputs: *const *const DelegraphBuffer,
    /// Their number.
    pub input_count: usize,
    /// Outputs. Their memory is not initialised.
    pub outputs: *const *const DelegraphBuffer,
    /// Their number.
    pub output_count: usize,
    /// In `invoke_kernel`: the temporaries, in the order in which they were requested. Each address is a multiple of 64.
    pub temporaries: *const *const DelegraphBuffer,
    /// Their number.
    pub temporary_count: usize,
    /// Number of threads that `parallel` uses.
    pub threads: usize,
}

/// Measurements of a kernel. A time that was not measured is `DELEGRAPH_TIME_UNKNOWN`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphStats {
    /// Bytes of this struct.
    pub size: usize,
    /// Bytes of device memory that the kernel holds.
    pub device_bytes: u64,
    /// Nanoseconds of the last upload.
    pub upload_nanoseconds: u64,
    /// Nanoseconds on the device in the last run.
    pub device_nanoseconds: u64,
    /// Nanoseconds of the last read-back.
    pub readback_nanoseconds: u64,
    /// Number of kernels that one run starts on the device.
    pub dispatches: usize,
}

/// Functions of the application that a plugin may call. The table is valid as long as the library is loaded.
///
/// Functions return a status, unless stated otherwise. A call with an invalid argument fails, and makes the plugin's
/// calling function fail, regardless of its return value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphHost {
    /// Bytes of this struct.
    pub size: usize,
    /// Returns the most detailed level of messages that the application logs: 1 error, 2 warning, 3 info, 4 debug, 5
    /// trace; 0 none.
    pub log_level: Option<unsafe extern "C" fn() -> i32>,
    /// Logs a message. `target` names a part of the plugin and may be empty. May be called at any time and
    /// on any thread.
    pub log: Option<unsafe extern "C" fn(level: i32, target: DelegraphText, text: DelegraphText)>,

    /// In `prepare` and `create_kernel`: writes the graph. `graph->size` must be set.
    pub graph: Option<unsafe extern "C" fn(context: DelegraphContext, graph: *mut DelegraphGraph) -> i32>,
    /// In `prepare` and `create_kernel`: writes the model as a `.tflite` file. `out->size` must be set.
    pub model: Option<unsafe extern "C" fn(context: DelegraphContext, out: *mut DelegraphModel) -> i32>,
    /// In `prepare` and `create_kernel`: writes the bytes of the model's metadata with this name, valid until
    /// `end_prepare`. `DELEGRAPH_NOT_FOUND` if there are none.
    pub metadata: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            name: *const c_char,
            data: *mut *const u8,
            len: *mut usize,
        ) -> i32,
    >,
    /// In `prepare` and `create_kernel`: returns the tensor that is input `index` of the graph; -2 if there is none.
    pub graph_input: Option<unsafe extern "C" fn(context: DelegraphContext, index: usize) -> i64>,
    /// In `prepare` and `create_kernel`: returns the tensor that is output `index` of the graph; -2 if there is none.
    pub graph_output: Option<unsafe extern "C" fn(context: DelegraphContext, index: usize) -> i64>,
    /// In `prepare` and `create_kernel`: writes a node. `out->size` must be set.
    pub node:
        Option<unsafe extern "C" fn(context: DelegraphContext, node: usize, out: *mut DelegraphNode) -> i32>,
    /// In `prepare` and `create_kernel`: returns the tensor that is input `index` of a node; -1 if it is omitted, -2 if
    /// the node has no such input.
    pub node_input: Option<unsafe extern "C" fn(context: DelegraphContext, node: usize, index: usize) -> i64>,
    /// In `prepare` and `create_kernel`: returns the tensor that is output `index` of a node; -2 if there is none.
    pub node_output:
        Option<unsafe extern "C" fn(context: DelegraphContext, node: usize, index: usize) -> i64>,
    /// In `prepare` and `create_kernel`: writes a tensor. `out->size` must be set.
    pub tensor: Option<
        unsafe extern "C" fn(context: DelegraphContext, tensor: usize, out: *mut DelegraphTensor) -> i32,
    >,
    /// In `prepare` and `create_kernel`: writes a param of a node, by its name in the schema's options table: an
    /// integer, a bool, or the number of an enum's value.
    ///
    /// This function and the next three return `DELEGRAPH_NOT_FOUND` if the node has no param of this name and type.
    pub param_i64: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            node: usize,
            name: *const c_char,
            out: *mut i64,
        ) -> i32,
    >,
    /// In `prepare` and `create_kernel`: writes a param that is a number.
    pub param_f64: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            node: usize,
            name: *const c_char,
            out: *mut f64,
        ) -> i32,
    >,
    /// In `prepare` and `create_kernel`: writes a param that is text, or the name of an enum's value (`SAME`, `RELU6`),
    /// valid until `end_prepare`.
    pub param_text: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            node: usize,
            name: *const c_char,
            out: *mut DelegraphText,
        ) -> i32,
    >,
    /// In `prepare` and `create_kernel`: writes a param that is a list of integers. `len` receives their number; `out`
    /// receives the first `capacity` of them.
    pub param_i64s: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            node: usize,
            name: *const c_char,
            out: *mut i64,
            capacity: usize,
            len: *mut usize,
        ) -> i32,
    >,

    /// In `prepare` and `create_kernel`: returns the context of a subgraph that a node of the graph calls (the body of
    /// a WHILE), if it is prepared. The result replaces `context` in the functions above. 0 if the subgraph is
    /// described by the model's file only.
    pub callee: Option<unsafe extern "C" fn(context: DelegraphContext, subgraph: usize) -> DelegraphContext>,

    /// In `prepare`: returns `DELEGRAPH_OK` if a node may be claimed, otherwise `DELEGRAPH_UNSUPPORTED`: for example if
    /// its version is above the declared one, its shapes depend on data, or another delegate claimed it.
    pub may_claim: Option<unsafe extern "C" fn(context: DelegraphContext, node: usize) -> i32>,
    /// In `prepare`: calls `each` with every partition that would result from claiming these nodes.
    pub preview_partitions: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            nodes: *const usize,
            node_count: usize,
            each: Option<unsafe extern "C" fn(user: *mut c_void, partition: *const DelegraphPartition)>,
            user: *mut c_void,
        ) -> i32,
    >,
    /// In `prepare`: rejects a node with a reason.
    pub reject: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            node: usize,
            reason: *const DelegraphRejection,
        ) -> i32,
    >,
    /// In `prepare`: claims nodes. Those that may not be claimed are rejected instead. Nodes that are claimed with the
    /// same `claim` are partitioned together; `create_kernel` receives this number, once for each of their
    /// partitions.
    pub claim: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            nodes: *const usize,
            node_count: usize,
            claim: u64,
        ) -> i32,
    >,

    /// In `prepare_kernel`: requests memory for the duration of a run. Returns its index, or -1.
    pub temporary: Option<unsafe extern "C" fn(context: DelegraphContext, bytes: usize) -> i64>,
    /// In `prepare_kernel`: sets the shape of an output.
    pub set_output_shape: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            output: usize,
            dims: *const usize,
            rank: usize,
        ) -> i32,
    >,
    /// In `prepare_kernel`: declares that the shape of an output depends on data.
    pub set_output_dynamic: Option<unsafe extern "C" fn(context: DelegraphContext, output: usize) -> i32>,

    /// In `invoke_kernel`: sets the shape of an output whose size depends on data, and allocates its memory.
    pub resize_output: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            output: usize,
            dims: *const usize,
            rank: usize,
            bytes: usize,
            data: *mut *mut c_void,
        ) -> i32,
    >,
    /// In `invoke_kernel`: calls `task(user, 0)`, …, `task(user, tasks - 1)` on the application's threads, in any order
    /// and possibly at the same time, and returns when all have returned.
    pub parallel: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            tasks: usize,
            task: Option<unsafe extern "C" fn(user: *mut c_void, index: usize)>,
            user: *mut c_void,
        ) -> i32,
    >,
    /// In `invoke_kernel`: returns 1 if the application cancelled the invocation. The kernel then returns
    /// `DELEGRAPH_CANCELLED`.
    pub is_cancelled: Option<unsafe extern "C" fn(context: DelegraphContext) -> i32>,
    /// In `invoke_kernel`: reports the kernel's progress.
    pub progress: Option<unsafe extern "C" fn(context: DelegraphContext, done: usize, total: usize) -> i32>,

    /// In `prepare_kernel` of a custom op: requests memory that keeps its contents between runs. It is zero initially.
    /// If a kernel requests other sizes than before, all of its persistent memory is zeroed. Returns its index among
    /// the temporaries, or -1.
    pub persistent: Option<unsafe extern "C" fn(context: DelegraphContext, bytes: usize) -> i64>,
    /// In `create_kernel` of a custom op: writes an option that is an integer, or 0 or 1 for a boolean.
    ///
    /// This function and the next three read the op's options as a FlexBuffer map. They return `DELEGRAPH_NOT_FOUND` if
    /// the map does not contain the option, and `DELEGRAPH_INVALID` if it has another type or there is no map. If
    /// `create_kernel` then fails without a message, the application's message names the option, its value and the
    /// expected type.
    pub option_i64:
        Option<unsafe extern "C" fn(context: DelegraphContext, name: *const c_char, out: *mut i64) -> i32>,
    /// In `create_kernel` of a custom op: writes an option that is a number.
    pub option_f64:
        Option<unsafe extern "C" fn(context: DelegraphContext, name: *const c_char, out: *mut f64) -> i32>,
    /// In `create_kernel` of a custom op: writes an option that is text, valid during the call.
    pub option_text: Option<
        unsafe extern "C" fn(context: DelegraphContext, name: *const c_char, out: *mut DelegraphText) -> i32,
    >,
    /// In `create_kernel` of a custom op: writes an option that is a list of numbers. `len` receives their number;
    /// `out` receives the first `capacity` of them.
    pub option_f64s: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            name: *const c_char,
            out: *mut f64,
            capacity: usize,
            len: *mut usize,
        ) -> i32,
    >,
}

/// A plugin. A library exports one function without parameters, `delegraph_delegate_plugin`, that returns the address
/// of this table, which is valid as long as the library is loaded.
///
/// A delegate, and each of its kernels, is used by one thread at a time, which may change between calls. No function
/// may unwind: panics and exceptions must not cross the interface.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphPlugin {
    /// `DELEGRAPH_ABI_VERSION`.
    pub abi_version: u32,
    /// Bytes of this struct.
    pub size: usize,
    /// Creates a delegate. Unknown options must be an error (`DELEGRAPH_BAD_OPTION`) that names the known ones. If the
    /// call fails and `delegate` is set, the delegate is destroyed.
    pub create: Option<
        unsafe extern "C" fn(
            host: *const DelegraphHost,
            options: *const DelegraphOption,
            option_count: usize,
            delegate: *mut *mut c_void,
            error: *mut DelegraphError,
        ) -> i32,
    >,
    /// Destroys a delegate, after all of its kernels.
    pub destroy: Option<unsafe extern "C" fn(delegate: *mut c_void)>,
    /// Returns the delegate's name, for reports and messages; zero-terminated, valid as long as the delegate.
    pub name: Option<unsafe extern "C" fn(delegate: *mut c_void) -> *const c_char>,
    /// Returns the highest version of each op that the delegate runs. No other op can be claimed. Valid as long as the
    /// delegate.
    pub versions:
        Option<unsafe extern "C" fn(delegate: *mut c_void, count: *mut usize) -> *const DelegraphOpVersion>,
    /// May be null. Returns optional features of the delegate: `DELEGRAPH_CAN_…`.
    pub capabilities: Option<unsafe extern "C" fn(delegate: *mut c_void) -> u64>,
    /// Claims the nodes of a graph that the delegate runs, and rejects the others with reasons. Called again when
    /// shapes change.
    pub prepare: Option<
        unsafe extern "C" fn(
            delegate: *mut c_void,
            context: DelegraphContext,
            error: *mut DelegraphError,
        ) -> i32,
    >,
    /// May be null. Called when all kernels of the last `prepare` are created, or after it failed. The data of
    /// `prepare` are invalid afterwards.
    pub end_prepare: Option<unsafe extern "C" fn(delegate: *mut c_void)>,
    /// Creates the kernel of a partition, between `prepare` and `end_prepare`. If the call fails and `kernel` is set,
    /// the kernel is destroyed.
    pub create_kernel: Option<
        unsafe extern "C" fn(
            delegate: *mut c_void,
            context: DelegraphContext,
            claim: u64,
            partition: *const DelegraphPartition,
            kernel: *mut *mut c_void,
            error: *mut DelegraphError,
        ) -> i32,
    >,
    /// Destroys a kernel.
    pub destroy_kernel: Option<unsafe extern "C" fn(kernel: *mut c_void)>,
    /// May be null. Prepares a kernel for the current shapes of its inputs and outputs, and requests temporaries.
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
    /// May be null. Writes the measurements of the kernel. `stats->size` is set.
    pub kernel_stats: Option<unsafe extern "C" fn(kernel: *mut c_void, stats: *mut DelegraphStats)>,
    /// May be null. Returns the time of each node in the last run, as far as the kernel measures it; valid until the
    /// kernel is used again.
    pub node_times:
        Option<unsafe extern "C" fn(kernel: *mut c_void, count: *mut usize) -> *const DelegraphNodeTime>,
}
