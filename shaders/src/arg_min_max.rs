//! ARG_MAX and ARG_MIN.

use crate::binding::bindings;
use crate::element::Element;
use crate::kernel::linear_dispatch;
use crate::reduce;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "arg_min_max";

/// The index along a dimension of the largest or smallest element, the lowest of equal ones. The input is
/// `[outer, size, inner]`, the output `[outer, inner]` holds 32-bit indices. NaN is only chosen where all elements are NaN.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Type of the input's elements.
    pub element: Element,
    /// Product of the extents before the dimension.
    pub outer: u32,
    /// Extent of the dimension.
    pub size: u32,
    /// Product of the extents after the dimension.
    pub inner: u32,
    /// Whether to find the largest element, or the smallest.
    pub largest: bool,
}

impl Shader for Spec {
    /// # Errors
    /// For an input that is empty or larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        if elements(NAME, &[self.outer, self.size, self.inner])? == 0 {
            return Err(ShaderError::invalid(NAME, format!("an empty input: {self:?}")));
        }
        let lines = self.outer * self.inner;
        let split = reduce::Split::new(caps, lines, self.size);
        let template = split
            .apply(Template::new(NAME, include_str!("wgsl/arg_min_max.wgsl")))
            .flag("ALONG", !Threshold::SEVERAL.holds(self.inner))
            .flag("FLOAT", self.element == Element::F32)
            .flag("LARGEST", self.largest);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: Uniform::default().u32s([lines, self.size, self.inner]).finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(lines), split.outputs())?,
            iterations: split.iterations(self.size),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::thresholds(reduce::Split::thresholds(caps).iter().chain(&[Threshold::SEVERAL]))
    }
}
