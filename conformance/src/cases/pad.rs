//! PAD, PADV2, MIRROR_PAD.

use delegraph_core::ops::MirrorPadMode;
use delegraph_core::ops::pad::MirrorPadParams;

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::PAD, Op::PADV2, Op::MIRROR_PAD])];

pub(super) fn cases(out: &mut Vec<Case>) {
    let amounts: &[(&[usize], &[i32])] = &[
        (&[5], &[2, 1]),
        (&[2, 3], &[0, 1, 1, 1]),
        (&[1, 3, 2, 2], &[0, 0, 1, 2, 2, 1, 0, 0]),
        (&[1, 2, 1, 2, 2], &[0, 0, 1, 0, 0, 1, 1, 1, 0, 0]),
    ];
    for ty in [Float32, Int8, UInt8, Int16, Int32, Int64, Bool, Float16, BFloat16] {
        for (i, (shape, pads)) in amounts.iter().enumerate() {
            let rank = shape.len();
            let narrow = known(&[rank, 2], pads);
            let wide: Vec<i64> = pads.iter().map(|&p| p.into()).collect();
            let data = x(ty, shape).auto();
            let detail = format!("shapes{i}");
            out.push(
                Case::new(Op::PAD, Params::None, [data.clone(), narrow.clone()])
                    .auto(ty)
                    .detail(detail.clone()),
            );
            let inputs =
                [data.clone(), known(&[rank, 2], &wide), x(ty, &[1]).range(1.0, 1.0).constant().auto()];
            out.push(Case::new(Op::PADV2, Params::None, inputs).auto(ty).detail(detail.clone()));
            for (mode, most) in [(MirrorPadMode::Reflect, 1), (MirrorPadMode::Symmetric, 2)] {
                let pads: Vec<i32> = pads
                    .iter()
                    .enumerate()
                    .map(|(j, &p)| p.min(most).min(shape[j / 2] as i32 - i32::from(most == 1)))
                    .collect();
                let inputs = [data.clone(), known(&[rank, 2], &pads)];
                let case = Case::new(Op::MIRROR_PAD, MirrorPadParams::default().mode(mode), inputs).auto(ty);
                out.push(case.detail(format!("{mode:?}_{detail}").to_lowercase()));
            }
        }
    }
    for ty in [Float64, Complex64, UInt16, UInt32, UInt64] {
        let params = MirrorPadParams::default().mode(MirrorPadMode::Reflect);
        let inputs = [x(ty, &[2, 3]), known(&[2, 2], &[0i32, 1, 2, 1])];
        out.push(Case::new(Op::MIRROR_PAD, params, inputs));
    }
}
