//! DENSIFY: the dense form of a sparse constant. Sparse tensors are constants, so the node is folded.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::common::prepared::{Invoke, moved_bits, prepared};
use crate::common::weights::densify;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::DENSIFY, prepared(prepare), 1);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let input = cx.input(0)?;
    let bytes = moved_bits("input", input)?.div_ceil(8);
    let Some(sparsity) = input.tensor().sparsity.clone() else {
        return Err(Error::InvalidNode(format!("\"{}\" is not sparse", input.name())));
    };
    let shape = input.shape().clone();
    Ok(Box::new(move |cx| {
        let (stored, dense) = (cx.input_bytes(0)?, cx.output_bytes(0)?);
        densify(cx.budget(), &sparsity, &shape, bytes, stored, dense)
    }))
}
