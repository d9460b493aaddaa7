//! STABLEHLO_PAD, the only StableHLO op for moving elements that LiteRT registers.

use delegraph_core::ops::stablehlo_movement::StablehloPadParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(
    OpKind::MOVED,
    &[
        Op::STABLEHLO_RESHAPE,
        Op::STABLEHLO_CONCATENATE,
        Op::STABLEHLO_BROADCAST_IN_DIM,
        Op::STABLEHLO_SLICE,
        Op::STABLEHLO_DYNAMIC_SLICE,
        Op::STABLEHLO_DYNAMIC_UPDATE_SLICE,
        Op::STABLEHLO_PAD,
        Op::STABLEHLO_IOTA,
        Op::STABLEHLO_TRANSPOSE,
    ],
)];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [
        Float32, Float64, Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64, Bool, Float16, BFloat16,
        Complex64,
    ] {
        for (low, high, inner) in
            [([1, 0], [0, 2], [0, 0]), ([0, 1], [1, 1], [1, 2]), ([-1, 0], [0, -2], [0, 1])]
        {
            let params = StablehloPadParams::default()
                .edge_padding_low(low.to_vec())
                .edge_padding_high(high.to_vec())
                .interior_padding(inner.to_vec());
            out.push(Case::new(Op::STABLEHLO_PAD, params, [x(ty, &[3, 4]), x(ty, &[]).range(1.0, 1.0)]));
        }
    }
}
