//! CUMSUM.

use delegraph_core::ops::cumsum::CumsumParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int32, Int64] {
        for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
            for (shape, axis) in [(&[7][..], 0), (&[2, 3, 4], 1), (&[2, 3, 4], -1)] {
                let inputs = [x(ty, shape), list(&[axis]).reshaped(&[])];
                let case = Case::new(
                    Op::CUMSUM,
                    CumsumParams::default().exclusive(exclusive).reverse(reverse),
                    inputs,
                );
                out.push(case.detail(format!("axis{axis}_{}{}", u8::from(exclusive), u8::from(reverse))));
            }
        }
    }
}
