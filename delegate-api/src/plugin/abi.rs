//! What crosses between an application and a plugin: C types only.
//!
//! How this may change without a new [`DELEGRAPH_ABI_VERSION`]: functions and fields are appended, nothing else. Every
//! struct that may grow begins with its size as its maker knows it, and a reader looks at no field beyond that size.
//! Structs that are passed in plain arrays do not grow.
//!
//! Every pointer that is handed over is valid during the call, unless something else is said. Text is UTF-8.

// `include/delegraph_plugin.h` is made of this file, by `tests/header.rs`.

use std::ffi::{c_char, c_void};

/// The version of this interface. A plugin and an application fit each other when they have the same.
pub const DELEGRAPH_ABI_VERSION: u32 = 1;

/// Status: fine.
pub const DELEGRAPH_OK: i32 = 0;
/// Status: it failed; the message says why.
pub const DELEGRAPH_FAILED: i32 = 1;
/// Status: a type, param, shape or device that is not supported.
pub const DELEGRAPH_UNSUPPORTED: i32 = 2;
/// Status: an argument, or something in the model, that makes no sense.
pub const DELEGRAPH_INVALID: i32 = 3;
/// Status: memory could not be had.
pub const DELEGRAPH_OUT_OF_MEMORY: i32 = 4;
/// Status: the code panicked or threw, and was caught.
pub const DELEGRAPH_PANICKED: i32 = 5;
/// Status: an option is unknown or has a value that cannot be used.
pub const DELEGRAPH_BAD_OPTION: i32 = 6;
/// Status: there is nothing of this name.
pub const DELEGRAPH_NOT_FOUND: i32 = 7;
/// Status: the application cancelled the invocation.
pub const DELEGRAPH_CANCELLED: i32 = 8;

/// The op of a node whose operator is custom: it has a name instead.
pub const DELEGRAPH_CUSTOM_OP: i32 = 32;

/// Node: its inputs are constant; its outputs are constants, too, and are already computed.
pub const DELEGRAPH_NODE_FOLDED: u32 = 1;
/// Node: a shape in it is known only while running.
pub const DELEGRAPH_NODE_DYNAMIC: u32 = 2;
/// Node: it reads or writes state, so that it keeps its place among others that do.
pub const DELEGRAPH_NODE_SIDE_EFFECTS: u32 = 4;
/// Node: the application replaced the builtin kernel.
pub const DELEGRAPH_NODE_OVERRIDDEN: u32 = 8;
/// Node: another delegate has it.
pub const DELEGRAPH_NODE_TAKEN: u32 = 16;

/// Tensor: its shape is known before running.
pub const DELEGRAPH_TENSOR_SHAPE_KNOWN: u32 = 1;
/// Tensor: its data are constant and there.
pub const DELEGRAPH_TENSOR_CONSTANT: u32 = 2;
/// Tensor: state that lives from one invocation to the next. As an input of a kernel it may be written.
pub const DELEGRAPH_TENSOR_VARIABLE: u32 = 4;
/// Tensor: an output whose size is known only while running: `resize_output` gives it memory.
pub const DELEGRAPH_TENSOR_DYNAMIC: u32 = 8;

/// Quantization: none.
pub const DELEGRAPH_QUANTIZATION_NONE: i32 = 0;
/// Quantization: scales and zero points, one pair or one per index of a dimension.
pub const DELEGRAPH_QUANTIZATION_AFFINE: i32 = 1;
/// Quantization: blocks of the innermost dimension share a scale; scales are a tensor of the same graph.
pub const DELEGRAPH_QUANTIZATION_BLOCKWISE: i32 = 2;
/// Quantization: scales vary along several dimensions; scales are a tensor of the same graph.
pub const DELEGRAPH_QUANTIZATION_MULTI_AXIS: i32 = 3;
/// Quantization: bytes that only a custom kernel understands.
pub const DELEGRAPH_QUANTIZATION_CUSTOM: i32 = 4;

