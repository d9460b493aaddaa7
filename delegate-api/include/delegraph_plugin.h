/* The interface between Delegraph and delegates in shared libraries, for authors in C and C++.
 *
 * Generated from src/plugin/abi.rs of delegraph-delegate-api, whose test `header` holds the two together.
 * How to write a plugin: docs/plugins.md and examples/plugin-c.
 *
 * The interface between an application and a plugin. It consists of C types only.
 *
 * Changes without a new `DELEGRAPH_ABI_VERSION`: functions and fields are appended, nothing else. Every struct that
 * may grow begins with its size as its creator knows it, and a reader ignores fields beyond that size. Structs that
 * are passed in plain arrays do not grow.
 *
 * Every pointer that is passed is valid during the call, unless stated otherwise. Text is UTF-8.
 */
#ifndef DELEGRAPH_PLUGIN_H
#define DELEGRAPH_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define DELEGRAPH_EXPORT __declspec(dllexport)
#else
#define DELEGRAPH_EXPORT __attribute__((visibility("default")))
#endif

/** The version of this interface. Plugin and application must have the same version. */
#define DELEGRAPH_ABI_VERSION 2u

/** Status: success. */
#define DELEGRAPH_OK 0

/** Status: failure; the message has the reason. */
#define DELEGRAPH_FAILED 1

/** Status: an unsupported type, param, shape or device. */
#define DELEGRAPH_UNSUPPORTED 2

/** Status: an invalid argument or model. */
#define DELEGRAPH_INVALID 3

/** Status: memory could not be allocated. */
#define DELEGRAPH_OUT_OF_MEMORY 4

/** Status: a panic or exception was caught. */
#define DELEGRAPH_PANICKED 5

/** Status: an option is unknown or has an invalid value. */
#define DELEGRAPH_BAD_OPTION 6

/** Status: the name is unknown. */
#define DELEGRAPH_NOT_FOUND 7

/** Status: the application cancelled the invocation. */
#define DELEGRAPH_CANCELLED 8

/** The op of every custom operator, which is identified by its name. */
#define DELEGRAPH_CUSTOM_OP 32

/** Node: all inputs are constant; its outputs are constants, too, which are already computed. */
#define DELEGRAPH_NODE_FOLDED 1u

/** Node: the shape of an operand depends on data. */
#define DELEGRAPH_NODE_DYNAMIC 2u

/** Node: it reads or writes state, so it keeps its order among all such nodes. */
#define DELEGRAPH_NODE_SIDE_EFFECTS 4u

/** Node: the application replaced the builtin kernel. */
#define DELEGRAPH_NODE_OVERRIDDEN 8u

/** Node: another delegate claimed it. */
#define DELEGRAPH_NODE_TAKEN 16u

/** Tensor: its shape is known before running. */
#define DELEGRAPH_TENSOR_SHAPE_KNOWN 1u

/** Tensor: its data are constant and available. */
#define DELEGRAPH_TENSOR_CONSTANT 2u

/** Tensor: state that persists between invocations. A kernel may write such an input. */
#define DELEGRAPH_TENSOR_VARIABLE 4u

/** Tensor: an output whose size depends on data: `resize_output` allocates its memory. */
#define DELEGRAPH_TENSOR_DYNAMIC 8u

/** Quantization: none. */
#define DELEGRAPH_QUANTIZATION_NONE 0

/** Quantization: scales and zero points, one pair or one per index of a dimension. */
#define DELEGRAPH_QUANTIZATION_AFFINE 1

/** Quantization: blocks of the innermost dimension share a scale; scales are a tensor of the same graph. */
#define DELEGRAPH_QUANTIZATION_BLOCKWISE 2

/** Quantization: scales vary along several dimensions; scales are a tensor of the same graph. */
#define DELEGRAPH_QUANTIZATION_MULTI_AXIS 3

/** Quantization: opaque bytes for a custom kernel. */
#define DELEGRAPH_QUANTIZATION_CUSTOM 4

/** Rejection: any other reason; `text` has it. */
#define DELEGRAPH_REJECT_OTHER 0

/** Rejection: the node's version, or that of the features that it uses, is above `limit`. `value` is that version. */
#define DELEGRAPH_REJECT_VERSION 1

