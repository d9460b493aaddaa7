//! Tensors: shape, constant data and sparse storage.

use super::{Invalid, at_tensor, check_range, invalid, quantization};
use crate::error::counted;
use crate::graph::{Strings, Subgraph, Tensor};
use crate::types::TensorType;

/// The maximum rank. Models do not have higher ranks, not even those that test the rank limits of kernels.
pub(in crate::graph) const MAX_RANK: usize = 64;

/// Checks every tensor of a subgraph by itself, and the tensors that quantizations name.
pub(super) fn check_tensors(subgraph: &Subgraph, bytes: &[u8]) -> Result<(), Invalid> {
    for (i, tensor) in subgraph.tensors.iter().enumerate() {
        check(tensor, bytes).map_err(|e| at_tensor(i, &tensor.name, e))?;
    }
    quantization::check_scale_tensors(&subgraph.tensors)
}

fn check(tensor: &Tensor, bytes: &[u8]) -> Result<(), Invalid> {
    let (ty, shape) = (tensor.ty, &tensor.shape);
    if shape.rank() > MAX_RANK {
        return invalid!("rank {} is above {MAX_RANK}", shape.rank());
    }
    let Some(elements) = shape.checked_elements() else {
        return invalid!("the number of elements of {shape} overflows");
    };
    if let Some(signature) = tensor.shape_signature().filter(|s| s.len() != shape.rank()) {
        return invalid!(
            "its shape signature has {}, its shape {shape} has {}",
            counted(signature.len(), "dimension"),
            shape.rank()
        );
    }
    let stored = match tensor.sparsity() {
        Some(sparsity) => sparsity.validate(shape).map_err(|e| Invalid(e.to_string()))?,
        None => elements,
    };
    match &tensor.data {
        Some(_) if tensor.is_variable => return invalid!("a variable cannot have constant data"),
        Some(_) if tensor.external_data => {
            return invalid!("its data is both in the model and outside of it");
        }
        None if tensor.external_data && tensor.is_variable => {
            return invalid!("a variable cannot have constant data");
        }
        Some(data) => {
            check_range(data, bytes.len())?;
            check_data(ty, stored, bytes.get(data.clone()).unwrap_or_default())?;
        }
        None if tensor.sparsity().is_some() && !tensor.external_data => {
            return invalid!("it is sparse, but has no data");
        }
        None => {}
    }
    tensor.quantization.as_ref().map_or(Ok(()), |q| quantization::check(q, ty, shape))
}

/// Checks that the length of constant data fits type and shape, and that strings are within the data.
fn check_data(ty: TensorType, stored: usize, data: &[u8]) -> Result<(), Invalid> {
    match ty {
        // A tensor without elements has no strings, and needs no bytes.
        TensorType::String if stored == 0 && data.is_empty() => Ok(()),
        TensorType::String => match Strings::parse(data) {
            Ok(strings) if strings.len() == stored => Ok(()),
            Ok(strings) => {
                invalid!("it holds {}, its shape needs {stored}", counted(strings.len(), "string"))
            }
            Err(e) => invalid!("{e}"),
        },
        TensorType::Resource | TensorType::Variant if !data.is_empty() => {
            invalid!("a {ty} tensor cannot have constant data")
        }
        TensorType::Resource | TensorType::Variant => Ok(()),
        _ => match ty.byte_size(stored) {
            Some(needed) if data.len() == needed => Ok(()),
            Some(needed) => {
                invalid!("its data has {}, its type and shape need {needed}", counted(data.len(), "byte"))
            }
            None => invalid!("its size overflows"),
        },
    }
}
