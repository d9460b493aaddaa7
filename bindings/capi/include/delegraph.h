/* Delegraph's C API: runs .tflite models, and lets any hardware take over any part of a model.
 *
 * Results. Functions return a dg_status, and results through pointers, which they set to null or zeros first. dg_last_error
 * returns the message of an error.
 *
 * Objects are made by a function that returns them through a pointer, and deleted by the function dg_..._delete of their type.
 * The pointers are handles: a null or deleted one, or one of another type, is DG_INVALID_HANDLE. Objects that others use exist as
 * long as their users.
 *
 * Texts are UTF-8 and end with a zero byte. Texts that a function returns through a char** are freed with dg_text_free.
 *
 * Pointers that are not handles are null, if the function allows it, or valid for the bytes that it reads or writes: one value, a
 * text with its zero byte, or the number of elements or bytes in another argument. The documentation of a function states how
 * long returned data is valid.
 *
 * Threads. Any function may be called from any thread. An interpreter accepts one call at a time; another one is DG_BUSY. Different
 * interpreters, also of one model, run at the same time.
 *
 * Sizes are in bytes, shapes in elements, times in nanoseconds, unless stated otherwise. No function and no model ends the process;
 * dg_options_set_max_memory and dg_options_set_time_limit limit the resources of a model. */

#ifndef DELEGRAPH_H
#define DELEGRAPH_H

/* Written by cbindgen: UPDATE_HEADER=1 cargo test -p delegraph-capi --test capi_header */

#include <stddef.h>
#include <stdint.h>

// The maximum number of dimensions in `dg_tensor_info`.
#define DG_INFO_DIMS 8

// No time limit for `dg_invocation_wait`.
#define DG_FOREVER UINT64_MAX

// The result of a function. `dg_last_error` returns the message of an error.
enum dg_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The function succeeded.
    DG_OK = 0,
    // The invocation is running, or the time of `dg_invocation_wait` is over. Not an error.
    DG_PENDING = 1,
    // An argument is null, misaligned, out of range, or does not fit the model.
    DG_INVALID_ARGUMENT = 2,
    // The handle is null, was deleted, or belongs to another type.
    DG_INVALID_HANDLE = 3,
    // The file cannot be read.
    DG_IO = 4,
    // The bytes are not a valid model, or nodes of it do not fit each other.
    DG_INVALID_MODEL = 5,
    // The model is valid, but needs an op, a version, a type or a device that this library does not support.
    DG_UNSUPPORTED = 6,
    // Memory cannot be allocated.
    DG_OUT_OF_MEMORY = 7,
    // The model needs more than a limit of the options allows: memory, or depth of calls.
    DG_LIMIT = 8,
    // The call exceeded the time limit of the options.
    DG_TIME_LIMIT = 9,
    // `dg_interpreter_cancel` or `dg_invocation_cancel` ended the call.
    DG_CANCELLED = 10,
    // A kernel found data that its op does not allow, such as an index out of range.
    DG_INVALID_DATA = 11,
    // A delegate failed, or its device was lost.
    DG_DELEGATE = 12,
    // The call does not fit the state of the object.
    DG_STATE = 13,
    // Another call on the interpreter is running, in another thread or as an invocation.
    DG_BUSY = 14,
    // The library has a bug. The object can be deleted.
    DG_INTERNAL = 15,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dg_status dg_status;
