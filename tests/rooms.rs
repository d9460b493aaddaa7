//! Each op family has a file of its name in every folder of [`ROOMS`]. That a file is missing follows from other facts
//! of the family, or is listed here with a reason. A listed reason for a file that exists fails the test, too.

use std::collections::BTreeSet;
use std::path::Path;

use delegraph::core::ops::DEFS;

/// The folders of a family's files, and the files' extensions.
const ROOMS: &[(&str, &str)] = &[
    ("core/src/ops", "rs"),
    (REFERENCE, "rs"),
    (OPTIMIZED, "rs"),
    (GPU, "rs"),
    (WGSL, "wgsl"),
    (CASES, "rs"),
];
const REFERENCE: &str = "interpreter/kernels/src/reference";
const OPTIMIZED: &str = "interpreter/kernels/src/optimized";
const GPU: &str = "delegate-wgpu/src/ops";
const CASES: &str = "conformance/src/cases";
const WGSL: &str = "shaders/src/wgsl";

/// Families without a file in a folder, and why, unless the reason follows from other facts.
#[rustfmt::skip]
const ABSENT: &[(&str, &str, &[&str])] = &[
    (OPTIMIZED, "moves elements: the reference kernel already copies whole runs", &[
        "concatenation", "depth_to_space", "dynamic_update_slice", "embedding_lookup", "fill", "gather",
        "hashtable_lookup", "matrix_diag", "one_hot", "pack", "reshape", "reverse", "scatter", "select", "shape",
        "slice", "space_to_batch", "sparse_to_dense", "split", "tile", "transpose", "where_op",
    ]),
    (OPTIMIZED, "computed while preparing, or calls other nodes or variables", &[
        "control_flow", "densify", "hashtable", "variables",
    ]),
    (OPTIMIZED, "real models spend little time in it", &[
        "add_n", "arg_min_max", "bucketize", "cast", "comparison", "complex", "conv_3d", "cumsum", "dilate",
        "local_response_normalization", "lsh_projection", "non_max_suppression", "random", "reduce_window", "rnn",
        "segment", "skip_gram", "stablehlo_compute", "stablehlo_elementwise", "stablehlo_gather",
        "stablehlo_movement", "svdf", "topk", "unique",
    ]),
    (GPU, "claimed only where it was computed while preparing: delegate-wgpu/src/ops/mod.rs", &["densify", "shape"]),
    (GPU, "tables and other subgraphs stay on the CPU", &["control_flow", "hashtable"]),
    (GPU, "not implemented on the GPU", &[
        "bucketize", "dilate", "hashtable_lookup", "lsh_projection", "matrix_diag", "non_max_suppression", "random",
        "reduce_window", "segment", "skip_gram", "sparse_to_dense", "stablehlo_compute", "stablehlo_gather", "unique",
        "where_op",
    ]),
    (WGSL, "a strided copy: copy.wgsl", &[
        "concatenation", "depth_to_space", "fill", "pack", "reverse", "slice", "space_to_batch", "split",
        "stablehlo_movement", "tile",
    ]),
    (WGSL, "a view, or a copy of a buffer", &["reshape", "variables"]),
    (WGSL, "steps of other families", &[
        "add_n", "comparison", "fully_connected", "prelu", "stablehlo_elementwise", "svdf",
    ]),
];

fn has(room: &str, extension: &str, family: &str) -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(room).join(format!("{family}.{extension}")).is_file()
}

/// The reason for a missing file that follows from other facts of the family.
fn implied(room: &str, family: &str) -> Option<&'static str> {
    let released = DEFS.iter().any(|def| def.family == family && !def.history.is_empty());
    if room != "core/src/ops" && !released {
        return Some("no release runs an op of the family, so nothing defines what it computes");
    }
    let on_gpu = has(GPU, "rs", family);
    (room == WGSL && !on_gpu).then_some("the family is not on the GPU")
}

#[test]
fn every_family_has_its_rooms_or_a_reason() {
    let families: BTreeSet<&str> = DEFS.iter().map(|d| d.family).collect();
    let mut wrong = Vec::new();
    for (room, extension) in ROOMS {
        for family in &families {
            let listed = ABSENT.iter().find(|(r, _, names)| r == room && names.contains(family));
            let (listed, implied) = (listed.map(|(_, why, _)| *why), implied(room, family));
            let file = format!("{room}/{family}.{extension}");
            match (has(room, extension, family), listed, implied) {
                (false, None, None) => wrong.push(format!("{file} is missing without a reason")),
                (true, Some(why), _) | (true, _, Some(why)) => {
                    wrong.push(format!("{file} is present, but: {why}"));
                }
                (false, Some(listed), Some(implied)) => {
                    wrong.push(format!("{file}: \"{listed}\" is listed, which is implied: {implied}"));
                }
                _ => {}
            }
        }
    }
    for (room, why, names) in ABSENT {
        let unknown = names.iter().filter(|n| !families.contains(*n));
        wrong.extend(unknown.map(|n| format!("{n} is not a family, but is listed for {room}: {why}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
