// Structures of TensorFlow Lite's C API whose layout programs may rely on.

#ifndef TENSORFLOW_LITE_C_COMMON_H_
#define TENSORFLOW_LITE_C_COMMON_H_

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensorflow/lite/c/c_api_types.h"

#ifdef __cplusplus
extern "C" {
#endif

// The index of an input that a node leaves out.
#define kTfLiteOptionalTensor (-1)

// A count and as many values, in one allocation.
typedef struct TfLiteIntArray {
  int size;
#if defined(_MSC_VER)
  int data[1];
#else
  int data[];
#endif
} TfLiteIntArray;

// Bytes of an array of `size` values; 0 for a negative size.
TFL_CAPI_EXPORT size_t TfLiteIntArrayGetSizeInBytes(int size);
// A new array, filled with 0; NULL if the size is negative or memory is short.
TFL_CAPI_EXPORT TfLiteIntArray* TfLiteIntArrayCreate(int size);
TFL_CAPI_EXPORT int TfLiteIntArrayEqual(const TfLiteIntArray* a, const TfLiteIntArray* b);
TFL_CAPI_EXPORT int TfLiteIntArrayEqualsArray(const TfLiteIntArray* a, int b_size, const int b_data[]);
TFL_CAPI_EXPORT TfLiteIntArray* TfLiteIntArrayCopy(const TfLiteIntArray* src);
TFL_CAPI_EXPORT void TfLiteIntArrayFree(TfLiteIntArray* a);

// As TfLiteIntArray.
typedef struct TfLiteFloatArray {
  int size;
#if defined(_MSC_VER)
  float data[1];
#else
  float data[];
#endif
} TfLiteFloatArray;

TFL_CAPI_EXPORT int TfLiteFloatArrayGetSizeInBytes(int size);
TFL_CAPI_EXPORT TfLiteFloatArray* TfLiteFloatArrayCreate(int size);
TFL_CAPI_EXPORT TfLiteFloatArray* TfLiteFloatArrayCopy(const TfLiteFloatArray* src);
TFL_CAPI_EXPORT void TfLiteFloatArrayFree(TfLiteFloatArray* a);

typedef struct TfLiteComplex64 {
  float re, im;
} TfLiteComplex64;

typedef struct TfLiteComplex128 {
  double re, im;
} TfLiteComplex128;

typedef struct TfLiteFloat16 {
  uint16_t data;
} TfLiteFloat16;

typedef struct TfLiteBFloat16 {
  uint16_t data;
} TfLiteBFloat16;

// The name of a type: "FLOAT32".
TFL_CAPI_EXPORT const char* TfLiteTypeGetName(TfLiteType type);

// What TfLiteQuantization.params points at.
#ifdef __cplusplus
typedef enum TfLiteQuantizationType : int {
#else
typedef enum TfLiteQuantizationType {
#endif
  // Nothing.
  kTfLiteNoQuantization = 0,
  // TfLiteAffineQuantization.
  kTfLiteAffineQuantization = 1,
  // TfLiteBlockwiseQuantization.
  kTfLiteBlockwiseQuantization = 2,
  kTfLiteMultiAxisQuantization = 3,
} TfLiteQuantizationType;

typedef struct TfLiteQuantization {
  TfLiteQuantizationType type;
  void* params;
} TfLiteQuantization;

// One scale and zero point, or one of each per index of a dimension.
typedef struct TfLiteAffineQuantization {
  TfLiteFloatArray* scale;
  TfLiteIntArray* zero_point;
  int32_t quantized_dimension;
} TfLiteAffineQuantization;

// One scale per block of elements. Scales and zero points are tensors, given by their indices.
typedef struct TfLiteBlockwiseQuantization {
  int32_t scale;
  int32_t zero_point;
  int32_t blocksize;
  int32_t quantized_dimension;
} TfLiteBlockwiseQuantization;

// Data of a tensor, under the type of its elements.
typedef union TfLitePtrUnion {
  int32_t* i32;
  uint32_t* u32;
  int64_t* i64;
  uint64_t* u64;
  float* f;
  TfLiteFloat16* f16;
  TfLiteBFloat16* bf16;
  double* f64;
  char* raw;
  const char* raw_const;
  uint8_t* uint8;
  bool* b;
  int16_t* i16;
  uint16_t* ui16;
  TfLiteComplex64* c64;
  TfLiteComplex128* c128;
  int8_t* int8;
  void* data;
} TfLitePtrUnion;

// Where the data of a tensor are.
typedef enum TfLiteAllocationType {
  kTfLiteMemNone = 0,
  // In the model, read-only.
  kTfLiteMmapRo = 1,
  // In memory that tensors share over time.
  kTfLiteArenaRw = 2,
  // In memory that keeps its values between runs.
  kTfLiteArenaRwPersistent = 3,
  // In memory whose size a run decides.
  kTfLiteDynamic = 4,
  kTfLitePersistentRo = 5,
  // In memory of the application.
  kTfLiteCustom = 6,
  kTfLiteVariantObject = 7,
  kTfLiteNonCpu = 8,
} TfLiteAllocationType;

typedef int TfLiteBufferHandle;
enum {
  kTfLiteNullBufferHandle = -1,
};

typedef struct TfLiteDimensionMetadata {
  TfLiteDimensionType format;
  int dense_size;
  TfLiteIntArray* array_segments;
  TfLiteIntArray* array_indices;
} TfLiteDimensionMetadata;

typedef struct TfLiteSparsity {
  TfLiteIntArray* traversal_order;
  TfLiteIntArray* block_map;
  TfLiteDimensionMetadata* dim_metadata;
  int dim_metadata_size;
} TfLiteSparsity;

// Memory of the application for a tensor.
typedef struct TfLiteCustomAllocation {
  void* data;
  size_t bytes;
} TfLiteCustomAllocation;

typedef enum TfLiteCustomAllocationFlags {
  kTfLiteCustomAllocationFlagsNone = 0,
  // The memory need not start at a multiple of 64.
  kTfLiteCustomAllocationFlagsSkipAlignCheck = 1,
} TfLiteCustomAllocationFlags;

// A tensor. Read it through the functions of c_api.h; the fields are here for programs that do not. They are up to date after
// each call on the interpreter, and must not be changed.
typedef struct TfLiteTensor {
  TfLiteType type;
  TfLitePtrUnion data;
  TfLiteIntArray* dims;
  TfLiteQuantizationParams params;
  TfLiteAllocationType allocation_type;
  size_t bytes;
  // NULL.
  const void* allocation;
  const char* name;
  // NULL.
  struct TfLiteDelegate* delegate;
  // kTfLiteNullBufferHandle.
  TfLiteBufferHandle buffer_handle;
  // False.
  bool data_is_stale;
  bool is_variable;
  TfLiteQuantization quantization;
  // NULL.
  TfLiteSparsity* sparsity;
  // The shape with -1 for dimensions that may be resized; NULL if the model has none.
  const TfLiteIntArray* dims_signature;
} TfLiteTensor;

#ifdef __cplusplus
}
#endif

#endif  // TENSORFLOW_LITE_C_COMMON_H_
