//! SPARSE_TO_DENSE.

use delegraph_core::ops::sparse_to_dense::SparseToDenseParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::SPARSE_TO_DENSE])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, UInt8, Int32, Int64] {
        for index in [Int32, Int64] {
            let wide = |v: &[i32]| match index {
                Int32 => list(v),
                _ => known(&[v.len()], &v.iter().map(|&v| i64::from(v)).collect::<Vec<_>>()),
            };
            let params = SparseToDenseParams::default().validate_indices(false);
            let rest = |values: &[usize]| [x(ty, values).range(1.0, 9.0), x(ty, &[]).range(7.0, 7.0)];
            let lists = [
                (wide(&[1, 3, 0]), wide(&[5]), rest(&[3])),
                (wide(&[0, 1, 2, 0]).reshaped(&[2, 2]), wide(&[3, 3]), rest(&[])),
                (wide(&[2]).reshaped(&[]), wide(&[4]), rest(&[])),
            ];
            for (indices, shape, [values, default]) in lists {
                let case = Case::new(Op::SPARSE_TO_DENSE, params.clone(), [indices, shape, values, default]);
                out.push(case.outputs([Output::of(ty)]).detail(index.name().to_lowercase()));
            }
        }
    }
}
