// A delegate for LiteRT's interpreter that runs ADD without an activation on tensors of one shape, of float or int64.
// The option `as` selects the behaviour: a correct one, with temporaries or buffers for example, or one of several
// faulty ones. The option `log` names a file with a line for each kernel that is created, run and freed.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "delegate.h"

#define EXPORT __attribute__((visibility("default")))

struct Kernel;

typedef struct Adder {
  struct TfLiteDelegate delegate;
  char as[64];
  char log[1024];
  // The kernel that ran last.
  struct Kernel* last;
} Adder;

typedef struct Kernel {
  Adder* adder;
  int count;
  int runs;
  int temporary;
  // The node whose sum an output is in.
  int delivered;
  struct {
    int a, b, out;
    void* sum;
    size_t bytes;
  } nodes[16];
} Kernel;

static int is(const Adder* adder, const char* as) { return strcmp(adder->as, as) == 0; }

static void note(const Adder* adder, const char* line) {
  FILE* file = adder->log[0] ? fopen(adder->log, "a") : NULL;
  if (file) {
    fprintf(file, "%s\n", line);
    fclose(file);
  }
}

static TfLiteIntArray* list(int size, const int* items) {
  TfLiteIntArray* made = malloc(sizeof(int) * (size_t)(size + 1));
  made->size = size;
  if (items) memcpy(made->data, items, sizeof(int) * (size_t)size);
  return made;
}

static TfLiteIntArray* copy(const TfLiteIntArray* old) { return list(old->size, old->data); }

static void* kernel_init(TfLiteContext* context, const char* buffer, size_t length) {
  const TfLiteDelegateParams* params = (const void*)buffer;
  Adder* adder = params->delegate->data_;
  (void)length;
  if (is(adder, "init_fails")) return (void*)-1;
  Kernel* kernel = calloc(1, sizeof *kernel);
  kernel->adder = adder;
  kernel->temporary = -1;
  for (int i = 0; i < params->nodes_to_replace->size; ++i) {
    TfLiteNode* node;
    TfLiteRegistration* registration;
    if (context->GetNodeAndRegistration(context, params->nodes_to_replace->data[i], &node, &registration) != kTfLiteOk ||
        kernel->count == 16) {
      free(kernel);
      return (void*)-1;
    }
    kernel->nodes[kernel->count].a = node->inputs->data[0];
    kernel->nodes[kernel->count].b = node->inputs->data[1];
    kernel->nodes[kernel->count++].out = node->outputs->data[0];
  }
  if (is(adder, "temporary") || is(adder, "persistent")) context->AddTensors(context, 1, &kernel->temporary);
  note(adder, "init");
  return kernel;
}

static void kernel_free(TfLiteContext* context, void* data) {
  Kernel* kernel = data;
  (void)context;
  note(kernel->adder, "free");
  for (int n = 0; n < kernel->count; ++n) free(kernel->nodes[n].sum);
  free(kernel);
}

static TfLiteStatus prepare_temporary(TfLiteContext* context, TfLiteNode* node, const Kernel* kernel) {
  TfLiteTensor* tensor = &context->tensors[kernel->temporary];
  tensor->type = kTfLiteFloat32;
  tensor->allocation_type = is(kernel->adder, "persistent") ? kTfLiteArenaRwPersistent : kTfLiteArenaRw;
  free(node->temporaries);
  node->temporaries = list(1, &kernel->temporary);
  return context->ResizeTensor(context, tensor, copy(context->tensors[node->outputs->data[0]].dims));
}