#else
typedef int32_t dg_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The type of a tensor's elements. Numbers are stored in the byte order of the machine.
enum dg_type
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // 32-bit floats.
    DG_FLOAT32 = 0,
    // 16-bit floats, IEEE 754.
    DG_FLOAT16 = 1,
    // Signed 32-bit integers.
    DG_INT32 = 2,
    // Unsigned bytes.
    DG_UINT8 = 3,
    // Signed 64-bit integers.
    DG_INT64 = 4,
    // Strings of any bytes: see `dg_interpreter_write_strings`.
    DG_STRING = 5,
    // Bytes that are 0 or 1.
    DG_BOOL = 6,
    // Signed 16-bit integers.
    DG_INT16 = 7,
    // Two 32-bit floats.
    DG_COMPLEX64 = 8,
    // Signed bytes.
    DG_INT8 = 9,
    // 64-bit floats.
    DG_FLOAT64 = 10,
    // Two 64-bit floats.
    DG_COMPLEX128 = 11,
    // Unsigned 64-bit integers.
    DG_UINT64 = 12,
    // A resource, which has no data.
    DG_RESOURCE = 13,
    // A variant, which has no data.
    DG_VARIANT = 14,
    // Unsigned 32-bit integers.
    DG_UINT32 = 15,
    // Unsigned 16-bit integers.
    DG_UINT16 = 16,
    // Signed 4-bit integers, two in a byte, the low bits first.
    DG_INT4 = 17,
    // The upper halves of 32-bit floats.
    DG_BFLOAT16 = 18,
    // Signed 2-bit integers, four in a byte, the low bits first.
    DG_INT2 = 19,
    // Unsigned 4-bit integers, stored like `DG_INT4`.
    DG_UINT4 = 20,
    // 8-bit floats with 4 bits of exponent.
    DG_FLOAT8_E4M3FN = 21,
    // 8-bit floats with 5 bits of exponent.
    DG_FLOAT8_E5M2 = 22,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dg_type dg_type;
#else
typedef int32_t dg_type;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The runner of a node.
enum dg_runner
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // A CPU kernel.
    DG_RUNNER_CPU = 0,
    // Nothing: its inputs are constant, and `dg_interpreter_prepare` computed it.
    DG_RUNNER_FOLDED = 1,
    // A delegate.
    DG_RUNNER_DELEGATE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dg_runner dg_runner;
#else
typedef int32_t dg_runner;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Memory of a delegate's device for one tensor. An output of one model can be an input of another on the same device
// without a copy through the CPU's memory. Any thread may use it.
typedef struct dg_buffer dg_buffer;

// Runs a model. One call at a time is possible: a call while another one is running, in another thread or as an
// invocation, is `DG_BUSY`. `dg_interpreter_cancel` and `dg_interpreter_delete` may be called at any time, from any
// thread.
typedef struct dg_interpreter dg_interpreter;

// A run in a thread of the library. Deleted with `dg_invocation_delete`.
typedef struct dg_invocation dg_invocation;

// A model: read and verified, and never changed. Any number of interpreters and threads may use it.
typedef struct dg_model dg_model;

// Options of interpreters. They may be changed and deleted while interpreters that were created with them exist.
typedef struct dg_options dg_options;

// Releases the bytes of a model. `user_data` is the pointer that was passed with the function.
typedef void (*dg_release_fn)(void *user_data);

// The treatment of nodes that no delegate claims.
typedef int32_t dg_policy;

// Inputs or outputs.
typedef int32_t dg_side;

// The description of an input or output.
typedef struct {
    // The type of the elements.
    dg_type type;
    // The number of dimensions. 0 for a single element.
    size_t rank;
    // The dimensions, in elements, the outermost first; 0 after the last one. `dg_interpreter_shape` returns more than
    // `DG_INFO_DIMS` dimensions.
    size_t dims[DG_INFO_DIMS];
    // The size in bytes; for strings, the size of their encoding.
    size_t bytes;
    // The number of scales: 0 for a tensor that is not quantized, 1 for a single scale, otherwise the size of the
    // dimension `quantized_dim`. It is 0 for other kinds of quantization, which `dg_model_inspect` names.
    size_t scale_count;
    // The dimension along which scales vary.
    size_t quantized_dim;
    // A real value is `scale * (element - zero_point)`, if there is one scale; otherwise 0.
    float scale;
    // As `scale`.
    int32_t zero_point;
} dg_tensor_info;

// Called at the end of an invocation, in a thread of the library. `message` is null if `status` is `DG_OK`, and valid until
// the function returns. The interpreter accepts calls again: the function may read outputs, and start the next
// invocation, but must not wait for it. The function must return normally, without unwinding or jumping out.
// `user_data` is used until it returns; `dg_invocation_wait` waits for the return, `dg_interpreter_delete` does not.
typedef void (*dg_done_fn)(void *user_data, dg_status status, const char *message);

