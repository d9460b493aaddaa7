//! RESHAPE, SQUEEZE, EXPAND_DIMS.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, always_1, axis_in,
    lowest_with, no_arithmetic, options,
};
use crate::schema::BuiltinOptions;
use crate::types::shape::{Shape, checked_product};

ops! {
    RESHAPE {
        codec: ReshapeParams::CODEC,
        infer: infer_reshape,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.5.0")],
    }

    SQUEEZE {
        codec: SqueezeParams::CODEC,
        infer: infer_squeeze,
        min_version: min_version_squeeze,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.6.0"), (2, "2.5.0")],
    }

    EXPAND_DIMS {
        codec: Codec::empty(BuiltinOptions::ExpandDimsOptions),
        infer: infer_expand_dims,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.10.0")],
    }
}

options! {
    /// Params of RESHAPE.
    Reshape(ReshapeParams) in BuiltinOptions::ReshapeOptions(builtin_options_as_reshape_options, ReshapeOptionsArgs) as TfLiteReshapeParams {
        /// The new shape, unless input 1 holds it. One dimension may be -1 and is computed.
        new_shape: Vec<i32>;
    }
}

options! {
    /// Params of SQUEEZE.
    Squeeze(SqueezeParams) in BuiltinOptions::SqueezeOptions(builtin_options_as_squeeze_options, SqueezeOptionsArgs) as TfLiteSqueezeParams {
        /// The dimensions of size 1 to remove; negative counts from the back. Without any, all dimensions of size 1.
        squeeze_dims: Vec<i32>;
    }
}

/// The new shape is input 1 if there is one, else the option; one dimension may be -1 and is computed.
fn infer_reshape(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=2, 1)?;
    let input = cx.input(0)?;
    let wanted = match cx.optional(1) {
        // Old converters wrote a shape operand of another rank in addition to the option; the option is valid then.
        Some(shape) if shape.shape.rank() == 1 && shape.ty == TensorType::Int32 => match shape.integers()? {
            Some(wanted) => wanted,
            None => return Ok(smallvec![Inferred::data_dependent(input.ty)]),
        },
        _ => cx.params::<ReshapeParams>()?.new_shape.iter().map(|&d| d.into()).collect(),
    };
    // Old converters wrote a scalar as a single 0.
    let wanted =
        if wanted.as_slice() == [0] && input.shape.elements() == 1 { Default::default() } else { wanted };
    let fail = || {
        let wanted = wanted.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        InferError::new(format!("cannot reshape {} to [{wanted}]", input.shape))
    };
    let known: Shape = wanted
        .iter()
        .filter(|&&d| d != -1)
        .map(|&d| usize::try_from(d))
        .collect::<Result<_, _>>()
        .map_err(|_| fail())?;
    let product = |dims: &[usize]| checked_product(dims).ok_or_else(fail);
    let nonzero = |dims: &[usize]| product(&dims.iter().copied().filter(|&d| d > 0).collect::<Shape>());
    // If there are no elements, the -1 is computed as if the zeros were absent.
    let stretched = match product(&known)? {
        0 => nonzero(input.shape)?.checked_div(nonzero(&known)?).filter(|_| input.shape.elements() == 0),
        n => Some(input.shape.elements() / n),
    };
    let shape: Shape = wanted.iter().filter_map(|&d| usize::try_from(d).ok().or(stretched)).collect();
    let stretches = wanted.len() - known.rank();
    if stretches > 1
        || shape.rank() != wanted.len()
        || shape.checked_elements() != Some(input.shape.elements())
    {
        return Err(fail());
    }
    Ok(smallvec![Inferred::known(input.ty, shape)])
}

/// Removes the dimensions of size 1 that are named, or all of them.
fn infer_squeeze(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    let rank = input.shape.rank();
    let dims = &cx.params::<SqueezeParams>()?.squeeze_dims;
    let mut remove = smallvec::SmallVec::<[bool; 8]>::from_elem(false, rank);
    for &dim in dims {
        remove[axis_in(dim.into(), rank)?] = true;
    }
    if dims.is_empty() {
        input.shape.iter().zip(&mut remove).for_each(|(&d, r)| *r = d == 1);
    }
    if let Some(i) = (0..rank).find(|&i| remove[i] && input.shape[i] != 1) {
        return Err(InferError::new(format!("cannot squeeze dimension {i} of {}", input.shape)));
    }
    let shape: Shape = (0..rank).filter(|&i| !remove[i]).map(|i| input.shape[i]).collect();
    Ok(smallvec![Inferred::known(input.ty, shape)])
}

/// Inserts a dimension of size 1 at the axis that input 1 gives.
fn infer_expand_dims(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let input = cx.input(0)?;
    let Some(axis) = cx.input(1)?.integers()? else {
        return Ok(smallvec![Inferred::data_dependent(input.ty)]);
    };
    let [axis] = axis.as_slice() else {
        return Err(InferError::new(format!("the axis must be one number, got {}", axis.len())));
    };
    let axis = axis_in(*axis, input.shape.rank() + 1)?;
    let (front, back) = input.shape.dims().split_at(axis);
    Ok(smallvec![Inferred::known(input.ty, front.iter().chain(&[1]).chain(back).copied().collect::<Shape>())])
}

/// Version 2 added strings.
fn min_version_squeeze(s: &OpSignature<'_>) -> u32 {
    use TensorType::String;
    lowest_with(&[(2, s.input_is(0, &[String]))])
}
