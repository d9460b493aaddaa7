//! Kernels of custom ops of well-known models. An application's own registrations take precedence.

use delegraph_core::kernel::{PrepareContext, TensorView};
use delegraph_core::{Error, Result, TensorType};

use crate::common::prepared::unsupported_type;
use crate::families::declare_families;

declare_families! {
    "custom-op", "",
    audio,
    detection_postprocess,
    fused,
    hadamard,
    landmarks,
    max_pooling,
    resampler,
    transform_tensor,
    transpose_conv_bias,
}

/// Names of this project's custom ops, for functions without a builtin op.
pub mod names {
    /// Layer normalization over the last dimension. Inputs: `x`, factors and terms `[channels]`; option `epsilon`.
    pub const LAYER_NORM: &str = "delegraph.layer_norm";
    /// Normalization over groups of the last dimension together with all dimensions between it and the first. Inputs as
    /// [`LAYER_NORM`]; options `epsilon` and `num_groups`.
    pub const GROUP_NORM: &str = "delegraph.group_norm";
    /// Root mean square normalization over the last dimension. Inputs: `x`, factors `[channels]`; option `epsilon`.
    pub const RMS_NORM: &str = "delegraph.rms_norm";
    /// Attention. Inputs: queries `[batch, queries, heads, width]`, keys and values `[batch, keys, groups, width]`, and
    /// optionally an addend to the scores, `[1 or batch, 1 or heads, 1 or queries, keys]`; option `scale`.
    pub const ATTENTION: &str = "delegraph.attention";
}

/// An error in options or shapes, which inference does not check for custom ops.
fn invalid(text: impl Into<String>) -> Error {
    Error::InvalidNode(text.into())
}

/// Checks the number of operands, and that all are FLOAT32.
fn check_floats(cx: &PrepareContext<'_>, inputs: usize, outputs: usize) -> Result<()> {
    cx.ensure_counts(inputs, outputs)?;
    let check = |what: &str, i: usize, tensor: TensorView<'_>| match tensor.ty() {
        TensorType::Float32 => Ok(()),
        _ => Err(unsupported_type(&format!("{what} {i}"), tensor)),
    };
    (0..inputs).try_for_each(|i| check("input", i, cx.input(i)?))?;
    (0..outputs).try_for_each(|i| check("output", i, cx.output(i)?))
}

/// The shape of a tensor that must have rank `R`.
fn dims<const R: usize>(tensor: TensorView<'_>) -> Result<[usize; R]> {
    let shape = tensor.shape();
    shape
        .dims()
        .try_into()
        .map_err(|_| invalid(format!("\"{}\" must have rank {R}, got {shape}", tensor.name())))
}
