// Operators: kernels of an application for custom ops, and for builtin ops in the place of the library's.

#ifndef TENSORFLOW_LITE_CORE_C_OPERATOR_H_
#define TENSORFLOW_LITE_CORE_C_OPERATOR_H_

#include <stddef.h>
#include <stdint.h>

#include "tensorflow/lite/builtin_ops.h"
#include "tensorflow/lite/core/c/c_api_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TfLiteOperator TfLiteOperator;
struct TfLiteAsyncKernel;

// An operator without functions, to be deleted. NULL for a custom op without a name. `custom_name` outlives the operator;
// `user_data` is passed to the functions that are set `WithData`.
TFL_CAPI_EXPORT extern TfLiteOperator* TfLiteOperatorCreate(
    TfLiteBuiltinOperator builtin_code, const char* custom_name, int version, void* user_data);
TFL_CAPI_EXPORT extern void TfLiteOperatorDelete(TfLiteOperator* registration);
TFL_CAPI_EXPORT extern TfLiteBuiltinOperator TfLiteOperatorGetBuiltInCode(const TfLiteOperator* registration);
// NULL for a builtin op.
TFL_CAPI_EXPORT extern const char* TfLiteOperatorGetCustomName(const TfLiteOperator* registration);
// -1 for NULL.
TFL_CAPI_EXPORT extern int TfLiteOperatorGetVersion(const TfLiteOperator* registration);
TFL_CAPI_EXPORT extern void* TfLiteOperatorGetUserData(const TfLiteOperator* registration);

// `init` creates the state of a node's kernel, which TfLiteOpaqueNodeGetUserData returns. `buffer` has the options of a custom
// op, the params of a builtin op (with a length of 0), or TfLiteOpaqueDelegateParams for the kernel of a delegate.
TFL_CAPI_EXPORT extern void TfLiteOperatorSetInit(
    TfLiteOperator* registration,
    void* (*init)(TfLiteOpaqueContext* context, const char* buffer, size_t length));
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteOperatorSetInitWithData(
    TfLiteOperator* registration,
    void* (*init)(void* user_data, TfLiteOpaqueContext* context, const char* buffer, size_t length));

// `free` frees that state.
TFL_CAPI_EXPORT extern void TfLiteOperatorSetFree(
    TfLiteOperator* registration, void (*free)(TfLiteOpaqueContext* context, void* data));
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteOperatorSetFreeWithData(
    TfLiteOperator* registration, void (*free)(void* user_data, TfLiteOpaqueContext* context, void* data));

// `prepare` is called when shapes of inputs have changed: it gives the outputs their shapes.
TFL_CAPI_EXPORT extern void TfLiteOperatorSetPrepare(
    TfLiteOperator* registration, TfLiteStatus (*prepare)(TfLiteOpaqueContext* context, TfLiteOpaqueNode* node));
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteOperatorSetPrepareWithData(
    TfLiteOperator* registration,
    TfLiteStatus (*prepare)(void* user_data, TfLiteOpaqueContext* context, TfLiteOpaqueNode* node));

// `invoke` computes the outputs.
TFL_CAPI_EXPORT extern void TfLiteOperatorSetInvoke(
    TfLiteOperator* registration, TfLiteStatus (*invoke)(TfLiteOpaqueContext* context, TfLiteOpaqueNode* node));
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteOperatorSetInvokeWithData(
    TfLiteOperator* registration,
    TfLiteStatus (*invoke)(void* user_data, TfLiteOpaqueContext* context, TfLiteOpaqueNode* node));

// Asynchronous kernels are not called: the first has no effect, the second is an error unless the function is NULL.
TFL_CAPI_EXPORT extern void TfLiteOperatorSetAsyncKernel(
    TfLiteOperator* registration,
    struct TfLiteAsyncKernel* (*async_kernel)(TfLiteOpaqueContext* context, TfLiteOpaqueNode* node));
TFL_CAPI_EXPORT extern TfLiteStatus TfLiteOperatorSetAsyncKernelWithData(
    TfLiteOperator* registration,
    struct TfLiteAsyncKernel* (*async_kernel)(void* user_data, TfLiteOpaqueContext* context, TfLiteOpaqueNode* node));
// Without effect: outputs do not share the memory of inputs.
TFL_CAPI_EXPORT extern void TfLiteOperatorSetInplaceOperator(TfLiteOperator* registration, uint64_t inplace_operator);

#ifdef __cplusplus
}
#endif

#endif  // TENSORFLOW_LITE_CORE_C_OPERATOR_H_
