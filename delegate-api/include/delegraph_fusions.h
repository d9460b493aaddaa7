/* The interface between Delegraph and fusions in shared libraries, for authors in C and C++.
 *
 * Generated from src/plugin/fusions_abi.rs of delegraph-delegate-api, whose test `header` holds the two together.
 * How to write a library of fusions: docs/fusion.md and examples/fusions.
 *
 * The interface between an application and a library of fusions, which rewrite models. Declarations that such a
 * library shares with a delegate, and the rules for changes of the interface, are in `delegraph_plugin.h`.
 *
 * A model is passed as the bytes of a `.tflite` file. The library returns another file, which the application checks
 * like any other. The two share no memory.
 */
#ifndef DELEGRAPH_FUSIONS_H
#define DELEGRAPH_FUSIONS_H

#include "delegraph_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Fusion: it replaces marked composites of its name, before they are inlined. Without this flag, it replaces patterns
 * of nodes. */
#define DELEGRAPH_FUSION_COMPOSITE 1u

/** A fusion of a library. This struct does not grow. */
typedef struct DelegraphFusion {
    /** Its name, zero-terminated: that of the composites, or a name for reports and `--skip`. */
    const char *name;
    /** `DELEGRAPH_FUSION_…`. */
    uint32_t flags;
    /** The factor by which outputs may differ more than the usual tolerance, at least 1. */
    double tolerance;
} DelegraphFusion;

/** Functions of the application that receive a fusion's results. Valid during the call of `rewrite`. */
typedef struct DelegraphFusionResult {
    /** Bytes of this struct. */
    size_t size;
    /** The argument of the functions. */
    void *context;
    /** Takes the rewritten model, the bytes of a file. If it is not called, the model stays unchanged. */
    void (*set_model)(void *context, const uint8_t *data, size_t len);
    /** Takes a change, for reports: the subgraph, the tensor that the nodes compute, and the names of the removed and of
     * the new ops, separated by line breaks. */
    void (*add_change)(void *context, size_t subgraph, DelegraphText tensor, DelegraphText from, DelegraphText to);
    /** Takes a composite that was not replaced, with the reason. */
    void (*add_unchanged)(void *context, size_t subgraph, DelegraphText tensor, DelegraphText reason);
} DelegraphFusionResult;

/** A library of fusions. It exports one function without parameters, `delegraph_fusion_library`, that returns the address
 * of this table, which is valid as long as the library is loaded.
 *
 * One thread at a time calls the functions. They must not unwind: panics and exceptions must not cross the interface. */
typedef struct DelegraphFusionLibrary {
    /** `DELEGRAPH_ABI_VERSION`. */
    uint32_t abi_version;
    /** Bytes of this struct. */
    size_t size;
    /** May be null. Called once, before all other functions, which receive `library`; it may remain null. If the call fails
     * and `library` is set, the library is closed. */
    int32_t (*open)(const DelegraphHost *host, void **library, DelegraphError *error);
    /** May be null. Called once, at the end, unless `library` is null. */
    void (*close)(void *library);
    /** Returns the fusions. Valid until `close`. */
    const DelegraphFusion * (*fusions)(void *library, size_t *count);
    /** Rewrites a model with the fusion of this index. The bytes of the model are valid during the call. The fusion
     * replaces everything that it can. */
    int32_t (*rewrite)(void *library, size_t fusion, const uint8_t *data, size_t len, const DelegraphFusionResult *result, DelegraphError *error);
} DelegraphFusionLibrary;

/** The function that a library of fusions exports. */
DELEGRAPH_EXPORT const DelegraphFusionLibrary *delegraph_fusion_library(void);

#ifdef __cplusplus
}
#endif

#endif
