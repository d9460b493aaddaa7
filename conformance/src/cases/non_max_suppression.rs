//! NON_MAX_SUPPRESSION_V4, NON_MAX_SUPPRESSION_V5.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds =
    &[(OpKind::FUNCTION, &[Op::NON_MAX_SUPPRESSION_V4, Op::NON_MAX_SUPPRESSION_V5])];

pub(super) fn cases(out: &mut Vec<Case>) {
    let corners: [f32; 24] = [
        1.0, 1.0, 0.0, 0.0, 0.0, 0.1, 1.0, 1.1, 0.0, -0.1, 1.0, 0.9, 0.0, 10.0, 1.0, 11.0, 1.0, 10.1, 0.0,
        11.1, 1.0, 101.0, 0.0, 100.0,
    ];
    let scores = [0.9f32, 0.75, 0.6, 0.95, 0.5, 0.3];
    for (count, iou, threshold) in
        [(6, 0.5, 0.0), (6, 0.5, 0.4), (2, 0.5, 0.0), (30, 0.5, 0.0), (0, 0.5, 0.4)]
    {
        let inputs = |sigma: Option<f32>| {
            let first = [given(&[6, 4], &corners), given(&[6], &scores), known(&[], &[count])];
            let rest = [iou, threshold].into_iter().chain(sigma).map(|v: f32| known(&[], &[v]));
            first.into_iter().chain(rest).collect::<Vec<_>>()
        };
        let n = count as usize;
        let (indices, number) = (Output::new(Int32, &[n]), Output::new(Int32, &[]));
        let v4 = Case::new(Op::NON_MAX_SUPPRESSION_V4, Params::None, inputs(None));
        out.push(v4.outputs([indices.clone(), number.clone()]).detail(format!("of{count}")));
        for sigma in [0.0, 0.5] {
            let v5 = Case::new(Op::NON_MAX_SUPPRESSION_V5, Params::None, inputs(Some(sigma)));
            let outputs = [indices.clone(), Output::new(Float32, &[n]), number.clone()];
            out.push(v5.outputs(outputs).detail(format!("of{count}_sigma{sigma}")));
        }
    }
}
