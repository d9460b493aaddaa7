// The graph as custom ops and delegates of an application see it, without the layouts of structures.
//
// Contexts, nodes and tensors are valid during the call of the function that got them, and for a kernel until its state is
// freed. TfLiteOpaqueContextAddTensor may move tensors.

#ifndef TENSORFLOW_LITE_CORE_C_C_API_OPAQUE_H_
#define TENSORFLOW_LITE_CORE_C_C_API_OPAQUE_H_

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "tensorflow/lite/core/c/c_api.h"
#include "tensorflow/lite/core/c/c_api_types.h"
#include "tensorflow/lite/core/c/common.h"
#include "tensorflow/lite/core/c/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

// Tensors. As the functions of c_api.h without `Opaque`.
TFL_CAPI_EXPORT extern TfLiteType TfLiteOpaqueTensorType(const TfLiteOpaqueTensor* opaque_tensor);
TFL_CAPI_EXPORT extern int32_t TfLiteOpaqueTensorNumDims(const TfLiteOpaqueTensor* opaque_tensor);
TFL_CAPI_EXPORT extern int32_t TfLiteOpaqueTensorDim(const TfLiteOpaqueTensor* opaque_tensor, int32_t dim_index);
// The shape with -1 for dimensions that may be resized; -1 dimensions without one.
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteOpaqueTensorGetNumDimsSignature(
    const TfLiteOpaqueTensor* opaque_tensor, int32_t* num_dims);
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteOpaqueTensorGetDimSignature(
    const TfLiteOpaqueTensor* opaque_tensor, int32_t dim_index, int32_t* dim_length);
TFL_CAPI_EXPORT extern int TfLiteOpaqueTensorIsVariable(const TfLiteOpaqueTensor* opaque_tensor);
TFL_CAPI_EXPORT extern size_t TfLiteOpaqueTensorByteSize(const TfLiteOpaqueTensor* opaque_tensor);
// The data: those of constants always, those of other tensors while a kernel runs that reads or writes them.
TFL_CAPI_EXPORT extern void* TfLiteOpaqueTensorData(const TfLiteOpaqueTensor* opaque_tensor);
TFL_CAPI_EXPORT extern TfLiteAllocationType TfLiteOpaqueTensorGetAllocationType(const TfLiteOpaqueTensor* opaque_tensor);
TFL_CAPI_EXPORT extern TfLiteAllocationStrategy TfLiteOpaqueTensorGetAllocationStrategy(const TfLiteOpaqueTensor* t);
TFL_CAPI_EXPORT extern TfLiteRunStability TfLiteOpaqueTensorGetBufferAddressStability(const TfLiteOpaqueTensor* t);
TFL_CAPI_EXPORT extern TfLiteRunStability TfLiteOpaqueTensorGetDataStability(const TfLiteOpaqueTensor* t);
TFL_CAPI_EXPORT extern TfLiteRunStep TfLiteOpaqueTensorGetDataKnownStep(const TfLiteOpaqueTensor* t);
TFL_CAPI_EXPORT extern TfLiteRunStep TfLiteOpaqueTensorGetShapeKnownStep(const TfLiteOpaqueTensor* t);
TFL_CAPI_EXPORT extern const char* TfLiteOpaqueTensorName(const TfLiteOpaqueTensor* opaque_tensor);
TFL_CAPI_EXPORT extern TfLiteQuantization TfLiteOpaqueTensorGetQuantization(const TfLiteOpaqueTensor* opaque_tensor);
TFL_CAPI_EXPORT extern TfLiteQuantizationParams TfLiteOpaqueTensorGetQuantizationParams(
    const TfLiteOpaqueTensor* opaque_tensor);
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteOpaqueTensorCopyFromBuffer(
    TfLiteOpaqueTensor* opaque_tensor, const void* input_data, size_t input_data_size);
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteOpaqueTensorCopyToBuffer(
    const TfLiteOpaqueTensor* opaque_tensor, void* output_data, size_t output_data_size);

