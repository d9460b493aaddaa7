// Delegraph's delegate on the GPU (Vulkan, Metal or Direct3D 12).

#ifndef TENSORFLOW_LITE_CORE_C_WGPU_DELEGATE_H_
#define TENSORFLOW_LITE_CORE_C_WGPU_DELEGATE_H_

#include <stdbool.h>
#include <stdint.h>

#include "tensorflow/lite/core/c/c_api_types.h"

#ifdef __cplusplus
extern "C" {
#endif

// Options, to be initialized by TfLiteWgpuDelegateOptionsDefault.
typedef struct TfLiteWgpuDelegateOptions {
  // A part of the name of the adapter; NULL for the one that is expected to be fastest.
  const char* adapter;
  // The most memory of the GPU in bytes; 0 for no limit.
  uint64_t max_gpu_bytes;
  // Whether nodes are merged into one kernel where that is possible. True.
  bool fusion;
} TfLiteWgpuDelegateOptions;

TFL_CAPI_EXPORT extern TfLiteWgpuDelegateOptions TfLiteWgpuDelegateOptionsDefault(void);
// Opens the GPU. NULL, after a message on standard error, if there is none or the library was built without it. NULL as the
// options stands for the default ones.
TFL_CAPI_EXPORT extern TfLiteOpaqueDelegate* TfLiteWgpuDelegateCreate(const TfLiteWgpuDelegateOptions* options);
TFL_CAPI_EXPORT extern void TfLiteWgpuDelegateDelete(TfLiteOpaqueDelegate* delegate);

#ifdef __cplusplus
}
#endif

#endif  // TENSORFLOW_LITE_CORE_C_WGPU_DELEGATE_H_