// The report on the selected subgraph.
typedef struct {
    // The number of nodes.
    size_t nodes;
    // Nodes that delegates run.
    size_t delegated_nodes;
    // Nodes that `dg_interpreter_prepare` computed.
    size_t folded_nodes;
    // Nodes that CPU kernels run.
    size_t cpu_nodes;
    // The number of delegates.
    size_t delegates;
    // The number of partitions: sets of nodes that a delegate runs at once.
    size_t partitions;
    // The number of delegates that failed and were removed.
    size_t failures;
    // Bytes of the memory that tensors share.
    size_t arena_bytes;
    // Bytes of constants, of the file and computed from them, without those that kernels packed and released.
    size_t weights_bytes;
    // Bytes of memory of devices.
    uint64_t device_bytes;
} dg_report;

// The report on a node.
typedef struct {
    // The runner of the node.
    dg_runner runner;
    // The version of its op.
    uint32_t version;
    // The delegate that runs it: an index for `dg_interpreter_delegate`; 0 if none runs it.
    size_t delegate;
    // The number of the delegate's partition; 0 if none runs it.
    size_t partition;
    // The number of delegates that rejected it: see `dg_interpreter_rejection`.
    size_t rejections;
    // Multiply-adds of one run.
    uint64_t multiply_adds;
} dg_node;

// Such nodes run on the CPU, and the report has the reasons. The default.
#define DG_POLICY_PREFER 0

// Such nodes are the error `DG_UNSUPPORTED` of `dg_interpreter_prepare`.
#define DG_POLICY_REQUIRE 1

// All nodes run on the CPU, and the report has the nodes that delegates would claim.
#define DG_POLICY_REPORT 2

// The inputs of the selected subgraph.
#define DG_INPUT 0

// Its outputs.
#define DG_OUTPUT 1

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the message of the last error of a function that this thread called; an empty text if there was none. It is UTF-8,
// may have several lines, and is valid until the next error in this thread.
const char *dg_last_error(void);

// Returns the place of this thread's last error in the model: the numbers of a subgraph and of a node. Both may be
// null. `DG_STATE` if the error has no place.
dg_status dg_last_error_node(size_t *subgraph, size_t *node);

// Returns the name of a status, such as `DG_OK`. Never null.
const char *dg_status_name(int32_t status);

// Returns the version of the library: three numbers with dots.
const char *dg_version(void);

// Frees a text that a function of this library returned through a `char**`. Null is allowed.
//
// `DG_INVALID_ARGUMENT` for any other pointer, and for a text that was freed before.
dg_status dg_text_free(char *text);

// Reads the model of a `.tflite` file. The file is mapped into memory if the system supports that: it must not be
// modified while the model is in use. Replacing it by renaming another file over it is fine.
//
// `DG_IO` if the file cannot be read, `DG_INVALID_MODEL` if it is not a model, `DG_UNSUPPORTED` if its weights are in other
// files.
dg_status dg_model_load(const char *path, dg_model **model);

// Reads a model of `size` bytes in memory, which are copied.
//
// Errors are those of `dg_model_load`, except for `DG_IO`.
dg_status dg_model_from_bytes(const void *data, size_t size, dg_model **model);

// Reads a model of `size` bytes in memory, which are not copied. They must be readable and unchanged until `release` is
// called: when the model and all objects that use it are deleted, from the thread that deletes the last of them, or
// before this function returns an error. `release` may be null.
//
// Errors are those of `dg_model_from_bytes`.
dg_status dg_model_from_memory(const void *data, size_t size, dg_release_fn release, void *user_data, dg_model **model);

// Deletes a model; null is allowed. Its interpreters stay usable.
//
// `DG_INVALID_HANDLE` if it was deleted before.
dg_status dg_model_delete(dg_model *model);

// Returns the number of signatures: named subgraphs of the model, with names for their inputs and outputs. May be 0.
dg_status dg_model_signature_count(const dg_model *model, size_t *count);

// Returns the key of a signature: a text to be freed with `dg_text_free`.
//
// `DG_INVALID_ARGUMENT` if there is no such signature.
dg_status dg_model_signature_key(const dg_model *model, size_t index, char **key);

// Describes the model: inputs, outputs, signatures, ops with their versions and kernels, sizes, quantization,
// metadata. Returns the JSON of `delegraph inspect --json`, a text to be freed with `dg_text_free`.
dg_status dg_model_inspect(const dg_model *model, char **json);