// Strings. -1 if the tensor has none.
TFL_CAPI_EXPORT int TfLiteOpaqueTensorGetStringCount(const TfLiteOpaqueTensor* tensor);
// A string of the tensor, without a zero byte at its end.
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueTensorGetString(
    const TfLiteOpaqueTensor* tensor, int index, const char** str, int* len);
// Replaces the strings of an output with copies of these; its shape becomes [str_array_len].
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueTensorWriteStrings(
    TfLiteOpaqueTensor* tensor, const char* const* str_array, int str_array_len, const int* str_n_len);
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueTensorWriteString(TfLiteOpaqueTensor* tensor, const char* str, int len);

// Tensors that a kernel adds: kTfLiteArenaRw and kTfLiteArenaRwPersistent without data, which get memory as temporaries of the
// node, and kTfLiteDynamic with data of malloc. The tensor owns data and parts of the quantization.
typedef struct TfLiteOpaqueTensorBuilder TfLiteOpaqueTensorBuilder;
#ifdef __cplusplus
TFL_CAPI_EXPORT TfLiteOpaqueTensorBuilder* TfLiteOpaqueTensorBuilderCreate();
#else
TFL_CAPI_EXPORT TfLiteOpaqueTensorBuilder* TfLiteOpaqueTensorBuilderCreate(void);
#endif
TFL_CAPI_EXPORT void TfLiteOpaqueTensorBuilderDelete(TfLiteOpaqueTensorBuilder* builder);
TFL_CAPI_EXPORT TfLiteOpaqueTensorBuilder* TfLiteOpaqueTensorBuilderSetType(
    TfLiteOpaqueTensorBuilder* builder, TfLiteType type);
TFL_CAPI_EXPORT TfLiteOpaqueTensorBuilder* TfLiteOpaqueTensorBuilderSetData(TfLiteOpaqueTensorBuilder* builder, void* data);
TFL_CAPI_EXPORT TfLiteOpaqueTensorBuilder* TfLiteOpaqueTensorBuilderSetAllocationType(
    TfLiteOpaqueTensorBuilder* builder, TfLiteAllocationType allocation_type);
TFL_CAPI_EXPORT TfLiteOpaqueTensorBuilder* TfLiteOpaqueTensorBuilderSetQuantizationParams(
    TfLiteOpaqueTensorBuilder* builder, TfLiteQuantizationParams params);
TFL_CAPI_EXPORT TfLiteOpaqueTensorBuilder* TfLiteOpaqueTensorBuilderSetQuantization(
    TfLiteOpaqueTensorBuilder* builder, TfLiteQuantization quantization);

// Called while preparing, for an output whose shape is known while running only: TfLiteOpaqueContextResizeTensor then gives it
// memory.
TFL_CAPI_EXPORT void TfLiteOpaqueTensorSetAllocationTypeToDynamic(TfLiteOpaqueTensor* tensor);
TFL_CAPI_EXPORT void TfLiteOpaqueTensorSetNonCpuAllocation(TfLiteOpaqueTensor* tensor);

// Nodes. NULL for an input that the node leaves out.
TFL_CAPI_EXPORT extern const TfLiteOpaqueTensor* TfLiteOpaqueNodeGetInput(
    const TfLiteOpaqueContext* opaque_context, const TfLiteOpaqueNode* opaque_node, int index);
TFL_CAPI_EXPORT extern TfLiteOpaqueTensor* TfLiteOpaqueNodeGetOutput(
    TfLiteOpaqueContext* opaque_context, const TfLiteOpaqueNode* opaque_node, int index);
TFL_CAPI_EXPORT int TfLiteOpaqueNodeNumberOfInputs(const TfLiteOpaqueNode* opaque_node);
TFL_CAPI_EXPORT int TfLiteOpaqueNodeNumberOfOutputs(const TfLiteOpaqueNode* opaque_node);
TFL_CAPI_EXPORT extern void* TfLiteOpaqueNodeGetUserData(const TfLiteOpaqueNode* opaque_node);
// Params of a builtin op: the structure of TensorFlow Lite's builtin_op_data.h.
TFL_CAPI_EXPORT extern void* TfLiteOpaqueNodeGetBuiltinData(const TfLiteOpaqueNode* opaque_node);
// Options of a custom op.
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteOpaqueNodeGetCustomInitialData(
    const TfLiteOpaqueNode* opaque_node, const void** init_data, int* size);
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueNodeInputs(
    const TfLiteOpaqueNode* opaque_node, const int** inputs, int* num_inputs);
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueNodeOutputs(
    const TfLiteOpaqueNode* opaque_node, const int** outputs, int* num_outputs);
