//! TILE, BROADCAST_TO, BROADCAST_ARGS.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::TILE, Op::BROADCAST_TO, Op::BROADCAST_ARGS])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [
        Float32, Int8, UInt8, Int16, Int32, Int64, Bool, Float16, BFloat16, Float64, Complex64, UInt16,
        UInt32, UInt64,
    ] {
        for (shape, times) in [(&[3][..], &[2][..]), (&[2, 3], &[1, 2]), (&[1, 2, 2], &[3, 1, 2])] {
            out.push(Case::new(Op::TILE, Params::None, [x(ty, shape), list(times)]));
            let wide = known(&[times.len()], &times.iter().map(|&t| i64::from(t)).collect::<Vec<_>>());
            out.push(Case::new(Op::TILE, Params::None, [x(ty, shape), wide]).detail("int64"));
        }
        for (shape, to) in
            [(&[][..], &[2, 3][..]), (&[3], &[2, 3]), (&[2, 1, 3], &[2, 4, 3]), (&[1, 2, 1], &[2, 1, 2, 3])]
        {
            out.push(Case::new(Op::BROADCAST_TO, Params::None, [x(ty, shape), list(to)]));
        }
    }
    out.push(Case::new(Op::TILE, Params::None, [strings(&[2], &["a", "bc"]), list(&[3])]));
    for (a, b) in [(&[2, 1][..], &[3][..]), (&[1], &[4, 2, 3]), (&[5], &[5])] {
        out.push(Case::new(Op::BROADCAST_ARGS, Params::None, [list(a), list(b)]));
        let wide = |v: &[i32]| given(&[v.len()], &v.iter().map(|&v| i64::from(v)).collect::<Vec<_>>());
        out.push(Case::new(Op::BROADCAST_ARGS, Params::None, [wide(a), wide(b)]));
    }
}
