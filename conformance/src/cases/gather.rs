//! GATHER, GATHER_ND.

use delegraph_core::ops::gather::GatherParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::GATHER, Op::GATHER_ND])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, UInt8, Int16, Int32, Int64, Bool, Float16, BFloat16] {
        for (axis, batch_dims) in [(0, 0), (1, 0), (-1, 0), (1, 1)] {
            let params = GatherParams::default().axis(axis).batch_dims(batch_dims);
            let shape: &[usize] = if batch_dims > 0 { &[3, 2] } else { &[5] };
            let indices = x(Int32, shape).range(0.0, 2.0);
            let case = Case::new(Op::GATHER, params, [x(ty, &[3, 4, 3]).auto(), indices]).auto(ty);
            out.push(case.detail(format!("axis{axis}_{batch_dims}")));
        }
        for index in [Int16, Int64] {
            let inputs = [x(ty, &[3, 4]).auto(), x(index, &[2, 2]).range(0.0, 2.0)];
            let case = Case::new(Op::GATHER, GatherParams::default().axis(0).batch_dims(0), inputs).auto(ty);
            out.push(case.detail(index.name().to_lowercase()));
        }
        for (index, depth) in [(Int32, 1), (Int32, 2), (Int64, 3), (Int16, 2), (Int32, 3)] {
            let inputs = [x(ty, &[3, 2, 4]).auto(), x(index, &[5, depth]).range(0.0, 1.0)];
            let case = Case::new(Op::GATHER_ND, Params::None, inputs).auto(ty);
            out.push(case.detail(format!("{}_{depth}", index.name().to_lowercase())));
        }
    }
    let table = x(Int4, &[4, 6]).constant().q(0.5, 0);
    let params = GatherParams::default().axis(0).batch_dims(0);
    out.push(Case::new(Op::GATHER, params.clone(), [table, list(&[3, 0, 1])]).q(0.5, 0));
    let words = strings(&[3], &["a", "bc", "def"]);
    out.push(Case::new(Op::GATHER, params, [words.clone(), list(&[2, 0, 0])]));
    out.push(Case::new(Op::GATHER_ND, Params::None, [words, known(&[2, 1], &[2i32, 1])]));
}
