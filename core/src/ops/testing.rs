//! One helper for table tests of inference: operands without a model.

use super::{Declared, InferContext, InferResult, InferTensor, Inferred, OpDef, Params, TensorType};
use crate::types::Element;
use crate::types::Quantization;
use crate::types::Shape;

/// An operand.
#[derive(Debug, Clone)]
pub(crate) struct T {
    ty: TensorType,
    shape: Shape,
    quantization: Option<Quantization>,
    constant: Option<Vec<u8>>,
}

impl T {
    /// An operand whose data is unknown.
    pub(crate) fn new(ty: TensorType, shape: &[usize]) -> Self {
        T { ty, shape: Shape::new(shape), quantization: None, constant: None }
    }

    /// An operand whose data is known.
    pub(crate) fn constant<E: Element>(shape: &[usize], elements: &[E]) -> Self {
        T { constant: Some(bytemuck::cast_slice(elements).to_vec()), ..T::new(E::TYPE, shape) }
    }

    /// A vector that is known.
    pub(crate) fn list(elements: &[i32]) -> Self {
        T::constant(&[elements.len()], elements)
    }
}

/// Infers the outputs of a use of `def` at version 1 with these inputs; outputs are declared as scalars of these types.
pub(crate) fn infer(
    def: &OpDef,
    params: Params,
    inputs: &[Option<T>],
    outputs: &[TensorType],
) -> InferResult {
    let outputs: Vec<T> = outputs.iter().map(|&ty| T::new(ty, &[])).collect();
    infer_declared(def, params, inputs, &outputs)
}

/// Infers the outputs of a use of `def` at version 1 with these inputs and declared outputs.
fn infer_declared(def: &OpDef, params: Params, inputs: &[Option<T>], outputs: &[T]) -> InferResult {
    let mut cx =
        InferContext { params: &params, version: 1, inputs: Default::default(), outputs: Default::default() };
    for input in inputs {
        cx.inputs.push(input.as_ref().map(|t| InferTensor {
            ty: t.ty,
            shape: &t.shape,
            quantization: t.quantization.as_ref(),
            constant: t.constant.as_deref(),
        }));
    }
    cx.outputs.extend(outputs.iter().map(|t| Declared { ty: t.ty, shape: &t.shape, quantization: None }));
    (def.infer)(&cx)
}

/// Checks that a use with one output infers this type and shape.
pub(crate) fn gives(def: &OpDef, params: Params, inputs: &[Option<T>], ty: TensorType, shape: &[usize]) {
    let inferred = infer(def, params, inputs, &[ty]).unwrap_or_else(|e| panic!("{def:?}: {e}"));
    assert_eq!(inferred.as_slice(), [Inferred::known(ty, Shape::new(shape))], "{def:?}");
}

/// Checks that a use with this number of outputs is rejected, and that the error contains `text`.
pub(crate) fn refused(def: &OpDef, params: Params, inputs: &[Option<T>], outputs: usize, text: &str) {
    let outputs = vec![TensorType::Float32; outputs];
    let error = infer(def, params, inputs, &outputs).expect_err("the use is wrong").to_string();
    assert!(error.contains(text), "{def:?}: {error}");
}

/// Checks that the inferred outputs of a use are the declared ones.
pub(crate) fn good(def: &OpDef, params: impl Into<Params>, inputs: &[T], outputs: &[T]) {
    let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
    let inferred =
        infer_declared(def, params.into(), &inputs, outputs).unwrap_or_else(|e| panic!("{def:?}: {e}"));
    let want: Vec<_> = outputs.iter().map(|t| Inferred::known(t.ty, t.shape.clone())).collect();
    assert_eq!(inferred.as_slice(), want, "{def:?}");
}

/// Checks that a use with these declared outputs is rejected, and that the error contains `text`.
pub(crate) fn bad(def: &OpDef, params: impl Into<Params>, inputs: &[T], outputs: &[T], text: &str) {
    let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
    let error =
        infer_declared(def, params.into(), &inputs, outputs).expect_err("the use is wrong").to_string();
    assert!(error.contains(text), "{def:?}: expected \"{text}\", got \"{error}\"");
}
