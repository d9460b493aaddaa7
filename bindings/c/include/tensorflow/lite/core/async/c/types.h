// Names of TensorFlow Lite's asynchronous interface, which is not implemented.

#ifndef TENSORFLOW_LITE_CORE_ASYNC_C_TYPES_H_
#define TENSORFLOW_LITE_CORE_ASYNC_C_TYPES_H_

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TfLiteAsyncKernel TfLiteAsyncKernel;
typedef struct TfLiteExecutionTask TfLiteExecutionTask;

typedef enum TfLiteIoType {
  kTfLiteIoTypeUnknown = 0,
  kTfLiteIoTypeInput = 1,
  kTfLiteIoTypeOutput = 2,
} TfLiteIoType;

#ifdef __cplusplus
}
#endif

#endif  // TENSORFLOW_LITE_CORE_ASYNC_C_TYPES_H_
