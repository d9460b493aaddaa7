// Types of tensors, under the path that TensorFlow's converter has.

#include "tensorflow/lite/core/c/c_api_types.h"
