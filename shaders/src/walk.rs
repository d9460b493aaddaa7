//! The iteration of kernels without data reuse over their outputs. Each invocation computes a few items, a workgroup's
//! width apart, and updates the digits of their indices by addition instead of division.

use crate::kernel::{linear_dispatch, looped};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, ShaderError};

/// Invocations of a workgroup on a CPU, and where workgroups compute a row.
const WORKGROUP: u32 = 64;
/// Invocations of a workgroup on other devices, which take time to start one: 0.7 ns on an NVIDIA H200.
const HARDWARE_WORKGROUP: u32 = 128;
/// Maximum number of items of an invocation on a CPU.
const MAX_ITEMS: u32 = 16;
/// Number of workgroups that occupy a CPU. Invocations get several items only beyond it.
const MIN_WORKGROUPS: u32 = 8;
/// The same for other devices.
const MIN_HARDWARE_WORKGROUPS: u32 = 8192;
/// Maximum number of items of an invocation on other devices.
const MAX_HARDWARE_ITEMS: u32 = 2;

/// An iteration over a nest of dimensions.
pub(crate) struct Walk {
    kernel: &'static str,
    count: u32,
    items: u32,
    /// Iterations of the loops of an item.
    inner: u64,
    workgroup: u32,
    /// From the innermost dimension out: the extent, and the digit of a step by the workgroup's invocations.
    digits: Vec<[u32; 2]>,
    /// Whether the dispatch's second dimension continues the first.
    folded: bool,
}

impl Walk {
    /// Iterates over all items of a nest with these extents, from the outermost in.
    pub(crate) fn new(kernel: &'static str, caps: &Caps, extents: &[u32]) -> Result<Self, ShaderError> {
        Self::by(kernel, caps, extents, workgroup(caps))
    }

    fn by(kernel: &'static str, caps: &Caps, extents: &[u32], workgroup: u32) -> Result<Self, ShaderError> {
        let count = elements(kernel, extents)?;
        let (workgroups, max_items) = match caps.software {
            true => (MIN_WORKGROUPS, MAX_ITEMS),
            false => (MIN_HARDWARE_WORKGROUPS, MAX_HARDWARE_ITEMS),
        };
        let items = (count / (workgroup * workgroups)).clamp(1, max_items);
        let mut step = workgroup;
        let digits = extents.iter().rev().map(|extent| {
            let digit = [*extent, step % (*extent).max(1)];
            step /= (*extent).max(1);
            digit
        });
        let mut digits: Vec<_> = digits.collect();
        // A step that exceeds the outermost dimension leads beyond the last item.
        if let Some([extent, digit]) = digits.last_mut() {
            *digit += step * *extent;
        }
        Ok(Self { kernel, count, items, inner: 0, workgroup, digits, folded: true })
    }

    /// Iterates over the columns of `rows` rows, which are the dispatch's second dimension (and third).
    pub(crate) fn columns(
        kernel: &'static str,
        caps: &Caps,
        extents: &[u32],
        rows: u32,
    ) -> Result<Self, ShaderError> {
        let walk = Self::by(kernel, caps, extents, WORKGROUP)?;
        let items = if caps.software {
            let busy = u64::from(walk.count) * u64::from(rows) / u64::from(WORKGROUP * MIN_WORKGROUPS);
            let row = walk.count.div_ceil(WORKGROUP).min(MAX_ITEMS);
            u32::try_from(busy).unwrap_or(u32::MAX).min(row).max(1)
        } else {
            1
        };
        Ok(Self { folded: false, items, ..walk })
    }

    /// States the iterations of the loops of an item. An invocation gets as few items as the device's limit requires.
    pub(crate) fn looping(self, caps: &Caps, inner: u64) -> Self {
        let most = caps.max_iterations.saturating_sub(1) / inner.saturating_add(1);
        let items = self.items.min(u32::try_from(most).unwrap_or(u32::MAX)).max(1);
        Self { items, inner, ..self }
    }

    /// Returns the iterations of an invocation.
    pub(crate) fn iterations(&self) -> u64 {
        looped(self.items, self.inner)
    }

    /// Sets the values of `include/walk.wgsl`.
    pub(crate) fn apply(&self, template: Template) -> Template {
        of(template, self.workgroup, self.digits.len(), self.folded)
    }

