/* The interface between Delegraph and delegates in shared libraries, for authors in C and C++.
 *
 * Generated from src/plugin/abi.rs of delegraph-delegate-api, whose test `header` holds the two together.
 * How to write a plugin: docs/plugins.md and examples/plugin-c.
 *
 * What crosses between an application and a plugin: C types only.
 *
 * How this may change without a new `DELEGRAPH_ABI_VERSION`: functions and fields are appended, nothing else. Every
 * struct that may grow begins with its size as its maker knows it, and a reader looks at no field beyond that size.
 * Structs that are passed in plain arrays do not grow.
 *
 * Every pointer that is handed over is valid during the call, unless something else is said. Text is UTF-8.
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

/** The version of this interface. A plugin and an application fit each other when they have the same. */
#define DELEGRAPH_ABI_VERSION 1u

/** Status: fine. */
#define DELEGRAPH_OK 0

/** Status: it failed; the message says why. */
#define DELEGRAPH_FAILED 1

/** Status: a type, param, shape or device that is not supported. */
#define DELEGRAPH_UNSUPPORTED 2

/** Status: an argument, or something in the model, that makes no sense. */
#define DELEGRAPH_INVALID 3

/** Status: memory could not be had. */
#define DELEGRAPH_OUT_OF_MEMORY 4

/** Status: the code panicked or threw, and was caught. */
#define DELEGRAPH_PANICKED 5

/** Status: an option is unknown or has a value that cannot be used. */
#define DELEGRAPH_BAD_OPTION 6

/** Status: there is nothing of this name. */
#define DELEGRAPH_NOT_FOUND 7

/** Status: the application cancelled the invocation. */
#define DELEGRAPH_CANCELLED 8

/** The op of a node whose operator is custom: it has a name instead. */
#define DELEGRAPH_CUSTOM_OP 32

/** Node: its inputs are constant; its outputs are constants, too, and are already computed. */
#define DELEGRAPH_NODE_FOLDED 1u

/** Node: a shape in it is known only while running. */
#define DELEGRAPH_NODE_DYNAMIC 2u

/** Node: it reads or writes state, so that it keeps its place among others that do. */
#define DELEGRAPH_NODE_SIDE_EFFECTS 4u

/** Node: the application replaced the builtin kernel. */
#define DELEGRAPH_NODE_OVERRIDDEN 8u

/** Node: another delegate has it. */
#define DELEGRAPH_NODE_TAKEN 16u

/** Tensor: its shape is known before running. */
#define DELEGRAPH_TENSOR_SHAPE_KNOWN 1u

/** Tensor: its data are constant and there. */
#define DELEGRAPH_TENSOR_CONSTANT 2u

/** Tensor: state that lives from one invocation to the next. As an input of a kernel it may be written. */
#define DELEGRAPH_TENSOR_VARIABLE 4u

/** Tensor: an output whose size is known only while running: `resize_output` gives it memory. */
#define DELEGRAPH_TENSOR_DYNAMIC 8u

/** Quantization: none. */
#define DELEGRAPH_QUANTIZATION_NONE 0

/** Quantization: scales and zero points, one pair or one per index of a dimension. */
#define DELEGRAPH_QUANTIZATION_AFFINE 1

/** Quantization: blocks of the innermost dimension share a scale; scales are a tensor of the same graph. */
#define DELEGRAPH_QUANTIZATION_BLOCKWISE 2

/** Quantization: scales vary along several dimensions; scales are a tensor of the same graph. */
#define DELEGRAPH_QUANTIZATION_MULTI_AXIS 3

/** Quantization: bytes that only a custom kernel understands. */
#define DELEGRAPH_QUANTIZATION_CUSTOM 4

/** Rejection: anything that the others do not say; `text` is the reason. */
#define DELEGRAPH_REJECT_OTHER 0

/** Rejection: the node's version is above `limit`. */
#define DELEGRAPH_REJECT_VERSION 1

/** Rejection: the op is not there. */
#define DELEGRAPH_REJECT_OP 2

