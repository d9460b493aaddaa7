// The structures between LiteRT's interpreter and a delegate, for the delegates of the tests. Those of values are in
// bindings/c/include.

#ifndef DELEGRAPH_TESTS_DELEGATE_H_
#define DELEGRAPH_TESTS_DELEGATE_H_

#include "tensorflow/lite/c/common.h"

typedef struct TfLiteContext TfLiteContext;

typedef struct TfLiteNode {
  TfLiteIntArray* inputs;
  TfLiteIntArray* outputs;
  TfLiteIntArray* intermediates;
  TfLiteIntArray* temporaries;
  void* user_data;
  void* builtin_data;
  const void* custom_initial_data;
  int custom_initial_data_size;
  struct TfLiteDelegate* delegate;
  bool might_have_side_effect;
} TfLiteNode;

typedef struct TfLiteRegistration {
  void* (*init)(TfLiteContext*, const char*, size_t);
  void (*free)(TfLiteContext*, void*);
  TfLiteStatus (*prepare)(TfLiteContext*, TfLiteNode*);
  TfLiteStatus (*invoke)(TfLiteContext*, TfLiteNode*);
  const char* (*profiling_string)(const TfLiteContext*, const TfLiteNode*);
  int32_t builtin_code;
  const char* custom_name;
  int version;
  // Newer releases append these.
  void* registration_external;
  void* (*async_kernel)(TfLiteContext*, TfLiteNode*);
  uint64_t inplace_operator;
} TfLiteRegistration;

typedef struct TfLiteDelegateParams {
  struct TfLiteDelegate* delegate;
  TfLiteIntArray* nodes_to_replace;
  TfLiteIntArray* input_tensors;
  TfLiteIntArray* output_tensors;
} TfLiteDelegateParams;

struct TfLiteContext {
  size_t tensors_size;
  TfLiteStatus (*GetExecutionPlan)(TfLiteContext*, TfLiteIntArray**);
  TfLiteTensor* tensors;
  void* impl_;
  TfLiteStatus (*ResizeTensor)(TfLiteContext*, TfLiteTensor*, TfLiteIntArray*);
  void (*ReportError)(TfLiteContext*, const char*, ...);
  TfLiteStatus (*AddTensors)(TfLiteContext*, int, int*);
  TfLiteStatus (*GetNodeAndRegistration)(TfLiteContext*, int, TfLiteNode**, TfLiteRegistration**);
  TfLiteStatus (*ReplaceNodeSubsetsWithDelegateKernels)(TfLiteContext*, TfLiteRegistration, const TfLiteIntArray*,
                                                        struct TfLiteDelegate*);
  int recommended_num_threads;
  void* (*GetExternalContext)(TfLiteContext*, int);
  void (*SetExternalContext)(TfLiteContext*, int, void*);
  bool allow_fp32_relax_to_fp16;
  void* profiler;
  void* unused[5];
  TfLiteStatus (*PreviewDelegatePartitioning)(TfLiteContext*, const TfLiteIntArray*, TfLiteDelegateParams**, int*);
  void* (*GetTensor)(const TfLiteContext*, int);
  void* (*GetEvalTensor)(const TfLiteContext*, int);
  TfLiteStatus (*GetModelMetadata)(const TfLiteContext*, const char*, const char**, size_t*);
  TfLiteStatus (*AcquireSubgraphContext)(TfLiteContext*, int, TfLiteContext**);
  TfLiteStatus (*ReleaseSubgraphContext)(TfLiteContext*, int);
};

struct TfLiteDelegate {
  void* data_;
  TfLiteStatus (*Prepare)(TfLiteContext*, struct TfLiteDelegate*);
  TfLiteStatus (*CopyFromBufferHandle)(TfLiteContext*, struct TfLiteDelegate*, TfLiteBufferHandle, TfLiteTensor*);
  TfLiteStatus (*CopyToBufferHandle)(TfLiteContext*, struct TfLiteDelegate*, TfLiteBufferHandle, TfLiteTensor*);
  void (*FreeBufferHandle)(TfLiteContext*, struct TfLiteDelegate*, TfLiteBufferHandle*);
  int64_t flags;
  void* opaque_delegate_builder;
};

#endif  // DELEGRAPH_TESTS_DELEGATE_H_
