//! CONV_3D, CONV_3D_TRANSPOSE.

use delegraph_core::ops::conv_3d::Conv3DParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[];

pub(super) fn cases(out: &mut Vec<Case>) {
    for (padding, stride, dilation) in
        [(Padding::Same, 1, 1), (Padding::Valid, 2, 1), (Padding::Same, 2, 1), (Padding::Valid, 1, 2)]
    {
        for activation in [Activation::None, Activation::Relu, Activation::Relu6] {
            let params = || {
                Conv3DParams::default()
                    .padding(padding)
                    .stride_d(stride)
                    .stride_w(stride)
                    .stride_h(stride)
                    .fused_activation_function(activation)
                    .dilation_d_factor(dilation)
                    .dilation_w_factor(dilation)
                    .dilation_h_factor(dilation)
            };
            let detail = format!("{padding:?}{stride}{dilation}_{activation:?}").to_lowercase();
            let filter = x(Float32, &[2, 2, 2, 3, 4]);
            let inputs = [x(Float32, &[1, 4, 5, 4, 3]), filter.clone(), x(Float32, &[4])];
            out.push(Case::new(Op::CONV_3D, params(), inputs.clone()).detail(detail.clone()));
            out.push(
                Case::new(Op::CONV_3D, params(), inputs.into_iter().take(2))
                    .detail(format!("{detail}_no_bias")),
            );
            let extent = dilation as usize + 1;
            let full = |n: usize| match padding {
                Padding::Same => n * stride as usize,
                Padding::Valid => (n - 1) * stride as usize + extent,
            };
            let shape = [1, full(3), full(2), full(2), 3].map(|d| d as i32);
            let inputs = [list(&shape), filter, x(Float32, &[1, 3, 2, 2, 4]), x(Float32, &[3])];
            let case = Case::new(Op::CONV_3D_TRANSPOSE, params(), inputs);
            out.push(case.outputs_of(Float32).detail(detail));
        }
    }
}
