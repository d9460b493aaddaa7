// The structures between LiteRT's interpreter and a delegate, for the delegates of the tests.

#ifndef DELEGRAPH_TESTS_DELEGATE_H_
#define DELEGRAPH_TESTS_DELEGATE_H_

#include "tensorflow/lite/core/c/common.h"

#endif  // DELEGRAPH_TESTS_DELEGATE_H_
