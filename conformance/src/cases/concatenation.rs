//! CONCATENATION.

use delegraph_core::ops::concatenation::ConcatenationParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::CONCATENATION])];

pub(super) fn cases(out: &mut Vec<Case>) {
    let params = |axis| ConcatenationParams::default().axis(axis).fused_activation_function(Activation::None);
    let types = [Float32, Float16, Int8, UInt8, Int16, Int32, Int64, UInt32, Bool, BFloat16, Int4];
    for ty in types {
        for axis in [0, 1, -1] {
            let shape = |n: usize| {
                let mut shape = [2, 3, 4];
                shape[(axis as usize) % 4 % 3] = n;
                if axis < 0 {
                    shape = [2, 3, n];
                }
                shape
            };
            let inputs = [x(ty, &shape(2)).auto(), x(ty, &shape(1)).auto(), x(ty, &shape(4)).auto()];
            out.push(
                Case::new(Op::CONCATENATION, params(axis), inputs).auto(ty).detail(format!("axis{axis}")),
            );
        }
    }
    // Unsigned 8-bit inputs are rescaled.
    let inputs = [x(UInt8, &[2, 9]).q(0.05, 100), x(UInt8, &[2, 9]).q(0.02, 130)];
    out.push(Case::new(Op::CONCATENATION, params(1), inputs).q(0.04, 120).detail("rescaled"));
    out.push(Case::new(Op::CONCATENATION, params(0), [x(Float32, &[3])]).detail("one"));
}
