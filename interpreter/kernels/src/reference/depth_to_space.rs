//! DEPTH_TO_SPACE, SPACE_TO_DEPTH: a transposition of `[batch, height, y, width, x, channels]`.

use delegraph_core::kernel::{PrepareContext, TensorView};
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::common::index::{StridedCopy, Strides, View};
use crate::common::prepared::{Invoke, copies, moved_bits, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::DEPTH_TO_SPACE, prepared(depth_to_space), 1..=2).add_builtin(
        BuiltinOp::SPACE_TO_DEPTH,
        prepared(space_to_depth),
        1..=2,
    );
}

fn depth_to_space(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (deep, wide) = (cx.input(0)?, cx.output(0)?);
    let (size, of_deep, of_wide) = blocks(deep, wide)?;
    let copy = StridedCopy::new(&size, moved_bits("input", deep)?, &of_deep, &of_wide);
    copies(cx, vec![(0, 0, copy)])
}

fn space_to_depth(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (wide, deep) = (cx.input(0)?, cx.output(0)?);
    let (size, of_deep, of_wide) = blocks(deep, wide)?;
    let copy = StridedCopy::new(&size, moved_bits("input", wide)?, &of_wide, &of_deep);
    copies(cx, vec![(0, 0, copy)])
}

/// Sizes of `[batch, height, y, width, x, channels]`, and views in this order of the tensor with more channels and of
/// the tensor with more pixels.
fn blocks(deep: TensorView<'_>, wide: TensorView<'_>) -> Result<([usize; 6], View, View)> {
    let dims = |t: TensorView<'_>| <[usize; 4]>::try_from(t.shape().dims());
    let (Ok([n, h, w, depth]), Ok([_, high, _, c])) = (dims(deep), dims(wide)) else {
        return Err(Error::InvalidNode("input and output must have rank 4".into()));
    };
    let block = high.checked_div(h).unwrap_or(1);
    let size = [n, h, block, w, block, c];
    let view = |strides: [usize; 6]| View {
        start: 0,
        strides: strides.iter().map(|s| s.cast_signed()).collect::<Strides>(),
    };
    let of_deep = view([h * w * depth, w * depth, block * c, depth, c, 1]);
    let of_wide = view([h * block * w * block * c, block * w * block * c, w * block * c, block * c, c, 1]);
    Ok((size, of_deep, of_wide))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::depth_to_space::{DepthToSpaceParams, SpaceToDepthParams};

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn there_and_back() {
        let deep = T::new(&[1, 1, 2, 8], &(0..16).collect::<Vec<i32>>());
        let wide = T::new(&[1, 2, 4, 2], &[0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]);
        let params = |block_size| Params::DepthToSpace(DepthToSpaceParams::default().block_size(block_size));
        let (op, input) = (BuiltinOp::DEPTH_TO_SPACE, [Some(deep.clone())]);
        check(op, 1, params(2), &input, std::slice::from_ref(&wide));
        let e = error(op, 1, params(0), &input, std::slice::from_ref(&wide));
        assert!(e.contains("block size 0 is not positive"), "{e}");
        let params = Params::SpaceToDepth(SpaceToDepthParams::default().block_size(2));
        check(BuiltinOp::SPACE_TO_DEPTH, 1, params, &[Some(wide)], &[deep]);
    }
}
