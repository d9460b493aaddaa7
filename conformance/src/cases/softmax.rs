//! SOFTMAX, LOG_SOFTMAX.

use delegraph_core::ops::softmax::SoftmaxParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::ACCUMULATING_TWO_FUNCTIONS, &[Op::SOFTMAX, Op::LOG_SOFTMAX])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for shape in [&[9][..], &[3, 5], &[2, 3, 4], &[1, 2, 3, 4]] {
        for beta in [1.0, 0.4] {
            let softmax = |data: Operand| {
                Case::new(Op::SOFTMAX, SoftmaxParams::default().beta(beta), [data])
                    .detail(format!("beta{beta}"))
            };
            out.push(softmax(x(Float32, shape).range(-9.0, 9.0)));
            out.push(softmax(x(Float16, shape).range(-9.0, 9.0)));
            out.push(softmax(x(Int8, shape).q(0.07, -9)).q(1.0 / 256.0, -128));
            out.push(softmax(x(UInt8, shape).q(0.07, 119)).q(1.0 / 256.0, 0));
            out.push(softmax(x(Int16, shape).q(0.0003, 0)).q(1.0 / 32768.0, 0));
            out.push(
                softmax(x(Int8, shape).q(0.07, -9))
                    .outputs([Output::of(Int16).q(1.0 / 65536.0, -32768)])
                    .detail("to_int16"),
            );
        }
        let log = |data: Operand| Case::new(Op::LOG_SOFTMAX, Params::None, [data]);
        out.push(log(x(Float32, shape).range(-9.0, 9.0)));
        out.push(log(x(Int8, shape).q(0.07, -9)).q(16.0 / 256.0, 127));
        out.push(log(x(UInt8, shape).q(0.07, 119)).q(16.0 / 256.0, 255));
    }
    let extremes = given(&[2, 4], &[1000f32, 0.0, -1000.0, 999.0, -80.0, -90.0, -100.0, -110.0]);
    out.push(
        Case::new(Op::SOFTMAX, SoftmaxParams::default().beta(1.0), [extremes.clone()]).detail("extremes"),
    );
    out.push(Case::new(Op::LOG_SOFTMAX, Params::None, [extremes]).detail("extremes"));
}
