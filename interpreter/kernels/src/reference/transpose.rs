//! TRANSPOSE.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::transpose::permutation;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::index::{StridedCopy, View, dense_strides};
use crate::common::prepared::{Invoke, copies, known, moved_bits, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::TRANSPOSE, prepared(prepare), 1..=9);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let permutation = known(permutation(&cx.infer_context())?)?;
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let strides = dense_strides(input.shape());
    let from = View { start: 0, strides: permutation.iter().map(|&d| strides[d]).collect() };
    let shape = output.shape();
    copies(cx, vec![(0, 0, StridedCopy::new(shape, moved_bits("input", input)?, &from, &View::dense(shape)))])
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn permutes() {
        let x = || Some(T::new(&[2, 1, 3], &[1u16, 2, 3, 4, 5, 6]));
        let p = |p: [i32; 3]| Some(T::new(&[3], &p).constant());
        let want = T::new(&[3, 2, 1], &[1u16, 4, 2, 5, 3, 6]);
        check(BuiltinOp::TRANSPOSE, 5, Params::None, &[x(), p([-1, 0, 1])], std::slice::from_ref(&want));
        let e = error(BuiltinOp::TRANSPOSE, 5, Params::None, &[x(), p([0, 0, 1])], &[want]);
        assert!(e.contains("[0, 0, 1]") && e.contains("permutation"), "{e}");
    }
}
