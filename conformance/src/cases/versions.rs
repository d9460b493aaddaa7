//! Cases for versions that no listed case needs: an earlier case of the op, repeated in each of these versions.

use delegraph_core::BuiltinOp as Op;

use super::Case;

/// Op, version, and index of the op's listed case that can have the version. A test finds the table by building all
/// cases.
const MISSING: &[(Op, u32, usize)] = &[
    (Op::FULLY_CONNECTED, 13, 0),
    (Op::QUANTIZE, 4, 0),
    (Op::QUANTIZE, 5, 0),
    (Op::QUANTIZE, 6, 0),
    (Op::DEQUANTIZE, 4, 0),
    (Op::DEQUANTIZE, 9, 0),
    (Op::FAKE_QUANT, 2, 0),
    (Op::EMBEDDING_LOOKUP, 2, 0),
    (Op::EMBEDDING_LOOKUP, 3, 0),
    (Op::ABS, 4, 0),
    (Op::CONCATENATION, 7, 0),
    (Op::PAD, 6, 0),
    (Op::PADV2, 6, 0),
    (Op::SLICE, 7, 0),
    (Op::SPLIT, 5, 0),
    (Op::SPLIT_V, 3, 0),
    (Op::PACK, 5, 0),
    (Op::UNPACK, 6, 0),
    (Op::DYNAMIC_UPDATE_SLICE, 5, 0),
    (Op::REVERSE_V2, 4, 0),
    (Op::FILL, 5, 0),
    (Op::BROADCAST_TO, 4, 0),
    (Op::GATHER, 8, 0),
    (Op::GATHER_ND, 6, 0),
    (Op::CAST, 9, 0),
    (Op::EQUAL, 4, 0),
];

/// Returns the cases of [`MISSING`].
pub(super) fn other_versions(cases: &[Case]) -> Vec<Case> {
    let mut by_op = std::collections::BTreeMap::<i32, Vec<&Case>>::new();
    for case in cases {
        by_op.entry(case.op.0).or_default().push(case);
    }
    let of = |&(op, version, index): &(Op, u32, usize)| {
        by_op.get(&op.0)?.get(index).map(|c| (*c).clone().version(version))
    };
    MISSING.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use delegraph_core::ops::DEFS;

    use super::super::{listed, versions};
    use super::*;

    #[test]
    fn the_table_lists_the_missing_types() {
        let cases = listed();
        let mut missing = Vec::new();
        for def in DEFS {
            let of_op: Vec<&Case> = cases.iter().filter(|c| c.op == def.op).collect();
            let have: BTreeSet<u32> =
                of_op.iter().flat_map(|c| c.build().map(|m| c.versions(&m)).unwrap_or_default()).collect();
            for version in versions(def.op).into_iter().filter(|v| !have.contains(v)) {
                let found = of_op.iter().position(|c| (*c).clone().version(version).build().is_ok());
                missing.extend(found.map(|index| (def.op, version, index)));
            }
        }
        let name = |op: Op| op.variant_name().unwrap_or("?");
        let lines = missing.iter().map(|(op, v, i)| format!("    (Op::{}, {v}, {i}),\n", name(*op)));
        assert!(missing == MISSING, "the table should be\n{}", lines.collect::<String>());
    }
}