/** Rejection: the operand `text` ("input 0") has the type `value`. */
#define DELEGRAPH_REJECT_TYPE 3

/** Rejection: a param, shape or combination of operands; `text` is the reason. */
#define DELEGRAPH_REJECT_PARAM 4

/** Rejection: the shape of the tensor named `text` is known only while running. */
#define DELEGRAPH_REJECT_DYNAMIC_SHAPE 5

/** Rejection: the device cannot hold or bind something this large; `text` is the reason. */
#define DELEGRAPH_REJECT_DEVICE_LIMIT 6

/** Rejection: its partition has `value` nodes, fewer than `limit`. */
#define DELEGRAPH_REJECT_PARTITION_TOO_SMALL 7

/** Rejection: larger partitions use up the number allowed, `limit`. */
#define DELEGRAPH_REJECT_TOO_MANY_PARTITIONS 8

/** Rejection: running it elsewhere costs less; `text` is the reason. */
#define DELEGRAPH_REJECT_COST 9

/** Rejection: the application replaced the builtin kernel. */
#define DELEGRAPH_REJECT_OVERRIDDEN 10

/** Rejection: the application does not want it delegated; `text` is the reason. */
#define DELEGRAPH_REJECT_EXCLUDED 11

/** Capability: the delegate takes nodes whose shapes are known only while running. A partition with such a node is
 * prepared in the middle of an invocation, when its inputs are there; its kernel gives the shapes of outputs, with
 * `set_output_shape` or, where data decides, with `set_output_dynamic` and `resize_output`. */
#define DELEGRAPH_CAN_DYNAMIC_SHAPES UINT64_C(1)

/** Capability: before such a partition is prepared, the shapes that follow from those of its inputs are to be set. */
#define DELEGRAPH_CAN_PROPAGATED_SHAPES UINT64_C(2)

/** Names the call that is going on, for what a plugin asks of the application. It means nothing once the call has
 * returned, or on another thread: functions then return `DELEGRAPH_INVALID`. */
typedef uint64_t DelegraphContext;

/** Text, not terminated. */
typedef struct DelegraphText {
    /** UTF-8. */
    const char *data;
    /** Bytes. */
    size_t len;
} DelegraphText;

/** How long a node took. */
typedef struct DelegraphNodeTime {
    /** The node. Of nodes that ran as one, the first. */
    size_t node;
    /** Nanoseconds. */
    uint64_t nanoseconds;
} DelegraphNodeTime;

/** Where a message goes that explains a status other than `DELEGRAPH_OK`. */
typedef struct DelegraphError {
    /** Bytes of this struct. */
    size_t size;
    /** Room for the message. A terminating zero is not needed. */
    char *message;
    /** Bytes of room. */
    size_t capacity;
    /** How many bytes were written. */
    size_t len;
} DelegraphError;

/** An option that the user gave. Both ends are terminated by zero. */
typedef struct DelegraphOption {
    /** Its name. */
    const char *key;
    /** Its value, possibly empty. */
    const char *value;
} DelegraphOption;

/** Up to which version a delegate runs an op. */
typedef struct DelegraphOpVersion {
    /** The code of a builtin op, or `DELEGRAPH_CUSTOM_OP`. */
    int32_t op;
    /** The highest version. */
    uint32_t max_version;
    /** The name of a custom op, terminated by zero; null for a builtin one. */
    const char *custom_name;
} DelegraphOpVersion;

/** The graph: one subgraph of a model. Its nodes are numbered in an order in which they can run. */
typedef struct DelegraphGraph {
    /** Bytes of this struct. */
    size_t size;
    /** Which subgraph of the model. */
    size_t subgraph;
    /** How many nodes. */
    size_t nodes;
    /** How many tensors. */
    size_t tensors;
    /** How many inputs the caller fills. */
    size_t inputs;
    /** How many outputs the caller reads. */
    size_t outputs;
    /** The model's path; empty where it has none. */
    DelegraphText model_path;
} DelegraphGraph;

