/* A library of one fusion, which returns the file MODEL whatever the model is. */
#include <stdio.h>

#include "delegraph_fusions.h"

#ifndef NAME
#define NAME "faulty"
#endif
#ifndef FLAGS
#define FLAGS 0
#endif
#ifndef STATUS
#define STATUS DELEGRAPH_OK
#endif
#ifndef OPEN_STATUS
#define OPEN_STATUS DELEGRAPH_OK
#endif

static const DelegraphFusion fusion = {NAME, FLAGS, 1.0};

static int32_t open_library(const DelegraphHost *host, void **library, DelegraphError *error) {
    (void)host, (void)library, (void)error;
    return OPEN_STATUS;
}

static const DelegraphFusion *fusions(void *library, size_t *count) {
    (void)library;
    *count = 1;
    return &fusion;
}

static int32_t rewrite(void *library, size_t index, const uint8_t *data, size_t len,
                       const DelegraphFusionResult *result, DelegraphError *error) {
    (void)library, (void)index, (void)data, (void)len, (void)error;
    static uint8_t bytes[1 << 16];
    FILE *file = fopen(MODEL, "rb");
    if (!file) {
        return DELEGRAPH_FAILED;
    }
    size_t read = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    result->set_model(result->context, bytes, read);
    return STATUS;
}

DELEGRAPH_EXPORT const DelegraphFusionLibrary *delegraph_fusion_library(void) {
    static const DelegraphFusionLibrary table = {
        .abi_version = DELEGRAPH_ABI_VERSION,
        .size = sizeof table,
        .open = open_library,
        .fusions = fusions,
        .rewrite = rewrite,
    };
    return &table;
}
