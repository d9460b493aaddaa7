//! The cases in other types, which determine the types that LiteRT's kernels support.

use std::collections::BTreeSet;

use delegraph_core::TensorType;

use super::Case;

/// Returns each op's cases with every other data type. Per op, data type and set of operand types, one case is tried.
pub fn probes(cases: &[Case]) -> Vec<Case> {
    let mut seen = BTreeSet::new();
    let mut probes = Vec::new();
    for case in cases {
        for &ty in TensorType::ALL {
            if let Some(mut probe) = case.retyped(ty)
                && seen.insert((case.op.0, probe.operand_types()))
            {
                probe.name = format!("{}/as_{}", case.name, ty.name().to_lowercase());
                probes.push(probe);
            }
        }
    }
    probes
}
