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
    /// Iterations of all loops of an invocation whose number depends on sizes, at most. See [`Caps::max_iterations`].
    pub iterations: u64,
}

impl Kernel {
    /// Checks the loops of an invocation against the device's limit.
    ///
    /// # Errors
    /// [`ShaderError::Unsupported`] for more than [`Caps::max_iterations`].
    pub fn check_iterations(&self, caps: &Caps) -> Result<(), ShaderError> {
        let (most, needed) = (caps.max_iterations, self.iterations);
        if needed <= most {
            return Ok(());
        }
        let why = format!("loops of {needed} iterations; the device runs {most}");
        Err(ShaderError::unsupported(self.variant.name, why))
    }
}

/// Returns the iterations of a loop whose body runs `count` times and has loops of `inner` iterations. The test that ends the
/// loop counts as well.
pub(crate) fn looped(count: impl Into<u64>, inner: u64) -> u64 {
    count.into().saturating_mul(inner.saturating_add(1)).saturating_add(1)
}

/// Returns the iterations of a nest of loops whose bodies run these numbers of times, from the outermost in.
pub(crate) fn nested<const N: usize>(counts: [impl Into<u64>; N]) -> u64 {
    counts.into_iter().rev().fold(0, |inner, count| looped(count, inner))
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
    if items > u32::MAX.into() {
        let why = format!("{items} items; kernels count up to {}", u32::MAX);
        return Err(ShaderError::unsupported(kernel, why));
    }
    let groups = items.div_ceil(per_group.max(1));
    let max = u64::from(caps.max_workgroups_per_dimension.max(1));
    let rows = groups.div_ceil(max).max(1);
    check_dispatch(kernel, caps, [groups.div_ceil(rows), rows, 1])
}

#[cfg(test)]
mod tests {
    use super::{linear_dispatch, nested};
    use crate::Caps;

    #[test]
    fn kernels_count_in_32_bits() {
        let dispatch = |items| linear_dispatch("test", &Caps::WEBGPU, items, 64);
        assert!(dispatch(u32::MAX.into()).is_ok());
        assert!(dispatch(1 << 32).unwrap_err().to_string().contains("4294967296 items"));
    }

    #[test]
    fn inner_loops_run_once_per_iteration() {
        assert_eq!(nested([10_u64]), 11);
        assert_eq!(nested([3_u32, 5]), 3 * (1 + 6) + 1);
        assert_eq!(nested([2_u32, 3, 4]), 2 * (1 + 3 * (1 + 5) + 1) + 1);
        assert_eq!(nested([u64::MAX, 2]), u64::MAX);
    }
}