/** Rejection: the op is not supported. */
#define DELEGRAPH_REJECT_OP 2

/** Rejection: the operand `text` ("input 0") has the unsupported type `value`. */
#define DELEGRAPH_REJECT_TYPE 3

/** Rejection: an unsupported param, shape or combination of operands; `text` has the reason. */
#define DELEGRAPH_REJECT_PARAM 4

/** Rejection: the shape of the tensor named `text` depends on data. */
#define DELEGRAPH_REJECT_DYNAMIC_SHAPE 5

/** Rejection: a buffer or binding exceeds a limit of the device; `text` has the reason. */
#define DELEGRAPH_REJECT_DEVICE_LIMIT 6

/** Rejection: the partition of the node has `value` nodes, fewer than `limit`. */
#define DELEGRAPH_REJECT_PARTITION_TOO_SMALL 7

/** Rejection: larger partitions reach the maximum number, `limit`. */
#define DELEGRAPH_REJECT_TOO_MANY_PARTITIONS 8

/** Rejection: the CPU is estimated to be faster; `text` has the reason. */
#define DELEGRAPH_REJECT_COST 9

/** Rejection: the application replaced the builtin kernel. */
#define DELEGRAPH_REJECT_OVERRIDDEN 10

/** Rejection: the application excluded the node; `text` has the reason. */
#define DELEGRAPH_REJECT_EXCLUDED 11

/** Capability: the delegate supports nodes whose shapes are known only while running. A partition with such a node is
 * prepared during an invocation, when its inputs are computed. Its kernel sets the shapes of outputs with
 * `set_output_shape` or, for shapes that depend on data, with `set_output_dynamic` and `resize_output`. */
#define DELEGRAPH_CAN_DYNAMIC_SHAPES UINT64_C(1)

/** Capability: before such a partition is prepared, the delegate receives the shapes that follow from those of its
 * inputs. */
#define DELEGRAPH_CAN_PROPAGATED_SHAPES UINT64_C(2)

/** Time: not measured. */
#define DELEGRAPH_TIME_UNKNOWN UINT64_C(0xffffffffffffffff)

/** Identifies the current call in calls back to the application. Valid until the call returns, on the thread of the
 * call; otherwise functions return `DELEGRAPH_INVALID`. */
typedef uint64_t DelegraphContext;

/** Text without a terminating zero. */
typedef struct DelegraphText {
    /** The text in UTF-8. */
    const char *data;
    /** Number of bytes. */
    size_t len;
} DelegraphText;

/** The time of a node. */
typedef struct DelegraphNodeTime {
    /** The node; the first one of nodes that ran together. */
    size_t node;
    /** The time on the device in nanoseconds. */
    uint64_t nanoseconds;
} DelegraphNodeTime;

/** Buffer for a message that explains a status other than `DELEGRAPH_OK`. */
typedef struct DelegraphError {
    /** Bytes of this struct. */
    size_t size;
    /** The buffer. A terminating zero is not needed. */
    char *message;
    /** Bytes of the buffer. */
    size_t capacity;
    /** Number of bytes written. */
    size_t len;
} DelegraphError;

/** An option that the user passed. Key and value are zero-terminated. */
typedef struct DelegraphOption {
    /** Its name. */
    const char *key;
    /** Its value, possibly empty. */
    const char *value;
} DelegraphOption;

/** The highest version of an op that a delegate runs. */
typedef struct DelegraphOpVersion {
    /** The code of a builtin op, or `DELEGRAPH_CUSTOM_OP`. */
    int32_t op;
    /** The highest version. */
    uint32_t max_version;
    /** The name of a custom op, zero-terminated; null for a builtin one. With the code of STABLEHLO_COMPOSITE (206), the name
     * of marked composites that the delegate runs as a whole, and `max_version` is that of the composite. */
    const char *custom_name;
} DelegraphOpVersion;

/** The graph: one subgraph of a model. Its nodes are numbered in an order in which they can run. */
typedef struct DelegraphGraph {
    /** Bytes of this struct. */
    size_t size;
    /** The index of the subgraph in the model. */
    size_t subgraph;
    /** Number of nodes. */
    size_t nodes;
    /** Number of tensors. */
    size_t tensors;
    /** Number of inputs that the caller fills. */
    size_t inputs;
    /** Number of outputs that the caller reads. */
    size_t outputs;
    /** The model's path; empty if it has none. */
    DelegraphText model_path;
} DelegraphGraph;

