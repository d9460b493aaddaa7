//! CUMSUM.

use crate::element::Element;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "cumsum";

/// Sums of all elements up to each one along a dimension: input and output are `[outer, size, inner]`.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What is summed; not booleans.
    pub element: Element,
    /// The product of the extents before the dimension.
    pub outer: u32,
    /// Extent of the dimension.
    pub size: u32,
    /// The product of the extents after the dimension.
    pub inner: u32,
    /// Each sum leaves its own element out.
    pub exclusive: bool,
    /// Sums run from the last element to the first.
    pub reverse: bool,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When a tensor is larger than one dispatch reaches, and for booleans.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.outer, self.size, self.inner])?;
        if self.element == Element::Bool {
            return Err(ShaderError::unsupported(NAME, "sums of booleans"));
        }
        let walk = Walk::new(NAME, caps, &[self.outer, self.inner])?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/cumsum.wgsl")))
            .number("UNIFORM", 2)
            .flag("EXCLUSIVE", self.exclusive)
            .flag("REVERSE", self.reverse)
            .text("ELEMENT", self.element.wgsl(), self.element.wgsl())
            .render()?;
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).u32(self.size).finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
