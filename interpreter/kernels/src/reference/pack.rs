//! PACK, UNPACK.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::pack::{pack_axis, unpack_axis};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::index::{StridedCopy, View};
use crate::common::prepared::{Invoke, check_same_quantization, copies, moved_bits, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::PACK, prepared(pack), 1..=5).add_builtin(
        BuiltinOp::UNPACK,
        prepared(unpack),
        1..=6,
    );
}

fn pack(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let axis = pack_axis(&cx.infer_context())?;
    let output = cx.output(0)?;
    let bits = moved_bits("output", output)?;
    let slabs = Slabs::new(output.shape(), axis);
    let mut list = cx.budget().reserved(cx.input_count())?;
    for i in 0..cx.input_count() {
        check_same_quantization(cx.input(i)?, output)?;
        list.push((i, 0, StridedCopy::new(&slabs.size, bits, &View::dense(&slabs.size), &slabs.at(i))))?;
    }
    copies(cx, list)
}

fn unpack(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let axis = unpack_axis(&cx.infer_context())?;
    let input = cx.input(0)?;
    let bits = moved_bits("input", input)?;
    let slabs = Slabs::new(input.shape(), axis);
    let mut list = cx.budget().reserved(cx.output_count())?;
    for o in 0..cx.output_count() {
        check_same_quantization(cx.output(o)?, input)?;
        list.push((0, o, StridedCopy::new(&slabs.size, bits, &slabs.at(o), &View::dense(&slabs.size))))?;
    }
    copies(cx, list)
}

/// A tensor as slabs of size 1 along one dimension.
struct Slabs<'a> {
    whole: &'a [usize],
    size: Vec<usize>,
    axis: usize,
}

impl<'a> Slabs<'a> {
    fn new(whole: &'a [usize], axis: usize) -> Self {
        let mut size = whole.to_vec();
        size[axis] = 1;
        Slabs { whole, size, axis }
    }

    fn at(&self, index: usize) -> View {
        let mut origin = vec![0; self.whole.len()];
        origin[self.axis] = index;
        View::at(self.whole, &origin)
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::pack::{PackParams, UnpackParams};

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn there_and_back() {
        let parts = [T::new(&[2], &[1.0f32, 2.0]), T::new(&[2], &[3.0f32, 4.0])];
        let whole = T::new(&[2, 2], &[1.0f32, 3.0, 2.0, 4.0]);
        let pack = Params::Pack(PackParams::default().values_count(2).axis(-1));
        let inputs = parts.clone().map(Some);
        check(BuiltinOp::PACK, 1, pack.clone(), &inputs, std::slice::from_ref(&whole));
        let unpack = Params::Unpack(UnpackParams::default().num(2).axis(1));
        check(BuiltinOp::UNPACK, 1, unpack, &[Some(whole.clone())], &parts);
        let e = error(BuiltinOp::PACK, 1, pack, &inputs[..1], &[whole]);
        assert!(e.contains("the option names 2 inputs, the node has 1"), "{e}");
    }
}