/// Rejection: anything that the others do not say; `text` is the reason.
pub const DELEGRAPH_REJECT_OTHER: i32 = 0;
/// Rejection: the node's version is above `limit`.
pub const DELEGRAPH_REJECT_VERSION: i32 = 1;
/// Rejection: the op is not there.
pub const DELEGRAPH_REJECT_OP: i32 = 2;
/// Rejection: the operand `text` ("input 0") has the type `value`.
pub const DELEGRAPH_REJECT_TYPE: i32 = 3;
/// Rejection: a param, shape or combination of operands; `text` is the reason.
pub const DELEGRAPH_REJECT_PARAM: i32 = 4;
/// Rejection: the shape of the tensor named `text` is known only while running.
pub const DELEGRAPH_REJECT_DYNAMIC_SHAPE: i32 = 5;
/// Rejection: the device cannot hold or bind something this large; `text` is the reason.
pub const DELEGRAPH_REJECT_DEVICE_LIMIT: i32 = 6;
/// Rejection: its partition has `value` nodes, fewer than `limit`.
pub const DELEGRAPH_REJECT_PARTITION_TOO_SMALL: i32 = 7;
/// Rejection: larger partitions use up the number allowed, `limit`.
pub const DELEGRAPH_REJECT_TOO_MANY_PARTITIONS: i32 = 8;
/// Rejection: running it elsewhere costs less; `text` is the reason.
pub const DELEGRAPH_REJECT_COST: i32 = 9;
/// Rejection: the application replaced the builtin kernel.
pub const DELEGRAPH_REJECT_OVERRIDDEN: i32 = 10;

/// Rejection: the application does not want it delegated; `text` is the reason.
pub const DELEGRAPH_REJECT_EXCLUDED: i32 = 11;

/// Capability: the delegate takes nodes whose shapes are known only while running. A partition with such a node is
/// prepared in the middle of an invocation, when its inputs are there; its kernel gives the shapes of outputs, with
/// `set_output_shape` or, where data decides, with `set_output_dynamic` and `resize_output`.
pub const DELEGRAPH_CAN_DYNAMIC_SHAPES: u64 = 1;
/// Capability: before such a partition is prepared, the shapes that follow from those of its inputs are to be set.
pub const DELEGRAPH_CAN_PROPAGATED_SHAPES: u64 = 2;

/// Names the call that is going on, for what a plugin asks of the application. It means nothing once the call has
/// returned, or on another thread: functions then return `DELEGRAPH_INVALID`.
pub type DelegraphContext = u64;

/// Text, not terminated.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphText {
    /// UTF-8.
    pub data: *const c_char,
    /// Bytes.
    pub len: usize,
}

/// How long a node took.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphNodeTime {
    /// The node. Of nodes that ran as one, the first.
    pub node: usize,
    /// Nanoseconds.
    pub nanoseconds: u64,
}

/// Where a message goes that explains a status other than `DELEGRAPH_OK`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphError {
    /// Bytes of this struct.
    pub size: usize,
    /// Room for the message. A terminating zero is not needed.
    pub message: *mut c_char,
    /// Bytes of room.
    pub capacity: usize,
    /// How many bytes were written.
    pub len: usize,
}

/// An option that the user gave. Both ends are terminated by zero.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphOption {
    /// Its name.
    pub key: *const c_char,
    /// Its value, possibly empty.
    pub value: *const c_char,
}

/// Up to which version a delegate runs an op.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphOpVersion {
    /// The code of a builtin op, or `DELEGRAPH_CUSTOM_OP`.
    pub op: i32,
    /// The highest version.
    pub max_version: u32,
    /// The name of a custom op, terminated by zero; null for a builtin one.
    pub custom_name: *const c_char,
}

/// The graph: one subgraph of a model. Its nodes are numbered in an order in which they can run.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphGraph {
    /// Bytes of this struct.
    pub size: usize,
    /// Which subgraph of the model.
    pub subgraph: usize,
    /// How many nodes.
    pub nodes: usize,
    /// How many tensors.
    pub tensors: usize,
    /// How many inputs the caller fills.
    pub inputs: usize,
    /// How many outputs the caller reads.
    pub outputs: usize,
    /// The model's path; empty where it has none.
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
    /// How many.
    pub len: usize,
    /// What keeps the bytes.
    pub owner: *mut c_void,
    /// To be called with `owner`, once, on any thread, by whoever asked for the model.
    pub release: Option<unsafe extern "C" fn(owner: *mut c_void)>,
}

