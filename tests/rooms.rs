//! One op family, one file name in every room. A room that a family does not have is listed here with its reason;
//! a reason that is no longer true fails, too.

use std::collections::BTreeSet;
use std::path::Path;

use delegraph::core::ops::DEFS;

/// Where a family has a file, and the file's extension.
const ROOMS: &[(&str, &str)] = &[
    ("core/src/ops", "rs"),
    (REFERENCE, "rs"),
    (OPTIMIZED, "rs"),
    (GPU, "rs"),
    (WGSL, "wgsl"),
    (CASES, "rs"),
];
const REFERENCE: &str = "interpreter/src/kernels/reference";
const OPTIMIZED: &str = "interpreter/src/kernels/optimized";
const GPU: &str = "delegate-wgpu/src/ops";
const CASES: &str = "conformance/src/cases";
const WGSL: &str = "shaders/src/wgsl";

/// Families that do not have a room, and why.
#[rustfmt::skip]
const MISSING: &[(&str, &str, &[&str])] = &[
    (REFERENCE, "no runtime defines what it computes", &["concat_embeddings"]),
    (OPTIMIZED, "no runtime defines what it computes", &["concat_embeddings"]),
    (OPTIMIZED, "moves elements: the reference kernel already copies whole runs", &[
        "concatenation", "depth_to_space", "dynamic_update_slice", "embedding_lookup", "fill", "gather",
        "hashtable_lookup", "matrix_diag", "one_hot", "pack", "reshape", "reverse", "scatter", "select", "shape",
        "slice", "space_to_batch", "sparse_to_dense", "split", "tile", "transpose", "where_op",
    ]),
    (OPTIMIZED, "computed while preparing, or calls other nodes or variables", &[
        "control_flow", "densify", "hashtable", "variables",
    ]),
    (OPTIMIZED, "not yet: real models spend little time in it", &[
        "add_n", "arg_min_max", "bucketize", "cast", "comparison", "complex", "conv_3d", "cumsum",
        "local_response_normalization", "lsh_projection", "non_max_suppression", "random", "rnn", "segment",
        "skip_gram", "svdf", "topk", "unique",
    ]),
    (GPU, "claimed only where it was computed while preparing: delegate-wgpu/src/ops/mod.rs", &["densify", "shape"]),
    (GPU, "state and other subgraphs stay on the CPU", &["control_flow", "hashtable", "variables"]),
    (GPU, "not yet", &[
        "bucketize", "concat_embeddings", "hashtable_lookup", "lsh_projection", "matrix_diag",
        "non_max_suppression", "random", "segment", "skip_gram", "sparse_to_dense", "unique", "where_op",
    ]),
    (WGSL, "a strided copy: copy.wgsl", &[
        "concatenation", "depth_to_space", "fill", "pack", "reverse", "slice", "space_to_batch", "split", "tile",
        "transpose",
    ]),
    (WGSL, "needs no shader: a view, or computed while preparing", &["densify", "reshape", "shape"]),
    (WGSL, "not on the GPU", &[
        "bucketize", "concat_embeddings", "control_flow", "hashtable", "hashtable_lookup", "lsh_projection",
        "matrix_diag", "non_max_suppression", "random", "segment", "skip_gram", "sparse_to_dense", "unique",
        "variables", "where_op",
    ]),
    (WGSL, "steps of other families", &[
        "add_n", "comparison", "fully_connected", "prelu", "svdf",
    ]),
    (OPTIMIZED, "no real model is known to spend time in it", &[
        "dilate", "reduce_window", "stablehlo_compute", "stablehlo_elementwise", "stablehlo_gather",
        "stablehlo_movement",
    ]),
    (GPU, "no real model is known to spend time in it", &[
        "dilate", "reduce_window", "stablehlo_compute", "stablehlo_gather",
    ]),
    (WGSL, "no real model is known to spend time in it", &[
        "dilate", "reduce_window", "stablehlo_compute", "stablehlo_gather",
    ]),
    (WGSL, "shaders of other families: binary.wgsl and unary.wgsl, copy.wgsl", &[
        "stablehlo_elementwise", "stablehlo_movement",
    ]),
    (CASES, "no runtime defines what it computes", &["concat_embeddings"]),
    (CASES, "codes that are no ops", &["special"]),
    (REFERENCE, "codes that are no ops", &["special"]),
    (OPTIMIZED, "codes that are no ops", &["special"]),
    (GPU, "codes that are no ops", &["special"]),
    (WGSL, "codes that are no ops", &["special"]),
];

fn has(room: &str, extension: &str, family: &str) -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(room).join(format!("{family}.{extension}")).is_file()
}

#[test]
fn every_family_has_its_rooms_or_a_reason() {
    let families: BTreeSet<&str> = DEFS.iter().map(|d| d.family).collect();
    let mut wrong = Vec::new();
    for (room, extension) in ROOMS {
        for family in &families {
            let reason = MISSING
                .iter()
                .find(|(r, _, names)| r == room && names.contains(family))
                .map(|(_, why, _)| why);
            match (has(room, extension, family), reason) {
                (false, None) => {
                    wrong.push(format!("{room}/{family}.{extension} is missing without a reason"))
                }
                (true, Some(why)) => {
                    wrong.push(format!("{room}/{family}.{extension} is there, but listed: {why}"))
                }
                _ => {}
            }
        }
    }
    for (room, why, names) in MISSING {
        let unknown = names.iter().filter(|n| !families.contains(*n));
        wrong.extend(unknown.map(|n| format!("{n} is no family, but listed for {room}: {why}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