/** A model as the bytes of a `.tflite` file. */
typedef struct DelegraphModel {
    /** Bytes of this struct. */
    size_t size;
    /** The bytes, valid until they are released. */
    const uint8_t *data;
    /** How many. */
    size_t len;
    /** What keeps the bytes. */
    void *owner;
    /** To be called with `owner`, once, on any thread, by whoever asked for the model. */
    void (*release)(void *owner);
} DelegraphModel;

/** A node. What it points to is valid until `end_prepare`. */
typedef struct DelegraphNode {
    /** Bytes of this struct. */
    size_t size;
    /** The code of a builtin op, or `DELEGRAPH_CUSTOM_OP`. */
    int32_t op;
    /** The version of the op that the model asks for. */
    uint32_t version;
    /** `DELEGRAPH_NODE_…`. */
    uint32_t flags;
    /** The name of a custom op. */
    DelegraphText custom_name;
    /** How many inputs, those left out included. */
    size_t inputs;
    /** How many outputs. */
    size_t outputs;
    /** The options of a custom op. */
    const uint8_t *custom_options;
    /** Bytes of them. */
    size_t custom_options_len;
} DelegraphNode;

/** A tensor. What it points to is valid until `end_prepare`. */
typedef struct DelegraphTensor {
    /** Bytes of this struct. */
    size_t size;
    /** Element type, as the format numbers it: 0 is float32, 2 int32, 9 int8. */
    int32_t element_type;
    /** `DELEGRAPH_TENSOR_…`. */
    uint32_t flags;
    /** Its shape, outermost dimension first; it says nothing where the shape is not known. */
    const size_t *dims;
    /** How many dimensions. */
    size_t rank;
    /** Its name, possibly empty. */
    DelegraphText name;
    /** Constant data; null where there are none. */
    const void *data;
    /** Bytes of them. */
    size_t data_len;
    /** `DELEGRAPH_QUANTIZATION_…`. */
    int32_t quantization;
    /** The dimension that affine scales run along. */
    size_t quantized_dimension;
    /** Affine scales. */
    const float *scales;
    /** As many zero points. */
    const int64_t *zero_points;
    /** How many. */
    size_t scale_count;
    /** The tensor of scales of other kinds; -1 where there is none. */
    int64_t scales_tensor;
    /** The tensor of zero points of other kinds; -1 where there is none. */
    int64_t zero_points_tensor;
    /** Elements that share a scale, of other kinds. */
    size_t block_size;
} DelegraphTensor;

/** Why a node is not claimed. */
typedef struct DelegraphRejection {
    /** Bytes of this struct. */
    size_t size;
    /** `DELEGRAPH_REJECT_…`, which says what the other fields mean. */
    int32_t kind;
    /** Text. */
    DelegraphText text;
    /** What there is. */
    int64_t value;
    /** What is allowed. */
    int64_t limit;
} DelegraphRejection;

/** Nodes that one kernel runs. */
typedef struct DelegraphPartition {
    /** Bytes of this struct. */
    size_t size;
    /** The nodes, in an order in which they can run. */
    const size_t *nodes;
    /** How many. */
    size_t node_count;
    /** Tensors that they read and do not compute, constants left out. */
    const size_t *inputs;
    /** How many. */
    size_t input_count;
    /** Tensors that they compute and that others, or the caller, read. */
    const size_t *outputs;
    /** How many. */
    size_t output_count;
} DelegraphPartition;

/** A tensor, or temporary memory, of a kernel. */
typedef struct DelegraphBuffer {
    /** Bytes of this struct. */
    size_t size;
    /** Its memory. While a kernel prepares it is null, but for constants, and for inputs of what has dynamic shapes,
     * which are there to be read. */
    void *data;
    /** Bytes of it. */
    size_t data_len;
    /** Its shape, outermost dimension first. */
    const size_t *dims;
    /** How many dimensions. */
    size_t rank;
    /** Element type, as the format numbers it. */
    int32_t element_type;
    /** `DELEGRAPH_TENSOR_…`. */
    uint32_t flags;
} DelegraphBuffer;