/// A node. What it points to is valid until `end_prepare`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphNode {
    /// Bytes of this struct.
    pub size: usize,
    /// The code of a builtin op, or `DELEGRAPH_CUSTOM_OP`.
    pub op: i32,
    /// The version of the op that the model asks for.
    pub version: u32,
    /// `DELEGRAPH_NODE_…`.
    pub flags: u32,
    /// The name of a custom op.
    pub custom_name: DelegraphText,
    /// How many inputs, those left out included.
    pub inputs: usize,
    /// How many outputs.
    pub outputs: usize,
    /// The options of a custom op.
    pub custom_options: *const u8,
    /// Bytes of them.
    pub custom_options_len: usize,
}

/// A tensor. What it points to is valid until `end_prepare`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphTensor {
    /// Bytes of this struct.
    pub size: usize,
    /// Element type, as the format numbers it: 0 is float32, 2 int32, 9 int8.
    pub element_type: i32,
    /// `DELEGRAPH_TENSOR_…`.
    pub flags: u32,
    /// Its shape, outermost dimension first; it says nothing where the shape is not known.
    pub dims: *const usize,
    /// How many dimensions.
    pub rank: usize,
    /// Its name, possibly empty.
    pub name: DelegraphText,
    /// Constant data; null where there are none.
    pub data: *const c_void,
    /// Bytes of them.
    pub data_len: usize,
    /// `DELEGRAPH_QUANTIZATION_…`.
    pub quantization: i32,
    /// The dimension that affine scales run along.
    pub quantized_dimension: usize,
    /// Affine scales.
    pub scales: *const f32,
    /// As many zero points.
    pub zero_points: *const i64,
    /// How many.
    pub scale_count: usize,
    /// The tensor of scales of other kinds; -1 where there is none.
    pub scales_tensor: i64,
    /// The tensor of zero points of other kinds; -1 where there is none.
    pub zero_points_tensor: i64,
    /// Elements that share a scale, of other kinds.
    pub block_size: usize,
}

/// Why a node is not claimed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphRejection {
    /// Bytes of this struct.
    pub size: usize,
    /// `DELEGRAPH_REJECT_…`, which says what the other fields mean.
    pub kind: i32,
    /// Text.
    pub text: DelegraphText,
    /// What there is.
    pub value: i64,
    /// What is allowed.
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
    /// How many.
    pub node_count: usize,
    /// Tensors that they read and do not compute, constants left out.
    pub inputs: *const usize,
    /// How many.
    pub input_count: usize,
    /// Tensors that they compute and that others, or the caller, read.
    pub outputs: *const usize,
    /// How many.
    pub output_count: usize,
}

/// A tensor, or temporary memory, of a kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphBuffer {
    /// Bytes of this struct.
    pub size: usize,
    /// Its memory. While a kernel prepares it is null, but for constants, and for inputs of what has dynamic shapes,
    /// which are there to be read.
    pub data: *mut c_void,
    /// Bytes of it.
    pub data_len: usize,
    /// Its shape, outermost dimension first.
    pub dims: *const usize,
    /// How many dimensions.
    pub rank: usize,
    /// Element type, as the format numbers it.
    pub element_type: i32,
    /// `DELEGRAPH_TENSOR_…`.
    pub flags: u32,
}

