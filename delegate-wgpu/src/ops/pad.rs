//! PAD, PADV2, MIRROR_PAD.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{BFloat16, Bool, Float16, Float32, Int8, Int16, Int32, UInt8};
use delegraph_core::ops::MirrorPadMode;
use delegraph_core::ops::pad::{MirrorPadParams, paddings};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::pad::{Fill, Spec};

use super::{GpuOp, invalid, not_constant};
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::PAD, 6, &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, BFloat16], lower),
    GpuOp::new(BuiltinOp::PADV2, 6, &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, BFloat16], lower),
    GpuOp::new(BuiltinOp::MIRROR_PAD, 3, GpuOp::UNPACKED, lower),
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    let paddings = paddings(&cx.infer()).map_err(invalid)?.ok_or_else(not_constant)?;
    let fill = match cx.node().op().builtin() {
        Some(BuiltinOp::MIRROR_PAD) => match cx.params::<MirrorPadParams>()?.mode {
            MirrorPadMode::Reflect => Fill::Reflect,
            MirrorPadMode::Symmetric => Fill::Symmetric,
        },
        _ if cx.has_input(2) => {
            let value = cx.constant_words(2)?;
            Fill::Value(value.first().copied().ok_or_else(not_constant)?)
        }
        // The stored value of zero.
        _ => Fill::Value(cx.affine(output).map_or(0, |affine| affine.zero.cast_unsigned())),
    };
    let side = |&size: &usize| u32::try_from(size).ok();
    let padding: Option<Vec<[u32; 2]>> =
        paddings.iter().map(|[before, after]| Some([side(before)?, side(after)?])).collect();
    let padding = padding.ok_or_else(|| {
        unsupported(format!(
            "paddings {paddings:?}; \
        only paddings from 0 to {} are supported",
            u32::MAX
        ))
    })?;
    cx.push(Spec { input: cx.shape(input), padding, fill }, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn borders() {
        let input = Some(T::new(&[1, 3], &[1.0_f32, 2.0, 3.0]));
        let paddings = Some(T::new(&[2, 2], &[0_i32, 0, 2, 1]).constant());
        let row = |values: [f32; 6]| T::new(&[1, 6], &values);
        let inputs = [input.clone(), paddings.clone()];
        check(BuiltinOp::PAD, 1, Params::None, &inputs, &[row([0.0, 0.0, 1.0, 2.0, 3.0, 0.0])]);
        let mirror = |mode| Params::MirrorPad(MirrorPadParams::default().mode(mode));
        let expected = [row([3.0, 2.0, 1.0, 2.0, 3.0, 2.0])];
        check(BuiltinOp::MIRROR_PAD, 1, mirror(MirrorPadMode::Reflect), &inputs, &expected);
        let expected = [row([2.0, 1.0, 1.0, 2.0, 3.0, 3.0])];
        check(BuiltinOp::MIRROR_PAD, 1, mirror(MirrorPadMode::Symmetric), &inputs, &expected);
        let inputs = [input, paddings, Some(T::new(&[], &[-1.0_f32]).constant())];
        check(BuiltinOp::PADV2, 1, Params::None, &inputs, &[row([-1.0, -1.0, 1.0, 2.0, 3.0, -1.0])]);
    }
}