/** A model as the bytes of a `.tflite` file. */
typedef struct DelegraphModel {
    /** Bytes of this struct. */
    size_t size;
    /** The bytes, valid until they are released. */
    const uint8_t *data;
    /** Their number. */
    size_t len;
    /** The owner of the bytes. */
    void *owner;
    /** Releases the bytes. The plugin calls it with `owner`, once, on any thread. */
    void (*release)(void *owner);
} DelegraphModel;

/** A node. Its pointers are valid until `end_prepare`. */
typedef struct DelegraphNode {
    /** Bytes of this struct. */
    size_t size;
    /** The code of a builtin op, or `DELEGRAPH_CUSTOM_OP`. */
    int32_t op;
    /** The version of the op. */
    uint32_t version;
    /** `DELEGRAPH_NODE_…`. */
    uint32_t flags;
    /** The name of a custom op. */
    DelegraphText custom_name;
    /** Number of inputs, including omitted optional inputs. */
    size_t inputs;
    /** Number of outputs. */
    size_t outputs;
    /** The options of a custom op. */
    const uint8_t *custom_options;
    /** Number of bytes of the options. */
    size_t custom_options_len;
} DelegraphNode;

/** A tensor. Its pointers are valid until `end_prepare`. */
typedef struct DelegraphTensor {
    /** Bytes of this struct. */
    size_t size;
    /** Element type, as the format numbers it: 0 is float32, 2 int32, 9 int8. */
    int32_t element_type;
    /** `DELEGRAPH_TENSOR_…`. */
    uint32_t flags;
    /** Its shape, outermost dimension first; meaningless if the shape is unknown. */
    const size_t *dims;
    /** Number of dimensions. */
    size_t rank;
    /** Its name, possibly empty. */
    DelegraphText name;
    /** Constant data, or null. */
    const void *data;
    /** Number of bytes of the data. */
    size_t data_len;
    /** `DELEGRAPH_QUANTIZATION_…`. */
    int32_t quantization;
    /** The dimension that affine scales run along. */
    size_t quantized_dimension;
    /** Affine scales. */
    const float *scales;
    /** Affine zero points, one per scale. */
    const int64_t *zero_points;
    /** Their number. */
    size_t scale_count;
    /** The tensor of the scales for other kinds of quantization, or -1. */
    int64_t scales_tensor;
    /** The tensor of the zero points for other kinds of quantization, or -1. */
    int64_t zero_points_tensor;
    /** Number of elements that share a scale, for other kinds of quantization. */
    size_t block_size;
} DelegraphTensor;

/** The reason why a node is not claimed. */
typedef struct DelegraphRejection {
    /** Bytes of this struct. */
    size_t size;
    /** `DELEGRAPH_REJECT_…`, which defines the meaning of the other fields. */
    int32_t kind;
    /** The reason, or the name of an operand or a tensor; empty if `kind` needs none. */
    DelegraphText text;
    /** The observed value. */
    int64_t value;
    /** The supported value. */
    int64_t limit;
} DelegraphRejection;

/** Nodes that one kernel runs. */
typedef struct DelegraphPartition {
    /** Bytes of this struct. */
    size_t size;
    /** The nodes, in an order in which they can run. */
    const size_t *nodes;
    /** Their number. */
    size_t node_count;
    /** Tensors that they read and do not compute, without constants. */
    const size_t *inputs;
    /** Their number. */
    size_t input_count;
    /** Tensors that they compute and that other nodes, or the caller, read. */
    const size_t *outputs;
    /** Their number. */
    size_t output_count;
} DelegraphPartition;

/** A tensor, or temporary memory, of a kernel. */
typedef struct DelegraphBuffer {
    /** Bytes of this struct. */
    size_t size;
    /** Its memory. Null in `prepare_kernel`, except for constants, and for inputs of partitions with dynamic shapes,
     * which can be read. */
    void *data;
    /** Number of bytes of the memory. */
    size_t data_len;
    /** Its shape, outermost dimension first. */
    const size_t *dims;
    /** Number of dimensions. */
    size_t rank;
    /** Element type, as the format numbers it. */
    int32_t element_type;
    /** `DELEGRAPH_TENSOR_…`. */
    uint32_t flags;
} DelegraphBuffer;