/** What a kernel prepares for, or runs on. Inputs and outputs are those of its partition, or of its node, in that order. */
typedef struct DelegraphKernelCall {
    /** Bytes of this struct. */
    size_t size;
    /** Inputs. None of their memory is an output's. An input that a node leaves out is null. */
    const DelegraphBuffer *const *inputs;
    /** How many. */
    size_t input_count;
    /** Outputs, to be written. Their memory is not initialised. */
    const DelegraphBuffer *const *outputs;
    /** How many. */
    size_t output_count;
    /** While running: the temporaries that were asked for, in that order. Each begins at a multiple of 64. */
    const DelegraphBuffer *const *temporaries;
    /** How many. */
    size_t temporary_count;
    /** How many threads `parallel` uses. */
    size_t threads;
} DelegraphKernelCall;

/** What a kernel measured of itself. Times are in milliseconds; a negative one is not known. */
typedef struct DelegraphStats {
    /** Bytes of this struct. */
    size_t size;
    /** Bytes of device memory that it holds. */
    uint64_t device_bytes;
    /** Time of the last upload. */
    double upload_ms;
    /** Time on the device in the last run. */
    double device_ms;
    /** Time of the last read-back. */
    double readback_ms;
    /** How many kernels one run starts on the device. */
    size_t dispatches;
} DelegraphStats;

/** What a plugin may ask of the application. The table is valid as long as the library is loaded.
 *
 * Functions return a status, unless something else is said. A call with a wrong argument fails, and makes the
 * function of the plugin that made it fail, whatever that returns. */
