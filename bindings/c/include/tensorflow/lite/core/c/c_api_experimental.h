// Variables, memory of the application, and options that TensorFlow Lite calls experimental.

#ifndef TENSORFLOW_LITE_CORE_C_C_API_EXPERIMENTAL_H_
#define TENSORFLOW_LITE_CORE_C_C_API_EXPERIMENTAL_H_

#include <stdbool.h>
#include <stdint.h>

#include "tensorflow/lite/builtin_ops.h"
#include "tensorflow/lite/core/c/c_api.h"
#include "tensorflow/lite/core/c/common.h"

#ifdef __cplusplus
extern "C" {
#endif

// Sets variables to their initial values.
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteInterpreterResetVariableTensors(TfLiteInterpreter* interpreter);
// Variables of the first subgraph: tensors that keep their values from one run to the next.
TFL_CAPI_EXPORT extern int32_t TfLiteInterpreterGetVariableTensorCount(const TfLiteInterpreter* interpreter);
TFL_CAPI_EXPORT extern TfLiteTensor* TfLiteInterpreterGetVariableTensor(
    const TfLiteInterpreter* interpreter, int32_t variable_index);

// As TfLiteInterpreterCreate, without the kernels of the library.
TFL_CAPI_EXPORT extern TfLiteInterpreter* TfLiteInterpreterCreateWithSelectedOps(
    const TfLiteModel* model, const TfLiteInterpreterOptions* options);

// Kernels with the interface of structures, for an op at versions from min_version to max_version.
TFL_CAPI_EXPORT extern void TfLiteInterpreterOptionsAddBuiltinOp(
    TfLiteInterpreterOptions* options, TfLiteBuiltinOperator op, const TfLiteRegistration* registration, int32_t min_version,
    int32_t max_version);
TFL_CAPI_EXPORT extern void TfLiteInterpreterOptionsAddCustomOp(
    TfLiteInterpreterOptions* options, const char* name, const TfLiteRegistration* registration, int32_t min_version,
    int32_t max_version);

// Functions that return the kernels of ops, in the place of all others; NULL for an op without one. They are called for each op
// of a model when an interpreter is created.
TFL_CAPI_EXPORT extern void TfLiteInterpreterOptionsSetOpResolver(
    TfLiteInterpreterOptions* options,
    const TfLiteRegistration* (*find_builtin_op)(void* user_data, TfLiteBuiltinOperator op, int version),
    const TfLiteRegistration* (*find_custom_op)(void* user_data, const char* custom_op, int version), void* op_resolver_user_data);
TFL_CAPI_EXPORT extern void TfLiteInterpreterOptionsSetOpResolverExternal(
    TfLiteInterpreterOptions* options, const TfLiteOperator* (*find_builtin_op)(void* user_data, int op, int version),
    const TfLiteOperator* (*find_custom_op)(void* user_data, const char* custom_op, int version), void* op_resolver_user_data);
// With functions for ops that the first two do not find.
TFL_CAPI_EXPORT extern void TfLiteInterpreterOptionsSetOpResolverExternalWithFallback(
    TfLiteInterpreterOptions* options, const TfLiteOperator* (*find_builtin_op_external)(void* user_data, int op, int version),
    const TfLiteOperator* (*find_custom_op_external)(void* user_data, const char* custom_op, int version),
    const TfLiteRegistration* (*find_builtin_op)(void* user_data, TfLiteBuiltinOperator op, int version),
    const TfLiteRegistration* (*find_custom_op)(void* user_data, const char* custom_op, int version), void* op_resolver_user_data);

// Applies a delegate after those of the options, and plans memory again.
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteInterpreterModifyGraphWithDelegate(
    const TfLiteInterpreter* interpreter, TfLiteOpaqueDelegate* delegate);

// Buffers of delegates for inputs and outputs. After a run, an output with a buffer is copied from there by the delegate's
// CopyFromBufferHandle: at once, or, if outputs may stay there, in TfLiteInterpreterEnsureTensorDataIsReadable.
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteInterpreterSetBufferHandle(
    TfLiteInterpreter* interpreter, TfLiteTensor* tensor, TfLiteBufferHandle buffer_handle, TfLiteOpaqueDelegate* delegate);
// kTfLiteNullBufferHandle and NULL for a tensor without a buffer.
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteInterpreterGetBufferHandle(
    TfLiteInterpreter* interpreter, int tensor_index, TfLiteBufferHandle* buffer_handle, TfLiteOpaqueDelegate** delegate);
TFL_CAPI_EXPORT extern void TfLiteSetAllowBufferHandleOutput(
    const TfLiteInterpreter* interpreter, bool allow_buffer_handle_output);

// Tensor indices of inputs and outputs; -1 if there is no such input or output.
TFL_CAPI_EXPORT extern int32_t TfLiteInterpreterGetInputTensorIndex(const TfLiteInterpreter* interpreter, int32_t input_index);
TFL_CAPI_EXPORT extern int32_t TfLiteInterpreterGetOutputTensorIndex(const TfLiteInterpreter* interpreter, int32_t output_index);

// Lets a tensor, except strings and constants, be in memory of the application: a run copies the tensor from there
// before, and there after. The memory stays valid as long as the interpreter runs. Its size is compared in
// TfLiteInterpreterAllocateTensors, which follows.
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteInterpreterSetCustomAllocationForTensor(
    TfLiteInterpreter* interpreter, int tensor_index, const TfLiteCustomAllocation* allocation, int64_t flags);

// Copies an output to the CPU's memory if a delegate has it.
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteInterpreterEnsureTensorDataIsReadable(TfLiteInterpreter* interpreter, int tensor_index);

// As TfLiteInterpreterCancel.
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteSignatureRunnerCancel(TfLiteSignatureRunner* signature_runner);

// Whether a run in which a delegate fails is repeated on the CPU, from the same inputs and variables.
TFL_CAPI_EXPORT extern void TfLiteInterpreterOptionsSetEnableDelegateFallback(TfLiteInterpreterOptions* options, bool enable);

// Without effect: there is neither a delegate for NNAPI nor telemetry.
TFL_CAPI_EXPORT extern void TfLiteInterpreterOptionsSetUseNNAPI(TfLiteInterpreterOptions* options, bool enable);
struct TfLiteTelemetryProfilerStruct;
TFL_CAPI_EXPORT extern void TfLiteInterpreterOptionsSetTelemetryProfiler(
    TfLiteInterpreterOptions* options, struct TfLiteTelemetryProfilerStruct* profiler);

#ifdef __cplusplus
}
#endif

#endif  // TENSORFLOW_LITE_CORE_C_C_API_EXPERIMENTAL_H_
