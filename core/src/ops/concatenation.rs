//! CONCATENATION.

use smallvec::smallvec;

use super::{
    Activation, BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params,
    ReadError, axis_in,
};
use crate::shape::Shape;

/// `CONCATENATION`.
pub static CONCATENATION: OpDef = OpDef {
    op: BuiltinOp::CONCATENATION,
    family: "concatenation",
    read: read_concatenation,
    infer,
    history: &[
        (1, "1.5.0"),
        (2, "1.14.0"),
        (3, "2.3.0"),
        (4, "2.14.0"),
        (5, "2.21.0"),
        (6, "2.23.0"),
        (7, "2.23.0"),
    ],
};

/// Params of CONCATENATION.
#[derive(Debug, Clone, PartialEq)]
pub struct ConcatenationParams {
    /// The dimension along which the inputs follow each other; negative counts from the back.
    pub axis: i32,
    /// No runtime applies it: only `None` is of use.
    pub fused_activation_function: Activation,
}

fn read_concatenation(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_concatenation_options())?;
    Ok(Params::Concatenation(ConcatenationParams {
        axis: t.axis(),
        fused_activation_function: Activation::read(t.fused_activation_function())?,
    }))
}

/// Inputs of one type that agree in every dimension but one.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=usize::MAX, 1)?;
    let axis = axis(cx)?;
    let first = cx.input(0)?;
    let mut shape = first.shape.clone();
    let mut total = 0usize;
    for i in 0..cx.inputs.len() {
        let input = cx.input(i)?;
        if input.ty != first.ty {
            return Err(InferError::new(format!("input {i} is {}, input 0 is {}", input.ty, first.ty)));
        }
        // Constant scalars become a vector.
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

/// The dimension along which the inputs follow each other.
pub fn axis(cx: &InferContext<'_>) -> Result<usize, InferError> {
    axis_in(cx.params::<ConcatenationParams>()?.axis.into(), cx.input(0)?.shape.rank().max(1))
}