    /// Returns the fields `count` and `items`, with which the block begins.
    pub(crate) fn uniform(&self) -> Uniform {
        Uniform::default().u32s([self.count, self.items])
    }

    /// Returns the fields `extent_d` and `step_d` of every dimension, from the innermost out, each followed by those
    /// that `more` adds. `more` receives the dimension's index, counted from the outermost in.
    pub(crate) fn dimensions(
        &self,
        uniform: Uniform,
        mut more: impl FnMut(Uniform, usize) -> Uniform,
    ) -> Uniform {
        let last = self.digits.len().saturating_sub(1);
        self.digits
            .iter()
            .enumerate()
            .fold(uniform, |uniform, (d, digits)| more(uniform.u32s(*digits), last - d))
    }

    /// Returns the workgroups of [`Walk::new`].
    pub(crate) fn dispatch(&self, caps: &Caps) -> Result<[u32; 3], ShaderError> {
        linear_dispatch(self.kernel, caps, u64::from(self.count), self.per_group())
    }

    /// Returns the workgroups of [`Walk::columns`].
    pub(crate) fn dispatch_rows(&self, caps: &Caps, rows: u32, images: u32) -> Result<[u32; 3], ShaderError> {
        let columns = u64::from(self.count).div_ceil(self.per_group());
        crate::kernel::check_dispatch(self.kernel, caps, [columns, u64::from(rows), u64::from(images)])
    }

    fn per_group(&self) -> u64 {
        u64::from(self.workgroup) * u64::from(self.items)
    }
}

/// Returns the invocations of a workgroup of [`Walk::new`].
fn workgroup(caps: &Caps) -> u32 {
    if caps.software { WORKGROUP } else { HARDWARE_WORKGROUP }
}

/// Sets the values of `include/walk.wgsl` for a nest of `rank` dimensions, as [`Walk::new`]. No value depends on sizes.
pub(crate) fn apply(template: Template, caps: &Caps, rank: usize) -> Template {
    of(template, workgroup(caps), rank, true)
}

fn of(template: Template, workgroup: u32, rank: usize, folded: bool) -> Template {
    template
        .number("WORKGROUP", workgroup)
        .number("RANK", u32::try_from(rank).unwrap_or(u32::MAX))
        .flag("FOLDED", folded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_digits_of_the_workgroup() {
        let software = Caps { software: true, ..Caps::WEBGPU };
        let walk = |extents: &[u32]| Walk::new("test", &software, extents).unwrap().digits;
        assert_eq!(walk(&[10, 5]), [[5, 4], [10, 12]]);
        assert_eq!(walk(&[2, 3, 4]), [[4, 0], [3, 1], [2, 5]]);
        assert_eq!(walk(&[100]), [[100, 64]]);
        assert_eq!(Walk::new("test", &Caps::WEBGPU, &[100]).unwrap().digits, [[100, 128]]);
    }

    #[test]
    fn long_loops_leave_few_items() {
        let software = Caps::WEBGPU.with_software(true);
        let walk = |caps: &Caps, inner| Walk::new("test", caps, &[1 << 20]).unwrap().looping(caps, inner);
        for (inner, items) in [(0, MAX_ITEMS), (4000, MAX_ITEMS), (10_000, 6), (65_533, 1), (1 << 20, 1)] {
            let walk = walk(&software, inner);
            assert_eq!((walk.items, walk.iterations()), (items, u64::from(items) * (inner + 1) + 1));
        }
        assert_eq!(walk(&Caps::WEBGPU, 1 << 20).items, 1);
    }

    #[test]
    fn a_cpu_takes_several_items_early() {
        let software = Caps { software: true, ..Caps::WEBGPU };
        let items = |caps: &Caps, n| Walk::new("test", caps, &[n]).unwrap().items;
        assert_eq!(items(&Caps::WEBGPU, 1 << 20), 1);
        assert_eq!(items(&Caps::WEBGPU, 1 << 24), MAX_HARDWARE_ITEMS);
        assert_eq!(items(&software, 1 << 20), MAX_ITEMS);
        assert_eq!(items(&software, 100), 1);
    }
}
