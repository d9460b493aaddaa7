// A custom op: gives TensorFlow Lite's C API a kernel for the op "Sin", and runs a model that uses it.
//
//     cc custom_op.c $(pkg-config --cflags --libs tensorflowlite_c) -lm -o custom_op && ./custom_op model.tflite 1.5

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tensorflow/lite/c/c_api.h"
#include "tensorflow/lite/c/c_api_opaque.h"

// The output has the shape of the input.
static TfLiteStatus prepare(void* user_data, TfLiteOpaqueContext* context, TfLiteOpaqueNode* node) {
  const TfLiteOpaqueTensor* input = TfLiteOpaqueNodeGetInput(context, node, 0);
  TfLiteOpaqueTensor* output = TfLiteOpaqueNodeGetOutput(context, node, 0);
  TfLiteIntArray* shape;
  int i;
  (void)user_data;
  TF_LITE_OPAQUE_ENSURE(context, input != NULL && output != NULL);
  TF_LITE_OPAQUE_ENSURE_TYPES_EQ(context, TfLiteOpaqueTensorType(input), kTfLiteFloat32);
  shape = TfLiteIntArrayCreate(TfLiteOpaqueTensorNumDims(input));
  TF_LITE_OPAQUE_ENSURE(context, shape != NULL);
  for (i = 0; i < shape->size; ++i) shape->data[i] = TfLiteOpaqueTensorDim(input, i);
  return TfLiteOpaqueContextResizeTensor(context, output, shape);
}

static TfLiteStatus invoke(void* user_data, TfLiteOpaqueContext* context, TfLiteOpaqueNode* node) {
  const TfLiteOpaqueTensor* input = TfLiteOpaqueNodeGetInput(context, node, 0);
  TfLiteOpaqueTensor* output = TfLiteOpaqueNodeGetOutput(context, node, 0);
  const float* from = (const float*)TfLiteOpaqueTensorData(input);
  float* to = (float*)TfLiteOpaqueTensorData(output);
  size_t i, count = TfLiteOpaqueTensorByteSize(output) / sizeof(float);
  *(int*)user_data += 1;
  for (i = 0; i < count; ++i) to[i] = sinf(from[i]);
  return kTfLiteOk;
}

int main(int argc, char** argv) {
  int runs = 0, status = 1;
  float value;
  TfLiteOperator* sin_op;
  TfLiteModel* model;
  TfLiteInterpreterOptions* options;
  TfLiteInterpreter* interpreter;
  if (argc != 3) return 2;
  value = (float)atof(argv[2]);

  sin_op = TfLiteOperatorCreate(kTfLiteBuiltinCustom, "Sin", 1, &runs);
  TfLiteOperatorSetPrepareWithData(sin_op, prepare);
  TfLiteOperatorSetInvokeWithData(sin_op, invoke);
  options = TfLiteInterpreterOptionsCreate();
  TfLiteInterpreterOptionsAddOperator(options, sin_op);

  model = TfLiteModelCreateFromFile(argv[1]);
  interpreter = TfLiteInterpreterCreate(model, options);
  if (TfLiteInterpreterAllocateTensors(interpreter) == kTfLiteOk) {
    const TfLiteTensor* output = TfLiteInterpreterGetOutputTensor(interpreter, 0);
    TfLiteTensor* input = TfLiteInterpreterGetInputTensor(interpreter, 0);
    float* values = (float*)TfLiteTensorData(input);
    size_t i, count = TfLiteTensorByteSize(input) / sizeof(float);
    for (i = 0; i < count; ++i) values[i] = value;
    if (TfLiteInterpreterInvoke(interpreter) == kTfLiteOk) {
      printf("custom_op: %g, after %d run\n", (double)*(const float*)TfLiteTensorData(output), runs);
      status = 0;
    }
  }
  TfLiteInterpreterDelete(interpreter);
  TfLiteModelDelete(model);
  TfLiteInterpreterOptionsDelete(options);
  TfLiteOperatorDelete(sin_op);
  return status;
}
