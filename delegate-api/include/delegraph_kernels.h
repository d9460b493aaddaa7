/* The interface between Delegraph and kernels of custom ops in shared libraries, for authors in C and C++.
 *
 * Generated from src/plugin/ops_abi.rs of delegraph-delegate-api, whose test `header` holds the two together.
 * How to write a library of kernels: docs/custom-ops.md and examples/kernels-c.
 *
 * The interface between an application and a library of kernels for custom ops. Declarations that such a library
 * shares with a delegate, and the rules for changes of the interface, are in `delegraph_plugin.h`.
 */
#ifndef DELEGRAPH_KERNELS_H
#define DELEGRAPH_KERNELS_H

#include "delegraph_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Op: running it has effects beyond its outputs. Its nodes keep their order and are never folded. */
#define DELEGRAPH_OP_SIDE_EFFECTS 1u

/** Versions of a custom op for which a library has a kernel. This struct does not grow. */
typedef struct DelegraphCustomOp {
    /** The op's name, zero-terminated. */
    const char *name;
    /** The lowest version. */
    uint32_t min_version;
    /** The highest version. */
    uint32_t max_version;
    /** `DELEGRAPH_OP_…`. */
    uint32_t flags;
} DelegraphCustomOp;

/** The node for which a kernel is created, as in the model's file. Its pointers are valid during the call only. */
typedef struct DelegraphOpNode {
    /** Bytes of this struct. */
    size_t size;
    /** The index of the op in the list that `ops` returns. */
    size_t op;
    /** The name of the op. */
    DelegraphText name;
    /** The version of the op. */
    uint32_t version;
    /** The op's options: by convention a FlexBuffer map, which `option_i64` and similar functions read; an op may
     * define another format. */
    const uint8_t *options;
    /** Number of bytes of the options. */
    size_t options_len;
    /** Inputs: type, name, quantization, and the shape in the file, which may change before `prepare_kernel`.
     * `data` is null. An omitted input is a null pointer. */
    const DelegraphTensor *const *inputs;
    /** Their number, including omitted inputs. */
    size_t input_count;
    /** Outputs, described like inputs. None of the pointers is null. */
    const DelegraphTensor *const *outputs;
    /** Their number. */
    size_t output_count;
} DelegraphOpNode;

/** A library of kernels. It exports one function without parameters, `delegraph_kernel_library`, that returns the
 * address of this table, which is valid as long as the library is loaded.
 *
 * Several threads may create kernels at the same time. A kernel is used by one thread at a time, which may change
 * between calls. No function may unwind: panics and exceptions must not cross the interface. */
typedef struct DelegraphKernelLibrary {
    /** `DELEGRAPH_ABI_VERSION`. */
    uint32_t abi_version;
    /** Bytes of this struct. */
    size_t size;
    /** May be null. Called once, before all other functions. `library` is passed to `close`, `ops` and `create_kernel`;
     * it may remain null. If the call fails and `library` is set, the library is closed. */
    int32_t (*open)(const DelegraphHost *host, void **library, DelegraphError *error);
    /** May be null. Called once, after all kernels are destroyed, unless `library` is null. */
    void (*close)(void *library);
    /** Returns the ops that have kernels. Valid until `close`. */
    const DelegraphCustomOp * (*ops)(void *library, size_t *count);
    /** Creates the kernel of a node. If the call fails and `kernel` is set, the kernel is destroyed. */
    int32_t (*create_kernel)(void *library, const DelegraphHost *host, DelegraphContext context, const DelegraphOpNode *node, void **kernel, DelegraphError *error);
    /** May be null. Destroys a kernel; called once per kernel that is not null. */
    void (*destroy_kernel)(void *kernel);
    /** Checks the operands, sets the shape of every output (`set_output_shape`, or `set_output_dynamic` if it depends
     * on data), and requests temporaries. Called before the first run and whenever a shape changes, and possibly more
     * often. */
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
