//! The StableHLO ops that compute each element of the output from the elements at the same position of the inputs.
//! Nothing broadcasts, except the scalars of SELECT and CLAMP.

use smallvec::smallvec;

use super::value::EnumValue;
use super::{
    Codec, ComparisonDirection, ComparisonType, InferContext, InferError, InferResult, InferTensor, Inferred,
    TensorType, always_1, options, per_output,
};
use crate::schema::BuiltinOptions2;

ops! {
    /// `1 / (1 + e^-x)`.
    STABLEHLO_LOGISTIC {
        codec: Codec::NONE,
        infer: infer_analytic,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    /// The sum; of booleans, whether one of them is true.
    STABLEHLO_ADD {
        codec: Codec::NONE,
        infer: infer_binary,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.16.0")],
    }

    /// The quotient, truncated for integers.
    STABLEHLO_DIVIDE {
        codec: Codec::NONE,
        infer: infer_arithmetic,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    /// The product; of booleans, whether both are true.
    STABLEHLO_MULTIPLY {
        codec: Codec::NONE,
        infer: infer_binary,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.16.0")],
    }

    /// The larger one.
    STABLEHLO_MAXIMUM {
        codec: Codec::NONE,
        infer: infer_binary,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.16.0")],
    }

    /// The smaller one.
    STABLEHLO_MINIMUM {
        codec: Codec::NONE,
        infer: infer_binary,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.16.0")],
    }

    /// The magnitude.
    STABLEHLO_ABS {
        codec: Codec::NONE,
        infer: infer_abs,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    /// Bitwise for integers, logical for booleans.
    STABLEHLO_AND {
        codec: Codec::NONE,
        infer: infer_bits,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.17.0")],
    }

    /// Bitwise for integers, logical for booleans.
    STABLEHLO_OR {
        codec: Codec::NONE,
        infer: infer_bits,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    STABLEHLO_COSINE {
        codec: Codec::NONE,
        infer: infer_analytic,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    STABLEHLO_EXPONENTIAL {
        codec: Codec::NONE,
        infer: infer_analytic,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    STABLEHLO_FLOOR {
        codec: Codec::NONE,
        infer: infer_real,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    /// The natural logarithm.
    STABLEHLO_LOG {
        codec: Codec::NONE,
        infer: infer_analytic,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    STABLEHLO_NEGATE {
        codec: Codec::NONE,
        infer: infer_negate,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    STABLEHLO_POWER {
        codec: Codec::NONE,
        infer: infer_arithmetic,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    /// The remainder has the sign of the dividend.
    STABLEHLO_REMAINDER {
        codec: Codec::NONE,
        infer: infer_arithmetic,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    /// `1 / sqrt(x)`.
    STABLEHLO_RSQRT {
        codec: Codec::NONE,
        infer: infer_analytic,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    STABLEHLO_SUBTRACT {
        codec: Codec::NONE,
        infer: infer_arithmetic,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    STABLEHLO_TANH {
        codec: Codec::NONE,
        infer: infer_analytic,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    /// Input 0 shifted by the number of bits in input 1.
    STABLEHLO_SHIFT_LEFT {
        codec: Codec::empty_second(BuiltinOptions2::StablehloShiftLeftOptions),
        infer: infer_shift,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.17.0")],
    }

    /// The cube root.
    STABLEHLO_CBRT {
        codec: Codec::NONE,
        infer: infer_analytic,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.17.0")],
    }

    /// Input 1 where the boolean input 0 is true, elsewhere input 2.
    STABLEHLO_SELECT {
        codec: Codec::NONE,
        infer: infer_select,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    /// Input 1, but not below input 0 and not above input 2.
    STABLEHLO_CLAMP {
        codec: Codec::NONE,
        infer: infer_clamp,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    /// Whether the comparison of the params holds between the inputs.
    STABLEHLO_COMPARE {
        codec: StablehloCompareParams::CODEC,
        infer: infer_compare,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }

    /// The same values in the type that the output declares.
    STABLEHLO_CONVERT {
        codec: Codec::NONE,
        infer: infer_convert,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[],
    }
}

options! {
    /// Params of STABLEHLO_COMPARE.
    StablehloCompare(StablehloCompareParams) in BuiltinOptions2::StablehloCompareOptions(builtin_options_2_as_stablehlo_compare_options, StablehloCompareOptionsArgs) {
        /// The comparison.
        comparison_direction: ComparisonDirection;
        /// The type as which the elements are compared; `NoType` means their own type.
        compare_type: ComparisonType;
    }
}

fn is_complex(ty: TensorType) -> bool {
    matches!(ty, TensorType::Complex64 | TensorType::Complex128)
}

/// Returns true for the integer types.
pub(super) fn is_integer(ty: TensorType) -> bool {
    use TensorType::{Int2, Int4, Int8, Int16, Int32, Int64, UInt4, UInt8, UInt16, UInt32, UInt64};
    matches!(ty, Int2 | Int4 | Int8 | Int16 | Int32 | Int64 | UInt4 | UInt8 | UInt16 | UInt32 | UInt64)
}

fn is_unsigned(ty: TensorType) -> bool {
    matches!(
        ty,
        TensorType::UInt4 | TensorType::UInt8 | TensorType::UInt16 | TensorType::UInt32 | TensorType::UInt64
    )
}

fn is_number(ty: TensorType) -> bool {
    is_integer(ty) || ty.is_float() || is_complex(ty)
}

/// The first of `count` inputs, which all have one type and shape; `takes` is true for the supported types.
fn same<'c>(
    cx: &'c InferContext<'_>,
    count: usize,
    takes: fn(TensorType) -> bool,
) -> Result<&'c InferTensor<'c>, InferError> {
    cx.arity(count..=count, 1)?;
    let first = cx.input(0)?;
    if !takes(first.ty) {
        return Err(InferError::new(format!("the op does not take {}", first.ty)));
    }
    (1..count).try_for_each(|i| same_as(cx.input(i)?, first, i))?;
    Ok(first)
}

fn same_as(input: &InferTensor<'_>, first: &InferTensor<'_>, i: usize) -> Result<(), InferError> {
    if input.ty == first.ty && input.shape == first.shape {
        return Ok(());
    }
    let (InferTensor { ty, shape, .. }, InferTensor { ty: want, shape: wanted, .. }) = (input, first);
    Err(InferError::new(format!("input {i} is {ty} {shape}, expected {want} {wanted}: nothing broadcasts")))
}

fn like(input: &InferTensor<'_>) -> InferResult {
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}

fn infer_analytic(cx: &InferContext<'_>) -> InferResult {
    like(same(cx, 1, |ty| ty.is_float() || is_complex(ty))?)
}

fn infer_real(cx: &InferContext<'_>) -> InferResult {
    like(same(cx, 1, TensorType::is_float)?)
}

fn infer_negate(cx: &InferContext<'_>) -> InferResult {
    like(same(cx, 1, is_number)?)
}

/// The magnitude of a complex number is a float.
fn infer_abs(cx: &InferContext<'_>) -> InferResult {
    let input = same(cx, 1, |ty| is_number(ty) && !is_unsigned(ty))?;
    let ty = match input.ty {
        TensorType::Complex64 => TensorType::Float32,
        TensorType::Complex128 => TensorType::Float64,
        ty => ty,
    };
    Ok(smallvec![Inferred::known(ty, input.shape.clone())])
}

fn infer_binary(cx: &InferContext<'_>) -> InferResult {
    like(same(cx, 2, |ty| is_number(ty) || ty == TensorType::Bool)?)
}

fn infer_arithmetic(cx: &InferContext<'_>) -> InferResult {
    like(same(cx, 2, is_number)?)
}

fn infer_bits(cx: &InferContext<'_>) -> InferResult {
    like(same(cx, 2, |ty| is_integer(ty) || ty == TensorType::Bool)?)
}

fn infer_shift(cx: &InferContext<'_>) -> InferResult {
    like(same(cx, 2, is_integer)?)
}

fn infer_compare(cx: &InferContext<'_>) -> InferResult {
    use ComparisonType::{Float, FloatTotalOrder, NoType, Signed, Unsigned};
    let input = same(cx, 2, |ty| is_number(ty) || ty == TensorType::Bool)?;
    let compare_type = cx.params::<StablehloCompareParams>()?.compare_type;
    let fits = match compare_type {
        NoType => true,
        Float | FloatTotalOrder => input.ty.is_float() || is_complex(input.ty),
        Signed => is_integer(input.ty) && !is_unsigned(input.ty),
        Unsigned => is_unsigned(input.ty) || input.ty == TensorType::Bool,
    };
    if !fits {
        let (_, name) = compare_type.code_and_name();
        return Err(InferError::new(format!("{} cannot be compared as {name}", input.ty)));
    }
    Ok(smallvec![Inferred::known(TensorType::Bool, input.shape.clone())])
}

fn infer_select(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=3, 1)?;
    let (condition, yes, no) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    same_as(no, yes, 2)?;
    let fits = condition.shape.rank() == 0 || condition.shape == yes.shape;
    if condition.ty != TensorType::Bool || !fits {
        return Err(InferError::new(format!(
            "the condition is {} {}, expected one BOOL or BOOL {}",
            condition.ty, condition.shape, yes.shape
        )));
    }
    like(yes)
}

fn infer_clamp(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=3, 1)?;
    let input = cx.input(1)?;
    if !is_number(input.ty) && input.ty != TensorType::Bool {
        return Err(InferError::new(format!("the op does not take {}", input.ty)));
    }
    for i in [0, 2] {
        let bound = cx.input(i)?;
        if bound.ty != input.ty || bound.shape.rank() != 0 {
            same_as(bound, input, i)?;
        }
    }
    like(input)
}

fn infer_convert(cx: &InferContext<'_>) -> InferResult {
    let takes = |ty| is_number(ty) || ty == TensorType::Bool;
    let input = same(cx, 1, takes)?;
    match cx.outputs.first() {
        Some(output) if takes(output.ty) => Ok(smallvec![Inferred::known(output.ty, input.shape.clone())]),
        output => {
            let ty = output.map(|o| o.ty.to_string()).unwrap_or_default();
            Err(InferError::new(format!("STABLEHLO_CONVERT cannot convert {} to {ty}", input.ty)))
        }
    }
}

#[cfg(test)]
mod tests {
    use TensorType::{Bool, Complex64, Float32, Int8, Int32, String, UInt8};

    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::{T, bad, good};

    #[test]
    fn one_input() {
        let out = [T::new(Float32, &[2, 0])];
        good(&STABLEHLO_TANH, Params::None, &[T::new(Float32, &[2, 0])], &out);
        good(&STABLEHLO_ABS, Params::None, &[T::new(Complex64, &[2, 0])], &out);
        good(&STABLEHLO_CONVERT, Params::None, &[T::new(Int8, &[2, 0])], &out);
        bad(&STABLEHLO_TANH, Params::None, &[T::new(Int8, &[2])], &out, "the op does not take INT8");
        bad(&STABLEHLO_ABS, Params::None, &[T::new(UInt8, &[2])], &out, "the op does not take UINT8");
        bad(&STABLEHLO_FLOOR, Params::None, &[], &out, "expected 1 input, the node has 0");
        bad(
            &STABLEHLO_CONVERT,
            Params::None,
            &[T::new(Int8, &[2])],
            &[T::new(String, &[2])],
            "STABLEHLO_CONVERT cannot convert INT8 to STRING",
        );
    }

    #[test]
    fn two_inputs() {
        let (a, row) = (T::new(Int32, &[2, 3]), T::new(Int32, &[3]));
        good(&STABLEHLO_ADD, Params::None, &[a.clone(), a.clone()], std::slice::from_ref(&a));
        let reason = "input 1 is INT32 [3], expected INT32 [2, 3]: nothing broadcasts";
        bad(&STABLEHLO_ADD, Params::None, &[a.clone(), row], std::slice::from_ref(&a), reason);
        let floats = [T::new(Float32, &[2]), T::new(Float32, &[2])];
        bad(&STABLEHLO_AND, Params::None, &floats, &[T::new(Float32, &[2])], "does not take FLOAT32");
        let params = |compare_type| {
            StablehloCompareParams::default()
                .comparison_direction(ComparisonDirection::Lt)
                .compare_type(compare_type)
        };
        good(
            &STABLEHLO_COMPARE,
            params(ComparisonType::Signed),
            &[a.clone(), a.clone()],
            &[T::new(Bool, &[2, 3])],
        );
        let out = [T::new(Bool, &[2, 3])];
        bad(
            &STABLEHLO_COMPARE,
            params(ComparisonType::Float),
            &[a.clone(), a],
            &out,
            "INT32 cannot be compared as STABLEHLO_COMPARISON_TYPE_FLOAT",
        );
    }

    #[test]
    fn three_inputs() {
        let (x, one, out) = (T::new(Float32, &[2]), T::new(Float32, &[]), [T::new(Float32, &[2])]);
        good(&STABLEHLO_CLAMP, Params::None, &[one.clone(), x.clone(), x.clone()], &out);
        bad(
            &STABLEHLO_CLAMP,
            Params::None,
            &[T::new(Float32, &[1]), x.clone(), one],
            &out,
            "input 0 is FLOAT32 [1]",
        );
        good(&STABLEHLO_SELECT, Params::None, &[T::new(Bool, &[]), x.clone(), x.clone()], &out);
        good(&STABLEHLO_SELECT, Params::None, &[T::new(Bool, &[2]), x.clone(), x.clone()], &out);
        bad(
            &STABLEHLO_SELECT,
            Params::None,
            &[T::new(Bool, &[1]), x.clone(), x],
            &out,
            "the condition is BOOL [1]",
        );
    }
}
