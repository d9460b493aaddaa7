//! How kernels without reuse walk over their outputs: every invocation makes a few items, a workgroup's width
//! apart, and finds the digits of their indices by adding instead of dividing.

use crate::kernel::linear_dispatch;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, ShaderError};

const WORKGROUP: u32 = 64;
/// Most items of an invocation, where it has several.
const MOST_ITEMS: u32 = 16;
/// Workgroups that keep a CPU busy.
const ENOUGH: u32 = 8;

/// A walk over a nest of dimensions.
pub(crate) struct Walk {
    kernel: &'static str,
    count: u32,
    items: u32,
    /// From the innermost out: extents, and the digits of a step by [`WORKGROUP`].
    digits: Vec<[u32; 2]>,
    /// Whether the dispatch's second dimension continues the first.
    folded: bool,
}

impl Walk {
    /// Over all items of a nest with these extents, from the outermost in.
    pub(crate) fn new(kernel: &'static str, caps: &Caps, extents: &[u32]) -> Result<Self, ShaderError> {
        let count = elements(kernel, extents)?;
        let items = if caps.software { (count / (WORKGROUP * ENOUGH)).clamp(1, MOST_ITEMS) } else { 1 };
        let mut step = WORKGROUP;
        let digits = extents.iter().rev().map(|extent| {
            let digit = [*extent, step % (*extent).max(1)];
            step /= (*extent).max(1);
            digit
        });
        let mut digits: Vec<_> = digits.collect();
        // What doesn't fit the outermost dimension leads beyond the last item.
        if let Some([extent, digit]) = digits.last_mut() {
            *digit += step * *extent;
        }
        Ok(Self { kernel, count, items, digits, folded: true })
    }

    /// Over the columns of so many rows, which are the dispatch's second dimension (and third).
    pub(crate) fn columns(
        kernel: &'static str,
        caps: &Caps,
        extents: &[u32],
        rows: u32,
    ) -> Result<Self, ShaderError> {
        let walk = Self::new(kernel, caps, extents)?;
        let items = if caps.software {
            let busy = u64::from(walk.count) * u64::from(rows) / u64::from(WORKGROUP * ENOUGH);
            let row = walk.count.div_ceil(WORKGROUP).min(MOST_ITEMS);
            u32::try_from(busy).unwrap_or(u32::MAX).min(row).max(1)
        } else {
            1
        };
        Ok(Self { folded: false, items, ..walk })
    }

    /// Sets what `include/walk.wgsl` wants.
    pub(crate) fn apply(&self, template: Template) -> Template {
        template
            .number("WORKGROUP", WORKGROUP)
            .number("RANK", u32::try_from(self.digits.len()).unwrap_or(u32::MAX))
            .flag("FOLDED", self.folded)
    }

    /// The fields `count` and `items`, which the block begins with.
    pub(crate) fn uniform(&self) -> Uniform {
        Uniform::default().u32s([self.count, self.items])
    }

    /// The fields `extent_d` and `step_d` of every dimension, each followed by what `more` adds for it.
    /// `more` gets a dimension's place from the outermost in.
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

    /// Workgroups of a [`Walk::new`].
    pub(crate) fn dispatch(&self, caps: &Caps) -> Result<[u32; 3], ShaderError> {
        linear_dispatch(self.kernel, caps, u64::from(self.count), self.per_group())
    }

    /// Workgroups of a [`Walk::columns`].
    pub(crate) fn dispatch_rows(&self, caps: &Caps, rows: u32, images: u32) -> Result<[u32; 3], ShaderError> {
        let columns = u64::from(self.count).div_ceil(self.per_group());
        crate::kernel::check_dispatch(self.kernel, caps, [columns, u64::from(rows), u64::from(images)])
    }

    fn per_group(&self) -> u64 {
        u64::from(WORKGROUP) * u64::from(self.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_digits_of_the_workgroup() {
        let walk = |extents: &[u32]| Walk::new("test", &Caps::WEBGPU, extents).unwrap().digits;
        assert_eq!(walk(&[10, 5]), [[5, 4], [10, 12]]);
        assert_eq!(walk(&[2, 3, 4]), [[4, 0], [3, 1], [2, 5]]);
        assert_eq!(walk(&[100]), [[100, 64]]);
    }

    #[test]
    fn only_a_cpu_takes_several_items() {
        let software = Caps { software: true, ..Caps::WEBGPU };
        let items = |caps: &Caps, n| Walk::new("test", caps, &[n]).unwrap().items;
        assert_eq!(items(&Caps::WEBGPU, 1 << 20), 1);
        assert_eq!(items(&software, 1 << 20), MOST_ITEMS);
        assert_eq!(items(&software, 100), 1);
    }
}