/// What a kernel prepares for, or runs on. Inputs and outputs are those of its partition, or of its node, in that order.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphKernelCall {
    /// Bytes of this struct.
    pub size: usize,
    /// Inputs. None of their memory is an output's. An input that a node leaves out is null.
    pub inputs: *const *const DelegraphBuffer,
    /// How many.
    pub input_count: usize,
    /// Outputs, to be written. Their memory is not initialised.
    pub outputs: *const *const DelegraphBuffer,
    /// How many.
    pub output_count: usize,
    /// While running: the temporaries that were asked for, in that order. Each begins at a multiple of 64.
    pub temporaries: *const *const DelegraphBuffer,
    /// How many.
    pub temporary_count: usize,
    /// How many threads `parallel` uses.
    pub threads: usize,
}

/// What a kernel measured of itself. Times are in milliseconds; a negative one is not known.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DelegraphStats {
    /// Bytes of this struct.
    pub size: usize,
    /// Bytes of device memory that it holds.
    pub device_bytes: u64,
    /// Time of the last upload.
    pub upload_ms: f64,
    /// Time on the device in the last run.
    pub device_ms: f64,
    /// Time of the last read-back.
    pub readback_ms: f64,
    /// How many kernels one run starts on the device.
    pub dispatches: usize,
}

