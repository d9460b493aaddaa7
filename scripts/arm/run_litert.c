// Runs a model on zeros with LiteRT's C API: `run_litert RUNS MODEL`. See scripts/count_instructions.py.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The part of LiteRT 2's C API that is used here: handles are pointers, the status 0 is success.
typedef void *Handle;
typedef struct {
    int element;
    unsigned rank_and_flags;
    int32_t dimensions[8];
    uint32_t strides[8];
} TensorType;
enum { CPU = 1, WRITE = 1, MAX_TENSORS = 64 };
int LiteRtCreateEnvironment(int, const void *, Handle *);
int LiteRtCreateModelFromFile(Handle, const char *, Handle *);
int LiteRtCreateOptions(Handle *);
int LiteRtSetOptionsHardwareAccelerators(Handle, int);
int LiteRtCreateCompiledModel(Handle, Handle, Handle, Handle *);
int LiteRtGetModelSignature(Handle, size_t, Handle *);
int LiteRtGetNumSignatureInputs(Handle, size_t *);
int LiteRtGetNumSignatureOutputs(Handle, size_t *);
int LiteRtGetSignatureInputTensorByIndex(Handle, size_t, Handle *);
int LiteRtGetSignatureOutputTensorByIndex(Handle, size_t, Handle *);
int LiteRtGetRankedTensorType(Handle, TensorType *);
int LiteRtGetCompiledModelInputBufferRequirements(Handle, size_t, size_t, Handle *);
int LiteRtGetCompiledModelOutputBufferRequirements(Handle, size_t, size_t, Handle *);
int LiteRtCreateManagedTensorBufferFromRequirements(Handle, const TensorType *, Handle, Handle *);
int LiteRtRunCompiledModel(Handle, size_t, size_t, Handle *, size_t, Handle *);
int LiteRtGetTensorBufferPackedSize(Handle, size_t *);
int LiteRtLockTensorBuffer(Handle, void **, int);
int LiteRtUnlockTensorBuffer(Handle);

static void check(const char *what, int status) {
    if (status) {
        fprintf(stderr, "%s: status %d\n", what, status);
        exit(1);
    }
}
#define CHECK(call) check(#call, call)

int main(int argc, char **argv) {
    Handle env, model, options, compiled, signature, tensor, needs, in[MAX_TENSORS], out[MAX_TENSORS];
    TensorType type;
    size_t inputs, outputs, size;
    void *bytes;
    if (argc != 3) {
        return 2;
    }
    CHECK(LiteRtCreateEnvironment(0, NULL, &env));
    CHECK(LiteRtCreateModelFromFile(env, argv[2], &model));
    CHECK(LiteRtCreateOptions(&options));
    CHECK(LiteRtSetOptionsHardwareAccelerators(options, CPU));
    CHECK(LiteRtCreateCompiledModel(env, model, options, &compiled));
    CHECK(LiteRtGetModelSignature(model, 0, &signature));
    CHECK(LiteRtGetNumSignatureInputs(signature, &inputs));
    CHECK(LiteRtGetNumSignatureOutputs(signature, &outputs));
    check("number of tensors", inputs > MAX_TENSORS || outputs > MAX_TENSORS);
    for (size_t i = 0; i < inputs; i++) {
        CHECK(LiteRtGetSignatureInputTensorByIndex(signature, i, &tensor));
        CHECK(LiteRtGetRankedTensorType(tensor, &type));
        CHECK(LiteRtGetCompiledModelInputBufferRequirements(compiled, 0, i, &needs));
        CHECK(LiteRtCreateManagedTensorBufferFromRequirements(env, &type, needs, &in[i]));
        CHECK(LiteRtGetTensorBufferPackedSize(in[i], &size));
        CHECK(LiteRtLockTensorBuffer(in[i], &bytes, WRITE));
        memset(bytes, 0, size);
        CHECK(LiteRtUnlockTensorBuffer(in[i]));
    }
    for (size_t i = 0; i < outputs; i++) {
        CHECK(LiteRtGetSignatureOutputTensorByIndex(signature, i, &tensor));
        CHECK(LiteRtGetRankedTensorType(tensor, &type));
        CHECK(LiteRtGetCompiledModelOutputBufferRequirements(compiled, 0, i, &needs));
        CHECK(LiteRtCreateManagedTensorBufferFromRequirements(env, &type, needs, &out[i]));
    }
    for (int i = atoi(argv[1]); i > 0; i--) {
        CHECK(LiteRtRunCompiledModel(compiled, 0, inputs, in, outputs, out));
    }
    return 0;
}
