//! EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, LOGICAL_AND, LOGICAL_OR.

use smallvec::smallvec;

use super::binary::broadcast_inputs;
use super::{
    Codec, InferContext, InferResult, Inferred, OpSignature, TensorType, always_1, lowest_with, per_output,
};
use crate::schema::BuiltinOptions;

ops! {
    EQUAL {
        codec: Codec::empty(BuiltinOptions::EqualOptions),
        infer,
        min_version: min_version_equal,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.13.0"), (5, "2.21.0")],
    }

    NOT_EQUAL {
        codec: Codec::empty(BuiltinOptions::NotEqualOptions),
        infer,
        min_version: min_version_not_equal,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.21.0")],
    }

    LESS {
        codec: Codec::empty(BuiltinOptions::LessOptions),
        infer,
        min_version: min_version_16_bit,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.13.0")],
    }

    LESS_EQUAL {
        codec: Codec::empty(BuiltinOptions::LessEqualOptions),
        infer,
        min_version: min_version_8_bit,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.14.0")],
    }

    GREATER {
        codec: Codec::empty(BuiltinOptions::GreaterOptions),
        infer,
        min_version: min_version_8_bit,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.14.0")],
    }

    GREATER_EQUAL {
        codec: Codec::empty(BuiltinOptions::GreaterEqualOptions),
        infer,
        min_version: min_version_16_bit,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.13.0")],
    }

    LOGICAL_AND {
        codec: Codec::empty(BuiltinOptions::LogicalAndOptions),
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.11.0")],
    }

    LOGICAL_OR {
        codec: Codec::empty(BuiltinOptions::LogicalOrOptions),
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.11.0")],
    }
}

/// Two inputs of one type that broadcast to a BOOL output.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    Ok(smallvec![Inferred::known(TensorType::Bool, broadcast_inputs(cx)?)])
}

/// Versions added 8-bit, strings and 16-bit, in this order.
fn min_version_equal(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16, String};
    lowest_with(&[(2, s.input_is(0, &[Int8])), (3, s.input_is(0, &[String])), (5, s.input_is(0, &[Int16]))])
}

/// Versions added 8-bit, strings and 16-bit, in this order.
fn min_version_not_equal(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16, String};
    lowest_with(&[(2, s.input_is(0, &[Int8])), (3, s.input_is(0, &[String])), (4, s.input_is(0, &[Int16]))])
}

/// Version 2 added 8-bit, version 3 16-bit.
fn min_version_16_bit(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Int8])), (3, s.input_is(0, &[Int16]))])
}

/// Version 2 added 8-bit.
fn min_version_8_bit(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int8;
    lowest_with(&[(2, s.input_is(0, &[Int8]))])
}
