// Runs a model through the C API. Compiled as C and as C++ by scripts/check_c.sh.

#include <stdio.h>
#include <string.h>

#include "tensorflow/lite/c/c_api.h"
#include "tensorflow/lite/c/c_api_experimental.h"
#include "tensorflow/lite/c/common.h"

#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition);   \
      return 1;                                                             \
    }                                                                       \
  } while (0)

struct messages {
  int count;
  char last[512];
};

static void report(void* user_data, const char* format, va_list args) {
  struct messages* messages = (struct messages*)user_data;
  messages->count += 1;
  vsnprintf(messages->last, sizeof messages->last, format, args);
}

int main(int argc, char** argv) {
  struct messages messages = {0, ""};
  float pixels[64], scores[10], sum = 0;
  int i;
  CHECK(argc == 2);
  CHECK(TfLiteModelCreateFromFileWithErrorReporter("no such file", report, &messages) == NULL);
  CHECK(messages.count == 1 && strstr(messages.last, "no such file") != NULL);

  TfLiteModel* model = TfLiteModelCreateFromFile(argv[1]);
  TfLiteInterpreterOptions* options = TfLiteInterpreterOptionsCreate();
  TfLiteInterpreterOptionsSetNumThreads(options, 2);
  TfLiteInterpreterOptionsSetErrorReporter(options, report, &messages);
  TfLiteInterpreter* interpreter = TfLiteInterpreterCreate(model, options);
  TfLiteInterpreterOptionsDelete(options);
  CHECK(interpreter != NULL);
  CHECK(TfLiteInterpreterInvoke(interpreter) == kTfLiteError && messages.count == 2);
  CHECK(TfLiteInterpreterAllocateTensors(interpreter) == kTfLiteOk);

  TfLiteTensor* input = TfLiteInterpreterGetInputTensor(interpreter, 0);
  const TfLiteTensor* output = TfLiteInterpreterGetOutputTensor(interpreter, 0);
  CHECK(TfLiteTensorType(input) == kTfLiteFloat32 && TfLiteTensorNumDims(input) == 4);
  CHECK(TfLiteTensorByteSize(input) == sizeof pixels && input->bytes == sizeof pixels);
  CHECK(input->dims->size == 4 && input->dims->data[1] == TfLiteTensorDim(input, 1));
  CHECK(input->data.raw == (char*)TfLiteTensorData(input) && input->allocation_type == kTfLiteArenaRw);
  CHECK(strcmp(TfLiteTypeGetName(TfLiteTensorType(input)), "FLOAT32") == 0);
  for (i = 0; i < 64; i++) pixels[i] = (float)(i % 8) / 8;
  CHECK(TfLiteTensorCopyFromBuffer(input, pixels, sizeof pixels) == kTfLiteOk);
  CHECK(TfLiteInterpreterInvoke(interpreter) == kTfLiteOk);
  CHECK(TfLiteTensorCopyToBuffer(output, scores, sizeof scores) == kTfLiteOk);
  for (i = 0; i < 10; i++) sum += scores[i];
  CHECK(sum > 0.99f && sum < 1.01f);
  CHECK(TfLiteInterpreterGetVariableTensorCount(interpreter) == 0);

  TfLiteInterpreterDelete(interpreter);
  TfLiteModelDelete(model);
  CHECK(messages.count == 2);
  return 0;
}
