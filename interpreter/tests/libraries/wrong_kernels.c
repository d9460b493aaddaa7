/* A library of kernels that breaks the interface in the way that a definition selects. */
#include <stdio.h>
#include <stdlib.h>

#include "delegraph_kernels.h"

#ifndef VERSION
#define VERSION DELEGRAPH_ABI_VERSION
#endif
#ifndef SIZE
#define SIZE sizeof table
#endif
#ifndef TABLE
#define TABLE &table
#endif
#ifndef INVOKE
#define INVOKE invoke_kernel
#endif
#ifndef OPS_LIST
#define OPS_LIST &op
#endif
#ifndef OPS_COUNT
#define OPS_COUNT 1
#endif
#ifndef OP_NAME
#define OP_NAME "Wrong"
#endif
#ifndef LOWEST
#define LOWEST 1
#endif
#ifndef OPEN_STATUS
#define OPEN_STATUS DELEGRAPH_OK
#endif
#ifndef CREATE_STATUS
#define CREATE_STATUS DELEGRAPH_OK
#endif
#ifndef INVOKE_STATUS
#define INVOKE_STATUS DELEGRAPH_OK
#endif
#ifndef RANK
#define RANK call->inputs[0]->rank
#endif
#ifndef OUTPUT
#define OUTPUT 0
#endif
#ifndef EXTENT
#define EXTENT call->inputs[0]->dims[0]
#endif
#ifndef MESSAGE_LENGTH
#define MESSAGE_LENGTH (size_t)len
#endif

static const DelegraphHost *application;

static int32_t say(DelegraphError *error, int32_t status, const char *text) {
    int len = snprintf(error->message, error->capacity, "%s", text);
    (void)len;
    if (status != DELEGRAPH_OK) {
        error->len = MESSAGE_LENGTH;
    }
    return status;
}

static int32_t open_library(const DelegraphHost *host, void **library, DelegraphError *error) {
    application = host;
    *library = malloc(1);
    return say(error, OPEN_STATUS, "no such device");
}

static void close_library(void *library) {
    free(library);
}

static const DelegraphCustomOp *ops(void *library, size_t *count) {
    static const DelegraphCustomOp op = {.name = OP_NAME, .min_version = LOWEST, .max_version = 1};
    (void)library;
    (void)op;
    *count = OPS_COUNT;
    return OPS_LIST;
}

static int32_t create_kernel(void *library, const DelegraphHost *host, DelegraphContext context,
                             const DelegraphOpNode *node, void **kernel, DelegraphError *error) {
    (void)library;
    (void)node;
    *kernel = malloc(1);
#ifdef MISUSE
    host->set_output_shape(context, 0, NULL, 0);
#else
    (void)host;
    (void)context;
#endif
    return say(error, CREATE_STATUS, "wrong on purpose");
}

static void destroy_kernel(void *kernel) {
    free(kernel);
}

static int32_t prepare_kernel(void *kernel, DelegraphContext context, const DelegraphKernelCall *call,
                              DelegraphError *error) {
    size_t dims[1] = {EXTENT};
    (void)kernel;
    (void)error;
#ifdef RESIZED
    (void)dims;
    return application->set_output_dynamic(context, 0);
#else
    return application->set_output_shape(context, OUTPUT, dims, RANK);
#endif
}

static int32_t invoke_kernel(void *kernel, DelegraphContext context, const DelegraphKernelCall *call,
                             DelegraphError *error) {
    (void)kernel;
    (void)context;
    (void)call;
#ifdef RESIZED
    void *data;
    int32_t status = application->resize_output(context, 0, call->inputs[0]->dims, 1, RESIZED, &data);
    if (status != DELEGRAPH_OK) {
        return status;
    }
#endif
    return say(error, INVOKE_STATUS, "wrong on purpose");
}

DELEGRAPH_EXPORT const DelegraphKernelLibrary *delegraph_kernel_library(void) {
    static const DelegraphKernelLibrary table = {
        .abi_version = VERSION,
        .size = SIZE,
        .open = open_library,
        .close = close_library,
        .ops = ops,
        .create_kernel = create_kernel,
        .destroy_kernel = destroy_kernel,
        .prepare_kernel = prepare_kernel,
        .invoke_kernel = INVOKE,
    };
    (void)table;
    (void)invoke_kernel;
    return TABLE;
}