// Tensors of TfLiteOpaqueContextAddTensor that the kernel needs while it runs.
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueNodeSetTemporaries(
    TfLiteOpaqueNode* opaque_node, const int* temporaries, int num_temporaries);
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueNodeTemporaries(
    const TfLiteOpaqueNode* opaque_node, const int** temporaries, int* num_temporaries);
// -1 if the node does not have the input or output.
TFL_CAPI_EXPORT int TfLiteOpaqueNodeGetInputTensorIndex(const TfLiteOpaqueNode* opaque_node, int index_of_input);
TFL_CAPI_EXPORT int TfLiteOpaqueNodeGetOutputTensorIndex(const TfLiteOpaqueNode* opaque_node, int index_of_output);

// Graphs. The array belongs to the graph.
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteOpaqueContextGetExecutionPlan(
    TfLiteOpaqueContext* opaque_context, TfLiteIntArray** execution_plan);
// Stores NULL.
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteOpaqueContextGetExternalContext(
    TfLiteOpaqueContext* opaque_context, void** external_context, TfLiteExternalContextType type);
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextGetNodeAndRegistration(
    struct TfLiteOpaqueContext* opaque_context, int node_index, TfLiteOpaqueNode** node,
    TfLiteOperator** registration_external);
// Lets the delegate that is being prepared run nodes, by one kernel per partition. The graph owns the operator; its `init` is
// called after the delegate was prepared. A node that may not be delegated stays with the library.
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextReplaceNodeSubsetsWithDelegateKernels(
    struct TfLiteOpaqueContext* opaque_context, TfLiteOperator* registration_external,
    const TfLiteIntArray* nodes_to_replace, TfLiteOpaqueDelegate* opaque_delegate);
TFL_CAPI_EXPORT TfLiteOpaqueTensor* TfLiteOpaqueContextGetOpaqueTensor(
    const TfLiteOpaqueContext* opaque_context, int index);
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextGetInputs(
    const struct TfLiteOpaqueContext* opaque_context, const int** inputs, int* num_inputs);
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextGetOutputs(
    const struct TfLiteOpaqueContext* opaque_context, const int** outputs, int* num_outputs);
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextGetVariables(
    const struct TfLiteOpaqueContext* opaque_context, const int** variables, int* num_variables);
TFL_CAPI_EXPORT size_t TfLiteOpaqueContextGetNumNodes(const struct TfLiteOpaqueContext* opaque_context);
TFL_CAPI_EXPORT size_t TfLiteOpaqueContextGetNumTensors(const struct TfLiteOpaqueContext* opaque_context);
TFL_CAPI_EXPORT const char* TfLiteOpaqueContextGetName(const struct TfLiteOpaqueContext* opaque_context);
// The graph owns the array, also after an error.
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextResizeTensor(
    TfLiteOpaqueContext* context, TfLiteOpaqueTensor* tensor, TfLiteIntArray* new_size);
// Other subgraphs of the model, to be read while a delegate is being prepared.
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextAcquireSubgraphContext(
    struct TfLiteOpaqueContext* opaque_context, int subgraph_index, TfLiteOpaqueContext** acquired_opaque_context);
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextReleaseSubgraphContext(
    struct TfLiteOpaqueContext* opaque_context, int subgraph_index);
// The delegate that is being prepared is not prepared for this subgraph.
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextMarkSubgraphAsDelegationSkippable(
    TfLiteOpaqueContext* opaque_context, int subgraph_index);