// Creates options with defaults: the CPU's optimized kernels, one thread, no delegates, no time limit, three quarters
// of the machine's memory. Deleted with `dg_options_delete`.
dg_status dg_options_create(dg_options **options);

// Deletes options; null is allowed.
//
// `DG_INVALID_HANDLE` if they were deleted before.
dg_status dg_options_delete(dg_options *options);

// Sets the number of threads of CPU kernels, at most 1,024. 0 selects the number of processors.
dg_status dg_options_set_threads(dg_options *options, uint32_t threads);

// Adds a delegate. Delegates claim nodes in the order in which they are added. The names are those of the command's
// `--delegate`:
//
// - `wgpu`, the GPU: `wgpu?adapter=NAME&precision=f16&fusion=off&max_gpu_bytes=1000000`. Interpreters of these options share
//   its device.
// - `plugin:PATH?key=value`, a library with a delegate of Delegraph.
// - `litert:PATH?key=value`, a library with a delegate for LiteRT or TensorFlow Lite.
// - `cpu` adds no delegate, and `reference` selects the reference kernels instead of the optimized ones.
//
// In keys and values, `%` and two hexadecimal digits represent a byte. Null selects the delegate that the environment
// variable `DELEGRAPH_DELEGATE` names, if it is set. Libraries are loaded, and stay loaded: name only libraries that
// may run code in the process.
//
// `DG_INVALID_ARGUMENT` for other names and options, `DG_UNSUPPORTED` in a library without the GPU, `DG_DELEGATE` if the
// delegate cannot be created.
dg_status dg_options_add_delegate(dg_options *options, const char *name);

// Sets the treatment of nodes that no delegate claims: a `DG_POLICY_…`.
dg_status dg_options_set_policy(dg_options *options, dg_policy policy);

// Selects the reference kernels (not 0), or the optimized ones (0, the default).
dg_status dg_options_set_reference_kernels(dg_options *options, int32_t reference);

// Adds a library with kernels of custom ops. It is loaded, and stays loaded.
//
// `DG_DELEGATE` if it cannot be loaded.
dg_status dg_options_add_kernels(dg_options *options, const char *path);

// Sets the maximum number of bytes of all tensors, temporaries, packed weights and tables of one interpreter. A model
// that needs more is `DG_LIMIT`. The file itself is not counted.
dg_status dg_options_set_max_memory(dg_options *options, uint64_t bytes);

// Sets the time limit, in nanoseconds, of each call that creates, prepares or runs an interpreter. A call that takes
// longer is `DG_TIME_LIMIT`. 0 means no limit, the default.
dg_status dg_options_set_time_limit(dg_options *options, uint64_t nanoseconds);

// Sets whether the model is rewritten with fewer, larger ops before delegates see it (not 0). Off by default.
dg_status dg_options_set_fusion(dg_options *options, int32_t fusion);

// Sets whether a delegate that fails during a run is removed, and the run repeated without it, from the same inputs
// and variables (not 0). Off by default: the failure is `DG_DELEGATE`.
dg_status dg_options_set_fallback(dg_options *options, int32_t fallback);

// Sets whether outputs may stay in buffers of delegates (not 0): see `dg_interpreter_output_buffer`. Off by default.
dg_status dg_options_set_keep_outputs(dg_options *options, int32_t keep);

// Sets whether nodes that use features of a newer version than their own are the error `DG_INVALID_MODEL` (not 0). Off
// by default: the kernels run them.
dg_status dg_options_set_strict_versions(dg_options *options, int32_t strict);

// Sets whether every tensor keeps its data until the end of a run (not 0), for `dg_interpreter_read_tensor`. This takes more
// memory. Off by default.
dg_status dg_options_set_preserve_tensors(dg_options *options, int32_t preserve);

// Creates an interpreter of a model. `options` may be null for the defaults. Both may be deleted afterwards.
//
// Finds kernels. `dg_interpreter_prepare`, or the first function that needs it, infers shapes, applies delegates and
// plans memory, so that inputs can be resized before.
//
// `DG_UNSUPPORTED` for ops without a kernel, `DG_DELEGATE` for a delegate that cannot be created.
dg_status dg_interpreter_create(const dg_model *model, const dg_options *options, dg_interpreter **interpreter);