typedef struct DelegraphHost {
    /** Bytes of this struct. */
    size_t size;
    /** The most detailed level of messages that are wanted: 1 error, 2 warning, 3 info, 4 debug, 5 trace; 0 none. */
    int32_t (*log_level)(void);
    /** Logs a message of the part of the plugin that `target` names, which may be empty. May be called at any time and
     * on any thread. */
    void (*log)(int32_t level, DelegraphText target, DelegraphText text);
    /** In `prepare` and `create_kernel`: the graph. */
    int32_t (*graph)(DelegraphContext context, DelegraphGraph *graph);
    /** In `prepare` and `create_kernel`: the model as a `.tflite` file. `out->size` must be set. */
    int32_t (*model)(DelegraphContext context, DelegraphModel *out);
    /** In `prepare` and `create_kernel`: the bytes of the model's metadata of this name, valid until `end_prepare`. */
    int32_t (*metadata)(DelegraphContext context, const char *name, const uint8_t **data, size_t *len);
    /** In `prepare` and `create_kernel`: the tensor that is input `index` of the graph; -2 where there is none. */
    int64_t (*graph_input)(DelegraphContext context, size_t index);
    /** In `prepare` and `create_kernel`: the tensor that is output `index` of the graph; -2 where there is none. */
    int64_t (*graph_output)(DelegraphContext context, size_t index);
    /** In `prepare` and `create_kernel`: a node. `out->size` must be set. */
    int32_t (*node)(DelegraphContext context, size_t node, DelegraphNode *out);
    /** In `prepare` and `create_kernel`: the tensor that is input `index` of a node; -1 where it is left out, -2
     * where the node has no such input. */
    int64_t (*node_input)(DelegraphContext context, size_t node, size_t index);
    /** In `prepare` and `create_kernel`: the tensor that is output `index` of a node; -2 where there is none. */
    int64_t (*node_output)(DelegraphContext context, size_t node, size_t index);
    /** In `prepare` and `create_kernel`: a tensor. `out->size` must be set. */
    int32_t (*tensor)(DelegraphContext context, size_t tensor, DelegraphTensor *out);
    /** In `prepare` and `create_kernel`: a param of a node, by the name that the format's options table gives it: a
     * whole number, a bool, or the number of an enum's value. */
    int32_t (*param_i64)(DelegraphContext context, size_t node, const char *name, int64_t *out);
    /** In `prepare` and `create_kernel`: a param that is a number. */
    int32_t (*param_f64)(DelegraphContext context, size_t node, const char *name, double *out);
    /** In `prepare` and `create_kernel`: a param that is text, or the name of an enum's value (`SAME`, `RELU6`),
     * valid until `end_prepare`. */
    int32_t (*param_text)(DelegraphContext context, size_t node, const char *name, DelegraphText *out);
    /** In `prepare` and `create_kernel`: a param that is a list of whole numbers. `len` takes how many there are;
     * `out` as many of them as there is room for. */
    int32_t (*param_i64s)(DelegraphContext context, size_t node, const char *name, int64_t *out, size_t capacity, size_t *len);
    /** In `prepare` and `create_kernel`: a subgraph that a node of the graph calls (the body of a WHILE), as far as its
     * shapes are known already: a number to be given in place of `context` to the functions above. 0 where nothing is
     * known of it but what the model's file says. */
    DelegraphContext (*callee)(DelegraphContext context, size_t subgraph);
    /** In `prepare`: whether a node may be claimed. `DELEGRAPH_UNSUPPORTED` where its version is above the declared
     * one, its shapes are not known, another delegate has it, or the like. */
    int32_t (*may_claim)(DelegraphContext context, size_t node);
    /** In `prepare`: the partitions that these nodes would fall into. `each` is called with every one of them. */
    int32_t (*preview_partitions)(DelegraphContext context, const size_t *nodes, size_t node_count, void (*each)(void *user, const DelegraphPartition *partition), void *user);
    /** In `prepare`: says why a node is not claimed. */
    int32_t (*reject)(DelegraphContext context, size_t node, const DelegraphRejection *reason);
    /** In `prepare`: claims nodes. Those that may not be claimed are left out and rejected. All that is
     * claimed with the same `claim` is grouped together; the number comes back in `create_kernel`, once for each
     * partition that the nodes fall into. */
    int32_t (*claim)(DelegraphContext context, const size_t *nodes, size_t node_count, uint64_t claim);
    /** In `prepare_kernel`: asks for memory while the kernel runs. Returns its number, or -1. */
    int64_t (*temporary)(DelegraphContext context, size_t bytes);
    /** In `prepare_kernel`: gives an output a shape. */
    int32_t (*set_output_shape)(DelegraphContext context, size_t output, const size_t *dims, size_t rank);
    /** In `prepare_kernel`: says that the shape of an output depends on data. */
    int32_t (*set_output_dynamic)(DelegraphContext context, size_t output);
    /** In `invoke_kernel`: gives an output whose size is known only while running a shape and memory. */
    int32_t (*resize_output)(DelegraphContext context, size_t output, const size_t *dims, size_t rank, size_t bytes, void **data);
    /** In `invoke_kernel`: calls `task(user, 0)`, …, `task(user, tasks - 1)` on the application's threads, in any
     * order and possibly at the same time, and returns when all are done. */
    int32_t (*parallel)(DelegraphContext context, size_t tasks, void (*task)(void *user, size_t index), void *user);
    /** In `invoke_kernel`: 1 where the application wants the invocation to end. The kernel then returns
     * `DELEGRAPH_CANCELLED`. */
    int32_t (*is_cancelled)(DelegraphContext context);
    /** In `invoke_kernel`: tells the application how far the kernel is. */
    int32_t (*progress)(DelegraphContext context, size_t done, size_t total);
    /** In `prepare_kernel` of a custom op: asks for memory that keeps what it holds from one run to the next. It is zero at
     * first, and all of the kernel's is again where it asks for other sizes than before. Returns its number among the temporaries, or -1. */
    int64_t (*persistent)(DelegraphContext context, size_t bytes);
    /** In `create_kernel` of a custom op: an option that is a whole number, or 0 or 1 for a truth value.
     *
     * This and the three below read the op's options as a FlexBuffer map. They return `DELEGRAPH_NOT_FOUND` where the map
     * does not have the option, and `DELEGRAPH_INVALID` where it is of another type or there is no map. Where
     * `create_kernel` then fails without a message of its own, the application says which option it was, what it is and
     * what was wanted. */
    int32_t (*option_i64)(DelegraphContext context, const char *name, int64_t *out);
    /** In `create_kernel` of a custom op: an option that is a number. */
    int32_t (*option_f64)(DelegraphContext context, const char *name, double *out);
    /** In `create_kernel` of a custom op: an option that is text, valid during the call. */
    int32_t (*option_text)(DelegraphContext context, const char *name, DelegraphText *out);
    /** In `create_kernel` of a custom op: an option that is a list of numbers. `len` takes how many there are; `out` as
     * many of them as there is room for. */
    int32_t (*option_f64s)(DelegraphContext context, const char *name, double *out, size_t capacity, size_t *len);
} DelegraphHost;

