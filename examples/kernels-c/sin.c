/* Kernels of custom ops in a shared library, in C: Sin, and Power, whose exponent is an option.
 *
 *     cc -shared -fPIC -O2 -I delegate-api/include -o libsin.so examples/kernels-c/sin.c -lm
 *     delegraph run assets/custom/sin.tflite --ops plugin:./libsin.so
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "delegraph_kernels.h"

enum { SIN, POWER, OPS };

/* The state of a node. */
typedef struct Kernel {
    const DelegraphHost *host;
    size_t op;
    double exponent;
} Kernel;

static int32_t fail(DelegraphError *error, int32_t status, const char *text) {
    int len = snprintf(error->message, error->capacity, "%s", text);
    error->len = len < 0 ? 0 : (size_t)len < error->capacity ? (size_t)len : error->capacity;
    return status;
}

static const DelegraphCustomOp *ops(void *library, size_t *count) {
    static const DelegraphCustomOp list[OPS] = {
        {.name = "Sin", .min_version = 1, .max_version = 1},
        {.name = "Power", .min_version = 1, .max_version = 1},
    };
    (void)library;
    *count = OPS;
    return list;
}

static int32_t create_kernel(void *library, const DelegraphHost *host, DelegraphContext context,
                             const DelegraphOpNode *node, void **kernel, DelegraphError *error) {
    (void)library;
    if (node->input_count != 1 || node->output_count != 1) {
        return fail(error, DELEGRAPH_INVALID, "one input and one output are wanted");
    }
    /* Checks before allocations: an error path has nothing to free. */
    double exponent = 0;
    if (node->op == POWER) {
        int32_t status = host->option_f64(context, "exponent", &exponent);
        if (status != DELEGRAPH_OK) {
            return status; /* The host adds the message about the option. */
        }
    }
    Kernel *made = malloc(sizeof *made);
    if (made == NULL) {
        return fail(error, DELEGRAPH_OUT_OF_MEMORY, "no memory for the kernel");
    }
    *made = (Kernel){.host = host, .op = node->op, .exponent = exponent};
    *kernel = made;
    return DELEGRAPH_OK;
}

static void destroy_kernel(void *kernel) {
    free(kernel);
}

static int32_t prepare_kernel(void *kernel, DelegraphContext context, const DelegraphKernelCall *call,
                              DelegraphError *error) {
    const Kernel *self = kernel;
    const DelegraphBuffer *input = call->inputs[0];
    if (input->element_type != 0 || call->outputs[0]->element_type != 0) {
        return fail(error, DELEGRAPH_UNSUPPORTED, "this kernel takes FLOAT32");
    }
    return self->host->set_output_shape(context, 0, input->dims, input->rank);
}

static int32_t invoke_kernel(void *kernel, DelegraphContext context, const DelegraphKernelCall *call,
                             DelegraphError *error) {
    const Kernel *self = kernel;
    const float *x = call->inputs[0]->data;
    float *y = call->outputs[0]->data;
    size_t n = call->outputs[0]->data_len / sizeof *y;
    (void)context;
    if (call->inputs[0]->data_len != call->outputs[0]->data_len) {
        return fail(error, DELEGRAPH_INVALID, "input and output differ in size");
    }
    for (size_t i = 0; i < n; i++) {
        y[i] = self->op == SIN ? sinf(x[i]) : powf(x[i], (float)self->exponent);
    }
    return DELEGRAPH_OK;
}

DELEGRAPH_EXPORT const DelegraphKernelLibrary *delegraph_kernel_library(void) {
    static const DelegraphKernelLibrary table = {
        .abi_version = DELEGRAPH_ABI_VERSION,
        .size = sizeof table,
        .ops = ops,
        .create_kernel = create_kernel,
        .destroy_kernel = destroy_kernel,
        .prepare_kernel = prepare_kernel,
        .invoke_kernel = invoke_kernel,
    };
    return &table;
}
