//! FILL, RANGE.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::FILL]), (OpKind::ROUNDED, &[Op::RANGE])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [
        UInt8, Float32, Float16, Int8, Int16, Int32, Int64, Bool, BFloat16, Float64, Complex64, UInt16,
        UInt32, UInt64,
    ] {
        out.push(Case::new(Op::FILL, Params::None, [list(&[2, 3]), x(ty, &[])]).outputs([Output::of(ty)]));
        let wide = known(&[3], &[1i64, 2, 2]);
        out.push(
            Case::new(Op::FILL, Params::None, [wide, x(ty, &[])])
                .outputs([Output::of(ty)])
                .detail("int64_shape"),
        );
    }
    let text = [list(&[2, 2]), strings(&[], &["abc"])];
    out.push(Case::new(Op::FILL, Params::None, text).outputs([Output::of(String)]));
    let bytes = [given(&[2], &[2i32, 3]), given(&[], &[1.5f32])];
    out.push(
        Case::new(Op::FILL, Params::None, bytes)
            .outputs([Output::new(Float32, &[2, 3])])
            .detail("computed_shape"),
    );

    for (start, limit, delta) in [(0.0f32, 5.0, 1.0), (1.0, 2.0, 0.3), (5.0, -1.0, -1.5), (2.0, 2.0, 1.0)] {
        let inputs = [start, limit, delta].map(|v| known(&[], &[v]));
        out.push(Case::new(Op::RANGE, Params::None, inputs.clone()));
        let count = ((limit - start) / delta).ceil() as usize;
        let fed = [start, limit, delta].map(|v| given(&[], &[v]));
        out.push(
            Case::new(Op::RANGE, Params::None, fed)
                .outputs([Output::new(Float32, &[count])])
                .detail("computed"),
        );
    }
    for (start, limit, delta) in [(0, 5, 1), (3, 20, 7), (5, -4, -2)] {
        let narrow = [start, limit, delta].map(|v: i32| known(&[], &[v]));
        let wide = [start, limit, delta].map(|v: i32| known(&[], &[i64::from(v)]));
        out.push(Case::new(Op::RANGE, Params::None, narrow));
        out.push(Case::new(Op::RANGE, Params::None, wide));
    }
}
