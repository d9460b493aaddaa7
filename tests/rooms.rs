//! One op family, one file name in every room. A room that a family does not have is listed here with its reason;
//! a reason that is no longer true fails, too.

use std::collections::BTreeSet;
use std::path::Path;

use delegraph::core::ops::DEFS;

/// Where a family has a file, and the file's extension.
const ROOMS: &[(&str, &str)] = &[
    ("core/src/ops", "rs"),
    ("interpreter/src/kernels/reference", "rs"),
    (OPTIMIZED, "rs"),
    (GPU, "rs"),
    (WGSL, "wgsl"),
];
const OPTIMIZED: &str = "interpreter/src/kernels/optimized";
const GPU: &str = "delegate-wgpu/src/ops";
const WGSL: &str = "shaders/src/wgsl";

/// Families that do not have a room, and why.
const MISSING: &[(&str, &str, &[&str])] = &[];

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
