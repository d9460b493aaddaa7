/* The interface between Delegraph and kernels of custom ops in shared libraries, for authors in C and C++.
 *
 * Generated from src/plugin/ops_abi.rs of delegraph-delegate-api, whose test `header` holds the two together.
 * How to write a library of kernels: docs/custom-ops.md and examples/kernels-c.
 *
 * What crosses between an application and a library of kernels for custom ops. Everything that such a library has in
 * common with a delegate is in `delegraph_plugin.h`, along with how the interface may grow.
 */
#ifndef DELEGRAPH_KERNELS_H
#define DELEGRAPH_KERNELS_H

#include "delegraph_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Op: running it does more than compute its outputs. Its nodes keep their order and are never computed ahead. */
#define DELEGRAPH_OP_SIDE_EFFECTS 1u

/** Versions of a custom op that a library has a kernel for. This struct does not grow. */
typedef struct DelegraphCustomOp {
    /** Its name, terminated by zero. */
    const char *name;
    /** The lowest version. */
    uint32_t min_version;
    /** The highest version. */
    uint32_t max_version;
    /** `DELEGRAPH_OP_…`. */
    uint32_t flags;
} DelegraphCustomOp;

/** The node that a kernel is made for, as the model's file has it. What it points to is valid during the call: copy what
 * the kernel needs. */
typedef struct DelegraphOpNode {
    /** Bytes of this struct. */
    size_t size;
    /** Which of the library's ops it is, in the order in which `ops` lists them. */
    size_t op;
    /** The name of the op. */
    DelegraphText name;
    /** The version that the model asks for. */
    uint32_t version;
    /** The op's options: a FlexBuffer map by custom, for which the application has `option_i64` and the like; otherwise
     * whatever the op says. */
    const uint8_t *options;
    /** Bytes of them. */
    size_t options_len;
    /** Inputs: type, name, quantization, and the shape of the file, which may change before `prepare_kernel`. There is no
     * data. An input that the node leaves out is null. */
    const DelegraphTensor *const *inputs;
    /** How many, those left out included. */
    size_t input_count;
    /** Outputs, in the same way. */
    const DelegraphTensor *const *outputs;
    /** How many. */
    size_t output_count;
} DelegraphOpNode;

/** A library of kernels. It exports one function without parameters, `delegraph_kernel_library`, that returns the address
 * of this table, which lives as long as the library is loaded.
 *
 * Several threads may make kernels at the same time; a kernel is used by one thread at a time, not always the same one.
 * No function may unwind: neither panics nor exceptions cross. */
typedef struct DelegraphKernelLibrary {
    /** `DELEGRAPH_ABI_VERSION`. */
    uint32_t abi_version;
    /** Bytes of this struct. */
    size_t size;
    /** May be null. Called once, before anything else: `library` takes what the other functions are given, or stays null.
     * Where it fails, but `library` is set, that is closed. */
    int32_t (*open)(const DelegraphHost *host, void **library, DelegraphError *error);
    /** May be null. Called once, when all kernels are destroyed; not where `library` is null. */
    void (*close)(void *library);
    /** The ops that there are kernels for. Valid until `close`. */
    const DelegraphCustomOp * (*ops)(void *library, size_t *count);
    /** Makes the kernel of a node. Where it fails, but `kernel` is set, that is destroyed. */
    int32_t (*create_kernel)(void *library, const DelegraphHost *host, DelegraphContext context, const DelegraphOpNode *node, void **kernel, DelegraphError *error);
    /** May be null. Destroys a kernel, once. */
    void (*destroy_kernel)(void *kernel);
    /** Checks the operands, gives every output its shape (`set_output_shape`, or `set_output_dynamic` where data decides),
     * and asks for temporaries. Called before the first run and again whenever a shape changed, at times more often. */
    int32_t (*prepare_kernel)(void *kernel, DelegraphContext context, const DelegraphKernelCall *call, DelegraphError *error);
    /** Computes the outputs from the inputs. */
    int32_t (*invoke_kernel)(void *kernel, DelegraphContext context, const DelegraphKernelCall *call, DelegraphError *error);
} DelegraphKernelLibrary;

/** The function that a library of kernels exports. */
DELEGRAPH_EXPORT const DelegraphKernelLibrary *delegraph_kernel_library(void);

#ifdef __cplusplus
}
#endif

#endif
