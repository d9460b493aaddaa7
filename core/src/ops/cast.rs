//! CAST, BITCAST.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, always_1, lowest_with,
    no_arithmetic, options,
};
use crate::schema::BuiltinOptions;

ops! {
    CAST {
        codec: CastParams::CODEC,
        infer: infer_cast,
        min_version,
        multiply_adds: no_arithmetic,
        history: &[
            (1, "1.5.0"),
            (2, "2.7.0"),
            (3, "2.8.0"),
            (4, "2.9.0"),
            (5, "2.12.0"),
            (6, "2.15.0"),
            (7, "2.17.0"),
            (8, "2.21.0"),
            (9, "2.23.0"),
        ],
    }

    BITCAST {
        codec: Codec::empty(BuiltinOptions::BitcastOptions),
        infer: infer_bitcast,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.13.0")],
    }
}

options! {
    /// Params of CAST.
    Cast(CastParams) in BuiltinOptions::CastOptions(builtin_options_as_cast_options, CastOptionsArgs) as TfLiteCastParams {
        /// The input's type, which the tensor has, too.
        in_data_type: TensorType;
        /// The output's type, which the tensor has, too.
        out_data_type: TensorType;
    }
}

/// The same values in the output's type.
fn infer_cast(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    Ok(smallvec![Inferred::known(declared(cx)?, cx.input(0)?.shape.clone())])
}

/// The same bits in the output's type: a smaller type adds a dimension, a larger one takes the last one away.
fn infer_bitcast(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let (input, to) = (cx.input(0)?, declared(cx)?);
    let error = || InferError::new(format!("{} {} is not bits of {to}", input.ty, input.shape));
    let (Some(from_bits), Some(to_bits)) = (input.ty.bits(), to.bits()) else { return Err(error()) };
    let mut dims = input.shape.to_vec();
    if from_bits > to_bits {
        dims.push(from_bits / to_bits);
    } else if from_bits < to_bits && dims.pop() != Some(to_bits / from_bits) {
        return Err(error());
    }
    Ok(smallvec![Inferred::known(to, dims.as_slice())])
}

fn declared(cx: &InferContext<'_>) -> Result<TensorType, InferError> {
    cx.outputs.first().map(|o| o.ty).ok_or_else(|| InferError::new("output 0 is missing"))
}

/// Types were added one after the other, on either side.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::*;
    let either = |types: &[TensorType]| s.input_is(0, types) || s.output_is(0, types);
    lowest_with(&[
        (2, either(&[UInt32])),
        (3, either(&[Int8])),
        (4, either(&[UInt16])),
        (5, either(&[Float64, Float16])),
        (6, either(&[Int4])),
        (7, either(&[BFloat16])),
        (8, either(&[Int2, UInt4])),
        (9, either(&[Float8E4M3FN, Float8E5M2])),
    ])
}