/** The operands of a kernel. Inputs and outputs are those of its partition, or of its node, in that order. */
typedef struct DelegraphKernelCall {
    /** Bytes of this struct. */
    size_t size;
    /** Inputs. Their memory does not overlap with that of outputs. An omitted optional input is null. */
    const DelegraphBuffer *const *inputs;
    /** Their number. */
    size_t input_count;
    /** Outputs. Their memory is not initialised. */
    const DelegraphBuffer *const *outputs;
    /** Their number. */
    size_t output_count;
    /** In `invoke_kernel`: the temporaries, in the order in which they were requested. Each address is a multiple of 64. */
    const DelegraphBuffer *const *temporaries;
    /** Their number. */
    size_t temporary_count;
    /** Number of threads that `parallel` uses. */
    size_t threads;
} DelegraphKernelCall;

/** Measurements of a kernel. A time that was not measured is `DELEGRAPH_TIME_UNKNOWN`. */
typedef struct DelegraphStats {
    /** Bytes of this struct. */
    size_t size;
    /** Bytes of device memory that the kernel holds. */
    uint64_t device_bytes;
    /** Nanoseconds of the last upload. */
    uint64_t upload_nanoseconds;
    /** Nanoseconds on the device in the last run. */
    uint64_t device_nanoseconds;
    /** Nanoseconds of the last read-back. */
    uint64_t readback_nanoseconds;
    /** Number of kernels that one run starts on the device. */
    size_t dispatches;
} DelegraphStats;

/** Functions of the application that a plugin may call. The table is valid as long as the library is loaded.
 *
 * Functions return a status, unless stated otherwise. A call with an invalid argument fails, and makes the plugin's
 * calling function fail, regardless of its return value. */
