//! What a spec turns into: text, bindings, uniform bytes and a dispatch.

use crate::{Caps, Features, ShaderError};

/// One dispatch, ready to be compiled, bound and recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Kernel family, like `conv_2d`.
    pub name: &'static str,
    /// Identifies the pipeline: equal keys mean equal `wgsl`, `entry` and `features`, and `bindings` that
    /// are [accessed](Binding::access) alike.
    pub key: String,
    /// Source of the module.
    pub wgsl: String,
    /// Entry point.
    pub entry: &'static str,
    /// Bindings of group 0, in order of their binding number.
    pub bindings: Vec<Binding>,
    /// Contents of the uniform block; a multiple of 16 bytes.
    pub uniform: Vec<u8>,
    /// Workgroups in x, y and z. Zero in any of them: nothing to do.
    pub dispatch: [u32; 3],
    /// What the text needs beyond plain WGSL.
    pub features: Features,
}

/// What belongs at a binding number of group 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// Storage: the op's input of this number, in the order that the spec documents.
    Input(u8),
    /// Storage: what `Spec::pack_weights` made.
    Weights,
    /// Storage: the residual operand of an [`Epilogue`](crate::Epilogue), shaped like the output.
    Residual,
    /// Storage: PReLU slopes of an [`Epilogue`](crate::Epilogue), one per output channel.
    Slope,
    /// A texture of floats with two dimensions.
    Texture,
    /// Storage, written: the result.
    Output,
    /// Uniform: [`Kernel::uniform`].
    Uniform,
}

/// How a kernel touches a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// `var<storage, read>`
    Read,
    /// `var<storage, read_write>`
    ReadWrite,
    /// `var<uniform>`
    Uniform,
    /// `texture_2d<f32>`, read by whole pixels.
    Texture,
}

impl Binding {
    /// How a kernel touches this binding.
    pub fn access(self) -> Access {
        match self {
            Self::Output => Access::ReadWrite,
            Self::Uniform => Access::Uniform,
            Self::Texture => Access::Texture,
            Self::Input(_) | Self::Weights | Self::Residual | Self::Slope => Access::Read,
        }
    }
}

/// Checks a dispatch against the device.
pub(crate) fn check_dispatch(
    kernel: &'static str,
    caps: &Caps,
    dispatch: [u64; 3],
) -> Result<[u32; 3], ShaderError> {
    let mut checked = [0; 3];
    for (to, from) in checked.iter_mut().zip(dispatch) {
        *to = u32::try_from(from).ok().filter(|n| *n <= caps.max_workgroups_per_dimension).ok_or_else(
            || {
                ShaderError::unsupported(
                    kernel,
                    format!(
                        "{dispatch:?} workgroups, of which a dimension takes {}",
                        caps.max_workgroups_per_dimension
                    ),
                )
            },
        )?;
    }
    Ok(checked)
}

/// Workgroups for `items` independent items, `per_group` to a workgroup, folded into two dimensions
/// when one is too short. Kernels find their item with `workgroup.y * num_workgroups.x + workgroup.x`.
pub(crate) fn linear_dispatch(
    kernel: &'static str,
    caps: &Caps,
    items: u64,
    per_group: u64,
) -> Result<[u32; 3], ShaderError> {
    let groups = items.div_ceil(per_group.max(1));
    let most = u64::from(caps.max_workgroups_per_dimension.max(1));
    let rows = groups.div_ceil(most).max(1);
    check_dispatch(kernel, caps, [groups.div_ceil(rows), rows, 1])
}