static TfLiteStatus kernel_prepare(TfLiteContext* context, TfLiteNode* node) {
  Kernel* kernel = node->user_data;
  const Adder* adder = kernel->adder;
  TfLiteTensor* out = &context->tensors[node->outputs->data[0]];
  TfLiteTensor* in = &context->tensors[node->inputs->data[0]];
  const int odd[] = {7, 9}, negative[] = {-3};
  if (is(adder, "kernel_prepare_fails")) {
    context->ReportError(context, "%s:%d %s was not true.", "adder.c", 42, "tea == coffee");
    return kTfLiteError;
  }
  if (is(adder, "resize_output")) return context->ResizeTensor(context, out, list(2, odd));
  if (is(adder, "resize_input")) return context->ResizeTensor(context, in, list(2, odd));
  if (is(adder, "resize_negative")) return context->ResizeTensor(context, out, list(1, negative));
  if (is(adder, "resize_null")) return context->ResizeTensor(context, out, NULL);
  if (is(adder, "resize_stray")) {
    TfLiteTensor stray = *out;
    return context->ResizeTensor(context, &stray, copy(out->dims));
  }
  if (is(adder, "resize_between")) return context->ResizeTensor(context, (TfLiteTensor*)((char*)out + 8), copy(out->dims));
  if (is(adder, "many_tensors")) return context->AddTensors(context, 2147483647, NULL);
  if (is(adder, "negative_tensors")) return context->AddTensors(context, -1, NULL);
  if (is(adder, "allocation")) out->allocation_type = (TfLiteAllocationType)8;
  if (is(adder, "given_temporary") || is(adder, "stray_temporary")) {
    free(node->temporaries);
    const int wrong = is(adder, "given_temporary") ? node->inputs->data[0] : 1000000;
    node->temporaries = list(1, &wrong);
  }
  if (is(adder, "null_temporaries")) {
    free(node->temporaries);
    node->temporaries = NULL;
  }
  if (is(adder, "temporary") || is(adder, "persistent")) return prepare_temporary(context, node, kernel);
  if (is(adder, "dynamic")) {
    for (int i = 0; i < node->outputs->size; ++i) {
      TfLiteTensor* tensor = &context->tensors[node->outputs->data[i]];
      tensor->allocation_type = kTfLiteDynamic;
      tensor->data.data = NULL;
    }
    return kTfLiteOk;
  }
  // Shapes that depend on data are known now.
  if (adder->delegate.flags & 1) return context->ResizeTensor(context, out, copy(in->dims));
  return kTfLiteOk;
}

// The value of a tensor: the result of an earlier node of the partition, or the memory of the context.
static const void* value(const TfLiteContext* context, const Kernel* kernel, int node, int tensor, size_t* bytes) {
  for (int n = 0; n < node; ++n) {
    if (kernel->nodes[n].out == tensor) {
      *bytes = kernel->nodes[n].bytes;
      return kernel->nodes[n].sum;
    }
  }
  *bytes = context->tensors[tensor].bytes;
  return context->tensors[tensor].data.data;
}

static TfLiteStatus compute(const TfLiteContext* context, Kernel* kernel, int n) {
  size_t bytes, other;
  const void* a = value(context, kernel, n, kernel->nodes[n].a, &bytes);
  const void* b = value(context, kernel, n, kernel->nodes[n].b, &other);
  const size_t element = context->tensors[kernel->nodes[n].a].type == kTfLiteFloat32 ? sizeof(float) : sizeof(int64_t);
  // The second operand may be a single number.
  const size_t step = bytes == other;
  if ((!step && other != element) || (bytes && (!a || !b))) return kTfLiteError;
  free(kernel->nodes[n].sum);
  void* sum = kernel->nodes[n].sum = malloc(bytes + 1);
  kernel->nodes[n].bytes = bytes;
  if (context->tensors[kernel->nodes[n].a].type == kTfLiteFloat32) {
    for (size_t i = 0; i < bytes / sizeof(float); ++i) ((float*)sum)[i] = ((const float*)a)[i] + ((const float*)b)[i * step];
  } else {
    for (size_t i = 0; i < bytes / sizeof(int64_t); ++i) {
      ((int64_t*)sum)[i] = ((const int64_t*)a)[i] + ((const int64_t*)b)[i * step];
    }
  }
  return kTfLiteOk;
}

// Stores the result of a node in an output of the partition.
static TfLiteStatus deliver(TfLiteContext* context, Kernel* kernel, int n) {
  const Adder* adder = kernel->adder;
  TfLiteTensor* to = &context->tensors[kernel->nodes[n].out];
  const size_t bytes = kernel->nodes[n].bytes;
  const void* sum = kernel->nodes[n].sum;
  if (is(adder, "buffer")) {
    to->buffer_handle = 17;
    to->data_is_stale = true;
    kernel->delivered = n;
    kernel->adder->last = kernel;
    return kTfLiteOk;
  }
  if (to->bytes != bytes || (bytes && !to->data.data)) return kTfLiteError;
  if (kernel->temporary >= 0) {
    TfLiteTensor* temporary = &context->tensors[kernel->temporary];
    if (!temporary->data.data || temporary->bytes != bytes) return kTfLiteError;
    if (is(adder, "persistent")) {
      temporary->data.f[0] += 1;
      if (temporary->data.f[0] != (float)(kernel->runs + 1)) return kTfLiteError;
    } else {
      memcpy(temporary->data.data, sum, bytes);
      sum = temporary->data.data;
    }
  }
  if (bytes) memcpy(to->data.data, sum, bytes);
  return kTfLiteOk;
}