// Deletes an interpreter; null is allowed. A running call is cancelled and ends later, as does an invocation, whose
// callback is called. Pointers to data of tensors are invalid from then on.
//
// `DG_INVALID_HANDLE` if it was deleted before.
dg_status dg_interpreter_delete(dg_interpreter *interpreter);

// Selects a signature by its key. Inputs, outputs, reports and runs then refer to its subgraph. Without a call, they
// refer to the model's first subgraph.
//
// `DG_INVALID_ARGUMENT` if the model has no such signature.
dg_status dg_interpreter_select_signature(dg_interpreter *interpreter, const char *key);

// Changes the shape of an input to `rank` dimensions, in elements; `dg_interpreter_prepare` sets the shapes of
// outputs. Inputs lose their data, and their buffers if their size changes.
//
// `DG_INVALID_ARGUMENT` if there is no such input, or the model fixes a dimension that would change.
dg_status dg_interpreter_resize_input(dg_interpreter *interpreter, size_t input, const size_t *dims, size_t rank);

// Infers shapes, lets delegates claim nodes, and plans memory, for the first time or after a resize. Runs do the same
// if necessary; calling this function moves the time and the errors before the first run.
//
// `DG_INVALID_MODEL` for nodes that do not fit their inputs; with `DG_POLICY_REQUIRE`, `DG_UNSUPPORTED` for nodes that
// no delegate claims and `DG_DELEGATE` for a delegate that fails; `DG_LIMIT`, `DG_TIME_LIMIT`, `DG_OUT_OF_MEMORY`,
// `DG_CANCELLED`.
dg_status dg_interpreter_prepare(dg_interpreter *interpreter);

// Computes the outputs from the inputs, and returns when they are complete. After an error, outputs and variables have
// the values that the completed steps wrote.
//
// Errors are those of `dg_interpreter_prepare`; `DG_INVALID_DATA`, `DG_DELEGATE`. `dg_last_error_node` returns the
// node.
dg_status dg_interpreter_invoke(dg_interpreter *interpreter);

// Cancels the running call, or the invocation, with `DG_CANCELLED`. May be called from any thread. Has no effect if
// nothing is running.
dg_status dg_interpreter_cancel(const dg_interpreter *interpreter);

// Sets variables to their initial values: tensors that keep their data between runs, and resources.
dg_status dg_interpreter_reset_variables(dg_interpreter *interpreter);

// Returns the number of inputs or outputs.
dg_status dg_interpreter_count(const dg_interpreter *interpreter, dg_side side, size_t *count);

// Returns the index of the input or output with this name in the selected signature or, without one, with this tensor
// name.
//
// `DG_INVALID_ARGUMENT` if there is none.
dg_status dg_interpreter_find(const dg_interpreter *interpreter, dg_side side, const char *name, size_t *index);

// Returns the name of an input or output: a text to be freed with `dg_text_free`. It is the name in the selected
// signature or, without one, the name of the tensor, which may be empty.
dg_status dg_interpreter_name(const dg_interpreter *interpreter, dg_side side, size_t index, char **name);

// Describes an input or output. Shapes of outputs are those of the last `dg_interpreter_prepare` or run; shapes that
// depend on data are known after a run.
dg_status dg_interpreter_tensor(const dg_interpreter *interpreter, dg_side side, size_t index, dg_tensor_info *info);

// Returns the dimensions of an input or output, in elements, the outermost first: `rank`, and up to `capacity` of them.
dg_status dg_interpreter_shape(const dg_interpreter *interpreter,
                               dg_side side,
                               size_t index,
                               size_t *dims,
                               size_t capacity,
                               size_t *rank);

// Returns the scales and zero points of a tensor that has several, along the dimension `quantized_dim`: their number, and up
// to `capacity` of each. Either pointer may be null if `capacity` is 0.
dg_status dg_interpreter_scales(const dg_interpreter *interpreter,
                                dg_side side,
                                size_t index,
                                float *scales,
                                int64_t *zero_points,
                                size_t capacity,
                                size_t *count);

// Copies data to an input: `bytes` is its whole size, elements are densely packed, the innermost dimension first. The
// values persist until they are written again.
//
// `DG_INVALID_ARGUMENT` if the size differs; errors of `dg_interpreter_prepare`.
dg_status dg_interpreter_write(dg_interpreter *interpreter, size_t input, const void *data, size_t bytes);

