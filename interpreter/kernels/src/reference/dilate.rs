//! DILATE.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::dilate::dilations;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::index::StridedCopy;
use crate::common::prepared::{Invoke, fill_polled, known, moved_bits, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::DILATE, prepared(prepare), 1);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let apart = known(dilations(&cx.infer_context())?)?;
    let before = vec![0; apart.len()];
    spread(cx, &before, &apart, 2)
}

/// Places the elements of input 0 from index `before` on, `apart` elements apart; all other elements are that of input
/// `value`.
pub(super) fn spread(
    cx: &mut PrepareContext<'_>,
    before: &[isize],
    apart: &[usize],
    value: usize,
) -> Result<Invoke> {
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let bits = moved_bits("input 0", input)?;
    if bits < 8 {
        return Err(unsupported_type("input 0", input));
    }
    let copy = StridedCopy::spread(input.shape(), output.shape(), before, apart, bits);
    Ok(Box::new(move |cx| {
        let output = cx.output_bytes(0)?;
        fill_polled(output, cx.input_bytes(value)?, cx.parallel());
        copy.run_on(cx.input_bytes(0)?, output, cx.parallel());
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn puts_elements_apart() {
        let (x, value) = (|| Some(T::new(&[2, 2], &[1i64, 2, 3, 4])), || Some(T::new(&[], &[-1i64])));
        let apart = |v: [i32; 2]| Some(T::new(&[2], &v));
        let want = T::new(&[2, 4], &[1i64, -1, -1, 2, 3, -1, -1, 4]);
        let (op, want) = (BuiltinOp::DILATE, [want]);
        check(op, 1, Params::None, &[x(), apart([1, 3]), value()], &want);
        let e = error(op, 1, Params::None, &[x(), apart([1, 0]), value()], &want);
        assert!(e.ends_with("the dilations [1, 0] are not all positive"), "{e}");
    }
}
