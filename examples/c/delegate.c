// A delegate: takes each RESHAPE of floats, and leaves all other nodes to the library.
//
//     cc delegate.c $(pkg-config --cflags --libs tensorflowlite_c) -o delegate && ./delegate model.tflite

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/lite/c/c_api.h"
#include "tensorflow/lite/c/c_api_opaque.h"

// Counters of the delegate.
struct counts {
  int nodes;
  int runs;
};

// The state of a kernel: the nodes of its partition, as pairs of tensors.
struct kernel {
  int count;
  int tensors[][2];
};

static void* init(void* user_data, TfLiteOpaqueContext* context, const char* buffer, size_t length) {
  const TfLiteOpaqueDelegateParams* params = (const TfLiteOpaqueDelegateParams*)(const void*)buffer;
  const TfLiteIntArray* nodes = params->nodes_to_replace;
  struct kernel* kernel = (struct kernel*)malloc(sizeof *kernel + (size_t)nodes->size * sizeof kernel->tensors[0]);
  int i;
  (void)user_data;
  if (kernel == NULL || length < sizeof *params) return TfLiteKernelInitFailed();
  kernel->count = nodes->size;
  for (i = 0; i < nodes->size; ++i) {
    TfLiteOpaqueNode* node;
    TfLiteOperator* op;
    TfLiteOpaqueContextGetNodeAndRegistration(context, nodes->data[i], &node, &op);
    kernel->tensors[i][0] = TfLiteOpaqueNodeGetInputTensorIndex(node, 0);
    kernel->tensors[i][1] = TfLiteOpaqueNodeGetOutputTensorIndex(node, 0);
  }
  return kernel;
}

static void release(void* user_data, TfLiteOpaqueContext* context, void* data) {
  (void)user_data;
  (void)context;
  free(data);
}

static TfLiteStatus invoke(void* user_data, TfLiteOpaqueContext* context, TfLiteOpaqueNode* node) {
  const struct kernel* kernel = (const struct kernel*)TfLiteOpaqueNodeGetUserData(node);
  int k;
  for (k = 0; k < kernel->count; ++k) {
    const TfLiteOpaqueTensor* input = TfLiteOpaqueContextGetOpaqueTensor(context, kernel->tensors[k][0]);
    const TfLiteOpaqueTensor* output = TfLiteOpaqueContextGetOpaqueTensor(context, kernel->tensors[k][1]);
    const void* from = TfLiteOpaqueTensorData(input);
    void* to = TfLiteOpaqueTensorData(output);
    size_t bytes = TfLiteOpaqueTensorByteSize(output);
    TF_LITE_OPAQUE_ENSURE(context, from != NULL && to != NULL && TfLiteOpaqueTensorByteSize(input) == bytes);
    memcpy(to, from, bytes);
  }
  ((struct counts*)user_data)->runs += 1;
  return kTfLiteOk;
}

// Whether a chosen node computes a tensor. Tensors between two nodes of a partition have no memory, so such pairs are not taken.
static int computed(TfLiteOpaqueContext* context, const TfLiteIntArray* chosen, int tensor) {
  int i;
  for (i = 0; i < chosen->size; ++i) {
    TfLiteOpaqueNode* node;
    TfLiteOperator* op;
    if (TfLiteOpaqueContextGetNodeAndRegistration(context, chosen->data[i], &node, &op) == kTfLiteOk &&
        TfLiteOpaqueNodeGetOutputTensorIndex(node, 0) == tensor) {
      return 1;
    }
  }
  return 0;
}

// Claims nodes.
static TfLiteStatus prepare(TfLiteOpaqueContext* context, TfLiteOpaqueDelegate* delegate, void* data) {
  struct counts* counts = (struct counts*)data;
  TfLiteIntArray *plan, *chosen;
  TfLiteOperator* kernel;
  TfLiteStatus status;
  int i;
  if (TfLiteOpaqueContextGetExecutionPlan(context, &plan) != kTfLiteOk) return kTfLiteError;
  chosen = TfLiteIntArrayCreate(plan->size);
  if (chosen == NULL) return kTfLiteError;
  chosen->size = 0;
  for (i = 0; i < plan->size; ++i) {
    TfLiteOpaqueNode* node;
    TfLiteOperator* op;
    if (TfLiteOpaqueContextGetNodeAndRegistration(context, plan->data[i], &node, &op) != kTfLiteOk) continue;
    if (TfLiteOperatorGetBuiltInCode(op) == kTfLiteBuiltinReshape &&
        TfLiteOpaqueTensorType(TfLiteOpaqueNodeGetInput(context, node, 0)) == kTfLiteFloat32 &&
        !computed(context, chosen, TfLiteOpaqueNodeGetInputTensorIndex(node, 0))) {
      chosen->data[chosen->size++] = plan->data[i];
    }
  }
  counts->nodes = chosen->size;
  kernel = TfLiteOperatorCreate(kTfLiteBuiltinDelegate, "reshape", 1, data);
  TfLiteOperatorSetInitWithData(kernel, init);
  TfLiteOperatorSetFreeWithData(kernel, release);
  TfLiteOperatorSetInvokeWithData(kernel, invoke);
  // The graph owns the operator from here on.
  status = TfLiteOpaqueContextReplaceNodeSubsetsWithDelegateKernels(context, kernel, chosen, delegate);
  TfLiteIntArrayFree(chosen);
  return status;
}

int main(int argc, char** argv) {
  struct counts counts = {0, 0};
  TfLiteOpaqueDelegateBuilder builder;
  TfLiteOpaqueDelegate* delegate;
  TfLiteInterpreterOptions* options;
  TfLiteModel* model;
  TfLiteInterpreter* interpreter;
  int status = 1;
  if (argc != 2) return 2;

  memset(&builder, 0, sizeof builder);
  builder.data = &counts;
  builder.Prepare = prepare;
  delegate = TfLiteOpaqueDelegateCreate(&builder);
  options = TfLiteInterpreterOptionsCreate();
  TfLiteInterpreterOptionsAddDelegate(options, delegate);

  model = TfLiteModelCreateFromFile(argv[1]);
  // The delegate chooses its nodes here, and memory is planned: TfLiteInterpreterAllocateTensors is not needed.
  interpreter = TfLiteInterpreterCreate(model, options);
  if (interpreter != NULL && TfLiteInterpreterInvoke(interpreter) == kTfLiteOk) {
    printf("nodes of the delegate: %d, runs of its kernels: %d\n", counts.nodes, counts.runs);
    status = 0;
  }
  TfLiteInterpreterDelete(interpreter);
  TfLiteModelDelete(model);
  TfLiteInterpreterOptionsDelete(options);
  TfLiteOpaqueDelegateDelete(delegate);
  return status;
}
