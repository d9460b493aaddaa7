//! Data that a delegate caches for constants must be used for these constants only.

use std::ops::Range;
use std::sync::Arc;

use delegraph_core::{ModelBytes, Tensor, TensorType};

use super::{Found, Trial, differ};
use crate::engine::{Backend, Kernels, Problem};

/// Runs a model with the same ops, names and shapes, whose constants are the same numbers in another order. Both models
/// must keep their own results. Detects packed weights that are cached by name, by shape, or by their first bytes.
pub(super) fn check(trial: &Trial<'_>) -> Found {
    let Some(other) = reordered(trial.problem).filter(|_| !trial.is_random()) else { return Ok(None) };
    let other = Trial { problem: &other, ..*trial };
    let reference = Trial { backend: &Backend::kernels(Kernels::Reference), ..other };
    // An op may not accept every order.
    let Ok(wanted) = reference.interpreter(None).and_then(|mut i| reference.run(&mut i)) else {
        return Ok(None);
    };
    let mut first = trial.interpreter(Some(trial.make()?))?;
    trial.run(&mut first)?;
    let mut second = other.interpreter(Some(other.make()?))?;
    let got = other.run(&mut second)?;
    if let Some(problem) = differ(other.problem, "a model with other constants after this one", &got, &wanted)
    {
        return Ok(Some(problem));
    }
    first.reset_variables()?;
    let got = trial.run(&mut first)?;
    Ok(differ(trial.problem, "next to a model with other constants", &got, trial.got))
}

/// Returns the problem with the second half of each constant reversed, for constants that are computed with; `None` if
/// that changes nothing.
fn reordered(problem: &Problem) -> Option<Problem> {
    let model = &problem.model;
    let mut bytes = model.bytes().to_vec();
    // Constants may share their bytes.
    let mut done: Vec<Range<usize>> = Vec::new();
    for tensor in model.subgraphs().iter().flat_map(|s| s.tensors()).filter(|t| is_computed_with(t)) {
        let (Some(range), Some(width)) = (tensor.data(), tensor.ty().bits().map(|bits| bits.div_ceil(8)))
        else {
            continue;
        };
        if done.iter().any(|d| d.start < range.end && range.start < d.end) {
            continue;
        }
        let Some(elements) = bytes.get_mut(range.clone()) else { continue };
        let count = elements.len() / width;
        // Both elements, if there are two.
        let half = if count == 2 { 0 } else { count / 2 * width };
        let Some(second) = elements.get_mut(half..count * width) else { continue };
        second.reverse();
        second.chunks_exact_mut(width).for_each(<[u8]>::reverse);
        done.push(range);
    }
    if bytes == model.bytes() {
        return None;
    }
    let model = model.with_subgraphs(Some(ModelBytes::new(bytes)), model.subgraphs().to_vec()).ok()?;
    Some(Problem { model: Arc::new(model), ..problem.clone() })
}

/// Returns whether a constant holds floats or quantized integers. Integers without a scale may be indices or counts.
fn is_computed_with(tensor: &Tensor) -> bool {
    let float = matches!(tensor.ty(), TensorType::Float32 | TensorType::Float16 | TensorType::BFloat16);
    let affine = tensor.quantization().and_then(|q| q.affine());
    tensor.sparsity().is_none() && (float || affine.is_some())
}