static TfLiteStatus kernel_invoke(TfLiteContext* context, TfLiteNode* node) {
  Kernel* kernel = node->user_data;
  const Adder* adder = kernel->adder;
  TfLiteTensor* out = &context->tensors[node->outputs->data[0]];
  note(adder, "invoke");
  if (is(adder, "invoke_fails")) {
    context->ReportError(context, "the device is gone after %d of %.1f steps", 3, 4.5);
    return kTfLiteDelegateError;
  }
  if (is(adder, "plan_while_running")) {
    TfLiteIntArray* plan;
    context->GetExecutionPlan(context, &plan);
    return kTfLiteOk;
  }
  if (is(adder, "add_while_running")) return context->AddTensors(context, 1, NULL);
  if (is(adder, "resize_while_running")) {
    const int odd[] = {7, 9};
    return context->ResizeTensor(context, out, list(2, odd));
  }
  if (is(adder, "stale")) {
    out->data_is_stale = true;
    return kTfLiteOk;
  }
  if (is(adder, "stale_value")) {
    memset(&out->data_is_stale, 7, 1);
    return kTfLiteOk;
  }
  if (is(adder, "no_memory")) {
    out->allocation_type = kTfLiteDynamic;
    out->data.data = NULL;
    return kTfLiteOk;
  }
  if (is(adder, "dynamic")) {
    for (int i = 0; i < node->outputs->size; ++i) {
      TfLiteTensor* tensor = &context->tensors[node->outputs->data[i]];
      const TfLiteTensor* in = &context->tensors[node->inputs->data[0]];
      if (context->ResizeTensor(context, tensor, copy(in->dims)) != kTfLiteOk) return kTfLiteError;
    }
  }
  for (int n = 0; n < kernel->count; ++n) {
    if (compute(context, kernel, n) != kTfLiteOk) return kTfLiteError;
    for (int i = 0; i < node->outputs->size; ++i) {
      if (node->outputs->data[i] != kernel->nodes[n].out) continue;
      if (deliver(context, kernel, n) != kTfLiteOk) return kTfLiteError;
    }
  }
  kernel->runs++;
  return kTfLiteOk;
}

static TfLiteStatus copy_from(TfLiteContext* context, struct TfLiteDelegate* delegate, TfLiteBufferHandle handle,
                              TfLiteTensor* tensor) {
  const Kernel* kernel = ((Adder*)delegate->data_)->last;
  (void)context;
  if (handle != 17 || kernel->nodes[kernel->delivered].bytes != tensor->bytes) return kTfLiteError;
  memcpy(tensor->data.data, kernel->nodes[kernel->delivered].sum, tensor->bytes);
  return kTfLiteOk;
}

static void free_handle(TfLiteContext* context, struct TfLiteDelegate* delegate, TfLiteBufferHandle* handle) {
  (void)context;
  if (*handle == 17) note(delegate->data_, "free_handle");
}

static int claims(const TfLiteContext* context, const TfLiteNode* node, const TfLiteRegistration* registration) {
  // The activation is the first param of ADD.
  if (registration->builtin_code != 0 || node->inputs->size != 2 || *(const int*)node->builtin_data != 0) return 0;
  const TfLiteTensor *a = &context->tensors[node->inputs->data[0]], *b = &context->tensors[node->inputs->data[1]];
  if (a->type != kTfLiteFloat32 && a->type != kTfLiteInt64) return 0;
  if (b->dims->size == 0) return 1;
  return a->dims->size == b->dims->size && memcmp(a->dims->data, b->dims->data, sizeof(int) * (size_t)a->dims->size) == 0;
}

