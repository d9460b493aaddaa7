//! The result of resolving a spec: a variant, its uniforms and its workgroups.

use crate::{Caps, ShaderError, Variant};

/// One dispatch, ready to be compiled, bound and recorded: a variant with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The variant that a device compiles.
    pub variant: Variant,
    /// Contents of the uniform block; a multiple of 16 bytes.
    pub uniform: Vec<u8>,
    /// Number of workgroups in x, y and z. With a zero among them, nothing runs.
    pub dispatch: [u32; 3],
}

/// Checks the number of workgroups against the device's limit.
pub(crate) fn check_dispatch(
    kernel: &'static str,
    caps: &Caps,
    dispatch: [u64; 3],
) -> Result<[u32; 3], ShaderError> {
    let max = caps.max_workgroups_per_dimension;
    let mut checked = [0; 3];
    for (to, from) in checked.iter_mut().zip(dispatch) {
        *to = u32::try_from(from).ok().filter(|n| *n <= max).ok_or_else(|| {
            let why = format!("{dispatch:?} workgroups; {max} per dimension are supported");
            ShaderError::unsupported(kernel, why)
        })?;
    }
    Ok(checked)
}

/// Returns the workgroups for `items` independent items, `per_group` of them in each, folded into two dimensions if one
/// is not sufficient. Kernels find their item with `workgroup.y * num_workgroups.x + workgroup.x`.
pub(crate) fn linear_dispatch(
    kernel: &'static str,
    caps: &Caps,
    items: u64,
    per_group: u64,
) -> Result<[u32; 3], ShaderError> {
    let groups = items.div_ceil(per_group.max(1));
    let max = u64::from(caps.max_workgroups_per_dimension.max(1));
    let rows = groups.div_ceil(max).max(1);
    check_dispatch(kernel, caps, [groups.div_ceil(rows), rows, 1])
}
