//! The cases in other types, to find out which types the field's kernels take.

use std::collections::BTreeSet;

use delegraph_core::TensorType;

use super::Case;

/// Each op's cases, retyped: wherever a case has its data type, another one. One case per op, data type and set of
/// operand types is tried.
pub fn probes(cases: &[Case]) -> Vec<Case> {
    let mut seen = BTreeSet::new();
    let mut probes = Vec::new();
    for case in cases {
        for ty in TensorType::ALL {
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
