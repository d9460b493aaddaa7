//! QUANTIZE, DEQUANTIZE, FAKE_QUANT.

use delegraph_core::ops::quantize::FakeQuantParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::ROUNDED, &[Op::QUANTIZE, Op::DEQUANTIZE, Op::FAKE_QUANT])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for shape in [&[9][..], &[2, 3, 4]] {
        for ty in [Int8, UInt8, Int16] {
            let (scale, zero) = quantum(ty).unwrap_or((1.0, 0));
            let data = x(Float32, shape).range(-12.0, 12.0);
            let case = Case::new(Op::QUANTIZE, Params::None, [data]);
            out.push(
                case.outputs([Output::of(ty).q(scale, zero)])
                    .detail(format!("to_{}", ty.name().to_lowercase())),
            );
            out.push(
                Case::new(Op::DEQUANTIZE, Params::None, [x(ty, shape).auto()]).outputs([Output::of(Float32)]),
            );
            let others: &[TensorType] = match ty {
                Int16 => &[Int8, Int16, Int32],
                _ => &[Int8, UInt8, Int16],
            };
            for &to in others {
                for factor in [0.7, 1.0, 2.5] {
                    let q = Output::of(to)
                        .q(scale * factor, quantum(to).map_or(0, |(_, zero)| zero + i64::from(to != Int16)));
                    let case = Case::new(Op::QUANTIZE, Params::None, [x(ty, shape).auto()]).outputs([q]);
                    out.push(case.detail(format!("to_{}_{factor}", to.name().to_lowercase())));
                }
            }
        }
        let case =
            Case::new(Op::QUANTIZE, Params::None, [x(Int32, shape).range(-9000.0, 9000.0).q(0.001, 0)]);
        out.push(case.clone().outputs([Output::of(Int8).q(0.07, 3)]).detail("to_int8"));
        out.push(case.outputs([Output::of(Int16).q(0.0007, 0)]).detail("to_int16"));
        let halves = x(Float16, shape).constant();
        out.push(
            Case::new(Op::DEQUANTIZE, Params::None, [halves])
                .outputs([Output::of(Float32)])
                .detail("constant"),
        );
        out.push(Case::new(Op::DEQUANTIZE, Params::None, [x(Float16, shape)]).outputs([Output::of(Float32)]));
        for ty in [Int4, Int2, UInt4] {
            let packed = x(ty, shape).constant().q(0.25, 0);
            out.push(Case::new(Op::DEQUANTIZE, Params::None, [packed]).outputs([Output::of(Float32)]));
            let given = Case::new(Op::DEQUANTIZE, Params::None, [x(ty, shape).q(0.25, 0)]);
            out.push(given.outputs([Output::of(Float32)]).detail("given"));
        }
    }
    for dimension in [0, 2] {
        let shape = [3, 4, 2];
        let channels = x(Int8, &shape).channels(0.1, dimension);
        let output = |ty| Output::of(ty).channels(0.1, shape[dimension], dimension);
        let detail = format!("channels{dimension}");
        out.push(
            Case::new(Op::DEQUANTIZE, Params::None, [channels])
                .outputs([Output::of(Float32)])
                .detail(detail.clone()),
        );
        for ty in [Int8, UInt8, Int16] {
            let case = Case::new(Op::QUANTIZE, Params::None, [x(Float32, &shape).range(-12.0, 12.0)]);
            out.push(case.outputs([output(ty)]).detail(format!("{detail}_to_{}", ty.name().to_lowercase())));
        }
    }
    for (min, max, num_bits, narrow_range) in
        [(-3.0, 3.0, 8, false), (0.0, 5.0, 4, false), (-1.0, 0.5, 16, false)]
    {
        let params =
            FakeQuantParams::default().min(min).max(max).num_bits(num_bits).narrow_range(narrow_range);
        out.push(Case::new(Op::FAKE_QUANT, params, [x(Float32, &[3, 11])]).detail(format!("bits{num_bits}")));
    }
}