// Copies data from an output: `bytes` is its whole size. Waits for the device if a delegate holds the data.
//
// `DG_INVALID_ARGUMENT` if the size differs.
dg_status dg_interpreter_read(dg_interpreter *interpreter, size_t output, void *data, size_t bytes);

// Copies data from any tensor of the selected subgraph by its number in the file, after a run. `bytes` is its whole size.
// Inputs, outputs, constants and variables have data; other tensors have data with `dg_options_set_preserve_tensors`,
// unless they are inside of a delegate's partition.
//
// `DG_INVALID_ARGUMENT` if there is no such tensor, or the size differs (0 for a tensor without data).
dg_status dg_interpreter_read_tensor(dg_interpreter *interpreter, size_t tensor, void *data, size_t bytes);

// Returns the memory of an input, to be filled in place. It is valid until the interpreter is resized, prepared again,
// or deleted, and must not be accessed during a call or an invocation. String tensors have none.
dg_status dg_interpreter_input_data(dg_interpreter *interpreter, size_t input, void **data, size_t *bytes);

// Returns the memory of an output after a run, to be read in place. Waits for the device if a delegate holds the data.
// It is valid until the next call on the interpreter, except for functions that only report.
dg_status dg_interpreter_output_data(dg_interpreter *interpreter, size_t output, const void **data, size_t *bytes);

// Sets the strings of an input: `count` strings, one for each element. `lengths` has their lengths in bytes; null if
// they end with zero bytes.
//
// `DG_INVALID_ARGUMENT` if the input has another type or number of elements.
dg_status dg_interpreter_write_strings(dg_interpreter *interpreter,
                                       size_t input,
                                       const char *const *strings,
                                       const size_t *lengths,
                                       size_t count);

// Returns the string of an element of an input or output, as a text to be freed with `dg_text_free`, and its length in
// bytes without the terminating zero. The string itself may contain zeros. `length` may be null.
//
// `DG_INVALID_ARGUMENT` if the tensor has another type, or no such element.
dg_status dg_interpreter_read_string(dg_interpreter *interpreter,
                                     dg_side side,
                                     size_t index,
                                     size_t element,
                                     char **string,
                                     size_t *length);

// Starts a run and returns immediately. Its end is reported by `dg_invocation_poll`, `dg_invocation_wait`, or a call
// of `done`, which may be null. Until its end, other calls on the interpreter are `DG_BUSY`, and data of tensors must
// not be accessed. `invocation` may be null if `done` is not.
//
// `DG_BUSY` if a call is running. Errors of the run itself are results of the invocation.
dg_status dg_interpreter_start(dg_interpreter *interpreter, dg_done_fn done, void *user_data, dg_invocation **invocation);

// Returns the result of the invocation, or `DG_PENDING` while it or its `dg_done_fn` is running. Does not wait.
dg_status dg_invocation_poll(const dg_invocation *invocation);

// Waits for the end of the invocation, for at most `nanoseconds`, or without a limit for `DG_FOREVER`. Returns its
// result, or `DG_PENDING` if it is still running. The invocation ends after its `dg_done_fn` has returned. Any number
// of threads may wait.
//
// `DG_STATE` if the invocation can run only after this call has returned: in a `dg_done_fn` of the same interpreter.
dg_status dg_invocation_wait(const dg_invocation *invocation, uint64_t nanoseconds);

// Cancels the invocation with `DG_CANCELLED`. May be called from any thread. Has no effect if it has ended.
dg_status dg_invocation_cancel(const dg_invocation *invocation);

// Deletes the handle; null is allowed. The run continues, and calls its function at the end.
//
// `DG_INVALID_HANDLE` if it was deleted before.
dg_status dg_invocation_delete(dg_invocation *invocation);

// Creates a buffer of `bytes` bytes, a multiple of 4, on the device of the interpreter's first `wgpu` delegate, for a
// tensor with 32-bit elements. Other interpreters with a delegate of the same options can also use it. It may outlive
// the interpreter.
//
// `DG_STATE` without such a delegate, `DG_INVALID_ARGUMENT` for a size of 0, another size, or one above the device's
// limit, `DG_DELEGATE` if the device has no memory.
dg_status dg_buffer_create(const dg_interpreter *interpreter, uint64_t bytes, dg_buffer **buffer);

