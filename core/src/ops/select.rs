//! SELECT, SELECT_V2.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, InferTensor, Inferred, OpSignature, TensorType,
    lowest_with, no_arithmetic,
};
use crate::schema::BuiltinOptions;
use crate::types::shape::broadcast;

ops! {
    SELECT {
        codec: Codec::empty(BuiltinOptions::SelectOptions),
        infer: infer_select,
        min_version: min_version_select,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.12.0"), (4, "2.12.0")],
    }

    SELECT_V2 {
        codec: Codec::empty(BuiltinOptions::SelectV2Options),
        infer: infer_select_v2,
        min_version: min_version_select_v2,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.2.0"), (2, "2.12.0")],
    }
}

/// The elements of input 1 where the condition is true, and those of input 2 elsewhere; both have the same shape. The
/// condition has their shape, one element per index of the first dimension, or rank 0.
fn infer_select(cx: &InferContext<'_>) -> InferResult {
    let [condition, x, y] = operands(cx)?;
    if let Some(single) = single(cx, [condition, x, y]) {
        return Ok(smallvec![single]);
    }
    let fits = match condition.shape.dims() {
        [] => true,
        &[n] if x.shape.first() == Some(&n) => true,
        _ => condition.shape == x.shape,
    };
    if !fits || x.shape != y.shape {
        return Err(InferError::new(format!(
            "condition {}, {} and {} do not fit",
            condition.shape, x.shape, y.shape
        )));
    }
    Ok(smallvec![Inferred::known(x.ty, x.shape.clone())])
}

/// Like SELECT, for operands that broadcast to the output.
fn infer_select_v2(cx: &InferContext<'_>) -> InferResult {
    let [condition, x, y] = operands(cx)?;
    if let Some(single) = single(cx, [condition, x, y]) {
        return Ok(smallvec![single]);
    }
    let shape = broadcast(x.shape, y.shape).and_then(|both| broadcast(&both, condition.shape));
    match shape {
        Some(shape) => Ok(smallvec![Inferred::known(x.ty, shape)]),
        None => {
            Err(InferError::new(format!("{}, {} and {} do not broadcast", condition.shape, x.shape, y.shape)))
        }
    }
}

fn operands<'a, 'b>(cx: &'b InferContext<'a>) -> Result<[&'b InferTensor<'a>; 3], InferError> {
    cx.arity(3..=3, 1)?;
    let (condition, x, y) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    if condition.ty != TensorType::Bool || x.ty != y.ty {
        return Err(InferError::new(format!(
            "expected BOOL and two of one type, got {}, {} and {}",
            condition.ty, x.ty, y.ty
        )));
    }
    Ok([condition, x, y])
}

/// If all operands have one element, the output has its declared shape, provided that it also has one element.
fn single(cx: &InferContext<'_>, operands: [&InferTensor<'_>; 3]) -> Option<Inferred> {
    let declared = cx.outputs.first()?.shape;
    let ones = operands.iter().all(|t| t.shape.elements() == 1) && declared.elements() == 1;
    ones.then(|| Inferred::known(operands[1].ty, declared.clone()))
}

/// Versions added 8-bit values, rank 5 and unsigned values, in this order. Higher ranks with operands of one shape need
/// no higher version, since operands are read as one-dimensional.
fn min_version_select(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, UInt32};
    lowest_with(&[
        (2, s.input_is(1, &[Int8])),
        (3, (0..3).any(|i| s.rank(i) == 5)),
        (4, s.input_is(1, &[UInt32])),
    ])
}

/// Version 2 added unsigned values.
fn min_version_select_v2(s: &OpSignature<'_>) -> u32 {
    use TensorType::UInt32;
    lowest_with(&[(2, s.input_is(1, &[UInt32]))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::BuiltinOp;
    use crate::ops::Params;
    use crate::ops::TensorType::{Bool, Float32, Int8};
    use crate::writer::{ModelBuilder, SubgraphBuilder};

    fn version(rank: usize, ty: TensorType) -> u32 {
        let mut graph = SubgraphBuilder::new("main");
        let condition = graph.input("condition", Bool, vec![1usize; rank].as_slice());
        let x = graph.input("x", ty, vec![1usize; rank].as_slice());
        let y = graph.node(BuiltinOp::SELECT, Params::None).inputs([condition, x, x]).output("y");
        graph.outputs([y]);
        ModelBuilder::new().subgraph(graph).build().unwrap().subgraphs()[0].nodes()[0].version()
    }

    #[test]
    fn rank_5_alone_needs_a_version_of_its_own() {
        assert_eq!([4, 5, 6, 8].map(|rank| version(rank, Float32)), [1, 3, 1, 1]);
        assert_eq!(version(1, Int8), 2);
    }
}
