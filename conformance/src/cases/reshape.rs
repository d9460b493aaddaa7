//! RESHAPE, SQUEEZE, EXPAND_DIMS.

use delegraph_core::ops::reshape::{ReshapeParams, SqueezeParams};

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::RESHAPE, Op::SQUEEZE, Op::EXPAND_DIMS])];

pub(super) fn cases(out: &mut Vec<Case>) {
    let types = [
        Float32, Float16, Int8, UInt8, Int16, Int32, Int64, UInt32, Bool, BFloat16, Float64, Complex64,
        UInt16, UInt64,
    ];
    for ty in types {
        for shape in [vec![6, 4], vec![-1], vec![2, -1, 2]] {
            let params = ReshapeParams::default().new_shape(shape.clone());
            let data = x(ty, &[2, 3, 4]).auto();
            out.push(Case::new(Op::RESHAPE, params.clone(), [data.clone()]).auto(ty).detail("option"));
            out.push(Case::new(Op::RESHAPE, params, [data, list(&shape)]).auto(ty).detail("operand"));
        }
        for squeeze_dims in [vec![], vec![0], vec![-1, 2]] {
            let data = x(ty, &[1, 3, 1, 2, 1]).auto();
            out.push(
                Case::new(Op::SQUEEZE, SqueezeParams::default().squeeze_dims(squeeze_dims), [data]).auto(ty),
            );
        }
        for axis in [0, 1, -1] {
            let inputs = [x(ty, &[2, 3]).auto(), list(&[axis])];
            out.push(Case::new(Op::EXPAND_DIMS, Params::None, inputs).auto(ty).detail(format!("axis{axis}")));
        }
    }
    let computed = [x(Float32, &[2, 6]), given(&[2], &[3i32, 4])];
    let case = Case::new(Op::RESHAPE, ReshapeParams::default().new_shape(Vec::new()), computed);
    out.push(case.outputs([Output::new(Float32, &[3, 4])]).detail("computed_shape"));
    let words = strings(&[1, 3], &["a", "bc", ""]);
    out.push(Case::new(
        Op::RESHAPE,
        ReshapeParams::default().new_shape(vec![3]),
        [words.clone(), list(&[3])],
    ));
    out.push(Case::new(Op::SQUEEZE, SqueezeParams::default().squeeze_dims(vec![0]), [words.clone()]));
    out.push(Case::new(Op::EXPAND_DIMS, Params::None, [words, list(&[1])]));
}