// Deletes a buffer; null is allowed. Interpreters that use it keep its memory.
//
// `DG_INVALID_HANDLE` if it was deleted before.
dg_status dg_buffer_delete(dg_buffer *buffer);

// Returns the size of a buffer's tensor in bytes.
dg_status dg_buffer_size(const dg_buffer *buffer, size_t *bytes);

// Copies data to a buffer: `bytes` is its whole size.
//
// `DG_INVALID_ARGUMENT` for another size, and for an output of a partition, which is read-only.
dg_status dg_buffer_write(dg_buffer *buffer, const void *data, size_t bytes);

// Copies data from a buffer: `bytes` is its whole size. Waits for the device.
//
// `DG_INVALID_ARGUMENT` for another size.
dg_status dg_buffer_read(const dg_buffer *buffer, void *data, size_t bytes);

// Reads an input from a buffer in every following run, without a copy if the delegate that reads it can use the
// buffer. Null, or a resize to another size, restores the CPU's memory.
//
// `DG_INVALID_ARGUMENT` if there is no such input, or the buffer does not have its size.
dg_status dg_interpreter_set_input_buffer(dg_interpreter *interpreter, size_t input, const dg_buffer *buffer);

// Copies an output to a buffer at the end of every following run: on the device if a delegate kept it there. A null
// buffer, or a resize to another size, ends the copying.
//
// `DG_INVALID_ARGUMENT` if there is no such output, or the buffer does not have its size.
dg_status dg_interpreter_set_output_buffer(dg_interpreter *interpreter, size_t output, const dg_buffer *buffer);

// Returns the buffer in which a delegate kept an output, with `dg_options_set_keep_outputs`; null if the output is in
// the CPU's memory. Its data are valid until the next run. Deleted with `dg_buffer_delete`.
dg_status dg_interpreter_output_buffer(const dg_interpreter *interpreter, size_t output, dg_buffer **buffer);

// Summarizes the runners of the nodes, and the memory of the model. Prepares it if necessary.
dg_status dg_interpreter_report(dg_interpreter *interpreter, dg_report *report);

// Reports the runner of a node of the selected subgraph, by its number from 0 on. `op`, which may be null, receives
// the name of the op: a text to be freed with `dg_text_free`.
dg_status dg_interpreter_node(dg_interpreter *interpreter, size_t node, dg_node *report, char **op);

// Returns the reason why a delegate rejected a node: the name of the delegate and the reason, texts to be freed with
// `dg_text_free`. Either may be null.
//
// `DG_INVALID_ARGUMENT` if there is no such node or rejection.
dg_status dg_interpreter_rejection(dg_interpreter *interpreter, size_t node, size_t rejection, char **delegate, char **reason);

// Returns the name of a delegate, in the order in which they were added: a text to be freed with `dg_text_free`.
dg_status dg_interpreter_delegate(dg_interpreter *interpreter, size_t delegate, char **name);

// Returns a failure of a delegate, whose nodes then run on the CPU: the name of the delegate and the message, texts to
// be freed with `dg_text_free`. Either may be null.
dg_status dg_interpreter_failure(dg_interpreter *interpreter, size_t failure, char **delegate, char **message);

// Explains the runner of each node of the model, the reasons of delegates, and what to support next. Returns the JSON
// of `delegraph explain --json`, a text to be freed with `dg_text_free`. Prepares the model's first subgraph.
dg_status dg_interpreter_explain(dg_interpreter *interpreter, char **json);

// Sets whether runs measure their steps (not 0). Off by default.
dg_status dg_interpreter_set_profiling(dg_interpreter *interpreter, int32_t profiling);

// Returns the steps of the last run, if it was measured, ordered by their ends: a JSON array of objects with
// `subgraph`, `nodes` (numbers), `delegate` (a name, or null for a CPU kernel), `nanoseconds`, and `node_times` (of
// nodes that a device measured: `node` and `nanoseconds`). A text to be freed with `dg_text_free`.
dg_status dg_interpreter_profile(dg_interpreter *interpreter, char **json);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DELEGRAPH_H */
