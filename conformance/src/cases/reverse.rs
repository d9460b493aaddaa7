//! REVERSE_V2, REVERSE_SEQUENCE.

use delegraph_core::ops::reverse::ReverseSequenceParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::REVERSE_V2, Op::REVERSE_SEQUENCE])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, UInt8, Int16, Int32, Int64, Bool, Float16, BFloat16] {
        for axes in [&[0][..], &[1], &[-1], &[1, 2], &[0, 1, 2]] {
            let case = Case::new(Op::REVERSE_V2, Params::None, [x(ty, &[2, 3, 4]), list(axes)]);
            out.push(case.detail(format!("axes{}", axes.len())));
        }
    }
    for ty in [Float32, UInt8, Int16, Int32, Int64] {
        for (seq_dim, batch_dim) in [(1, 0), (0, 1), (2, 0)] {
            for index in [Int32, Int64] {
                let shape = [3, 3, 4];
                let lengths = x(index, &[3]).range(1.0, 3.0);
                let params = ReverseSequenceParams::default().seq_dim(seq_dim).batch_dim(batch_dim);
                let case = Case::new(Op::REVERSE_SEQUENCE, params, [x(ty, &shape), lengths]);
                out.push(case.detail(format!("{seq_dim}{batch_dim}")));
            }
        }
    }
}
