//! SLICE, STRIDED_SLICE.

use delegraph_core::ops::slice::StridedSliceParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::SLICE, Op::STRIDED_SLICE])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [
        Float32, Float16, Int8, UInt8, Int16, Int32, Int64, UInt32, Bool, BFloat16, Float64, Complex64,
        UInt16, UInt64,
    ] {
        for (shape, begin, size) in [
            (&[7][..], &[2][..], &[3][..]),
            (&[3, 4], &[1, 0], &[-1, 2]),
            (&[2, 3, 2, 2], &[0, 1, 0, 1], &[2, 2, 1, 1]),
            (&[1, 2, 3, 2, 2], &[0, 1, 0, 1, 0], &[1, 1, 2, 1, 2]),
        ] {
            let data = x(ty, shape).auto();
            let narrow = [data.clone(), list(begin), list(size)];
            out.push(
                Case::new(Op::SLICE, Params::None, narrow).auto(ty).detail(format!("rank{}", shape.len())),
            );
            let wide = |v: &[i32]| known(&[v.len()], &v.iter().map(|&v| i64::from(v)).collect::<Vec<_>>());
            let inputs = [data, wide(begin), wide(size)];
            out.push(
                Case::new(Op::SLICE, Params::None, inputs)
                    .auto(ty)
                    .detail(format!("int64_rank{}", shape.len())),
            );
        }
        for (i, (begin, end, strides, params)) in strided().into_iter().enumerate() {
            let inputs = [x(ty, &[3, 4, 5]).auto(), list(&begin), list(&end), list(&strides)];
            out.push(Case::new(Op::STRIDED_SLICE, params, inputs).auto(ty).detail(format!("shapes{i}")));
        }
    }
    let inputs =
        [x(Float32, &[2, 1, 3, 2, 2]), list(&[0, 0, 1, 0, 0]), list(&[2, 1, 3, 2, 1]), list(&[1; 5])];
    out.push(Case::new(Op::STRIDED_SLICE, none(), inputs).detail("rank5"));
    let offset = none().offset(true);
    let inputs = [x(Float32, &[5, 4]), list(&[1, 1]), list(&[2, 3]), list(&[1, 1])];
    out.push(Case::new(Op::STRIDED_SLICE, offset, inputs).detail("offset"));
    let words = strings(&[2, 2], &["a", "bc", "", "def"]);
    out.push(Case::new(Op::SLICE, Params::None, [words.clone(), list(&[1, 0]), list(&[1, 2])]));
    out.push(Case::new(Op::STRIDED_SLICE, none(), [words, list(&[0, 1]), list(&[2, 2]), list(&[1, 1])]));
}

fn none() -> StridedSliceParams {
    StridedSliceParams::default()
        .begin_mask(0)
        .end_mask(0)
        .ellipsis_mask(0)
        .new_axis_mask(0)
        .shrink_axis_mask(0)
        .offset(false)
}

type Strided = (Vec<i32>, Vec<i32>, Vec<i32>, StridedSliceParams);

/// Begins, ends, strides and masks for data of shape 3, 4, 5.
fn strided() -> Vec<Strided> {
    vec![
        (vec![0, 1, 0], vec![3, 3, 5], vec![1, 1, 2], none()),
        (vec![2, 3, 4], vec![-4, -5, -6], vec![-1, -2, -1], none()),
        (vec![1, 0, 1], vec![0, 9, 4], vec![1, 1, 1], none().begin_mask(2).end_mask(1)),
        (vec![1, -1], vec![2, 0], vec![1, 1], none().shrink_axis_mask(3)),
        (vec![0, 1], vec![0, 4], vec![1, 2], none().ellipsis_mask(1)),
        (vec![0, 0, 1], vec![0, 3, 4], vec![1, 1, 1], none().new_axis_mask(1)),
    ]
}