static TfLiteStatus misbehave(TfLiteContext* context, const Adder* adder, TfLiteIntArray* nodes,
                              TfLiteRegistration registration) {
  struct TfLiteDelegate* self = (struct TfLiteDelegate*)&adder->delegate;
  struct TfLiteDelegate other = adder->delegate;
  TfLiteNode* node;
  TfLiteRegistration* found;
  const int twice[] = {nodes->data[0], nodes->data[0]}, beyond[] = {1000}, below[] = {-1};
  TfLiteIntArray* wrong = NULL;
  if (is(adder, "prepare_fails")) {
    context->ReportError(context, "no device %d of %s", 7, "acme");
    return kTfLiteDelegateError;
  }
  if (is(adder, "node_out_of_range")) context->GetNodeAndRegistration(context, 9999, &node, &found);
  if (is(adder, "null_place")) context->GetExecutionPlan(context, NULL);
  if (is(adder, "null_nodes")) context->GetNodeAndRegistration(context, nodes->data[0], NULL, NULL);
  if (is(adder, "null_preview")) context->PreviewDelegatePartitioning(context, nodes, NULL, NULL);
  if (is(adder, "null_list")) context->ReplaceNodeSubsetsWithDelegateKernels(context, registration, NULL, self);
  if (is(adder, "subgraph")) context->AcquireSubgraphContext(context, 1, NULL);
  if (is(adder, "other_delegate")) context->ReplaceNodeSubsetsWithDelegateKernels(context, registration, nodes, &other);
  if (is(adder, "null_invoke")) {
    registration.invoke = NULL;
    context->ReplaceNodeSubsetsWithDelegateKernels(context, registration, nodes, self);
  }
  if (is(adder, "null_context")) return context->GetExecutionPlan(NULL, &wrong);
  if (is(adder, "repeated")) wrong = list(2, twice);
  if (is(adder, "beyond")) wrong = list(1, beyond);
  if (is(adder, "below")) wrong = list(1, below);
  if (is(adder, "negative_size")) {
    wrong = list(1, below);
    wrong->size = -5;
  }
  if (wrong) {
    context->ReplaceNodeSubsetsWithDelegateKernels(context, registration, wrong, self);
    free(wrong);
  }
  return kTfLiteOk;
}

static TfLiteStatus prepare(TfLiteContext* context, struct TfLiteDelegate* delegate) {
  Adder* adder = delegate->data_;
  TfLiteIntArray* plan;
  if (context->GetExecutionPlan(context, &plan) != kTfLiteOk) return kTfLiteError;
  TfLiteIntArray* nodes = list(plan->size, NULL);
  nodes->size = 0;
  for (int i = 0; i < plan->size; ++i) {
    TfLiteNode* node;
    TfLiteRegistration* registration;
    if (context->GetNodeAndRegistration(context, plan->data[i], &node, &registration) != kTfLiteOk) return kTfLiteError;
    if (claims(context, node, registration)) nodes->data[nodes->size++] = plan->data[i];
  }
  TfLiteRegistration registration = {kernel_init, kernel_free, kernel_prepare, kernel_invoke, NULL, 0, "Adder", 1, NULL,
                                     NULL, 0};
  TfLiteStatus status = nodes->size ? misbehave(context, adder, nodes, registration) : kTfLiteOk;
  if (status == kTfLiteOk) {
    status = context->ReplaceNodeSubsetsWithDelegateKernels(context, registration, nodes, delegate);
  }
  if (is(adder, "twice")) context->ReplaceNodeSubsetsWithDelegateKernels(context, registration, nodes, delegate);
  free(nodes);
  return status;
}

EXPORT struct TfLiteDelegate* tflite_plugin_create_delegate(char** keys, char** values, size_t count,
                                                            void (*report_error)(const char*)) {
  Adder* adder = calloc(1, sizeof *adder);
  adder->delegate.data_ = adder;
  adder->delegate.Prepare = prepare;
  for (size_t i = 0; i < count; ++i) {
    if (strcmp(keys[i], "as") == 0) {
      strncpy(adder->as, values[i], sizeof adder->as - 1);
    } else if (strcmp(keys[i], "log") == 0) {
      strncpy(adder->log, values[i], sizeof adder->log - 1);
    } else {
      report_error("there are the options as and log");
      free(adder);
      return NULL;
    }
  }
  if (is(adder, "no_prepare") || is(adder, "opaque")) adder->delegate.Prepare = NULL;
  if (is(adder, "opaque")) adder->delegate.opaque_delegate_builder = (void*)adder;
  if (is(adder, "flags")) adder->delegate.flags = 0x7fffffffffff;
  if (is(adder, "dynamic_graph")) adder->delegate.flags = 1;
  if (is(adder, "buffer")) {
    adder->delegate.CopyFromBufferHandle = copy_from;
    adder->delegate.FreeBufferHandle = free_handle;
  }
  return &adder->delegate;
}

EXPORT void tflite_plugin_destroy_delegate(struct TfLiteDelegate* delegate) {
  note(delegate->data_, "destroy");
  free(delegate->data_);
}
