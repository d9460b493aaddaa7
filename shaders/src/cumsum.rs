//! CUMSUM.

use crate::binding::bindings;
use crate::element::Element;
use crate::kernel::looped;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "cumsum";

/// Sums of all elements up to each one along a dimension: input and output are `[outer, size, inner]`.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Element type, except booleans.
    pub element: Element,
    /// Product of the extents before the dimension.
    pub outer: u32,
    /// Extent of the dimension.
    pub size: u32,
    /// Product of the extents after the dimension.
    pub inner: u32,
    /// Whether each sum excludes its own element.
    pub exclusive: bool,
    /// Whether sums run from the last element to the first.
    pub reverse: bool,
}

impl Shader for Spec {
    /// # Errors
    /// For booleans, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.outer, self.size, self.inner])?;
        if self.element == Element::Bool {
            return Err(ShaderError::unsupported(NAME, "sums of booleans"));
        }
        let walk = Walk::new(NAME, caps, &[self.outer, self.inner])?.looping(caps, looped(self.size, 0));
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/cumsum.wgsl")))
            .flag("EXCLUSIVE", self.exclusive)
            .flag("REVERSE", self.reverse)
            .text("ELEMENT", self.element.wgsl(), self.element.wgsl());
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).u32(self.size).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
