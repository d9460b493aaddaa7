//! WHERE.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::WHERE])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, UInt8, Int32, Int64, UInt32, Bool] {
        for shape in [&[7][..], &[3, 4], &[2, 2, 3]] {
            let data = if ty == Bool { x(ty, shape) } else { x(ty, shape).range(0.0, 2.0) };
            let data = if ty == Float32 { x(ty, shape).with(&[0f32, 1.0, -2.0, 0.0]) } else { data };
            out.push(
                Case::new(Op::WHERE, Params::None, [data]).outputs([Output::new(Int64, &[1, shape.len()])]),
            );
        }
    }
    let nothing = [given(&[4], &[0i32; 4])];
    out.push(
        Case::new(Op::WHERE, Params::None, nothing).outputs([Output::new(Int64, &[1, 1])]).detail("nothing"),
    );
}