// Always an error: the file of the model is not kept open.
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextGetNodeInitDataMmapInfo(
    const TfLiteOpaqueContext* context, const TfLiteOpaqueNode* node, int* fd, int64_t* custom_initial_data_offset_in_file,
    int64_t* custom_initial_data_size);
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextAddTensor(
    TfLiteOpaqueContext* context, TfLiteOpaqueTensorBuilder* builder, int* new_tensor_index);
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextGetSizeOfType(TfLiteOpaqueContext* context, TfLiteType type, size_t* bytes);
TFL_CAPI_EXPORT TfLiteStatus TfLiteOpaqueContextGetMetadata(
    TfLiteOpaqueContext* context, const char* name, const char** ptr, size_t* bytes);

// Messages to the error reporter of the interpreter, as of printf.
TFL_CAPI_EXPORT void TfLiteOpaqueContextReportError(struct TfLiteOpaqueContext* opaque_context, const char* format, ...);
TFL_CAPI_EXPORT void TfLiteOpaqueContextReportErrorVa(
    struct TfLiteOpaqueContext* opaque_context, const char* format, va_list vlist);

#define TF_LITE_OPAQUE_KERNEL_LOG(opaque_context, ...)             \
  do {                                                             \
    TfLiteOpaqueContextReportError((opaque_context), __VA_ARGS__); \
  } while (0)
#define TF_LITE_OPAQUE_MAYBE_KERNEL_LOG(opaque_context, ...)                                      \
  do {                                                                                            \
    if ((opaque_context) != NULL) TfLiteOpaqueContextReportError((opaque_context), __VA_ARGS__);  \
  } while (0)

// Return kTfLiteError from the function that they are in, after a message, unless the condition holds.
#define TF_LITE_OPAQUE_ENSURE_MSG(opaque_context, value, msg)        \
  do {                                                               \
    if (!(value)) {                                                  \
      TF_LITE_OPAQUE_KERNEL_LOG((opaque_context), __FILE__ " " msg); \
      return kTfLiteError;                                           \
    }                                                                \
  } while (0)
#define TF_LITE_OPAQUE_ENSURE(opaque_context, a)                                                            \
  do {                                                                                                      \
    if (!(a)) {                                                                                             \
      TF_LITE_OPAQUE_KERNEL_LOG((opaque_context), "%s:%d: %s was not true.", __FILE__, __LINE__, #a);       \
      return kTfLiteError;                                                                                  \
    }                                                                                                       \
  } while (0)
#define TF_LITE_OPAQUE_ENSURE_EQ(opaque_context, a, b)                                                      \
  do {                                                                                                      \
    if ((a) != (b)) {                                                                                       \
      TF_LITE_OPAQUE_KERNEL_LOG((opaque_context), "%s:%d: %s != %s (%d != %d)", __FILE__, __LINE__, #a, #b, \
                                (int)(a), (int)(b));                                                        \
      return kTfLiteError;                                                                                  \
    }                                                                                                       \
  } while (0)
#define TF_LITE_OPAQUE_ENSURE_TYPES_EQ(opaque_context, a, b)                                                \
  do {                                                                                                      \
    if ((a) != (b)) {                                                                                       \
      TF_LITE_OPAQUE_KERNEL_LOG((opaque_context), "%s:%d: %s != %s (%s != %s)", __FILE__, __LINE__, #a, #b, \
                                TfLiteTypeGetName((TfLiteType)(a)), TfLiteTypeGetName((TfLiteType)(b)));    \
      return kTfLiteError;                                                                                  \
    }                                                                                                       \
  } while (0)
#define TF_LITE_OPAQUE_ENSURE_NEAR(opaque_context, a, b, epsilon)                                                 \
  do {                                                                                                            \
    double tf_lite_opaque_delta = ((a) > (b)) ? (double)((a) - (b)) : (double)((b) - (a));                        \
    if (tf_lite_opaque_delta > (double)(epsilon)) {                                                               \
      TF_LITE_OPAQUE_KERNEL_LOG((opaque_context), "%s:%d: %s not near %s (%f != %f)", __FILE__, __LINE__, #a, #b, \
                                (double)(a), (double)(b));                                                        \
      return kTfLiteError;                                                                                        \
    }                                                                                                             \
  } while (0)

#ifdef __cplusplus
}
#endif

#endif  // TENSORFLOW_LITE_CORE_C_C_API_OPAQUE_H_