/// What a plugin may ask of the application. The table is valid as long as the library is loaded.
///
/// Functions return a status, unless something else is said. A call with a wrong argument fails, and makes the
/// function of the plugin that made it fail, whatever that returns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DelegraphHost {
    /// Bytes of this struct.
    pub size: usize,
    /// The most detailed level of messages that are wanted: 1 error, 2 warning, 3 info, 4 debug, 5 trace; 0 none.
    pub log_level: Option<unsafe extern "C" fn() -> i32>,
    /// Logs a message of the part of the plugin that `target` names, which may be empty. May be called at any time and
    /// on any thread.
    pub log: Option<unsafe extern "C" fn(level: i32, target: DelegraphText, text: DelegraphText)>,

    /// In `prepare` and `create_kernel`: the graph.
    pub graph: Option<unsafe extern "C" fn(context: DelegraphContext, graph: *mut DelegraphGraph) -> i32>,
    /// In `prepare` and `create_kernel`: the model as a `.tflite` file. `out->size` must be set.
    pub model: Option<unsafe extern "C" fn(context: DelegraphContext, out: *mut DelegraphModel) -> i32>,
    /// In `prepare` and `create_kernel`: the bytes of the model's metadata of this name, valid until `end_prepare`.
    pub metadata: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            name: *const c_char,
            data: *mut *const u8,
            len: *mut usize,
        ) -> i32,
    >,
    /// In `prepare` and `create_kernel`: the tensor that is input `index` of the graph; -2 where there is none.
    pub graph_input: Option<unsafe extern "C" fn(context: DelegraphContext, index: usize) -> i64>,
    /// In `prepare` and `create_kernel`: the tensor that is output `index` of the graph; -2 where there is none.
    pub graph_output: Option<unsafe extern "C" fn(context: DelegraphContext, index: usize) -> i64>,
    /// In `prepare` and `create_kernel`: a node. `out->size` must be set.
    pub node:
        Option<unsafe extern "C" fn(context: DelegraphContext, node: usize, out: *mut DelegraphNode) -> i32>,
    /// In `prepare` and `create_kernel`: the tensor that is input `index` of a node; -1 where it is left out, -2
    /// where the node has no such input.
    pub node_input: Option<unsafe extern "C" fn(context: DelegraphContext, node: usize, index: usize) -> i64>,
    /// In `prepare` and `create_kernel`: the tensor that is output `index` of a node; -2 where there is none.
    pub node_output:
        Option<unsafe extern "C" fn(context: DelegraphContext, node: usize, index: usize) -> i64>,
    /// In `prepare` and `create_kernel`: a tensor. `out->size` must be set.
    pub tensor: Option<
        unsafe extern "C" fn(context: DelegraphContext, tensor: usize, out: *mut DelegraphTensor) -> i32,
    >,
    /// In `prepare` and `create_kernel`: a param of a node, by the name that the format's options table gives it: a
    /// whole number, a bool, or the number of an enum's value.
    pub param_i64: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            node: usize,
            name: *const c_char,
            out: *mut i64,
        ) -> i32,
    >,
    /// In `prepare` and `create_kernel`: a param that is a number.
    pub param_f64: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            node: usize,
            name: *const c_char,
            out: *mut f64,
        ) -> i32,
    >,
    /// In `prepare` and `create_kernel`: a param that is text, or the name of an enum's value (`SAME`, `RELU6`),
    /// valid until `end_prepare`.
    pub param_text: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            node: usize,
            name: *const c_char,
            out: *mut DelegraphText,
        ) -> i32,
    >,
    /// In `prepare` and `create_kernel`: a param that is a list of whole numbers. `len` takes how many there are;
    /// `out` as many of them as there is room for.
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

    /// In `prepare` and `create_kernel`: a subgraph that a node of the graph calls (the body of a WHILE), as far as its
    /// shapes are known already: a number to be given in place of `context` to the functions above. 0 where nothing is
    /// known of it but what the model's file says.
    pub callee: Option<unsafe extern "C" fn(context: DelegraphContext, subgraph: usize) -> DelegraphContext>,

    /// In `prepare`: whether a node may be claimed. `DELEGRAPH_UNSUPPORTED` where its version is above the declared
    /// one, its shapes are not known, another delegate has it, or the like.
    pub may_claim: Option<unsafe extern "C" fn(context: DelegraphContext, node: usize) -> i32>,
    /// In `prepare`: the partitions that these nodes would fall into. `each` is called with every one of them.
    pub preview_partitions: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            nodes: *const usize,
            node_count: usize,
            each: Option<unsafe extern "C" fn(user: *mut c_void, partition: *const DelegraphPartition)>,
            user: *mut c_void,
        ) -> i32,
    >,
    /// In `prepare`: says why a node is not claimed.
    pub reject: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            node: usize,
            reason: *const DelegraphRejection,
        ) -> i32,
    >,
    /// In `prepare`: claims nodes. Those that may not be claimed are left out and rejected. All that is
    /// claimed with the same `claim` is grouped together; the number comes back in `create_kernel`, once for each
    /// partition that the nodes fall into.
    pub claim: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            nodes: *const usize,
            node_count: usize,
            claim: u64,
        ) -> i32,
    >,

    /// In `prepare_kernel`: asks for memory while the kernel runs. Returns its number, or -1.
    pub temporary: Option<unsafe extern "C" fn(context: DelegraphContext, bytes: usize) -> i64>,
    /// In `prepare_kernel`: gives an output a shape.
    pub set_output_shape: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            output: usize,
            dims: *const usize,
            rank: usize,
        ) -> i32,
    >,
    /// In `prepare_kernel`: says that the shape of an output depends on data.
    pub set_output_dynamic: Option<unsafe extern "C" fn(context: DelegraphContext, output: usize) -> i32>,

    /// In `invoke_kernel`: gives an output whose size is known only while running a shape and memory.
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
    /// In `invoke_kernel`: calls `task(user, 0)`, …, `task(user, tasks - 1)` on the application's threads, in any
    /// order and possibly at the same time, and returns when all are done.
    pub parallel: Option<
        unsafe extern "C" fn(
            context: DelegraphContext,
            tasks: usize,
            task: Option<unsafe extern "C" fn(user: *mut c_void, index: usize)>,
            user: *mut c_void,
        ) -> i32,
    >,
    /// In `invoke_kernel`: 1 where the application wants the invocation to end. The kernel then returns
    /// `DELEGRAPH_CANCELLED`.
    pub is_cancelled: Option<unsafe extern "C" fn(context: DelegraphContext) -> i32>,
    /// In `invoke_kernel`: tells the application how far the kernel is.
    pub progress: Option<unsafe extern "C" fn(context: DelegraphContext, done: usize, total: usize) -> i32>,

    /// In `prepare_kernel` of a custom op: asks for memory that keeps what it holds from one run to the next. It is zero at
    /// first, and all of the kernel's is again where it asks for other sizes than before. Returns its number among the temporaries, or -1.
    pub persistent: Option<unsafe extern "C" fn(context: DelegraphContext, bytes: usize) -> i64>,
    /// In `create_kernel` of a custom op: an option that is a whole number, or 0 or 1 for a truth value.
    ///
    /// This and the three below read the op's options as a FlexBuffer map. They return `DELEGRAPH_NOT_FOUND` where the map
    /// does not have the option, and `DELEGRAPH_INVALID` where it is of another type or there is no map. Where
    /// `create_kernel` then fails without a message of its own, the application says which option it was, what it is and
    /// what was wanted.
    pub option_i64:
        Option<unsafe extern "C" fn(context: DelegraphContext, name: *const c_char, out: *mut i64) -> i32>,
    /// In `create_kernel` of a custom op: an option that is a number.
    pub option_f64:
        Option<unsafe extern "C" fn(context: DelegraphContext, name: *const c_char, out: *mut f64) -> i32>,
    /// In `create_kernel` of a custom op: an option that is text, valid during the call.
    pub option_text: Option<
        unsafe extern "C" fn(context: DelegraphContext, name: *const c_char, out: *mut DelegraphText) -> i32,
    >,
    /// In `create_kernel` of a custom op: an option that is a list of numbers. `len` takes how many there are; `out` as
    /// many of them as there is room for.
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
/// of this table, which lives as long as the library is loaded.
///
/// A delegate, and each of its kernels, is used by one thread at a time, not always the same one. No function may
/// unwind: neither panics nor exceptions cross.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DelegraphPlugin {
    /// `DELEGRAPH_ABI_VERSION`.
    pub abi_version: u32,
    /// Bytes of this struct.
    pub size: usize,
    /// Makes a delegate. Options that it does not know must be an error (`DELEGRAPH_BAD_OPTION`) that names those
    /// that it knows. Where it fails, but `delegate` is set, that is destroyed.
    pub create: Option<
        unsafe extern "C" fn(
            host: *const DelegraphHost,
            options: *const DelegraphOption,
            option_count: usize,
            delegate: *mut *mut c_void,
            error: *mut DelegraphError,
        ) -> i32,
    >,
    /// Destroys a delegate. All of its kernels are destroyed by then.
    pub destroy: Option<unsafe extern "C" fn(delegate: *mut c_void)>,
    /// The delegate's name, for reports and messages; terminated by zero, valid as long as the delegate.
    pub name: Option<unsafe extern "C" fn(delegate: *mut c_void) -> *const c_char>,
    /// Up to which version the delegate runs each op. No other op can be claimed. Valid as long as the delegate.
    pub versions:
        Option<unsafe extern "C" fn(delegate: *mut c_void, count: *mut usize) -> *const DelegraphOpVersion>,
    /// May be null. What the delegate can do beyond the plain case: `DELEGRAPH_CAN_…`.
    pub capabilities: Option<unsafe extern "C" fn(delegate: *mut c_void) -> u64>,
    /// Looks at a graph, claims what the delegate runs and rejects the rest with reasons. Called again when shapes
    /// change.
    pub prepare: Option<
        unsafe extern "C" fn(
            delegate: *mut c_void,
            context: DelegraphContext,
            error: *mut DelegraphError,
        ) -> i32,
    >,
    /// May be null. All kernels that the last `prepare` leads to are made: what it points to goes away.
    pub end_prepare: Option<unsafe extern "C" fn(delegate: *mut c_void)>,
    /// Makes the kernel that runs a partition, between `prepare` and `end_prepare`. Where it fails, but `kernel` is set,
    /// that is destroyed.
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
    /// May be null. Gets a kernel ready for the shapes that its inputs and outputs have; asks for temporaries.
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
    /// May be null. What the kernel measured of itself. `stats->size` is set.
    pub kernel_stats: Option<unsafe extern "C" fn(kernel: *mut c_void, stats: *mut DelegraphStats)>,
    /// May be null. How long each node took in the last run, as far as the kernel knows; valid until the kernel is used
    /// again.
    pub node_times:
        Option<unsafe extern "C" fn(kernel: *mut c_void, count: *mut usize) -> *const DelegraphNodeTime>,
}
