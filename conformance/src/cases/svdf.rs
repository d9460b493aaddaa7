//! SVDF.

use delegraph_core::ops::svdf::SvdfParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[];

pub(super) fn cases(out: &mut Vec<Case>) {
    let (batch, inputs, units, memory) = (2, 5, 4, 6);
    for rank in [1usize, 2] {
        let filters = units * rank;
        for activation in [Activation::None, Activation::Relu] {
            let params = |asymmetric_quantize_inputs| {
                SvdfParams::default()
                    .rank(rank as i32)
                    .fused_activation_function(activation)
                    .asymmetric_quantize_inputs(asymmetric_quantize_inputs)
            };
            let detail = |what: &str| format!("rank{rank}_{activation:?}{what}").to_lowercase();
            let data = x(Float32, &[batch, inputs]).range(-1.0, 1.0);
            let weights = x(Float32, &[filters, inputs]).constant().range(-1.0, 1.0);
            let time = x(Float32, &[filters, memory]).constant().range(-1.0, 1.0);
            let bias = x(Float32, &[units]).constant();
            let state = x(Float32, &[batch, memory * filters]).variable();
            let all = [Some(data.clone()), Some(weights), Some(time), None, Some(state.clone())];
            out.push(
                Case::optional(Op::SVDF, params(false), all.clone()).steps(4).detail(detail("_no_bias")),
            );
            let mut biased = all.clone();
            biased[3] = Some(bias.clone());
            out.push(Case::optional(Op::SVDF, params(false), biased).steps(4).detail(detail("")));
            for asymmetric in [false, true] {
                let weights = x(Int8, &[filters, inputs]).constant().q(0.01, 0);
                let time = x(Int8, &[filters, memory]).constant().q(0.01, 0);
                let hybrid = [data.clone(), weights, time, bias.clone(), state.clone()];
                let case = Case::new(Op::SVDF, params(asymmetric), hybrid).steps(4);
                out.push(case.detail(detail(&format!("_hybrid_{asymmetric}"))));
            }
        }
        let integers = [
            x(Int8, &[batch, inputs]).q(0.02, 3),
            x(Int8, &[filters, inputs]).constant().q(0.01, 0),
            x(Int16, &[filters, memory]).constant().range(-20_000.0, 20_000.0).q(0.00003, 0),
            x(Int32, &[units]).constant().range(-9000.0, 9000.0).q(0.00003 * 0.001, 0),
            x(Int16, &[batch, memory * filters]).variable().q(0.001, 0),
        ];
        let params = SvdfParams::default()
            .rank(rank as i32)
            .fused_activation_function(Activation::Relu)
            .asymmetric_quantize_inputs(false);
        out.push(Case::new(Op::SVDF, params, integers).q(0.03, -5).steps(4).detail(format!("rank{rank}")));
    }
}
