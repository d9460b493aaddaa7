//! CONCATENATION.

use smallvec::smallvec;

use super::{
    Activation, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, axis_in,
    lowest_with, no_arithmetic, options,
};
use crate::types::Shape;

ops! {
    CONCATENATION {
        codec: ConcatenationParams::CODEC,
        infer,
        min_version,
        multiply_adds: no_arithmetic,
        history: &[
            (1, "1.5.0"),
            (2, "1.14.0"),
            (3, "2.3.0"),
            (4, "2.14.0"),
            (5, "2.21.0"),
            (6, "2.23.0"),
            (7, "2.23.0"),
        ],
    }
}

options! {
    /// Params of CONCATENATION.
    Concatenation(ConcatenationParams) in BuiltinOptions::ConcatenationOptions(builtin_options_as_concatenation_options, ConcatenationOptionsArgs) as TfLiteConcatenationParams {
        /// The dimension along which the inputs follow each other; negative counts from the back.
        axis: i32;
        /// No runtime applies it: only `None` is useful.
        fused_activation_function: Activation;
    }
}

/// Inputs of one type that agree in every dimension but one.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=usize::MAX, 1)?;
    concatenated(cx, axis(cx)?)
}

/// Infers the concatenation of all inputs along dimension `axis`.
pub(super) fn concatenated(cx: &InferContext<'_>, axis: usize) -> InferResult {
    let first = cx.input(0)?;
    let mut shape = first.shape.clone();
    let mut total = 0usize;
    for i in 0..cx.inputs.len() {
        let input = cx.input(i)?;
        if input.ty != first.ty {
            return Err(InferError::new(format!("input {i} is {}, input 0 is {}", input.ty, first.ty)));
        }
        // Scalars become a vector.
        let dims = if first.shape.rank() == 0 && input.shape.rank() == 0 { &[1] } else { input.shape.dims() };
        let fits =
            dims.len() == shape.rank().max(1) && (0..dims.len()).all(|d| d == axis || dims[d] == shape[d]);
        if !fits {
            return Err(InferError::new(format!(
                "input {i} has shape {}, which does not continue {} along dimension {axis}",
                input.shape, first.shape
            )));
        }
        total = total.checked_add(dims[axis]).ok_or_else(|| InferError::new("the sizes overflow"))?;
    }
    if shape.rank() == 0 {
        shape = Shape::from([total]);
    }
    let shape: Shape =
        shape.iter().enumerate().map(|(d, &size)| if d == axis { total } else { size }).collect();
    Ok(smallvec![Inferred::known(first.ty, shape)])
}

/// Returns the dimension along which the inputs follow each other.
pub fn axis(cx: &InferContext<'_>) -> Result<usize, InferError> {
    axis_in(cx.params::<ConcatenationParams>()?.axis.into(), cx.input(0)?.shape.rank().max(1))
}

/// Types were added one after the other.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float8E4M3FN, Float8E5M2, Float16, Int4, Int8, Int16, UInt32};
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.input_is(0, &[Int16])),
        (4, s.input_is(0, &[UInt32])),
        (5, s.input_is(0, &[Int4])),
        (6, s.input_is(0, &[Float16])),
        (7, s.input_is(0, &[Float8E4M3FN, Float8E5M2])),
    ])
}
