//! ARG_MAX, ARG_MIN.

use delegraph_core::ops::arg_min_max::{ArgMaxParams, ArgMinParams};

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::EXACT, &[Op::ARG_MAX, Op::ARG_MIN])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for output_type in [Int32, Int64] {
        for ty in [Float32, Int8, UInt8, Int32, Bool] {
            for (shape, axis) in [(&[9][..], 0), (&[3, 5], -1), (&[2, 3, 4], 1), (&[4, 3, 2], 0)] {
                let inputs = [x(ty, shape).auto(), list(&[axis]).reshaped(&[])];
                let detail = format!("axis{axis}_{}", output_type.name().to_lowercase());
                let max =
                    Case::new(Op::ARG_MAX, ArgMaxParams::default().output_type(output_type), inputs.clone());
                let min = Case::new(Op::ARG_MIN, ArgMinParams::default().output_type(output_type), inputs);
                out.extend([max, min].map(|c| c.detail(detail.clone())));
            }
        }
    }
    // The first of several equal elements is found; the axis may have 64 bits.
    let ties = given(&[2, 4], &[3f32, 1.0, 3.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, 0.0, f32::INFINITY]);
    let inputs = [ties, known(&[1], &[1i64])];
    out.push(
        Case::new(Op::ARG_MAX, ArgMaxParams::default().output_type(Int32), inputs.clone()).detail("ties"),
    );
    out.push(Case::new(Op::ARG_MIN, ArgMinParams::default().output_type(Int32), inputs).detail("ties"));
}