typedef struct DelegraphHost {
    /** Bytes of this struct. */
    size_t size;
    /** Returns the most detailed level of messages that the application logs: 1 error, 2 warning, 3 info, 4 debug, 5
     * trace; 0 none. */
    int32_t (*log_level)(void);
    /** Logs a message. `target` names a part of the plugin and may be empty. May be called at any time and
     * on any thread. */
    void (*log)(int32_t level, DelegraphText target, DelegraphText text);
    /** In `prepare` and `create_kernel`: writes the graph. `graph->size` must be set. */
    int32_t (*graph)(DelegraphContext context, DelegraphGraph *graph);
    /** In `prepare` and `create_kernel`: writes the model as a `.tflite` file. `out->size` must be set. */
    int32_t (*model)(DelegraphContext context, DelegraphModel *out);
    /** In `prepare` and `create_kernel`: writes the bytes of the model's metadata with this name, valid until
     * `end_prepare`. `DELEGRAPH_NOT_FOUND` if there are none. */
    int32_t (*metadata)(DelegraphContext context, const char *name, const uint8_t **data, size_t *len);
    /** In `prepare` and `create_kernel`: returns the tensor that is input `index` of the graph; -2 if there is none. */
    int64_t (*graph_input)(DelegraphContext context, size_t index);
    /** In `prepare` and `create_kernel`: returns the tensor that is output `index` of the graph; -2 if there is none. */
    int64_t (*graph_output)(DelegraphContext context, size_t index);
    /** In `prepare` and `create_kernel`: writes a node. `out->size` must be set. */
    int32_t (*node)(DelegraphContext context, size_t node, DelegraphNode *out);
    /** In `prepare` and `create_kernel`: returns the tensor that is input `index` of a node; -1 if it is omitted, -2 if
     * the node has no such input. */
    int64_t (*node_input)(DelegraphContext context, size_t node, size_t index);
    /** In `prepare` and `create_kernel`: returns the tensor that is output `index` of a node; -2 if there is none. */
    int64_t (*node_output)(DelegraphContext context, size_t node, size_t index);
    /** In `prepare` and `create_kernel`: writes a tensor. `out->size` must be set. */
    int32_t (*tensor)(DelegraphContext context, size_t tensor, DelegraphTensor *out);
    /** In `prepare` and `create_kernel`: writes a param of a node, by its name in the schema's options table: an
     * integer, a bool, or the number of an enum's value.
     *
     * This function and the next three return `DELEGRAPH_NOT_FOUND` if the node has no param of this name and type. */
    int32_t (*param_i64)(DelegraphContext context, size_t node, const char *name, int64_t *out);
    /** In `prepare` and `create_kernel`: writes a param that is a number. */
    int32_t (*param_f64)(DelegraphContext context, size_t node, const char *name, double *out);
    /** In `prepare` and `create_kernel`: writes a param that is text, or the name of an enum's value (`SAME`, `RELU6`),
     * valid until `end_prepare`. */
    int32_t (*param_text)(DelegraphContext context, size_t node, const char *name, DelegraphText *out);
    /** In `prepare` and `create_kernel`: writes a param that is a list of integers. `len` receives their number; `out`
     * receives the first `capacity` of them. */
    int32_t (*param_i64s)(DelegraphContext context, size_t node, const char *name, int64_t *out, size_t capacity, size_t *len);
    /** In `prepare` and `create_kernel`: returns the context of a subgraph that a node of the graph calls (the body of
     * a WHILE), if it is prepared. The result replaces `context` in the functions above. 0 if the subgraph is
     * described by the model's file only. */
    DelegraphContext (*callee)(DelegraphContext context, size_t subgraph);
    /** In `prepare`: returns `DELEGRAPH_OK` if a node may be claimed, otherwise `DELEGRAPH_UNSUPPORTED`: for example if
     * its version is above the declared one, its shapes depend on data, or another delegate claimed it. */
    int32_t (*may_claim)(DelegraphContext context, size_t node);
    /** In `prepare`: calls `each` with every partition that would result from claiming these nodes. */
    int32_t (*preview_partitions)(DelegraphContext context, const size_t *nodes, size_t node_count, void (*each)(void *user, const DelegraphPartition *partition), void *user);
    /** In `prepare`: rejects a node with a reason. */
    int32_t (*reject)(DelegraphContext context, size_t node, const DelegraphRejection *reason);
    /** In `prepare`: claims nodes. Those that may not be claimed are rejected instead. Nodes that are claimed with the
     * same `claim` are partitioned together; `create_kernel` receives this number, once for each of their
     * partitions. */
    int32_t (*claim)(DelegraphContext context, const size_t *nodes, size_t node_count, uint64_t claim);
    /** In `prepare_kernel`: requests memory for the duration of a run. Returns its index, or -1. */
    int64_t (*temporary)(DelegraphContext context, size_t bytes);
    /** In `prepare_kernel`: sets the shape of an output. */
    int32_t (*set_output_shape)(DelegraphContext context, size_t output, const size_t *dims, size_t rank);
    /** In `prepare_kernel`: declares that the shape of an output depends on data. */
    int32_t (*set_output_dynamic)(DelegraphContext context, size_t output);
    /** In `invoke_kernel`: sets the shape of an output whose size depends on data, and allocates its memory. */
    int32_t (*resize_output)(DelegraphContext context, size_t output, const size_t *dims, size_t rank, size_t bytes, void **data);
    /** In `invoke_kernel`: calls `task(user, 0)`, …, `task(user, tasks - 1)` on the application's threads, in any order
     * and possibly at the same time, and returns when all have returned. */
    int32_t (*parallel)(DelegraphContext context, size_t tasks, void (*task)(void *user, size_t index), void *user);
    /** In `invoke_kernel`: returns 1 if the application cancelled the invocation. The kernel then returns
     * `DELEGRAPH_CANCELLED`. */
    int32_t (*is_cancelled)(DelegraphContext context);
    /** In `invoke_kernel`: reports the kernel's progress. */
    int32_t (*progress)(DelegraphContext context, size_t done, size_t total);
    /** In `prepare_kernel` of a custom op: requests memory that keeps its contents between runs. It is zero initially.
     * If a kernel requests other sizes than before, all of its persistent memory is zeroed. Returns its index among
     * the temporaries, or -1. */
    int64_t (*persistent)(DelegraphContext context, size_t bytes);
    /** In `create_kernel` of a custom op: writes an option that is an integer, or 0 or 1 for a boolean.
     *
     * This function and the next three read the op's options as a FlexBuffer map. They return `DELEGRAPH_NOT_FOUND` if
     * the map does not contain the option, and `DELEGRAPH_INVALID` if it has another type or there is no map. If
     * `create_kernel` then fails without a message, the application's message names the option, its value and the
     * expected type. */
    int32_t (*option_i64)(DelegraphContext context, const char *name, int64_t *out);
    /** In `create_kernel` of a custom op: writes an option that is a number. */
    int32_t (*option_f64)(DelegraphContext context, const char *name, double *out);
    /** In `create_kernel` of a custom op: writes an option that is text, valid during the call. */
    int32_t (*option_text)(DelegraphContext context, const char *name, DelegraphText *out);
    /** In `create_kernel` of a custom op: writes an option that is a list of numbers. `len` receives their number;
     * `out` receives the first `capacity` of them. */
    int32_t (*option_f64s)(DelegraphContext context, const char *name, double *out, size_t capacity, size_t *len);
} DelegraphHost;

