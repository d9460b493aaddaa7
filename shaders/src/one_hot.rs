//! ONE_HOT.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "one_hot";

/// `output[outer, class, inner] = indices[outer, inner] == class ? on : off`, for elements of 32 bits.
///
/// Bindings: `Input(0)` (32-bit indices), `Input(1)` (on, one element), `Input(2)` (off, one element), `Output`,
/// `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Indices before the new dimension: the product of their extents.
    pub outer: u32,
    /// Extent of the new dimension.
    pub depth: u32,
    /// Indices after the new dimension.
    pub inner: u32,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When the output is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let extents = [self.outer, self.depth, self.inner];
        elements(NAME, &extents)?;
        let walk = Walk::new(NAME, caps, &extents)?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/one_hot.wgsl")))
            .number("UNIFORM", 4)
            .render()?;
        let inputs = (0..3).map(Binding::Input);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: inputs.chain([Binding::Output, Binding::Uniform]).collect(),
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
