//! AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D.

use delegraph_core::ops::pool_2d::Pool2DParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::EXACT, &[Op::MAX_POOL_2D])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for op in [Op::AVERAGE_POOL_2D, Op::MAX_POOL_2D, Op::L2_POOL_2D] {
        let types: &[TensorType] =
            if op == Op::L2_POOL_2D { &[Float32] } else { &[Float32, Int8, UInt8, Int16] };
        for &ty in types {
            for (padding, stride, window) in [
                (Padding::Valid, (1, 1), (2, 2)),
                (Padding::Same, (2, 2), (3, 3)),
                (Padding::Same, (1, 2), (2, 5)),
                (Padding::Valid, (3, 1), (1, 3)),
            ] {
                for activation in [Activation::None, Activation::Relu, Activation::Relu6] {
                    let params = Pool2DParams::default()
                        .padding(padding)
                        .stride_h(stride.0)
                        .stride_w(stride.1)
                        .filter_height(window.0)
                        .filter_width(window.1)
                        .fused_activation_function(activation);
                    let case = Case::new(op, params, [x(ty, &[2, 5, 7, 3]).auto()]).auto(ty);
                    out.push(case.detail(
                        format!("{padding:?}_{}x{}_{activation:?}", window.0, window.1).to_lowercase(),
                    ));
                }
            }
        }
    }
}