/** A plugin. A library exports one function without parameters, `delegraph_delegate_plugin`, that returns the address
 * of this table, which is valid as long as the library is loaded.
 *
 * A delegate, and each of its kernels, is used by one thread at a time, which may change between calls. No function
 * may unwind: panics and exceptions must not cross the interface. */
typedef struct DelegraphPlugin {
    /** `DELEGRAPH_ABI_VERSION`. */
    uint32_t abi_version;
    /** Bytes of this struct. */
    size_t size;
    /** Creates a delegate. Unknown options must be an error (`DELEGRAPH_BAD_OPTION`) that names the known ones. If the
     * call fails and `delegate` is set, the delegate is destroyed. */
    int32_t (*create)(const DelegraphHost *host, const DelegraphOption *options, size_t option_count, void **delegate, DelegraphError *error);
    /** Destroys a delegate, after all of its kernels. */
    void (*destroy)(void *delegate);
    /** Returns the delegate's name, for reports and messages; zero-terminated, valid as long as the delegate. */
    const char * (*name)(void *delegate);
    /** Returns the highest version of each op that the delegate runs. No other op can be claimed. Valid as long as the
     * delegate. */
    const DelegraphOpVersion * (*versions)(void *delegate, size_t *count);
    /** May be null. Returns optional features of the delegate: `DELEGRAPH_CAN_…`. */
    uint64_t (*capabilities)(void *delegate);
    /** Claims the nodes of a graph that the delegate runs, and rejects the others with reasons. Called again when
     * shapes change. */
    int32_t (*prepare)(void *delegate, DelegraphContext context, DelegraphError *error);
    /** May be null. Called when all kernels of the last `prepare` are created, or after it failed. The data of
     * `prepare` are invalid afterwards. */
    void (*end_prepare)(void *delegate);
    /** Creates the kernel of a partition, between `prepare` and `end_prepare`. If the call fails and `kernel` is set,
     * the kernel is destroyed. */
    int32_t (*create_kernel)(void *delegate, DelegraphContext context, uint64_t claim, const DelegraphPartition *partition, void **kernel, DelegraphError *error);
    /** Destroys a kernel. */
    void (*destroy_kernel)(void *kernel);
    /** May be null. Prepares a kernel for the current shapes of its inputs and outputs, and requests temporaries. */
    int32_t (*prepare_kernel)(void *kernel, DelegraphContext context, const DelegraphKernelCall *call, DelegraphError *error);
    /** Computes the outputs from the inputs. */
    int32_t (*invoke_kernel)(void *kernel, DelegraphContext context, const DelegraphKernelCall *call, DelegraphError *error);
    /** May be null. Writes the measurements of the kernel. `stats->size` is set. */
    void (*kernel_stats)(void *kernel, DelegraphStats *stats);
    /** May be null. Returns the time of each node in the last run, as far as the kernel measures it; valid until the
     * kernel is used again. */
    const DelegraphNodeTime * (*node_times)(void *kernel, size_t *count);
} DelegraphPlugin;

/** The function that a plugin exports. */
DELEGRAPH_EXPORT const DelegraphPlugin *delegraph_delegate_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