/** A plugin. A library exports one function without parameters, `delegraph_delegate_plugin`, that returns the address
 * of this table, which lives as long as the library is loaded.
 *
 * A delegate, and each of its kernels, is used by one thread at a time, not always the same one. No function may
 * unwind: neither panics nor exceptions cross. */
typedef struct DelegraphPlugin {
    /** `DELEGRAPH_ABI_VERSION`. */
    uint32_t abi_version;
    /** Bytes of this struct. */
    size_t size;
    /** Makes a delegate. Options that it does not know must be an error (`DELEGRAPH_BAD_OPTION`) that names those
     * that it knows. Where it fails, but `delegate` is set, that is destroyed. */
    int32_t (*create)(const DelegraphHost *host, const DelegraphOption *options, size_t option_count, void **delegate, DelegraphError *error);
    /** Destroys a delegate. All of its kernels are destroyed by then. */
    void (*destroy)(void *delegate);
    /** The delegate's name, for reports and messages; terminated by zero, valid as long as the delegate. */
    const char * (*name)(void *delegate);
    /** Up to which version the delegate runs each op. No other op can be claimed. Valid as long as the delegate. */
    const DelegraphOpVersion * (*versions)(void *delegate, size_t *count);
    /** May be null. What the delegate can do beyond the plain case: `DELEGRAPH_CAN_…`. */
    uint64_t (*capabilities)(void *delegate);
    /** Looks at a graph, claims what the delegate runs and rejects the rest with reasons. Called again when shapes
     * change. */
    int32_t (*prepare)(void *delegate, DelegraphContext context, DelegraphError *error);
    /** May be null. All kernels that the last `prepare` leads to are made: what it points to goes away. */
    void (*end_prepare)(void *delegate);
    /** Makes the kernel that runs a partition, between `prepare` and `end_prepare`. Where it fails, but `kernel` is set,
     * that is destroyed. */
    int32_t (*create_kernel)(void *delegate, DelegraphContext context, uint64_t claim, const DelegraphPartition *partition, void **kernel, DelegraphError *error);
    /** Destroys a kernel. */
    void (*destroy_kernel)(void *kernel);
    /** May be null. Gets a kernel ready for the shapes that its inputs and outputs have; asks for temporaries. */
    int32_t (*prepare_kernel)(void *kernel, DelegraphContext context, const DelegraphKernelCall *call, DelegraphError *error);
    /** Computes the outputs from the inputs. */
    int32_t (*invoke_kernel)(void *kernel, DelegraphContext context, const DelegraphKernelCall *call, DelegraphError *error);
    /** May be null. What the kernel measured of itself. `stats->size` is set. */
    void (*kernel_stats)(void *kernel, DelegraphStats *stats);
    /** May be null. How long each node took in the last run, as far as the kernel knows; valid until the kernel is used
     * again. */
    const DelegraphNodeTime * (*node_times)(void *kernel, size_t *count);
} DelegraphPlugin;

/** The function that a plugin exports. */
DELEGRAPH_EXPORT const DelegraphPlugin *delegraph_delegate_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
