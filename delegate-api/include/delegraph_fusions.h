/* The interface between Delegraph and fusions in shared libraries, for authors in C and C++.
 *
 * Generated from src/plugin/fusions_abi.rs of delegraph-delegate-api, whose test `header` holds the two together.
 * How to write a library of fusions: docs/fusion.md and examples/fusions.
 *
 * The interface between an application and a library of fusions, which rewrite models. What such a library has in common
 * with a delegate is in `delegraph_plugin.h`, and so are the rules for changes of the interface.
 *
 * A model crosses as the bytes of a `.tflite` file: the library returns another file, which the application checks like
 * any other. Nothing is shared.
 */
#ifndef DELEGRAPH_FUSIONS_H
#define DELEGRAPH_FUSIONS_H

#include "delegraph_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Fusion: it replaces marked composites of its name, before their bodies take their places. Without this flag, it
 * replaces patterns of nodes. */
#define DELEGRAPH_FUSION_COMPOSITE 1u

/** A fusion of a library. This struct does not grow. */
typedef struct DelegraphFusion {
    /** Its name, terminated by zero: that of the composites, or one that reports and `--skip` use. */
    const char *name;
    /** `DELEGRAPH_FUSION_…`. */
    uint32_t flags;
    /** How often outputs may be off by the usual tolerance: 1 or more. */
    double tolerance;
} DelegraphFusion;

/** Functions of the application that take a fusion's results, during the call of `rewrite` that they are given to. */
typedef struct DelegraphFusionResult {
    /** Bytes of this struct. */
    size_t size;
    /** What the functions are given. */
    void *context;
    /** Takes the rewritten model, the bytes of a file. If it is not called, the model stays as it is. */
    void (*set_model)(void *context, const uint8_t *data, size_t len);
    /** Takes a change, for reports: the subgraph, the tensor that the nodes compute, and the names of the ops that are gone
     * and of those that took their place, separated by line breaks. */
    void (*add_change)(void *context, size_t subgraph, DelegraphText tensor, DelegraphText from, DelegraphText to);
    /** Takes a composite that was left, with the reason. */
    void (*add_left)(void *context, size_t subgraph, DelegraphText tensor, DelegraphText reason);
} DelegraphFusionResult;

/** A library of fusions. It exports one function without parameters, `delegraph_fusion_library`, that returns the address
 * of this table, which lives as long as the library is loaded.
 *
 * The functions are called by one thread at a time. No function may unwind: neither panics nor exceptions cross. */
typedef struct DelegraphFusionLibrary {
    /** `DELEGRAPH_ABI_VERSION`. */
    uint32_t abi_version;
    /** Bytes of this struct. */
    size_t size;
    /** May be null. Called once, before anything else: `library` takes what the other functions are given, or stays null.
     * Where it fails, but `library` is set, that is closed. */
    int32_t (*open)(const DelegraphHost *host, void **library, DelegraphError *error);
    /** May be null. Called once, at the end; not where `library` is null. */
    void (*close)(void *library);
    /** The fusions. Valid until `close`. */
    const DelegraphFusion * (*fusions)(void *library, size_t *count);
    /** Rewrites a model, the bytes of a file that are valid during the call, with the fusion of this index. Everything that
     * the fusion can replace is replaced. */
    int32_t (*rewrite)(void *library, size_t fusion, const uint8_t *data, size_t len, const DelegraphFusionResult *result, DelegraphError *error);
} DelegraphFusionLibrary;

/** The function that a library of fusions exports. */
DELEGRAPH_EXPORT const DelegraphFusionLibrary *delegraph_fusion_library(void);

#ifdef __cplusplus
}
#endif

#endif
